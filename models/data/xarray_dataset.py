"""Trajectories as an xarray Dataset and back, with every array and name, through netCDF too."""

import json
from collections.abc import Iterable
from typing import Any

import numpy as np

from ethogram.models.arguments import require_kind, require_one_of
from ethogram.models.data.metadata import (
    ARRAY_FIELDS,
    COLUMN_NAMES,
    SEQUENCE_LABELS,
    STEP_FIELDS,
    STEP_LABELS,
    TABLES,
    Metadata,
)
from ethogram.models.data.outliers import warn_of_outliers
from ethogram.models.data.padding import FrameRows, as_floats, is_nan, plain_times
from ethogram.models.data.times import read_times, with_time_metadata

__all__ = ["metadata_variables", "read_dataset", "read_metadata", "write_dataset"]

ATTRIBUTES = ("name", "time_unit", "frame_rate", "time_kind", "time_zone")
VOCABULARIES = (*STEP_LABELS.values(), *SEQUENCE_LABELS.values())


def write_dataset(data: Any) -> Any:
    """The ``xarray.Dataset`` that ``Trajectories.to_xarray`` describes, of checked trajectories."""
    import xarray

    parts = {field: getattr(data, field) for field in ARRAY_FIELDS}
    variables = {field: (_dims(field), np.asarray(part)) for field, part in parts.items() if part is not None}
    coords, attributes = metadata_variables(data.metadata)
    return xarray.Dataset(variables, coords=coords, attrs=attributes)


def read_dataset(
    dataset: Any,
    missing: str,
    sequence: Any = "sequence",
    agent: Any = "agent",
    time: Any = "time",
    features: Any = "feature",
) -> dict[str, Any]:
    """Fields of `Trajectories`, still to be checked, of a Dataset; parameters of ``Trajectories.from_xarray``."""
    require_one_of("missing", missing, ("error", "nan"))
    if not hasattr(dataset, "data_vars"):
        raise TypeError(f"dataset is {type(dataset).__name__}: pass an xarray.Dataset")
    dataset = _rename_dims(dataset, sequence, agent, time, features)
    parts: dict[str, Any] = {
        field: _values(dataset[field], field) for field in ARRAY_FIELDS if field in dataset
    }
    behaviour = [field for field in ("observations", *STEP_LABELS) if field in parts]
    if not behaviour:
        raise ValueError(
            f"dataset has no observations, states or actions: it has {sorted(map(str, dataset))}; rename one of "
            "them, or name variables by features="
        )
    for field in TABLES.keys() & parts.keys():
        parts[field] = as_floats(parts[field], field)
    for field in STEP_LABELS.keys() & parts.keys():
        names = (
            f"make them numbers of names in a coordinate {STEP_LABELS[field]}, with -1 for what is missing"
        )
        require_kind(field, parts[field], "iu", names)
    num_sequences, num_steps = parts[behaviour[0]].shape[:2]
    metadata = read_metadata(dataset)
    if "times" not in parts and "time" in dataset.coords and dataset["time"].dtype.kind in "iufmM":
        read = read_times(dataset["time"].values, "time", num_steps)
        if read.values.dtype.kind == "f" or not (np.arange(num_steps) == read.values).all():
            parts["times"] = np.tile(plain_times(read.values)[0], (num_sequences, 1))
            name = "the attribute frame_rate of dataset"
            metadata = with_time_metadata(metadata, read, None, np.zeros(num_steps), name)
    if "lengths" not in parts:
        parts["lengths"] = np.full(num_sequences, num_steps, dtype=np.int32)
    require_kind("lengths", parts["lengths"], "iu", "give whole numbers of frames (sequence,)")
    if "observed" not in parts:
        parts["observed"] = np.arange(num_steps)[None] < parts["lengths"][:, None]
        if "observations" not in parts:
            parts["observed"] &= np.any([parts[field] >= 0 for field in behaviour], axis=0)
        else:
            absent = is_nan(parts["observations"])
            gaps = absent & parts["observed"][..., None]
            if missing == "error" and gaps.any() and (parts["lengths"] <= num_steps).all():
                place = np.argwhere(gaps)[0].tolist()
                raise ValueError(f'observations{place} is nan: pass missing="nan" to take it as missing')
            parts["observed"] &= ~absent.all(axis=2)
            row, frame = np.nonzero(parts["observed"])
            values = parts["observations"][row, frame]
            if values.dtype.kind == "f":
                rows = FrameRows(row, frame, parts["lengths"], None, {})
                warn_of_outliers(values, np.ones(len(values), bool), rows, metadata, str)
    return dict.fromkeys(ARRAY_FIELDS) | parts | {"metadata": metadata}


def metadata_variables(metadata: Metadata) -> tuple[dict[str, Any], dict[str, Any]]:
    """Coordinates and attributes, as ``xarray.Dataset`` takes them, that :func:`read_metadata` reads."""
    coords: dict[str, Any] = {}
    for field, dim in (COLUMN_NAMES | dict(zip(VOCABULARIES, VOCABULARIES, strict=True))).items():
        if (names := getattr(metadata, field)) is not None:
            coords[dim if field == f"{dim}_names" else field] = (dim, list(names))
    if metadata.covariate_levels is not None:  # as text, which netCDF keeps
        coords["covariate_levels"] = ("covariate", list(map(json.dumps, metadata.covariate_levels)))
    attributes = {field: getattr(metadata, field) for field in ATTRIBUTES}
    return coords, {field: value for field, value in attributes.items() if value is not None}


