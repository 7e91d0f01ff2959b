"""What blocks share whose q is one point: the ELBO has the log prior density there, relative to its largest value."""

from __future__ import annotations

import abc
from typing import Any

import jax.numpy as jnp
from jax import Array

from ethogram.models.families.array_modules import modules_of
from ethogram.models.families.divergences import Divergence
from ethogram.models.families.variates import Variates

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

    def divergence(self, other: Any) -> Divergence:
        """Minus the log prior density of the point."""
        value = self.log_density()
        nothing = jnp.ones_like(value, shape=(0,))
        return Divergence(-value, nothing, nothing, nothing)

    def draw(self, variates: Variates, sample_shape: tuple[int, ...] = ()) -> Any:
        """The point itself (*sample_shape, ...)."""
        xp, _ = modules_of(self.natural)
        return xp.broadcast_to(self.natural, (*sample_shape, *self.natural.shape))

    def mean(self) -> Array:
        """The point."""
        return self.natural
