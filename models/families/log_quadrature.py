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
import numpy as np
from jax import Array, lax
from jaxtyping import Float

from ethogram.models.families.array_modules import modules_of
from ethogram.models.families.variates import Variates

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
    offset: Float[Array, "*batch node"]  # of the nodes from the mode
    node: Float[Array, "*batch node"]
    weight: Float[Array, "*batch node"]  # sums to one
    log_width: Float[Array, "*batch"]  # ln of the integral of exp(f(u) - f(mode))
    log_density: Float[Array, "*batch node"]  # of u at the nodes


def log_quadrature(value: Slope, slope: Slope, like: Array, num_nodes: int = NUM_NODES) -> LogQuadrature:
    """Quadrature of densities exp(f), one per batch entry, each with a single mode.

    Parameters
    ----------
    value, slope : f and its derivative, of arrays (*batch, node).
    like : an array of the batch shape and the type of the result, of NumPy or JAX.
    num_nodes : the default is for integrals; draws take more.
    """
    xp, special = modules_of(like)
    nothing = xp.zeros_like(like)[..., None]

    def halve(ends):
        low, high = ends
        middle = 0.5 * (low + high)
        rising = slope(middle) > 0
        return xp.where(rising, middle, low), xp.where(rising, high, middle)

    low, high = _repeat(xp, HALVINGS, halve, (nothing - REACH, nothing + REACH))
    mode = 0.5 * (low + high)
    sides = xp.concatenate([nothing - 1, nothing + 1], axis=-1)  # on the left and on the right, the last axis

    def search(ends):
        near, far = ends
        middle = 0.5 * (near + far)
        inside = rise(value, slope, mode, xp.exp(middle) * sides) > -DROP
        return xp.where(inside, middle, near), xp.where(inside, far, middle)

    _, far = _repeat(xp, SEARCHES, search, (0 * sides + math.log(1e-6), 0 * sides + math.log(REACH)))
    left, right = xp.split(xp.exp(far), 2, axis=-1)
    share = xp.linspace(0, 1, num_nodes, dtype=like.dtype).reshape((1,) * like.ndim + (-1,))
    offset = (left + right) * share - left
    offset = offset if xp is np else lax.stop_gradient(offset)
    height = rise(value, slope, mode, offset)
    total = special.logsumexp(height, axis=-1, keepdims=True)
    log_width = total + xp.log((left + right) / (num_nodes - 1))
    weight = xp.exp(height - total)
    return LogQuadrature(mode[..., 0], offset, mode + offset, weight, log_width[..., 0], height - log_width)


def _repeat(xp: Any, times: int, step: Callable[[Any], Any], state: Any) -> Any:
    """The state after so many steps."""
    if xp is not np:
        return lax.fori_loop(0, times, lambda _, state: step(state), state)
    for _ in range(times):
        state = step(state)
    return state


def rise(value: Slope, slope: Slope, centre: Array, offset: Array) -> Array:
    """f(centre + offset) - f(centre), for a centre (*batch, 1) and offsets (*batch, node), by the slope if small."""
    xp, _ = modules_of(centre, offset)
    if xp is np:  # in double precision, for draws alone
        return value(centre + offset) - value(centre)
    points, weights = (
        xp.asarray(x, dtype=offset.dtype).reshape((1,) * offset.ndim + (-1,))
        for x in np.polynomial.legendre.leggauss(5)
    )
    near = xp.abs(offset) < NEAR
    small, large = xp.where(near, offset, 0), xp.where(near, NEAR, offset)
    # All points in one call each, so that the special functions are compiled once.
    inner = centre[..., None] + small[..., None] * (0.5 + 0.5 * points)
    slopes = slope(inner.reshape(*offset.shape[:-1], -1)).reshape(inner.shape)
    values = value(xp.concatenate([centre, centre + large], axis=-1))
    near_rise = small * xp.sum(0.5 * weights * slopes, axis=-1)
    return xp.where(near, near_rise, values[..., 1:] - values[..., :1])


def draw_node(variates: Variates, quadrature: LogQuadrature, sample_shape: tuple[int, ...]) -> Any:
    """Draws of u (*sample_shape, *batch) by the inverse of the distribution function, linear between nodes."""
    batch, count = quadrature.mode.shape, quadrature.node.shape[-1]
    node, weight = (x.reshape(-1, count) for x in (quadrature.node, quadrature.weight))
    chance = variates.uniform((*sample_shape, len(node)), node.dtype)
    xp, _ = modules_of(node, chance)  # nodes of NumPy may meet variates of a traced key
    between = xp.cumsum(0.5 * (weight[:, 1:] + weight[:, :-1]), axis=-1)
    reached = xp.concatenate([xp.zeros_like(between[:, :1]), between / between[:, -1:]], axis=-1)
    if xp is np:
        drawn = np.stack([np.interp(chance[..., i], reached[i], node[i]) for i in range(len(node))], axis=-1)
    else:
        drawn = jax.vmap(xp.interp, in_axes=(-1, 0, 0), out_axes=-1)(chance, reached, node)
    return drawn.reshape(*sample_shape, *batch)
