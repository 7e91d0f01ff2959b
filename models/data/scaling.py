"""Observations relative to the centre of their group, or in standard deviations, with names and units that say so."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
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
    moved = values.copy()
    _subtract(data, moved, values, seen, by, _averaged(np.nanmean if center == "mean" else np.nanmedian))
    names = [f"{name} relative to the {by} {center}" for name in _feature_names(data, values)]
    return _replaced(data, moved, seen, feature_names=names)


def _averaged(average: Callable[..., Any]) -> Callable[..., Any]:
    """An average (1, ...) over an axis that is NaN, without a warning, where all is missing."""

    def known(values: np.ndarray, axis: int) -> np.ndarray:
        missing = np.isnan(values).all(axis, keepdims=True)
        if not values.size:
            return np.full(missing.shape, np.nan)
        return np.where(missing, np.nan, average(np.where(missing, 0.0, values), axis, keepdims=True))

    return known


def _subtract(
    data: Any, moved: np.ndarray, values: np.ndarray, seen: np.ndarray, by: str, average: Callable[..., Any]
) -> None:
    """Subtract from ``moved``, in place, the average of the features that are not missing."""
    if by == "all":
        moved -= average(values[seen], 0)
    elif by == "sequence":
        known = seen.any(axis=1)
        present = np.where(seen[known][..., None], values[known], np.nan)
        moved[known] -= average(present, 1)
    else:
        unit = np.unique(group_labels(data), return_inverse=True)[1]
        for members in np.split(np.argsort(unit, kind="stable"), np.cumsum(np.bincount(unit))[:-1]):
            frames = seen[members].any(axis=0)
            present = np.where(seen[members][..., None], values[members], np.nan)[:, frames]
            moved[np.ix_(members, frames)] -= average(present, 0)


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
