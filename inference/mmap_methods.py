"""Methods of `solve_mmap` beside the hybrid: the paper's, and what that is set against.

Each takes the question and what holds the best answer, and leaves its own there.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
from jax import Array

from ethogram.inference.ags import Vertices, ascend
from ethogram.inference.elimination import (
    WidthError,
    carry_out,
    exact_log_probability,
    exact_map,
    plan_elimination,
)
from ethogram.inference.incumbent import Incumbent, until
from ethogram.inference.mixed_product import mixed_product, propagate_beliefs, smoothed_tables
from ethogram.inference.neighbourhood_search import Landscape, climb_neighbourhoods, shaken
from ethogram.inference.network_draws import draw_possible, draw_states, generator
from ethogram.inference.variable_posteriors import factor_posteriors
from ethogram.inference.zero_propagation import Factor, Possible, Supports, propagate_zeros, query_factors
from ethogram.models.bayes_net import BayesNet, MarginalMAP

__all__ = [
    "ASCENTS", "EXPLAINED", "ags", "exact", "explain_everything", "explain_exactly", "marginal", "mpbp", "mpbp_cavity",
    "mpe", "score", "sequential", "smoothed_score",
]  # fmt: skip

ASCENTS = 16
NARROW = 2**20
"""Cells of a table that are nothing to speak of."""
EXPLAINED = 2e7
"""Cells for every second that is left, for the explanation of everything by elimination."""
SURE = 64


def score(query: MarginalMAP, states: Any, most_cells: int) -> tuple[float, str]:
    """Log probability of an answer, and its kind: exact, or the Bethe estimate where sums are too large."""
    try:
        return exact_log_probability(query, states, most_cells=most_cells), "exact"
    except WidthError:
        found = propagate_beliefs(query_factors(query, states), max_sweeps=200, damping=0.3)
        return query.network.log_constant + found.log_evidence, "estimate"


def smoothed_score(query: MarginalMAP, states: Any, most_cells: int) -> float:
    """Log probability of an answer in the network whose zeros are 1e-4, as the paper has it."""
    network = query.network
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # rows were told of when the network was made
        smooth = BayesNet(
            smoothed_tables(network), network.parents, network.names, None, network.log_constant
        )
    given = dict(query.observed) | dict(query.soft)
    return score(MarginalMAP(smooth, given, query.map_variables), states, most_cells)[0]


def exact(
    key: Array, query: MarginalMAP, incumbent: Incumbent, max_steps: int | None, most_cells: int
) -> None:
    """Constrained elimination, whatever it takes below the limit of memory."""
    del key, max_steps
    states, value = exact_map(query, most_cells=most_cells)
    incumbent.offer(states, value, "exact", "elimination")
    incumbent.prove()


def ags(key: Array, query: MarginalMAP, incumbent: Incumbent, max_steps: int | None, most_cells: int) -> None:
    """The paper's: the answer of the largest surrogate on smoothed tables; scored, never chosen, by its probability."""
    found: list[Vertices] = []
    clock, margin = incumbent.clock, 0.02 * min(incumbent.clock.left(), 5.0)

    def stop(vertices: Vertices) -> bool:
        found[:] = [vertices]
        return clock.left() <= margin

    def climb() -> None:
        ascend(
            key, query, optimizer="paper", num_restarts=ASCENTS, stop=stop, tables=smoothed_tables(query.network),
            max_steps=10**9 if max_steps is None else max_steps,
        )  # fmt: skip

    try:
        until(climb, clock)
    finally:
        if found:
            states, source = found[0].states[0], "gradient ascent"
        else:
            drawn = draw_states(generator(key), query)
            states, source = (
                np.array([drawn[v] for v in query.map_variables]),
                "a draw: the ascent was still compiling",
            )
        incumbent.offer(states, *score(query, states, most_cells), source)


def mpbp(
    key: Array, query: MarginalMAP, incumbent: Incumbent, max_steps: int | None, most_cells: int
) -> None:
    """Mixed-product belief propagation on smoothed tables, best states read from beliefs."""
    _mixed("belief", query, incumbent, max_steps, most_cells)


def mpbp_cavity(
    key: Array, query: MarginalMAP, incumbent: Incumbent, max_steps: int | None, most_cells: int
) -> None:
    """The same, best states read from the message itself."""
    _mixed("cavity", query, incumbent, max_steps, most_cells)


def _mixed(
    reading: str, query: MarginalMAP, incumbent: Incumbent, max_steps: int | None, most_cells: int
) -> None:
    found = mixed_product(
        query, reading=reading, tables=smoothed_tables(query.network), max_sweeps=max_steps or 1000,
        stop=incumbent.clock.over,
    )  # fmt: skip
    incumbent.offer(found.states, *score(query, found.states, most_cells), "mixed product")


