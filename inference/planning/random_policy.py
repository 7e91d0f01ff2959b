"""The random policy as an agent: what a planner must beat."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from jax import Array

from ethogram.inference.planning.action_limits import random_policy_marginals, round_actions
from ethogram.models.arguments import require_key
from ethogram.models.numpy_generator import numpy_generator
from ethogram.models.planning import PlanningProblem

__all__ = ["RandomPolicy"]


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
