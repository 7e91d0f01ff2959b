"""Conjugate blocks with the labels of their states permuted, and whether a prior distinguishes between the states."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import numpy as np
from jaxtyping import Int

from ethogram.models.families.conjugate_block import ConjugateBlock

__all__ = ["is_exchangeable", "permuted"]

Axes = Mapping[str, tuple[int, ...]]
"""Axes of the states in the arrays of a block, by its name; arrays may lack the later ones."""


def permuted(
    blocks: dict[str, ConjugateBlock], axes: Axes, order: Int[np.ndarray, "state"]
) -> dict[str, ConjugateBlock]:
    """Blocks whose state k is state ``order[k]`` of those given; entries beyond the states keep their place."""

    def moved(own: tuple[int, ...], leaf: Any) -> np.ndarray:
        leaf = np.asarray(leaf)
        for axis in own:
            if axis < leaf.ndim and leaf.shape[axis] > 1:  # of all states where it is 1
                rest = np.arange(len(order), leaf.shape[axis])
                leaf = np.take(leaf, np.concatenate([order, rest]), axis=axis)
        return leaf

    return {name: jax.tree.map(partial(moved, axes.get(name, ())), block) for name, block in blocks.items()}


def is_exchangeable(prior: dict[str, ConjugateBlock], axes: Axes, num_states: int) -> bool:
    """Whether no permutation of the states changes a prior: those of two generate all of them."""
    cycle = np.roll(np.arange(num_states), 1)
    exchange = np.arange(num_states)
    exchange[:2] = exchange[:2][::-1]
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(prior)]
    return all(
        np.array_equal(leaf, other, equal_nan=leaf.dtype.kind == "f")
        for order in (cycle, exchange)
        for leaf, other in zip(leaves, jax.tree.leaves(permuted(prior, axes, order)), strict=True)
    )
