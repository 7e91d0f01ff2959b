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
    """Rows put together by sequence, in table order within each.

    Parameters
    ----------
    order : (row,) row of the table.
    sequence : (row,) number of the sequence, ascending.
    rank : (row,) how many rows of its sequence come before.
    place : how messages call a sequence.
    """

    order: np.ndarray
    sequence: np.ndarray
    rank: np.ndarray
    place: Callable[[int], str]


def step_length(step: Any, times: np.ndarray) -> float:
    """The step in the units of ``times``, in seconds where these are dates or durations.

    Raises
    ------
    TypeError, ValueError
        If the step is no number (no duration, for dates and durations), or not positive and finite.
    """
    if times.dtype.kind in "mM":
        if not isinstance(step, datetime.timedelta | np.timedelta64):
            raise TypeError(f"step is {step!r}, but times are dates or durations: give a datetime.timedelta")
        length = float(np.timedelta64(step) / SECOND)
    elif isinstance(step, numbers.Real) and not isinstance(step, bool):
        length = float(step)
    else:
        raise TypeError(f"step is {step!r}, but times are numbers: give a number")
    if not 0 < length < np.inf:
        raise ValueError(f"step is {step}: the time between frames is positive and finite")
    return length


def frame_numbers(times: np.ndarray, step: Any, rows: SortedRows, name: str) -> np.ndarray:
    """Frame of each row, counted from the first time of its sequence.

    Parameters
    ----------
    times : (row,) numbers, dates or durations, put together by sequence.
    step : time between frames; None asks for equally spaced times and counts the rows.
    rows : which row of which sequence each time is.
    name : of the time column, for messages.

    Raises
    ------
    TypeError, ValueError
        If times are not numbers, dates or durations, are not finite, repeat, fall, miss the grid by
        more than a tenth of a step, or are unequally spaced without a step.
    """
    elapsed = _numbers(times, rows, name)
    gap = np.diff(elapsed, prepend=elapsed[0])
    later = rows.rank > 0
    _check_increasing(times, gap, later, rows, name)
    if step is None:
        if later.any() and np.ptp(gap[later]) > TOLERANCE * gap[later].mean():
            raise ValueError(
                f"{name} advances by {gap[later].min():.6g} to {gap[later].max():.6g} from row to row: "
                "declare step=, the time between frames"
            )
        return rows.rank
    length = step_length(step, times)
    position = (elapsed - elapsed[~later][rows.sequence]) / length
    if position.max() >= np.iinfo(np.int32).max:
        row = int(position.argmax())
        raise ValueError(
            f"{_where(times, row, rows, name)}, {position[row]:.3g} steps of {step} after its first: "
            "declare step= in the units of the times"
        )
    frame = np.rint(position).astype(np.int64)
    off = np.abs(position - frame) > TOLERANCE
    if off.any():
        row = int(off.argmax())
        raise ValueError(
            f"{_where(times, row, rows, name)}, {position[row]:.6g} steps of {step} after its first: "
            "correct step= or resample to regular times"
        )
    shared = later & (np.diff(frame, prepend=-1) == 0)
    if shared.any():
        row = int(shared.argmax())
        raise ValueError(
            f"{_where(times, row, rows, name)}, in the same frame as row {rows.order[row - 1]}: "
            f"step={step} is too long"
        )
    return frame


def _numbers(times: np.ndarray, rows: SortedRows, name: str) -> np.ndarray:
    """Times as floats since the earliest, which keeps the digits of large integers and dates."""
    if times.dtype.kind in "mM":
        return (times - times.min()) / SECOND
    if times.dtype.kind in "iu":
        return (times - times.min()).astype(np.float64)
    if times.dtype.kind != "f":
        raise TypeError(f"{name} holds {times.dtype}: times are numbers, dates or durations")
    if not np.isfinite(times).all():
        row = int((~np.isfinite(times)).argmax())
        raise ValueError(f"{_where(times, row, rows, name)}: times are finite")
    return times.astype(np.float64)


def _check_increasing(
    times: np.ndarray, gap: np.ndarray, later: np.ndarray, rows: SortedRows, name: str
) -> None:
    wrong = later & (gap <= 0)
    if not wrong.any():
        return
    row = int(wrong.argmax())
    earlier = f"row {rows.order[row - 1]}"
    if gap[row] == 0:
        raise ValueError(
            f"{_where(times, row, rows, name)}, and so it is in {earlier}: drop one of them, or name more "
            "columns in sequence=, such as the agent's"
        )
    raise ValueError(
        f"{_where(times, row, rows, name)}, before {times[row - 1]} in {earlier}: sort the table by {name}"
    )


def _where(times: np.ndarray, row: int, rows: SortedRows, name: str) -> str:
    return (
        f"{name} of sequence {rows.place(int(rows.sequence[row]))} is {times[row]} in row {rows.order[row]}"
    )
