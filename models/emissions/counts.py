"""Emissions of counts and of 0/1 features, independent over features (Bishop 2006, sections 2.1 and 2.3.6)."""

from __future__ import annotations

import functools
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from jax.scipy.special import gammaln

from ethogram.models.arguments import concretely, is_concrete, read_array, require
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.emissions.emission import (
    interpolated,
    read_observations,
    read_per_feature,
    require_values,
    whole_up_to,
)
from ethogram.models.emissions.feature_emission import (
    FeatureEmission,
    feature_means,
    linear_in_counts,
    recorded,
)
from ethogram.models.families.exponential_family import Beta, BetaCoordinates, Known
from ethogram.models.families.gamma import Gamma, GammaCoordinates
from ethogram.models.model_object import model_object, static_field

__all__ = ["BernoulliEmission", "BinomialEmission", "PoissonEmission"]


@model_object
class PoissonEmission(FeatureEmission):
    r"""Counts without an upper limit, independent over features.

    .. math:: \lambda_{kd} \sim Gamma(a, b), \qquad x_{td} \mid z_t = k \sim Poisson(\lambda_{kd})

    Parameters
    ----------
    num_features : D.
    shape : a; a number or (feature,).
    mean : a / b, the prior mean of a rate, in counts per frame; a number or (feature,). None takes the mean of the
        data; without data it is 1.
    known : ``Known(rate (state, feature))``, NaN where unknown.
    """

    num_features: int = static_field(default=1)
    shape: Any = 0.5
    mean: Any = None
    known: Known | None = None
    block_name: ClassVar[str] = "rate"
    site_dims: ClassVar[dict[str, tuple[str, ...]]] = {"rate": ("state", "feature")}
    prior_from_data: ClassVar[tuple[str, ...]] = ("mean",)

    def __post_init__(self):
        self._set(
            **read_per_feature(self.num_features, self.prior_from_data, shape=self.shape, mean=self.mean)
        )
        if self.mean is not None and is_concrete(self.mean):
            require(np.asarray(self.mean) > 0, "mean", self.mean, "is not positive", "use a positive number")
        self.block()

    def bind(self, data: Trajectories, num_states: int) -> PoissonEmission:
        """The emission with the mean of the data where `mean` is None; a feature without a count has mean 1."""
        if self.mean is not None:
            return self
        return self._filled(mean=feature_means(data, lambda xp, x: xp.maximum(x, 0), self.shape.dtype))

    def block(self) -> Gamma:
        mean = np.ones(self.num_features, self.shape.dtype) if self.mean is None else self.mean
        return Gamma.from_standard(self.shape, concretely(lambda xp, a, m: a / m, self.shape, mean))

    def expected_log_likelihood(self, expected: dict[str, Any], observations: Array) -> Array:
        r"""Expected log probability (..., state): :math:`\sum_d x_d E \ln \lambda_{kd} - E \lambda_{kd} - \ln x_d!`."""
        log_rate, minus_rate = expected["rate"]
        x, seen = recorded(observations, log_rate.dtype)
        return linear_in_counts((x, log_rate), (seen, minus_rate)) - jnp.sum(gammaln(x + 1), -1)[..., None]

    def frame_statistics(self, x: np.ndarray) -> GammaCoordinates:
        """The count, and 1 for the frame."""
        return GammaCoordinates(x, np.ones_like(x))

    def start_features(self, observations: np.ndarray, observed: np.ndarray) -> np.ndarray:
        """Square roots of the counts, whose variance does not grow with the rate."""
        return interpolated(np.sqrt(np.maximum(observations, 0)), observed)

    def feature_distribution(self, rate: Any) -> dist.Distribution:
        return dist.Poisson(rate)

    def read(self, data: Trajectories) -> Array | np.ndarray:
        """Counts (sequence, time, feature)."""
        x = read_observations(data, self.num_features)
        fix = "use counts 0, 1, 2, ..., or NaN for a missing one"
        return require_values(data, x, functools.partial(whole_up_to, np.inf), "is no count", fix)


