"""What blocks share whose q is one point: the ELBO has the log prior density there, relative to its largest value."""

from __future__ import annotations

import abc
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from ethogram.models.families.divergences import Divergence

__all__ = ["PointMass"]


class PointMass(abc.ABC):
    """A point, which the model moves together with the rows that it is the prior of; mixed into a `ConjugateBlock`."""

    natural: Any

    @abc.abstractmethod
    def log_density(self) -> Array:
        """Log prior density of the point in nats, a scalar."""

    def expected_statistics(self) -> tuple[()]:
        """Empty: the point enters potentials through the rows it is the prior of."""
        return ()

    def statistics(self, *value: Any) -> tuple[()]:
        """Empty, as above."""
        return ()

    def step(self, prior: Any, statistics: Any, scale: Any, step_size: Any) -> Any:
        """The block itself: the model moves the point together with its rows."""
        return self

    def log_partition(self) -> Array:
        """Zero, that of a point mass."""
        return jnp.zeros_like(self.log_density())

    def divergence(self, other: Any) -> Divergence:
        """Minus the log prior density of the point."""
        value = self.log_density()
        nothing = jnp.ones_like(value, shape=(0,))
        return Divergence(-value, nothing, nothing, nothing)

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Array:
        """The point itself (*sample_shape, ...)."""
        return jnp.broadcast_to(self.natural, (*sample_shape, *self.natural.shape))

    def draw_on_host(self, random: np.random.Generator, num_draws: int) -> np.ndarray:
        """The point itself (draw, ...), as a NumPy array."""
        point = np.asarray(self.natural)
        return np.tile(point, (num_draws, *[1] * point.ndim))

    def mean(self) -> Array:
        """The point."""
        return self.natural

    def predictive(self, *arguments: Any) -> Any:
        """Raise TypeError: the point has no likelihood of its own."""
        raise TypeError(
            f"{type(self).__name__} have no predictive distribution: only the rows they are the prior of have one"
        )
