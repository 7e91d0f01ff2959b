"""The straightforward surrogate of one restart: a scan over levels, differentiated, mapped over restarts."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ethogram.inference.networks.forward_layout import Layout

__all__ = ["Levels", "by_levels", "value_and_gradient"]


class Levels(NamedTuple):
    """Nodes level by level, padded to the widest level.

    Attributes
    ----------
    tables : (level, node, 2, ...).
    parent_rows : (level, node, parent) rows of values, weights first, then what is known in advance.
    initial_values : (row,) what follows the weights.
    evidence_rows, prior_rows, valid_variables, log_constant : as of a layout.
    """

    tables: Any
    parent_rows: Any
    initial_values: Any
    evidence_rows: Any
    prior_rows: Any
    valid_variables: Any
    log_constant: Any


def by_levels(layout: Layout) -> Levels:
    """Levels of a binary layout of one shape: a node is one level above the highest of its parents."""
    tables, parent_rows = (np.asarray(part[0]) for part in (layout.tables, layout.parent_rows))
    first = 2 + layout.prior_rows.size
    used = {int(row) for row in (*layout.evidence_rows, *layout.prior_rows.reshape(-1))}
    used |= {int(row) for block in range(int(layout.num_blocks)) for row in parent_rows[block].reshape(-1)}
    level: dict[int, int] = {}
    nodes: list[tuple[int, int, int]] = []
    for block in range(int(layout.num_blocks)):
        for place in range(parent_rows.shape[1]):
            row = int(layout.first_row[block]) + place
            if row in used:
                level[row] = 1 + max(
                    (level.get(int(parent), -1) for parent in parent_rows[block, place]), default=-1
                )
                nodes.append((row, block, place))
    written = min((int(row) for row in layout.first_row[: int(layout.num_blocks)]), default=first)
    count = 1 + max(level.values())
    wide = max(list(level.values()).count(each) for each in range(count))
    home, filled = {row: row for row in range(written)}, [0] * count
    made = (
        np.zeros((count, wide, *tables.shape[2:-1])),
        np.zeros((count, wide, parent_rows.shape[2]), np.int32),
    )
    for row, block, place in nodes:
        at = level[row]
        home[row] = written + at * wide + filled[at]
        made[0][at, filled[at]] = tables[block, place, ..., 0]
        made[1][at, filled[at]] = [home[int(parent)] for parent in parent_rows[block, place]]
        filled[at] += 1
    fixed = np.zeros(written + count * wide)
    fixed[:written] = layout.initial_values[:written]
    moved = np.vectorize(home.__getitem__, otypes=[np.int32])
    return Levels(
        *made,
        fixed,
        moved(layout.evidence_rows),
        moved(layout.prior_rows[:, 0]),
        layout.valid_variables,
        np.asarray(layout.log_constant),
    )


def value_and_gradient(levels: Levels, weights: Array) -> tuple[Array, Array]:
    """Surrogates (copy,) and gradients (weight, copy) of restarts (weight, copy) of variables with two states."""
    one = jax.value_and_grad(_value, argnums=1)
    return jax.vmap(one, in_axes=(None, -1), out_axes=(0, -1))(levels, weights)


def _value(levels: Levels, weights: Array) -> Array:
    values = levels.initial_values.at[2 : 2 + len(weights)].set(weights)
    start = len(levels.initial_values) - levels.tables.shape[0] * levels.tables.shape[1]

    def step(values: Array, level: Any) -> tuple[Array, None]:
        number, made, rows = level
        for parent in range(rows.shape[-1]):
            p = values[rows[:, parent]].reshape(-1, *(1,) * (made.ndim - 2))
            made = made[:, 0] * (1 - p) + made[:, 1] * p
        return lax.dynamic_update_slice(values, made, (start + number * len(made),)), None

    values, _ = lax.scan(step, values, (jnp.arange(len(levels.tables)), levels.tables, levels.parent_rows))
    own = values[levels.prior_rows]
    same = jnp.where(levels.valid_variables, (1 - own) * (1 - weights) + own * weights, 1)
    return (
        levels.log_constant
        + jnp.log(values[levels.evidence_rows] + 1e-30).sum()
        + jnp.log(same + 1e-30).sum()
    )
