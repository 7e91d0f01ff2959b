"""Markov decision processes over histories: states are the last states, or the state and the last actions.

A reward of the current state cannot say that an agent avoids going back; a reward of histories can. An agent that is
soft-optimal in the new process chooses actions by their history. Ke, Wu, Jha, Wu, "Inverse reinforcement learning with
switching rewards and history dependency for characterizing animal behaviors", section 3.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int

from ethogram.models.arguments import (
    Reals,
    is_concrete,
    read_array,
    read_features,
    require,
    require_distributions,
    require_integer,
    require_one_of,
)
from ethogram.models.data.state_action_steps import earlier, log_prob_of_actions, read_steps
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.printing import short_repr

if TYPE_CHECKING:
    from ethogram.models.mdps.mdp import MDP

__all__ = ["History", "HistoryAgent", "history_of"]

MOST_STATES = 1_000_000
"""Histories that are listed; solvers take arrays of this length."""


@short_repr
class History(NamedTuple):
    """An MDP whose states are histories of another one, and what takes features and data there.

    Attributes
    ----------
    mdp : the new MDP: sparse transitions, the discount and actions of the original one.
    states : (history, lag) integers, the current state of each history first, then the ones before; -1 before the first
        step. One column of histories of actions.
    actions : (history, lag) integers, the last action first, -1 before the first step; no column of histories of
        states.
    original : the MDP that it was made of.
    """

    mdp: MDP
    states: Int[np.ndarray, "history lag"]
    actions: Int[np.ndarray, "history lag"]
    original: MDP

    def features(
        self, of_states: Reals, of_pairs: Reals | None = None
    ) -> Float[Array, "history *action feature"]:
        """Features of histories that share those of the original MDP: the same feature in every history of a state.

        Parameters
        ----------
        of_states : (state, feature), of which a history has those of each of its states, the current one first, zeros
            before the first step; or (state, action, feature), those of the current state and action.
        of_pairs : appended; (state, state, feature), of the last state and the current one; with ``of="actions"``
            (action, action, feature), of the last action and each action. Zeros at the first step.
        """
        table = read_features("of_states", of_states)
        lead = (self.original.num_states, self.original.num_actions)
        if table.ndim not in (2, 3) or table.shape[:-1] != lead[: table.ndim - 1]:
            raise ValueError(
                f"of_states has shape {table.shape}: give ({lead[0]}, feature) or ({lead[0]}, {lead[1]}, feature)"
            )
        pairs = None if of_pairs is None else self._read_pairs(of_pairs)

        def features(xp, table, pairs):
            if table.ndim == 3:
                parts = [table[self.states[:, 0]]]
            else:
                parts = [xp.where((lag >= 0)[:, None], table[lag], 0) for lag in self.states.T]
            if pairs is not None and self.actions.shape[1]:
                last = self.actions[:, 0]
                parts.append(xp.where((last >= 0)[:, None, None], pairs[last], 0))
            elif pairs is not None:
                now, last = self.states[:, 0], self.states[:, 1]
                parts.append(xp.where((last >= 0)[:, None], pairs[last, now], 0))
            if any(part.ndim == 3 for part in parts):
                parts = [part if part.ndim == 3 else part[:, None].repeat(lead[1], 1) for part in parts]
            return xp.concatenate(parts, -1)

        on_device = any(isinstance(x, jax.Array) for x in (self.states, table, pairs))
        return features(
            jnp if on_device else np, *((jnp.asarray(table), pairs) if on_device else (table, pairs))
        )

    def _read_pairs(self, of_pairs: Reals) -> Array:
        pairs = read_features("of_pairs", of_pairs)
        lagged = self.actions if self.actions.shape[1] else self.states[:, 1:]
        count = self.original.num_actions if self.actions.shape[1] else self.original.num_states
        if pairs.ndim != 3 or pairs.shape[:2] != (count, count):
            raise ValueError(
                f"of_pairs has shape {pairs.shape}: give ({count}, {count}, feature), of the last and the current one"
            )
        if not lagged.shape[1]:
            raise ValueError("of_pairs is given, but histories have the current state only: give a larger k")
        return pairs

    def rewrite(self, data: Trajectories) -> Trajectories:
        """Trajectories of the original MDP as those of the new one: states are numbers of histories.

        The first steps have shorter histories, those of a trajectory that begins there.

        Raises
        ------
        ValueError : a frame is missing (or with ``of="actions"`` an action before the last frame), since the histories
            after it are unknown; or a history is impossible.
        """
        if not isinstance(data, Trajectories):
            raise TypeError(f"data is {type(data).__name__}: give Trajectories with states and actions")
        self.original.require_names_of(data)
        steps = read_steps(data, self.original.num_states, self.original.num_actions)
        fix = " in a missing frame: histories after it are unknown; cut the trajectory there"
        require(~steps.inside | np.asarray(data.observed), "data.states", steps.state, fix)
        of_actions = self.actions.shape[1] > 0
        if of_actions:
            fix = ", a missing action: histories after it are unknown; cut the trajectory there"
            require(~steps.leaving | (steps.action >= 0), "data.actions", steps.action, fix)
        seen = np.where(steps.inside, steps.state, 0)
        values = steps.action if of_actions else steps.state
        own = np.concatenate([self.states, self.actions], -1)
        lags = [seen, *(earlier(values, lag) for lag in range(1, own.shape[1]))]
        base = _base(self.original, "actions" if of_actions else "states")
        place, known = _find(_numbers(own, base), _numbers(np.stack(lags, -1), base))
        wrong = steps.inside & ~known
        fix = ": this history is impossible; correct the trace, the transitions, or the start of the MDP"
        require(~wrong, "data.states", steps.state, fix)
        metadata = dataclasses.replace(data.metadata, state_names=self.mdp.state_names)
        return data._replace(states=np.where(steps.inside, place, -1), metadata=metadata)

    def agent(self, policy: Any) -> HistoryAgent:
        """Agent of a policy (history, action), which scores trajectories of the original MDP."""
        table, shape = read_array("policy", policy), (self.mdp.num_states, self.mdp.num_actions)
        if table.shape != shape or table.dtype.kind != "f":
            raise ValueError(
                f"policy is {table.dtype} {table.shape}: give floats (history, action), here {shape}"
            )
        require_distributions("policy", table)
        return HistoryAgent(self, table)


@short_repr
class HistoryAgent(NamedTuple):
    """An agent whose actions depend on its history.

    Attributes
    ----------
    history : the MDP of histories.
    policy : (history, action).
    """

    history: History
    policy: Float[np.ndarray, "history action"]

    def log_prob(self, data: Trajectories) -> Float[np.ndarray, "sequence"]:
        """Log probability of the known actions of every trajectory of the original MDP, in nats."""
        return log_prob_of_actions(self.policy, self.history.rewrite(data))


def history_of(mdp: MDP, k: int, of: str) -> tuple[dict[str, Any], np.ndarray, np.ndarray]:
    """Parts of the MDP of histories, and its histories: states (history, lag) and actions (history, lag).

    See :meth:`~ethogram.models.mdps.MDP.with_history`.
    """
    require_integer("k", k, 0)
    require_one_of("of", of, ("states", "actions"))
    if not is_concrete(*jax.tree.leaves(mdp)):
        raise TypeError(
            "the MDP is traced, and its histories are counted: call with_history before jit, and pass what it returns"
        )
    successors, probs = mdp.transitions.successors()
    possible = probs > 0
    if mdp.action_mask is not None:
        possible &= np.asarray(mdp.action_mask)[..., None]
    lags, base = (max(k, 1) - 1 if of == "states" else k), _base(mdp, of)
    if math.log2(mdp.num_states) + math.log2(base) * lags >= 63:
        raise ValueError(f"k is {k}: there are more than 2**63 histories; give a smaller one")
    start = np.ones(mdp.num_states) / mdp.num_states if mdp.start is None else np.asarray(mdp.start)
    first = np.flatnonzero(start > 0)
    origin = np.full((len(first), lags + 1), -1)
    origin[:, 0] = first
    found, new = _numbers(origin, base), origin
    while len(new):
        after = _after(new, successors, of)[possible[new[:, 0]]]
        numbers, index = np.unique(_numbers(after, base), return_index=True)
        fresh = ~_find(found, numbers)[1]
        found, new = np.sort(np.concatenate([found, numbers[fresh]])), after[index[fresh]]
        if len(found) > MOST_STATES:
            raise ValueError(f"k is {k}: there are more than {MOST_STATES} histories; give a smaller one")
    histories = _histories(found, lags, base)
    current = histories[:, 0]
    ahead, real = _after(histories, successors, of), possible[current]
    place = _find(found, _numbers(ahead, base))[0]
    # Where nothing leads on, as under an action that is not available, one entry is as good as another.
    place = np.where(real, place, np.arange(len(found))[:, None, None])
    begin = np.zeros(len(found))
    begin[_find(found, _numbers(origin, base))[0]] = start[first]
    names = None if mdp.state_names is None else _names(histories, mdp, of)
    parts = {
        "discount": mdp.discount,
        "action_mask": None if mdp.action_mask is None else np.asarray(mdp.action_mask)[current],
        "start": begin.astype(start.dtype) if lags or mdp.start is not None else None,
        "features": None if mdp.features is None else np.asarray(mdp.features)[current],
        "state_names": names,
        "action_names": mdp.action_names,
    }
    if probs.shape[-1] == 1:
        parts["next_state"] = place[..., 0]
    else:
        parts |= {"successors": place, "probabilities": probs[current]}
    split = 1 if of == "actions" else lags + 1
    return parts, histories[:, :split], histories[:, split:]


def _base(mdp: MDP, of: str) -> int:
    return 1 + (mdp.num_states if of == "states" else mdp.num_actions)


def _after(histories: np.ndarray, successors: np.ndarray, of: str) -> np.ndarray:
    """Histories (history, action, slot, entry) one step later."""
    after = successors[histories[:, 0]]
    num_actions = after.shape[1]
    if of == "states":
        past = np.broadcast_to(histories[:, None, None, :-1], (*after.shape, histories.shape[1] - 1))
        return np.concatenate([after[..., None], past], -1)
    action = np.broadcast_to(np.arange(num_actions)[:, None, None], (*after.shape, 1))
    past = np.broadcast_to(histories[:, None, None, 1:], (*after.shape, histories.shape[1] - 1))
    return np.concatenate([after[..., None], action, past], -1)[..., : histories.shape[1]]


def _numbers(histories: np.ndarray, base: int) -> np.ndarray:
    """Numbers (...) of histories (..., entry); those of one current state follow one another."""
    number = histories[..., 0].astype(np.int64)
    for lag in range(1, histories.shape[-1]):
        number = number * base + histories[..., lag] + 1
    return number


def _histories(numbers: np.ndarray, lags: int, base: int) -> np.ndarray:
    """The inverse of `_numbers`."""
    entries: list[np.ndarray] = []
    for _ in range(lags):
        entries.insert(0, numbers % base - 1)
        numbers = numbers // base
    return np.stack([numbers, *entries], -1)


def _find(numbers: np.ndarray, asked: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Places of the asked numbers among those in ascending order, and whether they are there."""
    place = np.minimum(np.searchsorted(numbers, asked), len(numbers) - 1)
    return place, numbers[place] == asked


def _names(histories: np.ndarray, mdp: MDP, of: str) -> tuple[str, ...] | None:
    """Names of histories in the order of time; None where they are not unique."""
    words = mdp.state_names if of == "states" else mdp.action_names
    if of == "actions" and words is None:
        words = tuple(map(str, range(mdp.num_actions)))
    names = []
    for state, *before in histories.tolist():
        past = [words[one] for one in before[::-1] if one >= 0]
        names.append(" > ".join([*past, mdp.state_names[state]]))
    return tuple(names) if len(set(names)) == len(names) else None
