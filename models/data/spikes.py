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

LARGE, LEAST, RARE = 0.95, 20, 0.02
"""The usual speed is one that the share LARGE of LEAST steps or more other than zero do not exceed; errors are RARE."""

FAR, FAST, FASTEST = 50.0, 20.0, 50.0
"""Implausible speeds: FAR usual ones; of metres a second FAST ones if 20 usual ones are less, and always FASTEST."""


def find_spikes(
    values: np.ndarray,
    known: np.ndarray,
    rows: Any,
    metadata: Metadata,
    place: Callable[[int], str],
    max_speed: Any = None,
    any_two: bool = False,
) -> tuple[np.ndarray, str]:
    """Spikes at ``max_speed`` of `Trajectories.from_table`; where it is None, at a speed that is implausible.

    They are coordinates (row, feature), with a warning, which is empty where there are none.

    Parameters
    ----------
    values, known : (row, feature) observations, and which of them there are.
    any_two : whether two features are positions, whatever they are called.
    rows : sequences, frames and times, put together by sequence and in order of time.
    """
    removed = np.zeros_like(values, bool)
    features, on_globe = position_features(metadata, values.shape[1], any_two or max_speed is not None)
    if max_speed is not None:
        require_number("max_speed", max_speed, above=0)
        if not features:
            raise ValueError(
                f"max_speed is of positions, and features are {list(metadata.feature_names or ())}: call the "
                "coordinates x and y, east and north, or longitude and latitude"
            )
    if not features:
        return removed, ""
    fixes = np.flatnonzero(known[:, features].all(axis=1))
    own, position = rows.sequence[fixes], values[fixes][:, features].astype(float)
    of_dates = rows.times is not None and rows.times.dtype.kind in "mM"
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
    limit, usual = max_speed, np.inf
    if max_speed is None:
        moving = np.sort(steps[steps > 0])
        if len(moving) < LEAST:
            return removed, ""
        usual = moving[int(LARGE * len(moving))]
        unit = (metadata.feature_units or [""] * values.shape[1])[features[0]]
        in_metres = of_dates and (on_globe or unit in ("m", "metres", "meters"))
        limit = min(max(20 * usual, FAST), FASTEST) if in_metres else FAR * usual
    spike = _spikes(
        own, steps > limit, lambda start, end: own[start] == own[end] and speed(start, end) <= limit
    )
    if not spike.any() or (max_speed is None and spike.mean() > RARE and limit != FASTEST):
        return removed, ""
    removed[np.ix_(fixes[spike], features)] = True
    row = fixes[spike][0]
    when = f"step {rows.frame[row]}" if rows.times is None else f"time {rows.times[row]}"
    what = f"{spike.sum()} positions, the first in sequence {place(int(rows.sequence[row]))} at {when}, "
    if max_speed is not None:
        return removed, f"{what}were taken as missing: steps to and from them exceed max_speed={limit:g}"
    return removed, (
        f"{what}are out of reach: steps to and from them are faster than {limit:.3g}, and {usual:.3g} is usual; "
        "correct them, or take them as missing: set them to NaN, or pass max_speed="
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
            is_first, is_last = (
                before == 0 or own[before - 1] != own[fix],
                ahead == len(own) or own[ahead] != own[fix],
            )
            spike[before] = is_first and not is_last and reaches(fix, ahead) and not reaches(before, ahead)
            spike[fix] = (
                is_last and not is_first and reaches(before - 1, before) and not reaches(before - 1, fix)
            )
    return spike
