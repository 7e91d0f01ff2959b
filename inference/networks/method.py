"""What a method of `solve_mmap` is: a callable that betters the incumbent of a task.

A method is entered in :data:`solve_mmap.METHODS` by its name. It offers assignments to ``task.incumbent`` as it finds
them, certified upper bounds and proofs too, and returns when it is done or ``task.incumbent.clock`` is over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from jax import Array

from ethogram.inference.networks.elimination import WidthError, exact_log_probability
from ethogram.inference.networks.incumbent import Incumbent
from ethogram.inference.networks.mixed_product import propagate_beliefs
from ethogram.inference.networks.zero_propagation import Possible, query_factors
from ethogram.models.networks.marginal_map import MarginalMAP

__all__ = ["Method", "Task", "score_states"]


class Method(Protocol):
    """A method of `solve_mmap`."""

    def __call__(self, task: Task, /) -> None:
        """Better the incumbent of a task, and mark it as optimal where that is proved."""


class Task(NamedTuple):
    """What a method is given: a query with its factors after propagation of zeros, and the incumbent to better."""

    key: Array
    query: MarginalMAP
    possible: Possible
    incumbent: Incumbent
    max_steps: int | None
    most_cells: int

    def offer(self, states: Sequence[int] | np.ndarray, source: str) -> None:
        """Score an assignment and offer it to the incumbent."""
        self.incumbent.offer(states, *self.score(states), source)

    def score(self, states: Sequence[int] | np.ndarray) -> tuple[float, str]:
        """Log probability of an assignment and its kind."""
        return score_states(self.query, states, self.most_cells, self.incumbent.clock.over)

    def chosen(self, states: Mapping[int, int]) -> list[int]:
        """The states of the MAP variables, of states by variable."""
        return [states.get(variable, 0) for variable in self.query.map_variables]


def score_states(
    query: MarginalMAP, states: Any, most_cells: int, stop: Callable[[], bool] | None = None
) -> tuple[float, str]:
    """Log probability of an assignment and its kind: exact, or a Bethe estimate where the sum is too wide."""
    try:
        return exact_log_probability(query, np.asarray(states), most_cells=most_cells), "exact"
    except WidthError:
        found = propagate_beliefs(query_factors(query, states), max_sweeps=200, damping=0.3, stop=stop)
        return query.network.log_constant + found.log_evidence, "estimate"
