"""Fewest length buckets that keep padding below a given share of all cells."""

from typing import Any

import numpy as np

from ethogram.models.arguments import require, require_number

__all__ = ["bucket_indices"]


def bucket_indices(lengths: Any, max_waste: float | int = 0.25) -> tuple[np.ndarray, ...]:
    r"""Sequence numbers of each bucket, short sequences first, ascending within a bucket.

    Sorted by length, the sequences are cut into the fewest runs such that, with each run padded to
    its own longest sequence, at most ``max_waste`` of all cells are padding. Of the partitions with
    that many runs the one with the fewest cells is returned. With :math:`u_1 < \dots < u_m` the
    distinct lengths and :math:`C_j` the number of sequences no longer than :math:`u_j`, the least
    number of cells that at most ``k`` runs need for the ``j`` shortest lengths is

    .. math:: f_k(j) = \min_{i \le j} f_{k-1}(i) + u_j (C_j - C_i),

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
    require(lengths >= 0, "lengths", lengths, ": a length cannot be negative")
    require_number("max_waste", max_waste, least=0, below=1)
    lengths = np.maximum(lengths.astype(np.int64), 1)
    distinct, inverse, counts = np.unique(lengths, return_inverse=True, return_counts=True)
    below = np.concatenate([[0], np.cumsum(counts)])
    cells, starts = np.concatenate([[0], distinct]) * below, []
    while max_waste and cells[-1] - lengths.sum() > max_waste * cells[-1]:
        cells, start = _with_one_run_more(cells, distinct, below)
        starts.append(start)
    ends = [len(distinct)]
    for start in reversed(starts):
        ends.append(int(start[ends[-1]]))
    bucket = np.searchsorted(ends[::-1], inverse, side="right") if max_waste else inverse
    order = np.argsort(bucket, kind="stable")
    return tuple(np.split(order, np.cumsum(np.bincount(bucket))[:-1]))


def _with_one_run_more(
    cells: np.ndarray, distinct: np.ndarray, below: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Fewest cells (prefix,) with one run more, and where the last run then starts, which may be at the end.

    Prefixes are visited from coarse to fine, a whole level at a time: the best starts of the two neighbours that are
    known bound those of the prefix between them.
    """
    most, best = len(distinct), cells.copy()
    start = np.full(most + 2, most)
    start[0] = 0
    step = 1 << (most.bit_length() - 1)
    while step:
        prefix = np.arange(step, most + 1, 2 * step)
        first, last = start[prefix - step], np.minimum(start[np.minimum(prefix + step, most + 1)], prefix)
        width = last - first + 1
        offset = np.cumsum(width) - width
        end = np.repeat(prefix, width)
        candidate = np.arange(len(end)) + np.repeat(first - offset, width)
        value = cells[candidate] + distinct[end - 1] * (below[end] - below[candidate])
        best[prefix] = np.minimum.reduceat(value, offset)
        start[prefix] = np.minimum.reduceat(np.where(value == best[end], candidate, most), offset)
        step //= 2
    return best, start