class _SharesOfCounts(FeatureEmission):
    """Emissions of counts out of `total_count`, with Beta priors of the probabilities."""

    block_name: ClassVar[str] = "probability"
    site_dims: ClassVar[dict[str, tuple[str, ...]]] = {"probability": ("state", "feature")}
    total_count: Any

    def block(self: Any) -> Beta:
        return Beta.from_standard(self.successes, self.failures)

    def expected_log_likelihood(self, expected: dict[str, Any], observations: Array) -> Array:
        r"""Expected log probability (..., state): :math:`\ln\binom{n}{x} + x E \ln p + (n - x) E \ln(1 - p)`."""
        log_p, log_not = expected["probability"]
        x, seen = recorded(observations, log_p.dtype)
        n = jnp.where(seen > 0, self.total_count, 0).astype(x.dtype)  # none of none where missing
        value = linear_in_counts((x, log_p), (n - x, log_not))
        if isinstance(self.total_count, int):  # 0 or 1: one way to choose
            return value
        choose = jnp.sum(gammaln(n + 1) - gammaln(x + 1) - gammaln(n - x + 1), axis=-1)
        return value + choose[..., None]

    def frame_statistics(self, x: np.ndarray) -> BetaCoordinates:
        """Successes and failures."""
        return BetaCoordinates(x, np.asarray(self.total_count) - x)

    def feature_distribution(self, probability: Any) -> dist.Distribution:
        return dist.BinomialProbs(probability, jnp.broadcast_to(self.total_count, probability.shape))


@model_object
class BernoulliEmission(_SharesOfCounts):
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
    total_count: ClassVar[int] = 1  # type: ignore[misc]

    def __post_init__(self):
        counts = {"successes": self.successes, "failures": self.failures}
        self._set(**read_per_feature(self.num_features, **counts))
        self.block()

    def feature_distribution(self, probability: Any) -> dist.Distribution:
        return dist.BernoulliProbs(probability)

    def read(self, data: Trajectories) -> Array | np.ndarray:
        """Features (sequence, time, feature) that are 0 or 1."""
        x = read_observations(data, self.num_features)
        fix = "code the feature as 0 and 1, or NaN if missing"
        return require_values(data, x, lambda x: (x == 0) | (x == 1), "is not 0 or 1", fix)


@model_object
class BinomialEmission(_SharesOfCounts):
    r"""Counts out of n, independent over features.

    .. math:: p_{kd} \sim Beta(a, b), \qquad x_{td} \mid z_t = k \sim Bin(n_d, p_{kd})

    Parameters
    ----------
    total_count : n; an integer or (feature,) integers. Counts are whole numbers, NaN where missing.
    successes, failures : a and b; numbers or (feature,).
    num_features : D.
    known : ``Known(probability (state, feature))``, NaN rows where unknown.
    """

    total_count: Any
    successes: Any = 1.0
    failures: Any = 1.0
    num_features: int = static_field(default=1)
    known: Known | None = None

    def __post_init__(self):
        total = read_array("total_count", self.total_count)
        if not np.issubdtype(total.dtype, np.integer) or (total < 1).any():
            raise ValueError(f"total_count must hold integers of at least 1, not {self.total_count!r}")
        self._set(**read_per_feature(self.num_features, successes=self.successes, failures=self.failures))
        shape = (self.num_features,)
        if total.shape not in ((), shape):
            raise ValueError(f"total_count has shape {total.shape}: give a number, or {shape[0]} numbers")
        self._set(total_count=concretely(lambda xp, n: xp.broadcast_to(n, shape), total))
        self.block()

    def read(self, data: Trajectories) -> Array | np.ndarray:
        """Counts (sequence, time, feature)."""
        x = read_observations(data, self.num_features)
        if is_concrete(self.total_count):
            n = np.asarray(self.total_count)
            fix = f"use 0..{n.tolist()}, or NaN for what is missing"
            require_values(data, x, functools.partial(whole_up_to, n), "lies outside total_count", fix)
        return x
