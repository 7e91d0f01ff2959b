r"""One-dimensional quadrature of densities of u = ln(size), for conjugate blocks without a closed normaliser.

.. math:: \ln \int e^{f(u)} du = f(\hat u) + \ln \Bigl(h \sum_i e^{f(u_i) - f(\hat u)}\Bigr)

Nodes are equally spaced about the mode, out to where f has fallen by :data:`DROP` nats on either side: the trapezoid
rule converges exponentially for smooth densities that vanish at both ends (Trefethen and Weideman 2014, "The
exponentially convergent trapezoidal rule"). Near the mode differences of f are integrals of its slope, since values of
f are differences of terms as large as the pseudo-counts, and in single precision their rounding would be that of f.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float

__all__ = ["LogQuadrature", "draw_node", "log_quadrature", "rise"]

NUM_NODES = 128
DROP = 34.0
"""Fall of the log density, in nats, at the outermost nodes."""

REACH = 40.0
"""Modes lie within this distance of 0, and the outermost nodes within this distance of the mode."""

NEAR = 0.25
"""Distance up to which a difference of log densities is an integral of the slope."""

HALVINGS, SEARCHES = 60, 14

Slope = Callable[[Array], Array]


class LogQuadrature(NamedTuple):
    """Nodes and normalised weights of a density of u."""

    mode: Float[Array, "*batch"]
    node: Float[Array, "*batch node"]
    weight: Float[Array, "*batch node"]  # sums to one
    log_width: Float[Array, "*batch"]  # ln of the integral of exp(f(u) - f(mode))


def log_quadrature(value: Slope, slope: Slope, like: Array, num_nodes: int = NUM_NODES) -> LogQuadrature:
    """Quadrature of densities exp(f), one a batch entry, each with a single mode.

    Parameters
    ----------
    value, slope : f and its derivative, of arrays (*batch, node).
    like : an array of the batch shape and the type of the result.
    num_nodes : the default is for integrals; draws take more.
    """
    nothing = jnp.zeros_like(like)[..., None]

    def halve(_, ends):
        low, high = ends
        middle = 0.5 * (low + high)
        rising = slope(middle) > 0
        return jnp.where(rising, middle, low), jnp.where(rising, high, middle)

    low, high = lax.fori_loop(0, HALVINGS, halve, (nothing - REACH, nothing + REACH))
    mode = 0.5 * (low + high)

    def fall(distance):  # on the left and on the right, the last axis
        return rise(value, slope, mode, distance * sides) + DROP

    sides = jnp.concatenate([nothing - 1, nothing + 1], axis=-1)
    least, most = math.log(1e-6), math.log(REACH)

    def search(_, ends):
        near, far = ends
        middle = 0.5 * (near + far)
        inside = fall(jnp.exp(middle)) > 0
        return jnp.where(inside, middle, near), jnp.where(inside, far, middle)

    _, far = lax.fori_loop(0, SEARCHES, search, (0 * sides + least, 0 * sides + most))
    left, right = jnp.split(jnp.exp(far), 2, axis=-1)
    share = jnp.linspace(0, 1, num_nodes, dtype=like.dtype).reshape((1,) * like.ndim + (-1,))
    offset = lax.stop_gradient((left + right) * share - left)
    height = rise(value, slope, mode, offset)
    total = jax.scipy.special.logsumexp(height, axis=-1, keepdims=True)
    log_width = total + jnp.log((left + right) / (num_nodes - 1))
    return LogQuadrature(mode[..., 0], mode + offset, jnp.exp(height - total), log_width[..., 0])


def rise(value: Slope, slope: Slope, centre: Array, offset: Array) -> Array:
    """f(centre + offset) - f(centre), for a centre (*batch, 1) and offsets (*batch, node), by the slope if small."""
    points, weights = (
        jnp.asarray(x, dtype=offset.dtype).reshape((1,) * offset.ndim + (-1,))
        for x in np.polynomial.legendre.leggauss(5)
    )
    near = jnp.abs(offset) < NEAR
    small, large = jnp.where(near, offset, 0), jnp.where(near, NEAR, offset)
    # All points in one call each, so that the special functions are compiled once.
    inner = centre[..., None] + small[..., None] * (0.5 + 0.5 * points)
    slopes = slope(inner.reshape(*offset.shape[:-1], -1)).reshape(inner.shape)
    values = value(jnp.concatenate([centre, centre + large], axis=-1))
    near_rise = small * jnp.sum(0.5 * weights * slopes, axis=-1)
    return jnp.where(near, near_rise, values[..., 1:] - values[..., :1])


def draw_node(key: Array, quadrature: LogQuadrature, sample_shape: tuple[int, ...]) -> Array:
    """Draws of u (*sample_shape, *batch) by the inverse of the distribution function, linear between nodes."""
    batch, count = quadrature.mode.shape, quadrature.node.shape[-1]
    node, weight = (x.reshape(-1, count) for x in (quadrature.node, quadrature.weight))
    between = jnp.cumsum(0.5 * (weight[:, 1:] + weight[:, :-1]), axis=-1)
    reached = jnp.concatenate([jnp.zeros_like(between[:, :1]), between / between[:, -1:]], axis=-1)
    chance = jax.random.uniform(key, (*sample_shape, len(node)), dtype=node.dtype)
    drawn: Any = jax.vmap(jnp.interp, in_axes=(-1, 0, 0), out_axes=-1)(chance, reached, node)
    return drawn.reshape(*sample_shape, *batch)
