"""Baselines of `solve_mmap` on the tables as given: elimination, the restricted MPE, and posterior modes.

Park and Darwiche (2004), "Complexity results and approximation strategies for MAP explanations".
"""

from __future__ import annotations

import math

import numpy as np

from ethogram.inference.networks.anytime import SCHEDULE, Answer, Bound, Closed, Task
from ethogram.inference.networks.conflict_search import ConflictSearch
from ethogram.inference.networks.elimination import exact_map
from ethogram.inference.networks.exact_queries import factor_posteriors
from ethogram.inference.networks.explanations import exact_mpe, search_mpe
from ethogram.inference.networks.zero_propagation import Factor, propagate_zeros, query_factors
from ethogram.models.numpy_generator import numpy_generator

__all__ = ["exact", "marginal", "mpe", "sequential"]


def exact(task: Task) -> None:
    """Constrained elimination, however long it takes."""
    states, value = exact_map(task.query, most_cells=task.most_cells, possible=task.possible)
    task.incumbent.offer(states, value, "exact", "elimination")
    task.incumbent.prove()


def mpe(task: Task) -> None:
    """The most probable explanation, restricted to the MAP variables; proved where all are MAP variables."""
    incumbent = task.incumbent
    rounds = task.max_steps if task.max_steps is not None or incumbent.clock.limit is not None else 300
    states, whole = exact_mpe(task), not task.query.summed
    sure = states is not None
    if states is None:
        search = ConflictSearch(task.possible.factors)
        for event in search_mpe(numpy_generator(task.key), task, search, rounds):
            match event:
                case Answer(states, value, _):
                    if whole and value > -math.inf:
                        task.offer(task.chosen(states), "MPE")
                case Bound(value) if whole:
                    incumbent.upper_bound = min(incumbent.upper_bound, value)
                case Closed():
                    sure = True
                case None if incumbent.clock.over():
                    break
    assert states is not None  # the first event is an answer
    task.offer(task.chosen(states), "MPE")
    if whole and sure:
        incumbent.prove()


def marginal(task: Task) -> None:
    """Every MAP variable at its own posterior mode."""
    variables, states = task.query.map_variables, task.possible.states
    found, _ = factor_posteriors(task.possible, variables, min(task.most_cells, SCHEDULE.negligible_cells))
    modes = [int(states[v][each.argmax()]) for v, each in zip(variables, found, strict=True)]
    task.offer(modes, "posterior marginals")


def sequential(task: Task) -> None:
    """One MAP variable after the other, the most certain first, at its posterior mode given those before.

    Of many variables the most certain few are fixed together, so that there are at most 64 rounds.
    """
    query, possible, chosen = task.query, task.possible, dict[int, int]()
    sizes = query.network.sizes
    while left := [v for v in query.map_variables if v not in chosen]:
        found, _ = factor_posteriors(possible, left, min(task.most_cells, SCHEDULE.negligible_cells))
        surest = sorted(range(len(left)), key=lambda i: -found[i].max(initial=0))
        many = math.ceil(len(query.map_variables) / SCHEDULE.sequential_rounds)
        many = len(left) if task.incumbent.clock.over() else many
        for i in surest[:many]:
            chosen[left[i]] = int(possible.states[left[i]][found[i].argmax()]) if len(found[i]) else 0
        marks = [Factor((v,), (np.arange(sizes[v]) == state).astype(float)) for v, state in chosen.items()]
        after = propagate_zeros([*query_factors(query), *marks])
        if after.impossible:
            break
        possible = after
    task.offer([chosen.get(v, int(possible.states[v][0])) for v in query.map_variables], "sequential")
