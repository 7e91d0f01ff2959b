"""Bounds and proofs in small steps beside another search: mini-buckets, then branch and bound, then larger ones.

Every independent part of a query has its own. Passes of weighted mini-buckets tighten the bound; branch and bound under
them closes the gap, or gives way to larger mini-buckets where there is time for them. Sums over hidden variables are
kept from one stage to the next, and so is the incumbent, which is shared with the other search.
"""

from __future__ import annotations

import collections
import functools
import math
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

from ethogram.inference.networks.anytime import SCHEDULE, Answer, Bound, Clock, Closed, Event
from ethogram.inference.networks.branch_and_bound import SAME, BranchAndBound, ComponentSum, component_sums
from ethogram.inference.networks.bucket_tree import BucketTree
from ethogram.inference.networks.elimination import hidden_order
from ethogram.inference.networks.mini_bucket_plan import MiniBucketPlan, bounded_order, plan_mini_buckets
from ethogram.inference.networks.weighted_mini_buckets import WeightedMiniBuckets
from ethogram.inference.networks.zero_propagation import ReducedFactors

__all__ = ["StagedSearch", "search_and_prove"]


class _Part:
    """An independent part of a query."""

    def __init__(self, possible: ReducedFactors, number: int, maximised: Sequence[int], same: float):
        self.possible, self.number, self.same = possible, number, same
        self.factors, self.sizes = possible.parts[number], possible.sizes
        known = {variable for scope, _ in self.factors for variable in scope}
        self.maximised = [variable for variable in maximised if variable in known]
        self.held = frozenset(maximised)
        self.upper_bound, self.value = math.inf, -math.inf
        self.best: dict[int, int] | None = None

    @property
    def closed(self) -> bool:
        return self.upper_bound <= self.value + self.same or self.upper_bound == -math.inf

    def offer(self, places: Mapping[int, int], value: float) -> bool:
        if value <= self.value:
            return False
        self.value, self.best = value, {variable: places[variable] for variable in self.maximised}
        return True


