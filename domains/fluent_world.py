"""An environment drawn from a planning problem's own probabilities, without a simulator of RDDL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ethogram.models.planning import PlanningProblem

__all__ = ["FluentWorld"]


class FluentWorld:
    """An environment with ``reset(seed=)`` and ``step(actions)``, as gymnasium's.

    The next fluents are drawn one by one, and the values of an enumerated fluent together: exact where, given state and
    actions, fluents are independent, as they are without random intermediate fluents. Rewards are their expectations.

    Parameters
    ----------
    problem : whose world it is.

    Raises
    ------
    ValueError : from `step`, actions that are unknown or not allowed.
    """

    def __init__(self, problem: PlanningProblem):
        self.problem = problem
        if not isinstance(problem, PlanningProblem):
            raise TypeError(f"problem is {type(problem).__name__}: expected a PlanningProblem")
        self._enumerated = [list(each) for each in problem.enumerated.values()]
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
        every = problem.program.expectations(self.state[:, None], action[:, None])
        chances, reward = every[0][:, 0], float(every[1][0])
        following = (self._rng.random(len(chances)) < chances).astype(float)
        for group in self._enumerated:
            following[group] = self._rng.multinomial(1, chances[group] / chances[group].sum())
        end = problem.program.expectations(following[:, None], action[:, None])[2]
        ended = bool(self._rng.random() < end[0])
        self.state, self.time = following, self.time + 1
        return self._named(), reward, ended, self.time >= problem.horizon, {}

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
