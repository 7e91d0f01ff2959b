"""An emission of several kinds of features, each kind an emission of its own columns."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import constraints

from ethogram.models.data.metadata import Metadata
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.emissions.emission import Emission, read_observations
from ethogram.models.families.exponential_family import ConjugateBlock
from ethogram.models.model_object import model_object, static_field

__all__ = ["ProductEmission"]


class JoinedColumns(dist.Distribution):
    """Distribution of frames whose consecutive columns come from several distributions, independent given the state.

    Parameters
    ----------
    parts : distributions of vectors, with one batch shape.
    """

    arg_constraints: ClassVar[dict] = {}
    support = constraints.real_vector
    pytree_data_fields = ("parts",)

    def __init__(self, parts: tuple[dist.Distribution, ...]):
        self.parts = parts
        size = sum(part.event_shape[0] for part in parts)
        super().__init__(parts[0].batch_shape, (size,), validate_args=False)

    def log_prob(self, value: Any) -> Array:
        """Sum of the log densities of the parts."""
        columns = _split(value, tuple(part.event_shape[0] for part in self.parts))
        return sum(part.log_prob(x) for part, x in zip(self.parts, columns, strict=True))

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Frames (*sample_shape, ..., feature), as floats."""
        keys = jax.random.split(key, len(self.parts))
        drawn = [part.sample(k, sample_shape) for part, k in zip(self.parts, keys, strict=True)]
        dtype = jnp.result_type(float, *drawn)
        return jnp.concatenate([x.astype(dtype) for x in drawn], axis=-1)


def _split(value: Any, sizes: tuple[int, ...]) -> list[Any]:
    """Consecutive columns of the last axis, so many for each part; of NumPy or JAX arrays."""
    ends = np.cumsum(sizes)
    return [value[..., end - size : end] for size, end in zip(sizes, ends, strict=True)]


