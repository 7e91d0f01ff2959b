"""Rows of a timeline: which row and panel each frame has, when it was, and what each column shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ethogram.models.data.levels import sequence_levels
from ethogram.models.data.metadata import SEQUENCE_LABELS, Metadata
from ethogram.models.data.trajectories import Trajectories, valid_steps
from ethogram.models.data.write_table import own_times
from ethogram.plots.axes import read_names

__all__ = ["SECONDS", "Panel", "Timeline", "read_timeline", "readable"]

SECONDS = {"days": 86400.0, "h": 3600.0, "min": 60.0, "s": 1.0, "ms": 1e-3}
SPELLED = {"sec": "s", "second": "s", "minute": "min", "hour": "h", "d": "days", "day": "days"}
LATE = 10.0
"""Numbers that begin after so many times their span, such as seconds since 1970, are shown since their start."""
BETWEEN = 0.01
"""Gap between sequences that stand end to end, as a share of the longest row."""
SPARSE = 0.1
"""Share of an axis below which sequences stand end to end, such as sessions of some minutes on several days."""
MOST_ROWS, MOST_PANELS = 60, 16


class Panel(NamedTuple):
    """One stretch of the axis.

    Attributes
    ----------
    name : of the group, with its date where it has one; empty where all rows share one axis.
    first : where columns begin, in units of the axis; those of dates are days since 1970 in UTC.
    label : (row, column) the most frequent label, -1 where no frame was recorded.
    share : (row, column) mean probability of that label over the recorded frames of the column.
    """

    name: str
    first: float
    label: np.ndarray
    share: np.ndarray


class Timeline(NamedTuple):
    """What a timeline shows: `column` is the length of a column, which `lasting` says where it has several frames.

    `unit` is None for dates, which have the `zone`. `levels` (row,) are those by which rows are sorted, `limits` the
    window, `used` the labels that some frame has, and `left_out` counts rows and groups that are not shown.
    """

    rows: list[str]
    levels: list[str] | None
    panels: list[Panel]
    limits: tuple[float, float] | None
    column: float
    lasting: str | None
    unit: str | None
    zone: Any
    axis: str
    names: list[str]
    used: list[int]
    left_out: list[str]


def readable(seconds: float, least: float | int = 1) -> str:
    """The largest unit of which there are `least`, or seconds."""
    return next((unit for unit in ("days", "h", "min") if seconds >= least * SECONDS[unit]), "s")


def _read_times(
    data: Trajectories, at: tuple[np.ndarray, ...]
) -> tuple[np.ndarray, float, str | None, float]:
    """Starts of the frames `at` as they were given, or else since the start; the length of a frame; unit and scale.

    In seconds where the unit of the times is known, else in that unit; dates are seconds since 1970 in UTC, and have no
    unit. The scale is the unit of times as they were given.
    """
    metadata, (sequence, step), given = data.metadata, at, own_times(data.times, data.metadata)
    frame = 1.0 if metadata.frame_rate is None else 1 / metadata.frame_rate
    unit = metadata.time_unit or ("frames" if given is None and metadata.frame_rate is None else "units")
    time = step * frame
    if given is not None:
        time = given[at].astype(np.int64) / 1e9 if metadata.time_kind else given[at].astype(float)
        each = (np.diff(time) / np.maximum(np.diff(step), 1))[np.diff(sequence) == 0]
        frame, unit = float(np.median(each)) if len(each) else frame, "s" if metadata.time_kind else unit
        if metadata.time_kind == "date":
            return time, frame, None, 1.0
        if time.min() > LATE * (np.ptp(time) + frame):
            time = time - time.min()
    known = unit.lower() if unit.lower() in SECONDS else SPELLED.get(unit.lower().removesuffix("s"), unit)
    scale = SECONDS.get(known, 1.0)
    return time * scale, frame * scale, "s" if known in SECONDS else unit, scale


def _labelled(data: Trajectories, name: str, values: Any = None) -> tuple[np.ndarray, list[str]]:
    """Codes (sequence,) of agents, or of levels as `sequence_levels` has them, and their names."""
    import pandas

    level = sequence_levels(data, name, values)
    other = "sequence {}" if name == "agent" else f"no {name}"
    names = [other.format(at) if pandas.isna(each) else str(each) for at, each in enumerate(level)]
    every = list(dict.fromkeys([*map(str, level.categories), *names]))
    found = pandas.Categorical(names, every).remove_unused_categories()
    return found.codes, list(found.categories)


def _end_to_end(frames: Any, frame: float, sparse: float | int = 0) -> np.ndarray | None:
    """Times of the frames with the sequences of a row one after the other.

    None where none of them overlap, and the longest row fills more than the share `sparse` of the axis.
    """
    line = ["panel", "row"]
    spans = frames.groupby([*line, "sequence"])["time"].agg(["min", "max"]).sort_values([*line, "min"])
    overlap = (spans["min"] < spans.groupby(line)["max"].shift() + frame / 2).any()
    lasting = spans["max"] - spans["min"] + frame
    longest = lasting.groupby(line).sum().max()
    if not overlap and longest >= sparse * np.ptp(frames["time"]):
        return None
    lasting += max(round(BETWEEN * longest / frame), 1) * frame
    shift = lasting.groupby(line).cumsum() - lasting - spans["min"]
    return frames["time"] + shift.droplevel(line)[frames["sequence"]].to_numpy()


def _moment(value: Any, unit: str | None, scale: float, metadata: Metadata) -> float:
    """An end of a window on the scale of `_read_times`, from a number times `scale`, a date or a duration."""
    import pandas

    try:
        if unit is None:
            moment = pandas.Timestamp(value)
            moment = moment if moment.tzinfo else moment.tz_localize(metadata.time_zone or "UTC")
            return moment.timestamp()
        known = isinstance(value, int | float | np.number)
        return float(value) * scale if known else pandas.Timedelta(value).total_seconds()
    except (ValueError, TypeError) as error:
        wanted = "dates" if unit is None else "numbers in the unit of the times, or durations"
        raise ValueError(f"window has the end {value!r}: give {wanted}") from error


def _sorting(by: Any, data: Trajectories, frames: Any, rows: list[str], names: list[str]) -> Any:
    """What rows are sorted by: numbers (row,), and the names of their levels, None for shares of a label."""
    if by in (*SEQUENCE_LABELS, "sequence") or isinstance(by, Mapping):
        code, levels = _labelled(data, *(next(iter(by.items())) if isinstance(by, Mapping) else (by,)))
        of_row = frames.groupby("row")["sequence"].first().map(lambda sequence: code[sequence])
        return of_row.reindex(range(len(rows)), fill_value=0).to_numpy(), levels
    if str(by) not in names:
        raise ValueError(f"by is {by!r}: give 'group', 'subject', one of {names}, or levels of your own")
    share = (frames["label"] == names.index(str(by))).groupby(frames["row"]).mean()
    return -share.reindex(range(len(rows)), fill_value=0).to_numpy(), None


def read_timeline(
    labels: ArrayLike,
    probability: ArrayLike,
    data: Trajectories,
    *,
    argument: str,
    most: int,
    window: Any = None,
    agents: Any = None,
    by: Any = None,
    names: Sequence[str] | None = None,
) -> Timeline:
    """Rows, axis and columns of labels (sequence, time), which messages call `argument`, as `role_timelines` has them.

    Where there are more than `most` frames, a column shows the most frequent label of several.
    """
    import pandas

    every, chance = np.asarray(labels), np.asarray(probability)
    if every.shape != np.shape(data.observed) or chance.shape[:-1] != every.shape:
        raise ValueError(
            f"{argument} has shape {every.shape}, probability {chance.shape}, the data {np.shape(data.observed)}: give "
            "(sequence, time) and (sequence, time, label) of these data"
        )
    titles, metadata = read_names(names, chance.shape[-1]), data.metadata
    plain = data.agent is None and data.group is None and agents is None and by is None
    read = slice(MOST_ROWS if plain else None)  # rows are sequences: those below are not shown
    at = np.nonzero((np.asarray(valid_steps(data)) & np.asarray(data.observed) & (every >= 0))[read])
    if not len(at[0]):
        raise ValueError(f"{argument} has no recorded frame: there is nothing to show")
    time, frame, unit, scale = _read_times(data, at)
    limits, inside, span = None, np.ones(len(time), bool), np.ptp(time) + frame
    if window is not None:
        if isinstance(window, str) or len(window) != 2:
            raise ValueError(f"window is {window!r}: give its start and its stop")
        low, high = (_moment(each, unit, scale, metadata) for each in window)
        inside = (time > low - frame / 2) & (time < high)
        limits, span = (low, high), min(high - low, span)
    count, of_agents = data.num_sequences, data.agent is not None
    row, rows = _labelled(data, "agent") if of_agents else (np.arange(count), [str(i) for i in range(count)])
    group, groups = (np.zeros(count, int), [""]) if data.group is None else _labelled(data, "group")
    held = len(set(zip(row, group, strict=True)))
    recurs = held > max(
        len(rows), len(rows) * len(groups) / 2
    )  # agents are in several groups, and in most of them
    panel = group if recurs else np.zeros(count, int)
    frames = pandas.DataFrame({"sequence": at[0], "time": time, "label": every[at]})
    frames["row"], frames["panel"] = row[at[0]], panel[at[0]]
    axis = "time since start ({})" if data.times is None or time.min() == 0 else "time ({})"
    moved = _end_to_end(frames[inside], frame) if inside.any() else None
    if moved is None and window is None and not recurs:
        moved = _end_to_end(frames, frame, SPARSE)
        if moved is not None:
            unit, span = unit or "s", np.ptp(moved)
    if moved is not None and unit is None:  # dates stay: each sequence has a row
        frames["row"], rows = at[0], [f"{rows[own]}, {number}" for number, own in enumerate(row)]
    elif moved is not None:
        frames.loc[inside, "time"], axis, limits = moved, "time ({}, sequences end to end)", None

    agents_given = rows if agents is None else [agents] if isinstance(agents, str | int) else agents
    wanted = [str(each) for each in agents_given]
    unknown = [each for each in wanted if each not in rows]
    if unknown or not wanted:
        raise ValueError(f"agents has {', '.join(map(repr, unknown)) or 'no entry'}: give some of {rows}")
    chosen, levels, left_out = np.array([rows.index(each) for each in wanted]), None, []
    apart = (
        1 < len(groups) and held == len(rows) and {*groups} != {*rows}
    )  # groups tell more than the rows' names
    by = "group" if by is None and agents is None and apart else by
    if by is not None:
        key, known = _sorting(by, data, frames, rows, titles)
        chosen = chosen[np.argsort(key[chosen], kind="stable")]
        levels = known and [known[key[each]] for each in chosen[:MOST_ROWS]]
    if len(chosen) > MOST_ROWS:
        left_out.append(f"{MOST_ROWS} of {len(chosen)} {'agents' if of_agents else 'sequences'}")
        chosen = chosen[:MOST_ROWS]
    rows, used = [rows[each] for each in chosen], np.unique(frames["label"]).tolist()
    frames["row"] = pandas.Index(chosen).get_indexer(frames["row"])

    keep = (frames["row"] >= 0) & inside
    if not keep.any():
        ends = [frames["time"].min(), frames["time"].max()]
        about = [f"{each / scale:g}" if unit else str(np.datetime64(round(each), "s")) for each in ends]
        raise ValueError(
            f"window {window!r} has no recorded frame of {rows}: all are from {about[0]} to {about[1]}"
        )
    frames = frames[keep].copy()
    own = frames.groupby("panel")["time"]
    if recurs:
        limits, starts = None, own.min()
        groups = [groups[each] for each in starts.index]
        if unit is None:
            dates = pandas.to_datetime(starts, unit="s", utc=True).dt.tz_convert(metadata.time_zone or "UTC")
            groups = [f"{name}\n{date:%Y-%m-%d %H:%M}" for name, date in zip(groups, dates, strict=True)]
            unit, span, axis = "s", (own.max() - starts).max(), "time since start ({})"
            frames["time"] -= frames["panel"].map(starts)
    parts = [part for _, part in frames.groupby("panel")]
    if len(parts) > MOST_PANELS:
        left_out.append(f"{MOST_PANELS} of {len(parts)} groups")
    first = [part["time"].min() for part in parts[:MOST_PANELS]]
    with_start = zip(parts, first, strict=False)
    places = [np.rint((part["time"] - low) / frame).astype(int) for part, low in with_start]
    several = max(-(-sum(int(place.max()) + 1 for place in places) // most), 1)
    column = several * frame
    known = unit if unit not in (None, "s") else readable(column)
    lasting = f"{column / SECONDS.get(known, 1):.3g} {known}" if several > 1 else None
    unit = readable(span, 3) if unit == "s" else unit
    second = SECONDS["days"] if unit is None else SECONDS.get(unit, 1.0)
    panels = []
    for name, low, part, place in zip(groups, first, parts, places, strict=False):
        chances = chance[at[0][part.index], at[1][part.index]]
        found = _columns(part["row"], place // several, part["label"], chances, len(rows))
        panels.append(Panel(name, low / second, *found))
    zone = pandas.Timestamp(0, tz=metadata.time_zone).tzinfo if unit is None else None
    axis = axis.format(unit) if unit else f"date ({metadata.time_zone})" if zone else "date"
    shown = None if limits is None else (limits[0] / second, limits[1] / second)
    return Timeline(
        rows, levels, panels, shown, column / second, lasting, unit, zone, axis, titles, used, left_out
    )


def _columns(
    row: Any, column: Any, label: Any, chance: np.ndarray, num_rows: int
) -> tuple[np.ndarray, np.ndarray]:
    """Most frequent label (row, column), -1 where no frame is, and its mean probability over the column's frames."""
    shape = num_rows, int(column.max()) + 1
    cell, (size, count) = np.ravel_multi_index((row, column), shape), (np.prod(shape), chance.shape[1])
    votes = np.bincount(cell * count + label, minlength=size * count).reshape(size, count)
    total, found = votes.sum(1), votes.argmax(1)
    share = np.bincount(cell, chance[np.arange(len(cell)), found[cell]], size) / np.maximum(total, 1)
    return np.where(total > 0, found, -1).reshape(shape), share.reshape(shape)
