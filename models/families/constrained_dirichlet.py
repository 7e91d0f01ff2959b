r"""Dirichlet rows of which some have bounds on their means.

Natural-gradient steps update the coordinates of the unconstrained posterior, prior plus counts. In q the rows with
bounds have the concentrations of a projection at the end of each step: Unhelkar and Shah (2019), eq. 11 and 19.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ethogram.models.families.array_modules import modules_of
from ethogram.models.families.exponential_family import Dirichlet, DirichletCoordinates

__all__ = ["ConstrainedDirichlet", "mean_within"]


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=("natural", "held", "solved", "rows", "lower", "upper"),
    meta_fields=("keep",),
)
@dataclasses.dataclass(frozen=True, eq=False)
class ConstrainedDirichlet(Dirichlet):
    """Distribution of probability rows, some of which have bounds on their means.

    Parameters
    ----------
    natural : free concentrations (*batch, category).
    held : (bounded row, category), concentrations of the rows with bounds in q.
    solved : (bounded row,) booleans, whether the last projection found these; the next one starts there.
    rows : (bounded row,) integers, their numbers, with batch axes flattened.
    lower, upper : (bounded row, category), bounds on their means.
    keep : whether a bounded row keeps the sum of its free concentrations.
    """

    natural: DirichletCoordinates
    held: Any
    solved: Any
    rows: Any
    lower: Any
    upper: Any
    keep: bool = False

    def effective(self) -> Dirichlet:
        """The rows as they stand in q."""
        free = self.natural.concentration
        flat = free.reshape(-1, free.shape[-1])
        if modules_of(free, self.held)[0] is np:
            flat = flat.copy()
            flat[self.rows] = self.held
        else:
            flat = flat.at[self.rows].set(self.held.astype(free.dtype))
        return Dirichlet(DirichletCoordinates(flat.reshape(free.shape)))

    def free_rows(self) -> Array:
        """Free concentrations of the rows with bounds."""
        free = self.natural.concentration
        return free.reshape(-1, free.shape[-1])[self.rows]

    def with_rows(self, held: Array, solved: Array) -> ConstrainedDirichlet:
        """The block with its bounded rows at other concentrations."""
        return dataclasses.replace(self, held=held.astype(self.natural.concentration.dtype), solved=solved)

    def inflation(self) -> Array:
        """Sum of every bounded row over that of its free posterior."""
        return jnp.sum(self.held, -1) / jnp.sum(self.free_rows(), -1)

    def standard(self) -> DirichletCoordinates:
        """Concentrations of the rows as they stand."""
        return self.effective().natural


def mean_within(base: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """Means (row, category) within bounds that allow one: `base`, scaled and clipped to them."""
    low, high = np.zeros(len(base)), np.full(len(base), 1.0)
    while (np.clip(base * high[:, None], lower, upper).sum(-1) < 1 - 1e-12).any() and high.max() < 1e18:
        high = high * 4
    for _ in range(200):
        middle = 0.5 * (low + high)
        under = np.clip(base * middle[:, None], lower, upper).sum(-1) < 1
        low, high = np.where(under, middle, low), np.where(under, high, middle)
    means = np.clip(base * high[:, None], lower, upper)
    return means / means.sum(-1, keepdims=True)
