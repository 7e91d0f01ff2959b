"""One step of the authors' AGS program: their line search on the surrogate of forward marginals.

Projection onto the simplex for more than two states: Duchi et al. (2008), "Efficient projections onto the l1-ball",
figure 1.
"""

from __future__ import annotations

import functools

import jax.numpy as jnp
from jax import Array

from ethogram.inference.line_search import line_search
from ethogram.inference.networks.forward_layout import Kind, Layout
from ethogram.inference.networks.forward_marginals import log_value, value_and_gradient

__all__ = ["ags_step"]


def ags_step(layout: Layout, kinds: tuple[Kind, ...], weights: Array) -> Array:
    """Weights after one step of the authors' line search."""
    gradient = jnp.where(layout.states[..., None], value_and_gradient(layout, kinds, weights)[1], 0)
    return line_search(functools.partial(log_value, layout, kinds), gradient, weights, _inside)


def _inside(weights: Array) -> Array:
    """Euclidean projection of weights: into [0, 1], and onto the simplex where those of a variable exceed one."""
    clipped = jnp.clip(weights, 0, 1)
    deep = weights.shape[1]
    if deep == 1:
        return clipped
    ordered = jnp.sort(weights, 1, descending=True)
    many = jnp.arange(1, deep + 1).reshape(-1, *(1,) * (weights.ndim - 2))
    over = (jnp.cumsum(ordered, 1) - 1) / many
    last = jnp.sum(ordered > over, 1, keepdims=True) - 1
    nearest = jnp.maximum(weights - jnp.take_along_axis(over, last, 1), 0)
    return jnp.where(clipped.sum(1, keepdims=True) > 1, nearest, clipped)
