"""Mini-batches of whole demonstrations: the sequences of each step.

Groups, with all agents of a demonstration, are drawn equally often, whatever their length; padding to bucket lengths
keeps compiled shapes few. Le, Yue, Carr, Lucey (2017), supplement, eq. 6, with whole sequences in place of frames.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ethogram.models.data.trajectories import Trajectories, bucket_indices, group_labels

__all__ = ["BatchPlan", "GroupLayout", "group_layout", "group_order", "in_group_order", "plan_batches"]


class GroupLayout(NamedTuple):
    """Sequences and lengths of the groups of a data set."""

    members: np.ndarray  # (group, slot): sequence numbers, -1 for an empty slot
    longest: np.ndarray  # (group,): steps of its longest sequence, 1 at least
    widths: tuple[int, ...]  # padded lengths at which batches may run, ascending


class BatchPlan(NamedTuple):
    """Sequences and padded length of each step."""

    rows: np.ndarray  # (step, slot): sequence numbers, -1 for an empty slot
    width: np.ndarray  # (step,): index into the layout's widths
    scale: float  # groups of the data per group of the batch


def in_group_order(data: Trajectories) -> Trajectories:
    """Sequences in order of their groups (see :func:`group_order`), the groups numbered 0, 1, ..."""
    number = np.unique(group_labels(data), return_inverse=True)[1].astype(np.int32)
    order = group_order(data)
    grouped = data._replace(group=number)
    in_order = np.array_equal(order, np.arange(len(order)))
    return grouped if in_order else grouped.take(order)  # which copies the data


def group_order(data: Trajectories) -> np.ndarray:
    """Sequence numbers in order of their groups, stable.

    A sequence without a group (None or -1) is a group of its own; these come last.
    """
    return np.argsort(group_labels(data), kind="stable")


def group_layout(data: Trajectories, max_waste: float) -> GroupLayout:
    """Layout of the groups of data that are in group order; `max_waste` is that of `Trajectories.buckets`."""
    _, first, counts = np.unique(np.asarray(data.group), return_index=True, return_counts=True)
    slot = np.arange(int(counts.max()))
    members = np.where(slot < counts[:, None], first[:, None] + slot, -1)
    longest = np.maximum.reduceat(np.maximum(np.asarray(data.lengths), 1), first)
    widths = sorted({int(longest[index].max()) for index in bucket_indices(longest, max_waste)})
    return GroupLayout(members, longest, tuple(widths))


def plan_batches(
    layout: GroupLayout, batch_size: int, start: int, stop: int, entropy: list[int]
) -> BatchPlan:
    """Plan of steps `start` to `stop`, independent of how the steps are split into calls.

    Groups are permuted anew every epoch, in orders that `entropy` seeds; step t takes the next `batch_size` of the
    stream.
    """
    num_groups = len(layout.members)
    position = np.arange(start * batch_size, stop * batch_size)
    epoch = position // num_groups
    stream = np.empty(len(position), dtype=np.int64)
    for number in np.unique(epoch):
        order = np.random.default_rng([*entropy, int(number)]).permutation(num_groups)
        here = epoch == number
        stream[here] = order[position[here] % num_groups]
    chosen = stream.reshape(stop - start, batch_size)
    width = np.searchsorted(layout.widths, layout.longest[chosen].max(axis=1))
    rows = layout.members[chosen].reshape(stop - start, -1)
    return BatchPlan(rows, width, num_groups / batch_size)
