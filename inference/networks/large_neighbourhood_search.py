r"""Large-neighbourhood search for marginal MAP, each neighbourhood solved exactly.

All MAP variables except a few close ones are held fixed. The conditional query of the free ones is a small marginal MAP
query, with messages from the rest of the network, and constrained elimination solves it: the best joint change of the
free variables, where single flips would be stuck. Neighbourhoods are as large as tables allow, some compact, others
long paths. They start where something near has changed since they were last solved (don't-look bits), so that a climb
from a perturbed incumbent looks only around the perturbation. Where a climb ends below the incumbent, the variables in
which the two differ fall into connected clusters, and the incumbent takes over the clusters that improve it (partition
crossover).

From an impossible start, zeros count as a tiny number until a possible assignment is found; from then on log
probabilities are exact.

Park and Darwiche (2004), "Complexity results and approximation strategies for MAP explanations", climb by
single flips; Ahuja, Ergun, Orlin, Punnen (2002), "A survey of very large-scale neighborhood search techniques"; Bentley
(1992), "Fast algorithms for geometric traveling salesman problems", for don't-look bits; Tinos, Whitley, Chicano
(2015), "Partition crossover for pseudo-Boolean optimization".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence

import numpy as np

from ethogram.inference.networks.anytime import SCHEDULE, Answer, Closed
from ethogram.inference.networks.branch_and_bound import SAME
from ethogram.inference.networks.bucket_tree import BucketTree
from ethogram.inference.networks.elimination import carry_out, hidden_order, plan_elimination
from ethogram.inference.networks.zero_propagation import Factor, ReducedFactors, propagate_zeros
from ethogram.models.networks.marginal_map import MarginalMAP

__all__ = ["ConditionalProblem", "climb", "neighbourhood", "perturbed"]

ZERO_FLOOR = 1e-30
"""Value that replaces zeros until a possible assignment is found."""
AFFECTED_STEPS, CLUSTER_STEPS = 2, (1, 2, 3)
"""Steps within which a change clears don't-look bits, and within which differing variables form one cluster."""


class ConditionalProblem:
    """Log probabilities of assignments of a query, and the graph of its variables.

    An assignment is a dict of places: positions among the possible states of each variable to maximise over, which are
    the MAP variables, or all of them for an MPE.
    """

    def __init__(self, query: MarginalMAP, possible: ReducedFactors, maximised: Sequence[int]):
        self.possible, self.sizes, factors = possible, possible.sizes, possible.live
        self.constant = query.network.log_constant + possible.log_constant
        known = {variable for scope, _ in factors for variable in scope}
        self.maximised = [variable for variable in maximised if variable in known]
        self.order = hidden_order(possible, maximised)
        self.exact = BucketTree(factors, self.sizes, self.maximised, self.order)
        self._floored: BucketTree | None = None
        near: dict[int, set[int]] = {variable: set() for variable in known}
        for scope, _ in factors:
            for variable in scope:
                near[variable].update(scope)
        self.near = {variable: sorted(others - {variable}) for variable, others in near.items()}
        self._within: dict[tuple[int, int], frozenset[int]] = {}

    @property
    def floored(self) -> BucketTree:
        """The tree in which zeros are raised to the floor, built where it is needed."""
        if self._floored is None:
            raised = [
                Factor(scope, np.where(table > 0, table, ZERO_FLOOR)) for scope, table in self.possible.live
            ]
            self._floored = BucketTree(raised, self.sizes, self.maximised, self.order)
        return self._floored

    def within(self, variable: int, steps: int) -> frozenset[int]:
        """Maximised variables at most this many factors away from one, itself included."""
        if (variable, steps) not in self._within:
            seen, edge = {variable}, [variable]
            for _ in range(steps):
                edge = list({other for each in edge for other in self.near[each]} - seen)
                seen.update(edge)
            self._within[variable, steps] = frozenset(seen.intersection(self.maximised))
        return self._within[variable, steps]

    def affected(self, before: Mapping[int, int], after: Mapping[int, int]) -> set[int]:
        """Maximised variables near those that differ between two assignments."""
        moved = [variable for variable, place in before.items() if after[variable] != place]
        return set().union(*(self.within(variable, AFFECTED_STEPS) for variable in moved))

    def clusters(self, variables: Iterable[int], steps: int) -> list[list[int]]:
        """Connected clusters of variables, where variables at most this many steps apart are connected."""
        left, found = list(variables), []
        while left:
            cluster, left = [left[0]], left[1:]
            for variable in cluster:  # which grows meanwhile
                close = self.within(variable, steps)
                cluster += [other for other in left if other in close]
                left = [other for other in left if other not in close]
            found.append(cluster)
        return found

    def places(self, states: Mapping[int, int]) -> dict[int, int]:
        """Places of states by variable; the first possible state where one is impossible."""
        return {v: self.possible.place(v, states.get(v)) or 0 for v in self.maximised}

    def value(self, places: Mapping[int, int]) -> float:
        """Log probability of an assignment, to which the exact tree moves."""
        return self.constant + self.exact.move(places)


