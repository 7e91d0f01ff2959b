"""Trajectories of a table with one row a frame: pandas, polars, or a dictionary of columns."""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ethogram.models.ragged.columns import Columns, as_names, number_groups
from ethogram.models.ragged.metadata import Metadata
from ethogram.models.ragged.rows import Column, FrameRows, pad_rows
from ethogram.models.ragged.time_grid import SortedRows, frame_numbers, step_length
from ethogram.models.trajectories import ColumnName, Trajectories

__all__ = ["from_table"]


def from_table(
    table: Any,
    *,
    sequence: ColumnName | Iterable[ColumnName] | None = None,
    time: ColumnName | None = None,
    features: ColumnName | Iterable[ColumnName] | None = None,
    states: ColumnName | None = None,
    actions: ColumnName | None = None,
    stay: ColumnName | None = None,
    agent: ColumnName | None = None,
    group: ColumnName | None = None,
    subject: ColumnName | None = None,
    step: Any = None,
    missing: str = "error",
    metadata: Metadata | None = None,
) -> Trajectories:
    """Trajectories of a table; sequences come in the order of their first rows, which may interleave.

    Parameters
    ----------
    table : pandas or polars DataFrame, or a mapping from names to columns of one length.
    sequence : column, or columns together, that tell sequences apart; None makes the table one
        sequence. Where agents share a demonstration, name both columns.
    time : column of numbers, dates or durations that increases within each sequence. A sequence
        begins at its first time; None takes the rows as consecutive frames.
    features, states, actions, stay : columns of the frames; feature names go to the metadata.
    agent, group, subject : columns that are constant within a sequence; a null becomes -1.
    step : time from one frame to the next, a number in the units of ``time`` or a duration where
        ``time`` holds dates. Times in between count as missing frames, whatever ``missing`` says; a
        time may be off its frame by a tenth of a step. None needs equally spaced times, without gaps.
    missing : ``"error"`` refuses nulls and NaN in features, states and actions; ``"nan"`` makes a row
        with one in any feature a missing frame, and a missing state or action -1.
    metadata : names and units, for all that the table does not say. Its vocabularies fix the codes of
        strings, otherwise numbered in alphabetical order. ``frame_rate``, where None, becomes
        ``1 / step`` (a second of dates and durations is ``time_unit`` "s").

    Raises
    ------
    TypeError, ValueError
        If a column is absent or of the wrong kind, times repeat, fall, or miss the grid of ``step``, a
        label changes within its sequence, or a value is missing and may not be. The message names the
        sequence, and the time or row.

    Examples
    --------
    >>> table = {"game": ["a", "a", "b"], "t": [0.0, 0.2, 5.0], "x": [1.0, 2.0, 3.0]}
    >>> data = from_table(table, sequence="game", time="t", features="x", step=0.1)
    >>> data.observed.tolist(), data.metadata.frame_rate
    ([[True, False, True], [True, False, False]], 10.0)
    """
    feature_names = as_names(features)
    if not feature_names and states is None and actions is None:
        raise ValueError(
            "features, states and actions are all None: name the columns that hold the behaviour"
        )
    if time is None and step is not None:
        raise ValueError(f"step is {step} without time: name the column of times")
    columns = Columns(table)
    metadata = Metadata() if metadata is None else metadata
    if feature_names and metadata.feature_names is None:
        metadata = dataclasses.replace(metadata, feature_names=tuple(map(str, feature_names)))
    keys = {name: columns.complete(name) for name in as_names(sequence)}
    number, first_row = number_groups(keys, columns.num_rows)

    def place(index: int) -> str:
        label = ", ".join(str(values[first_row[index]]) for values in keys.values())
        return f"{index} ({label})" if keys else str(index)

    order = np.argsort(number, kind="stable")
    by_sequence = number[order]
    rank = np.arange(len(order)) - np.searchsorted(by_sequence, by_sequence)
    frame = rank
    if time is not None:
        times = columns.complete(time)[order]
        frame = frame_numbers(times, step, SortedRows(order, by_sequence, rank, place), str(time))
        metadata = metadata if step is None else _state_rate(metadata, times, step)
    step_names = {"states": states, "actions": actions, "stay": stay}
    label_names = {"agent": agent, "group": group, "subject": subject}
    rows = FrameRows(
        sequence=by_sequence,
        frame=frame,
        lengths=frame[np.append(rank[1:] == 0, True)] + 1,
        observations=columns.features(feature_names, order) if feature_names else None,
        steps={field: _take(columns[name], order) for field, name in step_names.items() if name is not None},
    )
    labels = {
        field: _constant(columns[name], name, number, first_row, place)
        for field, name in label_names.items()
        if name is not None
    }
    return pad_rows(rows, labels, missing, metadata, place)


def _take(column: Column, order: np.ndarray) -> Column:
    return Column(column.values[order], column.null[order])


def _constant(
    column: Column, name: ColumnName, number: np.ndarray, first_row: np.ndarray, place: Callable[[int], str]
) -> Column:
    """A column's one value in each sequence."""
    head = _take(column, first_row)
    differs = (column.null != head.null[number]) | ((column.values != head.values[number]) & ~column.null)
    if differs.any():
        row = int(differs.argmax())
        raise ValueError(
            f"column {name!r} changes in row {row}, within sequence {place(int(number[row]))}: "
            f"a label is constant there; name {name!r} in sequence= to split the sequence"
        )
    return head


def _state_rate(metadata: Metadata, times: np.ndarray, step: Any) -> Metadata:
    if times.dtype.kind in "mM":
        metadata = metadata if metadata.time_unit else dataclasses.replace(metadata, time_unit="s")
    if metadata.frame_rate is not None or (times.dtype.kind in "mM" and metadata.time_unit != "s"):
        return metadata
    return dataclasses.replace(metadata, frame_rate=1 / step_length(step, times))
