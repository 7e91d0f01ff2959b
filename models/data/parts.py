"""Large data part by part: whole groups, a few megabytes at a time."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from ethogram.models.data.on_disk import disk_array
from ethogram.models.data.selection import group_labels
from ethogram.models.quick_jit import repeated

__all__ = [
    "LARGE",
    "PART",
    "drop_pages",
    "gathered",
    "in_parts",
    "is_large",
    "map_parts",
    "numbers_of",
    "on_disk",
    "taken",
    "whole_groups",
]

LARGE, PART = 2**22, 2**18
"""Numbers of padded data from which on they are read part by part, and those of a part, one group at least."""

FEW = 64
"""Scattered sequences that are read at a time."""

DELAY = 2.0
"""Seconds after which a progress bar appears."""


def numbers_of(data: Any) -> int:
    """Numbers of a sequence, with its padding."""
    columns = sum(table.shape[2] for table in (data.observations, data.covariates) if table is not None)
    return data.observed.shape[1] * max(columns, 1)


def is_large(data: Any) -> bool:
    """Whether data are read part by part, be they in memory or on disk; traced ones never are."""
    concrete = not any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(data))
    return concrete and len(data.lengths) * numbers_of(data) > LARGE


def on_disk(data: Any) -> bool:
    """Whether data are memory-mapped."""
    return any(_mapped(leaf) is not None for leaf in jax.tree.leaves(data))


def _mapped(array: Any) -> np.memmap | None:
    """The memory-mapped array that an array is or shows; None for copies of one, which are of the same class."""
    found = array if isinstance(array, np.memmap) else getattr(array, "base", None)
    return found if isinstance(found, np.memmap) and found._mmap is not None else None  # type: ignore[attr-defined]


def whole_groups(labels: np.ndarray, size: int) -> Iterator[np.ndarray]:
    """Places (sequence,) of at most `size` sequences of whole groups, one group at least, in order of their labels."""
    order = np.argsort(labels, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(labels[order])) + 1, len(order))
    start = 0
    while start < len(order):
        last = max(
            np.searchsorted(ends, start + size, side="right") - 1, np.searchsorted(ends, start, side="right")
        )
        yield order[start : ends[last]]
        start = ends[last]


def in_parts(data: Any, description: str | None = None) -> Iterator[tuple[np.ndarray, Any]]:
    """Numbers of sequences and their trajectories; of data that are not large, all as they are.

    With a `description` a progress bar appears after two seconds.
    """
    if not is_large(data):
        yield np.arange(len(data.lengths)), data
        return
    from tqdm.auto import tqdm

    size = max(PART // numbers_of(data), 1)
    with tqdm(total=len(data.lengths), disable=description is None, desc=description, delay=DELAY) as bar:
        for rows in whole_groups(group_labels(data), size):
            yield rows, data.take(rows)
            drop_pages(data)
            bar.update(len(rows))


def drop_pages(data: Any) -> None:
    """Let go of the pages of memory-mapped arrays that were read; the system may keep them for the next reader."""
    for leaf in jax.tree.leaves(data):
        mapped = _mapped(leaf)
        # Pages of copy-on-write arrays hold what their owner changed.
        if mapped is not None and mapped.mode != "c" and hasattr(mmap, "MADV_DONTNEED"):
            mapped._mmap.madvise(mmap.MADV_DONTNEED)  # type: ignore[attr-defined]


def taken(data: Any, rows: np.ndarray) -> Any:
    """Sequences by number, a few at a time: the system maps many more pages than scattered ones need."""
    pieces = []
    for start in range(0, len(rows), FEW):
        pieces.append(data.take(rows[start : start + FEW]))
        drop_pages(data)
    return jax.tree.map(lambda *x: np.concatenate(x), *pieces)


def map_parts(
    data: Any, function: Callable[[Any], Any], description: str | None = None
) -> Iterator[tuple[np.ndarray, Any]]:
    """Numbers of sequences, and what a function makes of these, by programs that are compiled for all parts."""
    count = max(len(data.lengths) * numbers_of(data) // PART, 1) if is_large(data) else 1
    for rows, part in in_parts(data, description):
        with repeated(count):
            found = function(part)
        yield rows, found


def gathered(data: Any, function: Callable[[Any], Any], description: str | None = None) -> Any:
    """Arrays (sequence, ...) that a function makes of trajectories, part by part; large results are on disk."""
    whole: Any = None
    for rows, found in map_parts(data, function, description):
        if not is_large(data):
            return found
        if whole is None:
            whole = jax.tree.map(lambda x: disk_array((len(data.lengths), *x.shape[1:]), x.dtype), found)
        for target, x in zip(jax.tree.leaves(whole), jax.tree.leaves(found), strict=True):
            target[rows] = x
        drop_pages(whole)
    return whole
