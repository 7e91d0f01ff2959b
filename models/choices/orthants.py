r"""Log probabilities of orthants of correlated normals, accurate in the tails and near singular correlations.

.. math:: \Phi_p(h; R) = \int_{-\infty}^{h_1} \phi(z)\,
          \Phi_{p-1}\Big(\frac{h_j - R_{1j} z}{\sqrt{1 - R_{1j}^2}}; R_{\cdot\mid 1}\Big) dz

Up to three dimensions by nested Gauss-Legendre rules, over the window in which the log-concave integrand counts, with
the most binding bound first. Derivatives are those of Plackett (1954), "A reduction formula for normal multivariate
integrals", and need a dimension less. Beyond three the probability is simulated by GHK on fixed quasi-random points,
the same at every call, so that the simulated likelihood is smooth: Train (2009), "Discrete choice methods with
simulation", section 5.6.3. The log of a simulated probability is biased by minus half its relative variance.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.scipy.linalg import cholesky
from jax.scipy.special import logsumexp, ndtri

from ethogram.models.choices.probit_choice import hazard, log_ndtr, log_ndtr_and_hazard

__all__ = ["BEYOND", "MOST_EXACT", "POINTS", "log_orthant", "simulated_orthant"]

NODES = {2: 32, 3: 16}
"""Of each rule by dimension: errors of ln P are about 1e-10 and 1e-8, above 1e-5 where correlations are beyond .99."""

MOST_EXACT = max(NODES)
"""Dimensions of a probability that is integrated; those of more are simulated."""

DROP = {2: 33.0, 3: 19.0}
"""Of the log of the integrand, from its mode to the ends of the window."""

POINTS = 256
"""Of a simulated probability, by decision."""

MODE_STEPS, END_STEPS = 8, 8
"""Of Newton's method for the mode and the ends of a window, which need not be exact."""

BEYOND = 40.0
"""A bound that does not bind."""

LEAST_REST = 1e-12
"""Of the variance that one variable leaves another."""

_LOG_ROOT_TWO_PI = 0.5 * math.log(2 * math.pi)


def log_orthant(bounds: Array, correlation: Array, num_points: int = POINTS) -> Array:
    """Log probability (...) that standard normals are below their bounds (variable, ...).

    The correlation is (variable, variable, ...), of which entries above the diagonal are read. Points are those of a
    simulated probability.
    """
    if len(bounds) == 0:
        return jnp.zeros(bounds.shape[1:], bounds.dtype)
    if len(bounds) == 1:
        return log_ndtr(bounds[0])
    if len(bounds) <= MOST_EXACT:
        return _integrated(bounds, correlation)
    return simulated_orthant(bounds, correlation, num_points)


@jax.custom_jvp
def _integrated(bounds: Array, correlation: Array) -> Array:
    order = jnp.argsort(bounds, axis=0)
    pairs = (order[:, None] * len(bounds) + order).reshape(-1, *bounds.shape[1:])
    flat = jnp.reshape(jnp.broadcast_to(correlation, (len(bounds), *bounds.shape)), pairs.shape)
    ordered = jnp.take_along_axis(flat, pairs, 0).reshape(len(bounds), *bounds.shape)
    return _nested(jnp.take_along_axis(bounds, order, 0), ordered, NODES[len(bounds)], DROP[len(bounds)])


@_integrated.defjvp
def _integrated_jvp(primals, tangents):
    bounds, correlation = primals
    value, change = _integrated(bounds, correlation), 0.0
    for i, at in enumerate(bounds):
        log_density = -0.5 * at**2 - _LOG_ROOT_TWO_PI
        rest = log_orthant(*_given(i, bounds, correlation))
        change = change + jnp.exp(log_density + rest - value) * tangents[0][i]
        for j in range(i + 1, len(bounds)):
            r = correlation[i, j]
            left = jnp.maximum(1 - r**2, LEAST_REST)
            both = (
                -0.5 * (at**2 + (bounds[j] - r * at) ** 2 / left) - 0.5 * jnp.log(left) - 2 * _LOG_ROOT_TWO_PI
            )
            rest = log_orthant(*_given(j - 1, *_given(i, bounds, correlation)))
            change = change + jnp.exp(both + rest - value) * tangents[1][i, j]
    return value, change


def _given(first: int, bounds: Array, correlation: Array) -> tuple[Array, Array]:
    """Bounds of the other variables given that one is at its bound, and their correlation."""
    others = np.delete(np.arange(len(bounds)), first)
    if len(others) == 0:
        return bounds[:0], correlation[:0, :0]
    r = jnp.stack([correlation[min(first, j), max(first, j)] for j in others])
    scale = 1 / jnp.sqrt(jnp.maximum(1 - r**2, LEAST_REST))
    rest = (correlation[np.ix_(others, others)] - r[:, None] * r) * scale[:, None] * scale
    return (bounds[others] - r * bounds[first]) * scale, jnp.clip(rest, -1, 1)


