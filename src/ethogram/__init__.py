"""Probabilistic models of agents that decide in sequence."""
