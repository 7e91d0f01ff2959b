"""Base class of emissions, after Le, Yue, Carr, Lucey (2017), supplement, eq. 4 with weighted counts."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Collection
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array

from ethogram.models.arguments import (
    concretely,
    host_arrays,
    is_concrete,
    read_reals,
    require,
    require_integer,
)
from ethogram.models.chains.conjugate_chain import ChainEmission
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.families import expected_statistics
from ethogram.models.families.exponential_family import ConjugateBlock, Known, PartlyKnown
from ethogram.models.memory_bound import require_room
from ethogram.models.quick_jit import quick_jit

__all__ = [
    "Emission",
    "interpolated",
    "one_hot",
    "read_observations",
    "read_parameters",
    "read_per_feature",
    "repeat_rows",
    "require_values",
    "rows_of",
    "whole_up_to",
]


class Emission(ChainEmission, abc.ABC):
    """Base class of emissions: the distribution of observations given the state, with conjugate blocks.

    Abstract methods are required, all others have defaults; `symbol_table`, and `chain_features` with `chain_weights`,
    of :class:`~ethogram.models.chains.conjugate_chain.ChainEmission`, are faster forms of the expected log likelihood.
    Where features are independent given the state, start from :class:`FeatureEmission`.

    In observed frames NaN marks a missing feature, which the likelihoods leave out; an emission that cannot do so
    refuses such frames in `read`.

    Attributes
    ----------
    site_dims : dims of every parameter site.
    prior_from_data : parameters that `bind` takes from data where they are None.
    order : how many frames before it a frame depends on.
    observation_needs_data : whether `distribution` depends on what `bind` takes from data, besides the parameters.
    """

    site_dims: ClassVar[dict[str, tuple[str, ...]]] = {}
    prior_from_data: ClassVar[tuple[str, ...]] = ()
    order: int = 0
    observation_needs_data: ClassVar[bool] = False

    @abc.abstractmethod
    def prior(self, num_states: int) -> dict[str, ConjugateBlock]:
        """Conjugate blocks of the prior, one row per state."""

    @property
    def differs_by_state(self) -> bool:
        """Whether states have priors of their own, so that their numbers mean something. Default False."""
        return False

    @abc.abstractmethod
    def read(self, data: Trajectories) -> Array | np.ndarray:
        """Checked observations (sequence, time, feature): floats, by `read_observations` and `require_values`."""

    @abc.abstractmethod
    def expected_log_likelihood(self, expected: dict[str, Any], observations: Any) -> Array:
        """Expected log likelihood (..., state) of arranged observations under q, by the blocks' expected statistics."""

    def label_statistics(
        self, rng: np.random.Generator, frames: Any, labels: np.ndarray, num_states: int
    ) -> dict[str, Any]:
        """Sufficient statistics of labelled frames, by block. Default: gradient of `expected_log_likelihood`."""
        return jax.device_get(_statistics_of_labels(self, self.prior(num_states), frames, labels))

    def statistics_of_labels(self, frames: Any, labels: np.ndarray, num_states: int) -> dict[str, Any]:
        """The same (start, ...) under several labels (start, frame); quick `label_statistics` of small data."""
        raise NotImplementedError(f"{type(self).__name__} has no method statistics_of_labels")

    @abc.abstractmethod
    def distribution(self, parameters: dict[str, Any], data: Trajectories | None = None) -> dist.Distribution:
        """Distribution of a frame at given parameters, with batch shape (state,).

        Its density sums out the features that are missing in `data`; without data it is of complete frames.
        """

    def _set(self, **fields: Any) -> None:
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    def site_coords(self, feature_names: Any) -> dict[str, Any]:
        """Coordinates of dims of its own, given the names of the features (or None). Default: none."""
        return {}

    def locations(self, draws: Any) -> np.ndarray | None:
        """Means (state,) of the first feature over draws (draw, ...) by site, which order states.

        Default: those of the first site with one number per feature; None without one.
        """
        site = next((name for name, dims in self.site_dims.items() if dims == ("state", "feature")), None)
        return None if site is None else draws[site][..., 0].mean(0)

    def bind(self, data: Trajectories, num_states: int) -> Any:
        """The emission with the prior that it takes from `data`. Default: the emission itself."""
        return self

    def with_prior_of(self, earlier: Any) -> Any:
        """The emission with the parameters that are None taken from an earlier one, whose fit this one continues."""
        return self._filled(**{name: getattr(earlier, name) for name in self.prior_from_data})

    def _filled(self, **values: Any) -> Any:
        """The emission with these values of parameters that are None."""
        missing = {name: value for name, value in values.items() if getattr(self, name) is None}
        return dataclasses.replace(self, **missing) if missing else self  # type: ignore[type-var]

    def arrange(self, data: Trajectories) -> Any:
        """Observations in the form that the expected log likelihood takes. Default: those of `read`."""
        return self.read(data)

    def start_features(self, observations: Any, observed: np.ndarray) -> np.ndarray:
        """Arranged frames as points (sequence, time, feature), for clustering. Default: as they are, gaps filled in."""
        return interpolated(np.asarray(observations, dtype=float), observed)


