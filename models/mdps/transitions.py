"""Transition probabilities: dense tables, sparse lists of successors, or deterministic next states.

All have the same methods, and only the dense one holds a table (state, action, state). `expect`, `push`, `probability`
and `draw` take any leading axes; `ahead`, `excess` and `chain` serve solvers, without leading axes and with the state
axis last, which is fast.

Puterman (1994), "Markov decision processes", section 2.1.
"""

from __future__ import annotations

import functools
from typing import Any

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
from ethogram.models.mdps.policy_system import DenseChain, ListChain, add_up
from ethogram.models.model_object import model_object

__all__ = ["DenseTransitions", "DeterministicTransitions", "SparseTransitions"]

LISTS_AT_MOST = 4
"""Padded lists of predecessors may be this many times longer than their entries."""


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
        return self.probabilities.shape[:2]

    def expect(self, values: Array) -> Array:
        """Expected next values (..., state, action) of values (..., state)."""
        return jnp.einsum("san,...n->...sa", self.probabilities, values, precision="highest")

    def push(self, weights: Array) -> Array:
        """Weights (..., state) one step after weights (..., state, action): the transpose of `expect`."""
        return jnp.einsum("san,...sa->...n", self.probabilities, weights, precision="highest")

    def probability(self, states: Any, actions: Any, next_states: Any, xp: Any = jnp) -> Any:
        """P of single transitions, in the shape that the indices broadcast to."""
        return xp.asarray(self.probabilities)[states, actions, next_states]

    def draw(self, key: Array, states: Array, actions: Array) -> Array:
        """Next states after states and actions, in the shape that these broadcast to."""
        return jax.random.categorical(key, jnp.log(self.probabilities[states, actions]))

    def for_solvers(self) -> DenseTransitions:
        """The transitions themselves, which have the methods of solvers."""
        return self

    def ahead(self, values: Array) -> Array:
        """Expected next values (action, state) of values (state,)."""
        return jnp.einsum("san,n->sa", self.probabilities, values, precision="highest").T

    def after(self, action: Any, values: Array) -> Array:
        """Expected next values (state, column) of values (state, column) under one action."""
        return jnp.matmul(self.probabilities[:, action], values, precision="highest")

    def excess(self) -> Array:
        """By how much rows (action, state) sum to more than one."""
        return _excess(self.probabilities.sum(-1).T, self.probabilities.shape[-1])

    def chain(self, policy: Array) -> DenseChain:
        """The Markov chain of states under a policy (action, state)."""
        return DenseChain(jnp.einsum("as,san->sn", policy, self.probabilities, precision="highest"))