def _nested(bounds: Array, correlation: Array, num_nodes: int, drop: float) -> Array:
    """The integral over the first variable."""
    r = correlation[0, 1:]
    scale = 1 / jnp.sqrt(jnp.maximum(1 - r**2, LEAST_REST))
    start, slope = bounds[1:] * scale, -r * scale
    rest: Any = None
    if len(bounds) == 3:
        rest = jnp.clip((correlation[1, 2] - r[0] * r[1]) * scale[0] * scale[1], -1, 1)
    left, right = _window(bounds[0], start, slope, rest, drop)
    x, weight = np.polynomial.legendre.leggauss(num_nodes)

    def at(node):
        z = left + (right - left) * node
        inner = start + slope * z
        if rest is None:
            return log_ndtr(inner[0]) - 0.5 * z**2
        swapped = inner[1] < inner[0]
        inner = jnp.where(swapped, inner[::-1], inner)
        return (
            _nested(inner, jnp.stack([jnp.stack([jnp.ones_like(rest), rest])] * 2), num_nodes, drop)
            - 0.5 * z**2
        )

    nodes = jnp.asarray((x + 1) / 2, bounds.dtype)
    each = lax.map(at, nodes) if rest is not None else jax.vmap(at)(nodes)
    log_weight = jnp.asarray(np.log(weight / 2), bounds.dtype).reshape(-1, *[1] * (bounds.ndim - 1))
    return logsumexp(each + log_weight, axis=0) + jnp.log(right - left) - _LOG_ROOT_TWO_PI


def _window(most: Array, start: Array, slope: Array, rest: Any, drop: float) -> tuple[Array, Array]:
    """Ends (...) of the window of the first variable, by a concave function near the log of the integrand.

    It takes positively correlated variables as partly the same. From outside the window, steps of Newton's method do
    not enter it.
    """
    share = None if rest is None else 1 - jnp.maximum(rest, 0)

    def height(z):
        x = (
            start.reshape(len(start), *[1] * (z.ndim - most.ndim), *most.shape)
            + slope.reshape(len(slope), *[1] * (z.ndim - most.ndim), *most.shape) * z
        )
        log_cdf, rate = log_ndtr_and_hazard(x)
        tilt = slope.reshape(len(slope), *[1] * (z.ndim - most.ndim), *most.shape)
        weight: Any = 1.0
        if share is not None:
            first = log_cdf[0] < log_cdf[1]
            weight = jnp.stack([jnp.where(first, 1, share), jnp.where(first, share, 1)])
        bent = weight * tilt**2 * rate * jnp.maximum(x + rate, 0)
        sums = [jnp.sum(part, axis=0) for part in (weight * log_cdf, weight * tilt * rate, bent)]
        return sums[0] - 0.5 * z**2, sums[1] - z, 1 + sums[2]

    def newton(_, carry):
        z, low, high = carry
        _, steep, bent = height(z)
        low, high = jnp.where(steep > 0, z, low), jnp.where(steep > 0, high, z)
        moved = z + steep / bent
        return jnp.where((moved >= low) & (moved <= high), moved, (low + high) / 2), low, high

    high = jnp.minimum(most, 12)
    low = jnp.minimum(most, 0) - jnp.abs(most) - 12
    mode = lax.fori_loop(0, MODE_STEPS, newton, (high, low, high))[0]
    target = height(mode)[0] - drop
    away = math.sqrt(2 * drop)
    ends = jnp.stack([mode - away, jnp.minimum(mode + away, most)])

    def inwards(_, z):
        value, steep, _ = height(z)
        return jnp.where(value < target, z + (target - value) / jnp.where(steep == 0, 1, steep), z)

    ends = lax.fori_loop(0, END_STEPS, inwards, ends)
    return ends[0], jnp.maximum(ends[1], ends[0] + jnp.finfo(most.dtype).eps * (1 + jnp.abs(ends[0])))


def simulated_orthant(bounds: Array, correlation: Array, num_points: int = POINTS) -> Array:
    """GHK: the mean of products of probabilities of one variable after the other, each given draws of those before."""
    batch = bounds.shape[1:]
    upper = jnp.broadcast_to(correlation, (len(bounds), *bounds.shape))
    root = cholesky(jnp.moveaxis(upper, (0, 1), (-2, -1)), lower=True)
    shift = jax.random.bits(jax.random.key(0), (len(bounds) - 1, *batch), jnp.uint32)
    points = _sobol(len(bounds) - 1, num_points)
    drawn: list[Array] = []
    total = jnp.zeros((num_points, *batch), bounds.dtype)
    for k, bound in enumerate(bounds):
        mean = sum((root[..., k, j] * z for j, z in enumerate(drawn)), jnp.zeros(batch, bounds.dtype))
        log_cdf = log_ndtr((bound - mean) / root[..., k, k])
        total = total + log_cdf
        if k < len(shift):
            bits = points[k].reshape(-1, *[1] * len(batch)) ^ shift[k]  # a digital shift keeps their evenness
            uniform = ((bits >> 9).astype(bounds.dtype) + 0.5) * 2.0**-23
            drawn.append(_log_quantile(jnp.log(uniform) + log_cdf))
    return logsumexp(total, axis=0) - math.log(num_points)


@functools.cache
def _sobol(dimension: int, num_points: int) -> np.ndarray:
    """Scrambled Sobol points (dimension, point) as 32 bits; every decision has a digital shift of its own."""
    from scipy.stats import qmc

    return (qmc.Sobol(dimension, seed=0).random(num_points).T * 2.0**32).astype(np.uint32)


@jax.custom_jvp
def _log_quantile(log_probability: Array) -> Array:
    r"""The z with :math:`\ln \Phi(z)` at a value below zero, by Newton's method."""
    far = -2 * jnp.minimum(log_probability, -1) - 2 * _LOG_ROOT_TWO_PI
    tail = -jnp.sqrt(jnp.maximum(far - jnp.log(jnp.maximum(far, 1)), 0))
    z = jnp.where(log_probability > -4, ndtri(jnp.exp(jnp.maximum(log_probability, -4))), tail)
    for _ in range(3):
        value, rate = log_ndtr_and_hazard(z)
        z = z + (log_probability - value) / rate
    return z


@_log_quantile.defjvp
def _log_quantile_jvp(primals, tangents):
    z = _log_quantile(*primals)
    return z, tangents[0] / hazard(z)
