"""numpyro distributions of the parameters of gamma and von Mises distributions, under their conjugate priors."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import constraints

__all__ = ["LENGTH_SPREAD", "VECTOR", "PlanarDirection", "SizeDensity"]

VECTOR = "_vector"
"""Ending of the latent site of directions as vectors in the plane."""

LENGTH_SPREAD = 0.25
"""Standard deviation of the log length of the vector that a direction is the angle of."""


class SizeDensity(dist.Distribution):
    """Marginal of the size of a `QuadratureBlock`.

    Parameters
    ----------
    block : that block.
    """

    arg_constraints: ClassVar[dict] = {}
    support = constraints.positive
    pytree_data_fields = ("block",)

    def __init__(self, block: Any, *, validate_args: bool | None = None):
        self.block = block
        super().__init__(block.batch_shape, (), validate_args=validate_args)

    def log_prob(self, value: Any) -> Array:
        """Log density, exact up to the normaliser of the quadrature."""
        return self.block.log_density_of_size(value)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draws (*sample_shape, *batch)."""
        return self.block.sample_size(key, sample_shape)


class PlanarDirection(dist.Distribution):
    r"""Vectors in the plane whose angle is von Mises, and whose log length is N(0, 1/16).

    A sampler that moves in the plane goes round the circle, which has no ends there. The length keeps it away from the
    origin, where the angle is not defined.

    Parameters
    ----------
    direction, concentration : (*batch,) of the angle; a concentration of 0 is uniform.
    """

    arg_constraints: ClassVar[dict] = {}
    support = constraints.real_vector
    pytree_data_fields = ("direction", "concentration")

    def __init__(self, direction: Any, concentration: Any, *, validate_args: bool | None = None):
        self.direction, self.concentration = direction, concentration
        batch = jnp.broadcast_shapes(jnp.shape(direction), jnp.shape(concentration))
        super().__init__(batch, (2,), validate_args=validate_args)

    def log_prob(self, value: Any) -> Array:
        """Log density of the vector: that of its angle, and of its length over the length (polar coordinates)."""
        x, y = value[..., 0], value[..., 1]
        log_length = 0.5 * jnp.log(x * x + y * y)
        # A concentration may be 0, which numpyro's check refuses.
        von_mises = dist.VonMises(self.direction, self.concentration, validate_args=False)
        angle = von_mises.log_prob(jnp.arctan2(y, x))
        constant = 0.5 * math.log(2 * math.pi) + math.log(LENGTH_SPREAD)
        return angle - 0.5 * (log_length / LENGTH_SPREAD) ** 2 - 2 * log_length - constant

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Vectors (*sample_shape, *batch, 2)."""
        key_angle, key_length = jax.random.split(key)
        concentration = jnp.maximum(self.concentration, 1e-6)
        angle = dist.VonMises(self.direction, concentration).sample(key_angle, sample_shape)
        length = jnp.exp(LENGTH_SPREAD * jax.random.normal(key_length, angle.shape, angle.dtype))
        return jnp.stack([length * jnp.cos(angle), length * jnp.sin(angle)], axis=-1)
