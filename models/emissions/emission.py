"""Base class of emissions, after Le, Yue, Carr, Lucey (2017), supplement, eq. 4 with weighted counts."""

from __future__ import annotations

import abc
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array

from ethogram.models.arguments import concretely, is_concrete, read_reals, require, require_integer
from ethogram.models.chains.conjugate_chain import ChainEmission
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.families.exponential_family import ConjugateBlock, Known, PartlyKnown

__all__ = [
    "Emission",
    "interpolated",
    "of_every",
    "one_hot",
    "read_observations",
    "read_per_feature",
    "repeat_rows",
    "require_whole",
    "rows_of",
]


class Emission(ChainEmission, abc.ABC):
    """Base class of emissions: the distribution of observations given the state, with conjugate blocks.

    Abstract methods are required. The other hooks have defaults: `site_coords`, `locations`, `bind`, `with_prior_of`,
    `arrange`, `distribution_of`, `start_features`, and `symbol_table`, `chain_features` and `chain_weights` of
    :class:`~ethogram.models.chains.conjugate_chain.ChainEmission`.

    In observed frames NaN marks a missing feature. Emissions that sum missing features out say so by
    `sums_out_missing`; the others are never given any.

    Attributes
    ----------
    event_dim : number of event axes of an observation.
    site_dims : dims of every parameter site.
    sums_out_missing : whether features of observed frames may be missing.
    observation_needs_data : whether `distribution` depends on what `bind` takes from data, besides the parameters.
    """

    event_dim: ClassVar[int] = 1
    site_dims: ClassVar[dict[str, tuple[str, ...]]] = {}
    sums_out_missing: ClassVar[bool] = False
    observation_needs_data: ClassVar[bool] = False

    @abc.abstractmethod
    def prior(self, num_states: int) -> dict[str, ConjugateBlock]:
        """Conjugate blocks of the prior, a row per state."""

    @property
    def differs_by_state(self) -> bool:
        """Whether states have priors of their own, so that their numbers mean something. Default False."""
        return False

    @abc.abstractmethod
    def read(self, data: Trajectories) -> Array:
        """Checked observations of the data."""

    @abc.abstractmethod
    def expected_log_likelihood(self, expected: dict[str, Any], observations: Array) -> Array:
        """Expected log likelihood (..., state) of arranged observations under q, by the blocks' expected statistics."""

    @abc.abstractmethod
    def label_statistics(
        self, rng: np.random.Generator, frames: np.ndarray, labels: np.ndarray, num_states: int
    ) -> dict[str, Any]:
        """Sufficient statistics of labelled frames of arranged observations, by block."""

    @abc.abstractmethod
    def distribution(self, parameters: dict[str, Any]) -> dist.Distribution:
        """Distribution of an observation at given parameters, with batch shape (state,)."""

    def _set(self, **fields: Any) -> None:
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    def site_coords(self, feature_names: Any) -> dict[str, Any]:
        """Coordinates of dims of its own, given the names of the features (or None). Default: none."""
        return {}

    def locations(self, draws: Any) -> np.ndarray | None:
        """Means (state,) of the first feature over draws (draw, ...) by site, which order states. Default: None."""
        return None

    def bind(self, data: Trajectories, num_states: int) -> Any:
        """The emission with the prior that it takes from `data`. Default: the emission itself."""
        return self

    def with_prior_of(self, earlier: Any) -> Any:
        """The emission with what it would take from data taken from one that is bound. Default: the emission itself."""
        return self

    def arrange(self, data: Trajectories) -> Array:
        """Observations in the form that the expected log likelihood takes. Default: those of `read`."""
        return self.read(data)

    def distribution_of(self, parameters: dict[str, Any], data: Trajectories) -> dist.Distribution:
        """Distribution of an observation of `data`, whose density sums out what is missing. Default: `distribution`."""
        return self.distribution(parameters)

    def start_features(self, observations: np.ndarray, observed: np.ndarray) -> np.ndarray:
        """Frames as points (sequence, time, feature), for clustering. Default: the observations, gaps filled in."""
        return interpolated(np.asarray(observations, dtype=float), observed)


