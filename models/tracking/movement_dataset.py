"""Datasets of the package movement: poses and bounding boxes in xarray, in memory or as netCDF files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ethogram.models.arguments import warn_user
from ethogram.models.data.file_names import NameRule, existing_file, is_path
from ethogram.models.data.times import SECOND, rate_of_times
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.tracking.pose import Poses, pose_trajectories, read_poses

__all__ = ["from_movement"]

DIMS = {"individual": ("individual", "individuals"), "keypoint": ("keypoint", "keypoints")}
"""Names of dims in releases of movement."""
CENTRE = "centre"
"""Name of the keypoint of bounding boxes."""


def from_movement(
    dataset: Any,
    *,
    frame_rate: float | int | None = None,
    min_confidence: float | int = 0.0,
    keypoints: Sequence[str] | None = None,
    individuals: Sequence[str] | None = None,
    unit: str = "pixels",
    agent: NameRule | None = None,
    group: NameRule | None = None,
    subject: NameRule | None = None,
) -> Trajectories:
    """Trajectories of datasets of movement: one sequence per individual, those of a dataset in one group.

    Parameters
    ----------
    dataset : with ``position`` (time, space, keypoint, individual), or without keypoints for the centres of bounding
        boxes, and ``confidence`` where known; or the path of its ``.nc`` file, a pattern, or a list
        of paths.
    frame_rate : frames per second; where None that of times in seconds, or the attribute ``fps`` of the dataset. Where
        they differ, as after taking every other frame, the times count, with a warning.
    min_confidence : in [0, 1], below which a keypoint is missing in that frame; unknown confidence counts as enough.
    keypoints, individuals : names to read, in this order; all by default.
    unit : of the positions.
    agent, group, subject : labels of the files, as in `read_deeplabcut`.
    """
    settings: Any = {"threshold": ("min_confidence", min_confidence), "frame_rate": None}
    settings |= {"keypoints": keypoints, "individuals": individuals, "unit": unit}
    rules = {"agent": agent, "group": group, "subject": subject}
    if is_path(dataset) or isinstance(dataset, list | tuple):
        return read_poses(dataset, lambda path: _poses(_loaded(path), frame_rate), rules=rules, **settings)
    if given := [name for name, rule in rules.items() if rule is not None]:
        raise ValueError(f"{given[0]} is of files, and dataset is {type(dataset).__name__}: give paths")
    return pose_trajectories(_poses(dataset, frame_rate), **settings)


def _poses(dataset: Any, frame_rate: float | int | None) -> Poses:
    if not hasattr(dataset, "data_vars") or "position" not in dataset:
        raise TypeError(
            f"dataset is {type(dataset).__name__} without a variable position: give a dataset of movement"
        )
    position = dataset["position"]
    found: dict[str, Any] = {
        name: next((dim for dim in spellings if dim in position.dims), None)
        for name, spellings in DIMS.items()
    }
    if found["individual"] is None or not {"time", "space"} <= set(position.dims):
        raise ValueError(
            f"position has the dims {position.dims}: expected time, space, keypoints and individuals"
        )
    single = found["keypoint"] is None
    points = [CENTRE] if single else _names(dataset, found["keypoint"])
    wanted = ["time", found["individual"], *([] if single else [found["keypoint"]])]
    places = position.sel(space=_axes(position)).transpose(*wanted, "space").values
    confidence = dataset["confidence"].transpose(*wanted).values if "confidence" in dataset else None
    if single:
        places = places[:, :, None]
        confidence = None if confidence is None else confidence[:, :, None]
    name = Path(str(dataset.attrs.get("source_file") or "recording")).name.partition(".")[0]
    animals = _names(dataset, found["individual"])
    return Poses(places, confidence, animals, points, name, _frame_rate(dataset, frame_rate))


def _loaded(path: str | os.PathLike) -> Any:
    """The dataset of a file, which counts as its source where none is named."""
    import xarray

    found = existing_file(path, (".nc", ".h5", ".hdf5"), "give a netCDF file of movement")
    try:
        dataset = xarray.load_dataset(found, engine="h5netcdf")
    except (OSError, ValueError) as error:
        raise ValueError(f"{found} cannot be read: {error}") from error
    return dataset.assign_attrs(source_file=dataset.attrs.get("source_file") or found.name)


def _names(dataset: Any, dim: str) -> list[str]:
    if dim in dataset.coords:
        return [str(name) for name in dataset[dim].values]
    return [f"{dim} {number}" for number in range(dataset.sizes[dim])]


def _axes(position: Any) -> list[str]:
    axes = sorted(str(axis) for axis in position["space"].values) if "space" in position.coords else []
    if axes not in (["x", "y"], ["x", "y", "z"]):
        raise ValueError(f"position has the space coordinates {axes}: expected x, y and perhaps z")
    return axes


def _frame_rate(dataset: Any, asked: float | int | None) -> float | int | None:
    """Frames a second: as asked, else of times in seconds, else by the attribute for times in frames.

    A ValueError where times do not advance equally.
    """
    times = dataset["time"].values if "time" in dataset.coords else np.zeros(0)
    dates = times.dtype.kind in "mM"
    times = (times - times[:1]) / SECOND if dates else np.asarray(times, float)
    gaps = np.diff(times)
    if len(gaps) and not np.allclose(gaps, gaps[0], rtol=1e-3):
        row = int(np.argmax(abs(gaps - gaps[0])))
        raise ValueError(
            f"times {times[row]:g} and {times[row + 1]:g} are not {gaps[0]:g} apart: resample them first"
        )
    if len(gaps) and not gaps[0] > 0:
        raise ValueError(f"times {times[0]:g} and {times[1]:g} do not increase: sort them first")
    stated = dataset.attrs.get("fps")
    if not (isinstance(stated, int | float | np.number) and np.isfinite(stated) and stated > 0):
        if stated is not None and asked is None:
            warn_user(f"the attribute fps of dataset is {stated!r}, which is no frame rate: pass frame_rate=")
        stated = None
    unit = str(dataset.attrs.get("time_unit", ""))
    if asked is not None or not len(gaps):
        return stated if asked is None else asked
    gap = float(gaps.mean())
    if unit.startswith("frame") or (not dates and not unit and gap == round(gap)):
        return None if stated is None else stated / gap
    if dates or unit.startswith("sec") or (not unit and stated is not None):
        return rate_of_times(gap, stated, "the attribute fps of dataset")
    return stated
