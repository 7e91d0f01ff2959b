"""Draws of a Bayesian network on the host, to start searches from."""

from __future__ import annotations

import jax
import numpy as np
from jax import Array

from ethogram.models.bayes_net import MarginalMAP

__all__ = ["draw_states", "generator"]


def generator(key: Array) -> np.random.Generator:
    """A generator of NumPy's from a typed key."""
    return np.random.default_rng(np.asarray(jax.random.key_data(key)).astype(np.uint32).tolist())


def draw_states(random: np.random.Generator, query: MarginalMAP) -> dict[int, int]:
    """States by variable, drawn from parents to children, with the evidence where it is, whether it fits or not."""
    network, states = query.network, dict(query.observed)
    uniform = random.random(network.num_variables)
    for number in network.order:
        if number not in states:
            row = network.tables[number][tuple(states[parent] for parent in network.parents[number])]
            total = np.cumsum(row)
            states[number] = min(
                int(np.searchsorted(total, uniform[number] * total[-1], "right")), len(row) - 1
            )
    return states
