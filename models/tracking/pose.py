"""Poses as trajectories: one sequence per individual, all of a recording in one group."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from ethogram.models.arguments import require_number
from ethogram.models.data.concatenation import concatenated
from ethogram.models.data.file_names import NameRule, Paths, find_files, label_of_file
from ethogram.models.data.metadata import Metadata
from ethogram.models.data.trajectories import Trajectories

__all__ = ["ONE", "Poses", "pose_trajectories", "read_poses"]

ONE = "individual"
"""Name of the animal in files that name none."""
AXES = ("x", "y", "z")


class Poses(NamedTuple):
    """Positions of keypoints as a file has them, NaN where missing, and the name of the recording."""

    position: Float[np.ndarray, "frame individual keypoint axis"]
    confidence: Float[np.ndarray, "frame individual keypoint"] | None
    individuals: Sequence[str]
    keypoints: Sequence[str]
    name: str
    frame_rate: float | int | None = None


def read_poses(
    source: Paths,
    read: Callable[[Path], Poses],
    *,
    rules: Mapping[str, NameRule | None],
    **settings: Any,
) -> Trajectories:
    """Trajectories of the poses of files, joined; labels are read from their names, settings those of a recording.

    Of several files, one without a name of its animal has that of the file for it.
    """
    paths, items = find_files(source), []
    recordings = [read(path) for path in paths]
    names = [poses.name for poses in recordings]
    for path, poses in zip(paths, recordings, strict=True):
        labels = {
            field: label_of_file(path, rule, field) for field, rule in rules.items() if rule is not None
        }
        if len(paths) > 1 and list(poses.individuals) in ([ONE], ["track 0"]):
            labels.setdefault("agent", label_of_file(path, "file", "agent"))
        if names.count(poses.name) > 1:
            labels.setdefault("group", str(path.with_suffix("")))
        items.append(pose_trajectories(poses, labels=labels, **settings))
    return items[0] if len(items) == 1 else Trajectories(**concatenated(items, list(map(str, paths))))


def pose_trajectories(
    poses: Poses,
    *,
    threshold: tuple[str, float | int],
    frame_rate: float | int | None,
    keypoints: Sequence[str] | None,
    individuals: Sequence[str] | None,
    unit: str = "pixels",
    labels: Mapping[str, str] | None = None,
) -> Trajectories:
    """Trajectories of poses, with features such as ``nose.x``; parameters of the readers.

    `threshold` is name and value of the confidence below which a keypoint is missing (one of unknown confidence is
    kept), `labels` are agent (before the names of animals, where there are several), group and subject.
    """
    labels = labels or {}
    frame_rate = poses.frame_rate if frame_rate is None else frame_rate
    if frame_rate is not None:
        require_number("frame_rate", frame_rate, above=0)
    least = require_number(threshold[0], threshold[1], least=0, most=1)
    position = np.array(poses.position, float)
    if poses.confidence is not None:
        position[np.asarray(poses.confidence) < least] = np.nan
    points = _chosen("keypoints", keypoints, poses.keypoints, poses.name)
    known = _distinct(poses.individuals)
    animals = _chosen("individuals", individuals, known, poses.name)
    chosen = [known[animal] for animal in animals]
    if not len(position):
        raise ValueError(f"{poses.name} has no frame: it needs at least one")
    agents = chosen
    if "agent" in labels:
        agents = [labels["agent"]] if len(known) == 1 else [f"{labels['agent']} {name}" for name in chosen]
    position = position[:, animals][:, :, points]
    axes = AXES[: position.shape[-1]]
    names = [f"{poses.keypoints[point]}.{axis}" for point in points for axis in axes]
    metadata = Metadata(
        feature_names=names,
        feature_units=[unit] * len(names),
        time_unit="s" if frame_rate is not None else None,
        frame_rate=frame_rate,
        name=poses.name,
    )
    return Trajectories.from_list(
        [position[:, animal].reshape(len(position), -1) for animal in range(len(animals))],
        agent=agents,
        group=[labels.get("group", poses.name)] * len(animals),
        subject=[labels["subject"]] * len(animals) if "subject" in labels else None,
        missing="nan",
        metadata=metadata,
    )


def _distinct(names: Sequence[str]) -> list[str]:
    """The names; of two animals of one name the later is ``NAME (2)``."""
    found: list[str] = []
    for name in names:
        number, own = 1, name
        while own in found or (number > 1 and own in names):
            number += 1
            own = f"{name} ({number})"
        found.append(own)
    return found


def _chosen(what: str, asked: Sequence[str] | None, known: Sequence[str], recording: str) -> list[int]:
    """Places of the names that are asked for among those of a recording; all by default."""
    if asked is None:
        return list(range(len(known)))
    if isinstance(asked, str) or not len(asked):
        raise TypeError(f"{what} is {asked!r}: give a list of names, or None for all")
    names: list[Any] = list(known)
    strange = [name for name in asked if name not in names]
    if strange:
        raise ValueError(f"{what} has {strange[0]!r}: {recording} has {', '.join(map(str, names))}")
    if len(set(asked)) < len(asked):
        raise ValueError(f"{what} must be unique: {list(asked)}")
    return [names.index(name) for name in asked]
