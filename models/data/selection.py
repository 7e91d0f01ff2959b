"""Which sequences, by number or by label of their unit, and which of their frames are within their lengths."""

from typing import Any

import jax
import numpy as np

from ethogram.models.arguments import require, require_kind
from ethogram.models.data.metadata import SEQUENCE_LABELS, STEP_FIELDS

__all__ = [
    "counted_lengths",
    "drawn_units",
    "first_steps",
    "group_labels",
    "label_name",
    "own_units",
    "sequence_numbers",
    "unit_labels",
    "valid_steps",
]


def valid_steps(data: Any) -> Any:
    """Whether frames (sequence, time) lie within their sequence (``observed`` is also False where one is missing)."""
    step = np.expand_dims(np.arange(data.observed.shape[-1]), tuple(range(data.lengths.ndim)))
    return data.lengths[..., None] > step


def sequence_numbers(indices: Any, num_sequences: int) -> np.ndarray:
    """The sequences chosen by integers, negative ones from the end, or by one boolean per sequence."""
    chosen = np.asarray(indices)
    if chosen.dtype == np.bool_:
        if chosen.shape != (num_sequences,):
            raise ValueError(
                f"indices has shape {chosen.shape}: a boolean mask needs shape ({num_sequences},)"
            )
        chosen = np.flatnonzero(chosen)
    if chosen.ndim != 1 or chosen.size == 0:
        raise ValueError(
            f"indices has shape {np.shape(indices)} and selects no list of sequences: select at least one"
        )
    require_kind("indices", chosen, "iu", "pass integers or booleans")
    outside = (chosen < -num_sequences) | (chosen >= num_sequences)
    require(~outside, "indices", chosen, f", but there are {num_sequences} sequences")
    return chosen


def group_labels(data: Any) -> np.ndarray:
    """Group (sequence,) of each sequence; without groups, and where it is -1, one of its own, after all others."""
    return np.arange(data.num_sequences) if data.group is None else unit_labels(data, "group")


def unit_labels(data: Any, by: str, complete: bool = False) -> np.ndarray:
    """Label of each sequence's group, subject or agent; a -1 is a unit of its own, refused where ``complete``."""
    labels = getattr(data, by)
    if labels is None:
        raise ValueError(
            f"by={by!r} needs data.{by}, which is None: label the sequences or choose by='sequence'"
        )
    labels = np.asarray(labels).astype(np.int64)
    if complete:
        require(
            labels >= 0,
            by,
            labels,
            f" (missing), so its {by} could end on both sides: label or drop the sequence",
        )
    return own_units(labels)


def own_units(labels: np.ndarray) -> np.ndarray:
    """Labels (sequence,), each -1 replaced by one of its own, after all others."""
    return np.where(labels < 0, labels.max(initial=-1) + 1 + np.arange(len(labels)), labels)


def first_steps(data: Any, num_steps: int) -> Any:
    """The trajectories in arrays of this width, at least one."""
    parts = {field: getattr(data, field) for field in STEP_FIELDS}
    narrow = {field: part[:, : max(num_steps, 1)] for field, part in parts.items() if part is not None}
    return data._replace(**narrow)


def counted_lengths(data: Any, by: str) -> np.ndarray:
    """Lengths (sequence,), at least one; by ``"group"`` that of the longest sequence of the group."""
    lengths = np.maximum(np.asarray(data.lengths), 1)
    if by == "sequence":
        return lengths
    _, unit = np.unique(unit_labels(data, "group"), return_inverse=True)
    longest = np.zeros(unit.max() + 1, dtype=lengths.dtype)
    np.maximum.at(longest, unit, lengths)
    return longest[unit]


def drawn_units(key: Any, labels: np.ndarray, by: str, fraction: float | int) -> np.ndarray:
    """Which sequences are of this fraction of the units, drawn at random; at least one unit is, and one is not."""
    _, unit = np.unique(labels, return_inverse=True)
    num_units = int(unit.max()) + 1
    if num_units < 2:
        raise ValueError(f"by={by!r} finds only one {by}: a split needs at least two")
    num_drawn = min(max(round(fraction * num_units), 1), num_units - 1)
    return np.isin(unit, np.asarray(jax.random.permutation(key, num_units))[:num_drawn])


def label_name(data: Any, by: str, number: int | np.integer) -> str:
    """A group, subject or agent as the user named it, quoted, or else its number."""
    names = getattr(data.metadata, SEQUENCE_LABELS[by]) or ()
    return repr(names[number]) if 0 <= number < len(names) else str(number)
