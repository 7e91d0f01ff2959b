"""The most probable explanation (MPE) of a query's evidence, by elimination or search, and samples near wanted states.

The search is that of the hybrid with all variables maximised: neighbourhoods, and branch and bound between them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ethogram.inference.networks.ancestral_draws import draw_possible, draw_states
from ethogram.inference.networks.conflict_search import ConflictSearch
from ethogram.inference.networks.elimination import carry_out, plan_elimination
from ethogram.inference.networks.incumbent import Incumbent
from ethogram.inference.networks.large_neighbourhood_search import Landscape, climb_neighbourhoods, perturbed
from ethogram.inference.networks.method import Task
from ethogram.inference.networks.staged_search import StagedSearch, take_turns
from ethogram.inference.networks.zero_propagation import propagate_zeros, query_factors
from ethogram.models.networks.marginal_map import Evidence, MarginalMAP

__all__ = ["complete", "draw_near", "draw_soon", "exact_mpe", "search_mpe"]

NARROW = 2**20
"""Cells of a table whose time is negligible."""
MPE_CELLS = 2e7
"""Cells of elimination allowed per second left, for an exact MPE."""
PROOF_SHARE, SEARCH_SHARE = 0.5, 0.8
"""Shares of the time of a searched MPE for branch and bound: with a possible explanation, and before there is one."""
ROUNDS = 100
"""Neighbourhoods of a completion."""
CONFLICTS = 500
"""Conflicts after which a possible sample is given up, until the next one goes on with what they taught."""


def exact_mpe(
    task: Task, cells: int | float = math.inf, work: int | float | None = None
) -> dict[int, int] | None:
    """The most probable explanation; None beyond these cells of one table, and of all (None: by the time left)."""
    cells = min(cells, task.most_cells)
    work = MPE_CELLS * min(task.incumbent.clock.left(), 60.0) if work is None else work
    everything = _everything(task)
    plan = plan_elimination(task.possible, everything, cells, task.incumbent.clock.over)
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


def complete(
    random: np.random.Generator, task: Task, answer: Sequence[int], stop: Callable[[], bool]
) -> dict[int, int] | None:
    """An answer with the most probable states of the hidden variables that are found; None where it is impossible."""
    query, held = task.query, dict(zip(task.query.map_variables, answer, strict=True))
    possible = propagate_zeros(query_factors(query, answer))
    if possible.impossible or not query.summed:
        return None if possible.impossible else held
    evidence = Evidence(
        (*query.observed, *held.items()), tuple(pair for pair in query.soft if pair[0] not in held)
    )
    given = MarginalMAP(query.network, evidence, query.summed)
    part = task._replace(query=given, possible=possible, incumbent=Incumbent(given, task.incumbent.clock))
    search = ConflictSearch(possible.factors)
    states, _ = search_mpe(random, part, search, stop, ROUNDS, restart=False)
    return None if search.impossible else held | states


def draw_near(
    random: np.random.Generator, task: Task, search: ConflictSearch, wanted: Mapping[int, int]
) -> dict[int, int]:
    """An ancestral sample near the wanted states, possible unless none is found within some conflicts."""
    drawn = draw_soon(random, task, search, wanted)
    return draw_states(random, task.query) | dict(wanted) if drawn is None else drawn


def draw_soon(
    random: np.random.Generator, task: Task, search: ConflictSearch, wanted: Mapping[int, int]
) -> dict[int, int] | None:
    """A possible sample near the wanted states; None where none is found within some conflicts."""
    over = task.incumbent.clock.over
    drawn = draw_possible(random, task.query, task.possible, search, wanted, over, CONFLICTS)
    if search.impossible:
        task.incumbent.upper_bound = -math.inf
    return drawn
