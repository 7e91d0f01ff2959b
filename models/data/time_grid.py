"""From the times of rows to frame numbers on a regular grid, one clock per group, or a sequence without a group."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ethogram.models.arguments import warn_user
from ethogram.models.data.padding import Column
from ethogram.models.data.times import SECOND, read_snap, step_length
from ethogram.models.memory_bound import require_room

__all__ = ["Clocks", "SortedRows", "clocks_of", "frame_numbers"]

# How far, in steps, a time may lie from its frame: clocks jitter and logs round.
TOLERANCE = 0.1

# Arrays with more cells than MANY, and more than SPARSE a row, warn.
MANY, SPARSE = 10**6, 1000


class Clocks(NamedTuple):
    """Which sequences count their frames from one common time."""

    number: np.ndarray  # (sequence,): of its clock
    name: Callable[[int], str]  # how messages call the first time of a sequence's clock


class SortedRows(NamedTuple):
    """Rows put together by sequence, in their given order within each."""

    row: Callable[[int], str]  # how messages call a row
    sequence: np.ndarray  # (row,): number of the sequence, ascending
    place: Callable[[int], str]  # how messages call a sequence
    clocks: Clocks


def clocks_of(group: Column | None, num_sequences: int, word: str) -> Clocks:
    """Clocks of the sequences: one per group, one of its own where the group is null, -1 or not given."""
    own = np.arange(num_sequences)
    if group is None or group.null.shape != own.shape:
        return Clocks(own, lambda sequence: "its first")
    alone = group.null | ((group.values == -1) if group.values.dtype.kind in "if" else False)
    _, shared = np.unique(group.values, return_inverse=True)
    _, number, count = np.unique(
        np.where(alone, len(shared) + own, shared), return_inverse=True, return_counts=True
    )

    def name(sequence: int) -> str:
        is_shared = count[number[sequence]] > 1
        return f"the first of {word} {group.values[sequence].item()!r}" if is_shared else "its first"

    return Clocks(number, name)


def frame_numbers(
    times: np.ndarray,
    step: Any,
    rows: SortedRows,
    name: str,
    snap: Any = False,
    duplicates: str | None = None,
) -> np.ndarray:
    """Frame of each row, counted from the first time of its clock; not decreasing within a sequence.

    `times` (row,) are numbers, dates or durations, put together by sequence, of a column that messages call `name`;
    `step`, `snap` and `duplicates` are as in ``Trajectories.from_table``. None, where a caller has no duplicates,
    refuses several rows in a frame.
    """

    def said(row: int) -> str:
        return f"{name} of sequence {rows.place(int(rows.sequence[row]))} is {times[row]} in {rows.row(row)}"

    def refuse(wrong: np.ndarray, fault: Callable[[int], str]) -> None:
        if wrong.any():
            row = int(wrong.argmax())
            raise ValueError(f"{said(row)}{fault(row)}")

    furthest = read_snap(snap, step)
    if len(times) == 0:
        return np.zeros(0, np.int64)
    if times.dtype.kind == "f":
        refuse(~np.isfinite(times), lambda row: ": times are finite")
    elapsed = _since_earliest(times)
    gap = np.diff(elapsed, prepend=elapsed[0])
    later = np.diff(rows.sequence, prepend=-1) == 0

    def refuse_repeated(same: np.ndarray, fault: str, fix: str) -> None:
        if duplicates in (None, "error"):
            count, among = int(same.sum()), len(np.unique(rows.sequence[same]))
            how_many = f"{count} such row{'s' * (count > 1)} in {among} sequence{'s' * (among > 1)}"
            argument = "" if duplicates is None else ', or pass duplicates="first" or "mean"'
            refuse(same, lambda row: f", {fault} {rows.row(row - 1)} ({how_many}): {fix}{argument}")

    refuse(
        later & (gap < 0),
        lambda row: f", before {times[row - 1]} in {rows.row(row - 1)}: sort the table by {name}",
    )
    fix = "drop repeated rows, or name more columns in sequence=, such as the agent's"
    refuse_repeated(later & (gap == 0), "and so it is in", fix)
    distinct = later & (gap > 0)
    length = _mean_gap(gap[distinct], name) if step is None else step_length(step, times)
    del gap
    first = np.flatnonzero(~later)
    num_rows, clock = np.diff(first, append=len(later)), rows.clocks.number[rows.sequence[first]]
    origin = np.full(len(rows.clocks.number), np.inf)
    np.minimum.at(origin, clock, elapsed[first])
    elapsed -= np.repeat(origin[clock], num_rows)
    position = np.divide(elapsed, length, out=elapsed)
    if step is None:  # from the sequence's own first, so that rounding of the mean gap does not add up
        count = np.cumsum(distinct)
        position = np.repeat(position[first] - count[first], num_rows)
        position += count
    unit = f"steps of {length:.6g}" if step is None else f"steps of {step}"

    def since(row: int) -> str:
        return f"{unit} after {rows.clocks.name(int(rows.sequence[row]))}"

    refuse(
        (position == position.max()) & (position >= np.iinfo(np.int32).max),
        lambda row: f", {position[row]:.3g} {since(row)}: pass step= in the units of the times",
    )
    frame = np.rint(position).astype(np.int64)
    off = np.abs(position - frame)
    most = TOLERANCE if furthest is None else furthest + 1e-9
    fix = "correct it, or pass a larger snap="
    if furthest is None:
        fix = "correct step=, resample to regular times, or pass snap=True to move times to the nearest frame"
    refuse(
        off > most,
        lambda row: (
            f", {position[row]:.6g} {since(row)}, more than {most:.3g} of a step off its frame: {fix}"
        ),
    )
    refuse_repeated(
        later & (np.diff(frame, prepend=-1) == 0), "in the same frame as", f"step={step} is too long"
    )
    _warn_of_absences(frame, rows, said, since)
    if furthest is not None and (moved := off > 1e-6).any():
        warn_user(
            f"snap moved {moved.sum()} of {len(moved)} times of {name} to their frame, by at most "
            f"{off.max() * length:.3g} ({off.max():.2g} of a step): pass a smaller snap= to refuse such times",
        )
    return frame


def _mean_gap(gaps: np.ndarray, name: str) -> float:
    if gaps.size == 0:
        return 1.0
    mean = float(gaps.mean())
    if np.ptp(gaps) > TOLERANCE * mean:
        raise ValueError(
            f"{name} advances by {gaps.min():.6g} to {gaps.max():.6g} from row to row: "
            "pass step=, the time between frames"
        )
    return mean


def _warn_of_absences(
    frame: np.ndarray, rows: SortedRows, said: Callable[[int], str], since: Callable[[int], str]
) -> None:
    """Refuse, or warn of, rows so far from the others that almost all of the padded arrays is missing."""
    cells = len(rows.clocks.number) * (int(frame.max()) + 1)
    if cells <= max(MANY, SPARSE * len(frame)):
        return
    gap = np.diff(frame, prepend=0)
    gap = np.where(np.diff(rows.sequence, prepend=-1) == 0, gap, frame)
    row = int(gap.argmax())
    place = f"{said(row)}, {frame[row]} {since(row)}, after {gap[row]} without a row"
    fix = "name the bouts as sequences or groups of their own, or pass a longer step="
    require_room(f"{place}: observations", (len(rows.clocks.number), int(frame.max()) + 1, 1), float, fix)
    warn_user(f"{place}: only {len(frame)} of {cells} frames have a row; {fix}")


def _since_earliest(times: np.ndarray) -> np.ndarray:
    """Times as floats, those of large integers and dates since the earliest, which keeps their digits."""
    if times.dtype.kind in "mM":
        return (times - times.min()) / SECOND
    if times.dtype.kind in "iu":
        return (times - times.min()).astype(np.float64)
    return times.astype(np.float64)
