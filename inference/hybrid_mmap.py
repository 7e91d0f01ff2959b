"""The default way to answer a marginal MAP question: exactly where that is affordable, else by search from many starts.

Zeros are propagated first. What is left is eliminated in the constrained order where that takes a small part of the
time; the answer is then proved. Else neighbourhoods are searched exactly, from single posteriors, draws, explanations
of everything, from answers that gradient ascent on the surrogate passes, and from the best answer so far, shaken.

Where even one answer's probability is out of reach, answers of the same kinds are compared by their Bethe estimates.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping

import jax
import numpy as np
from jax import Array

from ethogram.inference.ags import ascend, seconds_to_begin
from ethogram.inference.elimination import carry_out, plan_elimination
from ethogram.inference.incumbent import Incumbent
from ethogram.inference.mini_buckets import mini_bucket_bound
from ethogram.inference.mixed_product import mixed_product, smoothed_tables
from ethogram.inference.mmap_methods import EXPLAINED, explain_everything, explain_exactly, score
from ethogram.inference.neighbourhood_search import Landscape, climb_neighbourhoods, shaken
from ethogram.inference.network_draws import draw_possible, draw_states, generator
from ethogram.inference.variable_posteriors import factor_posteriors
from ethogram.inference.zero_propagation import Possible, Supports, propagate_zeros, query_factors
from ethogram.models.bayes_net import MarginalMAP

__all__ = ["RESTARTS", "hybrid"]

CELLS_A_SECOND = 1e7
"""What elimination gets through, with room to spare."""
SHARE = 0.4
"""Of the time, for an answer by elimination."""
ASCENT = 0.15
"""Of the time, for gradient ascent."""
BOUND_CELLS, NARROW, SAME = 2**14, 2**16, 1e-9
DRAWS = 3
STEPS, RESTARTS, KEPT = 60, 64, 24


def hybrid(
    key: Array, query: MarginalMAP, incumbent: Incumbent, max_steps: int | None, most_cells: int
) -> None:
    """Exactly where affordable, else by searching neighbourhoods from many starts."""
    clock = incumbent.clock
    possible = propagate_zeros(query_factors(query))
    budget = SHARE * CELLS_A_SECOND * min(clock.left(), 60.0)
    plan = plan_elimination(possible, query.map_variables, min(most_cells, budget))
    if plan.cells <= most_cells and plan.work <= budget:
        states, value = carry_out(possible, plan, query.map_variables)
        answer = [states.get(variable, 0) for variable in query.map_variables]
        incumbent.offer(answer, query.network.log_constant + value, "exact", "elimination")
        incumbent.prove()
        return
    bound = mini_bucket_bound(possible, query.map_variables, min(BOUND_CELLS, most_cells))
    incumbent.upper_bound = min(query.network.log_constant + bound, _rows_bound(query))
    if incumbent.upper_bound == -math.inf:
        return
    sums = plan_elimination(possible, (), min(most_cells, budget / 20))
    if sums.cells <= most_cells and sums.work <= budget / 20:
        evidence = query.network.log_constant + carry_out(possible, sums, ())[1]
        incumbent.upper_bound = min(incumbent.upper_bound, evidence)
    landscape = Landscape(query, possible, query.map_variables)
    if landscape.exact.cells > most_cells or landscape.exact.work > budget:
        _by_estimates(key, query, possible, incumbent, max_steps, max(1, min(most_cells, int(budget / 4))))
        return
    random = generator(key)
    supports = Supports(possible.factors)
    starts = _starts(key, random, query, possible, supports, landscape, incumbent, most_cells)
    source = [""]

    def fresh(best: dict[int, int] | None) -> Mapping[int, int]:
        if best is None:
            source[0], places = next(starts)
            return places
        source[0] = "the best, shaken"
        kept = shaken(random, landscape, best)
        return landscape.places(_drawn(random, query, possible, supports, kept))

    def report(places: Mapping[int, int], value: float) -> None:
        told = landscape.whole(places)
        incumbent.offer(
            [told[v] for v in query.map_variables], value, "exact", f"neighbourhoods, from {source[0]}"
        )

    _, _, proved = climb_neighbourhoods(
        random, landscape, fresh(None), report=report, stop=clock.over, most_cells=most_cells, max_rounds=max_steps,
        fresh=fresh,
    )  # fmt: skip
    if proved or incumbent.log_probability >= incumbent.upper_bound - SAME:
        incumbent.prove()


def _rows_bound(query: MarginalMAP) -> float:
    """Log of what all states together weigh at most: nothing, where rows sum to one."""
    network = query.network
    heaviest = [float(table.sum(-1).max()) for table in network.tables]
    heaviest += [max(likelihoods) for _, likelihoods in query.soft]
    return (
        network.log_constant + math.fsum(math.log(each) for each in heaviest)
        if min(heaviest) > 0
        else -math.inf
    )


def _drawn(
    random: np.random.Generator, query: MarginalMAP, possible: Possible, supports: Supports,
    wanted: Mapping[int, int] | None = None,
) -> dict[int, int]:  # fmt: skip
    """States that are possible where propagation leads to some, near those that are wanted."""
    for _ in range(DRAWS):
        drawn = draw_possible(random, query, possible, supports, wanted)
        if drawn is not None:
            return drawn
    return draw_states(random, query) | dict(wanted or {})


def _starts(
    key: Array, random: np.random.Generator, query: MarginalMAP, possible: Possible, supports: Supports,
    landscape: Landscape, incumbent: Incumbent, most_cells: int,
) -> Iterator[tuple[str, dict[int, int]]]:  # fmt: skip
    """Starts without end, and what each is."""
    clock = incumbent.clock
    passed: list[np.ndarray] | None = None
    beliefs, _ = factor_posteriors(possible, query.map_variables, NARROW)
    surest = sorted(zip(query.map_variables, beliefs, strict=True), key=lambda pair: -pair[1].max(initial=0))
    likely = {v: int(possible.states[v][each.argmax()]) for v, each in surest}
    close = draw_possible(random, query, possible, supports, likely)
    explained = None
    if close is None:  # what is likely leads nowhere: something possible first
        explained = explain_exactly(possible, most_cells, EXPLAINED * min(clock.left(), 60.0))
        if explained is not None:
            yield "the explanation of everything", landscape.places(explained)
    yield (
        "single posteriors",
        landscape.places(draw_states(random, query) | likely if close is None else close),
    )
    for turn in itertools.count():
        if turn == 1 and close is not None:
            explained = explain_exactly(possible, most_cells, EXPLAINED * min(clock.left(), 60.0))
            if explained is not None:
                yield "the explanation of everything", landscape.places(explained)
                continue
        if turn % 4 == 1 and explained is None:
            rest = clock.left()

            def enough(rest: float = rest) -> bool:
                return clock.left() < 0.8 * rest

            states = explain_everything(random, query, possible, enough, most_cells, 200, restart=False)
            yield "an explanation of everything", landscape.places(states)
            continue
        if turn % 4 == 3:
            if passed is None or (not passed and turn % 12 == 3):
                passed = _passed(jax.random.fold_in(key, turn), query, incumbent)
            if passed:
                states = dict(zip(query.map_variables, passed.pop(0).tolist(), strict=True))
                yield "gradient ascent", landscape.places(_drawn(random, query, possible, supports, states))
                continue
        yield "a draw", landscape.places(_drawn(random, query, possible, supports))


def _passed(key: Array, query: MarginalMAP, incumbent: Incumbent) -> list[np.ndarray]:
    """Answers that gradient ascent passes on smoothed tables; none where there is no time to compile it."""
    clock, rest = incumbent.clock, incumbent.clock.left()
    tables = smoothed_tables(query.network)
    if rest < 1.0 + seconds_to_begin(query, tables, "adam", RESTARTS):
        return []
    found = ascend(
        key, query, optimizer="adam", num_restarts=RESTARTS, max_steps=STEPS, tables=tables,
        stop=lambda vertices: clock.left() < (1 - ASCENT) * rest,
    )  # fmt: skip
    return list(found.states[:KEPT])


def _by_estimates(
    key: Array,
    query: MarginalMAP,
    possible: Possible,
    incumbent: Incumbent,
    max_steps: int | None,
    most_cells: int,
) -> None:
    """Answers by mixed-product propagation, explanations and gradient ascent, the best by the Bethe estimate."""
    clock, random = incumbent.clock, generator(key)
    for reading in ("belief", "cavity"):
        found = mixed_product(query, reading=reading, tables=smoothed_tables(query.network), stop=clock.over)
        incumbent.offer(found.states, *score(query, found.states, most_cells), "mixed product")
    rounds = 0
    while not clock.over() and (max_steps is None or rounds < max_steps):
        rounds += 1
        states = explain_everything(random, query, possible, clock.over, most_cells, 200, restart=False)
        answer = [states.get(variable, 0) for variable in query.map_variables]
        incumbent.offer(answer, *score(query, answer, most_cells), "explanation of everything")
        for each in _passed(jax.random.fold_in(key, rounds), query, incumbent):
            if clock.over():
                break
            incumbent.offer(each, *score(query, each, most_cells), "gradient ascent")