def read_metadata(dataset: Any) -> Metadata:
    """Metadata of a Dataset; numeric coordinates of ``feature`` are not names."""
    own = ("covariate_units", "covariate_levels") if "covariates" in dataset else ()
    fields = ("feature_units", *own, *VOCABULARIES)
    names = {field: dataset[field].values.tolist() for field in fields if field in dataset}
    for dim in ("feature", "covariate") if own else ("feature",):
        if dim in dataset.coords and dataset[dim].dtype.kind in "OUT":
            names[f"{dim}_names"] = dataset[dim].values.tolist()
    if "covariate_levels" in names:
        names["covariate_levels"] = [json.loads(each) for each in names["covariate_levels"]]
    names |= {field: dataset.attrs[field] for field in ATTRIBUTES if field in dataset.attrs}
    return Metadata(**names)


def _dims(field: str) -> tuple[str, ...]:
    if field in TABLES:
        return ("sequence", "time", TABLES[field])
    return ("sequence", "time") if field in STEP_FIELDS else ("sequence",)


def _values(variable: Any, field: str) -> np.ndarray:
    if set(variable.dims) != set(_dims(field)):
        lacking = [dim for dim in _dims(field) if dim not in variable.dims]
        extra = [dim for dim in variable.dims if dim not in _dims(field)]
        arguments = {"sequence": "sequence", "time": "time", "feature": "features"}
        given = ", ".join(
            f"{arguments[dim]}={name!r}"
            for dim, name in zip(lacking, extra, strict=False)
            if dim in arguments
        )
        fix = f"pass {given}, or " if given else ""
        raise ValueError(f"{field} has dims {variable.dims}, not {_dims(field)}: {fix}rename or expand them")
    return variable.transpose(*_dims(field)).values


def _rename_dims(dataset: Any, sequence: Any, agent: Any, time: Any, features: Any) -> Any:
    """The Dataset with dims ``sequence``, ``time`` and ``feature``; parameters of ``Trajectories.from_xarray``."""
    dims = list(dataset.dims)
    for argument, name in (("sequence", sequence), ("agent", agent), ("time", time)):
        if not isinstance(name, str):
            raise TypeError(f"{argument} is {name!r}: give the name of a dim of the dataset")
    chosen = [features] if isinstance(features, str) else features
    chosen = list(chosen) if isinstance(chosen, Iterable) else [None]
    if not all(isinstance(name, str) for name in chosen):
        raise TypeError(f"features is {features!r}: give the name of a dim, or of variables")
    for argument, name in (("sequence", sequence), ("time", time)):
        if name not in (argument, *dims) and not (argument == "sequence" and agent in dims):
            raise ValueError(f"{argument} is {name!r}, but the dataset has dims {dims}: name one")
    if not chosen:
        raise ValueError("features is empty: give the name of a dim, or of variables")
    by_dim = len(chosen) == 1 and chosen[0] in ("feature", *dims)
    for name in [] if by_dim else chosen:
        if name not in dataset.data_vars:
            raise ValueError(
                f"features names {name!r}, but the dataset has dims {dims} and variables "
                f"{sorted(map(str, dataset.data_vars))}: name a dim, or variables"
            )
    if not by_dim:
        dataset = _with_observations(dataset, chosen, {sequence, agent, time})
        chosen = ["feature"]
    if agent in dataset.dims and agent != sequence:
        dataset = _one_row_an_agent(dataset, sequence, agent)
        sequence, agent = "sequence", "agent"
    wanted = {sequence: "sequence", time: "time", chosen[0]: "feature", agent: "agent"}
    known = {*dataset.variables, *dataset.dims}
    present = {name: own for name, own in wanted.items() if name != own and name in known}
    for name, own in present.items():
        if own in known:
            raise ValueError(f"the dataset has both {name!r} and {own!r}: drop or rename {own!r}")
    return dataset.rename(present)


def _with_observations(dataset: Any, names: list[str], lead: set[str]) -> Any:
    import xarray

    if "observations" in dataset and names != ["observations"]:
        raise ValueError("features names variables, but the dataset has observations too: drop one of them")
    if len(names) == 1 and len(rest := [dim for dim in dataset[names[0]].dims if dim not in lead]) == 1:
        dataset = dataset.rename({names[0]: "observations"} if names[0] != "observations" else {})
        return dataset.rename({rest[0]: "feature"} if rest[0] != "feature" else {})
    for name in names:
        if extra := [dim for dim in dataset[name].dims if dim not in lead]:
            raise ValueError(f"features names {name!r}, which has dims {extra} too: pass sequence= and time=")
    joined = xarray.concat(
        [dataset[name] for name in names], dim="feature", coords="minimal", compat="override"
    )
    units = [str(dataset[name].attrs.get("units", "")) for name in names]
    own = {"feature": names} | ({"feature_units": ("feature", units)} if any(units) else {})
    return (
        dataset.drop_vars(names)
        .assign(observations=joined.drop_vars([name for name in joined.coords if name not in joined.dims]))
        .assign_coords(own)
    )


def _one_row_an_agent(dataset: Any, sequence: str, agent: str) -> Any:
    """Agents of each sequence as sequences of their own, which share a group."""
    labels = dataset[agent].values if agent in dataset.coords else np.arange(dataset.sizes[agent])
    if sequence not in dataset.dims:
        dataset = dataset.expand_dims(sequence)
    groups, count = dataset.sizes[sequence], dataset.sizes[agent]
    kept = dataset.drop_vars([name for name in (agent, sequence) if name in dataset.coords])
    kept = kept.stack(rows=(sequence, agent), create_index=False)
    kept = kept.drop_vars("sequence", errors="ignore").rename(rows="sequence")
    if labels.dtype.kind in "OUT":
        names, labels = np.unique(labels.astype(str), return_inverse=True)
        kept = kept.assign_coords(agent_names=("agent_names", names))
    return kept.assign(
        agent=("sequence", np.tile(labels, groups)),
        group=("sequence", np.repeat(np.arange(groups), count)),
    )
