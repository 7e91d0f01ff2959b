"""Densities and samples of the frames of a sequence given its states, be they independent or not.

Most emissions are distributions of one frame. A `DependentSteps` is one of a frame given the frames before it; chains
and groups of chains treat both alike by the functions here. Axes before time are a batch.
"""

from __future__ import annotations

import abc
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from jaxtyping import Bool, Float, Int

__all__ = ["DependentSteps", "Past", "last_frames", "log_prob_of_steps", "sample_steps"]


class Past(NamedTuple):
    """The last frames before those that are sampled, the latest last."""

    value: Float[Array, "*batch lag feature"]
    known: Bool[Array, "*batch lag"]


class DependentSteps(dist.Distribution):
    """Distribution of a frame (feature,) given the state and the frames before it, with batch shape (state,).

    ``log_prob`` and ``sample`` are those of a frame before which nothing is known.
    """

    order: int  # how many frames before it a frame depends on

    @abc.abstractmethod
    def log_prob_of_steps(self, value: Array, known: Array) -> Array:
        """Log density (..., time, state) of values (..., time, feature); arbitrary where not `known` (..., time)."""

    @abc.abstractmethod
    def sample_steps(self, key: Array, states: Array, known: Array, past: Past | None) -> Array:
        """Frames (..., time, feature) of states (..., time), in turn; those not `known` are no past of others."""


def log_prob_of_steps(emission: dist.Distribution, value: Any, known: Array) -> Array:
    """Log density (..., time, state) of values (..., time, *event); arbitrary where not `known` (..., time)."""
    event = emission.event_dim
    value = jnp.where(known.reshape(known.shape + (1,) * event), jnp.asarray(value), 0)
    if isinstance(emission, DependentSteps):
        return emission.log_prob_of_steps(value, known)
    return emission.log_prob(jnp.expand_dims(value, value.ndim - event))


def sample_steps(
    emission: dist.Distribution,
    key: Array,
    states: Int[Array, "*batch time"],
    known: Bool[Array, "*batch time"],
    past: Past | None = None,
) -> Array:
    """Frames (..., time, *event), one for each state; given the `past`, if frames depend on those before."""
    if isinstance(emission, DependentSteps):
        return emission.sample_steps(key, states, known, past)
    every = emission.sample(key, states.shape)
    index = states.reshape(states.shape + (1,) * (1 + emission.event_dim))
    return jnp.take_along_axis(every, index, axis=states.ndim).squeeze(states.ndim)


def last_frames(
    emission: dist.Distribution, value: Array, known: Array, lengths: Int[Array, "*batch"]
) -> Past | None:
    """The frames at the end of each length that later ones depend on; None where they depend on none."""
    if not isinstance(emission, DependentSteps):
        return None
    at = jnp.broadcast_to(lengths, known.shape[:-1])[..., None] - emission.order + jnp.arange(emission.order)
    inside = jnp.maximum(at, 0)
    frames = jnp.take_along_axis(jnp.where(known[..., None], value, 0), inside[..., None], axis=-2)
    return Past(frames, jnp.take_along_axis(known, inside, axis=-1) & (at >= 0))
