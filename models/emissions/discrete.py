"""Emissions of symbols and counts: categorical, and binomial by feature (Bishop 2006, sections 2.1 and 2.2)."""

from __future__ import annotations

from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from jax.scipy.special import gammaln

from ethogram.models.arguments import concretely, read_reals, require_integer
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.emissions.counts import recorded
from ethogram.models.emissions.emission import (
    Emission,
    of_every,
    one_hot,
    read_observations,
    require_whole,
    rows_of,
)
from ethogram.models.families.exponential_family import (
    Beta,
    BetaCoordinates,
    ConjugateBlock,
    Dirichlet,
    DirichletCoordinates,
    Known,
)
from ethogram.models.families.feature_columns import IndependentFeatures
from ethogram.models.model_object import model_object, static_field

__all__ = ["BinomialEmission", "CategoricalEmission"]


@model_object
class CategoricalEmission(Emission):
    r"""One categorical distribution a state: :math:`p_k \sim Dir(c)`, :math:`x_t \mid z_t = k \sim p_k`.

    Parameters
    ----------
    num_categories : V; observations are whole numbers 0..V-1, one feature.
    concentration : c; a number or (category,).
    known : ``Known(probability (state, category))``, NaN rows where unknown.
    """

    num_categories: int = static_field()
    concentration: Any = 1.0
    known: Known | None = None
    event_dim: ClassVar[int] = 0
    site_dims: ClassVar[dict[str, tuple[str, ...]]] = {"probability": ("state", "category")}

    def __post_init__(self):
        require_integer("num_categories", self.num_categories, 1)
        (concentration,) = read_reals(concentration=self.concentration)
        concentration = of_every("concentration", concentration, self.num_categories)
        self._set(concentration=concentration)
        Dirichlet.from_standard(concentration)

    def prior(self, num_states: int) -> dict[str, ConjugateBlock]:
        """One Dirichlet block, ``probability``, a row per state."""
        return {"probability": rows_of(Dirichlet.from_standard(self.concentration), num_states, self.known)}

    def expected_log_likelihood(self, expected: dict[str, Any], observations: Array) -> Array:
        r"""Expected log probability (..., state): :math:`\psi(c_{kv}) - \psi(\sum_v c_{kv})`."""
        return self.symbol_table(expected)[observations]

    def symbol_table(self, expected: dict[str, Any]) -> Array:
        """Expected log probability (symbol, state)."""
        return expected["probability"].concentration.T

    def start_features(self, observations: np.ndarray, observed: np.ndarray) -> np.ndarray:
        """Symbol frequencies of the sequence of each frame (single symbols are equidistant)."""
        sequence = np.broadcast_to(np.arange(len(observed))[:, None], observed.shape)
        counts = np.zeros((len(observed), self.num_categories))
        np.add.at(counts, (sequence[observed], observations[observed]), 1)
        share = counts / np.maximum(observed.sum(axis=1), 1)[:, None]
        return np.broadcast_to(share[:, None], (*observed.shape, self.num_categories))

    def label_statistics(
        self, rng: np.random.Generator, frames: np.ndarray, labels: np.ndarray, num_states: int
    ) -> dict[str, Any]:
        """Counts of the symbols of each state in labelled frames."""
        counts = np.zeros((num_states, self.num_categories))
        np.add.at(counts, (labels, frames), 1)
        return {"probability": DirichletCoordinates(counts)}

    def distribution(self, parameters: dict[str, Any]) -> dist.Distribution:
        """Categorical distributions at ``probability (state, category)``."""
        return dist.CategoricalProbs(parameters["probability"])

    def read(self, data: Trajectories) -> Array:
        """Symbols (sequence, time), as integers."""
        x = read_observations(data, 1)
        require_whole(data, x, self.num_categories - 1, f"the {self.num_categories} categories")
        return concretely(lambda xp, x: xp.where(xp.isnan(x), 0, x)[..., 0].astype(np.int32), x)


@model_object
class BinomialEmission(Emission):
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
    site_dims: ClassVar[dict[str, tuple[str, ...]]] = {"probability": ("state", "feature")}
    sums_out_missing: ClassVar[bool] = True

    def __post_init__(self):
        total = np.asarray(self.total_count)
        if not np.issubdtype(total.dtype, np.integer) or (total < 1).any():
            raise ValueError(f"total_count must hold integers of at least 1, not {self.total_count!r}")
        require_integer("num_features", self.num_features, 1)
        a, b = read_reals(successes=self.successes, failures=self.failures)
        fields = {"total_count": total, "successes": a, "failures": b}
        self._set(**{name: of_every(name, value, self.num_features) for name, value in fields.items()})
        Beta.from_standard(self.successes, self.failures)

    def prior(self, num_states: int) -> dict[str, ConjugateBlock]:
        """One block, ``probability``, of Beta distributions (state, feature)."""
        return {
            "probability": rows_of(Beta.from_standard(self.successes, self.failures), num_states, self.known)
        }

    def expected_log_likelihood(self, expected: dict[str, Any], observations: Array) -> Array:
        r"""Expected log probability (..., state): :math:`\ln\binom{n}{x} + x E \ln p + (n - x) E \ln(1 - p)`."""
        log_p, log_not = expected["probability"]
        x, seen = recorded(observations, log_p.dtype)
        n = jnp.where(seen > 0, self.total_count.astype(log_p.dtype), 0)  # none of none where missing
        choose = jnp.sum(gammaln(n + 1) - gammaln(x + 1) - gammaln(n - x + 1), axis=-1)

        def times(count, log_probability):  # 0 ln 0 is 0: a probability may be known to be 0 or 1
            count = count[..., None, :]
            log_probability = log_probability.reshape((1,) * (x.ndim - 1) + log_probability.shape)
            return jnp.sum(jnp.where(count > 0, count * log_probability, 0), axis=-1)

        return times(x, log_p) + times(n - x, log_not) + choose[..., None]

    def label_statistics(
        self, rng: np.random.Generator, frames: np.ndarray, labels: np.ndarray, num_states: int
    ) -> dict[str, Any]:
        """Successes and failures of each state in labelled frames."""
        member, missing = one_hot(labels, num_states).T, np.isnan(frames)
        failures = np.where(missing, 0, np.asarray(self.total_count) - frames)
        return {"probability": BetaCoordinates(member @ np.where(missing, 0, frames), member @ failures)}

    def locations(self, draws: dict[str, np.ndarray]) -> np.ndarray:
        """Probability (state,) of the first feature, which orders states as its mean does."""
        return draws["probability"][..., 0].mean(0)

    def distribution(self, parameters: dict[str, Any]) -> dist.Distribution:
        """Binomial distributions at ``probability (state, feature)``."""
        probability = parameters["probability"]
        count = jnp.broadcast_to(self.total_count, probability.shape)
        return IndependentFeatures(dist.BinomialProbs(probability, count))

    def read(self, data: Trajectories) -> Array:
        """Counts (sequence, time, feature)."""
        x = read_observations(data, self.num_features)
        require_whole(data, x, self.total_count, "total_count")
        return x
