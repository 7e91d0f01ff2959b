"""Short gaps filled in: what is missing for a few frames lies on a line between the frames before and after."""

from __future__ import annotations

from typing import Any

import numpy as np

from ethogram.models.arguments import require_integer
from ethogram.models.data.angles import period_of, wrapped
from ethogram.models.data.padding import as_floats
from ethogram.models.data.times import step_length
from ethogram.models.data.trajectories import Trajectories, check

__all__ = ["interpolate"]


def interpolate(data: Trajectories, *, max_gap: int | str | Any) -> Trajectories:
    """Trajectories whose features are interpolated linearly where they are missing for a few frames.

    Angles, which units of radians or degrees say, and longitudes take the shorter way. Longer gaps and what is missing
    before the first or after the last value of a sequence stay missing; so do states and actions. Frames that get a
    value count as observed, and have their times.

    Parameters
    ----------
    data : with observations.
    max_gap : most missing frames in a row; or, where the frame rate is in seconds, a duration such as ``"2h"`` or a
        ``timedelta`` that they last at most.

    Examples
    --------
    >>> data = Trajectories.from_list([[0.0, float("nan"), 2.0, float("nan")]], missing="nan")
    >>> interpolate(data, max_gap=1).observations[0, :, 0].tolist()
    [0.0, 1.0, 2.0, nan]
    """
    check(data)
    if data.observations is None:
        raise ValueError("data.observations is None: there is nothing to interpolate")
    rate, unit = data.metadata.frame_rate, data.metadata.time_unit
    if isinstance(max_gap, int | np.integer):
        most = require_integer("max_gap", max_gap, 0)
    elif rate is None or unit != "s":
        raise ValueError(
            f"max_gap is {max_gap!r}, and data have no frame rate in seconds: give a number of frames"
        )
    else:
        most = int(step_length(max_gap, np.zeros(0, "m8[s]"), "max_gap") * rate + 1e-6)
    x, seen = as_floats(np.asarray(data.observations)), np.asarray(data.observed)
    frame = np.arange(x.shape[1])
    known = seen[..., None] & ~np.isnan(x)
    filled = [
        _filled(x[..., feature], known[..., feature], most, period_of(data.metadata, feature))
        for feature in range(x.shape[2])
    ]
    observations = np.where(known, x, np.stack(filled, axis=-1)).astype(x.dtype)
    inside = frame < np.asarray(data.lengths)[:, None]
    observed = inside & ~np.isnan(observations).all(axis=-1)
    observations = np.where(inside[..., None], observations, 0).astype(x.dtype)
    times = None if data.times is None else np.asarray(data.times)
    if times is not None and seen.any():
        since = times[seen].min()  # of nanoseconds since 1970, floats have no single ones
        between = _filled(times - since, seen, len(frame), np.inf)
        between = between if times.dtype.kind == "f" else np.nan_to_num(between).round().astype(times.dtype)
        times = np.where(observed & ~seen, since + between, times)
    return data._replace(observations=observations, observed=observed, times=times)


def _filled(x: np.ndarray, known: np.ndarray, most: int, period: float) -> np.ndarray:
    """Values (sequence, time) on lines between those that are `known`, in gaps of at most `most`; NaN elsewhere."""
    frame, count = np.arange(x.shape[1]), x.shape[1]
    before = np.maximum.accumulate(np.where(known, frame, -1), axis=1)
    after = np.minimum.accumulate(np.where(known, frame, count)[:, ::-1], axis=1)[:, ::-1]
    left, right = (np.take_along_axis(x, at.clip(0, count - 1), 1) for at in (before, after))
    step = right - left
    if np.isfinite(period):
        step = (step + period / 2) % period - period / 2
    values = left + step * ((frame - before) / np.maximum(after - before, 1))
    if np.isfinite(period):
        values = wrapped(values, period, x[known])
    return np.where((before >= 0) & (after < count) & (after - before <= most + 1), values, np.nan)
