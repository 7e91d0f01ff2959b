r"""Latent utilities of probit choices, drawn given the chosen options.

Arrays are ``(option, decision, chain)`` with the chosen option, the winner, first. Given its utility :math:`w_0` the
others are independent normals truncated above at :math:`w_0`, and vice versa. Marginally it has the log density
:math:`g(w) = -(w - \mu_0)^2 / 2 + \sum_j \ln \Phi(w - \mu_j)`, concave, with a curvature between 1 and the number of
options that decreases in w: a normal of unit variance right of the mode, and one with the curvature at the mode left of
it, dominate the density and touch it at the mode.

Data augmentation: Albert, Chib (1993); truncated normals one at a time: Geweke (1991); the winner: Singh, Chopin and
Whiteley, "Bayesian learning of noisy Markov decision processes", section 7.2.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.scipy.special import erfc, ndtri

from ethogram.models.choices.probit_choice import log_ndtr, winner_mode

__all__ = ["draw_latents", "normal_below", "open_uniform", "two_sided", "winner_log_density", "with_others"]

_SAFE = {np.dtype(np.float32): -11.0, np.dtype(np.float64): -36.0}
"""Down to these bounds the smallest uniform times Phi(bound) is a normal float, and inversion is accurate."""

SQRT_HALF = math.sqrt(0.5)


def normal_below(bound: Array, uniform: Array) -> Array:
    """Standard normals truncated above at a bound, by inversion of uniforms in (0, 1); accurate in the far tail."""
    safe = bound > _SAFE[bound.dtype]
    near = jnp.where(safe, bound, 0)
    # Phi as one erfc: jax's ndtr evaluates erf and erfc both, and selects.
    middle = jnp.minimum(ndtri(uniform * (0.5 * erfc(-near * SQRT_HALF))), near)

    def with_tail():
        return jnp.where(safe, middle, _tail(jnp.where(safe, -1, bound), uniform))

    return lax.cond(jnp.all(safe), lambda: middle, with_tail)


def _tail(bound: Array, uniform: Array) -> Array:
    """The same in the tail, by three fixed-point steps on the asymptotic series of ln Phi(-t)."""

    def rest(t):
        square = 1 / (t * t)
        return 2 * jnp.log(t) - 2 * jnp.log1p(square * (-1 + 3 * square))

    target = bound**2 + rest(-bound) - 2 * jnp.log(uniform)
    t = -bound
    for _ in range(3):
        t = jnp.sqrt(target - rest(t))
    return jnp.minimum(-t, bound)


def open_uniform(bits: Array, dtype: Any) -> Array:
    """Uniforms in the open interval (0, 1) from 32 random bits: all of them in double, 23 in single precision."""
    if dtype == jnp.float64:
        return (bits.astype(dtype) + 0.5) * 2.0**-32
    return ((bits >> 9).astype(dtype) + 0.5) * jnp.asarray(2.0**-23, dtype)


def draw_latents(key: Array, mean: Array, legal: Array, utilities: Array, winner: str) -> Array:
    """Latent utilities (option, decision, chain) given their means and the winners.

    Options that are not legal (option, decision, 1) get zero. The winner's utility is drawn given the current ones of
    the others, ``"gibbs"``, or from its marginal, ``"rejection"``.
    """
    key_bits, key_winner = jax.random.split(key)
    uniform = open_uniform(jax.random.bits(key_bits, mean.shape, jnp.uint32), mean.dtype)
    if winner == "gibbs":
        top = jnp.max(jnp.where(legal[1:], utilities[1:], -jnp.inf), axis=0)
        chosen = mean[0] - normal_below(mean[0] - top, uniform[0])
    else:
        chosen = _by_rejection(key_winner, mean, legal)
    return with_others(chosen, mean, legal, uniform[1:])


def with_others(chosen: Array, mean: Array, legal: Array, uniform: Array) -> Array:
    """Latent utilities given that of the winner, by inversion of uniforms of the others."""
    below = jnp.minimum(mean[1:] + normal_below(chosen - mean[1:], uniform), chosen)
    return jnp.where(legal, jnp.concatenate([chosen[None], below]), 0)


def winner_log_density(w: Array, mean: Array, legal: Array) -> Array:
    """Log density g, up to a constant."""
    return -0.5 * (w - mean[0]) ** 2 + jnp.sum(jnp.where(legal[1:], log_ndtr(w - mean[1:]), 0), axis=0)


def _by_rejection(key: Array, mean: Array, legal: Array) -> Array:
    mode, curvature = winner_mode(mean[0] - mean[1:], legal[1:])
    top = winner_log_density(mean[0] + mode, mean, legal)

    def log_ratio(w):
        return winner_log_density(w, mean, legal) - top

    return two_sided(key, mean[0] + mode, 1 / jnp.sqrt(curvature), jnp.ones_like(mode), log_ratio)


def two_sided(
    key: Array, mode: Array, left: Any, right: Any, log_ratio: Any, found: Any = None, done: Any = False
) -> Array:
    """Draws by rejection from two half normals that meet at the mode, and dominate the density.

    Devroye (1986), "Non-uniform random variate generation", for log-concave densities.

    Parameters
    ----------
    left, right : standard deviations of the half normals.
    log_ratio : log density relative to that at the mode; minus infinity where there is none, NaN is returned as it is.
    found, done : draws that are known before, and where.
    """
    shape, dtype = mode.shape, mode.dtype

    def attempt(carry):
        key, found, done = carry
        key, key_side, key_size, key_take = jax.random.split(key, 4)
        leftward = jax.random.uniform(key_side, shape, dtype) < left / (left + right)
        size = jnp.abs(jax.random.normal(key_size, shape, dtype))
        proposed = mode + jnp.where(leftward, -left, right) * size
        ratio = log_ratio(proposed) + 0.5 * size**2
        take = ~done & (jnp.log(jax.random.uniform(key_take, shape, dtype)) < ratio)
        broken = jnp.isnan(ratio)  # else the loop would never end
        return key, jnp.where(take, proposed, jnp.where(broken & ~done, ratio, found)), done | take | broken

    start = (key, mode if found is None else found, jnp.broadcast_to(done, shape))
    return lax.while_loop(lambda carry: ~jnp.all(carry[2]), attempt, start)[1]
