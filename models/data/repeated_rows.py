"""Several rows of one frame made one: the first value of each that is known, or the mean."""

from collections.abc import Callable

import numpy as np

from ethogram.models.arguments import warn_user
from ethogram.models.data.angles import period_of, wrapped
from ethogram.models.data.metadata import Metadata
from ethogram.models.data.padding import Column, FrameRows, as_floats

__all__ = ["merge_rows"]


def merge_rows(rows: FrameRows, how: str, metadata: Metadata, place: Callable[[int], str]) -> FrameRows:
    """The rows, put together by sequence and frame, of which those of one frame became one; a warning counts them.

    `how` is ``"mean"`` of features, of angles the circular one, where labels must agree (else a ValueError), or
    ``"first"``.
    """
    is_first = (np.diff(rows.sequence, prepend=-1) != 0) | (np.diff(rows.frame, prepend=-1) != 0)
    if is_first.all():
        return rows
    first, number = np.flatnonzero(is_first), np.cumsum(is_first) - 1

    def first_known(column: Column) -> Column:
        row = np.full(len(first), len(number))
        np.minimum.at(row, number, np.where(column.null, len(number), np.arange(len(number))))
        return column.take(np.where(row < len(number), row, first))

    def mean(column: Column, period: float) -> Column:
        known, values = ~column.null, as_floats(np.where(column.null, 0, column.values))
        if np.isfinite(period):
            turn = 2 * np.pi / period
            sine, cosine = (np.bincount(number, known * of(turn * values)) for of in (np.sin, np.cos))
            averaged = wrapped(np.arctan2(sine, cosine) / turn, period, values)
        else:
            averaged = np.bincount(number, values) / np.maximum(np.bincount(number, known), 1)
        return Column(averaged, np.bincount(number, known) == 0)

    levels, labels = metadata.covariate_levels or (), dict(rows.steps)
    if rows.covariates is not None:
        columns = map(Column, rows.covariates.values.T, rows.covariates.null.T)
        for name, own, column in zip(metadata.covariate_names or (), levels, columns, strict=True):
            if own is not None:
                text = np.array(own)[column.values.astype(int)]
                labels[f"values of covariate {name!r}"] = Column(text, column.null)
    steps = {field: first_known(column) for field, column in rows.steps.items()}
    for field, column in labels.items() if how == "mean" else ():
        known = first_known(column).values
        differs = (column.values != known[number]) & ~column.null
        if differs.any():
            row = int(differs.argmax())
            raise ValueError(
                f"{field} of sequence {place(int(rows.sequence[row]))} are {known[number[row]]} and "
                f'{column.values[row]} at once, in frame {rows.frame[row]}: pass duplicates="first", or correct them'
            )

    def merged(table: Column | None, period: Callable[[int], float | None]) -> Column | None:
        """The columns of a table, averaged where they have a period, which may be infinite."""
        if table is None:
            return None
        columns = [
            first_known(column) if how == "first" or (own := period(place)) is None else mean(column, own)
            for place, column in enumerate(map(Column, table.values.T, table.null.T))
        ]
        return Column(*(np.stack(parts, axis=1) for parts in zip(*columns, strict=True)))

    count, among = int((~is_first).sum()), len(np.unique(rows.sequence[~is_first]))
    warn_user(
        f'duplicates="{how}": {count} rows in {among} sequences were '
        f"{'averaged with' if how == 'mean' else 'left out for'} another one of the same frame"
    )
    times = None if rows.times is None else rows.times[first]
    return rows._replace(
        sequence=rows.sequence[first],
        frame=rows.frame[first],
        observations=merged(rows.observations, lambda feature: period_of(metadata, feature)),
        covariates=merged(rows.covariates, lambda place: np.inf if levels[place] is None else None),
        steps=steps,
        times=times,
    )
