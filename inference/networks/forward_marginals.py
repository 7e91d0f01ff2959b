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
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array, lax

from ethogram.inference.networks.forward_layout import Kind, Layout

__all__ = [
    "LEAST",
    "fixed_values",
    "forward_pass",
    "log_value",
    "reverse_pass",
    "table_gradients",
    "value_and_gradient",
]

LEAST = 1e-30
"""Added to every term before its log while searching, so that zeros are penalised and still have a gradient."""
APART = 64
"""Entries of a table up to which its contraction is unrolled."""
TOGETHER = 8
"""Terms multiplied before a log is taken."""


def fixed_values(layout: Layout, copies: int) -> Array:
    """Values (row, copy) before the forward pass: those known in advance."""
    return jnp.broadcast_to(jnp.asarray(layout.fixed)[:, None], (len(layout.fixed), copies))


def log_value(layout: Layout, kinds: tuple[Kind, ...], weights: Array, least: float = LEAST) -> Array:
    """Ln V of every copy (copy,), at weights (weight, state - 1, copy) of all states but the first."""
    return log_value_over(fixed_values(layout, weights.shape[-1]), layout, kinds, weights, least)[0]


def log_value_over(
    values: Array, layout: Layout, kinds: tuple[Kind, ...], weights: Array, least: float = LEAST
) -> tuple[Array, Array]:
    """As `log_value`, with the values written into those of other weights, so that no array is allocated."""
    values = forward_pass(values, layout, kinds, weights)
    met, _, same = _terms(layout, values, weights)
    return _log_products(layout, met, same, least), values


def value_and_gradient(
    layout: Layout, kinds: tuple[Kind, ...], weights: Array, least: float = LEAST
) -> tuple[Array, Array]:
    """Ln V of every copy (copy,), and its gradient (weight, state - 1, copy)."""
    values = fixed_values(layout, weights.shape[-1])
    return value_and_gradient_over(values, layout, kinds, weights, least)[:2]


def value_and_gradient_over(
    values: Array, layout: Layout, kinds: tuple[Kind, ...], weights: Array, least: float = LEAST
) -> tuple[Array, Array, Array]:
    """As `value_and_gradient`, with the values written into those of other weights."""
    values = forward_pass(values, layout, kinds, weights)
    met, _, same = _terms(layout, values, weights)
    total = _log_products(layout, met, same, least)
    gradient, _ = reverse_pass(values, layout, kinds, weights, least)
    return total, gradient, values


def reverse_pass(
    values: Array, layout: Layout, kinds: tuple[Kind, ...], weights: Array, least: float = LEAST
) -> tuple[Array, Array]:
    """Gradient of ln V by the weights (weight, state - 1, copy), and the adjoints (row, copy) of all values."""
    met, own, same = _terms(layout, values, weights)
    slope = 1 / (same + least)
    rest, agree = 1 - own.sum(1), 1 - weights.sum(1)
    direct = (own - rest[:, None]) * slope[:, None]
    begin = ((weights - agree[:, None]) * slope[:, None]).reshape(-1, weights.shape[-1])
    every, change = jnp.concatenate((layout.met, layout.prior.reshape(-1))), (1 / (met + least), begin)
    adjoint = jnp.zeros_like(values).at[every].add(jnp.concatenate(change), mode="promise_in_bounds")

    def step(i: Array, adjoint: Array) -> Array:
        block = layout.num_blocks - 1 - i
        row = layout.row[block]

        def through(k: int, adjoint: Array) -> Array:
            if not kinds[k].parents:
                return adjoint
            tables, rows = layout.tables[k][layout.place[block]], _rows(layout, kinds, k, block)
            above = lax.dynamic_slice_in_dim(adjoint, row, kinds[k].width * kinds[k].outputs)
            above = above.reshape(kinds[k].width, kinds[k].outputs, -1)
            every, change = _back(tables, values, rows, above)
            return adjoint.at[every].add(change, mode="promise_in_bounds")

        return _switch(
            layout.kind[block], [functools.partial(through, k) for k in range(len(kinds))], adjoint
        )

    adjoint = lax.fori_loop(0, layout.num_blocks, step, adjoint)
    count, deep = layout.prior.shape
    return direct + adjoint[2 : 2 + count * deep].reshape(count, deep, -1), adjoint


def table_gradients(
    values: Array, adjoint: Array, layout: Layout, kinds: tuple[Kind, ...]
) -> tuple[Array, ...]:
    """Gradients of the tables of every kind, summed over copies, given values and adjoints (row, copy) of all rows."""
    order = jnp.arange(len(layout.kind), dtype=jnp.int32)

    def gradient(k: int, kind: Kind) -> Array:
        count = len(layout.tables[k])
        used = (layout.kind == k) & (order < layout.num_blocks)
        block = jnp.full(count, -1).at[layout.place].max(jnp.where(used, order, -1))
        made = layout.row[block][:, None] + jnp.arange(kind.width * kind.outputs)
        above = jnp.where(block[:, None, None] >= 0, adjoint[made], 0)
        above = above.reshape(count * kind.width, kind.outputs, -1)
        first = layout.reads[k].reshape(count * kind.width, -1)
        read = [values[first[:, i, None] + jnp.arange(size - 1)] for i, size in enumerate(kind.parents)]

        def contracted(tables: Array) -> Array:
            return jnp.broadcast_to(_contracted(tables, read), above.shape)

        tables = layout.tables[k].reshape(count * kind.width, *kind.parents, kind.outputs)
        return jax.linear_transpose(contracted, tables)(above)[0].reshape(layout.tables[k].shape)

    return tuple(gradient(k, kind) for k, kind in enumerate(kinds))


