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

    and ``k`` grows until :math:`f_k(m)` fits. The cost obeys the quadrangle inequality, so the best
    ``i`` never falls as ``j`` grows, and a layer takes :math:`O(m \log m)` whatever the number of
    sequences.

    Parameters
    ----------
    lengths : (sequence,) integers, frames of each sequence; one without frames counts as one frame,
        because a padded array has at least one.
    max_waste : in [0, 1), the share of cells that may be padding; 0 gives one bucket per length.

    Raises
    ------
    ValueError
        If there are no sequences, a length is negative, or ``max_waste`` lies outside [0, 1).
    TypeError
        If ``lengths`` are not integers.

    References
    ----------
    Yao (1980), "Efficient dynamic programming using quadrangle inequalities".

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
    needed = int(distinct @ counts)
    cells = np.concatenate([[0], distinct]) * below
    layers: list[np.ndarray] = []
    while cells[-1] - needed > max_waste * cells[-1]:
        cells, start = _add_run(cells, distinct, below, len(layers) + 2)
        layers.append(start)
    ends = [num_lengths]
    for start in reversed(layers):
        ends.append(int(start[ends[-1]]))
    return np.array(ends[::-1])


def _add_run(
    cells: np.ndarray, distinct: np.ndarray, below: np.ndarray, num_runs: int
) -> tuple[np.ndarray, np.ndarray]:
    """Fewest cells with one run more, and where the last run then starts, for every prefix.

    Rows (prefixes) are visited from coarse to fine, a whole level at a time: the best starts of the
    two neighbours already known bound the search of the row between them.
    """
    num_lengths = len(distinct)
    num_rows = num_lengths - num_runs + 1
    best = np.full(num_lengths + 1, np.iinfo(np.int64).max)
    start = np.zeros(num_lengths + 1, dtype=np.int64)
    known = np.empty(num_rows + 2, dtype=np.int64)
    known[0], known[-1] = num_runs - 1, num_lengths - 1
    step = 1 << (num_rows.bit_length() - 1)
    while step:
        row = np.arange(step, num_rows + 1, 2 * step)
        prefix = row + num_runs - 1
        first = known[row - step]
        last = np.minimum(known[np.minimum(row + step, num_rows + 1)], prefix - 1)
        width = last - first + 1
        offset = np.cumsum(width) - width
        candidate = np.arange(width.sum()) + np.repeat(first - offset, width)
        end = np.repeat(prefix, width)
        value = cells[candidate] + distinct[end - 1] * (below[end] - below[candidate])
        best[prefix] = np.minimum.reduceat(value, offset)
        tied = np.where(value == best[end], candidate, num_lengths)
        start[prefix] = known[row] = np.minimum.reduceat(tied, offset)
        step //= 2
    return best, start
