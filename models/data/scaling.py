"""Observations relative to the centre of their group, or in standard deviations, with names and units that say so."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from ethogram.models.arguments import require_one_of
from ethogram.models.data.angles import refuse_angles
from ethogram.models.data.padding import as_floats
from ethogram.models.data.selection import group_labels

__all__ = ["centred", "standardised"]


def centred(data: Any, by: str, center: str) -> Any:
    """See `Trajectories.centred`."""
    require_one_of("by", by, ("group", "sequence", "all"))
    require_one_of("center", center, ("mean", "median"))
    values, seen = _values(data)
    present = np.where(seen[..., None], values, np.nan)
    if by == "all":
        moved = values - _average(center, values[seen], 0)
    elif by == "sequence":
        moved = values - _average(center, present, 1)
    else:
        moved, unit = values.copy(), np.unique(group_labels(data), return_inverse=True)[1]
        for members in np.split(np.argsort(unit, kind="stable"), np.cumsum(np.bincount(unit))[:-1]):
            moved[members] -= _average(center, present[members], 0)
    names = [f"{name} relative to the {by} {center}" for name in _feature_names(data, values)]
    return _replaced(data, moved, seen, feature_names=names)


def _average(center: str, values: np.ndarray, axis: int) -> np.ndarray:
    """Mean or median over an axis, which stays; NaN, without a warning, where all is missing."""
    average = np.nanmean if center == "mean" else np.nanmedian
    missing = np.isnan(values).all(axis, keepdims=True)
    return np.where(missing, np.nan, average(np.where(missing, 0.0, values), axis, keepdims=True))


def standardised(data: Any) -> Any:
    """See `Trajectories.standardised`."""
    values, seen = _values(data)
    known = [column[~np.isnan(column)] for column in values[seen].T]
    mean = np.array([column.mean() if column.size else 0.0 for column in known])
    spread = np.array([column.std() if column.size and np.ptp(column) > 0 else 1.0 for column in known])
    units = data.metadata.feature_units or ("",) * len(mean)
    names = [
        f"{name} less {m:.6g} {unit}".rstrip()
        for name, m, unit in zip(_feature_names(data, values), mean, units, strict=True)
    ]
    scales = [f"SD of {s:.6g} {unit}".rstrip() for s, unit in zip(spread, units, strict=True)]
    return _replaced(data, (values - mean) / spread, seen, feature_names=names, feature_units=scales)


def _values(data: Any) -> tuple[np.ndarray, np.ndarray]:
    """Observations in double precision, and which frames were observed; a ValueError where there are none."""
    if data.observations is None:
        raise ValueError("data.observations is None: there is nothing to centre or to scale")
    observations, seen = np.asarray(data.observations), np.asarray(data.observed)
    refuse_angles(
        data, "and angles have no linear mean", "centre and scale the other features before joining them"
    )
    if not seen.any():
        raise ValueError("data.observed is False everywhere: no observed frame gives a centre")
    return observations.astype(float), seen


def _feature_names(data: Any, values: np.ndarray) -> tuple[str, ...]:
    return data.metadata.feature_names or tuple(f"feature {i}" for i in range(values.shape[-1]))


def _replaced(data: Any, values: np.ndarray, seen: np.ndarray, **metadata: Any) -> Any:
    """The data with other values in observed frames, in their precision (of integers the double one)."""
    observations = as_floats(np.asarray(data.observations))
    values = np.where(seen[..., None], values, observations).astype(observations.dtype)
    return data._replace(observations=values, metadata=dataclasses.replace(data.metadata, **metadata))
