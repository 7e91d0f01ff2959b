"""What animals did, as tables: time budgets, bouts, dwell times, transitions, with intervals over posterior paths.

Every interval is that of a ratio of counts along paths drawn from the posterior: its width is the uncertainty about
what these animals did in these frames. Where the animals stand for others, ``resample`` adds the spread between them by
a Bayesian bootstrap: Rubin (1981), "The Bayesian bootstrap", Annals of Statistics 9.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Int

from ethogram.models.arguments import require_number, require_one_of
from ethogram.models.data import Trajectories
from ethogram.models.data.levels import sequence_levels
from ethogram.models.numpy_generator import numpy_generator

__all__ = ["Counted", "bouts", "count", "dwell_times", "time_budget", "times_of", "transitions", "usage"]

LABELS = ("sequence", "agent", "group", "subject")
PARTS_OF_DATES: Mapping[str, Callable[[Any], Any]] = {
    "hour": lambda time: time.dt.hour,
    "day": lambda time: time.dt.floor("D"),
    "month": lambda time: time.dt.month,
}


class Counted(NamedTuple):
    """Frames that are counted.

    Attributes
    ----------
    paths : (draw, frame), states of the recorded frames.
    follows : (frame,) whether the frame before in the sequence was recorded.
    starts : (draw, frame) whether a bout begins since the last recorded frame; one may last through missing frames.
    level : (frame,) number of its combination of levels.
    levels : pandas Index of the combinations; None where nothing divides the frames.
    weights : (draw, frame) of the units that are resampled, or None.
    names : of the states.
    """

    paths: Int[np.ndarray, "draw frame"]
    follows: Any
    starts: Bool[np.ndarray, "draw frame"]
    level: Int[np.ndarray, " frame"]
    levels: Any
    weights: Float[np.ndarray, "draw frame"] | None
    names: tuple[str, ...]


def count(
    paths: Int[np.ndarray, "draw sequence time"],
    data: Trajectories,
    names: tuple[str, ...],
    by: Any = None,
    resample: str | None = None,
    key: Array | None = None,
) -> Counted:
    """The recorded frames of paths, divided as `by` says; arguments as those of :meth:`Fit.time_budget`."""
    recorded = np.asarray(data.observed)
    table = data.to_table().reset_index(drop=True)
    columns = _levels(table, data, by)
    known = np.ones(len(table), bool) if columns is None else columns.notna().all(axis=1).to_numpy()
    if not known.any():
        raise ValueError(f"by is {by!r}, and no recorded frame has a level of it")
    level, levels = np.zeros(int(known.sum()), int), None
    if columns is not None:
        groups = columns[known].groupby(list(columns), sort=True, observed=True)
        level, levels = groups.ngroup().to_numpy(), groups.size().index
    before = np.zeros_like(recorded)
    before[:, 1:] = recorded[:, :-1]
    starts = np.ones((len(paths), len(table)), bool)
    for start, path in zip(starts, paths, strict=True):
        run = np.cumsum(np.diff(path, axis=1, prepend=-2) != 0).reshape(
            recorded.shape
        )  # of one state and sequence
        start[1:] = np.diff(run[recorded]) != 0
    weights = None
    if resample is not None:
        require_one_of("resample", resample, LABELS)
        if resample not in table:
            raise ValueError(
                f"resample is {resample!r}, and the data have no {resample}: read them with {resample}="
            )
        _, unit = np.unique(table.loc[known, resample].astype(str), return_inverse=True)
        if unit.max() == 0:
            raise ValueError(
                f"resample is {resample!r}, and there is one {resample} only: there is no spread between them"
            )
        random = numpy_generator(jax.random.key(0) if key is None else key)
        weights = random.standard_exponential((len(paths), unit.max() + 1))[:, unit]
    follows = before[recorded][known]
    return Counted(paths[:, recorded][:, known], follows, starts[:, known], level, levels, weights, names)


def _levels(table: Any, data: Trajectories, by: Any) -> Any:
    """A DataFrame of the levels (frame, column), or None; ValueError where the data lack one."""
    import pandas

    if by is None:
        return None
    columns: dict[str, Any] = {}
    for each in [by] if isinstance(by, str | Mapping) else by:
        for name, values in (each if isinstance(each, Mapping) else {each: None}).items():
            if values is None:
                require_one_of("by", name, (*LABELS, *PARTS_OF_DATES))
            if name not in PARTS_OF_DATES or values is not None:
                columns[name] = np.asarray(sequence_levels(data, name, values))[table["sequence"]]
            elif data.times is None or data.metadata.time_kind != "date":
                raise ValueError(
                    f"by has {name!r}, and the times of the data are no dates: read them with a column of dates"
                )
            else:
                columns[name] = PARTS_OF_DATES[name](table["time"])
    return pandas.DataFrame(columns)


def _tally(counted: Counted, code: np.ndarray, cells: int) -> tuple[np.ndarray, np.ndarray]:
    """Counts (draw, level, cell) of frames by their `code` (draw, frame), and expected counts (level, cell).

    A code of -1 is none; codes may end before the last frame. The first counts are weighted where units are resampled.
    """
    size = (1 if counted.levels is None else len(counted.levels), cells)
    found, expected = np.empty((len(code), *size)), np.zeros(size)
    for draw, cell in enumerate(code):
        inside = np.flatnonzero(cell >= 0)
        place = counted.level[inside] * cells + cell[inside]
        number = np.bincount(place, minlength=size[0] * cells).reshape(size)
        expected += number / len(code)
        found[draw] = number
        if counted.weights is not None:
            weights = counted.weights[draw, inside]
            found[draw] = np.bincount(place, weights, minlength=size[0] * cells).reshape(size)
    return found, expected


def _table(
    counted: Counted,
    values: np.ndarray,
    axes: Mapping[str, Iterable[str]],
    probability: float,
    difference: Any,
    further: Mapping[str, np.ndarray] | None = None,
) -> Any:
    """Means and intervals of values (draw, level, cell...), one row per level and cell, or per pair of levels.

    Draws in which a value is 0 / 0 are left out of it; it is NaN where all are.
    """
    import pandas

    require_number("probability", probability, above=0, below=1)
    levels, further = counted.levels, dict(further or {})
    if difference is not None:
        first, second, levels = _compared(levels, difference)
        values = values[:, first] - values[:, second]
        further = {}
    ends = [(1 - probability) / 2, (1 + probability) / 2]
    draws = pandas.DataFrame(np.where(np.isfinite(values), values, np.nan).reshape(len(values), -1))
    lower, upper = draws.quantile(ends).to_numpy()
    columns = {"mean": draws.mean(), "lower": lower, "upper": upper, **further}
    cells = pandas.MultiIndex.from_product([list(each) for each in axes.values()], names=list(axes))
    index = cells
    if levels is not None:
        rows = [
            (*(level if isinstance(level, tuple) else (level,)), *cell) for level in levels for cell in cells
        ]
        index = pandas.MultiIndex.from_tuples(rows, names=[*levels.names, *axes])
    if index.nlevels == 1:
        index = index.get_level_values(0)
    return pandas.DataFrame(
        {name: np.asarray(part).reshape(-1) for name, part in columns.items()}, index=index
    )


def _compared(levels: Any, difference: Any) -> tuple[list[int], list[int], Any]:
    """Rows of the first and the second of two levels of the first column of `by`, and the Index of their pairs."""
    import pandas

    if levels is None:
        raise ValueError("difference compares two levels of by, which is None: give by=")
    if isinstance(difference, str) or len(difference) != 2:
        raise ValueError(f"difference is {difference!r}: give two levels of {levels.names[0]}")
    rows = [level if isinstance(level, tuple) else (level,) for level in levels]
    sides = [
        {row[1:]: place for place, row in enumerate(rows) if str(row[0]) == str(one)} for one in difference
    ]
    for one, side in zip(difference, sides, strict=True):
        if not side:
            known = ", ".join(dict.fromkeys(str(row[0]) for row in rows))
            raise ValueError(f"difference has {one!r}: the levels of {levels.names[0]} are {known}")
    shared = [rest for rest in sides[0] if rest in sides[1]]
    title = f"{difference[0]} - {difference[1]}"
    index = pandas.MultiIndex.from_tuples([(title, *rest) for rest in shared], names=levels.names)
    return [sides[0][rest] for rest in shared], [sides[1][rest] for rest in shared], index


def _ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore", divide="ignore"):
        return part / whole


def time_budget(counted: Counted, data: Trajectories, probability: float, difference: Any) -> Any:
    """Shares of the recorded time in each state, and the time itself."""
    frames, expected = _tally(counted, counted.paths, len(counted.names))
    shares, further = _ratio(frames, frames.sum(-1, keepdims=True)), {"time": expected}
    found = _table(counted, shares, {"state": counted.names}, probability, difference, further)
    return _in_time(found, ("time",), data)


def usage(counted: Counted, data: Trajectories, probability: float, difference: Any) -> Any:
    """Shares of the bouts in each state."""
    number, expected = _tally(counted, np.where(counted.starts, counted.paths, -1), len(counted.names))
    shares, further = _ratio(number, number.sum(-1, keepdims=True)), {"bouts": expected}
    return _table(counted, shares, {"state": counted.names}, probability, difference, further)


def _pairs(counted: Counted) -> tuple[np.ndarray, np.ndarray]:
    """Counts (draw, level, state, next state) of recorded frames and those after them, and expected counts."""
    size = len(counted.names)
    code = counted.paths[:, :-1].astype(int) * size + counted.paths[:, 1:]
    pairs = _tally(counted, np.where(counted.follows[1:], code, -1), size * size)
    return tuple(each.reshape(*each.shape[:-1], size, size) for each in pairs)  # type: ignore[return-value]


def dwell_times(counted: Counted, data: Trajectories, probability: float, difference: Any) -> Any:
    """Mean durations of bouts by state: recorded steps in a state per recorded end of a bout."""
    pairs, expected = _pairs(counted)
    inside = pairs.sum(-1)
    durations = _ratio(inside, inside - np.diagonal(pairs, axis1=-2, axis2=-1))
    further = {"ends": expected.sum(-1) - np.diagonal(expected, axis1=-2, axis2=-1)}
    found = _table(counted, durations, {"state": counted.names}, probability, difference, further)
    found = _in_time(found, ("mean", "lower", "upper"), data)
    unit = data.metadata.time_unit or ("frames" if data.metadata.frame_rate is None else "units of time")
    if data.metadata.time_kind is not None and found["mean"].dtype.kind == "m":
        unit = "s"
        if difference is not None:  # durations below 0 print as -1 days +23:59:59
            found = found.apply(lambda column: column.dt.total_seconds())
    found.attrs["unit"] = unit
    return found


def transitions(
    counted: Counted, data: Trajectories, probability: float, difference: Any, per: str = "change"
) -> Any:
    """Probabilities of the next state, of each change or of each frame."""
    require_one_of("per", per, ("change", "frame"))
    pairs, expected = _pairs(counted)
    if per == "change":
        pairs = pairs * (1 - np.eye(len(counted.names)))
    shares = _ratio(pairs, pairs.sum(-1, keepdims=True))
    axes = {"state": counted.names, "next_state": counted.names}
    found = _table(counted, shares, axes, probability, difference, {"number": expected})
    same = found.index.get_level_values("state") == found.index.get_level_values("next_state")
    return found[~same] if per == "change" else found


def _in_time(table: Any, columns: Iterable[str], data: Trajectories) -> Any:
    """The table with numbers of frames in some columns as times."""
    return table.assign(**{name: times_of(table[name], data) for name in columns if name in table})


def times_of(frames: Any, data: Trajectories) -> Any:
    """Numbers of frames as times: of dates and durations as such; else in units of time, or as they are."""
    import pandas

    rate, kind = data.metadata.frame_rate, data.metadata.time_kind
    time = frames / (1.0 if rate is None else float(rate))
    if rate is None or kind is None:
        return time
    return pandas.Series(
        pandas.to_timedelta(np.asarray(time, float), unit="s").round("ms"), getattr(frames, "index", None)
    )


def bouts(found: Any) -> Any:
    """Runs of one state in consecutive recorded frames of the most probable path, of hidden states of data."""
    data, table = found.data, found.to_table()
    sequence, step = np.nonzero(np.asarray(data.observed))
    after = (np.diff(sequence, prepend=-1) == 0) & (
        np.diff(step, prepend=-2) == 1
    )  # the frame before is recorded
    run = np.cumsum(~after | (table["state"].cat.codes.diff() != 0))
    time = table["time"] if data.times is not None else times_of(table["time"], data)  # or numbers of frames
    ends = {"start": time, "stop": time, "cut_start": ~after, "cut_end": ~np.append(after[1:], False)}
    runs = table.assign(first_frame=step, **ends).groupby(run)
    first = [*(name for name in LABELS if name in table), "state", "first_frame", "start", "cut_start"]
    last = dict.fromkeys(["stop", "cut_end"], "last")
    rows = runs.agg(dict.fromkeys(first, "first") | last | {"probability": "mean"}).reset_index(drop=True)
    size = runs.size().reset_index(drop=True)
    cut = np.select(
        [rows["cut_start"] & rows["cut_end"], rows["cut_start"], rows["cut_end"]],
        ["both", "start", "end"],
        "",
    )
    columns = [*first[:-1], "stop", "frames", "duration", "probability", "cut"]
    return rows.assign(frames=size, duration=times_of(size, data), cut=cut)[columns]
