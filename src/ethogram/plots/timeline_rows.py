"""Where each sequence stands in a timeline: its row, and its first frame on the common axis."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Int
from numpy.typing import ArrayLike

from ethogram.models.data.trajectories import Trajectories, group_labels

__all__ = ["TimelineRows", "read_labels", "time_axis", "timeline_rows"]


class TimelineRows(NamedTuple):
    """Places of sequences.

    Attributes
    ----------
    first : (sequence,) first frame of each on the common axis; those of a group start together.
    row : (sequence,) of its agent, or of the sequence where there are no agents.
    names : of the rows.
    """

    first: Int[np.ndarray, " sequence"]
    row: Int[np.ndarray, " sequence"]
    names: list[str]


def timeline_rows(data: Trajectories) -> TimelineRows:
    """Rows and first frames: one row an agent, with groups one after the other; else one row a sequence."""
    count, lengths = data.num_sequences, np.asarray(data.lengths)
    if data.agent is None:
        row, names = np.arange(count), [str(i) for i in range(count)]
    else:
        labels, row = np.unique(np.asarray(data.agent), return_inverse=True)
        known = data.metadata.agent_names
        names = [known[i] if known is not None and 0 <= i < len(known) else str(i) for i in labels]
    if data.group is None:
        block = np.zeros(count, int) if data.agent is None else np.arange(count)
    else:
        _, block = np.unique(group_labels(data), return_inverse=True)
    longest = np.zeros(block.max() + 1, int)
    np.maximum.at(longest, block, lengths)
    starts = np.concatenate([[0], np.cumsum(longest)[:-1]])
    return TimelineRows(starts[block], row, names)


def read_labels(
    labels: ArrayLike, probability: ArrayLike, data: Trajectories, name: str
) -> tuple[np.ndarray, np.ndarray]:
    """Labels (sequence, time) called `name`, and their probabilities (sequence, time, label), of these data.

    Raises ValueError where the shapes are others.
    """
    shown, chance = np.asarray(labels), np.asarray(probability, float)
    if shown.shape != np.shape(data.observed) or chance.shape[:-1] != shown.shape:
        raise ValueError(
            f"{name} has shape {shown.shape}, probability {chance.shape}, the data {np.shape(data.observed)}: give "
            "(sequence, time) and (sequence, time, label) of these data"
        )
    return shown, chance


def time_axis(data: Trajectories) -> tuple[float, str]:
    """Length of a frame, and its unit in words."""
    meta = data.metadata
    if meta.frame_rate is None:
        return 1.0, "frames"
    return 1 / float(meta.frame_rate), meta.time_unit or "time units"
