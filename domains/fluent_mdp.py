"""The Markov decision process of a small planning problem: every state and every allowed set of actions, written out.

It turns a planner into a simulator of demonstrations for models of rewards, and says what the best policy is worth.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from ethogram.models.data import Trajectories
from ethogram.models.mdps import MDP
from ethogram.models.planning import PlanningProblem

__all__ = ["FluentMDP", "enumerate_problem"]

MOST_CELLS = 2**26
"""Probabilities (state, action, next state) that are written out."""
MOST_SETS = 2**22
"""Sets of actions that are tried, over all states."""


class FluentMDP(NamedTuple):
    """A planning problem as an MDP.

    Attributes
    ----------
    mdp : with the problem's discount, the start, fluents as features, and names of states and actions.
    rewards : (state, action) expected rewards.
    states : (state, fluent) of 0 and 1.
    actions : (action, action of the problem) of 0 and 1; the first does nothing.
    """

    mdp: MDP
    rewards: Float[np.ndarray, "state action"]
    states: Float[np.ndarray, "state fluent"]
    actions: Float[np.ndarray, "action part"]

    def demonstrations(self, problem: PlanningProblem, episodes: Any) -> Trajectories:
        """Episodes of :func:`ethogram.planning.play_episodes` as sequences of numbers of states and actions.

        Raises
        ------
        ValueError : an episode has a state or an action that the MDP has not.
        """
        find_state, find_action = (
            {tuple(row): number for number, row in enumerate(table)} for table in (self.states, self.actions)
        )

        def number(found: dict[Any, int], names: Sequence[str], true: Sequence[str], what: str) -> int:
            row = tuple(float(name in true) for name in names)
            if row not in found or len(set(true)) != sum(row):
                raise ValueError(f"episodes has {what} {sorted(true)}, which the problem has not")
            return found[row]

        states = [
            [number(find_state, problem.fluents, step, "the state") for step in each]
            for each in episodes.states
        ]
        actions = [
            [number(find_action, problem.actions, step, "the actions") for step in each]
            for each in episodes.actions
        ]
        return Trajectories.from_list(states=states, actions=actions, codes=True)


def enumerate_problem(problem: PlanningProblem) -> FluentMDP:
    """The MDP of a problem whose fluents are independent given state and actions.

    Raises
    ------
    ValueError : there are more than 2^26 probabilities, or 2^22 sets of actions in all states, or the problem has
        terminal conditions.
    """
    one_of = [list(members) for members in problem.enumerated.values()]
    plain = [i for i, name in enumerate(problem.fluents) if "=" not in name]
    count, parts = len(problem.fluents), len(problem.actions)
    num_states = 2 ** len(plain) * math.prod(map(len, one_of))
    if num_states**2 > MOST_CELLS or num_states * 2**parts > MOST_SETS:
        raise ValueError(f"problem has {num_states} states and {parts} actions: too many to write out")
    blocks = [((0.0,), (1.0,))] * len(plain) + [tuple(map(tuple, np.eye(len(each)))) for each in one_of]
    order = np.argsort(plain + [number for each in one_of for number in each])
    rows = [[value for part in chosen for value in part] for chosen in itertools.product(*blocks)]
    states = np.array(rows, float).reshape(-1, count)[:, order]
    every = np.array(list(itertools.product((0.0, 1.0), repeat=parts)))
    every = every[np.argsort(every.sum(1), kind="stable")]
    allowed = np.array([problem.rules.unmet(state, every.T) == 0 for state in states])
    actions, allowed = every[allowed.any(0)], allowed[:, allowed.any(0)]
    if (cells := len(states) ** 2 * len(actions)) > MOST_CELLS:
        raise ValueError(f"problem has {cells} probabilities of next states: too many to write out")
    transitions, rewards = np.zeros((len(states), len(actions), len(states))), np.zeros(allowed.shape)
    for number, action in enumerate(actions):
        following, reward, end = problem.program.expectations(
            states.T, np.repeat(action[:, None], len(states), 1)
        )
        if end.any():
            raise ValueError("problem has terminal conditions, which are not written out")
        rewards[:, number] = reward
        chances = np.ones((len(states), len(states)))
        for i in plain:
            chances *= np.where(states[:, i] > 0, following[i][:, None], 1 - following[i][:, None])
        for members in one_of:
            chances *= following[members].T @ states[:, members].T
        transitions[:, number] = chances / chances.sum(1, keepdims=True)
    start = (states == problem.initial).all(1).astype(float)
    mdp = MDP.dense(
        transitions,
        discount=problem.discount,
        action_mask=None if allowed.all() else allowed,
        start=start,
        features=states,
        state_names=_names(states, problem.fluents, "none"),
        action_names=_names(actions, problem.actions, "nothing"),
    )
    return FluentMDP(mdp, rewards, states, actions)


def _names(rows: np.ndarray, names: Sequence[str], nothing: str) -> tuple[str, ...]:
    """Names of the parts of each row that are 1, joined."""
    return tuple(
        " ".join(name for name, on in zip(names, row > 0, strict=True) if on) or nothing for row in rows
    )
