"""Concentrations of the initial and transition probabilities of roles, or what is known of these."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from ethogram.models.arguments import concretely, is_concrete, read_reals, require
from ethogram.models.families.exponential_family import ConjugateBlock, Dirichlet, Known, PartlyKnown
from ethogram.models.memory_bound import require_room

__all__ = ["concentration", "probability_rows"]


def concentration(name: str, value: Any, shape: tuple[int, ...]) -> Any:
    """Concentrations of this shape, 1 where None; or the known probabilities, NaN where unknown."""
    if isinstance(value, Known):
        dtype = getattr(value.value, "dtype", float)
        if not jnp.issubdtype(dtype, jnp.floating):
            raise TypeError(f"{name} has dtype {dtype}, not a float type")
        rows = jnp.asarray(value.value, dtype=jnp.result_type(float))
        if rows.shape != shape:
            raise ValueError(f"{name} is Known with shape {rows.shape}, not {shape}")
        return Known(rows)
    (given,) = read_reals(**{name: 1.0 if value is None else value})
    if is_concrete(given) and given.ndim:
        some = (np.asarray(given) > 0).any(-1)  # NumPy: a comparison would be traced
        require(some, name, given, "is a row of zeros", "make one entry positive")
    require_room(name, shape, given.dtype, "give fewer roles")
    try:
        return concretely(lambda xp, x: xp.broadcast_to(x, shape), given)
    except ValueError:
        raise ValueError(f"{name} has shape {given.shape}, which does not broadcast to {shape}") from None


def probability_rows(name: str, value: Any, sticky: Any) -> ConjugateBlock:
    """Dirichlet block of probability rows, with extra weight on self-transitions; ones where rows are known."""

    def add_staying(xp, rows, sticky):
        return xp.where(rows > 0, rows + sticky * np.eye(len(rows), dtype=rows.dtype), 0)

    known = isinstance(value, Known)
    rows = concretely(lambda xp, x: xp.ones_like(x), value.value) if known else value
    if sticky is not None:
        rows = concretely(add_staying, rows, sticky)
    block = Dirichlet.from_standard(rows)
    return PartlyKnown.from_known(block, value) if known else block
