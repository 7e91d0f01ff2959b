"""Methods of `solve_mmap` beside the hybrid.

AGS and mixed-product belief propagation are on smoothed tables, as in the paper that compares them: Cui, Marinescu,
Khardon (2018), "From Stochastic Planning to Marginal MAP", sections 3 and 5. Elimination, the restricted MPE, and
posterior modes are on the tables as given: Park and Darwiche (2004), "Complexity results and approximation strategies
for MAP explanations".
"""

from __future__ import annotations

import dataclasses
import functools
import math
import threading
from typing import Any

import numpy as np

from ethogram.inference.networks.ags import Vertices, ascend
from ethogram.inference.networks.anytime import SCHEDULE, Answer, Bound, Closed, Task, score_states, until
from ethogram.inference.networks.conflict_search import ConflictSearch
from ethogram.inference.networks.elimination import exact_map
from ethogram.inference.networks.exact_queries import factor_posteriors
from ethogram.inference.networks.explanations import exact_mpe, search_mpe
from ethogram.inference.networks.mixed_product import ARGMAX_OF, mixed_product, smoothed_tables
from ethogram.inference.networks.samples import draw_states
from ethogram.inference.networks.zero_propagation import Factor, propagate_zeros, query_factors
from ethogram.models.held_warnings import held_warnings
from ethogram.models.networks.bayes_net import BayesNet
from ethogram.models.networks.marginal_map import MarginalMAP
from ethogram.models.numpy_generator import numpy_generator

__all__ = ["ags", "exact", "marginal", "mpbp", "mpbp_cavity", "mpe", "sequential", "smoothed_score"]


def ags(task: Task) -> None:
    """AGS: the vertex of the largest surrogate on smoothed tables; its probability scores it and never chooses it."""
    found, left = list[Vertices](), threading.Event()
    key, query, clock = task.key, task.query, task.incumbent.clock
    margin, steps = 0.02 * min(clock.left(), 5.0), 10**9 if task.max_steps is None else task.max_steps

    def stop(vertices: Vertices) -> bool:
        found[:] = [vertices]
        return left.is_set() or clock.left() <= margin

    def climb() -> None:
        tables = smoothed_tables(query.network)
        ascend(key, query, max_steps=steps, tables=tables, stop=stop)

    try:
        until(climb, clock)
    finally:
        left.set()  # after Ctrl-C too, so that the process does not wait for the time limit
        if found:
            task.offer(found[0].states[0], "gradient ascent")
        else:
            drawn = task.chosen(draw_states(numpy_generator(key), query))
            task.offer(drawn, "ancestral sample: the ascent was still compiling")


def _mixed(argmax_of: str, task: Task) -> None:
    """Mixed-product belief propagation on smoothed tables."""
    tables, stop = smoothed_tables(task.query.network), task.incumbent.clock.over
    sweeps = task.max_steps or 1000
    found = mixed_product(task.query, argmax_of=argmax_of, tables=tables, max_sweeps=sweeps, stop=stop)
    task.offer(found, "mixed-product belief propagation")


mpbp, mpbp_cavity = (functools.partial(_mixed, argmax_of) for argmax_of in ARGMAX_OF)


def smoothed_score(query: MarginalMAP, states: Any, most_cells: int) -> float:
    """Log probability of an assignment in the network whose zeros are 1e-4, as the paper reports it."""
    network = query.network
    tables = smoothed_tables(network)
    with held_warnings():  # the network itself has warned of its rows
        smooth = BayesNet(tables, network.parents, network.names, None, network.log_constant)
    return score_states(dataclasses.replace(query, network=smooth), states, most_cells)[0]


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
