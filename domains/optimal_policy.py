"""The best policy of a small planning problem, by dynamic programming over all states: how good a planner can be.

States are all values of the fluents. Of the next states, only those that differ in fluents whose next value is random
are summed over, so that problems of 18 fluents take seconds; no table of transitions is written out.

Puterman (1994), "Markov decision processes", section 4.5: backward induction.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from ethogram.domains.fluent_mdp import action_sets
from ethogram.models.planning import PlanningProblem

__all__ = ["OptimalPolicy"]

MOST_FLUENTS, MOST_SUMMANDS = 20, 2**28
"""Fluents, and next states (state, action, next state) of positive probability."""
CERTAIN = 1e-12


class OptimalPolicy:
    """The policy of the largest expected sum of discounted rewards; an agent with `sample_action` and `reset`.

    Of sets of actions of equal value, the one of fewest actions is taken.

    Parameters
    ----------
    problem : whose fluents are independent given state and actions.

    Attributes
    ----------
    value : the expected return from the initial state.
    values : (state,) the expected return from every state; the number of a state has fluent i as its bit i.

    Raises
    ------
    ValueError : the problem is too large, has enumerated fluents or terminal conditions, or a state without any allowed
        action.

    Examples
    --------
    >>> from ethogram.domains.sysadmin import sysadmin
    >>> policy = OptimalPolicy(sysadmin(3, horizon=4))
    >>> sorted(policy.sample_action({f"running___c{i}": i != 2 for i in (1, 2, 3)}))
    ['reboot___c2']
    """

    def __init__(self, problem: PlanningProblem):
        if not isinstance(problem, PlanningProblem):
            raise TypeError(f"problem is {type(problem).__name__}: expected a PlanningProblem")
        self.problem = problem
        count = len(problem.fluents)
        if any("=" in name for name in problem.fluents):
            raise ValueError(
                "problem has enumerated fluents: only those that are true or false can be solved"
            )
        if count > MOST_FLUENTS:
            raise ValueError(f"problem has {count} fluents: at most {MOST_FLUENTS} can be solved")
        self._bits = 1 << np.arange(count)
        states = (np.arange(2**count) & self._bits[:, None] > 0).astype(float)
        self._actions = action_sets(problem, states)
        backups, total = [], 0
        for action in self._actions:
            backups.append(_backup(problem, states, action))
            total += sum(len(part.states) << len(part.bits) for part in backups[-1].parts)
            if total > MOST_SUMMANDS:
                raise ValueError(f"problem has over {MOST_SUMMANDS} next states: too many to solve")
        values, chosen = np.zeros(2**count), []
        for _ in range(problem.horizon):
            best, which = np.full(len(values), -np.inf), np.zeros(len(values), np.int16)
            for number, backup in enumerate(backups):
                value = backup.value(values, problem.discount)
                better = value > best + CERTAIN * np.abs(np.maximum(value, -np.finfo(float).max))
                best[better], which[better] = value[better], number
            if not np.isfinite(best).all():
                raise ValueError("problem has a state in which no set of actions is allowed")
            values = best
            chosen.append(which)
        self._chosen = chosen[::-1]
        self.values: Float[np.ndarray, " state"] = values
        self.value = float(values[self._number(problem.initial)])
        self.reset()

    def reset(self) -> None:
        """Begin an episode."""
        self.step = 0

    def sample_action(self, state: Mapping[str, Any]) -> dict[str, bool]:
        """The best actions in a state, by name."""
        number = self._number(self.problem.encode_state(state))
        now = self._chosen[min(self.step, len(self._chosen) - 1)]
        self.step += 1
        return self.problem.decode_action(self._actions[now[number]])

    def _number(self, state: np.ndarray) -> int:
        return int((state > 0.5) @ self._bits)


class _Part(NamedTuple):
    """States whose next state has equally many random fluents."""

    states: np.ndarray  # (state,) numbers
    bits: np.ndarray  # (random, state) values of these fluents in the number of the next state
    probs: np.ndarray  # (random, state)


class _Backup(NamedTuple):
    """What a set of actions does in every state."""

    rewards: np.ndarray  # (state,) -inf where it is not allowed
    base: np.ndarray  # (state,) the next state with all random fluents false
    parts: tuple[_Part, ...]

    def value(self, following: np.ndarray, discount: float) -> np.ndarray:
        """Expected return (state,), given that of the next states."""
        total = self.rewards.copy()
        for states, bits, probs in self.parts:
            base, mean = self.base[states], np.zeros(len(states))
            for true in itertools.product((False, True), repeat=len(bits)):
                state, prob = base.copy(), np.ones(len(states))
                for each, bit, share in zip(true, bits, probs, strict=True):
                    state += bit * each
                    prob *= share if each else 1 - share
                mean += prob * following[state]
            total[states] += discount * mean
        return total


def _backup(problem: PlanningProblem, states: np.ndarray, action: np.ndarray) -> _Backup:
    """What a set of actions does in all states (fluent, state)."""
    actions = np.repeat(action[:, None], states.shape[1], 1)
    following, reward, end = problem.program.expectations(states, actions)
    if np.any(end):
        raise ValueError("problem has terminal conditions, which are not solved")
    allowed = problem.rules.unmet(states, actions) == 0
    true = following >= 1 - CERTAIN
    random = (following > CERTAIN) & ~true
    bits = 1 << np.arange(len(states))
    number, parts = random.sum(0), []
    for many in np.unique(number):
        at = np.flatnonzero(number == many)
        where = np.argsort(~random[:, at], 0, kind="stable")[:many]
        parts.append(_Part(at, bits[where], np.take_along_axis(following[:, at], where, 0)))
    return _Backup(np.where(allowed, reward, -np.inf), bits @ true, tuple(parts))
