"""Fewest length buckets that keep padding below a given share of all cells."""

from typing import Any

import numpy as np

from ethogram.models.arguments import refuse, require_number

__all__ = ["bucket_indices"]


def bucket_indices(lengths: Any, max_waste: float | int = 0.25) -> tuple[np.ndarray, ...]:
    r"""Sequence numbers of each bucket, short sequences first, ascending within a bucket.

    Sorted by length, the sequences are cut into the fewest runs such that, with each run padded to
    its own longest sequence, at most ``max_waste`` of all cells are padding. Of the partitions with
    that many runs the one with the fewest cells is returned. With :math:`u_1 < \dots < u_m` the
    distinct lengths and :math:`C_j` the number of sequences no longer than :math:`u_j`, the least
    number of cells that ``k`` runs need for the ``j`` shortest lengths is

    .. math:: f_k(j) = \min_{i < j} f_{k-1}(i) + u_j (C_j - C_i),

    and ``k`` grows until :math:`f_k(m)` fits. A layer takes :math:`O(m^2)` whatever the number of sequences.

    Parameters
    ----------
    lengths : (sequence,) integers, frames of each sequence; one without frames counts as one frame,
        because a padded array has at least one.
    max_waste : in [0, 1), the share of cells that may be padding; 0 gives one bucket per length.

    Examples
    --------
    >>> [bucket.tolist() for bucket in bucket_indices([10, 2, 9, 2, 3], max_waste=0.2)]
    [[1, 3, 4], [0, 2]]
    """
    lengths = np.asarray(lengths)
    if lengths.ndim != 1 or lengths.size == 0:
        raise ValueError(f"lengths has shape {lengths.shape}, not (sequence,): give one length per sequence")
    if lengths.dtype.kind not in "iu":
        raise TypeError(f"lengths has dtype {lengths.dtype}, not integers: count frames")
    refuse(lengths < 0, "lengths", lengths, ": a length cannot be negative")
    require_number("max_waste", max_waste, least=0, below=1)
    distinct, inverse, counts = np.unique(
        np.maximum(lengths.astype(np.int64), 1), return_inverse=True, return_counts=True
    )
    ends = _run_ends(distinct, counts, max_waste)
    bucket = np.searchsorted(ends, inverse, side="right")
    order = np.argsort(bucket, kind="stable")
    return tuple(np.split(order, np.cumsum(np.bincount(bucket))[:-1]))


def _run_ends(distinct: np.ndarray, counts: np.ndarray, max_waste: float | int) -> np.ndarray:
    """End (exclusive) of each run in the sorted distinct lengths."""
    num_lengths = len(distinct)
    if max_waste == 0:
        return np.arange(1, num_lengths + 1)
    below = np.concatenate([[0], np.cumsum(counts)])
    cells = np.concatenate([[0], distinct]) * below
    layers: list[np.ndarray] = []
    while cells[-1] - distinct @ counts > max_waste * cells[-1]:
        first = len(layers) + 1  # every run before has a length at least
        fewer, start = cells, np.zeros(num_lengths + 1, dtype=np.int64)
        cells = np.full(num_lengths + 1, np.iinfo(np.int64).max)
        for end in range(first + 1, num_lengths + 1):
            value = fewer[first:end] + distinct[end - 1] * (below[end] - below[first:end])
            best = value.argmin()
            start[end], cells[end] = first + best, value[best]
        layers.append(start)
    ends = [num_lengths]
    for start in reversed(layers):
        ends.append(int(start[ends[-1]]))
    return np.array(ends[::-1])
