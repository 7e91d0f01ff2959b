"""The line search of the authors' AGS program, which is not in the paper.

With a the largest step that takes some weight one beyond its bound, the steps a/10, 2a/10, ..., a are tried and the
best is taken, even where it lowers the surrogate; where the smallest is best, a is divided by ten, up to six rounds in
all.

Program released with Cui, Marinescu, Khardon (2018), "From Stochastic Planning to Marginal MAP"; projection onto the
simplex for more than two states: Duchi et al. (2008), "Efficient projections onto the l1-ball", figure 1.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array, lax

from ethogram.inference.networks.forward_layout import Kind, Layout
from ethogram.inference.networks.forward_marginals import log_value, value_and_gradient

__all__ = ["ags_step"]

TRIED, ROUNDS = 10, 6
"""Steps tried at a time, and rounds."""


def ags_step(layout: Layout, kinds: tuple[Kind, ...], weights: Array) -> Array:
    """Weights after one step of the authors' line search."""
    gradient = jnp.where(layout.states[..., None], value_and_gradient(layout, kinds, weights)[1], 0)
    # The step does not depend on the gradient's scale, which near a zero is too large to be squared.
    gradient = gradient / jnp.maximum(jnp.abs(gradient).max((0, 1)), jnp.finfo(gradient.dtype).tiny)
    top = weights.max((0, 1)) + 1
    room = jnp.where(gradient > 0, top - weights, weights + 1) / jnp.abs(gradient)
    largest = jnp.where(gradient != 0, room, jnp.inf).min((0, 1))
    largest = jnp.where(jnp.isfinite(largest), largest, 0)

    def look(state: Any) -> Any:
        largest, best_step, best_value, going, rounds = state
        steps = largest[:, None] * jnp.arange(1, TRIED + 1) / TRIED
        tried = _inside(weights[..., None] + steps * gradient[..., None])
        values = log_value(layout, kinds, tried.reshape(*weights.shape[:2], -1)).reshape(steps.shape)
        at = jnp.argmax(values, 1, keepdims=True)
        here = jnp.take_along_axis(values, at, 1)[:, 0]
        better = going & (here > best_value)
        best_step = jnp.where(better, jnp.take_along_axis(steps, at, 1)[:, 0], best_step)
        best_value = jnp.where(better, here, best_value)
        going = going & (best_step == steps[:, 0])
        return largest / 10, best_step, best_value, going, rounds + 1

    none = jnp.zeros_like(largest)
    start = largest, none, none - jnp.inf, largest > 0, jnp.zeros((), jnp.int32)
    step = lax.while_loop(lambda state: state[3].any() & (state[4] < ROUNDS), look, start)[1]
    return _inside(weights + step * gradient)


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
