r"""Forward marginals of a Bayesian network, and the surrogate of a marginal MAP question that they make.

.. math:: \mu_x(s) = \sum_w p(x = s \mid w) \prod_k m_k(w_k), \qquad
          \ln \hat V(q) = \sum_{E} \ln \mu_E(e) + \sum_D \ln \langle \mu_{D}, q_D \rangle

Probabilities of every variable given those of its parents as if these were independent: m is the parent's own marginal,
the weights q where it is a MAP variable, the indicator where it is known. The surrogate is neither a bound of the
probability nor its value, even where all weights are zero or one, unless no two parents of a variable hang together
(and no two terms of the sum do): it is for searching, and never a score.

Logarithms are taken of every term, so that hundreds of observations do not underflow, and everything is computed in
double precision. Copies of the weights, one a restart, stand on the last axis, along which the processor's vectors
run; the gradient goes back through the same blocks, with adjoints added to the rows of parents.

Equations 6 to 8 and 12 of Cui, Marinescu, Khardon (2018), "From Stochastic Planning to Marginal MAP".
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ethogram.inference.forward_layout import Kind, Layout, lay_out
from ethogram.models.bayes_net import MarginalMAP

__all__ = ["Surrogate", "forward_surrogate", "log_value", "value_and_gradient"]

LEAST = 1e-30
"""What is added to a term before its logarithm is taken while searching: a zero is a wall, but one with a slope."""
APART = 64
"""Entries of a table that are added one by one."""
TOGETHER = 8
"""Terms whose product a logarithm is taken of."""


class Surrogate(NamedTuple):
    """The surrogate at given weights.

    Attributes
    ----------
    log_value : () or (copy,) ln V.
    gradient : of every MAP variable (state,) or (state, copy), of ln V by its weights, that of the first state taken
        off: what moving weight from it to another does.
    """

    log_value: np.ndarray
    gradient: tuple[np.ndarray, ...]


def forward_surrogate(query: MarginalMAP, weights: Sequence[Any]) -> Surrogate:
    """The surrogate ln V and its gradient; -inf, with a gradient that is finite, where a term is zero.

    Parameters
    ----------
    weights : of every MAP variable of the query, probabilities of its states (state,) or (state, copy).

    Raises
    ------
    ValueError
        Weights have another shape, are negative or do not sum to one.
    """
    sizes = [query.network.sizes[variable] for variable in query.map_variables]
    given = [np.asarray(each, np.float64) for each in weights]
    if len(given) != len(sizes):
        raise ValueError(f"weights are of {len(given)} variables: {len(sizes)} are asked for")
    for variable, size, each in zip(query.map_variables, sizes, given, strict=True):
        name = query.network.names[variable]
        if each.ndim not in (1, 2) or len(each) != size or each.ndim != given[0].ndim:
            raise ValueError(
                f"weights of {name} have shape {each.shape}: give ({size},) or ({size}, copy) to all"
            )
        if not ((each >= 0).all() and np.allclose(each.sum(0), 1, atol=1e-9)):
            raise ValueError(f"weights of {name} are no probabilities: they are at least 0 and sum to one")
    layout, kinds = lay_out(query)
    single = given[0].ndim == 1
    copies = 1 if single else given[0].shape[1]
    with jax.enable_x64(True):
        full = np.zeros((*layout.prior.shape, copies))
        for i, each in enumerate(given):
            full[i, : sizes[i] - 1] = each.reshape(sizes[i], copies)[1:]
        value, gradient = jax.tree.map(np.asarray, _evaluate(layout, kinds, full))
    moved = [np.concatenate((np.zeros((1, copies)), gradient[i, : size - 1])) for i, size in enumerate(sizes)]
    if single:
        return Surrogate(value[0], tuple(each[:, 0] for each in moved))
    return Surrogate(value, tuple(moved))


@functools.partial(jax.jit, static_argnames="kinds")
def _evaluate(layout: Layout, kinds: tuple[Kind, ...], weights: Array) -> tuple[Array, Array]:
    return log_value(layout, kinds, weights, 0.0), value_and_gradient(layout, kinds, weights)[1]


def fixed_values(layout: Layout, copies: int) -> Array:
    """Values (row, copy) before any is worked out: those that are known."""
    return jnp.broadcast_to(jnp.asarray(layout.fixed)[:, None], (len(layout.fixed), copies))


def log_value(layout: Layout, kinds: tuple[Kind, ...], weights: Array, least: float = LEAST) -> Array:
    """Log of V of every copy (copy,).

    Parameters
    ----------
    weights : (weight, state - 1, copy) of all states but the first.
    """
    return log_value_over(fixed_values(layout, weights.shape[-1]), layout, kinds, weights, least)[0]


def log_value_over(
    values: Array, layout: Layout, kinds: tuple[Kind, ...], weights: Array, least: float = LEAST
) -> tuple[Array, Array]:
    """The same, and the values, written over those of other weights: there is no new array to fill."""
    values = _forward(values, layout, kinds, weights)
    met, _, same = _terms(layout, values, weights)
    return _log_products(layout, met, same, least), values


def value_and_gradient(
    layout: Layout, kinds: tuple[Kind, ...], weights: Array, least: float = LEAST
) -> tuple[Array, Array]:
    """Log of V of every copy (copy,), and its gradient (weight, state - 1, copy)."""
    return value_and_gradient_over(
        fixed_values(layout, weights.shape[-1]), layout, kinds, weights, least
    )[:2]  # fmt: skip


def value_and_gradient_over(
    values: Array, layout: Layout, kinds: tuple[Kind, ...], weights: Array, least: float = LEAST
) -> tuple[Array, Array, Array]:
    """The same, and the values, written over those of other weights."""
    values = _forward(values, layout, kinds, weights)
    met, own, same = _terms(layout, values, weights)
    total = _log_products(layout, met, same, least)
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
    return total, direct + adjoint[2 : 2 + count * deep].reshape(count, deep, -1), values


def _forward(values: Array, layout: Layout, kinds: tuple[Kind, ...], weights: Array) -> Array:
    """All values (row, copy), those that are known already there."""
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
    """Of every parent (node, state - 1), the rows of its values."""
    first = layout.reads[k][layout.place[block]]
    return [
        first[:, axis, None] + jnp.arange(size - 1, dtype=jnp.int32)
        for axis, size in enumerate(kinds[k].parents)
    ]


def _read(values: Array, rows: list[Array]) -> list[Array]:
    return [values.at[each].get(mode="promise_in_bounds") for each in rows]


def _contracted(tables: Array, read: list[Array]) -> Array:
    """Polynomials (node, output, copy) of tables (node, state, ..., output) at the parents' values.

    Entries are taken apart, unless they are many: the same sums of whole arrays take twice as long.

    Parameters
    ----------
    read : of every parent (node, state - 1, copy).
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
    """Rows of the parents of a block's nodes, and what their adjoints gain, given the nodes' (node, output, copy).

    A table is linear in the values of one parent, so that its slope is a table of the others. Parents of as many states
    stand beside each other, as if they were nodes: one loop without branches, where the reverse of the sums, parent
    after parent, takes three times as long.
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
    return jnp.concatenate(every), jnp.concatenate(change)  # two scatters are far dearer than one


def _from_first(tables: Array, axis: int) -> Array:
    """Differences of all states but the first to that."""
    first = lax.slice_in_dim(tables, 0, 1, axis=axis)
    return lax.slice_in_dim(tables, 1, None, axis=axis) - first


def _terms(layout: Layout, values: Array, weights: Array) -> tuple[Array, Array, Array]:
    """Probabilities of evidence, those of MAP variables' states by their own tables, and that they are as weighted."""
    own = values.at[layout.prior].get(mode="promise_in_bounds")
    same = (1 - own.sum(1)) * (1 - weights.sum(1)) + (own * weights).sum(1)
    return values.at[layout.met].get(mode="promise_in_bounds"), own, same


def _log_products(layout: Layout, met: Array, same: Array, least: float) -> Array:
    """Sum of the logarithms of all terms; with a floor, of the products of a few, which cannot underflow."""
    terms = jnp.concatenate((met, same)) + least
    if least >= LEAST:
        short = -len(terms) % TOGETHER
        terms = jnp.concatenate((terms, jnp.ones((short, terms.shape[1]), terms.dtype)))
        terms = terms.reshape(TOGETHER, -1, terms.shape[1]).prod(0)
    return layout.log_constant + jnp.log(terms).sum(0)
