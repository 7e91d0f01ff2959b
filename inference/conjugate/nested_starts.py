"""Nested starts: restarts use few states at first, and one more each time until the best fit leaves two unused.

The best fit so far is one of the restarts each time. A state that q does not use costs the ELBO nothing and stays
unused: several numbers of states run in one compiled program, and the same fits with few states are found whatever the
truncation, so that the ELBO does not fall with it. An unused state costs time: the search runs in a model with room for
a few states, and in one with room for twice as many once these are used.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from ethogram.inference.conjugate.starts import start_blocks
from ethogram.models.quick_jit import quick_jit

__all__ = ["FEWEST", "HORIZON", "ROOM", "UNUSED", "joined", "nested_starts"]

FEWEST = 2
"""States of the first restarts, one of which has a single state."""

HORIZON = 300.0
"""Iterations, at the gain of the last, within which a restart must reach the best one; otherwise it stops early."""

ROOM = 6
"""States of the model in which the search begins."""

UNUSED = 2
"""States that the best fit leaves unused where the search ends."""


def nested_starts(
    key: Array, model: Any, batches: list[Any], restarts: int, init: str, padded: list[Any], number: int
) -> Any:
    """Initial q(theta) of restarts that use `number` states, on a leading axis; see `start_blocks`."""
    key = jax.random.fold_in(key, number)
    return start_blocks(key, model, model.prior_of_first(number), batches, restarts, init, padded, number)


@quick_jit
def joined(*blocks: Any) -> Any:
    """Blocks with leading axes of restarts, one after another."""
    return jax.tree.map(lambda *x: jnp.concatenate(x), *blocks)