def mpe(key: Array, query: MarginalMAP, incumbent: Incumbent, max_steps: int | None, most_cells: int) -> None:
    """MAP variables' part of the most probable explanation of everything."""
    random, possible = generator(key), propagate_zeros(query_factors(query))
    rounds = max_steps if max_steps is not None or incumbent.clock.limit is not None else 300
    states = explain_exactly(possible, most_cells, EXPLAINED * min(incumbent.clock.left(), 60.0))
    if states is None:
        states = explain_everything(random, query, possible, incumbent.clock.over, most_cells, rounds)
    answer = np.array([states.get(variable, 0) for variable in query.map_variables])
    incumbent.offer(answer, *score(query, answer, most_cells), "explanation of everything")


def explain_exactly(possible: Possible, most_cells: int, most_work: int | float) -> dict[int, int] | None:
    """States of all variables that are most probable together; None where elimination would take more than allowed.

    Parameters
    ----------
    most_cells, most_work : cells of one table, and of all of them.
    """
    everything = sorted({variable for scope, _ in possible.factors for variable in scope})
    plan = plan_elimination(possible, everything, most_cells)
    if plan.cells > most_cells or plan.work > most_work:
        return None
    return carry_out(possible, plan, everything)[0]


def explain_everything(
    random: np.random.Generator, query: MarginalMAP, possible: Possible, stop: Any, most_cells: int,
    max_rounds: int | None = None, restart: bool = True,
) -> dict[int, int]:  # fmt: skip
    """States of all variables that are most probable together: by elimination where narrow, else as far as searched.

    Parameters
    ----------
    restart : whether to begin elsewhere where a search has ended, until it is stopped.
    """
    explained = explain_exactly(possible, min(NARROW, most_cells), 8 * NARROW)
    if explained is not None:
        return explained
    everything = sorted({variable for scope, _ in possible.factors for variable in scope})
    landscape, supports = Landscape(query, possible, everything), Supports(possible.factors)

    def fresh(best: dict[int, int] | None = None) -> dict[int, int]:
        kept = {} if best is None else shaken(random, landscape, best)
        drawn = draw_possible(random, query, possible, supports, kept)
        return landscape.places(draw_states(random, query) | kept if drawn is None else drawn)

    found = climb_neighbourhoods(
        random, landscape, fresh(), report=lambda places, value: None, stop=stop, most_cells=most_cells,
        max_rounds=max_rounds, fresh=fresh if restart else None,
    )  # fmt: skip
    return landscape.whole(found[0])


def marginal(
    key: Array, query: MarginalMAP, incumbent: Incumbent, max_steps: int | None, most_cells: int
) -> None:
    """The most probable state of every MAP variable alone."""
    possible = propagate_zeros(query_factors(query))
    found, _ = factor_posteriors(possible, query.map_variables, min(most_cells, NARROW))
    states = [
        int(possible.states[v][each.argmax()]) for v, each in zip(query.map_variables, found, strict=True)
    ]
    incumbent.offer(states, *score(query, states, most_cells), "marginals")


def sequential(
    key: Array, query: MarginalMAP, incumbent: Incumbent, max_steps: int | None, most_cells: int
) -> None:
    """One MAP variable after the other, the surest first, at its most probable state given those before.

    Where there are many, the surest few go together, so that there are at most 64 rounds.
    """
    possible = propagate_zeros(query_factors(query))
    chosen: dict[int, int] = {}
    while True:
        left = [v for v in query.map_variables if v not in chosen]
        if not left:
            break
        found, _ = factor_posteriors(possible, left, min(most_cells, NARROW))
        surest = sorted(range(len(left)), key=lambda i: -found[i].max(initial=0))
        many = len(left) if incumbent.clock.over() else math.ceil(len(query.map_variables) / SURE)
        for i in surest[:many]:
            chosen[left[i]] = int(possible.states[left[i]][found[i].argmax()]) if len(found[i]) else 0
        after = propagate_zeros(_held(query, chosen))
        if after.impossible:
            break
        possible = after
    states = [chosen.get(v, int(possible.states[v][0])) for v in query.map_variables]
    incumbent.offer(states, *score(query, states, most_cells), "one after the other")


def _held(query: MarginalMAP, chosen: dict[int, int]) -> list[Factor]:
    """Factors of the question, and that some MAP variables have their states."""
    sizes = query.network.sizes
    marks = [Factor((v,), (np.arange(sizes[v]) == state).astype(float)) for v, state in chosen.items()]
    return [*query_factors(query), *marks]
