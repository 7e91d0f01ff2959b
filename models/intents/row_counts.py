"""Rows over intents as the steps of their prior see them: what the weights and the stickiness are fitted to."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from ethogram.models.families.exponential_family import Dirichlet, DirichletCoordinates

__all__ = ["CountedRows", "counted_rows"]


class CountedRows(NamedTuple):
    """Counts of free rows, whose q is profiled out, and expected logs where q holds the others.

    Rows are in the order initial, then pair by pair and intent by intent. An own entry is that of the intent that the
    row leaves, to which stickiness adds.
    """

    counts: Array  # (row, intent); 0 where q holds the row
    logs: Any = None  # (held row, intent + 1)
    taken: Any = None  # (held row,): False for rows without data
    own: Any = None  # (row, intent + 1) booleans
    held_own: Any = None  # (held row, intent + 1) booleans


def _own_entries(intents: Array, size: int) -> Array:
    """Booleans (row, intent + 1); an intent of -1 has no entry."""
    return intents[:, None] == jnp.arange(size)


def counted_rows(model: Any, blocks: dict[str, Any], counts: dict[str, Array]) -> CountedRows:
    """Rows with data, by their counts (..., intent + 1) beyond the prior, by block."""
    rows, intents = model.rows_carried(), model.truncation
    size, last = intents + 1, len(rows.pairs) * intents
    never = jnp.repeat(rows.never[: len(rows.pairs)], intents)
    pairs = jnp.where(never[:, None], 0, counts["transition"].reshape(-1, size)[:last, :-1])
    logs = taken = held_own = None
    if rows.pair_bounds is not None:
        bounded = rows.pair_bounds.rows
        pairs = pairs.at[jnp.where(bounded < last, bounded, last)].set(0, mode="drop")
        held = Dirichlet(DirichletCoordinates(blocks["transition"].held)).expected_statistics()
        logs, taken = held.concentration, bounded < last
        held_own = _own_entries(jnp.asarray(bounded) % intents, size)
    left = jnp.concatenate([jnp.full(1, -1), jnp.tile(jnp.arange(intents), len(rows.pairs))])
    own = _own_entries(left, size)
    return CountedRows(jnp.concatenate([counts["initial"][None, :-1], pairs]), logs, taken, own, held_own)
