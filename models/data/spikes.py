"""Positions too far from those before and after, as devices err: which they are, by a speed that no animal has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ethogram.models.arguments import require_number, warn_user
from ethogram.models.data.angles import great_circle, period_of, position_features
from ethogram.models.data.metadata import Metadata

__all__ = ["implausible", "too_fast"]

MOST_IN_A_ROW = 3
"""Fixes one after the other that may be spikes: at more of them the animal was."""

FASTEST, FAST = 50.0, 20.0
"""Metres a second that no animal keeps between two fixes, and that few do."""

LARGE, LEAST, RARE = 0.95, 20, 0.01
"""A usual speed is not exceeded by the share LARGE of LEAST steps or more that are not zero; errors are RARE."""


class Track(NamedTuple):
    """Rows with a position, in order of their sequences and times."""

    row: np.ndarray  # (fix,): number of the row
    sequence: np.ndarray  # (fix,)
    clock: np.ndarray  # (fix,): seconds, the user's units of time, or frames
    position: np.ndarray  # (fix, axis)
    on_globe: bool

    def speed(self, start: Any, end: Any) -> Any:
        """From fixes to later ones, 0 between sequences; on the globe in metres per unit of time."""
        a, b = self.position[start], self.position[end]
        distance = 1000 * great_circle(a, b) if self.on_globe else np.linalg.norm(b - a, axis=-1)
        same = self.sequence[start] == self.sequence[end]
        return np.where(same, distance / np.where(same, self.clock[end] - self.clock[start], 1), 0)


def _track(rows: Any, features: list[int], on_globe: bool, metadata: Metadata) -> Track:
    values, null = rows.observations
    known = np.flatnonzero(~null[:, features].any(axis=1))
    if rows.times is None:
        clock = rows.frame[known] / (metadata.frame_rate or 1)
    else:
        clock = rows.times[known]
        clock = (
            (clock - clock.min()) / np.timedelta64(1, "s")
            if clock.dtype.kind in "mM"
            else clock.astype(float)
        )
    return Track(known, rows.sequence[known], clock, values[known][:, features].astype(float), on_globe)


def _spikes(track: Track, limit: float) -> np.ndarray:
    """Whether fixes (fix,) are out of reach from the one before and to the one after, which reach each other.

    They may be up to MOST_IN_A_ROW; of two fixes at an end of a sequence that which has no such neighbour counts.
    """
    count = len(track.row)
    spike = np.zeros(count, bool)
    fast = np.append(False, track.speed(np.arange(count - 1), np.arange(1, count)) > limit)
    own = track.sequence

    def reaches(start: int, end: int) -> bool:
        return own[start] == own[end] and bool(track.speed(start, end) <= limit)

    for fix in np.flatnonzero(fast).tolist():
        before = fix - 1
        if spike[before] or spike[fix]:
            continue
        for later in range(fix + 1, min(fix + 1 + MOST_IN_A_ROW, count)):
            if reaches(before, later) and not reaches(later - 1, later):
                spike[fix:later] = True
                break
        else:
            first = before == 0 or own[before - 1] != own[before]
            last = fix == count - 1 or own[fix + 1] != own[fix]
            if first and not last and reaches(fix, fix + 1) and not reaches(before, fix + 1):
                spike[before] = True
            elif last and not first and reaches(before - 1, before) and not reaches(before - 1, fix):
                spike[fix] = True
    return spike


def too_fast(rows: Any, max_speed: Any, metadata: Metadata, place: Callable[[int], str]) -> np.ndarray:
    """Which features (row, feature) are coordinates of spikes at `max_speed`, for rows as in `merge_rows`.

    Raises
    ------
    ValueError
        It is not clear which features are coordinates.

    Warns
    -----
    UserWarning
        How many spikes there are, and how many steps remain that are faster.
    """
    limit = require_number("max_speed", max_speed, above=0)
    features, on_globe = position_features(metadata)
    count = 0 if rows.observations is None else rows.observations.values.shape[1]
    if (
        not features
        and count in (2, 3)
        and not any(np.isfinite(period_of(metadata, at)) for at in range(count))
    ):
        features = list(range(count))
    if not features:
        raise ValueError(
            f"max_speed is of positions, and features are {list(metadata.feature_names or ())}: name the coordinates x "
            "and y, east and north, or longitude and latitude"
        )
    track = _track(rows, features, on_globe, metadata)
    spike = _spikes(track, limit)
    kept = np.flatnonzero(~spike)
    remain = int((track.speed(kept[:-1], kept[1:]) > limit).sum())
    removed = np.zeros(rows.observations.values.shape, bool)
    removed[np.ix_(track.row[spike], features)] = True
    if spike.any() or remain:
        first = f", the first in {_where(rows, track, int(spike.argmax()), place)}" if spike.any() else ""
        warn_user(
            f"max_speed={limit:g}: {spike.sum()} positions{first} were taken as missing, since both the steps to and "
            f"from them are faster; {remain} steps that are faster remain"
        )
    return removed


def _where(rows: Any, track: Track, fix: int, place: Callable[[int], str]) -> str:
    row = track.row[fix]
    when = f"step {rows.frame[row]}" if rows.times is None else f"time {rows.times[row]}"
    return f"sequence {place(int(rows.sequence[row]))} at {when}"


def implausible(rows: Any, known: np.ndarray, metadata: Metadata, place: Callable[[int], str]) -> str | None:
    """What is wrong with positions that are seldom, far too fast there, and back at once; None where there are none.

    `known` (row, feature) says which values there are.
    """
    features, on_globe = position_features(metadata)
    if not features or (np.diff(rows.sequence) < 0).any():
        return None
    track = _track(
        rows._replace(observations=rows.observations._replace(null=~known)), features, on_globe, metadata
    )
    if len(track.row) < 2 or (np.diff(track.clock)[np.diff(track.sequence) == 0] <= 0).any():
        return None
    speed = track.speed(np.arange(len(track.row) - 1), np.arange(1, len(track.row)))
    moving = np.sort(speed[speed > 0])
    if len(moving) < LEAST:
        return None
    usual = moving[int(LARGE * len(moving))]
    units = metadata.feature_units or [""] * (max(features) + 1)
    in_metres = on_globe or units[features[0]] in ("m", "metre", "meter", "metres", "meters")
    of_dates = rows.times is not None and rows.times.dtype.kind in "mM"
    limit = min(max(20 * usual, FAST), FASTEST) if in_metres and of_dates else 50 * usual
    spike = _spikes(track, limit)
    if not spike.any() or (spike.sum() > 1 + RARE * len(spike) and limit != FASTEST):
        return None
    fastest = int(np.argmax(np.where(spike, np.maximum(np.append(0, speed), np.append(speed, 0)), 0)))
    unit = "m/s" if in_metres and of_dates else "per unit of time"
    return (
        f"{spike.sum()} positions are out of reach, such as that of {_where(rows, track, fastest, place)}: steps to "
        f"and from them are faster than {limit:.3g} {unit}, where {usual:.3g} is usual; correct "
        "them, or take them as missing: set them to NaN, or pass max_speed= to from_table"
    )
