r"""Markov tables of actions: frequencies given the state, and the steps before it.

.. math:: p(a \mid c) = \frac{n_{ca} + w}{n_c + w A}

for contexts c, the state alone or with the last actions or states. The pseudo-count w has the largest leave-one-out log
likelihood of the training steps among `PSEUDO_COUNTS`,

.. math:: \sum_{ca} n_{ca} \ln \frac{n_{ca} - 1 + w}{n_c - 1 + w A}.

They tell what can be predicted without latent intents or rewards.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ethogram.models.arguments import require_integer, require_one_of
from ethogram.models.data.state_action_steps import AgentSteps, earlier, read_steps
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.printing import short_repr

__all__ = ["PSEUDO_COUNTS", "ActionFrequencies", "ActionTable"]

PSEUDO_COUNTS = tuple(2.0**power for power in range(-10, 8))
"""Values of w that are compared."""


@short_repr
class ActionTable(NamedTuple):
    """A table of action probabilities, to be fitted to traces.

    Parameters
    ----------
    num_states, num_actions : of the environment.
    order : number of earlier steps in a context: 0 for p(a | s), 1 for p(a | s, a_-1), 2 for p(a | s, a_-1, a_-2).
        What is before the first step of a trace, and a missing action, is a value of its own.
    of : ``"actions"`` or ``"states"``, what of the earlier steps is in a context.

    Examples
    --------
    >>> data = Trajectories.from_list(states=[[0, 0, 0, 0]], actions=[[0, 1, 0, 1]])
    >>> ActionTable(1, 2, order=1).fit(data).probability.round(2).tolist()
    [[0.0, 1.0], [1.0, 0.0], [1.0, 0.0]]
    """

    num_states: int
    num_actions: int
    order: int = 0
    of: str = "actions"

    def fit(self, data: Trajectories) -> ActionFrequencies:
        """Smoothed frequencies of the known actions of the traces, in every context that they have."""
        steps = read_steps(data, self.num_states, self.num_actions)
        known = steps.action >= 0
        if not known.any():
            raise ValueError("data.actions has no known action: give at least one of 0 or more")
        contexts, row = np.unique(self.contexts(steps)[known], return_inverse=True)
        counts = np.zeros((len(contexts), self.num_actions))
        np.add.at(counts, (row, steps.action[known]), 1)
        total = counts.sum(1, keepdims=True)
        scores = []
        for weight in PSEUDO_COUNTS:
            left = np.maximum(counts - 1, 0) + weight, np.maximum(total - 1, 0) + weight * self.num_actions
            scores.append((counts * (np.log(left[0]) - np.log(left[1]))).sum())
        weight = PSEUDO_COUNTS[int(np.argmax(scores))]
        probability = (counts + weight) / (total + weight * self.num_actions)
        return ActionFrequencies(self, contexts, probability, weight)

    def contexts(self, steps: AgentSteps) -> Int[np.ndarray, "sequence time"]:
        """Numbers of the contexts: the digits are the state and, from the last step back, what came before."""
        require_integer("order", self.order, 0)
        require_one_of("of", self.of, ("actions", "states"))
        values, count = (
            (steps.action, self.num_actions) if self.of == "actions" else (steps.state, self.num_states)
        )
        if self.num_states * (count + 1.0) ** self.order >= 2**63:
            raise ValueError(f"order is {self.order}: contexts are more than 2**63; give a smaller one")
        context = np.where(steps.inside, steps.state, 0)
        for lag in range(1, self.order + 1):
            before = earlier(values, lag)
            context = context * (count + 1) + np.where(before < 0, count, before)
        return context


@short_repr
class ActionFrequencies(NamedTuple):
    """Probabilities of the actions in every context of the training traces; elsewhere they are equal.

    Attributes
    ----------
    table : what the contexts are.
    contexts : their numbers, in ascending order.
    probability : (context, action).
    pseudo_count : w, of every action in every context.
    """

    table: ActionTable
    contexts: Int[np.ndarray, "context"]
    probability: Float[np.ndarray, "context action"]
    pseudo_count: float

    def log_prob(self, data: Trajectories) -> Float[np.ndarray, "sequence"]:
        """Log probability of the known actions of every trace, in nats."""
        steps = read_steps(data, self.table.num_states, self.table.num_actions)
        context = self.table.contexts(steps)
        place = np.minimum(np.searchsorted(self.contexts, context), len(self.contexts) - 1)
        chance = self.probability[place, np.maximum(steps.action, 0)]
        chance = np.where(self.contexts[place] == context, chance, 1 / self.table.num_actions)
        return np.where(steps.action >= 0, np.log(chance), 0).sum(1)
