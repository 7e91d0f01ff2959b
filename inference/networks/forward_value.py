r"""The AGS surrogate of a marginal MAP query as a function that JAX transforms: of weights, and of the tables.

.. math:: \ln \hat V(q) = \sum_{E} \ln \mu_E(e) + \sum_D \ln \langle \mu_{D}, q_D \rangle

It takes `jax.jit`, `jax.grad` and `jax.vmap`, in single and in double precision. Its shape depends on the query alone:
tables are read by position, so that those of a fit, of other networks with the same parents, or of a gradient step
compile nothing anew.

Equations 6 to 8 and 12 of Cui, Marinescu, Khardon (2018), "From Stochastic Planning to Marginal MAP".
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from ethogram.inference.networks.forward_layout import (
    ROW_SUM_TOLERANCE,
    ZERO,
    BlockShape,
    Layout,
    Multilinear,
    lay_out_nodes,
    sliced_families,
)
from ethogram.inference.networks.forward_marginals import log_value
from ethogram.models.arguments import is_concrete
from ethogram.models.networks.marginal_map import MarginalMAP

__all__ = ["forward_value"]


def forward_value(query: MarginalMAP) -> Callable[..., Array]:
    """A function ``value(weights, tables=None)``, the log of the surrogate of a query.

    `weights` has one array per MAP variable, in the query's order: probabilities of its states, (state,) or
    (state, restart). `value` returns () or (restart,), in the precision of the weights. `tables` has one array per
    variable of the network, (parent 1, ..., state), and replaces the network's own.

    Gradients are for changes that keep the sum of the weights, or of a row of a table: the first state counts as what
    the others leave, so that its weight has a gradient of zero. Where a term of the surrogate is zero, the value is
    -inf and the gradient is finite. `value` raises a ValueError where arrays have the wrong number or shape, or where
    known weights are negative or do not sum to one. Rows of tables that are given are taken as distributions.

    Parameters
    ----------
    query : network, evidence and MAP variables.

    Raises
    ------
    TypeError : query is not a MarginalMAP.

    Examples
    --------
    >>> import jax, numpy as np
    >>> from ethogram.models.networks import BayesNet
    >>> rain, wet = np.array([0.8, 0.2]), np.array([[0.9, 0.1], [0.2, 0.8]])
    >>> value = forward_value(MarginalMAP(BayesNet((rain, wet), ((), (0,))), {1: 1}, [0]))
    >>> slope = jax.grad(value)([np.array([0.5, 0.5], np.float32)])[0]
    >>> round(float(slope[1]), 3)
    0.356
    """
    if not isinstance(query, MarginalMAP):
        raise TypeError(f"query must be a MarginalMAP, not {type(query).__name__}")
    network = query.network
    (layout, shapes), unscaled = _positions(query)
    soft = [np.array(likelihoods) for _, likelihoods in query.soft]

    def value(weights: Sequence[Any], tables: Sequence[Any] | None = None) -> Float[Array, "*restart"]:
        given = [_read(each) for each in weights]
        _check_weights(query, given)
        dtype = np.float64 if any(each.dtype == np.float64 for each in given) else np.float32
        known = network.tables if tables is None else list(tables)
        _check_tables(query, known)
        known, likelihoods = ([_read(each, dtype) for each in group] for group in (known, soft))
        return _surrogate(
            shapes, unscaled, layout, [each.astype(dtype) for each in given], known, likelihoods
        )

    return value


def _read(given: Any, dtype: Any = None) -> Any:
    """An array, on the host where it is known: nothing is compiled for it alone."""
    if not is_concrete(*jax.tree.leaves(given)):
        return jnp.asarray(given, dtype)
    found = np.asarray(given, dtype)
    return found.astype(jax.dtypes.canonicalize_dtype(found.dtype), copy=False)


def _check_weights(query: MarginalMAP, weights: Sequence[Any]) -> None:
    network, variables = query.network, query.map_variables
    if len(weights) != len(variables):
        raise ValueError(
            f"weights has {len(weights)} arrays for {len(variables)} MAP variables: give one each"
        )
    for variable, each in zip(variables, weights, strict=True):
        name, size = network.names[variable], network.sizes[variable]
        if each.ndim not in (1, 2) or len(each) != size or each.shape[1:] != weights[0].shape[1:]:
            raise ValueError(
                f"weights of {name} have shape {each.shape}: all must be ({size},) or ({size}, restart)"
            )
        if is_concrete(each):
            known = np.asarray(each)
            if not ((known >= 0).all() and np.allclose(known.sum(0), 1, atol=1e-5)):
                raise ValueError(f"weights of {name} must be nonnegative and sum to one")


def _check_tables(query: MarginalMAP, tables: Sequence[Any]) -> None:
    network = query.network
    if len(tables) != network.num_variables:
        raise ValueError(
            f"tables has {len(tables)} arrays for {network.num_variables} variables: give one each"
        )
    for name, own, each in zip(network.names, network.tables, tables, strict=True):
        if np.shape(each) != own.shape:
            raise ValueError(f"the table of {name} has shape {np.shape(each)}: expected {own.shape}")


def _positions(query: MarginalMAP) -> tuple[tuple[Layout, tuple[BlockShape, ...]], frozenset[int]]:
    """A layout whose tables hold positions in `_numbers`, and variables whose rows do not sum to one."""
    network, begin = query.network, 1
    whole, masses, unscaled = [], dict[int, np.ndarray](), set[int]()
    for table in network.tables:
        whole.append(begin + np.arange(table.size).reshape(table.shape))
        begin += table.size
    for number, table in enumerate(network.tables):
        if number not in dict(query.observed) and np.abs(table.sum(-1) - 1).max() > ROW_SUM_TOLERANCE:
            unscaled.add(number)
            shape = table.shape[:-1]
            masses[number] = begin + np.arange(math.prod(shape)).reshape(*shape, 1)
            begin += math.prod(shape)
    nodes, terms = dict[int, Multilinear](), []
    for (number, observed, left, at), (*_, mass) in zip(
        sliced_families(query, whole),
        sliced_families(query, [masses.get(i, each) for i, each in enumerate(whole)]),
        strict=True,
    ):
        if observed:
            terms.append(Multilinear(left, at[..., None]))
            continue
        if number in unscaled:
            terms.append(Multilinear(left, mass))
        nodes[number] = Multilinear(left, at[..., 1:])
    constant = 0.0
    for number, likelihoods in query.soft:
        if number in nodes:
            terms.append(Multilinear((number,), begin + np.arange(len(likelihoods))[:, None]))
        else:
            constant += math.log(likelihoods[0])
        begin += len(likelihoods)
    layout, shapes = lay_out_nodes(query, nodes, terms)
    tables = tuple(each.astype(np.int32) for each in layout.tables)
    layout = layout._replace(tables=tables, log_constant=layout.log_constant + constant)
    return (layout, shapes), frozenset(unscaled)


@functools.partial(jax.jit, static_argnames=("shapes", "unscaled"))
def _surrogate(
    shapes: tuple[BlockShape, ...],
    unscaled: frozenset[int],
    layout: Layout,
    weights: Sequence[Array],
    tables: Sequence[Array],
    likelihoods: Sequence[Array],
) -> Array:
    """The value of weights, tables and likelihoods: one program."""
    numbers, dtype = _numbers(tables, likelihoods, unscaled), weights[0].dtype
    filled = layout._replace(
        tables=tuple(numbers[each] for each in layout.tables),
        initial_values=layout.initial_values.astype(dtype),
        log_constant=layout.log_constant.astype(dtype),
    )
    capacity, depth = layout.prior_rows.shape
    rows = [each.reshape(len(each), -1)[1:] for each in weights]
    rows = [jnp.pad(each, ((0, depth - len(each)), (0, 0))) for each in rows]
    full = jnp.pad(jnp.stack(rows), ((0, capacity - len(rows)), (0, 0), (0, 0)))
    found = log_value(filled, shapes, full, 0.0)
    return found[0] if weights[0].ndim == 1 else found


def _numbers(tables: Sequence[Array], likelihoods: Sequence[Array], unscaled: frozenset[int]) -> Array:
    """Zero, the entries of all tables with rows scaled to one, masses of rows that were scaled, and likelihoods."""
    parts, masses = [jnp.full(1, float(ZERO), tables[0].dtype)], []
    for number, table in enumerate(tables):
        if number in unscaled:
            mass = table.sum(-1, keepdims=True)
            masses.append(mass.reshape(-1))
            table = jnp.where(mass > 0, table, 1) / jnp.where(mass > 0, mass, table.shape[-1])
        parts.append(table.reshape(-1))
    return jnp.concatenate((*parts, *masses, *likelihoods))
