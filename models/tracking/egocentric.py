"""Poses in the frame of the animal: its body where it is, and turned as it is."""

from __future__ import annotations

import dataclasses

import numpy as np

from ethogram.models.arguments import require_one_of, warn_user
from ethogram.models.data.angles import require_planar
from ethogram.models.data.trajectories import Trajectories, check

__all__ = ["egocentric"]

SHORT = 5
"""Frames that the axis of a body points backwards, at most, where its keypoints are swapped."""
OFTEN = 0.1
"""Share of the frames from which on it does so because the animal turns fast, or frames are far apart."""


def egocentric(
    data: Trajectories, *, centre: str, heading: str, keep_motion: bool = False, swapped: str = "warn"
) -> Trajectories:
    """Trajectories of keypoints on a plane, relative to one of them and turned so that another lies on the x axis.

    What becomes constant is left out: both coordinates of `centre`, and ``y`` of `heading`. Frames in which one of the
    two is missing are missing.

    Parameters
    ----------
    data : with features ``NAME.x`` and ``NAME.y``, as readers of poses name them.
    centre, heading : names of keypoints, such as the base of the tail and the nose.
    keep_motion : True adds the features ``forward_speed``, the motion of the centre along the axis of the body since
        the frame before, backwards negative, and ``turning_speed``, that of the axis, between -pi and pi a frame, from
        x towards y positive (where y points down, as in images, clockwise). They are per unit of time, or per frame
        where the frame rate or this unit is unknown, and missing after a frame without them.
    swapped : of frames in which the axis turns by more than a right angle and back within five frames, as where a
        tracker takes the nose for the tail: ``"warn"`` counts them, ``"missing"`` takes them as missing, ``"keep"``
        keeps them. Left in, they become a state of their own, or end bouts.
    """
    check(data)
    require_one_of("swapped", swapped, ("warn", "missing", "keep"))
    names = data.metadata.feature_names or ()
    points = list(dict.fromkeys(name.rpartition(".")[0] for name in names))
    if data.observations is None or list(names) != [f"{point}.{axis}" for point in points for axis in "xy"]:
        raise ValueError(
            f"data have the features {list(names)}: expected NAME.x and NAME.y of each keypoint, on a plane"
        )
    require_planar(data)
    for argument, name in (("centre", centre), ("heading", heading)):
        if name not in points:
            raise ValueError(f"{argument} is {name!r}: the keypoints are {', '.join(points)}")
    if centre == heading:
        raise ValueError(f"centre and heading are both {centre!r}: give two keypoints")
    places = np.array(data.observations, float)
    dtype = np.asarray(data.observations).dtype
    dtype = dtype if dtype.kind == "f" else np.dtype(float)
    shape = places.shape
    places = places.reshape(*shape[:2], len(points), 2)
    places[~np.asarray(data.observed)] = np.nan
    rounding = 4 * np.finfo(dtype).eps * np.nanmax(np.abs(places), initial=0)
    ends = (places[:, :, points.index(name)] for name in (heading, centre))
    places = _without_swaps(places, np.subtract(*ends), (heading, centre), swapped)
    moved = np.diff(places[:, :, points.index(centre)], axis=1)
    places = places - places[:, :, [points.index(centre)]]
    ahead = places[:, :, points.index(heading)]
    length = np.hypot(ahead[..., 0], ahead[..., 1])
    length[length <= rounding] = np.nan  # both keypoints coincide
    cosine, sine = ahead[..., 0] / length, ahead[..., 1] / length
    turn = np.stack([np.stack([cosine, sine], -1), np.stack([-sine, cosine], -1)], -2)
    turned = np.einsum("nfab,nfkb->nfka", turn, places)
    gone = {f"{centre}.x", f"{centre}.y", f"{heading}.y"}
    kept = [place for place, name in enumerate(names) if name not in gone]
    values = turned.reshape(shape)[..., kept]
    kept_names = [names[place] for place in kept]
    units = data.metadata.feature_units
    kept_units = None if units is None else [units[place] for place in kept]
    if keep_motion:
        rate, per = data.metadata.frame_rate, data.metadata.time_unit
        rate, per = (rate, per) if rate and per else (1, "frame")
        values = np.concatenate([values, rate * _motion(moved, np.arctan2(sine, cosine))], axis=-1)
        kept_names += ["forward_speed", "turning_speed"]
        speed = f"{units[0] if units else ''}/{per}".lstrip("/")
        kept_units = [*(kept_units or [""] * len(kept)), speed, f"rad/{per}"]
    observed = np.asarray(data.observed) & ~np.isnan(values).all(-1)
    metadata = dataclasses.replace(data.metadata, feature_names=kept_names, feature_units=kept_units)
    inside = np.arange(shape[1]) < np.asarray(data.lengths)[:, None]
    values = np.where(inside[..., None], values, 0).astype(dtype)
    return data._replace(observations=values, observed=observed, metadata=metadata)


def _without_swaps(places: np.ndarray, ahead: np.ndarray, names: tuple[str, str], swapped: str) -> np.ndarray:
    """Places (sequence, time, keypoint, axis), of which those of swapped frames are missing, or counted."""
    found = np.zeros(ahead.shape[:2], bool)
    for row, axis in zip(found, ahead, strict=True):
        known = np.flatnonzero(np.hypot(*axis.T) > 0)
        turned = np.flatnonzero((axis[known][1:] * axis[known][:-1]).sum(-1) < 0)
        at = 0
        while at < len(turned) - 1:
            before, first = known[turned[at] : turned[at] + 2]
            last, after = known[turned[at + 1] : turned[at + 1] + 2]
            # else the animal may have turned while it was not seen
            sudden = min(first - before, after - last) == 1
            brief = sudden and turned[at + 1] - turned[at] <= SHORT
            if brief:
                row[first : last + 1] = True
            at += 1 + int(brief)
    number, frames = int(found.sum()), int((np.hypot(ahead[..., 0], ahead[..., 1]) > 0).sum())
    if swapped == "missing":
        places[found] = np.nan
    elif swapped == "warn" and 0 < number < OFTEN * frames:
        sequence, frame = (int(each[0]) for each in np.nonzero(found))
        warn_user(
            f"in {number} of {frames} frames the axis from {names[1]} to {names[0]} points backwards, at most {SHORT} "
            f"in a row, first in frame {frame} of sequence {sequence}: where keypoints are swapped, give egocentric "
            'swapped="missing", else "keep"'
        )
    return places


def _motion(moved: np.ndarray, direction: np.ndarray) -> np.ndarray:
    """Forward and turning motion (sequence, time, 2) since the frame before, of steps (sequence, time - 1, 2).

    Forward is along the direction halfway between those of both frames, as the chord of an arc is.
    """
    turn = np.pi - (np.pi - np.diff(direction, axis=1)) % (2 * np.pi)
    halfway = direction[:, :-1] + turn / 2
    forward = moved[..., 0] * np.cos(halfway) + moved[..., 1] * np.sin(halfway)
    return np.pad(np.stack([forward, turn], axis=-1), [(0, 0), (1, 0), (0, 0)], constant_values=np.nan)
