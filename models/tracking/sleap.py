"""Files of SLEAP: its analysis file in HDF5, and projects or predictions as ``.slp``.

An analysis file holds ``tracks`` (track, axis, node, frame), in the order of MATLAB, or in that which the attribute
``dims`` names; ``point_scores`` with the same axes but the second; ``node_names`` and ``track_names``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ethogram.models.arguments import warn_user
from ethogram.models.data.file_names import NameRule, Paths, existing_file
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.memory_bound import require_room
from ethogram.models.tracking.pose import Poses, read_poses

__all__ = ["read_sleap"]

MATLAB = ("track", "xy", "node", "frame")
PYTHON = ("frame", "node", "xy", "track")
"""Axes of files without names of them, by their attribute ``transpose``."""


def read_sleap(
    path: Paths,
    *,
    frame_rate: float | int | None = None,
    min_score: float | int = 0.0,
    keypoints: Sequence[str] | None = None,
    individuals: Sequence[str] | None = None,
    agent: NameRule | None = None,
    group: NameRule | None = None,
    subject: NameRule | None = None,
) -> Trajectories:
    """Trajectories of files of SLEAP: one sequence per track, those of a file in one group.

    Features are ``nose.x``, ``nose.y``, ... in pixels. Tracks should be proofread: each is taken as one animal, and the
    second of two tracks called ``fly`` is ``fly (2)``. In projects, what a person placed comes before what was
    predicted, and a file without tracks is of one animal. A frame that has a track twice, or several animals without
    any tracks, is refused; animals without a track, where others have one, are left out with a warning.

    Parameters
    ----------
    path : analysis file ``.h5``, or ``.slp``, of whose videos the first is read; the latter needs the extra
        ``ethogram[behaviour]``. A pattern such as ``"day1/*.h5"``, or a list of these.
    frame_rate : frames a second of the video.
    min_score : in [0, 1], score below which a keypoint is missing in that frame. SLEAP leaves out what it does not
        find; points that people labelled have no score.
    keypoints, individuals : names of nodes and tracks to read, in this order; all by default.
    agent, group, subject : labels of the files, as in `read_deeplabcut`.
    """
    return read_poses(
        path,
        _read_file,
        threshold=("min_score", min_score),
        frame_rate=frame_rate,
        keypoints=keypoints,
        individuals=individuals,
        rules={"agent": agent, "group": group, "subject": subject},
    )


def _read_file(path: Path) -> Poses:
    found = existing_file(path, (".h5", ".hdf5", ".slp"), "give an analysis file, or a project")
    return _of_project(found) if found.suffix.lower() == ".slp" else _of_analysis(found)


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
        order: tuple[str, ...] = MATLAB if file.attrs.get("transpose", True) else PYTHON
        try:
            order = order if dims is None else tuple(map(str, json.loads(dims)))
        except (TypeError, ValueError):
            raise ValueError(
                f"{path} has tracks whose dims are {dims!r}: expected the axes {', '.join(MATLAB)}, in any order"
            ) from None
        for name in ("tracks", *({"point_scores"} & {*file})):
            require_room(f"{name} of {path}", file[name].shape, float, "export fewer frames")
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
        if scores.shape != tuple(tracks.shape[order.index(axis)] for axis in own):
            raise ValueError(
                f"{path} has tracks of shape {tracks.shape} and point_scores of shape {scores.shape}"
            )
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
    frames = [frame for frame in labels.labeled_frames if frame.video is labels.videos[0]]
    if len(labels.videos) > 1:
        warn_user(
            f"{path} has {len(labels.videos)} videos: only the first is read, with {len(frames)} frames"
        )
    found = _by_track(path, frames)
    if not found:
        raise ValueError(f"{path} has no labelled frame of an animal: it needs at least one")
    nodes, *others = dict.fromkeys(
        tuple(node.name for node in each.skeleton.nodes) for each in found.values()
    )
    if others:
        raise ValueError(
            f"{path} has animals with the nodes {nodes} and {others[0]}: save those of one skeleton"
        )
    present = {track for track, _ in found}
    tracks = [track for track in (*labels.tracks, None) if track in present]
    shape = (max(frame for _, frame in found) + 1, len(tracks), len(nodes), 3)
    require_room(f"poses of {path}", shape, float, "save fewer frames")
    values = np.full(shape, np.nan)
    for (track, frame), each in found.items():
        place = frame, tracks.index(track)
        values[place][:, :2] = each.numpy()
        if isinstance(each, sleap_io.PredictedInstance):
            values[place][:, 2] = each.points["score"]
    names = [getattr(track, "name", "") or f"track {number}" for number, track in enumerate(tracks)]
    return Poses(values[..., :2], values[..., 2], names, nodes, path.name.partition(".")[0])


def _by_track(path: Path, frames: Sequence[Any]) -> dict[tuple[Any, int], Any]:
    """The instance of each track in each frame: that which a person placed, else that predicted; None for no track."""
    placed: dict[tuple[Any, int], Any] = {}
    predicted: dict[tuple[Any, int], Any] = {}
    no_track_in = []
    any_track = any(each.track is not None for frame in frames for each in frame.instances)
    for frame in frames:
        number = int(frame.frame_idx)
        corrected = [each.from_predicted for each in frame.user_instances]
        kept = [each for each in frame.predicted_instances if not any(each is old for old in corrected)]
        for found, instances in ((placed, frame.user_instances), (predicted, kept)):
            for each in instances:
                track = each.track or getattr(each.from_predicted, "track", None)
                if track is None and any_track:
                    no_track_in.append(number)
                elif (track, number) in found:
                    twice = f"track {track.name!r} twice" if track else "several animals without tracks"
                    raise ValueError(
                        f"frame {number} of {path} has {twice}, and the file does not say which animal is which: "
                        "correct the tracks in SLEAP"
                    )
                else:
                    found[track, number] = each
    if no_track_in:
        warn_user(
            f"{len(no_track_in)} animals without a track were left out, the first in frame {no_track_in[0]} of {path}: "
            "the file does not say which they are; give them tracks in SLEAP"
        )
    return predicted | placed