@model_object
class ProductEmission(Emission):
    r"""Emissions of consecutive columns, independent given the state.

    .. math:: p(x_t \mid z_t = k) = \prod_j p_j(x_{tj} \mid \phi_{jk})

    The first emission takes the first of the columns, as many as it has features, the second the next ones. Where the
    data name their features, those that have the name of an emission must be in its place. Sites and blocks have the
    name of the emission in front: ``step_mean``, ``turn_direction``.

    Parameters
    ----------
    emissions : emissions by name; a name is an identifier such as ``"step"``.

    Examples
    --------
    >>> from ethogram.models.emissions import GammaEmission, VonMisesEmission
    >>> emission = ProductEmission({"step": GammaEmission(), "turn": VonMisesEmission()})
    >>> sorted(emission.site_dims)
    ['step_mean', 'step_shape', 'turn_concentration', 'turn_direction']
    """

    emissions: Any
    names: tuple[str, ...] = static_field(default=())

    def __post_init__(self):
        if isinstance(self.emissions, Mapping):
            self._set(names=tuple(self.emissions), emissions=tuple(self.emissions.values()))
        parts, names = self.emissions, self.names
        if (
            not isinstance(parts, tuple)
            or not parts
            or not isinstance(names, tuple)
            or len(parts) != len(names)
        ):
            raise TypeError(f'emissions is {parts!r}: give a dict, such as {{"step": GammaEmission()}}')
        for name, part in zip(names, parts, strict=True):
            if not isinstance(name, str) or not name.isidentifier():
                raise ValueError(f"emissions has the name {name!r}: use letters, digits and underscores")
            if not isinstance(part, Emission) or isinstance(part, ProductEmission):
                raise TypeError(f"emissions[{name!r}] must be an emission of features, not {part!r}")
            if part.order:
                raise TypeError(f"emissions[{name!r}] has lags, which are of all features: use it alone")
        sites = [f"{name}_{site}" for name, part in self._parts() for site in part.site_dims]
        if len(set(sites)) < len(sites):
            twice = next(site for site in sites if sites.count(site) > 1)
            raise ValueError(f"emissions would have the site {twice!r} twice: choose other names")

    def _parts(self) -> list[tuple[str, Any]]:
        return list(zip(self.names, self.emissions, strict=True))

    @property
    def _sizes(self) -> tuple[int, ...]:
        return tuple(part.num_features for part in self.emissions)

    @property
    def num_features(self) -> int:
        """Number of columns of all emissions."""
        return sum(self._sizes)

    @property
    def site_dims(self) -> dict[str, tuple[str, ...]]:  # type: ignore[override]
        """Dims of every site; axes of features have the name of the emission, ``step_feature``."""
        own = ("state",)
        return {
            f"{name}_{site}": tuple(dim if dim in own else f"{name}_{dim}" for dim in dims)
            for name, part in self._parts()
            for site, dims in part.site_dims.items()
        }

    def site_coords(self, feature_names: Any) -> dict[str, Any]:
        """Names of the features of each part, given those of all (or None), and coordinates of its own."""
        coords: dict[str, Any] = {}
        end = 0
        for (name, part), size in zip(self._parts(), self._sizes, strict=True):
            start, end = end, end + size
            own = None if feature_names is None else list(feature_names[start:end])
            named = part.site_coords(own) | ({} if own is None else {"feature": own, "next_feature": own})
            dims = {dim for site in part.site_dims.values() for dim in site}
            coords |= {f"{name}_{dim}": values for dim, values in named.items() if dim in dims}
        return coords

    @property
    def differs_by_state(self) -> bool:
        """Whether states have priors of their own."""
        return any(part.differs_by_state for part in self.emissions)

    def bind(self, data: Trajectories, num_states: int) -> ProductEmission:
        """The emission with the priors that its parts take from their columns."""
        pairs = zip(self.emissions, self._columns(data), strict=True)
        return self._with([part.bind(columns, num_states) for part, columns in pairs])

    def with_prior_of(self, earlier: Any) -> ProductEmission:
        """The emission with what its parts would take from data taken from those of an earlier one."""
        if earlier.names != self.names:
            return self
        pairs = zip(self.emissions, earlier.emissions, strict=True)
        return self._with(
            [part.with_prior_of(old) if type(part) is type(old) else part for part, old in pairs]
        )

    def _with(self, parts: list[Any]) -> ProductEmission:
        same = all(new is old for new, old in zip(parts, self.emissions, strict=True))
        return self if same else dataclasses.replace(self, emissions=tuple(parts))

    def prior(self, num_states: int) -> dict[str, ConjugateBlock]:
        """The blocks of the parts, named ``step.mean_shape``."""
        return {
            f"{name}.{key}": block
            for name, part in self._parts()
            for key, block in part.prior(num_states).items()
        }

    def _own(self, name: str, values: Mapping[str, Any], mark: str) -> dict[str, Any]:
        start = f"{name}{mark}"
        return {key.removeprefix(start): value for key, value in values.items() if key.startswith(start)}

    def _columns(self, data: Trajectories) -> list[Trajectories]:
        """The data of each part."""
        x = read_observations(data, self.num_features)
        names = data.metadata.feature_names
        meant = [(name, sum(self._sizes[:at])) for at, name in enumerate(self.names) if self._sizes[at] == 1]
        for name, place in meant:
            if names is not None and name in names and names[place] != name:
                raise ValueError(
                    f"feature {place} of the data is {names[place]!r}, but the emission of that column is {name!r}: "
                    f"give the emissions in the order of the features, {', '.join(map(repr, names))}"
                )
        found, end = [], 0
        for columns in _split(x, self._sizes):
            start, end = end, end + columns.shape[-1]
            units = data.metadata.feature_units
            own = Metadata(names and names[start:end], units and units[start:end])
            found.append(data._replace(observations=columns, metadata=own))
        return found

    def read(self, data: Trajectories) -> Array | np.ndarray:
        """Observations (sequence, time, feature), each column checked by its emission."""
        start = 0
        for (name, part), size, columns in zip(self._parts(), self._sizes, self._columns(data), strict=True):
            try:
                part.read(columns)
            except ValueError as error:
                raise ValueError(f"emission {name!r}, of the columns from {start}: {error}") from error
            start += size
        return read_observations(data, self.num_features)

    def arrange(self, data: Trajectories) -> tuple[Any, ...]:
        """The columns of each part as it arranges them."""
        pairs = zip(self.emissions, self._columns(data), strict=True)
        return tuple(part.arrange(columns) for part, columns in pairs)

    def expected_log_likelihood(self, expected: dict[str, Any], observations: Any) -> Array:
        """Sum over the parts of their expected log likelihoods (..., state)."""
        pairs = zip(self._parts(), observations, strict=True)
        return sum(
            part.expected_log_likelihood(self._own(name, expected, "."), x) for (name, part), x in pairs
        )

    def label_statistics(
        self, rng: np.random.Generator, frames: tuple[Any, ...], labels: np.ndarray, num_states: int
    ) -> dict[str, Any]:
        """Statistics of the parts in labelled frames, by block."""
        return {
            f"{name}.{key}": value
            for (name, part), own in zip(self._parts(), frames, strict=True)
            for key, value in part.label_statistics(rng, own, labels, num_states).items()
        }

    def start_features(self, observations: tuple[Any, ...], observed: np.ndarray) -> np.ndarray:
        """The points of the parts, side by side."""
        pairs = zip(self.emissions, observations, strict=True)
        points = [np.asarray(part.start_features(x, observed), float) for part, x in pairs]
        return np.concatenate(points, axis=-1)

    def locations(self, draws: dict[str, np.ndarray]) -> np.ndarray | None:
        """That of the first part."""
        return self.emissions[0].locations(self._own(self.names[0], draws, "_"))

    def distribution(self, parameters: dict[str, Any], data: Trajectories | None = None) -> JoinedColumns:
        """The distributions of the parts, at parameters ``step_mean`` and so on."""
        columns: list[Any] = [None] * len(self.names)
        if (
            data is not None
            and data.observations is not None
            and data.observations.shape[-1] == self.num_features
        ):
            columns = self._columns(data)
        pairs = zip(self._parts(), columns, strict=True)
        return JoinedColumns(
            tuple(part.distribution(self._own(name, parameters, "_"), own) for (name, part), own in pairs)
        )
