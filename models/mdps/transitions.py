"""Transition probabilities, dense tables or sparse lists of successors, and the Markov chains of policies.

Both have the same methods, and only the dense one holds a table (state, action, state). `probability` and `draw` take
any leading axes; the others have none, and the state axis last, which is fast. Deterministic transitions are lists of
one successor.

Puterman (1994), "Markov decision processes", section 2.1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ethogram.models.arguments import (
    concretely,
    is_concrete,
    read_array,
    read_reals,
    require,
    require_distributions,
)
from ethogram.models.model_object import model_object

__all__ = ["DenseChain", "DenseTransitions", "ListChain", "SparseTransitions", "unrolled_sum"]

LISTS_AT_MOST = 4
"""Padded lists of predecessors may be this many times longer than their entries."""

UNROLL_AT_MOST = 32
"""Sums of up to this many terms are unrolled: XLA fuses those, and is several times slower in reductions."""


class DenseChain(NamedTuple):
    """P (state, next state)."""

    table: Array

    def matrix(self) -> Array:
        return self.table

    def forward(self) -> Callable[[Array], Array]:
        """Multiplication by P."""
        return lambda x: jnp.matmul(self.table, x, precision="highest")

    def backward(self) -> Callable[[Array], Array]:
        """Multiplication by the transpose of P."""
        return lambda x: jnp.matmul(x, self.table, precision="highest")


class ListChain(NamedTuple):
    """P as lists of weights and next states, both (slot, state), and of predecessors as in `SparseTransitions`."""

    neighbours: Any
    weights: Array
    predecessors: Any

    def matrix(self) -> Array:
        num_states = self.weights.shape[1]
        table = jnp.zeros((num_states, num_states), self.weights.dtype)
        return table.at[jnp.arange(num_states)[None], self.neighbours].add(self.weights)

    def forward(self) -> Callable[[Array], Array]:
        """Multiplication by P."""
        return lambda x: unrolled_sum(lambda i: self.weights[i] * x[self.neighbours[i]], len(self.weights))

    def backward(self) -> Callable[[Array], Array]:
        """Multiplication by the transpose of P."""
        if self.predecessors is None:
            nothing = jnp.zeros_like(self.weights[0])
            return lambda x: nothing.at[self.neighbours].add(self.weights * x[None])
        arriving = self.weights.reshape(-1).at[self.predecessors].get(mode="fill", fill_value=0)
        return ListChain(self.predecessors % self.weights.shape[1], arriving, None).forward()


def unrolled_sum(part: Callable[[Any], Array], count: int) -> Array:
    """Sum of the parts 0, ..., count - 1."""
    if count <= UNROLL_AT_MOST:
        total = part(0)
        for i in range(1, count):
            total += part(i)
        return total
    return lax.fori_loop(1, count, lambda i, total: total + part(i), part(0))


@model_object
class DenseTransitions:
    """Dense transition probabilities.

    Parameters
    ----------
    probabilities : P (state, action, next state), rows sum to one.
    """

    probabilities: Any

    def __post_init__(self):
        (table,) = read_reals(probabilities=self.probabilities)
        if table.ndim != 3 or table.shape[0] != table.shape[2] or 0 in table.shape:
            raise ValueError(f"probabilities has shape {table.shape}, not (state, action, state)")
        if is_concrete(table):
            require_distributions("probabilities", table)
        object.__setattr__(self, "probabilities", table)

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of states and of actions."""
        return self.probabilities.shape[-3:-1]

    def push(self, weights: Array) -> Array:
        """Weights (state,) one step after weights (action, state): the transpose of `expected_next`."""
        return jnp.einsum("san,as->n", self.probabilities, weights, precision="highest")

    def probability(self, states: Any, actions: Any, next_states: Any, xp: Any = jnp) -> Any:
        """P of single transitions, in the shape that the indices broadcast to."""
        return xp.asarray(self.probabilities)[states, actions, next_states]

    def draw(self, key: Array, states: Array, actions: Array) -> Array:
        """Next states after states and actions, in the shape that these broadcast to."""
        return jax.random.categorical(key, jnp.log(self.probabilities[states, actions]))

    def successors(self) -> tuple[np.ndarray, np.ndarray]:
        """Next states and their probabilities, both (state, action, slot), on the host."""
        probs = np.asarray(self.probabilities)
        width = int((probs > 0).sum(-1).max())
        after = np.argsort(probs <= 0, axis=-1, kind="stable")[..., :width]
        return after, np.take_along_axis(probs, after, -1)

    def expected_next(self, values: Array) -> Array:
        """Expected next values (action, state) of values (state,)."""
        return jnp.einsum("san,n->sa", self.probabilities, values, precision="highest").T

    def expected_next_columns(self, action: Any, values: Array) -> Array:
        """Expected next values (state, column) of values (state, column) under one action."""
        return jnp.matmul(self.probabilities[:, action], values, precision="highest")

    def row_sum_error(self) -> Array:
        """What rows (action, state) sum to, minus one."""
        return _row_sum_error(self.probabilities.sum(-1).T, self.probabilities.shape[-1])

    def chain(self, policy: Array) -> DenseChain:
        """The Markov chain of states under a policy (action, state)."""
        return DenseChain(jnp.einsum("as,san->sn", policy, self.probabilities, precision="highest"))


