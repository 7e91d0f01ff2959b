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

__all__ = ["FluentMDP", "action_sets", "enumerate_problem"]

MOST_CELLS = 2**26
"""Probabilities (state, action, next state) that are written out."""
MOST_SETS = 2**14
"""Sets of actions that are tried."""


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
    ValueError : there are more than 2^26 probabilities, or 2^14 sets of actions, or the problem has terminal
        conditions.
    """
    one_of = [list(members) for members in problem.enumerated.values()]
    plain = [i for i, name in enumerate(problem.fluents) if "=" not in name]
    num_states = 2 ** len(plain) * math.prod(map(len, one_of))
    size = f"{num_states} states and {len(problem.actions)} actions"
    if num_states**2 > MOST_CELLS:
        raise ValueError(f"problem has {size}: too many to write out")
    blocks = [((0.0,), (1.0,))] * len(plain) + [tuple(map(tuple, np.eye(len(each)))) for each in one_of]
    order = np.argsort(plain + [number for each in one_of for number in each])
    rows = [[value for part in chosen for value in part] for chosen in itertools.product(*blocks)]
    states = np.array(rows, float).reshape(-1, len(problem.fluents))[:, order]
    sets = action_sets(problem, states.T)
    if num_states**2 * len(sets) > MOST_CELLS:
        raise ValueError(f"problem has {size}, {len(sets)} sets of them: too many to write out")
    every = [np.repeat(action[:, None], num_states, 1) for action in sets]
    allowed = np.stack([problem.rules.unmet(states.T, action) == 0 for action in every], 1)
    some = np.flatnonzero(allowed.any(0))
    actions, allowed = sets[some], allowed[:, some]
    transitions, rewards = np.ones((num_states, len(some), num_states)), np.zeros(allowed.shape)
    for number, index in enumerate(some):
        following, rewards[:, number], end = problem.program.expectations(states.T, every[index])
        if end.any():
            raise ValueError("problem has terminal conditions, which are not written out")
        for i in plain:
            on = following[i][:, None]
            transitions[:, number] *= np.where(states[:, i] > 0, on, 1 - on)
        for members in one_of:
            transitions[:, number] *= following[members].T @ states[:, members].T
    transitions /= transitions.sum(-1, keepdims=True)
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


def action_sets(
    problem: PlanningProblem, states: Float[np.ndarray, "fluent state"]
) -> Float[np.ndarray, "set action"]:
    """Sets of actions of 0 and 1 that no bound of their number forbids in all states, the smallest first.

    Raises
    ------
    ValueError : there are more than 2^14.
    """
    rules, count = problem.rules, len(problem.actions)
    bounds = rules.checks.expectations(states, np.zeros((count, states.shape[1])))[0][: len(rules.weights)]
    most = min(
        (bound.max() for row, bound in zip(rules.weights, bounds, strict=True) if (row == 1).all()),
        default=count,
    )
    sizes = range(min(int(most), count) + 1)
    if sum(math.comb(count, size) for size in sizes) > MOST_SETS:
        raise ValueError(f"problem has over {MOST_SETS} sets of actions: too many to try")
    members = itertools.chain.from_iterable(itertools.combinations(range(count), size) for size in sizes)
    return np.array([np.isin(np.arange(count), each) for each in members], float).reshape(-1, count)


def _names(rows: np.ndarray, names: Sequence[str], nothing: str) -> tuple[str, ...]:
    """Names of the parts of each row that are 1, joined."""
    return tuple(
        " ".join(name for name, on in zip(names, row > 0, strict=True) if on) or nothing for row in rows
    )
