"""Files of SLEAP: its analysis file in HDF5, and projects or predictions as ``.slp``.

An analysis file holds ``tracks`` (track, axis, node, frame), in the order of MATLAB, or in that which the attribute
``dims`` names; ``point_scores`` with the same axes but the second; ``node_names`` and ``track_names``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ethogram.models.data.trajectories import Trajectories
from ethogram.models.tracking.pose import Poses, existing_file, pose_trajectories

__all__ = ["read_sleap"]

MATLAB = ("track", "xy", "node", "frame")
PYTHON = ("frame", "node", "xy", "track")
"""Axes of files without names of them, by their attribute ``transpose``."""


def read_sleap(
    path: str | os.PathLike,
    *,
    frame_rate: float | int | None = None,
    min_score: float | int = 0.0,
    keypoints: Sequence[str] | None = None,
    individuals: Sequence[str] | None = None,
) -> Trajectories:
    """Trajectories of a file of SLEAP: one sequence a track, in one group.

    Features are ``nose.x``, ``nose.y``, ... in pixels. Tracks should be proofread: each is taken as one animal.

    Parameters
    ----------
    path : analysis file ``.h5``, or ``.slp``, of whose videos the first is read; the latter needs the extra
        ``ethogram[behaviour]``.
    frame_rate : frames a second of the video.
    min_score : in [0, 1], score below which a keypoint is missing in that frame. SLEAP leaves out what it does not
        find; points that people labelled have no score.
    keypoints, individuals : names of nodes and tracks to read, in this order; all by default.

    Raises
    ------
    FileNotFoundError, ImportError
        There is no such file, or nothing here reads it.
    TypeError, ValueError
        The file is not of SLEAP, or an argument is out of range.
    """
    found = existing_file(path, (".h5", ".hdf5", ".slp"), "give an analysis file, or a project")
    poses = _of_project(found) if found.suffix.lower() == ".slp" else _of_analysis(found)
    return pose_trajectories(
        poses,
        threshold=("min_score", min_score),
        frame_rate=frame_rate,
        keypoints=keypoints,
        individuals=individuals,
    )


def _of_analysis(path: Path) -> Poses:
    import h5py

    try:
        file = h5py.File(path, "r")
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    with file:
        missing = [name for name in ("tracks", "node_names", "track_names") if name not in file]
        if missing:
            raise ValueError(
                f"{path} is no analysis file of SLEAP: it has no {missing[0]}; it has {', '.join(file) or 'nothing'}"
            )
        dims = file["tracks"].attrs.get("dims")
        order = MATLAB if file.attrs.get("transpose", True) else PYTHON
        order = order if dims is None else tuple(json.loads(dims))
        tracks = np.asarray(file["tracks"], float)
        nodes, names = (_texts(file[name]) for name in ("node_names", "track_names"))
        scores = np.asarray(file["point_scores"], float) if "point_scores" in file else None
    if tracks.ndim != 4 or sorted(order) != sorted(MATLAB):
        raise ValueError(
            f"{path} has tracks of shape {tracks.shape} with the axes {order}: expected {MATLAB}"
        )
    position = np.transpose(tracks, [order.index(axis) for axis in ("frame", "track", "node", "xy")])
    names = names or [f"track {number}" for number in range(position.shape[1])]
    if position.shape[1:] != (len(names), len(nodes), 2):
        raise ValueError(
            f"{path} has tracks of shape {tracks.shape}, {len(names)} tracks and {len(nodes)} nodes: expected {order}"
        )
    if scores is not None:
        own = [axis for axis in order if axis != "xy"]
        scores = np.transpose(scores, [own.index(axis) for axis in ("frame", "track", "node")])
    return Poses(position, scores, names, nodes, path.name.partition(".")[0])


def _texts(values: Any) -> list[str]:
    return [value.decode() if isinstance(value, bytes) else str(value) for value in values[()]]


def _of_project(path: Path) -> Poses:
    try:
        import sleap_io
    except ImportError as error:
        raise ImportError("SLP files need sleap-io: pip install 'ethogram[behaviour]'") from error
    try:
        labels = sleap_io.load_slp(str(path), open_videos=False)
    except Exception as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    if not len(labels.labeled_frames):
        raise ValueError(f"{path} has no labelled frame: it needs at least one")
    values = np.asarray(labels.numpy(video=labels.videos[0], return_confidence=True), float)
    names = [track.name for track in labels.tracks] or ["track 0"]
    nodes = [node.name for node in labels.skeletons[0].nodes]
    return Poses(
        values[..., :2], values[..., 2], names[: values.shape[1]], nodes, path.name.partition(".")[0]
    )
