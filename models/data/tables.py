"""Reader of a table with one row a frame: pandas, polars, or a dictionary of columns."""

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np

from ethogram.models.data.columns import Columns, as_names, number_groups
from ethogram.models.data.metadata import ColumnName, Metadata
from ethogram.models.data.padding import Column, FrameRows, pad_rows
from ethogram.models.data.time_grid import SortedRows, frame_numbers, step_length

__all__ = ["read_table"]


def read_table(
    table: Any,
    sequence: ColumnName | Iterable[ColumnName] | None,
    time: ColumnName | None,
    features: ColumnName | Iterable[ColumnName] | None,
    steps: dict[str, ColumnName | None],
    labels: dict[str, ColumnName | None],
    step: Any,
    missing: str,
    metadata: Metadata | None,
) -> dict[str, Any]:
    """Fields of `Trajectories`, still to be checked, of a table; parameters of ``Trajectories.from_table``."""
    feature_names = as_names(features)
    if not feature_names and steps["states"] is None and steps["actions"] is None:
        raise ValueError(
            "features, states and actions are all None: name the columns that describe behaviour"
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
    rows = FrameRows(
        sequence=by_sequence,
        frame=frame,
        lengths=frame[np.append(rank[1:] == 0, True)] + 1,
        observations=columns.features(feature_names, order) if feature_names else None,
        steps={field: columns[name].take(order) for field, name in steps.items() if name is not None},
    )

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
    return pad_rows(rows, constants, missing, metadata, place)


def _state_rate(metadata: Metadata, times: np.ndarray, step: Any) -> Metadata:
    of_dates = times.dtype.kind in "mM"
    if of_dates and not metadata.time_unit:
        metadata = dataclasses.replace(metadata, time_unit="s")
    if metadata.frame_rate is not None or (of_dates and metadata.time_unit != "s"):
        return metadata
    return dataclasses.replace(metadata, frame_rate=1 / step_length(step, times))
