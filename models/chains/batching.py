"""Batching of the chain kernels: parameter sets on one axis, sequences in chunks.

Kernels take many parameter sets (restarts, posterior draws, MCMC chains) at once, on a leading chain axis. Their one
``lax.cond`` is a branch that hardly ever runs; under JAX's own rule for ``vmap`` both branches would run.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.custom_batching import custom_vmap

__all__ = ["by_chains", "by_chunks", "chunk_size"]

CHUNK_WIDTHS = (20, 100)
"""Sequences worked on at once: at least and at most. Fewer leave vector units empty, more gain nothing."""

CHUNK_CELLS = 250_000
"""Sequences times steps times states of a chunk, between those widths: its messages stay in the second cache."""


def by_chains(
    function: Callable[[Any, Any], Any], side_by_side: Callable[[Any, Any], Any] | None = None
) -> Callable[[Any, Any], Any]:
    """`function(shared, chains)` whose ``vmap`` makes a mapped axis part of the chain axis.

    Leaves of `chains` and of the result have a leading chain axis, those of `shared` have none. Where `shared` is
    mapped too, such as data sets of their own, `side_by_side` takes both with the mapped axis in front; None: these
    are done in turn.
    """

    @custom_vmap
    def folded(shared, chains):
        return function(shared, chains)

    @folded.def_vmap
    def _(axis_size, in_batched, shared, chains):
        def stacked(x, batched):
            return x if batched else jnp.broadcast_to(x[None], (axis_size, *x.shape))

        shared_batched, chains_batched = in_batched
        chains = jax.tree.map(stacked, chains, chains_batched)
        if any(jax.tree.leaves(shared_batched)):
            shared = jax.tree.map(stacked, shared, shared_batched)
            in_turn = functools.partial(lax.map, lambda one: folded(*one))
            result = side_by_side(shared, chains) if side_by_side else in_turn((shared, chains))
        else:
            result = folded(
                shared, jax.tree.map(lambda x: x.reshape(axis_size * x.shape[1], *x.shape[2:]), chains)
            )
            result = jax.tree.map(
                lambda x: x.reshape(axis_size, x.shape[0] // axis_size, *x.shape[1:]), result
            )
        return result, jax.tree.map(lambda _: True, result)

    return folded


def chunk_size(num_chains: int, num_sequences: int, num_steps: int, num_states: int) -> int:
    """Sequences per chunk: even chunks, whose chains times sequences keep to the widths and cells above."""
    least, most = CHUNK_WIDTHS
    width = min(max(CHUNK_CELLS // (num_steps * num_states), least), most)
    at_most = max(1, width // num_chains)
    return math.ceil(num_sequences / math.ceil(num_sequences / at_most))


def by_chunks(
    kernel: Callable[[Any, Array], tuple[Any, Any]], data: Any, size: int, *, axis: int
) -> tuple[Any, Any]:
    """Results of a kernel for each sequence, and its sums over all sequences, `size` sequences at a time.

    Parameters
    ----------
    kernel : gives two pytrees from a chunk of the data and booleans `counted` (size,): results with the sequences on
        `axis`, and sums over sequences. A sequence that is not counted belongs to another chunk too, and has to be
        taken as empty.
    data : arrays with the sequences on `axis`.
    """
    num_sequences = jax.tree.leaves(data)[0].shape[axis]
    num_chunks = math.ceil(num_sequences / size)
    if num_chunks == 1:
        return kernel(data, jnp.ones(num_sequences, bool))

    overlap = num_chunks * size - num_sequences

    def chunk_from(start, stop):
        chunk = jax.tree.map(lambda x: lax.dynamic_slice_in_dim(x, start, size, axis), data)
        return kernel(chunk, start + jnp.arange(size) < stop)

    def add_chunk(i, result):
        # Nothing has to be padded: the first chunk extends into the second, which is written over it.
        start = jnp.maximum(i * size - overlap, 0)
        each, total = chunk_from(start, (i + 1) * size - overlap)
        each = jax.tree.map(
            lambda x, part: lax.dynamic_update_slice_in_dim(x, part, start, axis), result[0], each
        )
        return each, jax.tree.map(jnp.add, result[1], total)

    each, total = jax.eval_shape(chunk_from, 0, 0)
    each = jax.tree.map(
        lambda x: jnp.zeros((*x.shape[:axis], num_sequences, *x.shape[axis + 1 :]), x.dtype), each
    )
    total = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), total)
    return lax.fori_loop(0, num_chunks, add_chunk, (each, total))
