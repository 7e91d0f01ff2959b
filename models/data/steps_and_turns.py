"""Step lengths and turning angles of movement, from positions."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from ethogram.models.arguments import require_number, require_one_of
from ethogram.models.data.angles import EARTH_RADIUS, coordinates_of, great_circle, heading
from ethogram.models.data.outliers import warn_of_unobserved
from ethogram.models.data.selection import first_steps
from ethogram.models.data.trajectories import Trajectories, check

__all__ = ["EARTH_RADIUS", "step_and_turn"]


def step_and_turn(
    positions: Trajectories,
    *,
    coordinates: str | None = None,
    zero_steps: str = "error",
    smallest: Any = None,
) -> Trajectories:
    r"""Step lengths and turning angles, as data of two features, ``step`` and ``turn``, of one frame less.

    .. math:: \text{step}_t = \lvert p_{t+1} - p_t \rvert, \qquad
              \text{turn}_t = \text{bearing}(p_t, p_{t+1}) - \text{bearing}(p_{t-1}, p_t) \in (-\pi, \pi]

    Frame t has the step from t to t + 1, and the turn at t, counterclockwise positive. The first turn of a sequence is
    missing (NaN), and so is every turn beside a step of length zero, which has no direction. A step within the rounding
    of the positions has length zero. A frame without a step, since one of its ends was not recorded, is a missing
    frame.

    Parameters
    ----------
    positions : observations (sequence, time, 2): x and y, or longitude and latitude in degrees.
    coordinates : ``"planar"``: steps have the unit of the positions; ``"lonlat"``: great-circle distances in
        kilometres, and turns between the bearing of arrival and that of departure. None takes ``"lonlat"`` where the
        units of the positions are degrees, or without units where their names are longitude and latitude; else
        ``"planar"``.
    zero_steps : ``"error"`` refuses steps of length zero, which a `GammaEmission` cannot have; ``"missing"`` makes them
        missing; ``"offset"`` gives them the length `smallest`; ``"keep"`` keeps them.
    smallest : for ``"offset"``, a positive length in the unit of the steps, such as half of the resolution.

    Returns
    -------
    Trajectories
        With lengths one less, and the labels, times, states, actions and covariates of the frames that steps begin in.

    References
    ----------
    Langrock, King, Matthiopoulos, Thomas, Fortin, Morales (2012), "Flexible and practical modeling of animal telemetry
    data: hidden Markov models and extensions", section 2.

    Examples
    --------
    >>> track = Trajectories.from_list([[[0.0, 0.0], [1.0, 0.0], [1.0, 2.0]]])
    >>> step_and_turn(track).observations.round(3).tolist()
    [[[1.0, nan], [2.0, 1.571]]]
    """
    if not isinstance(positions, Trajectories):
        raise TypeError(f"positions is {type(positions).__name__}: give Trajectories")
    check(positions)
    require_one_of("coordinates", coordinates, (None, "planar", "lonlat"))
    require_one_of("zero_steps", zero_steps, ("error", "missing", "offset", "keep"))
    if (zero_steps == "offset") != (smallest is not None):
        raise ValueError(
            'smallest is the length of steps of zero: give it with zero_steps="offset", and only there'
        )
    if smallest is not None:
        smallest = require_number("smallest", smallest, above=0)
    if positions.observations is None or positions.observations.shape[-1] != 2:
        came = None if positions.observations is None else positions.observations.shape
        raise ValueError(
            f"positions has observations {came}: give (sequence, time, 2), x and y or lon and lat"
        )
    if positions.observations.shape[1] < 2:
        raise ValueError("positions has sequences of one frame: a step needs two")
    units = positions.metadata.feature_units
    stated = coordinates_of(positions.metadata, "positions are")
    if coordinates and stated and units and coordinates != stated:
        raise ValueError(
            f'coordinates is "{coordinates}", but positions are in {units[0]!r}: leave coordinates out, or correct the '
            "units"
        )
    coordinates = coordinates or stated or "planar"
    dtype = np.asarray(positions.observations).dtype
    dtype = dtype if dtype.kind == "f" else np.dtype(float)
    x, seen = np.asarray(positions.observations, float), np.asarray(positions.observed)
    x = np.where(seen[..., None], x, np.nan)
    for place, name, most, fix in (
        (1, "latitudes", 90, "longitude first, then latitude"),
        (0, "longitudes", 360, 'degrees, or coordinates="planar" for lengths'),
    ):
        if coordinates == "lonlat" and np.nanmax(np.abs(x[..., place]), initial=0) > most:
            raise ValueError(f"positions has {name} beyond {most} degrees: give {fix}")
    step, leaving, arriving = (_planar if coordinates == "planar" else _great_circle)(x)
    rounding = 4 * np.finfo(dtype).eps * np.nanmax(np.abs(x), axis=(1, 2), initial=0)[:, None]
    zero = step <= (rounding if coordinates == "planar" else EARTH_RADIUS * np.deg2rad(rounding))
    if zero.any() and zero_steps == "error":
        row, time = np.argwhere(zero)[0].tolist()
        raise ValueError(
            f"positions[{row}, {time}] and the one after are equal, one of {zero.sum()} steps of length zero or within "
            'rounding: pass zero_steps="missing", or "offset" with smallest= half of the resolution of the positions'
        )
    turn = np.full(step.shape, np.nan)
    turn[:, 1:] = -((arriving[:, :-1] - leaving[:, 1:] + np.pi) % (2 * np.pi) - np.pi)
    turn[zero] = np.nan
    turn[:, 1:][zero[:, :-1]] = np.nan
    step = np.where(zero, {"missing": np.nan, "offset": smallest}.get(zero_steps, 0), step)
    observed = seen[:, :-1] & ~np.isnan(step)
    found = np.stack([step, turn], axis=-1).astype(dtype)

    length = "km" if coordinates == "lonlat" else ("" if units is None else units[0])
    names: Any = {"feature_names": ("step", "turn"), "feature_units": (length, "rad")}
    lengths = np.maximum(np.asarray(positions.lengths) - 1, 0)
    inside = np.arange(observed.shape[1]) < lengths[:, None]
    observed &= inside
    warn_of_unobserved(observed, positions.agent, positions.metadata.agent_names)
    left = first_steps(positions, observed.shape[1])
    if left.covariates is not None:
        left = left._replace(covariates=np.where(inside[..., None], left.covariates, 0))
    return left._replace(
        observations=found,
        lengths=lengths.astype(np.asarray(positions.lengths).dtype),
        observed=observed,
        metadata=dataclasses.replace(positions.metadata, **names),
    )


def _planar(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Lengths (sequence, step), and directions at their beginning and end, counterclockwise."""
    move = np.diff(x, axis=1)
    direction = np.arctan2(move[..., 1], move[..., 0])
    return np.hypot(move[..., 0], move[..., 1]), direction, direction


def _great_circle(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The same on a sphere; directions are counterclockwise from east."""
    lon, lat = np.deg2rad(x[..., 0]), np.deg2rad(x[..., 1])
    before, after = (lon[:, :-1], lat[:, :-1]), (lon[:, 1:], lat[:, 1:])
    return great_circle(x[:, :-1], x[:, 1:]), heading(*before, *after), heading(*after, *before) + np.pi
