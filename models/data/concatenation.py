"""Several trajectories as one: sequences one after the other, with labels looked up in one vocabulary."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ethogram.models.arguments import as_list
from ethogram.models.data.checks import check
from ethogram.models.data.metadata import SEQUENCE_LABELS, STEP_FIELDS, STEP_LABELS, Metadata

__all__ = ["concatenated"]

SAME = ("feature_names", "feature_units", "time_unit", "frame_rate", "time_kind", "time_zone")
PADDING = {"observations": 0, "states": -1, "actions": -1, "observed": False, "stay": -1, "times": -1}


def concatenated(items: Iterable[Any], called: Sequence[str] | None = None) -> dict[str, Any]:
    """Fields of ``Trajectories.concatenate``; messages call the items as `called` says, or by their numbers."""
    parts = as_list("items", items, "trajectories")
    called = [f"items[{number}]" for number in range(len(parts))] if called is None else called
    for number, part in enumerate(parts):
        if not hasattr(part, "observed"):
            raise TypeError(f"{called[number]} is {type(part).__name__}: give a list of Trajectories")
        check(part)
    if not parts:
        raise ValueError("items is empty: give at least one")
    first, width = parts[0], max(part.observed.shape[1] for part in parts)
    for number, part in enumerate(parts):
        for field in (*STEP_FIELDS, *SEQUENCE_LABELS):
            if (getattr(part, field) is None) != (getattr(first, field) is None):
                lacks, has = (number, 0) if getattr(part, field) is None else (0, number)
                raise ValueError(
                    f"{called[lacks]}.{field} is None, and {called[has]} has it: give it to all, or to none"
                )
        if first.observations is not None and part.observations.shape[2] != first.observations.shape[2]:
            count = [each.observations.shape[2] for each in (part, first)]
            raise ValueError(f"{called[number]}.observations has {count[0]} features, {called[0]} {count[1]}")
        for name in SAME:
            ours, theirs = getattr(first.metadata, name), getattr(part.metadata, name)
            if ours != theirs:
                raise ValueError(
                    f"{called[number]}.metadata.{name} is {theirs!r}, that of {called[0]} is {ours!r}: read them alike"
                )
    names, joined = {name: getattr(first.metadata, name) for name in SAME}, {}
    for field, vocabulary in (STEP_LABELS | SEQUENCE_LABELS).items():
        joined[field], names[vocabulary] = _in_one_vocabulary(parts, called, field, vocabulary)
    for field in (*STEP_FIELDS, "lengths"):
        joined.setdefault(
            field,
            None if getattr(first, field) is None else [np.asarray(getattr(part, field)) for part in parts],
        )
    if len({part.metadata.name for part in parts}) == 1:
        names["name"] = first.metadata.name

    def padded(field: str, array: np.ndarray) -> np.ndarray:
        fill: Any = np.nan if field == "times" and array.dtype.kind == "f" else PADDING[field]
        shape = [(0, 0), (0, width - array.shape[1]), (0, 0)][: array.ndim]
        return np.pad(array, shape, constant_values=fill)

    _require_common_clocks(parts, called, joined["group"], names)
    return {
        field: None
        if arrays is None
        else np.concatenate([padded(field, x) if field in PADDING else x for x in arrays])
        for field, arrays in joined.items()
    } | {"metadata": Metadata(**names)}


def _in_one_vocabulary(
    parts: list[Any], called: Sequence[str], field: str, vocabulary: str
) -> tuple[list[np.ndarray] | None, Any]:
    """Numbers of a label in each part, as those in a vocabulary of all names, in the order in which they come."""
    if getattr(parts[0], field) is None:
        return None, getattr(parts[0].metadata, vocabulary)
    codes = [np.asarray(getattr(part, field)) for part in parts]
    known = [getattr(part.metadata, vocabulary) for part in parts]
    if known == [None] * len(parts):
        return codes, None
    for number, (each, own) in enumerate(zip(codes, known, strict=True)):
        if own is None and (each >= 0).any():
            named = next(place for place, own in enumerate(known) if own)
            raise ValueError(
                f"{called[number]}.metadata.{vocabulary} is None, {called[named]} has names: name the {field} of all"
            )
    every = tuple(dict.fromkeys(name for own in known for name in own or ()))
    place = {name: number for number, name in enumerate(every)}
    tables = [np.array([place[name] for name in own or ()] + [-1], np.int32) for own in known]
    return [table[np.where(each < 0, -1, each)] for table, each in zip(tables, codes, strict=True)], every


def _require_common_clocks(
    parts: list[Any], called: Sequence[str], group: list[np.ndarray] | None, metadata: dict[str, Any]
) -> None:
    """Raise ValueError where a group is in several items, and its frames are counted from different times."""
    if group is None or parts[0].times is None or metadata["frame_rate"] is None:
        return
    frame = (1e9 if metadata["time_kind"] else 1) / metadata["frame_rate"]
    origins: dict[int, tuple[int, float]] = {}
    for number, (part, labels) in enumerate(zip(parts, group, strict=True)):
        at = np.asarray(part.observed).argmax(axis=1)
        start = np.asarray(part.times)[np.arange(len(at)), at] - at * frame
        for label, time, seen in zip(
            labels.tolist(), start.tolist(), np.asarray(part.observed).any(1), strict=True
        ):
            item, origin = (
                origins.setdefault(label, (number, time)) if seen and label >= 0 else (number, time)
            )
            if item != number and abs(time - origin) > frame:
                who = (metadata["group_names"] or range(label + 1))[label]
                raise ValueError(
                    f"group {who!r} is in {called[item]} and {called[number]}, which count its frames from different "
                    "times: read their tables together, or give them different groups"
                )
