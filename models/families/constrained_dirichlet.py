r"""Dirichlet rows of which some have bounds on their means.

Natural-gradient steps update the coordinates of the unconstrained posterior, prior plus counts. In q the rows with
bounds have the concentrations of a projection at the end of each step: Unhelkar and Shah (2019), eq. 11 and 19.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ethogram.models.arguments import require
from ethogram.models.families.conjugate_block import naming
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

    def validate(self, name: str) -> None:
        """Raise ValueError unless free and held concentrations are proper, and the bounds those of probabilities."""
        super().validate(name)
        with naming(f"{name}.held"):
            Dirichlet.from_standard(self.held)
        *batch, size = np.shape(self.natural.concentration)
        rows, shape = np.asarray(self.rows), (len(np.asarray(self.rows)), size)
        if (
            rows.ndim != 1
            or rows.dtype.kind not in "iu"
            or (rows < 0).any()
            or (rows >= math.prod(batch)).any()
        ):
            raise ValueError(f"{name}.rows must be numbers of rows in 0..{math.prod(batch) - 1}")
        if np.shape(self.solved) != rows.shape or np.asarray(self.solved).dtype != bool:
            raise ValueError(
                f"{name}.solved must be booleans {rows.shape}, not of shape {np.shape(self.solved)}"
            )
        for part in ("held", "lower", "upper"):
            if np.shape(getattr(self, part)) != shape:
                raise ValueError(f"{name}.{part} has shape {np.shape(getattr(self, part))}, not {shape}")
        lower, upper = np.asarray(self.lower), np.asarray(self.upper)
        good = (lower >= 0) & (upper <= 1) & (lower <= upper)
        require(
            good, f"{name}.lower", lower, "is no lower bound of a probability, or above upper", "fit again"
        )

    def effective(self) -> Dirichlet:
        """The rows as they stand in q."""
        free = self.natural.concentration
        flat = free.reshape(-1, free.shape[-1]).at[self.rows].set(self.held.astype(free.dtype))
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