class StagedSearch:
    """Upper bound and best assignment of a query, better with every step.

    Parameters
    ----------
    possible : factors after propagation of zeros.
    maximised : variables that are maximised.
    clock : that ends a step early.
    most_cells : cells of a table at most.
    search : whether to branch and bound; without, there are bounds alone, and no sum over hidden variables is needed.
    log_constant : of the network, which the factors lack.
    """

    def __init__(
        self,
        possible: ReducedFactors,
        maximised: Sequence[int],
        clock: Clock,
        most_cells: int,
        search: bool = True,
        log_constant: float = 0.0,
    ):
        self.clock, self.most_cells, self.search = clock, most_cells, search
        self.constant = log_constant + possible.log_constant
        same = SAME / max(
            len(possible.parts), 1
        )  # what is given up in all parts together is at most that of one
        numbers = sorted(range(len(possible.parts)), key=lambda number: len(possible.parts[number]))
        self.parts = [_Part(possible, number, maximised, same) for number in numbers]
        self._trees: list[BucketTree] = []
        self._waiting = collections.deque((part, self._stages(part)) for part in self.parts)
        self._reported: float = -math.inf
        self._begin, self._spent = clock.passed(), 0.0

    @property
    def upper_bound(self) -> float:
        """Upper bound on the log of the optimum."""
        bounds = [part.upper_bound for part in self.parts]
        return -math.inf if -math.inf in bounds else self.constant + math.fsum(bounds)

    @property
    def value(self) -> float:
        """Log probability of the best assignment."""
        values = [part.value for part in self.parts]
        return -math.inf if -math.inf in values else self.constant + math.fsum(values)

    @property
    def closed(self) -> bool:
        """Whether the best assignment is optimal, or none is possible."""
        return all(part.closed for part in self.parts) or self.upper_bound == -math.inf

    @property
    def exhausted(self) -> bool:
        """Whether no step is left."""
        return not self._waiting

    def offer(self, places: Mapping[int, int]) -> None:
        """A possible assignment found elsewhere, places by variable."""
        if not self._trees:
            self._trees = [
                BucketTree(part.factors, part.sizes, part.maximised, hidden_order(part.possible, part.held))
                for part in self.parts
            ]
        total = self.constant
        for part, tree in zip(self.parts, self._trees, strict=True):
            value = tree.move({variable: places[variable] for variable in part.maximised})
            part.offer(places, value)
            total += value
        self._reported = max(self._reported, total)

    def news(self) -> dict[int, int] | None:
        """The best assignment where it is better than all before it, those offered included; else None."""
        if self.value <= self._reported + SAME:
            return None
        self._reported = self.value
        found: dict[int, int] = {}
        for part in self.parts:
            found |= part.best or {}
        return found

    def turn(self, share: Callable[[], float] | None) -> Iterator[Bound]:
        """Steps until they have taken this share of the time since the beginning, or one step; the bound after each."""
        while not (self.closed or self.exhausted or self.clock.over()):
            now = self.clock.passed()
            if share is not None and self._spent > share() * (now - self._begin):
                return
            self.step()
            self._spent += self.clock.passed() - now
            yield Bound(self.upper_bound)
            if share is None:
                return

    def step(self) -> None:
        """A pass of one part's mini-buckets, or a chunk of its branch and bound."""
        while self._waiting:
            part, stages = self._waiting.popleft()
            if not part.closed and next(stages, None) is not None:
                self._waiting.append((part, stages))
                return

    def _stages(self, part: _Part) -> Iterator[bool]:
        over = self.clock.over
        order = bounded_order(part.possible, part.number, part.held)
        scopes = [scope for scope, _ in part.factors]

        @functools.cache
        def planned(number: int) -> MiniBucketPlan:
            return plan_mini_buckets(
                scopes, part.sizes, order, min(SCHEDULE.stage_cells[number], self.most_cells)
            )

        components = []
        if self.search:
            hidden = hidden_order(part.possible, part.held)
            components = component_sums(part.factors, part.sizes, part.maximised, hidden)
        for number in range(len(SCHEDULE.stage_cells)):
            plan = planned(number)
            share = _share(part)
            if number and (
                _seconds(plan) > share * self._left()
                or SCHEDULE.bytes_per_cell * plan.cells > SCHEDULE.most_bytes
            ):
                break
            if (
                0 < number < len(SCHEDULE.stage_cells) - 1
                and _seconds(planned(number + 1)) < SCHEDULE.skipped_stage_share * self._left()
            ):
                continue
            bound = WeightedMiniBuckets(part.factors, part.sizes, part.maximised, order, plan)
            most = SCHEDULE.most_passes if number else SCHEDULE.first_stage_passes
            while bound.passes < most and bound.tighten(part.value, over):
                part.upper_bound = min(part.upper_bound, bound.bound)
                yield True
                if over() or part.closed:
                    return
            part.upper_bound = min(part.upper_bound, bound.bound)
            if plan.exact and not self.search:
                return
            share = _share(part)
            last = plan.exact or number + 1 == len(SCHEDULE.stage_cells)
            rest = math.inf if last else _seconds(planned(number + 1))
            if rest > share * self._left():
                rest = math.inf
            if part.upper_bound - part.value > SCHEDULE.near_gap_nats and rest < math.inf:
                rest *= SCHEDULE.far_branch_share
            if self.search:
                if not bound.settle(over):
                    return
                yield from self._branch(part, bound, components, rest)
                if part.closed or rest == math.inf:
                    return

    def _branch(
        self, part: _Part, bound: WeightedMiniBuckets, components: Sequence[ComponentSum], seconds: float
    ) -> Iterator[bool]:
        """Branch and bound for about a number of seconds of its own, or until it is closed."""
        search = BranchAndBound(bound, part.sizes, part.maximised, components, part.same)
        over = self.clock.over
        known, steps = sum(len(each.cache) * each.seconds for each in components), 0
        while True:
            steps += 1
            sums = sum(len(each.cache) * each.seconds for each in components) - known
            if sums + steps * SCHEDULE.chunk_seconds + search.nodes * SCHEDULE.node_seconds > seconds:
                return
            if part.best is not None:
                search.offer(part.best, part.value)
            search.advance(over)
            if search.best is not None:
                part.offer(search.best, search.value)
            part.upper_bound = min(part.upper_bound, search.upper_bound)
            yield True
            if part.closed or over():
                return

    def _left(self) -> float:
        return self.clock.left() if self.clock.limit is not None else SCHEDULE.planned_seconds


def _share(part: _Part) -> float:
    """Share of the time left that the passes of a stage may take."""
    wide = part.value > -math.inf and part.upper_bound - part.value > SCHEDULE.wide_gap_nats
    return SCHEDULE.wide_stage_share if wide else SCHEDULE.stage_share


def _seconds(plan: MiniBucketPlan) -> float:
    """Expected time of a stage's passes."""
    return SCHEDULE.planned_passes * (
        SCHEDULE.pass_seconds_per_cell * plan.cells + SCHEDULE.pass_seconds_per_table * len(plan.mini_buckets)
    )


def search_and_prove(
    climbing: Generator[Answer | Closed | None, dict[int, int] | None, None],
    proof: StagedSearch,
    share: Callable[[], float] | None,
) -> Iterator[Event]:
    """Events of a search and of a proof that takes turns with it; each goes on from the other's answers.

    None comes between the turns, where both may be left.

    Parameters
    ----------
    share : of the time that the proof may take; None for one step of it each turn.
    """
    found = None
    while True:
        try:
            event = climbing.send(found)
        except StopIteration:
            return
        found = None
        if event is not None:
            if isinstance(event, Answer):
                proof.offer(event.places)
            yield event
            continue
        yield from proof.turn(share)
        found = proof.news()
        if found is not None:
            yield Answer(found, proof.value, "branch and bound")
        if proof.closed:
            yield Closed()
            return
        yield None
