"""What conjugate blocks share whose normaliser is a one-dimensional integral over the log of a size."""

from __future__ import annotations

import abc
import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from ethogram.models.families.array_modules import modules_of
from ethogram.models.families.conjugate_block import ConjugateBlock
from ethogram.models.families.log_quadrature import LogQuadrature, Slope, draw_node, log_quadrature, rise
from ethogram.models.families.variates import JaxVariates, Variates

__all__ = ["SPREAD", "QuadratureBlock"]

SPREAD = 2.0
"""Standard deviation of ln(size) in the base measure: 95 % between 1/50 and 50 times its median."""

DRAW_NODES = 1024


class QuadratureBlock(ConjugateBlock):
    """Distribution of a size s and of another parameter, which has a conjugate family of its own given s.

    The marginal of s is normalised by quadrature in u = ln s (:mod:`ethogram.models.families.log_quadrature`). Its base
    measure is log-normal about ``centre`` (*batch,) or (), with the standard deviation :data:`SPREAD`; it never moves.
    """

    centre: Any

    @abc.abstractmethod
    def log_marginal(self, natural: Any, u: Any) -> Any:
        """Log density of u up to a constant and without the base measure, whose axes broadcast with `natural`'s."""

    @abc.abstractmethod
    def slope_of_log_marginal(self, natural: Any, u: Any) -> Any:
        """Derivative of `log_marginal` by u."""

    def _functions(self, extra: int = 1) -> tuple[Slope, Slope]:
        """Log density of u, up to a constant, and its derivative, of arrays with `extra` more last axes."""
        count = self.natural[0]
        xp, _ = modules_of(count)
        prior_log = xp.log(xp.broadcast_to(self.centre, count.shape))
        natural, u0 = jax.tree.map(lambda x: x.reshape(x.shape + (1,) * extra), (self.natural, prior_log))

        def value(u):
            return self.log_marginal(natural, u) - 0.5 * ((u - u0) / SPREAD) ** 2

        def slope(u):
            return self.slope_of_log_marginal(natural, u) - (u - u0) / SPREAD**2

        return value, slope

    def _quadrature(self, **options: Any) -> LogQuadrature:
        return log_quadrature(*self._functions(), self.natural[0], **options)

    def _beside(self, other: Any) -> tuple[Any, LogQuadrature, Array]:
        """`other` with the batch shape of this block, its own nodes, and the log ratio of both densities of u there."""
        natural = jax.tree.map(lambda x: jnp.broadcast_to(x, self.batch_shape), other.natural)
        other, found = dataclasses.replace(other, natural=natural), self._quadrature()
        there = other._quadrature()
        (value, slope), apart = other._functions(), (found.mode - there.mode)[..., None]
        above = rise(value, slope, there.mode[..., None], found.offset + apart)
        return other, found, found.log_density - (above - there.log_width[..., None])

    def log_density_of_size(self, size: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
        """Log density of the size, the other parameter integrated out; differentiable with respect to the size."""
        value, _ = self._functions(0)
        found = jax.lax.stop_gradient(self._quadrature())
        u = jnp.log(size)
        return value(u) - value(found.mode) - found.log_width - u

    def sample_size(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Float[Array, "*shape"]:
        """Draws (*sample_shape, *batch) of the size, the other parameter integrated out."""
        return jnp.exp(self.draw_log_size(JaxVariates(key), sample_shape))

    def draw_log_size(self, variates: Variates, sample_shape: tuple[int, ...]) -> Any:
        """Draws (*sample_shape, *batch) of the log of the size, by NumPy or JAX."""
        return draw_node(variates, self._quadrature(num_nodes=DRAW_NODES), sample_shape)