def forward_pass(values: Array, layout: Layout, kinds: tuple[Kind, ...], weights: Array) -> Array:
    """Forward pass: all values (row, copy)."""
    copies = weights.shape[-1]
    values = values.at[2 : 2 + layout.prior.size].set(weights.reshape(-1, copies))

    def step(block: Array, values: Array) -> Array:
        def through(k: int, values: Array) -> Array:
            read = _read(values, _rows(layout, kinds, k, block))
            made = _contracted(layout.tables[k][layout.place[block]], read)
            made = jnp.broadcast_to(made, (*made.shape[:2], copies))
            return lax.dynamic_update_slice_in_dim(values, made.reshape(-1, copies), layout.row[block], 0)

        return _switch(layout.kind[block], [functools.partial(through, k) for k in range(len(kinds))], values)

    return lax.fori_loop(0, layout.num_blocks, step, values)


def _switch(which: Array, branches: list[Callable[[Array], Array]], operand: Array) -> Array:
    return branches[0](operand) if len(branches) == 1 else lax.switch(which, branches, operand)


def _rows(layout: Layout, kinds: tuple[Kind, ...], k: int, block: Array) -> list[Array]:
    """Rows of the values of every parent (node, state - 1)."""
    first = layout.reads[k][layout.place[block]]
    return [
        first[:, axis, None] + jnp.arange(size - 1, dtype=jnp.int32)
        for axis, size in enumerate(kinds[k].parents)
    ]


def _read(values: Array, rows: list[Array]) -> list[Array]:
    return [values.at[each].get(mode="promise_in_bounds") for each in rows]


def _contracted(tables: Array, read: list[Array]) -> Array:
    """Contraction (node, output, copy) of tables (node, state, ..., output) with values (node, state - 1, copy).

    Small tables are unrolled by entry, which is twice as fast as sums of whole arrays.
    """
    count, outputs = len(tables), tables.shape[-1]
    whole = tables.reshape(count, -1, outputs, 1)
    made: list[Array] | None = None
    for values in read:
        chances = [1 - values.sum(1), *(values[:, state] for state in range(values.shape[1]))]
        chances = [each[:, None] for each in chances]
        if made is None and whole.shape[1] > APART:
            parts = whole.reshape(count, len(chances), -1, outputs, whole.shape[-1])
            whole = _sum([parts[:, state] * each[:, None] for state, each in enumerate(chances)])
            continue
        made = [whole[:, i] for i in range(whole.shape[1])] if made is None else made
        rest = len(made) // len(chances)
        made = [
            _sum([made[state * rest + i] * each for state, each in enumerate(chances)]) for i in range(rest)
        ]
    return whole[:, 0] if made is None else made[0]


def _sum(parts: list[Array]) -> Array:
    return functools.reduce(operator.add, parts)


def _back(tables: Array, values: Array, rows: list[Array], above: Array) -> tuple[Array, Array]:
    """Rows of the parents of a block's nodes, and the increments of their adjoints, given the nodes' adjoints.

    A contraction is linear in the values of each parent, so that its derivative contracts a table of the others.
    Parents with equal numbers of states are batched as if they were nodes, three times as fast as one reverse pass a
    parent.
    """
    sizes, copies = tables.shape[1:-1], values.shape[-1]
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
        change.append(_sum([made[..., i, :] for i in range(made.shape[-2])]).reshape(-1, copies))
    if len(every) == 1:
        return every[0], change[0]
    return jnp.concatenate(every), jnp.concatenate(change)  # one scatter is far cheaper than two


def _from_first(tables: Array, axis: int) -> Array:
    """Entries of all states but the first, minus those of the first."""
    first = lax.slice_in_dim(tables, 0, 1, axis=axis)
    return lax.slice_in_dim(tables, 1, None, axis=axis) - first


def _terms(layout: Layout, values: Array, weights: Array) -> tuple[Array, Array, Array]:
    """Marginals of the evidence, forward marginals of MAP variables, and their inner products with the weights."""
    own = values.at[layout.prior].get(mode="promise_in_bounds")
    same = (1 - own.sum(1)) * (1 - weights.sum(1)) + (own * weights).sum(1)
    return values.at[layout.met].get(mode="promise_in_bounds"), own, same


def _log_products(layout: Layout, met: Array, same: Array, least: float) -> Array:
    """Sum of the logs of all terms; with a floor, logs of products of a few terms, which cannot underflow."""
    terms = jnp.concatenate((met, same)) + least
    if least >= LEAST:
        short = -len(terms) % TOGETHER
        terms = jnp.concatenate((terms, jnp.ones((short, terms.shape[1]), terms.dtype)))
        terms = terms.reshape(TOGETHER, -1, terms.shape[1]).prod(0)
    return layout.log_constant + jnp.log(terms).sum(0)
