"""Dims and coordinates of draws and data, and the groups of the ArviZ object."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ethogram.models.conjugate_model import Exportable
from ethogram.models.data.metadata import STEP_FIELDS
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.data.xarray_dataset import metadata_variables

__all__ = ["Layout", "relabel"]

SAME_NAMES = {"next_state": "state", "next_feature": "feature"}
"""Dims that share the coordinates of another dim."""


class Layout:
    """Dims and coordinates of every array: those of the user take precedence over those of the model's ``site_layout``.

    The model's ``label_dims`` are those that `relabel` permutes.
    """

    lead = ("chain", "draw")

    def __init__(
        self,
        model: Exportable,
        data: Any,
        coords: Mapping[str, Any] | None,
        dims: Mapping[str, Sequence[str]] | None,
    ):
        own, named = model.site_layout(data)
        self.dims = {**own, **(dims or {})}
        self.data = data if isinstance(data, Trajectories) else None
        self.coords: dict[str, Any] = {}
        self.labels: dict[str, Any] = {}
        self.attributes: dict[str, Any] = {}
        if self.data is not None:
            names, self.attributes = metadata_variables(self.data.metadata)
            self.coords = {"feature": names.pop("feature")[1]} if "feature" in names else {}
            self.labels = names
        self.coords |= {dim: list(values) for dim, values in named.items()}
        self.label_dims = model.label_dims
        self.coords |= {dim: list(values) for dim, values in (coords or {}).items()}
        for dim, other in SAME_NAMES.items():
            if other in self.coords:
                self.coords.setdefault(dim, self.coords[other])

    def site_dims(self, name: str, site: np.ndarray) -> tuple[str, ...]:
        """Names of the axes of a site (chain, draw, ...) after the first two."""
        return self._dims(name, site.ndim - 2)

    def check_sites(self, sites: dict[str, np.ndarray]) -> None:
        """Raise ValueError unless dims and coords fit all sites."""
        self._sizes({name: self.sampled(name, site) for name, site in sites.items()}, {})

    def sampled(
        self, name: str, array: np.ndarray, dims: tuple[str, ...] = ()
    ) -> tuple[tuple[str, ...], np.ndarray]:
        """Dims and array of a variable (chain, draw, ...), whose other dims are `dims` where these fit."""
        fitting = dims if dims and len(dims) == array.ndim - 2 else self._dims(name, array.ndim - 2)
        return (*self.lead, *fitting), array

    def plain(self, name: str, array: np.ndarray) -> tuple[tuple[str, ...], np.ndarray]:
        """Dims and array of a variable of the data."""
        return self._dims(name, array.ndim), array

    def field(self, name: str) -> tuple[tuple[str, ...], np.ndarray]:
        """Dims and array of a field of the trajectories."""
        return self.plain(name, np.asarray(getattr(self.data, name)))

    def observed(self, name: str, value: Any) -> tuple[tuple[str, ...], np.ndarray]:
        """Dims and array of an observed site: a field of the trajectories, or else its value."""
        return self.field(name) if name in Trajectories._fields else self.plain(name, np.asarray(value))

    def data_variables(self, groups: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Variables of the groups ``observed_data`` and ``constant_data``."""
        observed = groups.get("observed_data", {})
        if self.data is None:
            return observed, {}
        present = {name for name in Trajectories._fields[:-2] if getattr(self.data, name) is not None}
        explained = [name for name in ("observations", "actions") if name in present][:1]
        observed = observed or {name: self.field(name) for name in explained}
        return observed, {name: self.field(name) for name in sorted(present - set(observed))}

    def agent_label(self) -> dict[str, Any]:
        """The agent of every sequence, by name where there are names, as a coordinate of ``sequence``."""
        if self.data is None or self.data.agent is None:
            return {}
        agent, names = np.asarray(self.data.agent), self.data.metadata.agent_names
        if names is None:
            return {"agent": ("sequence", agent)}
        return {"agent": ("sequence", [names[number] if number >= 0 else "" for number in agent])}

    def assemble(self, groups: dict[str, Any], labels: dict[str, Any], attributes: dict[str, Any]) -> Any:
        """The groups as the installed ArviZ takes them; `labels` are coordinates of the log likelihood."""
        import arviz
        import xarray

        datasets: dict[str, Any] = {}
        for group, variables in groups.items():
            if not variables:
                continue
            own_labels = labels if group == "log_likelihood" else {}
            sizes = self._sizes(variables, own_labels)
            known = {dim: self.coords.get(dim, np.arange(size)) for dim, size in sizes.items()}
            coords: dict[str, Any] = {dim: (dim, values) for dim, values in known.items()}
            coords |= {
                name: label
                for name, label in own_labels.items()
                if name not in self.coords or label[0] == name
            }
            if group == "log_likelihood":
                coords.pop("observation", None)
            if group in ("observed_data", "constant_data"):
                near = (*sizes, "feature") if group == "constant_data" else sizes
                coords |= {name: label for name, label in self.labels.items() if label[0] in (*near, name)}
            if group == "fit_stats" and "step" in variables:
                coords["step"] = variables["step"]
                variables = {name: variable for name, variable in variables.items() if name != "step"}
            data_attributes = self.attributes if group in ("observed_data", "constant_data") else {}
            own = attributes if group == "posterior" else data_attributes
            datasets[group] = xarray.Dataset(variables, coords=coords, attrs=own)
        everything = {**self.attributes, **attributes}
        if arviz.__version__.startswith("0."):
            return arviz.InferenceData(attrs=everything, **datasets)
        return xarray.DataTree.from_dict({"/": xarray.Dataset(attrs=everything), **datasets})

    def _dims(self, name: str, num_axes: int) -> tuple[str, ...]:
        if self.data is not None and name in Trajectories._fields and name not in self.dims:
            step = ("sequence", "time", "feature") if name == "observations" else ("sequence", "time")
            expected: Sequence[str] = step if name in STEP_FIELDS else ("sequence",)
            if len(expected) == num_axes:
                return tuple(expected)
        dims = tuple(self.dims.get(name, [f"{name}_dim_{axis}" for axis in range(num_axes)]))
        if len(dims) != num_axes or len(set(dims)) < num_axes or set(dims) & set(self.lead):
            raise ValueError(
                f"dims[{name!r}] is {dims}: give {num_axes} names, one for each axis after chain and draw, "
                "no two alike"
            )
        return dims

    def entries(self, dim: str, numbers: np.ndarray) -> np.ndarray:
        """Coordinates of all entries of a dim, those of the user or the model before `numbers`."""
        given = np.asarray(self.coords.get(dim, numbers))
        if len(given) != len(numbers):
            raise ValueError(
                f"coords[{dim!r}] has {len(given)} entries, but there are {len(numbers)}: give one for each"
            )
        return given

    def _sizes(self, variables: dict[str, Any], labels: Mapping[str, Any]) -> dict[str, int]:
        """Size of every dim, the same in all variables and in its coordinates, unless `labels` are these."""
        sizes: dict[str, int] = {}
        for name, (dims, array) in variables.items():
            for dim, size in zip(dims, array.shape, strict=True):
                if sizes.setdefault(dim, size) != size:
                    raise ValueError(
                        f"dim {dim} has size {sizes[dim]} in one variable and {size} in {name}: "
                        "name them apart by dims="
                    )
                if dim in self.coords and dim not in labels and len(self.coords[dim]) != size:
                    raise ValueError(
                        f"coords[{dim!r}] has {len(self.coords[dim])} entries, {name} has {size}: give one for each"
                    )
        return sizes


def relabel(
    site: np.ndarray, dims: Sequence[str], label_dims: Sequence[str], order: np.ndarray
) -> np.ndarray:
    """A site (chain, draw, ...) with the states on its labelled axes permuted by `order` (chain, draw, state).

    Entries beyond the states, such as the remainder of a truncation, keep their place.
    """
    for axis, dim in enumerate(dims, start=2):
        if dim in label_dims:
            rest = np.arange(order.shape[2], site.shape[axis])
            whole = np.concatenate([order, np.broadcast_to(rest, (*order.shape[:2], len(rest)))], axis=-1)
            shape = [*order.shape[:2], *[1] * (site.ndim - 2)]
            shape[axis] = site.shape[axis]
            site = np.take_along_axis(site, whole.reshape(shape), axis=axis)
    return site
