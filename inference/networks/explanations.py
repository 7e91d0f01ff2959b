"""The most probable explanation (MPE) of a query's evidence, by elimination or search, and samples near wanted states.

The search is that of the hybrid with all variables maximised: neighbourhoods, and branch and bound between them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from ethogram.inference.networks.anytime import SCHEDULE, Answer, Closed, Event, Incumbent, Task
from ethogram.inference.networks.conflict_search import ConflictSearch
from ethogram.inference.networks.elimination import carry_out, plan_elimination
from ethogram.inference.networks.large_neighbourhood_search import (
    ConditionalProblem,
    climb,
    perturbed,
)
from ethogram.inference.networks.samples import draw_possible, draw_states
from ethogram.inference.networks.staged_search import StagedSearch, search_and_prove
from ethogram.inference.networks.zero_propagation import propagate_zeros, query_factors
from ethogram.models.networks.marginal_map import Evidence, MarginalMAP

__all__ = ["complete", "draw_near", "draw_soon", "exact_mpe", "last_answer", "search_mpe"]


def exact_mpe(
    task: Task, cells: int | float = math.inf, work: int | float | None = None
) -> dict[int, int] | None:
    """The most probable explanation; None beyond these cells of one table, and of all (None: by the time left).

    Where the evidence proves impossible there are no states, and the upper bound of the incumbent says so.
    """
    cells = min(cells, task.most_cells)
    work = SCHEDULE.mpe_cells_per_second * task.incumbent.clock.planned() if work is None else work
    everything = _everything(task)
    plan = plan_elimination(task.possible, everything, cells, task.incumbent.clock.over)
    if plan.cells > cells or plan.work > work:
        return None
    states, value = carry_out(task.possible, plan, everything)
    if value == -math.inf:
        task.incumbent.upper_bound = -math.inf
    return states


def _everything(task: Task) -> list[int]:
    return sorted({variable for scope, _ in task.possible.factors for variable in scope})


def search_mpe(
    random: np.random.Generator,
    task: Task,
    search: ConflictSearch,
    max_rounds: int | None = None,
    restart: bool = True,
) -> Iterator[Event]:
    """Events of the search for the most probable explanation, whose answers have states in place of places.

    Exact if that is quick, without a value; else by neighbourhood search, restarted or not, and branch and bound
    between its neighbourhoods. The first answer is a start that may be impossible.
    """
    found = exact_mpe(task, SCHEDULE.negligible_cells, 8 * SCHEDULE.negligible_cells)
    if found is not None:
        yield Answer(found, 0.0, "the MPE")
        yield Closed()
        return
    everything = _everything(task)
    problem = ConditionalProblem(task.query, task.possible, everything)
    constant = task.query.network.log_constant
    proof = StagedSearch(
        task.possible, everything, task.incumbent.clock, task.most_cells, log_constant=constant
    )

    def share() -> float:
        return SCHEDULE.mpe_proof_share if proof.value > -math.inf else SCHEDULE.mpe_first_proof_share

    def next_start(best: dict[int, int] | None) -> tuple[dict[int, int], str]:
        kept = {} if best is None else perturbed(random, problem, best)
        return problem.places(draw_near(random, task, search, kept)), "a searched MPE"

    start, again = next_start(None), next_start if restart else None
    yield Answer(problem.possible.whole(start[0]), -math.inf, "an ancestral sample")
    climbing = climb(random, problem, start, again, most_cells=task.most_cells, max_rounds=max_rounds)
    for event in search_and_prove(climbing, proof, share if task.max_steps is None else None):
        yield (
            event._replace(places=problem.possible.whole(event.places))
            if isinstance(event, Answer)
            else event
        )
        if search.impossible:
            return


def last_answer(events: Iterable[Event], stop: Callable[[Answer], bool]) -> tuple[dict[int, int], bool]:
    """States of a search's last answer, and whether they are proved; it may be stopped between turns at an answer."""
    answer = Answer({}, -math.inf, "")
    for event in events:
        if isinstance(event, Answer):
            answer = event
        elif isinstance(event, Closed):
            return answer.places, True
        elif event is None and stop(answer):
            break
    return answer.places, False


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
    states, _ = last_answer(
        search_mpe(random, part, search, SCHEDULE.completion_rounds, restart=False), lambda _: stop()
    )
    return None if search.impossible or not states else held | states


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
    drawn = draw_possible(random, task.query, task.possible, search, wanted, over, SCHEDULE.sample_conflicts)
    if search.impossible:
        task.incumbent.upper_bound = -math.inf
    return drawn