@model_object
class SparseTransitions:
    """Sparse transition probabilities, by lists of successors; `of` makes them of lists for every state and action.

    Parameters
    ----------
    neighbours : next states, (slot, state) where the actions of a state share them, or (action, slot, state).
    probabilities : P (action, slot, state), which sum to one over the slots.
    entering : (slot, state), the places of what leads to a state in the flattened `neighbours`, which are ahead of
        the end of that; or None where some state has too many predecessors, or next states are traced.
    """

    neighbours: Any
    probabilities: Any
    entering: Any = None

    def __post_init__(self):
        (table,) = read_reals(probabilities=self.probabilities)
        if table.ndim != 3 or np.shape(self.neighbours) not in (table.shape, table.shape[1:]):
            raise ValueError(
                f"neighbours has shape {np.shape(self.neighbours)}, probabilities {table.shape}: give (action, slot, "
                "state), and neighbours of the same shape, or without its first axis"
            )
        if is_concrete(table):
            require_distributions("probabilities", np.moveaxis(np.asarray(table), 1, -1))
        size = int(np.prod(np.shape(self.neighbours)))
        for name, most in (("neighbours", table.shape[-1]), ("entering", size + 1)):
            value = getattr(self, name)
            if value is None or not is_concrete(value):
                continue
            host = np.asarray(value)
            if host.dtype.kind not in "iu":
                raise TypeError(f"{name} has dtype {host.dtype}: give integers")
            require(
                (host >= 0) & (host < most),
                name,
                host,
                f"is not in 0..{most - 1}",
                "use SparseTransitions.of",
            )
        if self.entering is not None and (
            np.ndim(self.entering) != 2 or np.shape(self.entering)[1] != table.shape[-1]
        ):
            raise ValueError(
                f"entering has shape {np.shape(self.entering)}: give (slot, {table.shape[-1]} states)"
            )

    @classmethod
    def of(cls, successors: Any, probabilities: Any) -> SparseTransitions:
        """Transitions of next states, and their probabilities, each (state, action, slot).

        A next state may be listed twice: its probabilities are added.
        """
        (chances,) = read_reals(probabilities=probabilities)
        successors = _states("successors", successors, 3, "(state, action, slot)")
        if successors.shape != chances.shape:
            raise ValueError(
                f"probabilities has shape {chances.shape}, successors {successors.shape}: give one for each"
            )
        if is_concrete(chances):
            require_distributions("probabilities", chances)
        if not is_concrete(successors):
            return cls(jnp.transpose(successors, (1, 2, 0)), jnp.transpose(chances, (1, 2, 0)))
        host = np.asarray(successors)
        num_states, num_actions, num_slots = host.shape
        union, slot = _distinct(host.reshape(num_states, -1))
        width = union.shape[1]
        if width > 2 * num_slots:
            lists = _with_predecessors(np.transpose(host, (1, 2, 0)))
            return cls(lists[0], jnp.transpose(chances, (1, 2, 0)), lists[1])
        state, action, _ = np.indices(host.shape)
        place = (action, slot.reshape(host.shape), state)
        merged: Any = jnp.zeros((num_actions, width, num_states), chances.dtype)
        if is_concrete(chances):
            added = np.zeros(merged.shape, chances.dtype)
            np.add.at(added, place, np.asarray(chances))
            (merged,) = read_reals(probabilities=added)
        else:
            merged = merged.at[place].add(chances)
        lists = _with_predecessors(union.T, np.arange(width)[:, None] <= slot.max(1))
        return cls(lists[0], merged, lists[1])

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of states and of actions."""
        num_actions, _, num_states = self.probabilities.shape
        return num_states, num_actions

    def expect(self, values: Array) -> Array:
        """Expected next values (..., state, action) of values (..., state)."""
        after = values[..., self.neighbours]
        own = "a" if self.neighbours.ndim == 3 else ""
        return jnp.einsum(f"acs,...{own}cs->...sa", self.probabilities, after, precision="highest")

    def push(self, weights: Array) -> Array:
        """Weights (..., state) one step after weights (..., state, action): the transpose of `expect`."""
        own = "a" if self.neighbours.ndim == 3 else ""
        moved = jnp.einsum(f"acs,...sa->...{own}cs", self.probabilities, weights, precision="highest")
        return _gather_in(moved.reshape(*weights.shape[:-2], -1), self.neighbours, self.entering)

    def probability(self, states: Any, actions: Any, next_states: Any, xp: Any = jnp) -> Any:
        """P of single transitions, in the shape that the indices broadcast to."""
        states, actions = xp.broadcast_arrays(states, actions)
        after, chance = self._after(states, actions, xp)
        return xp.sum(xp.where(after == next_states[..., None], chance, 0), axis=-1)

    def draw(self, key: Array, states: Array, actions: Array) -> Array:
        """Next states after states and actions, in the shape that these broadcast to."""
        after, chance = self._after(*jnp.broadcast_arrays(states, actions))
        slot = jax.random.categorical(key, jnp.log(chance))
        return jnp.take_along_axis(after, slot[..., None], axis=-1)[..., 0]

    def _after(self, states: Any, actions: Any, xp: Any = jnp) -> tuple[Any, Any]:
        """Next states (..., slot) and their probabilities."""
        neighbours = xp.asarray(self.neighbours)
        chance = xp.asarray(self.probabilities)[actions, :, states]
        if neighbours.ndim == 2:
            return xp.moveaxis(neighbours[:, states], 0, -1), chance
        return neighbours[actions, :, states], chance

    def for_solvers(self) -> SparseTransitions:
        """The transitions themselves, which have the methods of solvers."""
        return self

    def ahead(self, values: Array) -> Array:
        """Expected next values (action, state) of values (state,)."""
        own = self.neighbours.ndim == 3

        def part(slot):
            after = values[self.neighbours[:, slot] if own else self.neighbours[slot][None]]
            return self.probabilities[:, slot] * after

        return add_up(part, self.probabilities.shape[1])

    def after(self, action: Any, values: Array) -> Array:
        """Expected next values (state, column) of values (state, column) under one action."""
        neighbours, chances = jnp.asarray(self.neighbours), jnp.asarray(self.probabilities)[action]
        neighbours = neighbours[action] if neighbours.ndim == 3 else neighbours
        return add_up(lambda slot: chances[slot][:, None] * values[neighbours[slot]], len(chances))

    def excess(self) -> Array:
        """By how much rows (action, state) sum to more than one."""
        return _excess(self.probabilities.sum(1), self.probabilities.shape[1])

    def chain(self, policy: Array) -> ListChain:
        """The Markov chain of states under a policy (action, state)."""
        num_actions, _, num_states = self.probabilities.shape
        if self.neighbours.ndim == 3:
            weights = (policy[:, None] * self.probabilities).reshape(-1, num_states)
        else:
            weights = add_up(lambda a: policy[a][None] * self.probabilities[a], num_actions)
        return ListChain(self.neighbours.reshape(-1, num_states), weights, self.entering)


@model_object
class DeterministicTransitions:
    """Deterministic transitions.

    Parameters
    ----------
    next_state : (state, action) integers.
    """

    next_state: Any

    def __post_init__(self):
        object.__setattr__(self, "next_state", _states("next_state", self.next_state, 2, "(state, action)"))

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of states and of actions."""
        return self.next_state.shape

    def expect(self, values: Array) -> Array:
        """Values (..., state, action) of the next states, of values (..., state)."""
        return values[..., self.next_state]

    def probability(self, states: Any, actions: Any, next_states: Any, xp: Any = jnp) -> Any:
        """One where the transition is the one that happens, else zero, in the shape that the indices broadcast to."""
        return (xp.asarray(self.next_state)[states, actions] == next_states).astype(float)

    def draw(self, key: Array, states: Array, actions: Array) -> Array:
        """Next states after states and actions, in the shape that these broadcast to; the key is not used."""
        return self.next_state[states, actions]

    def for_solvers(self) -> SparseTransitions:
        """The same as lists of successors, one to each state and action."""
        if is_concrete(self.next_state):
            return self._lists
        neighbours = self.next_state.T[:, None]
        return SparseTransitions(neighbours, jnp.ones(neighbours.shape, np.float32))

    @functools.cached_property
    def _lists(self) -> SparseTransitions:
        neighbours, entering = _with_predecessors(np.asarray(self.next_state).T[:, None])
        return SparseTransitions(neighbours, np.ones(neighbours.shape, np.float32), entering)


def _entries(name: str, table: Any) -> list[Any]:
    if hasattr(table, "dtype"):
        return [table]
    if isinstance(table, list | tuple):
        return [entry for part in table for entry in _entries(name, part)]
    return [table]


def _states(name: str, table: Any, ndim: int, axes: str) -> Array:
    """A checked table of states; on the host first, since int32 would wrap numbers that are out of range."""
    concrete = is_concrete(*_entries(name, table))
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


def _excess(sums: Array, count: int) -> Array:
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


def _gather_in(moved: Array, neighbours: Array, entering: Array | None) -> Array:
    """Sums (..., state) of the weights `moved` (..., place) that arrive along the flattened `neighbours`."""
    if entering is not None:
        return moved.at[..., entering].get(mode="fill", fill_value=0).sum(-2)
    nothing = jnp.zeros((*moved.shape[:-1], neighbours.shape[-1]), moved.dtype)
    return nothing.at[..., neighbours.reshape(-1)].add(moved)
