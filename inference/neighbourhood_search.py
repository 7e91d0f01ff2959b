r"""Climbing in a marginal MAP question by neighbourhoods that are searched exactly.

All MAP variables but a few, which lie close together, are held where they are. What the best setting of those few
depends on is then a small network, with messages into it from everywhere else, and its own marginal MAP question is
answered by elimination: summed variables first, then the few. That is the best of all settings of them at once, where
flipping one after the other would stop. Neighbourhoods are as large as tables allow, some of them round, others long
and winding. They begin where something near has moved since they were last looked at ("don't-look bits"), so that a
climb from a shaken answer looks only about what was shaken. Where a climb ends below the best answer, the places in
which the two differ fall into clusters, and the best takes over those that make it better.

Zeros are first taken for a tiny number, so that a start that is impossible has better and worse neighbours; where an
answer is possible, its probability is exact.

Park and Darwiche (2004), "Complexity results and approximation strategies for MAP explanations", climb by single flips;
Ahuja, Ergun, Orlin, Punnen (2002), "A survey of very large-scale neighborhood search techniques"; Bentley (1992), "Fast
algorithms for geometric traveling salesman problems", for the bits; Tinos, Whitley, Chicano (2015), "Partition
crossover for pseudo-Boolean optimization", for clusters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from ethogram.inference.bucket_tree import BucketTree
from ethogram.inference.elimination import (
    SpanError,
    carry_out,
    constrained_order,
    eliminate,
    independent_parts,
    plan_elimination,
)
from ethogram.inference.zero_propagation import Factor, Possible, propagate_zeros
from ethogram.models.bayes_net import MarginalMAP

__all__ = ["Landscape", "climb_neighbourhoods", "neighbourhood", "shaken"]

WALL, LOWEST = 1e-30, 1e-3
"""What zeros are taken for on the way to an answer that is possible, and at most where numbers do not reach as far."""
CELLS = 2**17
"""Of the largest table of a neighbourhood, or eight times that of an answer alone."""
WINDING = 0.4
"""Of neighbourhoods, those that follow one way instead of growing on all sides."""
STIRRED, REACHES = 2, (1, 2, 3)
"""Steps within which a move unsettles others, and within which differences make one cluster."""
SHAKEN = 0.5
"""Of the neighbourhoods, those on climbs from the best answer, shaken; the others are on climbs from other starts."""
SAME = 1e-9


class Landscape:
    """A question over what is possible, for looking at a few of its MAP variables at a time.

    Parameters
    ----------
    possible : what is left of the question's factors once zeros are propagated.
    maximised : variables that are asked for; places below are places among their possible states.
    """

    def __init__(self, query: MarginalMAP, possible: Possible, maximised: Sequence[int]):
        self.states = possible.states
        factors = [factor for factor in possible.factors if factor.scope]
        self.sizes = {variable: len(each) for variable, each in possible.states.items()}
        self.constant = query.network.log_constant + sum(
            math.log(float(table)) for scope, table in possible.factors if not scope
        )
        known = {variable for scope, _ in factors for variable in scope}
        self.asked = [variable for variable in maximised if variable in known]
        self.exact = BucketTree(factors, self.sizes, self.asked)
        self.zeros = any((table == 0).any() for _, table in factors)
        self.wall, self.factors = WALL, factors
        self.walled = self._walled()
        near: dict[int, set[int]] = {variable: set() for variable in known}
        for scope, _ in factors:
            for variable in scope:
                near[variable].update(scope)
        self.near = {variable: sorted(others - {variable}) for variable, others in near.items()}
        self._within: dict[tuple[int, int], frozenset[int]] = {}

    def _walled(self) -> BucketTree:
        walls = [Factor(scope, np.where(table > 0, table, self.wall)) for scope, table in self.factors]
        return BucketTree(walls, self.sizes, self.asked)

    def lower_walls(self) -> bool:
        """Take zeros for a number that is not as tiny; whether there is one."""
        if self.wall > LOWEST:
            return False
        self.wall = math.sqrt(self.wall)
        self.walled = self._walled()
        return True

    def within(self, variable: int, steps: int) -> frozenset[int]:
        """MAP variables so many factors away from one at most, itself among them."""
        if (variable, steps) not in self._within:
            seen, edge = {variable}, [variable]
            for _ in range(steps):
                edge = list({other for each in edge for other in self.near[each]} - seen)
                seen.update(edge)
            self._within[variable, steps] = frozenset(seen.intersection(self.asked))
        return self._within[variable, steps]

    def stirred(self, before: Mapping[int, int], after: Mapping[int, int]) -> set[int]:
        """MAP variables near those whose places differ."""
        moved = [variable for variable, place in before.items() if after[variable] != place]
        return set().union(*(self.within(variable, STIRRED) for variable in moved))

    def clusters(self, variables: Iterable[int], steps: int) -> list[list[int]]:
        """Those of the variables that hang together, by so many steps at most."""
        left, found = list(variables), []
        while left:
            cluster, left = [left[0]], left[1:]
            for variable in cluster:  # which grows on the way
                close = self.within(variable, steps)
                cluster += [other for other in left if other in close]
                left = [other for other in left if other not in close]
            found.append(cluster)
        return found

    def places(self, states: Mapping[int, int]) -> dict[int, int]:
        """Places of given states; the first possible one where a state is not."""
        found = {}
        for variable in self.asked:
            at = np.flatnonzero(self.states[variable] == states.get(variable, -1))
            found[variable] = int(at[0]) if len(at) else 0
        return found

    def whole(self, places: Mapping[int, int]) -> dict[int, int]:
        """States by variable, of variables with one possible state too."""
        told = {variable: int(each[0]) for variable, each in self.states.items() if len(each) == 1}
        return told | {variable: int(self.states[variable][place]) for variable, place in places.items()}

    def value(self, places: Mapping[int, int]) -> float:
        """Log probability of an answer, at which the exact tree is from now on."""
        return self.constant + self.exact.move(places)


class _Climber:
    """Where a climb is, by the exact tree where that is possible, and else by the one with walls."""

    def __init__(self, landscape: Landscape, places: Mapping[int, int]):
        self.landscape = landscape
        self.go(places)

    def go(self, places: Mapping[int, int]) -> None:
        self.places = dict(places)
        self.tree, self.value = self.landscape.exact, self.landscape.value(places)
        self.possible = self.value > -math.inf
        while not self.possible:
            self.tree = self.landscape.walled
            try:
                self.value = self.landscape.constant + self.tree.move(places)
                break
            except SpanError:
                if not self.landscape.lower_walls():
                    raise

    def improve(self, free: set[int], most_cells: int) -> bool | None:
        """Move free variables to where they are best; whether that is better; None where tables are too large."""
        landscape = self.landscape
        live = [factor for factor in self.tree.between(free) if factor.scope]
        if self.possible and landscape.zeros:  # what is held leaves few states of what is free
            left = propagate_zeros(live)
            plan = plan_elimination(left, free, most_cells)
            found = None if plan.cells > most_cells else _of(free, carry_out(left, plan, free)[0])
        else:
            found = self._eliminated(live, free, most_cells)
        if found is None:
            return None
        moved = {variable: place for variable, place in found.items() if self.places[variable] != place}
        if not moved:
            return False
        before = self.value
        self.places |= moved
        self.value = landscape.constant + self.tree.move(moved)
        if not self.possible:
            soft, self.value = self.value, landscape.value(self.places)
            self.possible = self.value > -math.inf
            if self.possible:
                self.tree = landscape.exact
                return True
            self.value = soft
        return self.value > before + SAME

    def _eliminated(self, live: list[Factor], free: set[int], most_cells: int) -> dict[int, int] | None:
        parts = [
            part for part in independent_parts(live) if any(v in free for scope, _ in part for v in scope)
        ]
        orders = [constrained_order(part, self.landscape.sizes, free, most_cells) for part in parts]
        if max((order.cells for order in orders), default=1) > most_cells:
            return None
        found: dict[int, int] = {}
        for part, order in zip(parts, orders, strict=True):
            found |= eliminate(part, order.variables, free)[0]
        return found

    def cross(self, best: Mapping[int, int], stop: Callable[[], bool]) -> bool:
        """Go to the best answer, which is possible, taking over clusters that make it better; whether any does."""
        other, tried = self.places, set()
        self.go(best)
        start = self.value
        for steps in REACHES:
            differing = [v for v, place in self.places.items() if other[v] != place]
            for cluster in self.landscape.clusters(differing, steps):
                if stop() or frozenset(cluster) in tried:
                    continue
                tried.add(frozenset(cluster))
                theirs, own = ({v: places[v] for v in cluster} for places in (other, self.places))
                value = self.landscape.constant + self.tree.move(theirs)
                if value > self.value + SAME:
                    self.places, self.value = self.places | theirs, value
                else:
                    self.tree.move(own)
        return self.value > start + SAME

    def try_each(self, variable: int) -> bool:
        """Move one variable to the best of its states, each of which is tried; whether that is better."""
        landscape, own, before = self.landscape, self.places[variable], self.value
        values = [
            landscape.constant + self.tree.move({variable: place})
            for place in range(landscape.sizes[variable])
        ]
        best = int(np.argmax(values))
        best = own if values[best] <= values[own] + SAME else best
        self.places[variable], self.value = best, values[best]
        self.tree.move({variable: best})
        if not self.possible and best != own:
            self.go(self.places)
            return self.possible or self.value > before + SAME
        return self.value > before + SAME


def _of(free: set[int], places: dict[int, int]) -> dict[int, int]:
    return {variable: place for variable, place in places.items() if variable in free}


def climb_neighbourhoods(
    random: np.random.Generator, landscape: Landscape, places: Mapping[int, int], *,
    report: Callable[[dict[int, int], float], None], stop: Callable[[], bool], most_cells: int,
    max_rounds: int | None = None, fresh: Callable[[dict[int, int] | None], Mapping[int, int]] | None = None,
) -> tuple[dict[int, int], float, bool]:  # fmt: skip
    """The best answer that is met before it is told to stop, its log probability, and whether nothing can be better.

    The log probability is -inf where no answer was possible.

    Parameters
    ----------
    places : of MAP variables, to start from.
    report : told of every answer that is better than all before.
    stop : asked between neighbourhoods.
    most_cells : of one table.
    max_rounds : neighbourhoods at most.
    fresh : other starts, given the best answer, to be shaken, or None. Without it a search ends with its first climb.
    """
    asked, climber = landscape.asked, _Climber(landscape, places)
    best, best_value = dict(climber.places), -math.inf

    def keep() -> bool:
        nonlocal best, best_value
        if not climber.possible or climber.value <= best_value + SAME:
            return False
        best, best_value = dict(climber.places), climber.value
        report(best, best_value)
        return True

    keep()
    if not asked:
        return best, best_value, True
    least = limit = min(most_cells, max(CELLS, 8 * landscape.exact.cells))
    largest = dict.fromkeys((False, True), min(len(asked), 16))
    unsettled, crossed, again, rounds, again_rounds = set(asked), False, False, 0, 0
    while not stop() and (max_rounds is None or rounds < max_rounds):
        rounds, again_rounds = rounds + 1, again_rounds + again
        sure, winding = climber.possible, bool(random.random() < WINDING)
        around = [variable for variable in asked if variable in unsettled]
        free = neighbourhood(random, landscape, largest[winding], around=around, winding=winding)
        held = {variable: climber.places[variable] for variable in free}
        try:
            better = climber.improve(free, limit)
            if better is None and len(free) == 1:
                limit, better = min(most_cells, 2 * limit), climber.try_each(*free)
            elif better is not None:
                largest[winding] = min(len(asked), largest[winding] + 1)
        except SpanError:
            if climber.possible or not landscape.lower_walls():
                raise
            climber.go(climber.places)
            continue
        if better is None:
            largest[winding] = max(1, int(0.75 * len(free)))
            continue
        keep()
        if len(free) == len(asked) and sure:
            return best, best_value, True
        if better:
            unsettled |= landscape.stirred(held, climber.places)
        unsettled = set(asked) if climber.possible > sure else unsettled - free
        if unsettled:
            continue
        if fresh is None:
            break
        if climber.possible and not crossed and climber.places != best:
            crossed = True
            if climber.cross(best, stop):
                keep()
                unsettled, limit = set(asked), least
                continue
            if stop():
                break
        limit, crossed = least, False
        again = again_rounds < SHAKEN * rounds and best_value > -math.inf
        base = best
        climber.go(fresh(base if again else None))
        keep()
        unsettled = landscape.stirred(base, climber.places) if again and climber.possible else set(asked)
    return best, best_value, False


def neighbourhood(
    random: np.random.Generator, landscape: Landscape, count: int, *, around: Sequence[int] = (),
    winding: bool = False,
) -> set[int]:  # fmt: skip
    """So many MAP variables around one of them, some steps left out.

    Parameters
    ----------
    around : which the first may be; any of them where there are none.
    winding : follow one way instead of growing on all sides.
    """
    found: set[int] = set()
    seen: set[int] = set()
    edge: list[int] = []
    maximised = set(landscape.asked)
    while len(found) < count:
        if not edge:  # nothing is left that hangs together with these
            first = around if around and not seen else landscape.asked
            rest = [variable for variable in first if variable not in seen]
            edge = [rest[int(random.integers(len(rest)))]]
            seen.update(edge)
            found.update(edge)
            continue
        last = int(random.integers(min(len(edge), 2 if winding else 4)))
        variable = edge.pop(-1 - last if winding else last)
        others = [other for other in landscape.near[variable] if other not in seen]
        random.shuffle(others)
        for other in others:
            seen.add(other)
            edge.append(other)
            if other in maximised and len(found) < count:
                found.add(other)
    return found


def shaken(random: np.random.Generator, landscape: Landscape, best: Mapping[int, int]) -> dict[int, int]:
    """States of an answer, those of one neighbourhood left out, small ones as often as large ones.

    Parameters
    ----------
    best : places of MAP variables.
    """
    count = 2 + int(max(2.0, len(landscape.asked) / 3) ** random.random())
    winding = bool(random.random() < WINDING)
    loose = neighbourhood(random, landscape, min(len(landscape.asked), count), winding=winding)
    return {variable: state for variable, state in landscape.whole(best).items() if variable not in loose}
