r"""Slice draws of independent log densities, and of the logarithms of variances with a prior.

.. math:: p(\kappa \mid \theta) \propto p(\kappa)\, \kappa^{-n/2} \exp(-\textstyle\sum_i \theta_i^2 / 2 \kappa)

Neal (2003), "Slice sampling", figures 3 and 5.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

__all__ = ["draw_log_variances", "slice_draw"]

MOST_STEPS = 100
"""Most steps outwards, or shrinkages, of a slice."""


def draw_log_variances(key: Array, prior: Any, log_variance: Array, number: Array, total: Array) -> Array:
    """The next logarithms of variances (...) of so many normals, with these sums of squares, about zero."""
    number, total = (jnp.reshape(x, log_variance.shape) for x in (number, total))

    def log_density(x):
        variance = jnp.exp(x)
        inside = prior.support(variance)
        density = (
            prior.log_prob(jnp.where(inside, variance, 1)) + (1 - number / 2) * x - total / (2 * variance)
        )
        return jnp.where(inside, density, -jnp.inf)

    return slice_draw(key, log_density, log_variance)


def slice_draw(key: Array, log_density: Callable[[Array], Array], x: Array) -> Array:
    """The next draws of the entries of x, independent of each other, with this log density (...) up to a constant."""
    key_height, key_place, key_shrink = jax.random.split(key, 3)
    height = log_density(x) - jax.random.exponential(key_height, x.shape, x.dtype)
    left = x - jax.random.uniform(key_place, x.shape, x.dtype)

    def outwards(end, step):
        def above(carry):
            return (log_density(carry[0]) > height) & (carry[1] < MOST_STEPS)

        def further(carry):
            return jnp.where(above(carry), carry[0] + step, carry[0]), carry[1] + 1

        return lax.while_loop(lambda carry: jnp.any(above(carry)), further, (end, 0))[0]

    def shrink(carry):
        left, right, new, key, count = carry
        key, key_new = jax.random.split(key)
        found = log_density(new) > height
        left, right = (
            jnp.where(side, new, end)
            for side, end in ((~found & (new < x), left), (~found & (new > x), right))
        )
        tried = left + (right - left) * jax.random.uniform(key_new, x.shape, x.dtype)
        return left, right, jnp.where(found, new, tried), key, count + 1

    ends = outwards(left, -1.0), outwards(left + 1, 1.0)
    key_first, key_rest = jax.random.split(key_shrink)
    first = ends[0] + (ends[1] - ends[0]) * jax.random.uniform(key_first, x.shape, x.dtype)
    carry = lax.while_loop(
        lambda carry: jnp.any(~(log_density(carry[2]) > height)) & (carry[4] < MOST_STEPS),
        shrink,
        (*ends, first, key_rest, 0),
    )
    return jnp.where(log_density(carry[2]) > height, carry[2], x)