@model_object
class SparseTransitions:
    """Sparse transition probabilities, by lists of successors; made by `of` and `deterministic`, which check them.

    Parameters
    ----------
    neighbours : next states, (slot, state) where the actions of a state share them, or (action, slot, state).
    probabilities : P (action, slot, state), which sum to one over the slots.
    predecessors : (slot, state), flat indices into `neighbours` of the transitions that enter each state, padded with
        ``neighbours.size``; None where some state has too many, or next states are traced.
    """

    neighbours: Any
    probabilities: Any
    predecessors: Any = None

    @classmethod
    def of(cls, successors: Any, probabilities: Any) -> SparseTransitions:
        """Transitions of next states, and their probabilities, each (state, action, slot).

        A next state may be listed twice: its probabilities are added.
        """
        (probs,) = read_reals(probabilities=probabilities)
        successors = _states("successors", successors, 3, "(state, action, slot)")
        if successors.shape != probs.shape:
            raise ValueError(
                f"probabilities has shape {probs.shape}, successors {successors.shape}: give one for each"
            )
        if is_concrete(probs):
            require_distributions("probabilities", probs)
        moved = concretely(lambda xp, x: xp.transpose(x, (1, 2, 0)), probs)
        if not is_concrete(successors):
            return cls(jnp.transpose(successors, (1, 2, 0)), moved)
        host = np.asarray(successors)
        num_states, num_actions, num_slots = host.shape
        union, slot = _distinct(host.reshape(num_states, -1))
        width = union.shape[1]
        if width > 2 * num_slots:
            lists = _with_predecessors(np.transpose(host, (1, 2, 0)))
            return cls(lists[0], moved, lists[1])
        state, action, _ = np.indices(host.shape)

        def merged(xp, probs):
            index = (action, slot.reshape(host.shape), state)
            sums = xp.zeros((num_actions, width, num_states), probs.dtype)
            if xp is np:
                np.add.at(sums, index, probs)
                return sums
            return sums.at[index].add(probs)

        lists = _with_predecessors(union.T, np.arange(width)[:, None] <= slot.max(1))
        return cls(lists[0], concretely(merged, probs), lists[1])

    @classmethod
    def deterministic(cls, next_state: Any) -> SparseTransitions:
        """Transitions to next states (state, action), lists of one successor."""
        after = _states("next_state", next_state, 2, "(state, action)")
        if is_concrete(after):
            neighbours, predecessors = _with_predecessors(np.asarray(after).T[:, None])
        else:
            neighbours, predecessors = after.T[:, None], None
        # In single precision, which is exact, so that the precision of solutions is that of rewards.
        ones = concretely(lambda xp, x: xp.ones(x.shape, np.float32), neighbours)
        return cls(neighbours, ones, predecessors)

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of states and of actions."""
        num_actions, _, num_states = self.probabilities.shape[-3:]
        return num_states, num_actions

    @property
    def next_state(self) -> Array:
        """Next states (state, action) of deterministic transitions, which have one each."""
        if self.probabilities.shape[-2] != 1:
            raise AttributeError("these transitions have several next states: use successors()")
        return concretely(lambda xp, x: x[:, 0].T, self.neighbours)

    def push(self, weights: Array) -> Array:
        """Weights (state,) one step after weights (action, state): the transpose of `expected_next`."""
        return self.chain(weights).backward()(jnp.ones_like(weights[0]))

    def probability(self, states: Any, actions: Any, next_states: Any, xp: Any = jnp) -> Any:
        """P of single transitions, in the shape that the indices broadcast to."""
        after, probs = self._slots(states, actions, xp)
        return xp.sum(xp.where(after == next_states[..., None], probs, 0), axis=-1)

    def draw(self, key: Array, states: Array, actions: Array) -> Array:
        """Next states after states and actions, in the shape that these broadcast to."""
        after, probs = self._slots(states, actions)
        if after.shape[-1] == 1:
            return after[..., 0]
        slot = jax.random.categorical(key, jnp.log(probs))
        return jnp.take_along_axis(after, slot[..., None], axis=-1)[..., 0]

    def successors(self) -> tuple[np.ndarray, np.ndarray]:
        """Next states and their probabilities, both (state, action, slot), on the host."""
        num_states, num_actions = self.shape
        return self._slots(np.arange(num_states)[:, None], np.arange(num_actions), np)

    def _slots(self, states: Any, actions: Any, xp: Any = jnp) -> tuple[Any, Any]:
        """Next states (..., slot) and their probabilities."""
        neighbours, (states, actions) = xp.asarray(self.neighbours), xp.broadcast_arrays(states, actions)
        probs = xp.asarray(self.probabilities)[actions, :, states]
        if neighbours.ndim == 2:
            return xp.moveaxis(neighbours[:, states], 0, -1), probs
        return neighbours[actions, :, states], probs

    def expected_next(self, values: Array) -> Array:
        """Expected next values (action, state) of values (state,)."""
        own = self.neighbours.ndim == 3

        def part(slot):
            after = values[self.neighbours[:, slot] if own else self.neighbours[slot][None]]
            return self.probabilities[:, slot] * after

        return unrolled_sum(part, self.probabilities.shape[1])

    def expected_next_columns(self, action: Any, values: Array) -> Array:
        """Expected next values (state, column) of values (state, column) under one action."""
        neighbours, probs = jnp.asarray(self.neighbours), jnp.asarray(self.probabilities)[action]
        neighbours = neighbours[action] if neighbours.ndim == 3 else neighbours
        return unrolled_sum(lambda slot: probs[slot][:, None] * values[neighbours[slot]], len(probs))

    def row_sum_error(self) -> Array:
        """What rows (action, state) sum to, minus one."""
        return _row_sum_error(self.probabilities.sum(1), self.probabilities.shape[1])

    def chain(self, policy: Array) -> ListChain:
        """The Markov chain of states under a policy (action, state)."""
        num_actions, _, num_states = self.probabilities.shape
        if self.neighbours.ndim == 3:
            weights = (policy[:, None] * self.probabilities).reshape(-1, num_states)
        else:
            weights = unrolled_sum(lambda a: policy[a][None] * self.probabilities[a], num_actions)
        return ListChain(self.neighbours.reshape(-1, num_states), weights, self.predecessors)


def _states(name: str, table: Any, ndim: int, axes: str) -> Array:
    """A checked table of states; on the host first, since int32 would wrap numbers that are out of range."""
    concrete = is_concrete(*jax.tree.leaves(table, is_leaf=lambda x: not isinstance(x, list | tuple)))
    table = read_array(name, table) if concrete else jnp.asarray(table)
    if not jnp.issubdtype(table.dtype, jnp.integer):
        raise TypeError(f"{name} has dtype {table.dtype}: give integers, numbers of states")
    if table.ndim != ndim or 0 in table.shape:
        raise ValueError(f"{name} has shape {table.shape}, not {axes}")
    if concrete:
        count = table.shape[0]
        inside = (table >= 0) & (table < count)
        require(inside, name, table, "is not a state", f"states are 0 to {count - 1}")
    return concretely(lambda xp, x: x, table)


def _row_sum_error(sums: Array, count: int) -> Array:
    """Sums of `count` probabilities minus one, zero where that is rounding; its derivative is that of the sums.

    Multiplied by values of the size 1 / (1 - discount), rounding errors would make equal actions differ.
    """
    rounding = jnp.abs(sums - 1) <= (count + 1) * jnp.finfo(sums.dtype).eps
    return sums - lax.stop_gradient(jnp.where(rounding, sums, 1))


def _distinct(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distinct numbers of each row, filled up with its least one, and where among them each number is."""
    order = np.argsort(rows, axis=1, kind="stable")
    ordered = np.take_along_axis(rows, order, axis=1)
    rank = np.cumsum(np.diff(ordered, axis=1, prepend=ordered[:, :1]) != 0, axis=1)
    place = np.empty_like(rank)
    np.put_along_axis(place, order, rank, axis=1)
    distinct = np.repeat(ordered[:, :1], rank.max() + 1, axis=1)
    np.put_along_axis(distinct, rank, ordered, axis=1)
    return distinct, place


def _with_predecessors(neighbours: np.ndarray, used: Any = True) -> Any:
    """Lists (..., state) of next states, and places (slot, state) in them, flattened, of what leads to a state.

    Lists of places are filled up with the size of `neighbours`; None where that would be most of them. Both are
    arrays of JAX, but never a part of what is traced meanwhile.
    """
    num_states, places = neighbours.shape[-1], np.flatnonzero(np.broadcast_to(used, neighbours.shape))
    states = neighbours.reshape(-1)[places]
    order = np.argsort(states, kind="stable")
    counts = np.bincount(states, minlength=num_states)
    lists = None
    if counts.max() * num_states <= LISTS_AT_MOST * len(places):
        slot = np.arange(len(places)) - np.repeat(np.cumsum(counts) - counts, counts)
        lists = np.full((counts.max(), num_states), neighbours.size, np.int32)
        lists[slot, states[order]] = places[order]
    return concretely(lambda xp, *made: made, neighbours.astype(np.int32), lists)