def interpolated(x: np.ndarray, observed: np.ndarray) -> np.ndarray:
    """Observations (sequence, time, feature) in which NaN of observed frames are filled in.

    By linear interpolation over the time of a sequence; a feature that a sequence lacks has its mean over all others.
    """
    gaps = np.isnan(x) & observed[..., None]
    if not gaps.any():
        return x
    x, seen = x.copy(), observed[..., None] & ~np.isnan(x)
    mean = np.sum(x, axis=(0, 1), where=seen) / np.maximum(seen.sum(axis=(0, 1)), 1)
    for row, feature in np.argwhere(gaps.any(axis=1)):
        here, known = gaps[row, :, feature], np.flatnonzero(seen[row, :, feature])
        at = np.flatnonzero(here)
        x[row, at, feature] = np.interp(at, known, x[row, known, feature]) if known.size else mean[feature]
    return x


def one_hot(labels: np.ndarray, num_states: int) -> np.ndarray:
    """Labels (frame,) as rows of an identity matrix."""
    return (labels[:, None] == np.arange(num_states)).astype(float)


def of_every(name: str, value: Any, count: int) -> Array:
    """A number repeated for every feature (category, component), or one number for each."""
    if value.shape not in ((), (count,)):
        raise ValueError(f"{name} has shape {value.shape}: give a number, or {count} numbers")
    return concretely(lambda xp, x: xp.broadcast_to(x, (count,)), value)


def read_per_feature(num_features: Any, **parameters: Any) -> dict[str, Array]:
    """Checked parameters by name, one number for each feature; those that are None are left out."""
    require_integer("num_features", num_features, 1)
    given = {name: value for name, value in parameters.items() if value is not None}
    values = zip(given, read_reals(**given), strict=True)
    return {name: of_every(name, value, num_features) for name, value in values}


def repeat_rows(block: Any, count: int) -> Any:
    """The block with a new leading batch axis of `count` equal rows."""
    return jax.tree.map(
        lambda x: concretely(lambda xp, x: xp.broadcast_to(x[None], (count, *x.shape)), x), block
    )


def rows_of(block: ConjugateBlock, num_states: int, known: Known | None) -> ConjugateBlock:
    block = repeat_rows(block, num_states)
    return block if known is None else PartlyKnown.from_known(block, known)


def read_observations(data: Trajectories, num_features: int) -> Array:
    """Observations (sequence, time, feature) as floats; a TypeError unless they are numbers."""
    if data.observations is None:
        raise ValueError(
            "data.observations is None: this emission needs observations (sequence, time, feature)"
        )
    if data.observations.shape[-1] != num_features:
        raise ValueError(
            f"data.observations has {data.observations.shape[-1]} features, but the emission has "
            f"num_features={num_features}"
        )
    kind = data.observations.dtype
    if jnp.issubdtype(kind, jnp.floating):
        return concretely(lambda xp, x: x, data.observations)
    if not jnp.issubdtype(kind, jnp.integer):
        raise TypeError(f"data.observations has dtype {kind}: this emission needs numbers")
    return concretely(lambda xp, x: x.astype(jnp.result_type(float)), data.observations)


def require_whole(data: Trajectories, x: Any, high: Any, what: str) -> None:
    """Raise ValueError at the first recorded number that is none of 0, 1, ..., `high`; traced ones are not checked."""
    if not is_concrete(x, data.observed, high):
        return
    x, high = np.asarray(x), np.asarray(high)
    good = (x >= 0) & (x <= high) & (x == np.floor(x)) | np.isnan(x) | ~np.asarray(data.observed)[..., None]
    fix = f"use 0..{high.tolist()}, or NaN for what is missing"
    require(good, "data.observations", x, f"lies outside {what}", fix)
