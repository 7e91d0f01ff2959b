"""Emissions whose features are independent given the state, and the distribution of their frames.

The expected log likelihood is linear in statistics of the frame. At a point of the parameters it is the log density:
both have one implementation. A feature that is NaN in an observed frame was not recorded, and adds nothing.
"""

from __future__ import annotations

import abc
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import constraints

from ethogram.models.arguments import concretely
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.emissions.data_prior import parts_of
from ethogram.models.emissions.emission import Emission, one_hot, rows_of
from ethogram.models.families.exponential_family import ConjugateBlock

__all__ = [
    "FeatureEmission",
    "FrameDistribution",
    "feature_means",
    "linear_in_counts",
    "linear_in_features",
    "recorded",
]


class FeatureEmission(Emission):
    """Emissions of independent features, with one conjugate block whose values are the sites of `site_dims`, in order.

    A subclass defines `read`, `expected_log_likelihood`, `block` and `feature_distribution`, and is a
    `model_object` with a static field ``num_features``. ``examples/waiting_times.py`` is one.

    Attributes
    ----------
    block_name : name of the block.
    known : None, or a `Known` of the block; a field of those emissions that take known values.
    """

    block_name: ClassVar[str]
    known: Any = None

    @abc.abstractmethod
    def block(self) -> ConjugateBlock:
        """The prior of one state, whose batch is the features."""

    @abc.abstractmethod
    def feature_distribution(self, *parameters: Any) -> dist.Distribution:
        """Numpyro distribution (state, feature) at the values of the block, for samples and the support."""

    def prior(self, num_states: int) -> dict[str, ConjugateBlock]:
        """One block, a row per state."""
        return {self.block_name: rows_of(self.block(), num_states, self.known)}

    def distribution(self, parameters: dict[str, Any], data: Trajectories | None = None) -> FrameDistribution:
        """Distribution of a frame at parameters by site."""
        values = tuple(parameters[site] for site in self.site_dims)
        return FrameDistribution(self, values, self.feature_distribution(*values))

    def frame_statistics(self, x: np.ndarray) -> Any:
        """Statistics of recorded features (frame, feature), as ``natural`` has them: quick `label_statistics`."""
        return None

    def label_statistics(
        self, rng: np.random.Generator, frames: np.ndarray, labels: np.ndarray, num_states: int
    ) -> dict[str, Any]:
        """Sums of the statistics of the features of each state that were recorded."""
        x = np.asarray(frames, float)
        missing = np.isnan(x)
        each = self.frame_statistics(np.where(missing, 1, x))
        if each is None:
            return super().label_statistics(rng, frames, labels, num_states)
        member = one_hot(labels, num_states).T
        return {self.block_name: jax.tree.map(lambda own: member @ np.where(missing, 0, own), each)}

    def log_density(self, parameters: tuple[Any, ...], frames: Array) -> Array:
        """Log density (..., state) of frames (..., feature): the expected log likelihood where q is a point."""
        return self.expected_log_likelihood({self.block_name: self.block().statistics(*parameters)}, frames)


class FrameDistribution(dist.Distribution):
    """Distribution of a frame (feature,) in each state: draws of numpyro's distributions, the density of an emission.

    Frames outside the support have log density -inf, with gradient 0.

    Parameters
    ----------
    emission : whose ``log_density`` it has.
    parameters : values of the emission's block.
    features : distribution of numbers with batch shape (state, feature).
    """

    arg_constraints: ClassVar[dict] = {}
    support = constraints.real_vector
    pytree_data_fields = ("emission", "parameters", "features")

    def __init__(self, emission: Any, parameters: tuple[Any, ...], features: dist.Distribution):
        self.emission, self.parameters, self.features = emission, parameters, features
        *batch, size = features.batch_shape
        super().__init__(tuple(batch), (size,), validate_args=False)

    def log_prob(self, value: Any) -> Array:
        """Log density (..., state) of frames (..., 1, feature), or of one for each state (..., state, feature)."""
        value = jnp.asarray(value)
        value = value.astype(jnp.result_type(float, value))
        each = self.emission.log_density(self.parameters, value)
        if value.ndim > 1:
            own = value.shape[-2] > 1
            each = jnp.diagonal(each, axis1=-2, axis2=-1) if own else each[..., 0, :]
        circular = self.features.support is constraints.circular  # angles may be given in any turn
        inside = jnp.isfinite(value) if circular else jnp.asarray(self.features.support(value))
        return jnp.where(jnp.all(inside | jnp.isnan(value), axis=-1), each, -jnp.inf)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Frames (*sample_shape, state, feature)."""
        return self.features.sample(key, sample_shape)


def recorded(observations: Array, dtype: Any) -> tuple[Array, Array]:
    """Observations with 0 for what is missing, and 1 where a feature was recorded, else 0, both of a float type."""
    x = observations.astype(dtype)
    missing = jnp.isnan(x)
    return jnp.where(missing, 0, x), (~missing).astype(dtype)


def linear_in_features(*terms: tuple[Array, Array]) -> Array:
    """Sum over terms and features of values (..., feature) times weights (state, feature): (..., state)."""
    values = jnp.concatenate([value for value, _ in terms], axis=-1)
    weights = jnp.concatenate([weight for _, weight in terms], axis=-1)
    return jnp.matmul(values, weights.T, precision="highest")


def linear_in_counts(*terms: tuple[Array, Array]) -> Array:
    """The same of numbers of at least 0, where weights may be -inf: zero times that is zero, and others -inf."""
    finite = [(count, jnp.where(jnp.isneginf(weight), 0, weight)) for count, weight in terms]
    never = [((x > 0).astype(x.dtype), jnp.isneginf(weight).astype(x.dtype)) for x, weight in terms]
    return jnp.where(linear_in_features(*never) > 0, -jnp.inf, linear_in_features(*finite))


def feature_means(data: Trajectories, transform: Any, dtype: Any, positive: bool = True) -> Array:
    """Mean (feature,) of the recorded observations, transformed by ``transform(xp, x)``.

    Where nothing was recorded it is 0; with `positive` it is 1 where it would be 0.
    """

    def mean(xp, x, observed):
        count, total = 0, 0
        for values, seen in parts_of(x, observed) if xp is np else [(x.astype(dtype), observed)]:
            good = seen[..., None] & ~xp.isnan(values)
            count += xp.sum(good, axis=(0, 1))
            total += xp.sum(xp.where(good, transform(xp, xp.where(good, values, 1)), 0), axis=(0, 1))
        found = total / xp.maximum(count, 1)
        return (xp.where(found > 0, found, 1) if positive else found).astype(dtype)

    return concretely(mean, data.observations, data.observed)
