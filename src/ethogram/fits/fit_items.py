"""Items of many fits: their names, their keys, which follow the names, and their shapes."""

from __future__ import annotations

import contextlib
import functools
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax import Array

from ethogram.fits.task_types import failure_of
from ethogram.inference.conjugate.padded_shapes import padded_shape
from ethogram.models.arguments import require_one_of
from ethogram.models.data import Trajectories
from ethogram.models.data.metadata import SEQUENCE_LABELS
from ethogram.models.data.selection import unit_labels
from ethogram.models.keys import mapped_words
from ethogram.models.quick_jit import quick_jit

__all__ = ["data_of", "digest_of", "keys_of", "named_items", "shape_in_words"]


def named_items(items: Any, by: str | None) -> Mapping[str, Any]:
    """Data by name: a mapping as it is, a list by its places, trajectories and decisions by the labels of `by`."""
    # Decisions, whose system is not imported where none are fitted, are known by their fields.
    if hasattr(items, "_fields") and hasattr(items, "subject"):
        known = (*SEQUENCE_LABELS, "sequence") if isinstance(items, Trajectories) else ("subject",)
        if by is None:
            raise TypeError(
                f"items is one {type(items).__name__}: give by= one of {', '.join(map(repr, known))}, or a mapping of "
                "names to data"
            )
        require_one_of("by", by, known)
        return Units(items, by)
    if by is not None:
        raise TypeError(
            f"by={by!r} divides Trajectories or Decisions, and items is {type(items).__name__}: leave by out"
        )
    if isinstance(items, Mapping):
        wrong = next((name for name in items if not isinstance(name, str) or not name), None)
        if wrong is not None:
            raise TypeError(f"items has the name {wrong!r}: names are strings, such as {str(wrong) or 'a'!r}")
        found: Mapping[str, Any] = items
    elif isinstance(items, list) or type(items) is tuple:
        found = {str(number): data for number, data in enumerate(items)}
    else:
        raise TypeError(
            f"items is {type(items).__name__}: give a mapping of names to data, a list of data, or Trajectories or "
            "Decisions with by="
        )
    if not found:
        raise ValueError("items is empty: give at least one")
    return found


class Units(Mapping[str, Any]):
    """Data of each unit by its name, cut out when they are asked for."""

    def __init__(self, data: Any, by: str) -> None:
        self.data, self.by = data, by
        labels = np.arange(len(data.lengths)) if by == "sequence" else unit_labels(data, by)
        names = () if by == "sequence" else getattr(data.metadata, SEQUENCE_LABELS[by]) or ()
        order = np.argsort(labels, kind="stable")
        numbers, first = np.unique(labels[order], return_index=True)
        rows = np.split(order, first[1:])
        named = [names[number] if number < len(names) else str(number) for number in numbers.tolist()]
        self.rows = dict(zip(named, rows, strict=True))

    def __getitem__(self, name: str) -> Any:
        some = self.data.take(self.rows[name])
        if self.by == "subject":  # one subject differs from no other
            some = some._replace(subject=None)
        return some.trim() if isinstance(some, Trajectories) else some

    def __iter__(self) -> Iterator[str]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)


def data_of(items: Mapping[str, Any], name: str) -> Any:
    """Data of an item, or a Failure where reading them raises an error."""
    try:
        return items[name]
    except Exception as error:  # of one item among many
        return failure_of(name, error)


def digest_of(name: str) -> str:
    """Sixteen hexadecimal digits of a name, the same in every process."""
    return hashlib.blake2b(name.encode(errors="surrogatepass"), digest_size=8).hexdigest()


def keys_of(key: Array, names: Sequence[str]) -> np.ndarray:
    """Words (name, word) of the keys of items: the key folded with a digest of the name, whatever the other names."""
    words = np.array([divmod(int(digest_of(name), 16), 2**32) for name in names], np.uint32)
    return mapped_words(functools.partial(_folded, key), words)


@quick_jit
def _folded(key: Array, words: Any) -> Any:
    fold = jax.random.fold_in
    return jax.random.key_data(jax.vmap(lambda pair: fold(fold(key, pair[0]), pair[1]))(words))


def shape_in_words(data: Any) -> tuple[str, int]:
    """Type and rounded sizes of data, which share those whose fits take the same compiled programs, or few more.

    And their padded steps; 0 of other data than trajectories.
    """
    shape: Any = ()
    num_steps = 0
    with contextlib.suppress(Exception):  # what has no sizes cannot be fitted, and fails in its turn
        if isinstance(data, Trajectories):
            shape = padded_shape(data.num_sequences, max(int(np.max(data.lengths, initial=1)), 1))
            num_steps = shape[0] * shape[1]
        else:
            leaves = [np.shape(leaf) for leaf in jax.tree.leaves(data)]
            shape = [tuple(2 ** max(size - 1, 0).bit_length() for size in each) for each in leaves]
    return f"{type(data).__name__} {shape}", num_steps
