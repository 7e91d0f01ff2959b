r"""Forward marginals of a Bayesian network, and the AGS surrogate of a marginal MAP query.

.. math:: \mu_x(s) = \sum_w p(x = s \mid w) \prod_k m_k(w_k), \qquad
          \ln \hat V(q) = \sum_{E} \ln \mu_E(e) + \sum_D \ln \langle \mu_{D}, q_D \rangle

Marginals are propagated from parents to children as if parents were independent: m is a parent's marginal, the weights
q if it is a MAP variable, the indicator of its state if it is observed. Even at vertices the surrogate is neither the
probability nor a bound on it, unless no two parents of a variable share a random ancestor (and no two terms of the sum
do): it guides the search and is never a score.

The surrogate is a sum of logs, so that hundreds of observations do not underflow, in float64. Restarts are on the last
axis, along which the processor's vector units run; the gradient is a hand-written reverse pass through the same blocks.

Equations 6 to 8 and 12 of Cui, Marinescu, Khardon (2018), "From Stochastic Planning to Marginal MAP".
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jax import Array, lax

from ethogram.inference.networks.forward_layout import BlockShape, Layout

__all__ = ["LEAST", "log_value"]

LEAST = 1e-30
"""Added to every term before its log while searching, so that zeros are penalised and still have a gradient."""
UNROLLED_CELLS = 64
"""Entries of a table up to which its contraction is unrolled."""
TERMS_PER_LOG = 8
"""Terms multiplied before a log is taken."""


@functools.partial(jax.custom_vjp, nondiff_argnums=(1, 3))
def log_value(layout: Layout, shapes: tuple[BlockShape, ...], weights: Array, least: float = LEAST) -> Array:
    """Ln V (restart,) at weights (weight, state - 1, restart) of all states but the first.

    It has gradients by the weights, and by the tables and the log constant of the layout, with :data:`LEAST` in place
    of `least`, so that they are finite where a term is zero.
    """
    return _log_value_forward(layout, shapes, weights, least)[0]


def _log_value_forward(
    layout: Layout, shapes: tuple[BlockShape, ...], weights: Array, least: float
) -> tuple[Array, tuple[Layout, Array, Array]]:
    values = _forward_pass(layout, shapes, weights)
    evidence, _, agreement = _terms(layout, values, weights)
    return _log_products(layout, evidence, agreement, least), (layout, weights, values)


def _log_value_backward(
    shapes: tuple[BlockShape, ...], least: float, saved: tuple[Layout, Array, Array], cotangent: Array
) -> tuple[Layout, Array]:
    layout, weights, values = saved
    gradient, adjoint = _reverse_pass(values, layout, shapes, weights)
    none = Layout(*[None] * len(layout))  # type: ignore[arg-type]
    tables = _table_gradients(values, adjoint * cotangent, layout, shapes)
    return none._replace(tables=tables, log_constant=cotangent.sum()), gradient * cotangent


log_value.defvjp(_log_value_forward, _log_value_backward)


def _reverse_pass(
    values: Array, layout: Layout, shapes: tuple[BlockShape, ...], weights: Array
) -> tuple[Array, Array]:
    """Gradient of ln V by the weights (weight, state - 1, restart), and the adjoints (row, restart) of all values."""
    evidence, own, agreement = _terms(layout, values, weights)
    slope = 1 / (agreement + LEAST)
    rest, first_weight = 1 - own.sum(1), 1 - weights.sum(1)
    direct = (own - rest[:, None]) * slope[:, None]
    of_priors = ((weights - first_weight[:, None]) * slope[:, None]).reshape(-1, weights.shape[-1])
    rows = jnp.concatenate((layout.evidence_rows, layout.prior_rows.reshape(-1)))
    change = jnp.concatenate((1 / (evidence + LEAST), of_priors))
    adjoint = jnp.zeros_like(values).at[rows].add(change, mode="promise_in_bounds")

    def step(i: Array, adjoint: Array) -> Array:
        block = layout.num_blocks - 1 - i
        first_row = layout.first_row[block]

        def through(k: int, adjoint: Array) -> Array:
            if not shapes[k].parents:
                return adjoint
            tables = layout.tables[k][layout.index_in_shape[block]]
            above = lax.dynamic_slice_in_dim(adjoint, first_row, shapes[k].width * shapes[k].outputs)
            above = above.reshape(shapes[k].width, shapes[k].outputs, -1)
            rows, change = _back(tables, values, _parent_rows(layout, shapes, k, block), above)
            return adjoint.at[rows].add(change, mode="promise_in_bounds")

        branches = [functools.partial(through, k) for k in range(len(shapes))]
        return _switch(layout.shape_of_block[block], branches, adjoint)

    adjoint = lax.fori_loop(0, layout.num_blocks, step, adjoint)
    count, depth = layout.prior_rows.shape
    return direct + adjoint[2 : 2 + count * depth].reshape(count, depth, -1), adjoint


def _table_gradients(
    values: Array, adjoint: Array, layout: Layout, shapes: tuple[BlockShape, ...]
) -> tuple[Array, ...]:
    """Gradients of the tables of every shape, summed over restarts, given values and adjoints (row, restart)."""
    order = jnp.arange(len(layout.shape_of_block), dtype=jnp.int32)

    def gradient(k: int, shape: BlockShape) -> Array:
        count = len(layout.tables[k])
        used = (layout.shape_of_block == k) & (order < layout.num_blocks)
        block = jnp.full(count, -1).at[layout.index_in_shape].max(jnp.where(used, order, -1))
        made = layout.first_row[block][:, None] + jnp.arange(shape.width * shape.outputs)
        above = jnp.where(block[:, None, None] >= 0, adjoint[made], 0)
        above = above.reshape(count * shape.width, shape.outputs, -1)
        first = layout.parent_rows[k].reshape(count * shape.width, -1)
        read = [values[first[:, i, None] + jnp.arange(size - 1)] for i, size in enumerate(shape.parents)]

        def contracted(tables: Array) -> Array:
            return jnp.broadcast_to(_contracted(tables, read), above.shape)

        tables = layout.tables[k].reshape(count * shape.width, *shape.parents, shape.outputs)
        return jax.linear_transpose(contracted, tables)(above)[0].reshape(layout.tables[k].shape)

    return tuple(gradient(k, shape) for k, shape in enumerate(shapes))


def _forward_pass(layout: Layout, shapes: tuple[BlockShape, ...], weights: Array) -> Array:
    """All values (row, restart)."""
    restarts = weights.shape[-1]
    known = jnp.asarray(layout.initial_values)[:, None]
    values = jnp.broadcast_to(known, (len(known), restarts))
    values = values.at[2 : 2 + layout.prior_rows.size].set(weights.reshape(-1, restarts))

    def step(block: Array, values: Array) -> Array:
        def through(k: int, values: Array) -> Array:
            read = _read(values, _parent_rows(layout, shapes, k, block))
            made = _contracted(layout.tables[k][layout.index_in_shape[block]], read)
            made = jnp.broadcast_to(made, (*made.shape[:2], restarts)).reshape(-1, restarts)
            return lax.dynamic_update_slice_in_dim(values, made, layout.first_row[block], 0)

        branches = [functools.partial(through, k) for k in range(len(shapes))]
        return _switch(layout.shape_of_block[block], branches, values)

    return lax.fori_loop(0, layout.num_blocks, step, values)


def _switch(which: Array, branches: Sequence[Callable[[Array], Array]], operand: Array) -> Array:
    return branches[0](operand) if len(branches) == 1 else lax.switch(which, branches, operand)


def _parent_rows(layout: Layout, shapes: tuple[BlockShape, ...], k: int, block: Array) -> list[Array]:
    """Rows of the values of every parent (node, state - 1)."""
    first = layout.parent_rows[k][layout.index_in_shape[block]]
    return [
        first[:, axis, None] + jnp.arange(size - 1, dtype=jnp.int32)
        for axis, size in enumerate(shapes[k].parents)
    ]


def _read(values: Array, rows: list[Array]) -> list[Array]:
    return [values.at[each].get(mode="promise_in_bounds") for each in rows]


def _contracted(tables: Array, read: list[Array]) -> Array:
    """Contraction (node, output, restart) of tables (node, state, ..., output) with values (node, state - 1, restart).

    Small tables are unrolled by entry, which is twice as fast as sums of whole arrays.
    """
    count, outputs = len(tables), tables.shape[-1]
    whole = tables.reshape(count, -1, outputs, 1)
    made: list[Array] | None = None
    for values in read:
        probs = [1 - values.sum(1), *(values[:, state] for state in range(values.shape[1]))]
        probs = [each[:, None] for each in probs]
        if made is None and whole.shape[1] > UNROLLED_CELLS:
            parts = whole.reshape(count, len(probs), -1, outputs, whole.shape[-1])
            whole = _sum([parts[:, state] * each[:, None] for state, each in enumerate(probs)])
            continue
        made = [whole[:, i] for i in range(whole.shape[1])] if made is None else made
        rest = len(made) // len(probs)
        made = [
            _sum([made[state * rest + i] * each for state, each in enumerate(probs)]) for i in range(rest)
        ]
    return whole[:, 0] if made is None else made[0]


def _sum(parts: list[Array]) -> Array:
    return functools.reduce(operator.add, parts)


def _back(tables: Array, values: Array, rows: list[Array], above: Array) -> tuple[Array, Array]:
    """Rows of the parents of a block's nodes, and the increments of their adjoints, given the nodes' adjoints.

    A contraction is linear in the values of each parent, so that its derivative contracts a table of the others.
    Parents with equal numbers of states are batched as if they were nodes, three times as fast as one reverse pass
    per parent.
    """
    sizes, restarts = tables.shape[1:-1], values.shape[-1]
    every, change = [], []
    for _, group in itertools.groupby(range(len(sizes)), key=sizes.__getitem__):
        axes = list(group)
        slopes = jnp.stack([jnp.moveaxis(_from_first(tables, axis + 1), axis + 1, -2) for axis in axes], 1)
        slopes = slopes.reshape(len(tables) * len(axes), *slopes.shape[2:-2], -1)
        others = [[rows[j if j < axis else j + 1] for axis in axes] for j in range(len(sizes) - 1)]
        flat = [jnp.stack(each, 1).reshape(-1, each[0].shape[-1]) for each in others]
        made = _contracted(slopes, _read(values, flat))
        made = made.reshape(len(tables), len(axes), -1, above.shape[1], made.shape[-1]) * above[:, None, None]
        every.append(jnp.stack([rows[axis] for axis in axes], 1).reshape(-1))
        change.append(_sum([made[..., i, :] for i in range(made.shape[-2])]).reshape(-1, restarts))
    if len(every) == 1:
        return every[0], change[0]
    return jnp.concatenate(every), jnp.concatenate(change)  # one scatter is far cheaper than two


def _from_first(tables: Array, axis: int) -> Array:
    """Entries of all states but the first, minus those of the first."""
    first = lax.slice_in_dim(tables, 0, 1, axis=axis)
    return lax.slice_in_dim(tables, 1, None, axis=axis) - first


def _terms(layout: Layout, values: Array, weights: Array) -> tuple[Array, Array, Array]:
    """Marginals of the evidence, forward marginals of MAP variables, and their inner products with the weights."""
    own = values.at[layout.prior_rows].get(mode="promise_in_bounds")
    agreement = (1 - own.sum(1)) * (1 - weights.sum(1)) + (own * weights).sum(1)
    return values.at[layout.evidence_rows].get(mode="promise_in_bounds"), own, agreement


def _log_products(layout: Layout, evidence: Array, agreement: Array, least: float) -> Array:
    """Sum of the logs of all terms; with a floor, logs of products of a few terms, which cannot underflow."""
    terms = jnp.concatenate((evidence, agreement)) + least
    if least >= LEAST:
        short = -len(terms) % TERMS_PER_LOG
        terms = jnp.concatenate((terms, jnp.ones((short, terms.shape[1]), terms.dtype)))
        terms = terms.reshape(TERMS_PER_LOG, -1, terms.shape[1]).prod(0)
    return layout.log_constant + jnp.log(terms).sum(0)
