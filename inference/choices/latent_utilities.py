r"""Latent utilities of probit choices, drawn given the chosen options.

Arrays are ``(option, decision, chain)`` with the chosen option, the winner, first. Given its utility :math:`w_0` the
others are independent normals truncated above at :math:`w_0`, and vice versa. Marginally it has the log density
:math:`g(w) = -(w - \mu_0)^2 / 2 + \sum_j \ln \Phi(w - \mu_j)`, concave, with a curvature between 1 and the number of
options that decreases in w: a normal of unit variance right of the mode, and one with the curvature at the mode left of
it, dominate the density and touch it at the mode.

Data augmentation: Albert, Chib (1993); truncated normals one at a time: Geweke (1991); the winner: Singh, Chopin and
Whiteley, "Bayesian learning of noisy Markov decision processes", section 7.2, whose proposal, a normal with the
curvature at the mode on both sides, has a lighter right tail than its target.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.scipy.special import erfc, log_ndtr, ndtri

from ethogram.models.choices.probit_choice import above_hazard, hazard

__all__ = ["draw_latents", "normal_below"]

_SAFE = {np.dtype(np.float32): -11.0, np.dtype(np.float64): -36.0}
"""Down to these bounds the smallest uniform times Phi(bound) is a normal float, and inversion is accurate."""

SQRT_HALF = math.sqrt(0.5)
NEWTON_STEPS = 12
SLOPE = 1e-4
"""Newton's method ends where the next step is shorter: the error of the envelope is then below its square."""


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


def draw_latents(
    key: Array, mean: Array, legal: Array, utilities: Array, winner: str, proposals: int
) -> tuple[Array, Array]:
    """Latent utilities (option, decision, chain) given their means and the winners, and acceptance rates.

    Options that are not legal (option, decision, 1) get zero. ``"gibbs"``, ``"mh"`` and ``"paper"`` start from the
    current utilities; winner and proposals are those of :class:`~ethogram.inference.choices.px_da.PXDA`.
    """
    dtype = mean.dtype
    key_bits, key_winner = jax.random.split(key)
    uniform = open_uniform(jax.random.bits(key_bits, mean.shape, jnp.uint32), dtype)
    others = jnp.where(legal[1:], utilities[1:], -jnp.inf)
    taken = jnp.ones(mean.shape[1:], dtype)
    if winner == "gibbs":
        top = jnp.max(others, axis=0)
        best = mean[0] - normal_below(mean[0] - top, uniform[0])
    elif winner == "rejection":
        best = _by_rejection(key_winner, mean, legal)
    else:
        best, taken = _by_metropolis(key_winner, mean, legal, utilities[0], proposals, winner == "paper")
    below = mean[1:] + normal_below(best - mean[1:], uniform[1:])
    below = jnp.minimum(below, best)
    return jnp.where(legal, jnp.concatenate([best[None], below]), 0), taken


def _log_density(w: Array, mean: Array, legal: Array) -> Array:
    return -0.5 * (w - mean[0]) ** 2 + jnp.sum(jnp.where(legal[1:], log_ndtr(w - mean[1:]), 0), axis=0)


def _mode(mean: Array, legal: Array) -> tuple[Array, Array]:
    """Mode of the marginal of the winner and the curvature there, by Newton's method from its mean, from below."""

    def slopes(w):
        at = jnp.where(legal[1:], w - mean[1:], 0)
        rate = jnp.where(legal[1:], hazard(at), 0)
        return jnp.sum(rate, 0) - (w - mean[0]), 1 + jnp.sum(rate * above_hazard(at, rate), 0)

    def step(carry):
        w, slope, curvature, count = carry
        w = w + slope / curvature
        return w, *slopes(w), count + 1

    def is_away(carry):
        _, slope, curvature, count = carry
        return (count < NEWTON_STEPS) & jnp.any(jnp.abs(slope) > SLOPE * curvature)

    w, _, curvature, _ = lax.while_loop(is_away, step, (mean[0], *slopes(mean[0]), 0))
    return w, curvature


def _propose(key: Array, mode: Array, curvature: Array) -> tuple[Array, Array]:
    """A draw from the two-sided envelope, and the log of the envelope there relative to the mode."""
    key_side, key_size = jax.random.split(key)
    spread = 1 / jnp.sqrt(curvature)
    left = jax.random.uniform(key_side, mode.shape, mode.dtype) < spread / (1 + spread)
    size = jnp.abs(jax.random.normal(key_size, mode.shape, mode.dtype))
    return mode + jnp.where(left, -size * spread, size), -0.5 * size**2


def _by_rejection(key: Array, mean: Array, legal: Array) -> Array:
    mode, curvature = _mode(mean, legal)
    top = _log_density(mode, mean, legal)

    def attempt(carry):
        key, found, done = carry
        key, key_draw, key_take = jax.random.split(key, 3)
        proposed, envelope = _propose(key_draw, mode, curvature)
        ratio = _log_density(proposed, mean, legal) - top - envelope
        take = ~done & (jnp.log(jax.random.uniform(key_take, mode.shape, mode.dtype)) < ratio)
        broken = jnp.isnan(ratio)  # else the loop would never end
        return key, jnp.where(take, proposed, jnp.where(broken & ~done, ratio, found)), done | take | broken

    start = (key, mode, jnp.zeros(mode.shape, bool))
    return lax.while_loop(lambda carry: ~jnp.all(carry[2]), attempt, start)[1]


def _by_metropolis(
    key: Array, mean: Array, legal: Array, before: Array, proposals: int, as_printed: bool
) -> tuple[Array, Array]:
    mode, curvature = _mode(mean, legal)

    def envelope(w: Array) -> Array:
        return -0.5 * jnp.where(as_printed | (w < mode), curvature, 1) * (w - mode) ** 2

    # The target is the marginal of the winner: the others do not enter.
    w, taken = before, jnp.zeros(mode.shape, mode.dtype)
    weight = _log_density(w, mean, legal) - envelope(w)
    for key_one in jax.random.split(key, proposals):
        key_draw, key_take = jax.random.split(key_one)
        if as_printed:
            proposed = mode + jax.random.normal(key_draw, mode.shape, mode.dtype) / jnp.sqrt(curvature)
        else:
            proposed = _propose(key_draw, mode, curvature)[0]
        ratio = _log_density(proposed, mean, legal) - envelope(proposed)
        take = jnp.log(jax.random.uniform(key_take, mode.shape, mode.dtype)) < ratio - weight
        w, weight = jnp.where(take, proposed, w), jnp.where(take, ratio, weight)
        taken = taken + take
    return w, taken / proposals