class _Climber:
    """Current assignment of a climb, on the exact tree if it is possible, else on the one that replaces zeros.

    `best` is the incumbent, or else the first assignment.
    """

    def __init__(self, problem: ConditionalProblem, places: Mapping[int, int]):
        self.problem = problem
        self.best, self.best_value = dict(places), -math.inf
        self.go(places)

    def kept(self, source: str) -> Iterator[Answer]:
        """The current assignment where it is a new incumbent."""
        if self.possible and self.value > self.best_value + SAME:
            self.best, self.best_value = dict(self.places), self.value
            yield Answer(self.best, self.best_value, source)

    def go(self, places: Mapping[int, int]) -> None:
        self.places = dict(places)
        self.tree, self.value = self.problem.exact, self.problem.value(places)
        self.possible = self.value > -math.inf
        if not self.possible:
            self.tree = self.problem.floored
            self.value = self.problem.constant + self.tree.move(places)

    def improve(self, free: set[int], most_cells: int) -> bool | None:
        """Set free variables to their conditional optimum; whether that improves; None where tables are too large."""
        problem = self.problem
        live = [factor for factor in self.tree.between(free) if factor.scope]
        left = propagate_zeros(live)  # fixed variables leave few possible states of free ones
        plan = plan_elimination(left, free, most_cells)
        if plan.cells > most_cells:
            return None
        states = carry_out(left, plan, free)[0]
        found = {variable: place for variable, place in states.items() if variable in free}
        moved = {variable: place for variable, place in found.items() if self.places[variable] != place}
        if not moved:
            return False
        before = self.value
        self.places |= moved
        self.value = problem.constant + self.tree.move(moved)
        if not self.possible and (exact := problem.value(self.places)) > -math.inf:
            self.tree, self.value, self.possible = problem.exact, exact, True
            return True
        return self.value > before + SAME

    def cross(self) -> Generator[None, dict[int, int] | None, dict[int, int] | None]:
        """Partition crossover of the incumbent with the current assignment, which it replaces.

        It stops before every cluster, and ends with what is sent then.
        """
        other, tried = self.places, set()
        self.go(self.best)
        for steps in CLUSTER_STEPS:
            differing = [v for v, place in self.places.items() if other[v] != place]
            for cluster in self.problem.clusters(differing, steps):
                if frozenset(cluster) in tried:
                    continue
                tried.add(frozenset(cluster))
                sent = yield
                if sent is not None:
                    return sent
                theirs, own = ({v: places[v] for v in cluster} for places in (other, self.places))
                value = self.problem.constant + self.tree.move(theirs)
                if value > self.value + SAME:
                    self.places, self.value = self.places | theirs, value
                else:
                    self.tree.move(own)
        return None

    def try_each(self, variable: int) -> bool:
        """Set one variable to its best state by trying each; whether that improves."""
        problem, own, before = self.problem, self.places[variable], self.value
        states = range(problem.sizes[variable])
        values = [problem.constant + self.tree.move({variable: place}) for place in states]
        best = int(np.argmax(values))
        best = own if values[best] <= values[own] + SAME else best
        self.places[variable], self.value = best, values[best]
        self.tree.move({variable: best})
        if not self.possible and best != own:
            self.go(self.places)
            return self.possible or self.value > before + SAME
        return self.value > before + SAME


