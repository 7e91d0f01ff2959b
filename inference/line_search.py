"""The line search of the authors' AGS and SOGBOFA programs, which is not in their papers.

With a the largest step that takes some coordinate one beyond its bound, the steps a/10, 2a/10, ..., a are tried and the
best is taken, even where it lowers the value; where the smallest is best, a is divided by ten, up to six rounds in all.

Programs released with Cui, Khardon (2016), "Online symbolic gradient-based optimization for factored action MDPs", and
with Cui, Marinescu, Khardon (2018), "From stochastic planning to marginal MAP".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import Array, lax

__all__ = ["ROUNDS", "line_search"]

TRIED, ROUNDS = 10, 6
"""Steps tried at a time, and rounds."""


def line_search(
    value: Callable[[Array], Array],
    gradient: Array,
    position: Array,
    inside: Callable[[Array], Array],
    *,
    rounds: int = ROUNDS,
) -> Array:
    """Positions after one step of the authors' line search.

    Parameters
    ----------
    value : (restart,) of positions (..., restart).
    gradient : (..., restart) of the value; its scale does not matter, and coordinates that cannot move have zero.
    position : (..., restart) in [0, 1].
    inside : projection of positions (..., restart) or (..., restart, step) to where they are allowed.
    rounds : largest number of rounds.
    """
    axes = tuple(range(position.ndim - 1))
    # The step does not depend on the gradient's scale, which near a zero is too large to be squared.
    gradient = gradient / jnp.maximum(jnp.abs(gradient).max(axes, initial=0), jnp.finfo(gradient.dtype).tiny)
    top = position.max(axes, initial=0) + 1
    room = jnp.where(gradient > 0, top - position, position + 1) / jnp.abs(gradient)
    largest = jnp.where(gradient != 0, room, jnp.inf).min(axes, initial=jnp.inf)
    largest = jnp.where(jnp.isfinite(largest), largest, 0)

    def look(state: Any) -> Any:
        largest, best_step, best_value, going, round_ = state
        steps = largest[:, None] * jnp.arange(1, TRIED + 1) / TRIED
        tried = inside(position[..., None] + steps * gradient[..., None])
        values = value(tried.reshape(*position.shape[:-1], steps.size)).reshape(steps.shape)
        at = jnp.argmax(values, 1, keepdims=True)
        here = jnp.take_along_axis(values, at, 1)[:, 0]
        better = going & (here > best_value)
        best_step = jnp.where(better, jnp.take_along_axis(steps, at, 1)[:, 0], best_step)
        best_value = jnp.where(better, here, best_value)
        going = going & (best_step == steps[:, 0])
        return largest / 10, best_step, best_value, going, round_ + 1

    none = jnp.zeros_like(largest)
    start = largest, none, none - jnp.inf, largest > 0, jnp.zeros((), jnp.int32)
    step = lax.while_loop(lambda state: state[3].any() & (state[4] < rounds), look, start)[1]
    return inside(position + step * gradient)
