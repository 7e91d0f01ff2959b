"""Covariates of the steps of trajectories: read from columns, filled where they are missing, and as a table."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from ethogram.models.arguments import as_list, require, require_one_of
from ethogram.models.data.labels import look_up
from ethogram.models.data.metadata import Metadata
from ethogram.models.data.padding import Column, as_floats, read_column, read_entries
from ethogram.models.data.selection import valid_steps

__all__ = [
    "check_covariates",
    "covariate_columns",
    "covariate_frame",
    "filled",
    "listed",
    "padded_rows",
    "read_covariates",
]


def read_covariates(
    columns: Mapping[str, tuple[Column, Sequence[str] | None]], metadata: Metadata
) -> tuple[Column, Metadata]:
    """Covariates (row, covariate) as floats, codes where they are text, and metadata with their names and levels.

    Parameters
    ----------
    columns : by name, each with the order of its levels, or None for that of the alphabet.
    metadata : whose levels, where it has some, fix the codes.
    """
    if metadata.covariate_names is not None and metadata.covariate_names != tuple(columns):
        raise ValueError(
            f"metadata.covariate_names is {metadata.covariate_names}, and covariates are {tuple(columns)}: name them "
            "alike, or leave them out of metadata"
        )
    known = metadata.covariate_levels or (None,) * len(columns)
    parts, levels = [], []
    for (name, (column, order)), own in zip(columns.items(), known, strict=True):
        values, null = column
        if values.dtype.kind in "mM":
            raise TypeError(f"covariate {name!r} has dates or durations: make a column of its hour, or day")
        own = own or order
        if values[~null].dtype.kind == "U" or own is not None:
            own = tuple(np.unique(values[~null].astype(str)).tolist()) if own is None else tuple(own)
            codes = np.zeros(len(values))
            codes[~null] = look_up(values[~null], own, f"covariate {name!r}", f"its levels {own}")
            values = codes
        parts.append((as_floats(values).astype(float), null))
        levels.append(own)
    values, null = (np.stack(each, axis=1) for each in zip(*parts, strict=True))
    given: Any = {"covariate_names": tuple(columns), "covariate_levels": tuple(levels)}
    return Column(values, null), dataclasses.replace(metadata, **given)


def listed(covariates: Any, lengths: np.ndarray, metadata: Metadata) -> tuple[Column, Metadata]:
    """Covariates of lists with an entry per sequence, as `Trajectories.from_list` takes them."""
    if not isinstance(covariates, Mapping):
        arrays = [
            np.asarray(read_entries(f"covariates[{number}]", each))
            for number, each in enumerate(as_list("covariates", covariates))
        ]
        width = max((array.shape[-1] if array.ndim else 1 for array in arrays), default=1)
        names = metadata.covariate_names or tuple(f"covariate_{number}" for number in range(width))
        for number, array in enumerate(arrays):
            if array.ndim not in (1, 2) or array.shape[-1] != len(names):
                raise ValueError(
                    f"covariates[{number}] has shape {array.shape}: give (time, {len(names)}), or ({len(names)},) "
                    f"where they are constant; the covariates are {', '.join(names)}"
                )
        covariates = {name: [array[..., at] for array in arrays] for at, name in enumerate(names)}
    columns = {}
    for name, parts in covariates.items():
        every = as_list(f"covariates[{name!r}]", parts, "one entry per sequence")
        if len(every) != len(lengths):
            raise ValueError(
                f"covariates[{name!r}] has {len(every)} entries, and there are {len(lengths)} sequences: give one each"
            )
        rows = []
        for number, (part, length) in enumerate(zip(every, lengths.tolist(), strict=True)):
            values = read_entries(f"covariates[{name!r}][{number}]", part)
            if values.ndim and values.shape != (length,):
                raise ValueError(
                    f"covariates[{name!r}][{number}] has shape {values.shape}, and the sequence has {length} frames: "
                    "give one value per frame, or a single one"
                )
            rows.append(np.broadcast_to(values, (length,)))
        texts = {row.dtype.kind == "U" for row in rows if len(row)}
        joined = (
            np.concatenate([row.astype(object) for row in rows]) if len(texts) > 1 else np.concatenate(rows)
        )
        columns[str(name)] = read_column(joined, f"covariates[{name!r}]"), None
    return read_covariates(columns, metadata)


def filled(
    padded: Float[np.ndarray, "sequence time covariate"],
    lengths: np.ndarray,
    missing: str,
    metadata: Metadata,
    place: Callable[[int], str] = str,
) -> Float[np.ndarray, "sequence time covariate"]:
    """Covariates with what is missing (NaN) filled in, and 0 in padding.

    A covariate that is the same wherever a sequence has it is so in its other steps. Else ``"carry"`` takes the value
    of the last step that has one, and before the first that of the first; ``"error"`` raises ValueError.
    """
    require_one_of("missing_covariates", missing, ("error", "carry"))
    inside = np.arange(padded.shape[1]) < lengths[:, None]
    padded = np.where(inside[..., None], padded, 0)
    gaps = np.isnan(padded)
    if not gaps.any():
        return padded
    for number, name in enumerate(metadata.covariate_names or ()):
        for row in np.flatnonzero(gaps[..., number].any(axis=1)):
            length = int(lengths[row])
            values = padded[row, :length, number]
            known = np.flatnonzero(~np.isnan(values))
            at = int(np.isnan(values).argmax())
            if not len(known):
                raise ValueError(f"covariate {name!r} of sequence {place(int(row))} has no value at all")
            if missing == "error" and (values[known] != values[known[0]]).any():
                raise ValueError(
                    f"covariate {name!r} of sequence {place(int(row))} has no value at step {at}: fill it in, or pass "
                    'missing_covariates="carry" to take the last one before it'
                )
            before = np.searchsorted(known, np.arange(length), side="right") - 1
            padded[row, :length, number] = values[known[np.maximum(before, 0)]]
    return padded


def check_covariates(data: Any) -> None:
    """Raise ValueError unless the covariates of concrete data are finite, with known levels, within every length."""
    metadata, values = data.metadata, np.asarray(data.covariates)
    inside = valid_steps(data)[..., None]
    fix = "give a finite number in every step within a length, observed or not"
    require(~inside | np.isfinite(values), "covariates", values, "is not finite", fix)
    for number, (name, levels) in enumerate(
        zip(metadata.covariate_names or (), metadata.covariate_levels or (), strict=False)
    ):
        if levels is not None:
            codes = values[..., number]
            good = (codes >= 0) & (codes < len(levels)) & (codes == np.floor(codes))
            fix = f"{name!r} has {len(levels)} levels, numbered from 0"
            require(~inside[..., 0] | good, f"covariates[..., {number}]", codes, "is no level", fix)


def covariate_frame(data: Any) -> Any:
    """A ``pandas.DataFrame`` of the covariates, one row per step within a length, sequence by sequence."""
    import pandas

    if data.covariates is None:
        raise ValueError("data.covariates is None: pass covariates= when the data are read")
    rows = np.asarray(data.covariates)[np.asarray(valid_steps(data))]
    names = data.metadata.covariate_names
    levels = data.metadata.covariate_levels or (None,) * len(names)
    columns = {}
    for number, (name, own) in enumerate(zip(names, levels, strict=True)):
        values = rows[:, number]
        columns[name] = (
            values if own is None else pandas.Categorical.from_codes(values.astype(int), list(own))
        )
    return pandas.DataFrame(columns)


def padded_rows(
    data: Any, rows: Float[np.ndarray, "row column"]
) -> Float[np.ndarray, "sequence time column"]:
    """Rows of :func:`covariate_frame`, or others of the same steps, in the place of their steps; 0 in padding."""
    inside = np.asarray(valid_steps(data))
    padded = np.zeros((*inside.shape, rows.shape[1]), rows.dtype)
    padded[inside] = rows
    return padded


def covariate_columns(columns: Any, names: Iterable[Any]) -> dict[str, tuple[Column, Sequence[str] | None]]:
    """Columns of a table by name, with the order of the levels of those that are categories."""
    found: dict[str, tuple[Column, Sequence[str] | None]] = {}
    for name in names:
        if str(name) in found:
            raise ValueError(f"covariates names {name!r} twice: name it once")
        column = columns[name]
        kind = getattr(columns.table[name], "dtype", None)
        levels = getattr(kind, "categories", None)
        if levels is not None and hasattr(levels, "tolist"):
            kept = tuple(map(str, levels.tolist()))
            column = Column(np.where(column.null, "", column.values.astype(str)), column.null)
            found[str(name)] = column, kept
        else:
            found[str(name)] = column, None
    return found