def climb(
    random: np.random.Generator,
    problem: ConditionalProblem,
    start: tuple[Mapping[int, int], str],
    next_start: Callable[[dict[int, int] | None], tuple[Mapping[int, int], str]] | None = None,
    *,
    most_cells: int,
    max_rounds: int | None = None,
) -> Generator[Answer | Closed | None, dict[int, int] | None, None]:
    """Large-neighbourhood search: every new incumbent, None before each neighbourhood, and the end of a proof.

    What is sent in place of a None is a better assignment of another search: the climb goes on from there.

    Parameters
    ----------
    start : places to start from, and where they come from.
    next_start : gives another start where a climb has ended, for an incumbent to perturb, or for None; without it there
        is one climb.
    most_cells : cells of a table at most.
    max_rounds : neighbourhoods at most.
    """
    places, source = start
    maximised, climber = problem.maximised, _Climber(problem, places)
    yield from climber.kept(source)
    if not maximised:
        yield Closed()
        return
    least = limit = min(most_cells, max(SCHEDULE.neighbourhood_cells, 8 * problem.exact.cells))
    largest = dict.fromkeys((False, True), min(len(maximised), 16))
    unsettled, crossed, again, rounds, again_rounds = set(maximised), False, False, 0, 0
    sent: dict[int, int] | None = None
    while max_rounds is None or rounds < max_rounds:
        sent = sent or (yield None)
        rounds, again_rounds = rounds + 1, again_rounds + again
        if sent is not None:
            climber.go(sent)
            yield from climber.kept(source)
            unsettled, crossed, sent = set(maximised), False, None
        sure, along_path = climber.possible, bool(random.random() < SCHEDULE.path_share)
        around = [variable for variable in maximised if variable in unsettled]
        free = neighbourhood(random, problem, largest[along_path], around=around, along_path=along_path)
        held = {variable: climber.places[variable] for variable in free}
        better = climber.improve(free, limit)
        if better is None and len(free) == 1:
            limit, better = min(most_cells, 2 * limit), climber.try_each(*free)
        elif better is not None:
            largest[along_path] = min(len(maximised), largest[along_path] + 1)
        if better is None:
            largest[along_path] = max(1, int(0.75 * len(free)))
            continue
        yield from climber.kept(source)
        if len(free) == len(maximised) and sure:
            yield Closed()
            return
        if better:
            unsettled |= problem.affected(held, climber.places)
        unsettled = set(maximised) if climber.possible > sure else unsettled - free
        if unsettled:
            continue
        if next_start is None:
            return
        if climber.possible and not crossed and climber.places != climber.best:
            crossed, before = True, climber.best_value
            sent = yield from climber.cross()
            yield from climber.kept(source)
            if sent is not None or climber.best_value > before:
                unsettled, limit = set(maximised), least
                continue
        limit, crossed = least, False
        again = again_rounds < SCHEDULE.perturbed_share * rounds and climber.best_value > -math.inf
        base = climber.best
        places, source = next_start(base if again else None)
        climber.go(places)
        yield from climber.kept(source)
        unsettled = problem.affected(base, climber.places) if again and climber.possible else set(maximised)


def neighbourhood(
    random: np.random.Generator,
    problem: ConditionalProblem,
    count: int,
    *,
    around: Sequence[int] = (),
    along_path: bool = False,
) -> set[int]:
    """A random connected set of maximised variables, starting `around` some; it may follow a path."""
    found, seen, edge = set[int](), set[int](), list[int]()
    maximised = set(problem.maximised)
    while len(found) < count:
        if not edge:  # the component is exhausted
            first = around if around and not seen else problem.maximised
            rest = [variable for variable in first if variable not in seen]
            edge = [rest[int(random.integers(len(rest)))]]
            seen.update(edge)
            found.update(edge)
            continue
        last = int(random.integers(min(len(edge), 2 if along_path else 4)))
        variable = edge.pop(-1 - last if along_path else last)
        others = [other for other in problem.near[variable] if other not in seen]
        random.shuffle(others)
        seen.update(others)
        edge += others
        found.update([other for other in others if other in maximised][: count - len(found)])
    return found


def perturbed(
    random: np.random.Generator, problem: ConditionalProblem, best: Mapping[int, int]
) -> dict[int, int]:
    """States of an incumbent, given by its places, without those of a random neighbourhood of log-uniform size."""
    count = 2 + int(max(2.0, len(problem.maximised) / 3) ** random.random())
    along_path = bool(random.random() < SCHEDULE.path_share)
    loose = neighbourhood(random, problem, min(len(problem.maximised), count), along_path=along_path)
    return {
        variable: state for variable, state in problem.possible.whole(best).items() if variable not in loose
    }
