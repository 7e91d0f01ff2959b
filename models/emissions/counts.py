"""Emissions of counts and of 0/1 features, independent over features (Bishop 2006, sections 2.1 and 2.3.6).

A feature that is NaN in an observed frame was not recorded, and adds nothing. Observations are whole numbers.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from jax.scipy.special import gammaln

from ethogram.models.arguments import concretely, is_concrete, require
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.emissions.emission import (
    Emission,
    interpolated,
    one_hot,
    read_observations,
    read_per_feature,
    rows_of,
)
from ethogram.models.families.exponential_family import Beta, BetaCoordinates, ConjugateBlock, Known
from ethogram.models.families.feature_columns import IndependentFeatures
from ethogram.models.families.gamma import Gamma, GammaCoordinates
from ethogram.models.model_object import model_object, static_field

__all__ = [
    "BernoulliEmission",
    "PoissonEmission",
    "feature_means",
    "linear_in_features",
    "recorded",
    "refuse_values",
]


@model_object
class PoissonEmission(Emission):
    r"""Counts without an upper limit, independent over features.

    .. math:: \lambda_{kd} \sim Gamma(a, b), \qquad x_{td} \mid z_t = k \sim Poisson(\lambda_{kd})

    Parameters
    ----------
    num_features : D.
    shape : a; a number or (feature,).
    mean : a / b, the prior mean of a rate, in counts a frame; a number or (feature,). None takes the mean of the data;
        without data it is 1.
    known : ``Known(rate (state, feature))``, NaN where unknown.
    """

    num_features: int = static_field(default=1)
    shape: Any = 0.5
    mean: Any = None
    known: Known | None = None
    sums_out_missing: ClassVar[bool] = True
    site_dims: ClassVar[dict[str, tuple[str, ...]]] = {"rate": ("state", "feature")}

    def __post_init__(self):
        self._set(**read_per_feature(self.num_features, shape=self.shape, mean=self.mean))
        if self.mean is not None and is_concrete(self.mean):
            require(np.asarray(self.mean) > 0, "mean", self.mean, "is not positive", "use a positive number")
        self._block()

    def bind(self, data: Trajectories, num_states: int) -> PoissonEmission:
        """The emission with the mean of the data where `mean` is None; a feature without a count has mean 1."""
        if self.mean is not None:
            return self
        mean = feature_means(data, lambda xp, x: xp.maximum(x, 0), self.shape.dtype)
        return dataclasses.replace(self, mean=mean)

    def with_prior_of(self, earlier: Any) -> PoissonEmission:
        """The emission with the mean of an earlier one where its own is None."""
        return self if self.mean is not None else dataclasses.replace(self, mean=earlier.mean)

    def _block(self) -> Gamma:
        mean = np.ones(self.num_features, self.shape.dtype) if self.mean is None else self.mean
        return Gamma.from_standard(self.shape, concretely(lambda xp, a, m: a / m, self.shape, mean))

    def prior(self, num_states: int) -> dict[str, ConjugateBlock]:
        """One block, ``rate``, of gamma distributions (state, feature)."""
        return {"rate": rows_of(self._block(), num_states, self.known)}

    def expected_log_likelihood(self, expected: dict[str, Any], observations: Array) -> Array:
        r"""Expected log probability (..., state): :math:`\sum_d x_d E \ln \lambda_{kd} - E \lambda_{kd} - \ln x_d!`."""
        log_rate, minus_rate = expected["rate"]
        x, seen = recorded(observations, log_rate.dtype)
        held = _finite(log_rate)
        value = linear_in_features((x, held), (seen, minus_rate)) - jnp.sum(gammaln(x + 1), -1)[..., None]
        impossible = linear_in_features(((x > 0).astype(x.dtype), jnp.isneginf(log_rate).astype(x.dtype)))
        return jnp.where(impossible > 0, -jnp.inf, value)

    def label_statistics(
        self, rng: np.random.Generator, frames: np.ndarray, labels: np.ndarray, num_states: int
    ) -> dict[str, Any]:
        """Sums of the counts, and numbers of frames, of each state in labelled frames."""
        member = one_hot(labels, num_states).T
        x = np.asarray(frames, float)
        seen = ~np.isnan(x)
        counts = np.where(seen, x, 0)
        return {"rate": GammaCoordinates(member @ counts, member @ seen.astype(float))}

    def start_features(self, observations: np.ndarray, observed: np.ndarray) -> np.ndarray:
        """Square roots of the counts, whose variance does not grow with the rate."""
        return interpolated(np.sqrt(np.maximum(observations, 0)), observed)

    def locations(self, draws: dict[str, np.ndarray]) -> np.ndarray:
        """Mean (state,) of the first feature."""
        return draws["rate"][..., 0].mean(0)

    def distribution(self, parameters: dict[str, Any]) -> dist.Distribution:
        """Poisson distributions at ``rate (state, feature)``."""
        return IndependentFeatures(dist.Poisson(parameters["rate"]))

    def read(self, data: Trajectories) -> Array:
        """Counts (sequence, time, feature)."""
        x = read_observations(data, self.num_features)
        fix = "use counts 0, 1, 2, ..., or NaN for a missing one"
        refuse_values(data, x, lambda x: (x >= 0) & (x == np.floor(x)), "is no count", fix)
        return x


@model_object
class BernoulliEmission(Emission):
    r"""Features that are 0 or 1, such as "moves" or "in the shelter", independent given the state.

    .. math:: p_{kd} \sim Beta(a, b), \qquad x_{td} \mid z_t = k \sim Bernoulli(p_{kd})

    Parameters
    ----------
    num_features : D.
    successes, failures : a and b; numbers or (feature,).
    known : ``Known(probability (state, feature))``, NaN where unknown.
    """

    num_features: int = static_field(default=1)
    successes: Any = 1.0
    failures: Any = 1.0
    known: Known | None = None
    sums_out_missing: ClassVar[bool] = True
    site_dims: ClassVar[dict[str, tuple[str, ...]]] = {"probability": ("state", "feature")}

    def __post_init__(self):
        counts = {"successes": self.successes, "failures": self.failures}
        self._set(**read_per_feature(self.num_features, **counts))
        Beta.from_standard(self.successes, self.failures)

    def prior(self, num_states: int) -> dict[str, ConjugateBlock]:
        """One block, ``probability``, of Beta distributions (state, feature)."""
        block = Beta.from_standard(self.successes, self.failures)
        return {"probability": rows_of(block, num_states, self.known)}

    def expected_log_likelihood(self, expected: dict[str, Any], observations: Array) -> Array:
        r"""Expected log probability (..., state): :math:`\sum_d x_d E \ln p_{kd} + (1 - x_d) E \ln (1 - p_{kd})`."""
        log_p, log_not = expected["probability"]
        x, seen = recorded(observations, log_p.dtype)
        value = linear_in_features((x, _finite(log_p)), (seen - x, _finite(log_not)))
        never = [jnp.isneginf(part).astype(x.dtype) for part in (log_p, log_not)]  # 0 ln 0 is 0
        return jnp.where(linear_in_features((x, never[0]), (seen - x, never[1])) > 0, -jnp.inf, value)

    def label_statistics(
        self, rng: np.random.Generator, frames: np.ndarray, labels: np.ndarray, num_states: int
    ) -> dict[str, Any]:
        """Numbers of ones and of zeros of each state in labelled frames."""
        member = one_hot(labels, num_states).T
        return {"probability": BetaCoordinates(member @ (frames == 1), member @ (frames == 0))}

    def locations(self, draws: dict[str, np.ndarray]) -> np.ndarray:
        """Mean (state,) of the first feature."""
        return draws["probability"][..., 0].mean(0)

    def distribution(self, parameters: dict[str, Any]) -> dist.Distribution:
        """Bernoulli distributions at ``probability (state, feature)``."""
        return IndependentFeatures(dist.BernoulliProbs(parameters["probability"]))

    def read(self, data: Trajectories) -> Array:
        """Features (sequence, time, feature) that are 0 or 1."""
        x = read_observations(data, self.num_features)
        refuse_values(
            data,
            x,
            lambda x: (x == 0) | (x == 1),
            "is not 0 or 1",
            "code the feature as 0 and 1, or NaN if missing",
        )
        return x


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


def _finite(log_probability: Array) -> Array:
    return jnp.where(jnp.isneginf(log_probability), 0, log_probability)


def feature_means(data: Trajectories, transform: Any, dtype: Any, positive: bool = True) -> Array:
    """Mean (feature,) of the recorded observations, transformed by ``transform(xp, x)``.

    Where nothing was recorded it is 0; with `positive` it is 1 where it would be 0.
    """

    def mean(xp, x, observed):
        good = observed[..., None] & ~xp.isnan(x)
        x = x.astype(np.float64 if xp is np else dtype)
        count = xp.maximum(xp.sum(good, axis=(0, 1)), 1)
        found = xp.sum(xp.where(good, transform(xp, xp.where(good, x, 1)), 0), axis=(0, 1)) / count
        return (xp.where(found > 0, found, 1) if positive else found).astype(dtype)

    return concretely(mean, data.observations, data.observed)


def refuse_values(data: Trajectories, x: Any, good: Any, fault: str, fix: str) -> None:
    """Raise ValueError at the first recorded feature that is not `good`; traced arrays are not checked."""
    if not is_concrete(x, data.observed):
        return
    values = np.asarray(x, float)
    seen = np.asarray(data.observed)[..., None] & ~np.isnan(values)
    require(good(np.where(seen, values, 1)) | ~seen, "data.observations", values, fault, fix)
