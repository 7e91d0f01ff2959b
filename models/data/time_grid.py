"""From the times of rows to frame numbers on a regular grid, one grid a sequence."""

import datetime
import numbers
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

__all__ = ["SortedRows", "frame_numbers", "step_length"]

# How far, in steps, a time may lie from its frame: clocks jitter and logs round.
TOLERANCE = 0.1

SECOND = np.timedelta64(1, "s")


class SortedRows(NamedTuple):
    """Rows put together by sequence, in table order within each."""

    order: np.ndarray  # (row,): row of the table
    sequence: np.ndarray  # (row,): number of the sequence, ascending
    rank: np.ndarray  # (row,): how many rows of its sequence come before
    place: Callable[[int], str]  # how messages call a sequence


def step_length(step: Any, times: np.ndarray) -> float:
    """The step in the units of ``times``, in seconds where these are dates or durations."""
    if times.dtype.kind in "mM":
        if not isinstance(step, datetime.timedelta | np.timedelta64):
            raise TypeError(f"step is {step!r}, but times are dates or durations: give a datetime.timedelta")
        length = float(np.timedelta64(step) / SECOND)
    elif isinstance(step, numbers.Real) and not isinstance(step, bool):
        length = float(step)
    else:
        raise TypeError(f"step is {step!r}, but times are numbers: give a number")
    if not 0 < length < np.inf:
        raise ValueError(f"step is {step}: the time between frames must be positive and finite")
    return length


def frame_numbers(times: np.ndarray, step: Any, rows: SortedRows, name: str) -> np.ndarray:
    """Frame of each row, counted from the first time of its sequence.

    Parameters
    ----------
    times : (row,) numbers, dates or durations, put together by sequence.
    step : time between frames; None asks for equally spaced times and counts the rows.
    rows : which row of which sequence each time is.
    name : of the time column, for messages.
    """

    def refuse(wrong: np.ndarray, fault: Callable[[int, str], str]) -> None:
        if wrong.any():
            row = int(wrong.argmax())
            place = f"{name} of sequence {rows.place(int(rows.sequence[row]))}"
            told = fault(row, f"row {rows.order[row - 1]}")
            raise ValueError(f"{place} is {times[row]} in row {rows.order[row]}{told}")

    if times.dtype.kind == "f":
        refuse(~np.isfinite(times), lambda row, earlier: ": times are finite")
    elapsed = _since_earliest(times, name)
    gap = np.diff(elapsed, prepend=elapsed[0])
    later = rows.rank > 0

    def out_of_order(row: int, earlier: str) -> str:
        if gap[row] == 0:
            cure = "drop one of them, or name more columns in sequence=, such as the agent's"
            return f", and so it is in {earlier}: {cure}"
        return f", before {times[row - 1]} in {earlier}: sort the table by {name}"

    refuse(later & (gap <= 0), out_of_order)
    if step is None:
        if later.any() and np.ptp(gap[later]) > TOLERANCE * gap[later].mean():
            raise ValueError(
                f"{name} advances by {gap[later].min():.6g} to {gap[later].max():.6g} from row to row: "
                "pass step=, the time between frames"
            )
        return rows.rank
    position = (elapsed - elapsed[~later][rows.sequence]) / step_length(step, times)
    refuse(
        (position == position.max()) & (position >= np.iinfo(np.int32).max),
        lambda row, earlier: (
            f", {position[row]:.3g} steps of {step} after its first: pass step= in the units of the times"
        ),
    )
    frame = np.rint(position).astype(np.int64)
    refuse(
        np.abs(position - frame) > TOLERANCE,
        lambda row, earlier: (
            f", {position[row]:.6g} steps of {step} after its first: correct step= or resample to regular times"
        ),
    )
    refuse(
        later & (np.diff(frame, prepend=-1) == 0),
        lambda row, earlier: f", in the same frame as {earlier}: step={step} is too long",
    )
    return frame


def _since_earliest(times: np.ndarray, name: str) -> np.ndarray:
    """Times as floats, those of large integers and dates since the earliest, which keeps their digits."""
    if times.dtype.kind in "mM":
        return (times - times.min()) / SECOND
    if times.dtype.kind in "iu":
        return (times - times.min()).astype(np.float64)
    if times.dtype.kind != "f":
        raise TypeError(f"{name} holds {times.dtype}: times are numbers, dates or durations")
    return times.astype(np.float64)
