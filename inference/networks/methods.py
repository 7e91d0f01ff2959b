"""Methods of `solve_mmap` beside the hybrid: AGS and its baselines.

Each takes a :class:`Task` and updates its incumbent. Cui, Marinescu, Khardon (2018), sections 3 and 5; Park and
Darwiche (2004) for the baselines.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jax import Array

from ethogram.inference.networks.ags import Vertices, ascend
from ethogram.inference.networks.ancestral_draws import draw_possible, draw_states, generator
from ethogram.inference.networks.conflict_search import ConflictSearch
from ethogram.inference.networks.elimination import (
    WidthError,
    carry_out,
    exact_log_probability,
    exact_map,
    plan_elimination,
)
from ethogram.inference.networks.incumbent import Incumbent, until
from ethogram.inference.networks.large_neighbourhood_search import Landscape, climb_neighbourhoods, perturbed
from ethogram.inference.networks.marginals import factor_posteriors
from ethogram.inference.networks.mixed_product import (
    READINGS,
    mixed_product,
    propagate_beliefs,
    smoothed_tables,
)
from ethogram.inference.networks.staged_search import StagedSearch, take_turns
from ethogram.inference.networks.zero_propagation import (
    Factor,
    Possible,
    propagate_zeros,
    query_factors,
)
from ethogram.models.networks.bayes_net import BayesNet
from ethogram.models.networks.marginal_map import MarginalMAP

__all__ = [
    "ASCENTS",
    "CONFLICTS",
    "Task",
    "ags",
    "draw_near",
    "exact",
    "exact_mpe",
    "marginal",
    "mpbp",
    "mpbp_cavity",
    "mpe",
    "search_mpe",
    "sequential",
    "smoothed_score",
]

ASCENTS = 16
"""Climbs at a time."""
NARROW = 2**20
"""Cells of a table whose time is negligible."""
MPE_CELLS = 2e7
"""Cells of an exact MPE for every second left."""
PROOF_SHARE, SEARCH_SHARE = 0.5, 0.8
"""Shares of the time of a searched MPE for branch and bound: with a possible explanation, and before there is one."""
CONFLICTS = 500
"""Conflicts after which a possible sample is given up, until the next one goes on with what they taught."""
ROUNDS = 64
"""Rounds of the sequential method at most."""


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
        return _score(self.query, states, self.most_cells, self.incumbent.clock.over)

    def chosen(self, states: Mapping[int, int]) -> list[int]:
        """The states of the MAP variables, of states by variable."""
        return [states.get(variable, 0) for variable in self.query.map_variables]


def _score(
    query: MarginalMAP, states: Any, most_cells: int, stop: Callable[[], bool] | None = None
) -> tuple[float, str]:
    """Log probability of an assignment and its kind: exact, or a Bethe estimate where the sum is too wide."""
    try:
        return exact_log_probability(query, states, most_cells=most_cells), "exact"
    except WidthError:
        found = propagate_beliefs(query_factors(query, states), max_sweeps=200, damping=0.3, stop=stop)
        return query.network.log_constant + found.log_evidence, "estimate"


def smoothed_score(query: MarginalMAP, states: Any, most_cells: int) -> float:
    """Log probability of an assignment in the network whose zeros are 1e-4, as the paper reports it."""
    network = query.network
    tables = smoothed_tables(network)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the network itself has warned of its rows
        smooth = BayesNet(tables, network.parents, network.names, None, network.log_constant)
    given = dict(query.observed) | dict(query.soft)
    return _score(MarginalMAP(smooth, given, query.map_variables), states, most_cells)[0]


def exact(task: Task) -> None:
    """Constrained elimination, however long it takes."""
    states, value = exact_map(task.query, most_cells=task.most_cells, possible=task.possible)
    task.incumbent.offer(states, value, "exact", "elimination")
    task.incumbent.prove()


def ags(task: Task) -> None:
    """AGS: the vertex of the largest surrogate on smoothed tables; its probability scores it and never chooses it."""
    found: list[Vertices] = []
    key, query, clock = task.key, task.query, task.incumbent.clock
    margin, steps = 0.02 * min(clock.left(), 5.0), 10**9 if task.max_steps is None else task.max_steps

    def stop(vertices: Vertices) -> bool:
        found[:] = [vertices]
        return clock.left() <= margin

    def climb() -> None:
        tables = smoothed_tables(query.network)
        ascend(key, query, optimizer="paper", num_restarts=ASCENTS, max_steps=steps, tables=tables, stop=stop)

    try:
        until(climb, clock)
    finally:
        if found:
            task.offer(found[0].states[0], "gradient ascent")
        else:
            drawn = task.chosen(draw_states(generator(key), query))
            task.offer(drawn, "ancestral sample: the ascent was still compiling")


def _mixed(reading: str, task: Task) -> None:
    """Mixed-product belief propagation on smoothed tables."""
    tables, stop = smoothed_tables(task.query.network), task.incumbent.clock.over
    sweeps = task.max_steps or 1000
    found = mixed_product(task.query, reading=reading, tables=tables, max_sweeps=sweeps, stop=stop)
    task.offer(found.states, "mixed-product belief propagation")


mpbp, mpbp_cavity = (functools.partial(_mixed, reading) for reading in READINGS)


def mpe(task: Task) -> None:
    """The most probable explanation, restricted to the MAP variables; proved where all are MAP variables."""
    incumbent, constant = task.incumbent, task.query.network.log_constant
    rounds = task.max_steps if task.max_steps is not None or incumbent.clock.limit is not None else 300
    states, sure, whole = exact_mpe(task), True, not task.query.summed

    def listen(bound: float) -> None:
        if whole:
            incumbent.upper_bound = min(incumbent.upper_bound, constant + bound)

    def report(states: dict[int, int]) -> None:
        if whole:
            task.offer(task.chosen(states), "MPE")

    if states is None:
        random, over = generator(task.key), incumbent.clock.over
        search = ConflictSearch(task.possible.factors)
        states, sure = search_mpe(random, task, search, over, rounds, listen=listen, report=report)
    task.offer(task.chosen(states), "MPE")
    if whole and sure:
        incumbent.prove()


def exact_mpe(
    task: Task, cells: int | float = math.inf, work: int | float | None = None
) -> dict[int, int] | None:
    """The most probable explanation; None beyond these cells of one table, and of all (None: by the time left)."""
    cells = min(cells, task.most_cells)
    work = MPE_CELLS * min(task.incumbent.clock.left(), 60.0) if work is None else work
    everything = _everything(task)
    plan = plan_elimination(task.possible, everything, cells)
    if plan.cells > cells or plan.work > work:
        return None
    return carry_out(task.possible, plan, everything)[0]


def _everything(task: Task) -> list[int]:
    return sorted({variable for scope, _ in task.possible.factors for variable in scope})


def search_mpe(
    random: np.random.Generator,
    task: Task,
    search: ConflictSearch,
    stop: Callable[[], bool],
    max_rounds: int | None = None,
    restart: bool = True,
    listen: Callable[[float], None] = lambda bound: None,
    report: Callable[[dict[int, int]], None] = lambda states: None,
) -> tuple[dict[int, int], bool]:
    """The most probable explanation, and whether that is proved.

    Exact if that is quick, else by neighbourhood search, restarted until stopped, and branch and bound between its
    neighbourhoods. `listen` hears of upper bounds, `report` of better explanations.
    """
    found = exact_mpe(task, NARROW, 8 * NARROW)
    if found is not None:
        return found, True
    everything, clock = _everything(task), task.incumbent.clock
    landscape = Landscape(task.query, task.possible, everything)
    proof = StagedSearch(task.possible, everything, clock, task.most_cells)

    def time_share() -> float:
        return PROOF_SHARE if proof.value > -math.inf else SEARCH_SHARE

    share = time_share if task.max_steps is None else None
    turn = take_turns(proof, clock, share, lambda: listen(proof.upper_bound))

    def fresh(best: dict[int, int] | None = None) -> dict[int, int]:
        kept = {} if best is None else perturbed(random, landscape, best)
        return landscape.places(draw_near(random, task, search, kept))

    def better(places: dict[int, int], value: float) -> None:
        proof.offer(places)
        report(landscape.whole(places))

    places, _, proved = climb_neighbourhoods(
        random,
        landscape,
        fresh(),
        report=better,
        stop=lambda: turn() or stop() or search.impossible,
        most_cells=task.most_cells,
        max_rounds=max_rounds,
        fresh=fresh if restart else None,
        rival=proof.news,
    )
    last = proof.news()
    if last is not None:
        places = last
        report(landscape.whole(places))
    return landscape.whole(places), proved or proof.closed


def draw_near(
    random: np.random.Generator, task: Task, search: ConflictSearch, wanted: Mapping[int, int]
) -> dict[int, int]:
    """An ancestral sample near the wanted states, possible unless none is found within some conflicts."""
    over = task.incumbent.clock.over
    drawn = draw_possible(random, task.query, task.possible, search, wanted, over, CONFLICTS)
    if search.impossible:
        task.incumbent.upper_bound = -math.inf
    return draw_states(random, task.query) | dict(wanted) if drawn is None else drawn


def marginal(task: Task) -> None:
    """Every MAP variable at its own posterior mode."""
    variables, states = task.query.map_variables, task.possible.states
    found, _ = factor_posteriors(task.possible, variables, min(task.most_cells, NARROW))
    modes = [int(states[v][each.argmax()]) for v, each in zip(variables, found, strict=True)]
    task.offer(modes, "posterior marginals")


def sequential(task: Task) -> None:
    """One MAP variable after the other, the most certain first, at its posterior mode given those before.

    Of many variables the most certain few are fixed together, so that there are at most 64 rounds.
    """
    query, possible, chosen = task.query, task.possible, dict[int, int]()
    sizes = query.network.sizes
    while left := [v for v in query.map_variables if v not in chosen]:
        found, _ = factor_posteriors(possible, left, min(task.most_cells, NARROW))
        surest = sorted(range(len(left)), key=lambda i: -found[i].max(initial=0))
        many = len(left) if task.incumbent.clock.over() else math.ceil(len(query.map_variables) / ROUNDS)
        for i in surest[:many]:
            chosen[left[i]] = int(possible.states[left[i]][found[i].argmax()]) if len(found[i]) else 0
        marks = [Factor((v,), (np.arange(sizes[v]) == state).astype(float)) for v, state in chosen.items()]
        after = propagate_zeros([*query_factors(query), *marks])
        if after.impossible:
            break
        possible = after
    task.offer([chosen.get(v, int(possible.states[v][0])) for v in query.map_variables], "sequential")
