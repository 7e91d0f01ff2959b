"""Several trajectories as one: sequences one after the other, with labels looked up in one vocabulary."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ethogram.models.arguments import as_list
from ethogram.models.data.checks import check
from ethogram.models.data.metadata import (
    COLUMN_NAMES,
    SEQUENCE_LABELS,
    STEP_FIELDS,
    STEP_LABELS,
    TABLES,
    Metadata,
)
from ethogram.models.data.selection import valid_steps

__all__ = ["PADDING", "concatenated", "form"]

SAME = (*COLUMN_NAMES, "time_unit", "frame_rate", "time_kind", "time_zone")
PADDING = dict.fromkeys(STEP_FIELDS, -1) | {"observations": 0, "covariates": 0, "observed": False}


def concatenated(items: Iterable[Any], called: Sequence[str] | None = None) -> dict[str, Any]:
    """Fields of ``Trajectories.concatenate``; messages call the items as `called` says, or by their numbers."""
    parts = as_list("items", items, "trajectories")
    called = [f"items[{number}]" for number in range(len(parts))] if called is None else called
    if not parts:
        raise ValueError("items is empty: give at least one")
    for name, part in zip(called, parts, strict=True):
        if not hasattr(part, "observed"):
            raise TypeError(f"{name} is {type(part).__name__}: give a list of Trajectories")
        check(part)
        for what, wanted in form(parts[0]).items():
            if (found := form(part)[what]) != wanted:
                raise ValueError(
                    f"{name}.{what} is {found!r}, that of {called[0]} is {wanted!r}: read them alike"
                )
    metadata = {
        name: getattr(parts[0].metadata, name) for name in (*SAME, *(STEP_LABELS | SEQUENCE_LABELS).values())
    }
    if len({part.metadata.name for part in parts}) == 1:
        metadata["name"] = parts[0].metadata.name
    width, fields = max(part.observed.shape[1] for part in parts), {}
    for field in (*STEP_FIELDS, *SEQUENCE_LABELS, "lengths"):
        arrays = [getattr(part, field) for part in parts]
        if arrays[0] is None:
            continue
        arrays = [np.asarray(array) for array in arrays]
        if vocabulary := (STEP_LABELS | SEQUENCE_LABELS).get(field):
            known = [getattr(part.metadata, vocabulary) for part in parts]
            arrays, metadata[vocabulary] = _in_one_vocabulary(arrays, known, called, f"metadata.{vocabulary}")
        if field == "covariates" and metadata["covariate_names"] is not None:
            arrays, metadata["covariate_levels"] = _with_common_levels(parts, called)
        if field in PADDING:
            fill = np.nan if field == "times" and arrays[0].dtype.kind == "f" else PADDING[field]
            sides = [[(0, 0), (0, width - x.shape[1]), (0, 0)][: x.ndim] for x in arrays]
            arrays = [np.pad(x, side, constant_values=fill) for x, side in zip(arrays, sides, strict=True)]
        fields[field] = np.concatenate(arrays)
    _require_common_clocks(fields, metadata)
    return dict.fromkeys(("observations", "states", "actions")) | fields | {"metadata": Metadata(**metadata)}


def form(part: Any) -> dict[str, Any]:
    """What trajectories must have in common to be joined."""
    fields = (*STEP_FIELDS, *SEQUENCE_LABELS)
    found: dict[str, Any] = {field: None if getattr(part, field) is None else "given" for field in fields}
    for field in TABLES:
        found[f"{field}.shape[2]"] = None if getattr(part, field) is None else getattr(part, field).shape[2]
    found |= {f"metadata.{name}": getattr(part.metadata, name) for name in SAME}
    named = zip(part.metadata.covariate_names or (), part.metadata.covariate_levels or (), strict=False)
    return found | {"covariates with levels": [name for name, levels in named if levels is not None]}


def _in_one_vocabulary(
    codes: list[np.ndarray], known: list[Any], called: Sequence[str], vocabulary: str
) -> tuple[list[np.ndarray], Any]:
    """Numbers of labels in a vocabulary of all names, in the order in which they come, and this; None without names."""
    every = tuple(dict.fromkeys(name for names in known for name in names or ()))
    if not every:
        return codes, None
    for number, (code, names) in enumerate(zip(codes, known, strict=True)):
        if names is None and (code >= 0).any():
            raise ValueError(f"{called[number]}.{vocabulary} is None, and others have names: name all")
    place = {name: number for number, name in enumerate(every)}
    tables = [np.array([*map(place.get, names or ()), -1], np.int32) for names in known]
    return [table[np.maximum(code, -1)] for table, code in zip(tables, codes, strict=True)], every


def _with_common_levels(parts: list[Any], called: Sequence[str]) -> tuple[list[np.ndarray], list[Any]]:
    """Covariates of the parts, with codes in the levels that any of these have, and these levels."""
    arrays = [np.where(valid_steps(part)[..., None], part.covariates, 0) for part in parts]
    found = [*parts[0].metadata.covariate_levels]
    for place in [place for place, levels in enumerate(found) if levels is not None]:
        known = [part.metadata.covariate_levels[place] for part in parts]
        codes = [x[..., place].astype(int) for x in arrays]
        codes, found[place] = _in_one_vocabulary(codes, known, called, "metadata.covariate_levels")
        for x, code in zip(arrays, codes, strict=True):
            x[..., place] = code
    return arrays, found


def _require_common_clocks(fields: dict[str, Any], metadata: dict[str, Any]) -> None:
    """Raise ValueError where sequences of a group count their frames from different times."""
    if "group" not in fields or "times" not in fields or metadata["frame_rate"] is None:
        return
    frame = (1e9 if metadata["time_kind"] else 1) / metadata["frame_rate"]
    first = fields["observed"].argmax(axis=1)
    start = fields["times"][np.arange(len(first)), first] - first * frame
    seen = (fields["group"] >= 0) & fields["observed"].any(axis=1)
    groups, number = np.unique(fields["group"][seen], return_inverse=True)
    latest, earliest = np.full(len(groups), -np.inf), np.full(len(groups), np.inf)
    np.maximum.at(latest, number, start[seen])
    np.minimum.at(earliest, number, start[seen])
    for label in groups[latest - earliest > frame][:1].tolist():
        name = (metadata["group_names"] or range(label + 1))[label]
        raise ValueError(
            f"group {name!r} is in several items, which count its frames from different times: read their tables "
            "together, or give them different groups"
        )
