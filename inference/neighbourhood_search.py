r"""Climbing in a marginal MAP question by neighbourhoods that are searched exactly.

All MAP variables but a few, which lie close together, are held where they are. What hangs together with those few is
then a small network, whose own question is answered by elimination: summed variables first, then the few. That is the
best of all settings of them at once, where flipping one after the other would stop. Neighbourhoods grow as long as
their tables stay small.

Zeros are first taken for a tiny number, so that a start that is impossible has better and worse neighbours; where no
zero is left in the answer, its probability is exact.

Park and Darwiche (2004), "Complexity results and approximation strategies for MAP explanations", climb by single flips;
Ahuja, Ergun, Orlin, Punnen (2002), "A survey of very large-scale neighborhood search techniques".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from ethogram.inference.elimination import constrained_order, eliminate, independent_parts
from ethogram.inference.zero_propagation import Factor, Possible
from ethogram.models.bayes_net import MarginalMAP

__all__ = ["Landscape", "climb_neighbourhoods"]

WALL = 1e-30
"""What zeros are taken for on the way to an answer that is possible."""
CELLS = 2**15
"""Of the largest table of a neighbourhood, or eight times that of an answer alone."""


class Landscape:
    """A question as factors over what is possible, for looking at a few of its MAP variables at a time.

    Parameters
    ----------
    possible : what is left of the question's factors once zeros are propagated.
    maximised : variables that are asked for; places below are places among their possible states.
    """

    def __init__(self, query: MarginalMAP, possible: Possible, maximised: Sequence[int]):
        self.query, self.states = query, possible.states
        self.factors = [factor for factor in possible.factors if factor.scope]
        self.soft = [Factor(scope, np.where(table > 0, table, WALL)) for scope, table in self.factors]
        self.sizes = {variable: len(each) for variable, each in possible.states.items()}
        self.constant = query.network.log_constant + sum(
            math.log(float(table)) for scope, table in possible.factors if not scope
        )
        self.home: dict[int, list[int]] = {}
        for i, (scope, _) in enumerate(self.factors):
            for variable in scope:
                self.home.setdefault(variable, []).append(i)
        self.asked = [variable for variable in maximised if variable in self.home]
        self.maximised = set(self.asked)
        self.near = {
            variable: sorted({other for i in places for other in self.factors[i].scope} - {variable})
            for variable, places in self.home.items()
        }

    def places(self, states: dict[int, int]) -> dict[int, int]:
        """Places of given states; the first possible one where a state is not."""
        found = {}
        for variable in self.asked:
            at = np.flatnonzero(self.states[variable] == states.get(variable, -1))
            found[variable] = int(at[0]) if len(at) else 0
        return found

    def whole(self, places: dict[int, int]) -> dict[int, int]:
        """States by variable, of variables with one possible state too."""
        told = {variable: int(each[0]) for variable, each in self.states.items() if len(each) == 1}
        return told | {variable: int(self.states[variable][place]) for variable, place in places.items()}

    def around(self, free: Iterable[int]) -> list[int]:
        """Factors that the best setting of free variables depends on, all other MAP variables held."""
        waiting, seen, found = list(free), set(free), dict.fromkeys(())
        while waiting:
            for i in self.home[waiting.pop()]:
                if i not in found:
                    found[i] = None
                    for other in self.factors[i].scope:
                        if other not in seen and other not in self.maximised:
                            seen.add(other)
                            waiting.append(other)
        return list(found)

    def sliced(
        self, places: dict[int, int], free: set[int], around: Iterable[int], soft: bool
    ) -> list[Factor]:
        """These factors with all MAP variables but the free ones at their places."""
        factors, chosen = self.soft if soft else self.factors, []
        for i in around:
            scope, table = factors[i]
            held = [variable in self.maximised and variable not in free for variable in scope]
            if any(held):
                index = tuple(places[v] if fixed else slice(None) for v, fixed in zip(scope, held, strict=True))
                scope = tuple(v for v, fixed in zip(scope, held, strict=True) if not fixed)
                table = table[index]
            chosen.append(Factor(scope, table))
        return chosen

    def best(
        self, places: dict[int, int], free: set[int], soft: bool, most_cells: int, around: Iterable[int] | None = None
    ) -> tuple[dict[int, int], float] | None:
        """The best places of the free variables and the log of what depends on them; None where tables are too large."""
        factors = self.sliced(places, free, self.around(free) if around is None else around, soft)
        total, live, found = 0.0, [], {}
        for factor in factors:
            if factor.scope:
                live.append(factor)
            elif factor.table > 0:
                total += math.log(float(factor.table))
            else:
                return dict.fromkeys(free, 0) | {v: places[v] for v in free}, -math.inf
        parts = independent_parts(live)
        orders = [constrained_order(part, self.sizes, free) for part in parts]
        if max((order.cells for order in orders), default=1) > most_cells:
            return None
        for part, order in zip(parts, orders, strict=True):
            chosen, value = eliminate(part, order.variables, free)
            if value == -math.inf:
                return {v: places[v] for v in free}, -math.inf
            found |= chosen
            total += value
        return {variable: found.get(variable, places[variable]) for variable in free}, total

    def value(self, places: dict[int, int], soft: bool, most_cells: int) -> float | None:
        """Log probability of an answer; None where tables are too large."""
        found = self.best(places, set(), soft, most_cells, range(len(self.factors)))
        return None if found is None else self.constant + found[1]

    def cells(self, places: dict[int, int]) -> int:
        """Of the largest table that the probability of an answer takes."""
        parts = independent_parts([f for f in self.sliced(places, set(), range(len(self.factors)), False) if f.scope])
        return max((constrained_order(part, self.sizes, ()).cells for part in parts), default=1)


def climb_neighbourhoods(
    random: np.random.Generator, landscape: Landscape, places: dict[int, int], *,
    report: Callable[[dict[int, int], float], None], stop: Callable[[], bool], most_cells: int,
    max_rounds: int | None = None, kick: bool = True,
) -> tuple[dict[int, int], float]:  # fmt: skip
    """The best answer that is met before it is told to stop, and its log probability, -inf where none is possible.

    Parameters
    ----------
    places : of MAP variables, to start from.
    report : told of every answer that is better than all before.
    stop : asked between neighbourhoods.
    most_cells : of one table.
    max_rounds : neighbourhoods at most.
    kick : whether to set a neighbourhood at random where nothing has been better for long, and go on; or else end.
    """
    asked = landscape.asked
    places = dict(places)
    if not asked:
        value = landscape.value(places, False, most_cells)
        report(places, -math.inf if value is None else value)
        return places, -math.inf if value is None else value
    limit = min(most_cells, max(CELLS, 8 * landscape.cells(places)))
    value = landscape.value(places, False, most_cells)
    if value is None:
        raise ValueError("one answer's tables have more than most_cells cells")
    soft = value == -math.inf
    if soft:
        value = landscape.value(places, True, most_cells)
    assert value is not None
    best, best_value = dict(places), -math.inf if soft else value
    if not soft:
        report(best, value)
    largest, quiet, rounds = min(len(asked), 16), 0, 0
    while not stop() and (max_rounds is None or rounds < max_rounds):
        rounds += 1
        free = _neighbourhood(random, landscape, largest)
        around = landscape.around(free)
        found = landscape.best(places, free, soft, limit, around)
        if found is None:
            largest = max(1, int(0.75 * largest))
            if largest == 1 and len(free) == 1:
                limit = min(most_cells, 2 * limit)
                if limit == most_cells:
                    quiet += 1
                    if quiet > 4 * len(asked):
                        break
            continue
        largest = min(len(asked), largest + 1)
        chosen, after = found
        changed = any(places[variable] != place for variable, place in chosen.items())
        gain = 0.0
        if changed:
            before = landscape.best(places, set(), soft, most_cells, around)
            assert before is not None
            gain = after - before[1]
            places |= chosen
            value += gain
        quiet = 0 if gain > 1e-9 else quiet + 1
        if soft and gain > 0:
            exact = landscape.value(places, False, most_cells)
            assert exact is not None
            if exact > -math.inf:
                soft, value = False, exact
        if not soft and value > best_value + 1e-9:
            best, best_value = dict(places), value
            report(best, value)
        if len(free) == len(asked) and not soft:
            break  # all of them at once: nothing is better
        if quiet > 3 * math.ceil(len(asked) / max(len(free), 1)) + 5:
            if not kick:
                break
            places, soft, value = _kicked(random, landscape, best if best_value > -math.inf else places, most_cells)
            quiet = 0
    return best, best_value


def _kicked(
    random: np.random.Generator, landscape: Landscape, places: dict[int, int], most_cells: int
) -> tuple[dict[int, int], bool, float]:
    """An answer with one neighbourhood at random, whether it is impossible, and its log probability."""
    places = dict(places)
    for variable in _neighbourhood(random, landscape, 1 + int(random.integers(max(2, len(landscape.asked) // 4)))):
        places[variable] = int(random.integers(landscape.sizes[variable]))
    value = landscape.value(places, False, most_cells)
    soft = value == -math.inf
    if soft:
        value = landscape.value(places, True, most_cells)
    assert value is not None
    return places, soft, value


def _neighbourhood(random: np.random.Generator, landscape: Landscape, count: int) -> set[int]:
    """MAP variables around one of them, some steps left out."""
    first = landscape.asked[random.integers(len(landscape.asked))]
    found, seen, edge = {first}, {first}, [first]
    while edge and len(found) < count:
        spot = int(random.integers(min(len(edge), 4)))
        variable = edge.pop(spot)
        others = [other for other in landscape.near[variable] if other not in seen]
        random.shuffle(others)
        for other in others:
            seen.add(other)
            edge.append(other)
            if other in landscape.maximised and len(found) < count:
                found.add(other)
    return found
