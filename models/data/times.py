"""Times of rows, from numbers, dates, durations and ISO strings, with their time zone; and the time between frames."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import numbers
import re
from typing import Any, NamedTuple

import numpy as np

from ethogram.models.arguments import require_number, warn_user
from ethogram.models.data.metadata import Metadata
from ethogram.models.data.padding import read_column
from ethogram.models.data.table_kinds import number_hint

__all__ = [
    "Times",
    "rate_of_times",
    "read_snap",
    "read_times",
    "step_length",
    "with_time_metadata",
    "write_times",
]

# Of a larger month pandas would take it for the day.
YEAR_FIRST = re.compile(r"\s*\d{4}[-/.](0?[1-9]|1[0-2])[-/.]\d{1,2}(?!\d)")
YEAR_LAST = re.compile(r"\s*(\d{1,2})[-/.](\d{1,2})[-/.](\d{4}|\d\d)(?!\d)")
SECOND = np.timedelta64(1, "s")


class Times(NamedTuple):
    """Times (row,), numbers or ``datetime64`` in UTC or ``timedelta64``, and the zone that they had, or None."""

    values: np.ndarray
    zone: str | None


def read_times(column: Any, name: str, num_rows: int, day_first: bool | None = None) -> Times:
    """Times of a column, array or list; strings and dates with a time zone become UTC.

    Of dates such as 01/05/2024 the day stands first, or the month, as `day_first` says; None refuses them.
    """
    dtype = getattr(column, "dtype", None)
    zone = of_pandas = getattr(getattr(dtype, "pyarrow_dtype", dtype), "tz", None)
    zone = zone or getattr(dtype, "time_zone", None)
    if of_pandas:  # an index has the methods itself, a series below dt
        utc = getattr(column, "dt", column).tz_convert("UTC")
        column = getattr(utc, "dt", utc).tz_localize(None)
    elif zone:
        column = column.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
    elif not isinstance(column, np.ndarray) or column.dtype.kind in "OU":
        import pandas

        text = np.ndim(column) == 1 and pandas.api.types.infer_dtype(column, skipna=False) == "string"
        if text and not np.any(pandas.isna(column)):
            texts = list(column)  # an array of text would take a multiple of their memory
            column, zone = _parsed(texts, name, day_first) if len(texts) == num_rows else (column, None)
        else:
            column, zone = _without_zone(column, name)
    values, null = read_column(column, name)
    if null.shape != (num_rows,):
        raise ValueError(f"{name} has shape {null.shape}, not ({num_rows},), one entry per row")
    if null.any():
        raise ValueError(f"{name} is null in row {int(null.argmax())}: every row needs a value")
    if values.dtype.kind == "U":  # of polars
        values, zone = _parsed(values.tolist(), name, day_first)
    if values.dtype.kind not in "iufmM":
        raise TypeError(f"{name} holds {values.dtype}: times are numbers, dates, durations or ISO strings")
    return Times(values, None if zone is None else str(zone))


def _without_zone(column: Any, name: str) -> tuple[Any, str | None]:
    """Dates of Python with a time zone as UTC dates, and that zone; anything else as it came."""
    if not str(getattr(column, "dtype", "object")).lower().startswith("object"):
        return column, None
    entries = list(column)
    aware = [getattr(entry, "tzinfo", None) is not None for entry in entries]
    if not any(aware):
        return column, None
    if not all(aware):
        row = aware.index(False)
        raise ValueError(
            f"{name} is {entries[row]!r} in row {row}, without the time zone of other rows: give all of them one"
        )
    try:
        utc = [entry.astimezone(datetime.UTC).replace(tzinfo=None) for entry in entries]
    except OverflowError:
        raise ValueError(f"{name} has dates that are before the year 1 or after 9999 in UTC") from None
    zones = {str(getattr(entry.tzinfo, "key", None) or entry.tzinfo) for entry in entries}
    return np.array(utc, dtype="datetime64[us]"), zones.pop() if len(zones) == 1 else "UTC"


def _parsed(texts: list[str], name: str, day_first: bool | None) -> tuple[np.ndarray, str | None]:
    """Dates in UTC of texts, and their zone."""
    import pandas

    ordered = _year_first(texts, name, day_first)
    dated = [bool(YEAR_FIRST.match(text)) for text in ordered]
    if all(dated):
        with contextlib.suppress(ValueError):
            # Of one zone, or none; a cache takes ten times the memory of the dates.
            dates = pandas.to_datetime(ordered, format="mixed", cache=False)
            utc = dates if dates.tz is None else dates.tz_convert("UTC").tz_localize(None)
            return utc.to_numpy().astype("datetime64[us]"), dates.tz and str(dates.tz)
    iso = [_iso(text) for text in texts]
    if None in iso:
        row = iso.index(None) if all(dated) else dated.index(False)
        raise TypeError(
            f"{name} holds text: times are numbers, dates, durations or ISO strings, and row {row} is "
            f"{texts[row]!r}{number_hint(texts[row])}"
        )
    utc, zone = _without_zone(np.array(iso), name)
    return utc.astype("datetime64[us]"), zone


def _iso(text: str) -> datetime.datetime | None:
    try:
        return datetime.datetime.fromisoformat(text)
    except ValueError:
        return None


def _year_first(texts: list[str], name: str, day_first: bool | None) -> list[str]:
    """The texts, of which those with the year at the end of their date have it at its beginning."""
    ends = {row: found for row, text in enumerate(texts) if (found := YEAR_LAST.match(text))}
    if not ends:
        return texts
    if day_first is None:
        first, second = (next((row for row in ends if int(ends[row][part]) > 12), None) for part in (1, 2))
        row = next(row for row in (first, second, *ends) if row is not None)
        which = "True or False" if first is second is None else second is None
        raise ValueError(
            f"{name} is {texts[row]!r} in row {row}, with the day or the month first: pass day_first={which}"
        )
    ordered = list(texts)
    for row, found in ends.items():
        *of_day, year = found.groups()
        day, month = of_day if day_first else of_day[::-1]
        if int(month) > 12:
            raise ValueError(
                f"{name} is {texts[row]!r} in row {row}, which is no date with day_first={day_first}"
            )
        century = "" if len(year) == 4 else "19" if year >= "69" else "20"  # as POSIX has it
        ordered[row] = f"{century}{year}-{month}-{day}{texts[row][found.end() :]}"
    return ordered


def step_length(step: Any, times: np.ndarray, name: str = "step") -> float:
    """The step in the units of ``times``, a number; of dates or durations in seconds, of a duration of any kind."""
    if times.dtype.kind in "mM":
        length = _seconds(step, name)
    elif isinstance(step, numbers.Real) and not isinstance(step, bool | np.bool_ | np.timedelta64):
        try:
            length = float(step)
        except OverflowError:
            length = np.inf
    else:
        raise TypeError(f"step is {step!r}, but times are numbers: give a number")
    if not 0 < length < np.inf:
        raise ValueError(f"{name} is {step}: it must be positive and finite")
    return length


def _seconds(step: Any, name: str) -> float:
    import pandas

    words = step.strip() if isinstance(step, str) else ""
    measured = (
        words and not words.replace(".", "", 1).isdecimal()
    )  # pandas counts nanoseconds where no unit is
    if isinstance(step, datetime.timedelta | np.timedelta64) or hasattr(step, "freqstr") or measured:
        try:
            unit = words.isalpha() and words.lower() != "nat"
            return float(pandas.Timedelta(f"1{words}" if unit else words or step) / SECOND)
        except (ValueError, OverflowError, TypeError):
            pass
    raise TypeError(
        f"{name} is {step!r}, but times are dates or durations: give a datetime.timedelta, or a duration of fixed "
        'length such as "1s" or "10min"'
    )


def write_times(times: np.ndarray, kind: str | None) -> np.ndarray:
    """Times as the user gave them: numbers, ``datetime64`` (UTC), or ``timedelta64`` of nanoseconds."""
    if kind is None:
        return times
    return times.astype("datetime64[ns]" if kind == "date" else "timedelta64[ns]")


def read_snap(snap: Any, step: Any) -> float | None:
    """How far, in steps, a time may be moved to its frame; None where times are not moved."""
    if snap is False or snap is None:
        return None
    if step is None:
        raise ValueError(f"snap is {snap!r} without step: pass step=, the time between frames")
    if snap is True:
        return 0.5
    return require_number("snap", snap, above=0, most=0.5)


def with_time_metadata(
    metadata: Metadata,
    times: Times,
    step: Any,
    sequence: np.ndarray | None = None,
    attribute: str | None = None,
) -> Metadata:
    """Metadata with the kind of the times and their zone, and the frame rate where it is known.

    Whole numbers between frames may count frames, and say nothing about the rate.

    Parameters
    ----------
    sequence : (row,) numbers of the sequences, ascending, where a frame rate that contradicts the times is refused; or,
        where it is an `attribute` of this name, replaced with a warning.
    """
    rate, unit, of_dates = metadata.frame_rate, metadata.time_unit, times.values.dtype.kind in "mM"
    if sequence is not None and rate is not None:
        rate = _agreed_rate(rate, unit, times.values, step, sequence, attribute)
    if step is not None and of_dates and not unit:
        unit = "s"
    if step is not None and rate is None and not (of_dates and unit != "s"):
        rate = 1 / step_length(step, times.values)
    kind = {"M": "date", "m": "duration"}.get(times.values.dtype.kind)
    return dataclasses.replace(
        metadata, frame_rate=rate, time_unit=unit, time_kind=kind, time_zone=times.zone
    )


def _agreed_rate(
    rate: float, unit: str | None, times: np.ndarray, step: Any, sequence: np.ndarray, attribute: str | None
) -> float:
    of_dates = times.dtype.kind in "mM"
    if of_dates and unit not in (None, "s"):
        return rate
    if step is None:
        gaps = np.diff(times)[np.diff(sequence) == 0]
        gaps = gaps / SECOND if of_dates else gaps
    else:
        gaps = np.array([step_length(step, times)])
    gap = float(np.median(gaps)) if len(gaps) else 0.0
    if gap <= 0 or (not of_dates and gap == round(gap)) or abs(gap * rate - 1) <= 0.01:
        return rate
    if attribute:
        return rate_of_times(gap, rate, attribute)
    raise ValueError(
        f"metadata.frame_rate is {rate:g}, but times are {gap:.6g}{' s' * of_dates} apart, which is {1 / gap:.6g} "
        "frames in one unit of time: correct it, or leave it out"
    )


def rate_of_times(gap: float, stated: float | None, name: str) -> float:
    """Frames in one unit of time: as stated by the attribute `name`, unless times differ by more than a hundredth."""
    if stated is None or abs(gap * stated - 1) <= 0.01:
        return 1 / gap if stated is None else stated
    warn_user(
        f"{name} is {stated:g}, but times are {gap:.6g} apart: taken as {1 / gap:.6g}, that of the times"
    )
    return 1 / gap
