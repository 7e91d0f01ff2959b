r"""Draws of a positive scale with the density proportional to s^(k-1) exp(-A s^2 / 2 + B s), by rejection.

It is the conditional of the scale of parameter expansion where the prior of what is scaled has a nonzero mean (see
`gibbs_sweep`).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from ethogram.inference.choices.latent_utilities import normal_below, open_uniform, two_sided

__all__ = ["draw_tilted"]


def draw_tilted(key: Array, power: Array, square: Array, drift: Array) -> Array:
    r"""Draws of s > 0 with density proportional to :math:`s^{k-1} \exp(-A s^2 / 2 + B s)`, one an entry of A and B.

    The power k is at least 1, which gives a truncated normal; the square A is above 0; B is the drift. The curvature of
    the log density decreases in s, to A: a normal of precision A right of the mode, and one with the curvature at the
    mode left of it, dominate the density and touch it at the mode.
    """
    key_first, key_rest = jax.random.split(key)
    dtype = square.dtype
    above = power - 1
    root = jnp.sqrt(drift**2 + 4 * square * above)
    # Of the two forms of the root of a quadratic, the one without cancellation.
    below = jnp.where(drift > 0, 1, root - drift)
    mode = jnp.where(drift > 0, (drift + root) / (2 * square), 2 * above / jnp.where(below > 0, below, 1))
    at = jnp.where(mode > 0, mode, 1)
    right = 1 / jnp.sqrt(square)
    left = 1 / jnp.sqrt(square + above / at**2)

    def log_density(s):
        inside = jnp.where(s > 0, s, at)
        height = above * jnp.log(inside / at) - 0.5 * square * (inside**2 - at**2) + drift * (inside - at)
        return jnp.where(s > 0, height, -jnp.inf)

    tiny = jnp.finfo(dtype).tiny
    lower = drift * right
    uniform = open_uniform(jax.random.bits(key_first, mode.shape, jnp.uint32), dtype)
    truncated = right * jnp.maximum(lower - normal_below(lower, uniform), tiny)
    return two_sided(key_rest, mode, left, right, log_density, truncated, above == 0)
