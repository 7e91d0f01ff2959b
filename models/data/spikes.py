"""Positions out of reach from those before and after, as devices err, by a speed that the animal does not have."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ethogram.models.arguments import require_number
from ethogram.models.data.angles import great_circle, position_features
from ethogram.models.data.metadata import Metadata

__all__ = ["find_spikes"]

MOST_IN_A_ROW = 3
"""Fixes one after the other that may be spikes: where there are more, the animal was."""

FASTEST = 30.0
"""Metres a second that no animal is taken to go out and back at, where units and times tell its speed."""


def find_spikes(
    values: np.ndarray,
    known: np.ndarray,
    rows: Any,
    metadata: Metadata,
    place: Callable[[int], str],
    max_speed: Any = None,
) -> tuple[np.ndarray, str]:
    """Spikes at ``max_speed`` of `Trajectories.from_table`; where it is None, at FASTEST.

    They are coordinates (row, feature), with a warning, which is empty where there are none; of `values`, which are
    `known`, in rows put together by sequence and in order of time.
    """
    removed = np.zeros_like(values, bool)
    features, on_globe = position_features(metadata, values.shape[1], max_speed is not None)
    if max_speed is not None:
        require_number("max_speed", max_speed, above=0)
        if not features:
            raise ValueError(
                f"max_speed is of positions, and features are {list(metadata.feature_names or ())}: call the "
                "coordinates x and y, east and north, or longitude and latitude"
            )
    if not features:
        return removed, ""
    of_dates = rows.times is not None and rows.times.dtype.kind in "mM"
    unit = (metadata.feature_units or [""] * values.shape[1])[features[0]]
    if max_speed is None and not (of_dates and (on_globe or unit in ("m", "metres", "meters"))):
        return removed, ""
    fixes = np.flatnonzero(known[:, features].all(axis=1))
    own, position = rows.sequence[fixes], values[fixes][:, features].astype(float)
    clock = rows.frame / (metadata.frame_rate or 1) if rows.times is None else rows.times
    clock = (clock - clock[:1]) / np.timedelta64(1, "s") if of_dates else clock.astype(float)
    clock = clock[fixes]

    def speed(start: Any, end: Any) -> Any:
        """Of steps between fixes; 0 between sequences."""
        a, b = position[start], position[end]
        length = 1000 * great_circle(a, b) if on_globe else np.linalg.norm(b - a, axis=-1)
        later = (own[start] == own[end]) & (clock[end] > clock[start])
        return np.where(later, length / np.where(later, clock[end] - clock[start], 1), 0)

    steps = speed(slice(None, -1), slice(1, None))
    limit = FASTEST if max_speed is None else max_speed
    spike = _spikes(
        own, steps > limit, lambda start, end: own[start] == own[end] and speed(start, end) <= limit
    )
    if not spike.any():
        return removed, ""
    removed[np.ix_(fixes[spike], features)] = True
    row = fixes[spike][0]
    what = f"{spike.sum()} positions, the first in sequence {place(int(rows.sequence[row]))} at {rows.when(row)}, "
    if max_speed is not None:
        return removed, f"{what}were taken as missing: steps to and from them exceed max_speed={limit:g}"
    return removed, (
        f"{what}are out of reach: steps to and from them are faster than {limit:g} metres a second; correct them, or "
        "take them as missing: set them to NaN, or pass max_speed="
    )


def _spikes(own: np.ndarray, fast: np.ndarray, reaches: Callable[[int, int], Any]) -> np.ndarray:
    """Which fixes (fix,) of sequences `own` are spikes, of which `fast` steps (fix - 1,) lead to and from them."""
    spike = np.zeros(len(own), bool)
    for before in np.flatnonzero(fast).tolist():
        fix, ahead = before + 1, before + 2
        if spike[before] or spike[fix]:
            continue
        for later in range(ahead, min(ahead + MOST_IN_A_ROW, len(own))):
            if reaches(before, later) and not reaches(later - 1, later):
                spike[fix:later] = True
                break
        else:  # at an end of the sequence there is one step only
            is_first = before == 0 or own[before - 1] != own[fix]
            is_last = ahead == len(own) or own[ahead] != own[fix]
            if is_first and not is_last:
                spike[before] = reaches(fix, ahead) and not reaches(before, ahead)
            elif is_last and not is_first:
                spike[fix] = reaches(before - 1, before) and not reaches(before - 1, fix)
    return spike
