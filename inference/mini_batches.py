"""Whole demonstrations in mini-batches: which sequences each step sees.

The unit is the group: all agents of a demonstration come together, every group equally often, whatever its
length. A batch runs at the padded length of the bucket of its longest sequence, so that few shapes compile.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ethogram.models.trajectories import Trajectories, bucket_indices

__all__ = ["BatchPlan", "in_group_order", "plan_batches"]


class BatchPlan(NamedTuple):
    """Which sequences each step sees, and how many time steps it needs."""

    rows: np.ndarray  # (step, slot): sequence numbers, -1 for an empty slot
    width: np.ndarray  # (step,): index into `widths`
    widths: tuple[int, ...]
    scale: float  # groups of the data a group of the batch stands for


def in_group_order(data: Trajectories) -> Trajectories:
    """Sequences in order of their groups, stable; without groups, each sequence is a group of its own."""
    if data.group is None:
        return data._replace(group=np.arange(data.num_sequences, dtype=np.int32))
    group = np.asarray(data.group).astype(np.int64)
    alone = group < 0
    group[alone] = group.max() + 1 + np.arange(int(alone.sum()))
    order = np.argsort(group, kind="stable")
    return data._replace(group=group.astype(np.int32)).take(order)


def plan_batches(
    data: Trajectories, batch_size: int, start: int, stop: int, entropy: list[int], max_waste: float
) -> BatchPlan:
    """Plan of steps `start` to `stop`, the same however the steps are cut into calls.

    Groups come in a new random order every epoch; step t takes the next `batch_size` of the stream.

    Parameters
    ----------
    data : in group order.
    batch_size : groups a step.
    entropy : integers that seed the orders.
    max_waste : of the buckets whose lengths batches are padded to.
    """
    group = np.asarray(data.group)
    lengths = np.maximum(np.asarray(data.lengths), 1)
    _, first, counts = np.unique(group, return_index=True, return_counts=True)
    num_groups, most = len(first), int(counts.max())
    if not 1 <= batch_size <= num_groups:
        raise ValueError(f"batch_size is {batch_size}, outside 1..{num_groups}, the groups of the data")
    members = np.where(np.arange(most) < counts[:, None], first[:, None] + np.arange(most), -1)
    longest = np.maximum.reduceat(lengths, first)
    widths = tuple(sorted({int(longest[index].max()) for index in bucket_indices(longest, max_waste)}))

    position = np.arange(start * batch_size, stop * batch_size)
    epoch = position // num_groups
    chosen = np.empty(len(position), dtype=np.int64)
    for number in np.unique(epoch):
        order = np.random.default_rng([*entropy, int(number)]).permutation(num_groups)
        here = epoch == number
        chosen[here] = order[position[here] % num_groups]
    chosen = chosen.reshape(stop - start, batch_size)
    width = np.searchsorted(widths, longest[chosen].max(axis=1))
    return BatchPlan(members[chosen].reshape(stop - start, -1), width, widths, num_groups / batch_size)
