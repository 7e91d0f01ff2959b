"""Policies as agents: a planner, which acts one decision after the other, and the random policy, which it must beat."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jax import Array

from ethogram.inference.planning.action_limits import random_policy_marginals, round_actions
from ethogram.inference.planning.sogbofa import DEPTHS, MODES, STEPS_PER_CHECK, Plan, plan
from ethogram.models.arguments import require_integer, require_key, require_number, require_one_of
from ethogram.models.numpy_generator import numpy_generator
from ethogram.models.planning import PlanningProblem
from ethogram.models.quick_jit import quick_jit

__all__ = ["RandomPolicy", "SogbofaPolicy"]


class SogbofaPolicy:
    """An agent that plans anew at every step; it has `sample_action` and `reset`, as pyRDDLGym's agents do.

    Each plan begins one ascent at the last plan, shifted by a step.

    Parameters
    ----------
    key : typed PRNG key; the same key, seed of the episode and states give the same actions unless the time limit cuts
        a plan short.
    problem : of :func:`ethogram.models.planning.read_rddl`.
    time_limit : seconds of wall time per decision; None for no limit.
    depth : steps that are looked ahead; None measures once, when the agent is made, how long a plan takes at each depth
        of 4, 8, 16 and 32, and takes the largest that fits, and at most what is left of the horizon.
    mode, num_restarts, max_steps, precision : as for :func:`plan`.

    Attributes
    ----------
    last : the last :class:`Plan`, None before the first action.
    depth : steps that are looked ahead.
    """

    def __init__(
        self,
        key: Array,
        problem: PlanningProblem,
        time_limit: float | int | None = 0.05,
        *,
        depth: int | None = None,
        mode: str = "conformant",
        num_restarts: int = 32,
        max_steps: int = 30,
        precision: str = "float32",
    ):
        require_key(key)
        require_one_of("mode", mode, MODES)
        require_integer("max_steps", max_steps, 1)
        if time_limit is not None:
            time_limit = require_number("time_limit", time_limit, above=0)
        self.key, self.problem = key, problem
        self._given = key
        self.settings: dict[str, Any] = {
            "time_limit": time_limit,
            "mode": mode,
            "num_restarts": num_restarts,
            "max_steps": max_steps,
            "precision": precision,
        }
        self.depth = self._fitting_depth() if depth is None else depth
        plan(key, problem, depth=self.depth, **{**self.settings, "max_steps": STEPS_PER_CHECK})  # compiles
        self.last: Plan | None = None
        self.reset()

    def reset(self, seed: int | None = None) -> None:
        """Begin an episode; with a seed, its plans do not depend on what was played before."""
        self.step, self.last = 0, None
        if seed is not None:
            self.key = jax.random.fold_in(self._given, require_integer("seed", seed, 0) % 2**32)

    def sample_action(self, state: Mapping[str, Any] | np.ndarray) -> dict[str, bool]:
        """The actions to take in a state, by name."""
        self.key, now = _split(self.key)
        start = None
        if self.last is not None and self.settings["mode"] == "conformant":
            start = np.concatenate((self.last.marginals[1:], self.last.marginals[-1:]))
        self.last = plan(
            now,
            self.problem,
            state,
            depth=self.depth,
            steps_left=max(self.problem.horizon - self.step, 1),
            start=start,
            **self.settings,
        )
        self.step += 1
        return self.last.action

    def _fitting_depth(self) -> int:
        """The largest depth at which a plan ends within the time limit, by measurement."""
        found = DEPTHS[0]
        for depth in DEPTHS:
            if found < depth and found >= self.problem.horizon:
                break
            settings = {**self.settings, "time_limit": None, "max_steps": STEPS_PER_CHECK}
            plan(self.key, self.problem, depth=depth, **settings)
            seconds = []
            for _ in range(3):
                begin = time.perf_counter()
                plan(self.key, self.problem, depth=depth, **settings)
                seconds.append(time.perf_counter() - begin)
            limit = self.settings["time_limit"]
            if limit is not None and min(seconds) * self.settings["max_steps"] / STEPS_PER_CHECK > limit:
                break
            found = depth
        return found


@quick_jit
def _split(key: Array) -> tuple[Array, Array]:
    now, later = jax.random.split(key)
    return now, later


class RandomPolicy:
    """Each action with its probability under the uniform policy; of those that exclude each other, any.

    Parameters
    ----------
    key : typed PRNG key; the same key, seed of the episode and states give the same actions.
    problem : of :func:`ethogram.models.planning.read_rddl`.
    """

    def __init__(self, key: Array, problem: PlanningProblem):
        require_key(key)
        self._key, self._random, self.problem = key, numpy_generator(key), problem

    def reset(self, seed: int | None = None) -> None:
        """Begin an episode; with a seed, its actions do not depend on what was played before."""
        if seed is not None:
            self._random = numpy_generator(self._key, seed)

    def sample_action(self, state: Mapping[str, Any]) -> dict[str, bool]:
        """The actions to take in a state, by name."""
        rules, known = self.problem.rules, self.problem.encode_state(state)
        marginals = random_policy_marginals(rules.weights, rules.bounds(known))
        drawn = self._random.random(len(marginals)) < marginals
        order = np.where(drawn, 0.5 + 0.5 * self._random.random(len(marginals)), 0.0)
        threshold = np.full(len(marginals), 0.25)
        return self.problem.decode_action(round_actions(rules, known, order[:, None], threshold)[:, 0])
