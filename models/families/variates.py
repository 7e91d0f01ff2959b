"""Random variates by JAX or by NumPy, so that a block has one sampler for both.

JAX takes seconds to compile a sampler of gamma variates, once per shape; NumPy compiles nothing, in double precision.
"""

from __future__ import annotations

import abc
import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions.util import von_mises_centered

__all__ = ["JaxVariates", "NumpyVariates", "Variates"]


class Variates(abc.ABC):
    """A source of variates, to be used once; `split` gives several."""

    @abc.abstractmethod
    def split(self, number: int) -> tuple[Variates, ...]:
        """Independent sources."""

    @abc.abstractmethod
    def normal(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Standard normal variates."""

    @abc.abstractmethod
    def uniform(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Uniform variates from 0 to 1."""

    @abc.abstractmethod
    def log_gamma(self, concentration: Any, sample_shape: tuple[int, ...] = ()) -> Any:
        """Logarithms (*sample_shape, ...) of Gamma(a, 1) variates for concentrations a (...) > 0, of any size."""

    @abc.abstractmethod
    def von_mises(self, concentration: Any) -> Any:
        """Angles from von Mises distributions about 0; uniform where the concentration is 0."""


@dataclasses.dataclass(frozen=True)
class JaxVariates(Variates):
    """Variates of a key of `jax.random`."""

    key: jax.Array

    def split(self, number: int) -> tuple[Variates, ...]:
        return tuple(map(JaxVariates, jax.random.split(self.key, number)))

    def normal(self, shape: tuple[int, ...], dtype: Any) -> jax.Array:
        return jax.random.normal(self.key, shape, dtype)

    def uniform(self, shape: tuple[int, ...], dtype: Any) -> jax.Array:
        return jax.random.uniform(self.key, shape, dtype)

    def log_gamma(self, concentration: Any, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        wide = jnp.broadcast_to(concentration, (*sample_shape, *concentration.shape))
        return jax.random.loggamma(self.key, wide, dtype=concentration.dtype)

    def von_mises(self, concentration: Any) -> jax.Array:
        """As the base class says; normal where the concentration is too large to tell."""
        key_turn, key_normal = jax.random.split(self.key)
        narrow = concentration > (1e4 if concentration.dtype == jnp.float32 else 1e8)
        wide = jnp.where(narrow, 1, jnp.maximum(concentration, 1e-6))
        turn = von_mises_centered(key_turn, wide, wide.shape, wide.dtype)
        normal = jax.random.normal(key_normal, wide.shape, wide.dtype)
        return jnp.where(narrow, normal / jnp.sqrt(jnp.where(narrow, concentration, 1)), turn)


@dataclasses.dataclass(frozen=True)
class NumpyVariates(Variates):
    """Variates of a generator of NumPy, in double precision whatever the dtype."""

    random: np.random.Generator

    def split(self, number: int) -> tuple[Variates, ...]:
        return (self,) * number

    def normal(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        return self.random.standard_normal(shape)

    def uniform(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        return self.random.random(shape)

    def log_gamma(self, concentration: Any, sample_shape: tuple[int, ...] = ()) -> np.ndarray:
        """As the base class says.

        Below a = 1, where variates underflow, that of a + 1 plus ln(u) / a: Marsaglia and Tsang (2000), section 6.
        """
        small, shape = concentration < 1, (*sample_shape, *np.shape(concentration))
        variates = np.log(
            self.random.standard_gamma(np.where(small, concentration + 1, concentration), shape)
        )
        if np.any(small):
            variates -= np.where(small, self.random.standard_exponential(shape) / concentration, 0)
        return variates

    def von_mises(self, concentration: Any) -> Any:
        return self.random.vonmises(0, concentration)
