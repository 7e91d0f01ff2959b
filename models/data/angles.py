"""Units that say that a feature is an angle, or that features are positions on the globe."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np

from ethogram.models.data.metadata import Metadata

__all__ = [
    "EARTH_RADIUS",
    "RADIANS",
    "coordinates_of",
    "great_circle",
    "heading",
    "period_of",
    "position_features",
    "refuse_angles",
    "require_planar",
    "wrapped",
]

EARTH_RADIUS = 6371.0088
"""Mean radius of the Earth in kilometres (IUGG)."""

RADIANS = ("rad", "rads", "radian", "radians")
DEGREES = ("deg", "degs", "degree", "degrees", "decdeg", "arc_degree", "arcdegree", "\N{DEGREE SIGN}")
EAST, NORTH = (
    re.compile(rf"(degrees?|deg|\N{{DEGREE SIGN}})[ _]?({side})") for side in ("east|e", "north|n")
)
LONGITUDE, LATITUDE = (
    re.compile(rf"(.*[^a-z])?({name})([^a-z].*)?") for name in ("longitude|long|lon|lng", "latitude|lat")
)
SIDES = tuple(re.compile(rf"(.*[^a-z])?{side}(ing)?([^a-z].*)?") for side in ("east", "north"))
AXES = tuple(re.compile(rf"(.*[^a-z])?{axis}([^a-z].*)?") for axis in "xy")
AXIS = re.compile(r"(.*[^a-z])?[xyz]")


def _each(metadata: Metadata) -> list[tuple[str, str]]:
    """Name and unit of each feature in small letters, empty where unknown."""
    names, units = metadata.feature_names or (), metadata.feature_units or ()
    count = max(len(names), len(units))
    names, units = names or ("",) * count, units or ("",) * count
    return [(name.lower(), _spelling(unit)) for name, unit in zip(names, units, strict=True)]


def _spelling(unit: str) -> str:
    plain = unit.lower().replace("decimal", "").replace("\N{MASCULINE ORDINAL INDICATOR}", "\N{DEGREE SIGN}")
    return plain.strip(" _.()[]")


def period_of(metadata: Metadata, place: int) -> float:
    """Length of a turn in the unit of a feature that is an angle or a longitude; infinite for others."""
    name, unit = (_each(metadata) or [("", "")] * (place + 1))[place]
    if unit in RADIANS:
        return 2 * math.pi
    of_turn = unit in DEGREES or EAST.fullmatch(unit) or (not unit and LONGITUDE.fullmatch(name))
    return 360.0 if of_turn else math.inf


def great_circle(start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Kilometres (...) between longitudes and latitudes (..., 2) in degrees, by the haversine formula."""
    before, after = np.deg2rad(start), np.deg2rad(end)
    half = np.sin((after - before) / 2) ** 2
    half = half[..., 1] + np.cos(before[..., 1]) * np.cos(after[..., 1]) * half[..., 0]
    return 2 * EARTH_RADIUS * np.arcsin(np.minimum(np.sqrt(half), 1))


def heading(lon: Any, lat: Any, to_lon: np.ndarray, to_lat: np.ndarray) -> np.ndarray:
    """Direction in which the great circle to another point leaves, counterclockwise from east."""
    east = np.cos(to_lat) * np.sin(to_lon - lon)
    north = np.cos(lat) * np.sin(to_lat) - np.sin(lat) * np.cos(to_lat) * np.cos(to_lon - lon)
    return np.arctan2(north, east)


def position_features(metadata: Metadata, count: int, any_two: bool = False) -> tuple[list[int], bool]:
    """Which of `count` features are coordinates, and whether they are degrees on the globe; none where unclear.

    They are called longitude and latitude, east and north, or x and y; two features may be in degrees, or `any_two`.
    """
    each = _each(metadata)
    for kinds in ((LONGITUDE, LATITUDE), SIDES, AXES):
        found = [[place for place, (name, _) in enumerate(each) if kind.fullmatch(name)] for kind in kinds]
        if all(len(places) == 1 for places in found):
            units = {each[place][1] for (place,) in found} - {"", *DEGREES}
            return [place for (place,) in found], kinds[0] is LONGITUDE and not units
    degrees = len(each) == 2 and all(unit in DEGREES for _, unit in each)
    angles = any(math.isfinite(period_of(metadata, place)) for place in range(count))
    return ([0, 1], degrees) if degrees or (any_two and count == 2 and not angles) else ([], False)


def wrapped(angles: np.ndarray, period: float, like: np.ndarray) -> np.ndarray:
    """Angles between -period / 2 and period / 2 where some of `like` is negative, else between 0 and period."""
    lowest = -period / 2 if np.nanmin(like, initial=0) < 0 else 0.0
    above = (angles - lowest) % period
    return lowest + np.where(above < period, above, 0)  # of -1e-16 the remainder rounds to the period


def refuse_angles(data: Any, fault: str, fix: str, *, only_degrees: bool = False) -> None:
    """Raise ValueError ``feature NAME is in UNIT, FAULT: CURE`` where a feature is an angle by its unit.

    Degrees of a longitude, of a latitude or along an axis (``x``, ``nose.y``) are positions, not those of a turn.
    """
    for place, (name, unit) in enumerate(_each(data.metadata)):
        position = any(kind.fullmatch(name) for kind in (LONGITUDE, LATITUDE, AXIS))
        if (unit in DEGREES and not position) or (unit in RADIANS and not only_degrees):
            names, units = data.metadata.feature_names, data.metadata.feature_units
            raise ValueError(
                f"feature {names[place] if names else place!r} is in {units[place]!r}, {fault}: {fix}"
            )


def coordinates_of(metadata: Metadata, what: str) -> str | None:
    """Whether coordinates are ``"planar"`` or ``"lonlat"``, by their units, else by their names; None where unknown.

    Messages begin with `what`.
    """
    each = _each(metadata)
    known = {unit for _, unit in each if unit}
    if known & {*RADIANS}:
        raise ValueError(f"{what} in radians: give longitude and latitude in degrees, by np.rad2deg")
    on_globe = {unit for unit in known if unit in DEGREES or EAST.fullmatch(unit) or NORTH.fullmatch(unit)}
    if known and known != on_globe:
        if len(known) > 1:
            raise ValueError(f"{what} in {' and '.join(sorted(known))}: give all coordinates in one unit")
        return "planar"
    if not on_globe and not all(LONGITUDE.fullmatch(name) or LATITUDE.fullmatch(name) for name, _ in each):
        return None
    if each and (LATITUDE.fullmatch(each[0][0]) or NORTH.fullmatch(each[0][1])):
        raise ValueError(f"{what} with latitude first: give longitude first, then latitude")
    if any(" relative to the " in name for name, _ in each):
        raise ValueError(
            f"{what} degrees relative to a centre: give longitude and latitude themselves, or metres"
        )
    return "lonlat" if each else None


def require_planar(data: Any) -> None:
    """Raise ValueError where the features of trajectories are positions on the globe, or in several units."""
    if coordinates_of(data.metadata, "data are") == "lonlat":
        raise ValueError(
            "data are longitudes and latitudes in degrees, not on a plane: project them to metres first, as "
            "read_movebank(..., metres=True) does"
        )
