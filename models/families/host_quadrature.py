"""Draws of u = ln(size) by NumPy, for conjugate blocks without a closed normaliser."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from ethogram.models.families.log_quadrature import DROP, REACH

__all__ = ["draw_log_size"]

NUM_NODES = 1024
NARROWINGS = 5
"""Each takes an interval of the real line at least a hundred times as narrow, until the density fills it."""


def draw_log_size(
    random: np.random.Generator,
    log_density: Callable[[np.ndarray], np.ndarray],
    batch: tuple[int, ...],
    num_draws: int,
) -> Float[np.ndarray, "draw *batch"]:
    """Draws of u by the inverse of the distribution function on equally spaced nodes, linear between them.

    `log_density` of (*batch, node) has a single mode within :data:`REACH` of 0. In double precision its values need no
    integral of the slope, as those of :func:`ethogram.models.families.log_quadrature.log_quadrature` do.
    """
    share = np.linspace(0, 1, NUM_NODES)
    low, high = np.full((*batch, 1), -REACH), np.full((*batch, 1), REACH)
    for _ in range(NARROWINGS):
        step, node = (high - low) / (NUM_NODES - 1), low + (high - low) * share
        height = log_density(node)
        height -= height.max(axis=-1, keepdims=True)
        inside = np.where(height > -DROP, node, np.nan)
        low, high = np.nanmin(inside, -1, keepdims=True) - step, np.nanmax(inside, -1, keepdims=True) + step
    weight = np.exp(height).reshape(-1, NUM_NODES)
    below = np.cumsum(0.5 * (weight[:, 1:] + weight[:, :-1]), axis=-1)
    below = np.concatenate([np.zeros_like(below[:, :1]), below / below[:, -1:]], axis=-1)
    nodes, chance = node.reshape(-1, NUM_NODES), random.random((num_draws, len(below)))
    drawn = [np.interp(*row) for row in zip(chance.T, below, nodes, strict=True)]
    return np.stack(drawn, axis=-1).reshape(num_draws, *batch)
