"""Covariates of the steps of trajectories: read from columns or lists, held where they are missing, and as a table."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Shaped

from ethogram.models.arguments import as_list, require_one_of, require_representable
from ethogram.models.data.columns import Columns
from ethogram.models.data.labels import look_up
from ethogram.models.data.metadata import ColumnName, Metadata
from ethogram.models.data.padding import Column, FrameRows, held_frames, read_column, read_entries
from ethogram.models.data.selection import valid_steps
from ethogram.models.data.table_kinds import is_number, number_hint

__all__ = [
    "check_covariates",
    "covariate_columns",
    "covariate_frame",
    "hold_covariates",
    "listed_covariates",
    "padded_rows",
    "read_covariates",
]

Ordered = tuple[Column, Sequence[str] | None]
"""Values of a covariate, and its levels in their own order, or None where these have none."""


def covariate_columns(
    columns: Columns, names: Iterable[ColumnName], time: ColumnName | None, dates: bool
) -> dict[str, Ordered]:
    """Covariates of a table by name, whose column of `time` may have `dates`."""
    import pandas

    found: dict[str, Ordered] = {}
    for name in names:
        columns.require(name)
        if str(name) in found:
            raise ValueError(f"covariates names {name!r} twice: name it once")
        given = columns.table[name]
        categories, levels = getattr(given, "array", given), None
        if isinstance(categories, pandas.Categorical):
            levels, null = tuple(map(str, categories.categories)), categories.codes < 0
            read = Column(np.where(null, "", np.array([*levels, ""])[categories.codes]), null)
        else:
            order: Any = getattr(getattr(given, "dtype", None), "categories", None)
            read = columns[name]
            levels = tuple(order.to_list()) if hasattr(order, "to_list") else None  # of an Enum of polars
        if read.null.shape != (columns.num_rows,):
            raise ValueError(
                f"column {name!r} has {len(read.null)} entries for {columns.num_rows} rows: give one each"
            )
        if (dates and name == time) or read.values.dtype.kind in "mM":
            raise TypeError(
                f"column {name!r} has dates or durations, which are no covariate: make a column of the hour, or the day"
            )
        found[str(name)] = read, levels
    return found


def listed_covariates(covariates: Any, lengths: np.ndarray, metadata: Metadata) -> dict[str, Ordered]:
    """Covariates by name of lists with an entry per sequence, of `lengths`, for ``Trajectories.from_list``."""
    by_name = covariates if isinstance(covariates, Mapping) else _by_name(covariates, lengths, metadata)
    found: dict[str, Ordered] = {}
    for name, parts in by_name.items():
        said, rows = f"covariates[{name!r}]", []
        parts = as_list(said, parts)
        if len(parts) != len(lengths) or str(name) in found:
            raise ValueError(f"{said} has {len(parts)} entries: give one list, for {len(lengths)} sequences")
        for number, (part, length) in enumerate(zip(parts, lengths.tolist(), strict=True)):
            values = read_entries(f"{said}[{number}]", part)
            if values.ndim and values.shape != (length,):
                raise ValueError(
                    f"{said}[{number}] has shape {values.shape}, and the sequence {length} frames: covariates that end "
                    "before the frames, or after, are none; give a value for each, or a single one"
                )
            rows.append(np.broadcast_to(values, (length,)))
        if len({row.dtype.kind == "U" for row in rows if len(row)}) > 1:  # numbers and nulls stay beside text
            rows = [row.astype(object) for row in rows]
        found[str(name)] = read_column(np.concatenate(rows), said), None
    return found


def _by_name(covariates: Any, lengths: np.ndarray, metadata: Metadata) -> dict[str, list[np.ndarray]]:
    """Arrays (time, covariate) or (covariate,) as lists of their columns, by name."""
    parts = enumerate(as_list("covariates", covariates))
    arrays = [read_entries(f"covariates[{number}]", part) for number, part in parts]
    count = max((array.shape[-1] for array in arrays[:1] if array.ndim), default=1)
    names = metadata.covariate_names or [f"covariate_{place}" for place in range(count)]
    for number, array in enumerate(arrays):
        said = f"covariates[{number}] has shape {array.shape}"
        if array.ndim not in (1, 2) or array.shape[-1] != len(names):
            raise ValueError(f"{said}: give (time, {len(names)}), or of constant ones ({len(names)},)")
        if array.ndim == 1 and array.shape == lengths[number : number + 1] and not metadata.covariate_names:
            raise ValueError(
                f"{said}, one number per frame or constant covariates: give (time, 1), or lists by name"
            )
    return {name: [array[..., place] for array in arrays] for place, name in enumerate(names)}


def read_covariates(
    columns: Mapping[str, Ordered], metadata: Metadata, coded: Collection[str], row: Callable[[int], str]
) -> tuple[Column, Metadata]:
    """Covariates (row, covariate) as floats, codes of those with levels, and metadata with names and levels.

    Levels are those of `metadata`, or those that columns have, or text and booleans in alphabetical order; `coded` are
    fields whose numbers are codes. Messages call a row as `row` says.
    """
    names, levels, parts = tuple(columns), [*(metadata.covariate_levels or [None] * len(columns))], []
    if not names:
        raise ValueError("covariates is empty: name at least one, or pass None")
    if metadata.covariate_names not in (None, names):
        raise ValueError(
            f"covariates has {names}, metadata.covariate_names {metadata.covariate_names}: name them alike"
        )
    for place, (name, ((values, null), order)) in enumerate(columns.items()):
        known, numbers = values[~null], np.zeros(len(values))
        own = levels[place] or order
        if own is None and known.dtype.kind in "Ub":
            own = tuple(np.unique(known.astype(str)).tolist())
            words = [word for word in own if not is_number(word)]
            if words and (len(words) < len(own) or number_hint(words[0])):
                fix = " among numbers: make it null, or the column a pandas Categorical if these are levels"
                raise ValueError(f"covariate {name!r} has {words[0]!r}{number_hint(words[0]) or fix}")
        if own is not None and not ("covariates" in coded and known.dtype.kind in "iuf"):
            numbers[~null] = look_up(known, own, f"covariate {name!r}", f"its levels {own}")
        elif known.dtype.kind in "mMU":
            raise TypeError(f"covariate {name!r} has dtype {known.dtype}: pass numbers, text or booleans")
        else:
            numbers[~null] = known.astype(float)
        for at in np.flatnonzero(~np.isfinite(numbers))[:1].tolist():
            raise ValueError(f"covariate {name!r} is {numbers[at]} in {row(at)}: pass finite numbers")
        parts.append((numbers, null))
        levels[place] = own
    given: Any = {"covariate_names": names, "covariate_levels": levels}
    read = Column(*(np.stack(each, axis=1) for each in zip(*parts, strict=True)))
    return read, dataclasses.replace(metadata, **given)


def hold_covariates(
    rows: FrameRows, missing: str, names: Sequence[str], place: Callable[[int], str]
) -> FrameRows:
    """The rows, each with all covariates: ``"carry"`` takes the last known of a sequence, before it the first known.

    ``"error"`` does so where a covariate is constant in a sequence. It raises ValueError for others that are null or
    whose frames have no row, and either for a sequence without any value.
    """
    require_one_of("missing_covariates", missing, ("error", "carry"))
    if rows.covariates is None or not len(rows.sequence):
        return rows
    number, count = np.arange(len(rows.sequence)), len(rows.sequence)
    is_first = np.diff(rows.sequence, prepend=-1) != 0
    first = np.flatnonzero(is_first)[np.cumsum(is_first) - 1]
    skipped, found = held_frames(rows) > 1, []
    for name, values, null in zip(names, rows.covariates.values.T, rows.covariates.null.T, strict=True):
        before = np.maximum.accumulate(np.where(null, -1, number))
        after = np.minimum.accumulate(np.where(null, count, number)[::-1])[::-1]
        source = np.where(before >= first, before, after)
        empty = np.append(rows.sequence, -1)[source] != rows.sequence
        held = values[np.where(empty, 0, source)]
        varies = np.zeros(len(rows.lengths), bool)
        varies[rows.sequence[held != held[first]]] = True
        lacking = empty | ((null | skipped) & varies[rows.sequence] & (missing == "error"))
        if lacking.any():
            at = int(lacking.argmax())
            where = "at" if null[at] else "in frames without a row beside"
            fix = ', or pass missing_covariates="carry" to take the last known one'
            raise ValueError(
                f"covariate {name!r} of sequence {place(int(rows.sequence[at]))} has no value "
                f"{'at all' if empty[at] else f'{where} {rows.when(at)}'}: fill it in{'' if empty[at] else fix}"
            )
        found.append(held)
    return rows._replace(covariates=Column(np.stack(found, axis=1), np.zeros((count, len(found)), bool)))


def check_covariates(data: Any) -> None:
    """Raise ValueError unless covariates of concrete data are finite, and codes those of levels, within each length."""
    values, inside = np.asarray(data.covariates), np.asarray(valid_steps(data))
    levels = data.metadata.covariate_levels or (None,) * values.shape[2]
    for place, own in enumerate(levels):
        column = values[..., place]
        good, fix = np.isfinite(column), "give finite numbers for all frames, those that are not observed too"
        if own is not None:
            good = good & np.isin(column, np.arange(len(own)))
            fix = f"number its levels {own} from 0"
        if (inside & ~good).any():
            row, step = np.argwhere(inside & ~good)[0].tolist()
            name = (data.metadata.covariate_names or range(place + 1))[place]
            raise ValueError(
                f"covariate {name!r} of sequence {row}, frame {step} is {column[row, step]}: {fix}"
            )
    require_representable("covariates", values, where=inside[..., None])


def covariate_frame(data: Any, steps: Bool[np.ndarray, "sequence time"] | None = None) -> Any:
    """See ``Trajectories.covariate_frame``; of these `steps`, if given."""
    import pandas

    if data.covariates is None:
        raise ValueError("data.covariates is None: name them when the data are read, by covariates=")
    rows = np.asarray(data.covariates)[np.asarray(valid_steps(data)) if steps is None else steps]
    names = data.metadata.covariate_names or [f"covariate_{place}" for place in range(rows.shape[1])]
    columns = dict(zip(names, rows.T, strict=True))
    for name, levels in zip(names, data.metadata.covariate_levels or (), strict=False):
        if levels is not None:
            columns[name] = pandas.Categorical.from_codes(columns[name].astype(int), list(levels))
    return pandas.DataFrame(columns)


def padded_rows(
    data: Any, rows: Shaped[np.ndarray, "row column"]
) -> Shaped[np.ndarray, "sequence time column"]:
    """Rows (row, column), one per step as of ``data.covariate_frame()``, in the place of their steps; 0 in padding."""
    inside, rows = np.asarray(valid_steps(data)), np.asarray(rows)
    if rows.ndim != 2 or len(rows) != inside.sum():
        raise ValueError(
            f"rows has shape {rows.shape}, and the data {inside.sum()} steps: give (row, column) of these"
        )
    padded = np.zeros((*inside.shape, rows.shape[1]), rows.dtype)
    padded[inside] = rows
    return padded
