"""An environment drawn from a planning problem's own probabilities, without a simulator of RDDL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from ethogram.models.planning import PlanningProblem

__all__ = ["FluentWorld", "draw_step"]


def draw_step(
    problem: PlanningProblem,
    rng: np.random.Generator,
    states: Float[np.ndarray, "game fluent"],
    actions: Float[np.ndarray, "game action"],
) -> tuple[Float[np.ndarray, "game fluent"], Float[np.ndarray, "game"], Bool[np.ndarray, "game"]]:
    """Next states, expected rewards, and whether the next states end the episode; all of 0 and 1 but the rewards.

    The next fluents are drawn one by one, and the values of an enumerated fluent together: exact where, given state and
    actions, fluents are independent, as they are without random intermediate fluents.
    """
    probs, rewards, _ = problem.program.expectations(states.T, actions.T)
    following = (rng.random(states.shape) < probs.T).astype(float)
    for members in map(list, problem.enumerated.values()):
        cumulative = np.cumsum(probs[members].T, 1)
        chosen = (rng.random((len(states), 1)) * cumulative[:, -1:] >= cumulative).sum(1)
        following[:, members] = np.eye(len(members))[chosen]
    ended = rng.random(len(states)) < problem.program.expectations(following.T, actions.T)[2]
    return following, rewards, ended


class FluentWorld:
    """An environment with ``reset(seed=)`` and ``step(actions)``, as gymnasium's; draws are those of `draw_step`.

    Parameters
    ----------
    problem : whose world it is.
    """

    def __init__(self, problem: PlanningProblem):
        self.problem = problem
        if not isinstance(problem, PlanningProblem):
            raise TypeError(f"problem is {type(problem).__name__}: expected a PlanningProblem")
        self._rng = np.random.default_rng(0)
        self.state, self.time = problem.initial.copy(), 0

    def reset(self, seed: int | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
        """The initial state by name, and an empty dict; with a seed, draws begin anew."""
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        self.state, self.time = self.problem.initial.copy(), 0
        return self._named(), {}

    def step(self, actions: Mapping[str, Any]) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """The next state by name, reward, whether the episode ended, whether the horizon was reached, and a dict."""
        problem = self.problem
        unknown = set(actions) - set(problem.actions)
        if unknown:
            raise ValueError(f"actions has {sorted(unknown)[0]}: there is no such action")
        action = np.array([float(bool(actions.get(name, False))) for name in problem.actions])
        if problem.rules.unmet(self.state, action[:, None])[0]:
            raise ValueError(
                f"actions {sorted(n for n, on in actions.items() if on)} are not allowed in this state"
            )
        (self.state,), (reward,), (ended,) = draw_step(problem, self._rng, self.state[None], action[None])
        self.time += 1
        return self._named(), float(reward), bool(ended), self.time >= problem.horizon, {}

    def _named(self) -> dict[str, Any]:
        """The state by name; values of enumerated fluents as strings."""
        found: dict[str, Any] = {}
        for name, on in zip(self.problem.fluents, self.state > 0.5, strict=True):
            fluent, enumerated, value = name.partition("=")
            if not enumerated:
                found[fluent] = bool(on)
            elif on:
                found[fluent] = value
        return found
