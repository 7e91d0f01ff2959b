"""Log-permanents: log sum over one-to-one maps of agents to roles, its marginals and exact samples."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int

from ethogram.models.chains.log_space import logsumexp
from ethogram.models.quick_jit import quick_jit

__all__ = [
    "MAX_ROLES",
    "log_permanent",
    "log_permanent_and_marginals",
    "matching_marginals",
    "sample_matching",
]

MAX_ROLES = 16
_BLOCK_TERMS = 2**17  # terms of the widest level per block: about the size of a cache


def log_permanent(potentials: ArrayLike) -> Float[Array, "*batch"]:
    r"""Log of the summed weights of all one-to-one maps of agents to roles.

    .. math:: \log \sum_\sigma \exp \sum_a W_{a, \sigma(a)}

    summed over the injective maps :math:`\sigma`, by the recursion over sets of roles

    .. math:: F_a(S) = \log \sum_{k \in S} \exp\bigl(F_{a-1}(S \setminus k) + W_{a k}\bigr), \qquad |S| = a,

    which visits only the sets of size a at agent a: at most ``role * 2**(role - 1)`` terms.

    The gradient is `matching_marginals`, which is differentiable too. Leading axes, and those that `jax.vmap`
    adds, are processed in blocks that fit in the cache.

    Parameters
    ----------
    potentials : (..., agent, role), the log weights W. ``-inf`` forbids a pair; ``+inf`` is not allowed.
        At least as many roles as agents, at most 16.

    Returns
    -------
    (...), in the dtype of `potentials`; ``-inf``, with zero gradient, where no map is possible. NaN propagates
    within its own batch entry only.

    Raises
    ------
    ValueError
        For fewer than two axes, more agents than roles, or more than 16 roles.
    TypeError
        For potentials that are not real numbers.

    References
    ----------
    Held and Karp (1962), "A dynamic programming approach to sequencing problems", eq. 1-2: the same recursion over
    sets, in the log-sum-exp semiring.

    Examples
    --------
    >>> import numpy as np
    >>> print(f"{np.exp(log_permanent(np.zeros((3, 4)))):.3f}")  # 4 * 3 * 2 maps
    24.000
    """
    return _log_permanent(_checked(potentials))


def matching_marginals(potentials: ArrayLike) -> Float[Array, "*batch agent role"]:
    r"""Posterior probability of every agent-role pair: the gradient of `log_permanent`.

    .. math:: P(\sigma(a) = k) = \frac{\partial}{\partial W_{ak}} \log \sum_\sigma \exp \sum_b W_{b,\sigma(b)}

    Parameters
    ----------
    potentials : (..., agent, role), as in `log_permanent`, with its errors.

    Returns
    -------
    (..., agent, role), in the dtype of `potentials`. Rows sum to one, columns to at most one; all zero where
    no map is possible.

    Examples
    --------
    >>> print(matching_marginals(np.array([[0.0, 0.0], [0.0, -np.inf]])))
    [[0. 1.]
     [1. 0.]]
    """
    return log_permanent_and_marginals(potentials)[1]


def log_permanent_and_marginals(
    potentials: ArrayLike,
) -> tuple[Float[Array, "*batch"], Float[Array, "*batch agent role"]]:
    """The log-permanent and its `matching_marginals`, in one pass; parameters and errors are theirs."""
    return _solve(_checked(potentials))


def sample_matching(key: Array, potentials: ArrayLike) -> Int[Array, "*batch agent"]:
    r"""Exact sample of the map of agents to roles, one for each batch entry.

    Backward sampling: the set of roles in use is drawn in proportion to its summed weight; then, from the last agent
    to the first, each agent draws the role that it removes from the set, in proportion to
    :math:`\exp(F_{a-1}(S\setminus k)+W_{ak})`.

    Parameters
    ----------
    key : a typed key. For several draws, broadcast `potentials` along a new leading axis.
    potentials : (..., agent, role), as in `log_permanent`, with its errors.

    Returns
    -------
    (..., agent) int32, the role of each agent; -1 for all agents where no map is possible.

    Examples
    --------
    >>> print(sample_matching(jax.random.key(0), np.array([[0.0, 0.0], [0.0, -np.inf]])))
    [1 0]
    """
    return _sample(key, _checked(potentials))


def _checked(potentials: ArrayLike) -> Array:
    array = jnp.asarray(potentials)
    if jnp.issubdtype(array.dtype, jnp.complexfloating):
        raise TypeError(f"potentials has dtype {array.dtype}: give the real logs of the weights")
    if array.ndim < 2:
        raise ValueError(f"potentials has shape {array.shape}: give at least two axes, (..., agent, role)")
    num_agents, num_roles = array.shape[-2:]
    if num_agents > num_roles:
        raise ValueError(
            f"potentials has {num_agents} agents but {num_roles} roles: "
            f"a one-to-one map needs at least {num_agents} roles"
        )
    if num_roles > MAX_ROLES:
        raise ValueError(
            f"potentials has {num_roles} roles: 2**{num_roles} sets are too many, {MAX_ROLES} roles at most"
        )
    is_float = jnp.issubdtype(array.dtype, jnp.floating)
    return array.astype(jnp.promote_types(array.dtype, jnp.float32) if is_float else jnp.result_type(float))


class _Level(NamedTuple):
    """Index tables between the sets of a - 1 roles ("smaller") and the sets of a roles ("larger")."""

    members: np.ndarray  # (larger, a): the roles of each larger set
    without: np.ndarray  # (larger, a): the smaller set that is left when that member goes
    absent: np.ndarray  # (smaller, role - a + 1): the roles that each smaller set lacks
    joined: np.ndarray  # (smaller, role - a + 1): the larger set that it makes with that role
    before: np.ndarray  # (role, pairs): the smaller sets that lack this role
    after: np.ndarray  # (role, pairs): the larger sets that they make with it


@functools.lru_cache(maxsize=MAX_ROLES + 1)
def _levels(num_roles: int) -> tuple[_Level, ...]:
    """Level a at place a - 1; sets of one size are numbered by increasing bit mask."""
    masks = np.arange(2**num_roles)
    holds = (masks[:, None] >> np.arange(num_roles)) & 1
    sizes = holds.sum(axis=1)
    number = np.zeros(2**num_roles, np.int32)
    for size in range(num_roles + 1):
        number[sizes == size] = np.arange(math.comb(num_roles, size))
    levels = []
    for size in range(1, num_roles + 1):
        larger, smaller = masks[sizes == size], masks[sizes == size - 1]
        members = np.nonzero(holds[larger])[1].reshape(len(larger), size).astype(np.int32)
        absent = np.nonzero(1 - holds[smaller])[1].reshape(len(smaller), -1).astype(np.int32)
        before = np.stack([number[smaller[holds[smaller, role] == 0]] for role in range(num_roles)])
        after = np.stack([number[larger[holds[larger, role] == 1]] for role in range(num_roles)])
        without = number[larger[:, None] ^ (1 << members)]
        joined = number[smaller[:, None] | (1 << absent)]
        levels.append(_Level(members, without, absent, joined, before, after))
    return tuple(levels)


@jax.custom_jvp
@quick_jit
def _log_permanent(potentials: Array) -> Array:
    return _folds_vmap(_in_blocks, _total_block)(potentials)


@_log_permanent.defjvp
def _log_permanent_jvp(primals: tuple, tangents: tuple) -> tuple:
    total, marginals = _solve(*primals)
    return total, jnp.sum(marginals * tangents[0], axis=(-2, -1))


@jax.custom_jvp
@quick_jit
def _solve(potentials: Array) -> tuple[Array, Array]:
    return _folds_vmap(_in_blocks, _solve_block)(potentials)


@_solve.defjvp
def _solve_jvp(primals: tuple, tangents: tuple) -> tuple:
    # A function with its own batching rule has no transpose: second derivatives go through the plain blocks.
    return jax.jvp(functools.partial(_in_blocks, _solve_block), primals, tangents)


@quick_jit
def _sample(key: Array, potentials: Array) -> Array:
    return _in_blocks(_sample_block, potentials, key)


def _folds_vmap(function: Callable, *first: Any) -> Callable:
    """Let the axis that `jax.vmap` adds be one more leading axis, which keeps the layout of the blocks."""
    folded = custom_vmap(functools.partial(function, *first))

    @folded.def_vmap
    def rule(axis_size: int, in_batched: list, potentials: Array) -> tuple:
        results = folded(potentials)
        return results, jax.tree.map(lambda _: True, results)

    return folded


def _in_blocks(function: Callable, potentials: Array, key: Array | None = None) -> Any:
    """Results of `function` on blocks (agent, role, batch), their last axis made the leading axes again."""
    *leading, num_agents, num_roles = potentials.shape
    size = math.prod(leading)
    widest = max((level.members.size for level in _levels(num_roles)[:num_agents]), default=1)
    num_blocks = max(1, math.ceil(size / max(8, _BLOCK_TERMS // widest)))
    width = math.ceil(size / num_blocks)
    flat = jnp.moveaxis(potentials.reshape(size, num_agents, num_roles), 0, -1)
    padded = jnp.pad(flat, [(0, 0), (0, 0), (0, num_blocks * width - size)])
    blocks = jnp.moveaxis(padded.reshape(num_agents, num_roles, num_blocks, width), 2, 0)
    arguments = (blocks,) if key is None else (jax.random.split(key, num_blocks), blocks)
    if num_blocks == 1:
        results = jax.tree.map(lambda leaf: leaf[None], function(*(argument[0] for argument in arguments)))
    else:
        results = jax.lax.map(lambda block: function(*block), arguments)

    def restored(result: Array) -> Array:
        rows = jnp.moveaxis(result, -1, 1).reshape(num_blocks * width, *result.shape[1:-1])[:size]
        return rows.reshape(*leading, *rows.shape[1:])

    return jax.tree.map(restored, results)


def _total_block(potentials: Float[Array, "agent role batch"]) -> Float[Array, "batch"]:
    best, centred = _centred(potentials)
    return best + logsumexp(_forward(centred)[-1], axis=0)


def _solve_block(potentials: Float[Array, "agent role batch"]) -> tuple[Array, Array]:
    """Log-permanents (batch,) and marginals (agent, role, batch)."""
    num_agents, num_roles, _ = potentials.shape
    best, centred = _centred(potentials)
    tables = _forward(centred)
    total = logsumexp(tables[-1], axis=0)
    rest = jnp.zeros_like(tables[-1])
    rows = []
    for agent in reversed(range(num_agents)):
        level = _levels(num_roles)[agent]
        rows.append(logsumexp(_rows(tables[agent], level.before) + _rows(rest, level.after), axis=1))
        rest = logsumexp(_rows(rest, level.joined) + _rows(centred[agent], level.absent), axis=1)
    if not rows:
        return best + total, jnp.zeros_like(potentials)
    shares = jnp.stack(rows[::-1]) + centred - jnp.where(jnp.isneginf(total), 0, total)[None, None]
    marginals = jnp.exp(shares)
    row_total = jnp.sum(marginals, axis=1, keepdims=True)
    return best + total, marginals / jnp.where(row_total == 0, 1, row_total)


def _sample_block(key: Array, potentials: Float[Array, "agent role batch"]) -> Int[Array, "agent batch"]:
    num_agents, num_roles, size = potentials.shape
    _, centred = _centred(potentials)
    tables = _forward(centred)
    key_set, *keys = jax.random.split(key, num_agents + 1)
    chosen = jax.random.categorical(key_set, tables[-1], axis=0)
    column = jnp.arange(size)[:, None]
    roles = jnp.zeros((num_agents, size), jnp.int32)
    for agent in reversed(range(num_agents)):
        level = _levels(num_roles)[agent]
        members, without = jnp.asarray(level.members)[chosen], jnp.asarray(level.without)[chosen]
        logits = tables[agent][without, column] + centred[agent][members, column]
        place = jax.random.categorical(keys[agent], logits, axis=1)[:, None]
        roles = roles.at[agent].set(jnp.take_along_axis(members, place, axis=1)[:, 0])
        chosen = jnp.take_along_axis(without, place, axis=1)[:, 0]
    possible = jnp.max(tables[-1], axis=0, keepdims=True) > -jnp.inf
    return jnp.where(possible, roles, -1)


def _centred(potentials: Float[Array, "agent role batch"]) -> tuple[Array, Array]:
    """Sum of the agents' best potentials (batch,), and the potentials less their own agent's best."""
    best = jax.lax.stop_gradient(jnp.max(potentials, axis=1, keepdims=True, initial=-jnp.inf))
    best = jnp.where(jnp.isneginf(best), 0, best)
    return jnp.sum(best, axis=(0, 1)), potentials - best


def _forward(potentials: Float[Array, "agent role batch"]) -> list[Array]:
    """F_a (set, batch) for a = 0, 1, ..., agents."""
    tables = [jnp.zeros((1, potentials.shape[2]), potentials.dtype)]
    for row, level in zip(potentials, _levels(potentials.shape[1]), strict=False):
        tables.append(logsumexp(_rows(tables[-1], level.without) + _rows(row, level.members), axis=1))
    return tables


def _rows(table: Float[Array, "row batch"], numbers: np.ndarray) -> Array:
    return table.at[numbers].get(mode="promise_in_bounds")