@quick_jit
def _statistics_of_labels(emission: Any, blocks: dict[str, Any], frames: Any, labels: Any) -> dict[str, Any]:
    def total(expected):
        each = emission.expected_log_likelihood(expected, frames)
        return jnp.sum(jnp.take_along_axis(each, labels[:, None], axis=-1))

    return jax.grad(total)(expected_statistics(blocks))


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
    """Labels (..., frame) as rows of an identity matrix."""
    return (labels[..., None] == np.arange(num_states)).astype(float)


def read_parameters(
    shapes: dict[str, tuple[int, ...]], optional: Collection[str] = (), by_state: bool = False, **values: Any
) -> dict[str, Array]:
    """Checked parameters by name; those that are None, as `optional` ones may be, are left out.

    A number is that of every feature where the parameter is a vector, and times the identity where it is a matrix.

    Parameters
    ----------
    shapes : of each parameter, () for a number.
    by_state : whether parameters may have a leading axis of states.
    """
    for name, shape in shapes.items():
        require_room(name, shape, float, "give fewer features")
        if values[name] is None and name not in optional:
            raise TypeError(f"{name} is None: give numbers, or leave it out for the default")
    given = {name: value for name, value in values.items() if value is not None}
    found = dict(zip(given, read_reals(**given), strict=True))
    for name, value in found.items():
        shape = shapes[name]
        differs = by_state and value.ndim == len(shape) + 1 and value.shape[1:] == shape
        if value.shape not in ((), shape) and not differs:
            allowed = ["a number", *[f"of shape {shape}"] * bool(shape)]
            if by_state:
                allowed.append(f"of shape ({', '.join(map(str, ('state', *shape)))})")
            raise ValueError(f"{name} has shape {value.shape}: it must be {' or '.join(allowed)}")
        if shape and not value.ndim:
            unit = np.eye(*shape) if len(shape) == 2 else np.ones(shape)
            found[name] = concretely(lambda xp, x, unit: x * unit.astype(x.dtype), value, unit)
    return found


def read_per_feature(
    num_features: Any, optional: Collection[str] = (), **parameters: Any
) -> dict[str, Array]:
    """As `read_parameters`, one number for each feature."""
    size = require_integer("num_features", num_features, 1)
    return read_parameters(dict.fromkeys(parameters, (size,)), optional, **parameters)


def repeat_rows(block: Any, count: int) -> Any:
    """The block with a new leading batch axis of `count` equal rows."""
    for leaf in jax.tree.leaves(block):
        require_room("the prior of the emission", (count, *leaf.shape), leaf.dtype, "give fewer states")

    def repeated(xp: Any, block: Any) -> Any:
        return jax.tree.map(lambda x: xp.broadcast_to(x[None], (count, *x.shape)), block)

    return host_arrays(repeated, block)


def rows_of(block: ConjugateBlock, num_states: int, known: Known | None) -> ConjugateBlock:
    block = repeat_rows(block, num_states)
    return block if known is None else PartlyKnown.from_known(block, known)


def read_observations(data: Trajectories, num_features: int) -> Array | np.ndarray:
    """Observations (sequence, time, feature) as floats; a TypeError unless they are numbers."""
    if data.observations is None:
        raise ValueError(
            "data.observations is None: this emission needs observations (sequence, time, feature)"
            + (
                "; the data have actions, which models of intents and rewards read: name their column in features"
                if data.actions is not None
                else ""
            )
        )
    if data.observations.shape[-1] != num_features:
        raise ValueError(
            f"data.observations has {data.observations.shape[-1]} features, but the emission has "
            f"num_features={num_features}"
        )
    kind = data.observations.dtype
    if jnp.issubdtype(kind, jnp.floating):
        return host_arrays(lambda xp, x: x, data.observations)
    if not jnp.issubdtype(kind, jnp.integer):
        raise TypeError(f"data.observations has dtype {kind}: this emission needs numbers")
    return host_arrays(lambda xp, x: x.astype(jnp.result_type(float)), data.observations)


def require_values(data: Trajectories, x: Any, good: Any, fault: str, fix: str) -> Any:
    """The values x; a ValueError at the first recorded one that is not ``good(x)``. Traced arrays are not checked."""
    if not is_concrete(x, data.observed):
        return x
    values = np.asarray(x, float)
    seen = np.asarray(data.observed)[..., None] & ~np.isnan(values)
    require(good(np.where(seen, values, 1)) | ~seen, "data.observations", values, fault, fix)
    return x


def whole_up_to(high: Any, x: np.ndarray) -> np.ndarray:
    """Whether numbers are 0, 1, ..., `high`."""
    return (x >= 0) & (x <= high) & (x == np.floor(x))
