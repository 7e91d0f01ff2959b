r"""Tables of action frequencies, p(a | s) and p(a | s, a_-1): what can be predicted without latent intents.

.. math:: p(a \mid c) = \frac{n_{ca} + w}{n_c + w A}

for contexts c, the state with or without the action before it. The pseudo-count w has the largest leave-one-out log
likelihood of the training steps among `PSEUDO_COUNTS`,

.. math:: \sum_{ca} n_{ca} \ln \frac{n_{ca} - 1 + w}{n_c - 1 + w A}.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ethogram.models.data.state_action_steps import AgentSteps, read_steps
from ethogram.models.data.trajectories import Trajectories

__all__ = ["PSEUDO_COUNTS", "ActionFrequencies", "ActionTable"]

PSEUDO_COUNTS = tuple(2.0**power for power in range(-10, 8))
"""Values of w that are compared."""


class ActionTable(NamedTuple):
    """A table of action probabilities, to be fitted to traces.

    Parameters
    ----------
    num_states, num_actions : of the environment.
    order : 0 for p(a | s), 1 for p(a | s, a_-1); the first step of a trace, and one after a missing action, are
        contexts of their own.
    """

    num_states: int
    num_actions: int
    order: int = 0

    def fit(self, data: Trajectories) -> ActionFrequencies:
        """Smoothed frequencies of the known actions of the traces, in every context."""
        steps = read_steps(data, self.num_states, self.num_actions, False)
        known = steps.action >= 0
        counts = np.zeros((self.num_states * (self.num_actions + 1) ** self.order, self.num_actions))
        np.add.at(counts, (self.contexts(steps)[known], steps.action[known]), 1)
        total = counts.sum(1, keepdims=True)
        scores = []
        for weight in PSEUDO_COUNTS:
            left = np.maximum(counts - 1, 0) + weight, np.maximum(total - 1, 0) + weight * self.num_actions
            scores.append((counts * (np.log(left[0]) - np.log(left[1]))).sum())
        weight = PSEUDO_COUNTS[int(np.argmax(scores))]
        return ActionFrequencies(self, (counts + weight) / (total + weight * self.num_actions), weight)

    def contexts(self, steps: AgentSteps) -> np.ndarray:
        """Numbers of the contexts (sequence, time)."""
        state = np.where(steps.inside, steps.state, 0)
        if self.order == 0:
            return state
        before = np.pad(steps.action, ((0, 0), (1, 0)), constant_values=-1)[:, :-1]
        return state * (self.num_actions + 1) + np.where(before < 0, self.num_actions, before)


class ActionFrequencies(NamedTuple):
    """Probabilities of the actions in every context.

    Attributes
    ----------
    table : what the contexts are.
    probability : (context, action).
    pseudo_count : w, of every action in every context.
    """

    table: ActionTable
    probability: Float[np.ndarray, "context action"]
    pseudo_count: float

    def log_prob(self, data: Trajectories) -> Float[np.ndarray, "sequence"]:
        """Log probability of the known actions of every trace, in nats."""
        steps = read_steps(data, self.table.num_states, self.table.num_actions, False)
        each = np.log(self.probability)[self.table.contexts(steps), np.maximum(steps.action, 0)]
        return np.where(steps.action >= 0, each, 0).sum(1)
