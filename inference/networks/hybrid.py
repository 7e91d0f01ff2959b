"""The default method: constrained elimination where affordable, else two searches that share their incumbent.

Where elimination takes a small part of the time limit, its answer is proved optimal. Else large-neighbourhood search
climbs from posterior modes of single variables, ancestral samples, MPEs, and perturbed incumbents,
and between its neighbourhoods weighted mini-buckets tighten the upper bound, and branch and bound under them closes the
gap. What either finds the other uses.

Where even the probability of one assignment is out of reach, candidates are compared by Bethe estimates, between an
upper bound and certified lower bounds: cheap ones first, those of the baselines among them, each with a slice of the
time, and climbs by flips from each. The best estimates are summed exactly where there is time for that. In large
networks the first sample is the incumbent before anything is planned.

Ours; its parts have their sources. Iterated local search with perturbed incumbents: Lourenço, Martin, Stützle (2003),
"Iterated local search".
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from ethogram.inference.networks.anytime import SCHEDULE, Answer, Bound, Closed, Task
from ethogram.inference.networks.branch_and_bound import SAME
from ethogram.inference.networks.certified_answers import CertifiedAnswers
from ethogram.inference.networks.conflict_search import ConflictSearch
from ethogram.inference.networks.elimination import EliminationPlan, carry_out, plan_elimination
from ethogram.inference.networks.estimated_flips import ROUNDS, EstimatedFlips
from ethogram.inference.networks.exact_queries import factor_posteriors
from ethogram.inference.networks.explanations import (
    complete,
    draw_near,
    draw_soon,
    exact_mpe,
    last_answer,
    search_mpe,
)
from ethogram.inference.networks.large_neighbourhood_search import (
    ConditionalProblem,
    climb,
    perturbed,
)
from ethogram.inference.networks.mixed_product import mixed_product, smoothed_tables
from ethogram.inference.networks.samples import log_joint, possible_draws
from ethogram.inference.networks.staged_search import StagedSearch, search_and_prove
from ethogram.inference.networks.zero_propagation import propagate_zeros, query_factors
from ethogram.models.networks.marginal_map import MarginalMAP
from ethogram.models.numpy_generator import numpy_generator

__all__ = ["hybrid"]

NUM_STARTS = 4
"""Samples that candidates compared by estimates start from."""


def hybrid(task: Task) -> None:
    """Constrained elimination where affordable, else large-neighbourhood search and branch and bound."""
    key, query, possible, incumbent, max_steps, most_cells = task
    clock, constant = incumbent.clock, query.network.log_constant
    budget = SCHEDULE.elimination_share * SCHEDULE.cells_per_second * clock.planned()
    random, sample, search = numpy_generator(key), None, None
    incumbent.upper_bound = _rows_bound(query)
    if sum(size > 1 for size in possible.sizes.values()) > SCHEDULE.large_network_variables:
        search = ConflictSearch(possible.factors)
        sample = _sample(random.spawn(1)[0], task, search)
        if search.impossible or (sample is not None and clock.over()):
            return
    plan = plan_elimination(possible, query.map_variables, min(most_cells, budget), clock.over)
    narrow = plan.cells <= most_cells and plan.work <= budget
    if narrow and plan.work <= SCHEDULE.immediate_cells:
        _eliminate(task, plan)
        return
    search = ConflictSearch(possible.factors) if search is None else search

    def done() -> bool:
        return search.impossible or (incumbent.states is not None and clock.over())

    if done():
        return
    draws = possible_draws(random, query, possible)
    drawn = [dict(enumerate(each)) for each in draws.states.tolist()]
    if not drawn and sample is None:
        sample = _sample(random, task, search)
    if sample is not None:
        drawn.insert(at := int(np.searchsorted(-draws.log_joint, -incumbent.lower_bound)), sample)
        if at:
            best = float(draws.log_joint[0])
            incumbent.replace(task.chosen(drawn[0]), best, "estimate", "an ancestral sample", best)
    if done():
        return
    problem = ConditionalProblem(query, possible, query.map_variables)
    affordable = problem.exact.cells <= most_cells and problem.exact.work <= budget
    first = problem.places(drawn[0]) if drawn else {}
    if drawn and affordable and not done():
        states = problem.possible.whole(first)
        incumbent.offer(task.chosen(states), problem.value(first), "exact", "an ancestral sample")
    if narrow and not done():
        _eliminate(task, plan)
        return
    if clock.over():
        return
    sums = plan_elimination(possible, (), min(most_cells, budget / 20), clock.over)
    if sums.cells <= most_cells and sums.work <= budget / 20:
        incumbent.upper_bound = min(incumbent.upper_bound, constant + carry_out(possible, sums, ())[1])
    proof = StagedSearch(
        possible, query.map_variables, clock, most_cells, search=affordable, log_constant=constant
    )
    if not affordable:
        _by_estimates(
            task._replace(most_cells=max(1, min(most_cells, int(budget / 4)))),
            proof,
            search,
            problem,
            random,
            drawn[:NUM_STARTS],
            most_cells,
        )
        incumbent.proved = incumbent.lower_bound > -math.inf and _met(task)
        return
    if done():
        return
    if drawn:
        proof.offer(first)

    def offer(places: Mapping[int, int], value: float, source: str) -> None:
        states = problem.possible.whole(places)
        incumbent.offer([states[v] for v in query.map_variables], value, "exact", source)

    starts = _starts(random, task, search, problem, offer, drawn)

    def next_start(best: dict[int, int] | None) -> tuple[Mapping[int, int], str]:
        if best is None:
            source, places = next(starts)
            return places, f"neighbourhood search from {source}"
        near = draw_near(random, task, search, perturbed(random, problem, best))
        return problem.places(near), "neighbourhood search from a perturbed incumbent"

    climbing = climb(
        random, problem, next_start(None), next_start, most_cells=most_cells, max_rounds=max_steps
    )
    share = _proof_share(task) if max_steps is None else None
    for event in search_and_prove(climbing, proof, share):
        match event:
            case Answer(places, value, source):
                offer(places, value, source)
            case Bound(value):
                incumbent.upper_bound = min(incumbent.upper_bound, value)
            case Closed():
                incumbent.prove()
                return
        if (event is None and clock.over()) or search.impossible or _met(task):
            break
    if _met(task):
        incumbent.prove()


def _sample(random: np.random.Generator, task: Task, search: ConflictSearch) -> dict[int, int] | None:
    """An ancestral sample, which its joint probability makes the incumbent; None if there is none, or none soon."""
    states = draw_soon(random, task, search, {})
    if states is not None:
        joint = log_joint(task.query, states)
        task.incumbent.replace(task.chosen(states), joint, "estimate", "an ancestral sample", joint)
    return states


def _eliminate(task: Task, plan: EliminationPlan) -> None:
    """The optimum by constrained elimination."""
    states, value = carry_out(task.possible, plan, task.query.map_variables)
    value += task.query.network.log_constant
    task.incumbent.offer(task.chosen(states), value, "exact", "elimination")
    task.incumbent.prove()


def _proof_share(task: Task, most: float = 1.0) -> Callable[[], float]:
    """Share of the time for bounds and proofs, by the gap and the age of the answer, and at most that."""
    incumbent, clock = task.incumbent, task.incumbent.clock

    def share() -> float:
        gap = incumbent.upper_bound - incumbent.log_probability
        stale = incumbent.trace and 2 * incumbent.trace[-1].at(clock.kind) < clock.passed()
        usual = SCHEDULE.stale_proof_share if stale else SCHEDULE.proof_share
        return min(most, SCHEDULE.wide_proof_share if gap > SCHEDULE.wide_gap_nats else usual)

    return share


def _affordable_mpe(task: Task) -> dict[int, int] | None:
    """The exact MPE where it takes a long slice of the time left at most."""
    rate = SCHEDULE.long_slice_share * SCHEDULE.cells_per_second
    return exact_mpe(task, work=rate * task.incumbent.clock.planned())


def _met(task: Task) -> bool:
    """Whether the incumbent is certain to be as good as the upper bound; an estimate may be above either."""
    return task.incumbent.lower_bound >= task.incumbent.upper_bound - SAME


def _rows_bound(query: MarginalMAP) -> float:
    """Upper bound on the log of the total mass, from row sums: zero where rows sum to one."""
    network = query.network
    heaviest = [float(table.sum(-1).max()) for table in network.tables]
    heaviest += [max(likelihoods) for _, likelihoods in query.soft]
    return network.log_constant + math.fsum(map(math.log, heaviest)) if min(heaviest) > 0 else -math.inf


def _starts(
    random: np.random.Generator,
    task: Task,
    search: ConflictSearch,
    problem: ConditionalProblem,
    offer: Callable[[Mapping[int, int], float, str], None],
    drawn: list[dict[int, int]],
) -> Iterator[tuple[str, dict[int, int]]]:
    """Endless starting points and where each comes from; cheap ones are offered before the first climb."""
    query, possible, clock = task.query, task.possible, task.incumbent.clock

    def explain(until_possible: bool = False) -> tuple[dict[int, int], bool]:
        least, hasty = 0.8 * clock.left(), until_possible and task.max_steps is None

        def stop(answer: Answer) -> bool:
            enough = answer.value > -math.inf if hasty else clock.left() < least
            return enough or clock.over() or _met(task)

        found = search_mpe(
            random, task, search, None if hasty else SCHEDULE.mpe_rounds, restart=until_possible
        )
        return last_answer(found, stop)

    sure = False
    if clock.left() < SCHEDULE.marginals_min_seconds:
        states = drawn[0] if drawn else draw_near(random, task, search, {})
        yield "an ancestral sample", problem.places(states)
    if not drawn:  # what a proof would tell can wait until there is an answer
        explained = exact_mpe(task)
        states, sure = explain(until_possible=True) if explained is None else (explained, True)
        yield "the MPE" if sure else "a searched MPE", problem.places(states)
    beliefs, _ = factor_posteriors(possible, query.map_variables, SCHEDULE.marginal_cells)
    surest = sorted(zip(query.map_variables, beliefs, strict=True), key=lambda pair: -pair[1].max(initial=0))
    likely = {v: int(possible.states[v][each.argmax()]) for v, each in surest}
    least, rounds = (1 - SCHEDULE.short_slice_share) * clock.left(), min(task.max_steps or ROUNDS, ROUNDS)
    one_by_one = EstimatedFlips(query).one_by_one(
        lambda: task.max_steps is None and clock.left() < least, rounds
    )
    scored: list[tuple[float, str, dict[int, int]]] = []
    for source, wanted in (("posterior marginals", likely), ("sequential modes", one_by_one)):
        places = problem.places(draw_near(random, task, search, wanted))
        scored.append((problem.value(places), source, places))
        offer(places, scored[-1][0], source)
    for _, source, places in sorted(scored, key=lambda each: -each[0]):
        yield source, places
    for turn in itertools.count():
        if turn == 1 and not sure and (explained := _affordable_mpe(task)) is not None:
            sure = True
            yield "the MPE", problem.places(explained)
        elif turn % 4 == 1 and not sure:
            states, sure = explain()
            yield "a searched MPE", problem.places(states)
        else:
            fresh = drawn.pop(0) if drawn else draw_near(random, task, search, {})
            yield "an ancestral sample", problem.places(fresh)


def _by_estimates(
    task: Task,
    proof: StagedSearch,
    search: ConflictSearch,
    problem: ConditionalProblem,
    random: np.random.Generator,
    drawn: list[dict[int, int]],
    most_cells: int,
) -> None:
    """Candidates compared by estimates and lower bounds: cheap ones first, each with a slice of the time left."""
    query, incumbent, clock = task.query, task.incumbent, task.incumbent.clock
    share = _proof_share(task, SCHEDULE.estimate_bound_share) if task.max_steps is None else None
    answers, flips = CertifiedAnswers(task), EstimatedFlips(query)

    def turn() -> bool:
        """A turn of the proof, and whether nothing is left to do."""
        for bound in proof.turn(share):
            incumbent.upper_bound = min(incumbent.upper_bound, bound.value)
        return proof.closed or clock.over() or search.impossible or _met(task)

    def late() -> bool:
        """Whether another answer would overshoot the limit."""
        return clock.over() or clock.left() + SCHEDULE.overshoot_seconds < answers.longest_offer

    def slice_of(share: float) -> Callable[[], bool]:
        least = (1 - share) * clock.left()
        return lambda: late() or (task.max_steps is None and clock.left() < least)

    def offer(states: Mapping[int, int], source: str) -> None:
        if not late():
            answers.offer(states, source)

    def offer_near(states: Mapping[int, int], source: str) -> None:
        """Offer a possible completion, and the states themselves if they are not in it."""
        wanted = {v: states[v] for v in query.map_variables} | flips.hidden
        near = draw_near(random, task, search, wanted)
        if task.chosen(near) != task.chosen(states):
            offer(wanted, source)
        offer(near, source)

    def climb_flips(states: Mapping[int, int], source: str) -> None:
        if not late():
            states = {v: states[v] for v in query.map_variables}
            offer_near(flips.climb(states, slice_of(SCHEDULE.slice_share)), source)

    def explain(restart: bool) -> None:
        states, source = _affordable_mpe(task) if restart and not late() else None, "the MPE"
        if states is None:
            late_or_long = slice_of(SCHEDULE.slice_share)
            events = search_mpe(random, task, search, SCHEDULE.mpe_rounds, restart=restart)
            states, source = last_answer(events, lambda _: late_or_long())[0], "a searched MPE"
        if states:  # none where the evidence is impossible
            offer(states, source)
            climb_flips(states, "flips of the MPE")

    def certify() -> None:
        """Sum the best estimates exactly where there is time for that, or find better completions of them."""
        while not late() and (answer := answers.doubtful()) is not None:
            possible = propagate_zeros(query_factors(query, answer))
            plan = plan_elimination(possible, (), most_cells, slice_of(SCHEDULE.long_slice_share))
            work = SCHEDULE.long_slice_share * SCHEDULE.usual_cells_per_second * clock.planned()
            if plan.cells <= most_cells and plan.work <= work:
                answers.settle(answer, query.network.log_constant + carry_out(possible, plan, ())[1])
            elif (states := complete(random, task, answer, slice_of(SCHEDULE.slice_share))) is not None:
                offer(states, "")

    for states in drawn[:1]:
        offer(states, "an ancestral sample")
    likely = flips.modes(slice_of(SCHEDULE.slice_share))
    offer_near(likely, "posterior marginals")
    if not late():
        cells = int(SCHEDULE.certified_cells_per_second * clock.planned())
        answers.tighten(min(cells, task.most_cells), slice_of(SCHEDULE.long_slice_share))
    climb_flips(likely, "flips of posterior marginals")
    if not late():
        states = flips.one_by_one(slice_of(SCHEDULE.long_slice_share))
        offer_near(states, "sequential modes")
        climb_flips(states, "flips of sequential modes")
    turn()
    explain(restart=True)
    turn()
    for argmax_of in ("belief", "cavity"):
        if not late():
            tables = smoothed_tables(query.network)
            mixed = mixed_product(
                query, argmax_of=argmax_of, tables=tables, stop=slice_of(SCHEDULE.slice_share)
            )
            near = dict(zip(query.map_variables, mixed.tolist(), strict=True))
            offer_near(near, "mixed-product belief propagation")
    certify()
    rounds = 0
    while not (turn() or late()) and (task.max_steps is None or rounds < task.max_steps):
        rounds += 1
        if rounds % 4 == 1:
            explain(restart=False)
        elif rounds % 4 == 2 or task.incumbent.states is None:
            climb_flips(
                drawn.pop() if drawn else draw_near(random, task, search, {}), "flips of an ancestral sample"
            )
        else:
            best = dict(zip(query.map_variables, task.incumbent.states.tolist(), strict=True))
            kept = perturbed(random, problem, problem.places(best))
            climb_flips(draw_near(random, task, search, kept), "flips of a perturbed incumbent")
        certify()
