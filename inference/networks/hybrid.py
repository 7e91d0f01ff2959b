"""The default method: constrained elimination where affordable, else large-neighbourhood search from many starts.

Where elimination takes a small part of the time limit, its answer is proved optimal. Else neighbourhoods are searched
exactly, starting from posterior modes of single variables, ancestral samples, most probable explanations, vertices that
gradient ascent on the surrogate passes, and perturbed incumbents.

Where even the probability of one assignment is out of reach, candidates from the same sources are compared by their
Bethe estimates.

Ours; its parts have their sources. Iterated local search with perturbed incumbents: Lourenço, Martin, Stützle (2003),
"Iterated local search".
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping

import jax
import numpy as np

from ethogram.inference.networks.ags import ascend, seconds_to_begin
from ethogram.inference.networks.ancestral_draws import draw_possible, draw_states, generator
from ethogram.inference.networks.elimination import carry_out, plan_elimination
from ethogram.inference.networks.large_neighbourhood_search import Landscape, climb_neighbourhoods, perturbed
from ethogram.inference.networks.marginals import factor_posteriors
from ethogram.inference.networks.methods import Task, draw_near, exact_mpe, search_mpe
from ethogram.inference.networks.mini_buckets import mini_bucket_bound
from ethogram.inference.networks.mixed_product import mixed_product, smoothed_tables
from ethogram.inference.networks.zero_propagation import Supports
from ethogram.models.networks.marginal_map import MarginalMAP

__all__ = ["RESTARTS", "hybrid"]

CELLS_A_SECOND = 1e7
"""A cautious rate of elimination."""
SHARE = 0.4
"""Share of the time limit for exact elimination."""
ASCENT = 0.15
"""Share of the time left for gradient ascent."""
BOUND_CELLS, NARROW, SAME = 2**14, 2**16, 1e-9
DRAWS = 3
STEPS, RESTARTS, KEPT = 60, 64, 24


def hybrid(task: Task) -> None:
    """Constrained elimination where affordable, else large-neighbourhood search from many starts."""
    key, query, possible, incumbent, max_steps, most_cells = task
    clock, constant = incumbent.clock, query.network.log_constant
    budget = SHARE * CELLS_A_SECOND * min(clock.left(), 60.0)
    plan = plan_elimination(possible, query.map_variables, min(most_cells, budget))
    if plan.cells <= most_cells and plan.work <= budget:
        states, value = carry_out(possible, plan, query.map_variables)
        incumbent.offer(task.chosen(states), constant + value, "exact", "elimination")
        incumbent.prove()
        return
    bound = mini_bucket_bound(possible, query.map_variables, min(BOUND_CELLS, most_cells))
    incumbent.upper_bound = min(constant + bound, _rows_bound(query))
    if incumbent.upper_bound == -math.inf:
        return
    sums = plan_elimination(possible, (), min(most_cells, budget / 20))
    if sums.cells <= most_cells and sums.work <= budget / 20:
        incumbent.upper_bound = min(incumbent.upper_bound, constant + carry_out(possible, sums, ())[1])
    landscape = Landscape(query, possible, query.map_variables)
    if landscape.exact.cells > most_cells or landscape.exact.work > budget:
        _by_estimates(task._replace(most_cells=max(1, min(most_cells, int(budget / 4)))))
        return
    random, supports, source = generator(key), Supports(possible.factors), ""
    starts = _starts(random, task, supports, landscape)

    def fresh(best: dict[int, int] | None) -> Mapping[int, int]:
        nonlocal source
        if best is None:
            source, places = next(starts)
            return places
        source = "a perturbed incumbent"
        kept = perturbed(random, landscape, best)
        return landscape.places(draw_near(random, task, supports, kept, DRAWS))

    def report(places: Mapping[int, int], value: float) -> None:
        states = landscape.whole(places)
        answer = [states[v] for v in query.map_variables]
        incumbent.offer(answer, value, "exact", f"neighbourhood search from {source}")

    _, _, proved = climb_neighbourhoods(
        random,
        landscape,
        fresh(None),
        report=report,
        stop=clock.over,
        most_cells=most_cells,
        max_rounds=max_steps,
        fresh=fresh,
    )
    if proved or incumbent.log_probability >= incumbent.upper_bound - SAME:
        incumbent.prove()


def _rows_bound(query: MarginalMAP) -> float:
    """Upper bound on the log of the total mass, from row sums: zero where rows sum to one."""
    network = query.network
    heaviest = [float(table.sum(-1).max()) for table in network.tables]
    heaviest += [max(likelihoods) for _, likelihoods in query.soft]
    return network.log_constant + math.fsum(map(math.log, heaviest)) if min(heaviest) > 0 else -math.inf


def _starts(
    random: np.random.Generator, task: Task, supports: Supports, landscape: Landscape
) -> Iterator[tuple[str, dict[int, int]]]:
    """Endless starting points and where each comes from."""
    query, possible, clock = task.query, task.possible, task.incumbent.clock
    passed: list[np.ndarray] | None = None
    beliefs, _ = factor_posteriors(possible, query.map_variables, NARROW)
    surest = sorted(zip(query.map_variables, beliefs, strict=True), key=lambda pair: -pair[1].max(initial=0))
    likely = {v: int(possible.states[v][each.argmax()]) for v, each in surest}
    close = draw_possible(random, query, possible, supports, likely)
    explained = None
    if close is None:  # the posterior modes lead nowhere: first a start that is possible
        explained = exact_mpe(task)
        if explained is not None:
            yield "the MPE", landscape.places(explained)
    modes = draw_states(random, query) | likely if close is None else close
    yield "posterior marginals", landscape.places(modes)
    for turn in itertools.count():
        if turn == 1 and close is not None:
            explained = exact_mpe(task)
            if explained is not None:
                yield "the MPE", landscape.places(explained)
                continue
        if turn % 4 == 1 and explained is None:
            least = 0.8 * clock.left()
            states = search_mpe(random, task, lambda least=least: clock.left() < least, 200, restart=False)
            yield "a searched MPE", landscape.places(states)
            continue
        if turn % 4 == 3:
            if passed is None or (not passed and turn % 12 == 3):
                passed = _passed(task, turn)
            if passed:
                states = dict(zip(query.map_variables, passed.pop(0).tolist(), strict=True))
                yield "gradient ascent", landscape.places(draw_near(random, task, supports, states, DRAWS))
                continue
        yield "an ancestral sample", landscape.places(draw_near(random, task, supports, {}, DRAWS))


def _passed(task: Task, turn: int) -> list[np.ndarray]:
    """Vertices that gradient ascent passes on smoothed tables; none where there is no time to compile it."""
    clock, rest = task.incumbent.clock, task.incumbent.clock.left()
    tables = smoothed_tables(task.query.network)
    if rest < 1.0 + seconds_to_begin(task.query, tables, "adam", RESTARTS):
        return []
    key, stop = jax.random.fold_in(task.key, turn), lambda _: clock.left() < (1 - ASCENT) * rest
    found = ascend(key, task.query, num_restarts=RESTARTS, max_steps=STEPS, tables=tables, stop=stop)
    return list(found.states[:KEPT])


def _by_estimates(task: Task) -> None:
    """Candidates of mixed-product propagation, MPE search and gradient ascent, compared by Bethe estimates."""
    clock, random = task.incumbent.clock, generator(task.key)
    for reading in ("belief", "cavity"):
        tables = smoothed_tables(task.query.network)
        found = mixed_product(task.query, reading=reading, tables=tables, stop=clock.over)
        task.offer(found.states, "mixed-product belief propagation")
    rounds = 0
    while not clock.over() and (task.max_steps is None or rounds < task.max_steps):
        rounds += 1
        states = search_mpe(random, task, clock.over, 200, restart=False)
        task.offer(task.chosen(states), "MPE")
        for each in _passed(task, rounds):
            if clock.over():
                break
            task.offer(each, "gradient ascent")
