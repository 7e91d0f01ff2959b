"""Reader of a table with one row per frame."""

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from ethogram.models.arguments import require_one_of, warn_user
from ethogram.models.data.columns import Columns, as_names, label_columns, number_groups
from ethogram.models.data.covariates import covariate_columns, hold_covariates, read_covariates
from ethogram.models.data.file_names import NameRule
from ethogram.models.data.labels import VOCABULARIES, coded_fields
from ethogram.models.data.metadata import ColumnName, Metadata, read_metadata
from ethogram.models.data.padding import Column, FrameRows, pad_rows
from ethogram.models.data.repeated_rows import merge_rows
from ethogram.models.data.spikes import find_spikes
from ethogram.models.data.time_grid import SortedRows, clocks_of, frame_numbers
from ethogram.models.data.times import Times, with_time_metadata

__all__ = ["file_rules", "read_table"]


def file_rules(labels: Mapping[str, Any]) -> tuple[dict[str, NameRule], dict[str, Any]]:
    """Columns that `open_table` reads from names of files, and columns of all labels."""
    rules = {field: rule for field, rule in labels.items() if isinstance(rule, re.Pattern) or callable(rule)}
    columns = {field: f"{field} of the file" for field in rules}
    return {columns[field]: rule for field, rule in rules.items()}, {**labels, **columns}


def read_table(
    table: Any,
    sequence: Any,
    time: ColumnName | None,
    features: ColumnName | Iterable[ColumnName] | None,
    steps: Mapping[str, ColumnName | None],
    labels: Mapping[str, Any],
    step: Any,
    metadata: Metadata | None,
    *,
    missing: str,
    snap: Any = False,
    called: Callable[[int], str] | None = None,
    codes: bool | str | Iterable[str] = False,
    text: Mapping[str, Any] | None = None,
    day_first: bool | None = None,
    duplicates: str = "error",
    max_speed: Any = None,
    covariates: Any = None,
    missing_covariates: str = "error",
) -> dict[str, Any]:
    """Fields of `Trajectories`, still to be checked, of a table; parameters of ``Trajectories.from_table``.

    Messages about times call rows as `called` says, where the table is part of another.
    """
    require_one_of("duplicates", duplicates, ("error", "first", "mean"))
    require_one_of("day_first", day_first, (None, True, False))
    rules, renamed = file_rules({**labels, "sequence": sequence})
    labels, sequence = {field: renamed[field] for field in labels}, renamed["sequence"]
    feature_names = as_names(features)
    if not feature_names and steps["states"] is None and steps["actions"] is None:
        raise ValueError(
            "features, states and actions are all None: name the columns that describe behaviour"
        )
    if time is None and step is not None:
        raise ValueError(f"step is {step} without time: name the column of times")
    metadata, coded = read_metadata(metadata), coded_fields(codes)
    named = [
        (column, None if field in coded else getattr(metadata, VOCABULARIES[field]))
        for field, column in {**steps, **labels}.items()
        if field in VOCABULARIES
    ]
    covariate_names = as_names(covariates)
    own_levels = zip(covariate_names, metadata.covariate_levels or (), strict=False)
    named += [(column, levels) for column, levels in own_levels if levels is not None]
    columns = Columns(table, label_columns(as_names(sequence), named, feature_names), text, rules)
    if feature_names and metadata.feature_names is None:
        metadata = dataclasses.replace(metadata, feature_names=tuple(map(str, feature_names)))
    sequence = "file" if sequence is None and columns.several_files else sequence
    keys = {name: columns.identifiers(name) for name in as_names(sequence)}
    number, first_row = number_groups(keys, columns.num_rows)

    def place(index: int) -> str:
        label = ", ".join(str(values[first_row[index]]) for values in keys.values())
        return f"{index} ({label})" if keys else str(index)

    def constant(name: ColumnName) -> Column:
        """A column's one value in each sequence."""
        column, head = columns[name], columns[name].take(first_row)
        differs = (column.null != head.null[number]) | ((column.values != head.values[number]) & ~column.null)
        if differs.any():
            row = int(differs.argmax())
            raise ValueError(
                f"column {name!r} changes in row {row}, within sequence {place(int(number[row]))}: "
                f"a label must be constant there; name {name!r} in sequence= to split the sequence"
            )
        return head

    constants = {field: constant(name) for field, name in labels.items() if name is not None}
    order = np.argsort(number, kind="stable").astype(number.dtype)
    if time is not None:
        read = columns.times(time, day_first)
        if columns.several_files:  # in whatever order the files were named
            order = np.lexsort((read.values, number)).astype(number.dtype)
    moving = None
    if covariates is not None:
        dates = time is not None and read.values.dtype.kind in "mM"
        own = covariate_columns(columns, covariate_names, time, dates)
        moving, metadata = read_covariates(own, metadata, coded, called or columns.row)
    by_sequence = number[order]
    rank = np.arange(len(order), dtype=order.dtype)
    is_first = np.diff(by_sequence, prepend=-1) != 0
    rank -= np.repeat(rank[is_first], np.bincount(by_sequence))
    marks = {field: columns[name].take(order) for field, name in steps.items() if name is not None}
    frame, times = rank, None
    if time is not None:
        times = Times(read.values[order], read.zone)
        clocks = clocks_of(constants.get("group"), len(first_row), str(labels["group"]))
        name_row = called or columns.row
        rows = SortedRows(lambda row: name_row(order[row]), by_sequence, place, clocks)
        frame = frame_numbers(times.values, step, rows, str(time), snap, duplicates)
        metadata = with_time_metadata(metadata, times, step, by_sequence)
    elif snap is not False:
        raise ValueError(f"snap is {snap!r} without time: name the column of times")
    given = FrameRows(
        sequence=by_sequence,
        frame=frame,
        lengths=frame[np.append(is_first[1:], True)].astype(np.int64) + 1,
        observations=columns.features(feature_names, order) if feature_names else None,
        steps=marks,
        times=None if times is None else times.values,
        covariates=None if moving is None else moving.take(order),
    )
    given = merge_rows(given, duplicates, metadata, place)
    given = hold_covariates(given, missing_covariates, metadata.covariate_names or (), place)
    if max_speed is not None:
        if given.observations is None:
            raise ValueError(f"max_speed is {max_speed!r} without features: name those of positions")
        values, null = given.observations
        removed, warning = find_spikes(values, ~null, given, metadata, place, max_speed)
        given = given._replace(removed=removed)
        if warning:
            warn_user(warning)
    return pad_rows(given, constants, missing, metadata, place, coded)
