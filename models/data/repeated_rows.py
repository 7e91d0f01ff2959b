"""Several rows of one frame made one: the first that is known, or their mean."""

from collections.abc import Callable

import numpy as np

from ethogram.models.arguments import warn_user
from ethogram.models.data.angles import period_of, wrapped
from ethogram.models.data.metadata import Metadata
from ethogram.models.data.padding import Column, FrameRows, as_floats

__all__ = ["merge_rows"]


def merge_rows(rows: FrameRows, how: str, metadata: Metadata, place: Callable[[int], str]) -> FrameRows:
    """The rows, put together by sequence and frame, of which those of one frame became one.

    Parameters
    ----------
    how : ``"mean"`` of each feature, of angles the circular one, where the labels of the rows must agree; else the
        first of each that is known.

    Raises
    ------
    ValueError
        Labels of rows that are averaged differ.

    Warns
    -----
    UserWarning
        How many rows with some value there were beside the first of their frame.
    """
    again = (np.diff(rows.sequence, prepend=-1) == 0) & (np.diff(rows.frame, prepend=-1) == 0)
    if not again.any():
        return rows
    first, number = np.flatnonzero(~again), np.cumsum(~again) - 1
    steps = {}
    for field, column in rows.steps.items():
        steps[field] = head = _first_known(column, number, first)
        differs = ~column.null & (column.values != head.values[number])
        if how == "mean" and differs.any():
            row = int(differs.argmax())
            raise ValueError(
                f"{field} of sequence {place(int(rows.sequence[row]))} are {head.values[number[row]]} and "
                f'{column.values[row]} in one frame, {rows.frame[row]}, which have no mean: pass duplicates="first"'
            )
    observations = rows.observations
    known = (
        ~np.all([column.null for column in rows.steps.values()], axis=0)
        if steps
        else np.zeros(len(again), bool)
    )
    if observations is not None:
        known |= ~observations.null.all(axis=1)
        columns = [
            Column(x, null) for x, null in zip(observations.values.T, observations.null.T, strict=True)
        ]
        merged = [
            _mean(column, number, first, period_of(metadata, feature))
            if how == "mean"
            else _first_known(column, number, first)
            for feature, column in enumerate(columns)
        ]
        observations = Column(*(np.stack(part, axis=1) for part in zip(*merged, strict=True)))
    count = int(known.sum() - len(np.unique(number[known])))
    if count:
        among = len(np.unique(rows.sequence[again & known]))
        did = "averaged with" if how == "mean" else "dropped for"
        warn_user(f'duplicates="{how}": {count} rows in {among} sequences were {did} another of their frame')
    return rows._replace(
        sequence=rows.sequence[first],
        frame=rows.frame[first],
        observations=observations,
        steps=steps,
        times=None if rows.times is None else _first_known(Column(rows.times, ~known), number, first).values,
    )


def _first_known(column: Column, number: np.ndarray, first: np.ndarray) -> Column:
    """The first entry of each number that is no null, else a null; `first` are the first rows of the numbers."""
    row = np.full(len(first), len(number))
    np.minimum.at(row, number, np.where(column.null, len(number), np.arange(len(number))))
    return column.take(np.where(row < len(number), row, first))


def _mean(column: Column, number: np.ndarray, first: np.ndarray, period: float) -> Column:
    """The mean of the entries of each number that are no nulls, that of angles on the circle."""
    head, known = _first_known(column, number, first), ~column.null
    values = np.where(known, as_floats(column.values), 0)

    def total(x: np.ndarray) -> np.ndarray:
        return np.bincount(number, np.where(known, x, 0), len(first))

    if np.isfinite(period):
        angle = 2 * np.pi / period * values
        mean = np.arctan2(total(np.sin(angle)), total(np.cos(angle))) * period / (2 * np.pi)
        return Column(wrapped(mean, period, values), head.null)
    return Column(total(values) / np.maximum(total(known), 1), head.null)
