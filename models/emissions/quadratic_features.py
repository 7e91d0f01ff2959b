"""Quadratic forms of frames as linear functions of the products of their entries, of which each is made once."""

from __future__ import annotations

import numpy as np
from jax import Array, lax

__all__ = ["products", "weights_of_products"]


def products(x: Array, axis: int) -> list[Array]:
    """The upper triangle of x x' along an axis, in rows, which are to be concatenated."""
    size = x.shape[axis]
    rows = [lax.slice_in_dim(x, i, size, axis=axis) for i in range(size)]
    return [lax.slice_in_dim(row, 0, 1, axis=axis) * row for row in rows]


def weights_of_products(form: Array) -> Array:
    """Weights (..., entry) of `products` in <H, x x'>, for forms H (..., row, row)."""
    rows, columns = np.triu_indices(form.shape[-1])
    twice = form + form.mT
    halved = np.where(rows == columns, 0.5, 1.0).astype(twice.dtype).reshape((1,) * (twice.ndim - 2) + (-1,))
    return twice[..., rows, columns] * halved
