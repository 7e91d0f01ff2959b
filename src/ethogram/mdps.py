"""Markov decision processes: transitions, soft and optimal values, and the soft-optimal agent."""

from ethogram.models import mdps as _models
from ethogram.models.mdps import *  # noqa: F403

__all__ = sorted(_models.__all__)
