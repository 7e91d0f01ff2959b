"""Assignments without a zero entry, by search with learned conflicts; or a proof that there is none.

Events are that a variable lacks a state, or has one; the trail has them in the order in which they happened, each with
its reason: a choice, a table that has only zeros left for a state, or a nogood. A nogood is a set of events that never
happen together. From every dead end one is learned: going back on the trail, events are replaced by their reasons until
one of the current level is left (the first unique implication point). The search then jumps back to the level at which
the nogood rules out that event. Nogoods follow from zeros alone, so that they serve all later searches.

Marques-Silva, Sakallah (1999), "GRASP: a search algorithm for propositional satisfiability"; Moskewicz, Madigan, Zhao,
Zhang, Malik (2001), "Chaff: engineering an efficient SAT solver", for two watched events a nogood, and activities;
Katsirelos, Bacchus (2005), "Generalized nogoods in CSPs", for variables of many states; Luby, Sinclair, Zuckerman
(1993), "Optimal speedup of Las Vegas algorithms", for restarts.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from ethogram.inference.networks.parity_checks import Parities
from ethogram.inference.networks.zero_propagation import Factor, bit_places, explanation, supported

__all__ = ["ConflictSearch", "luby"]

RUN = 64
"""Conflicts before the first restart, which the sequence of Luby multiplies."""
SHORT, MOST = 8, 20_000
"""Events of a nogood that is kept for good, and longer nogoods that are kept at most."""
DECAY, LARGEST = 0.95, 1e100
"""Decay of activities with every conflict, and the value at which they are rescaled."""
NEXT = 8
"""Unassigned variables, next in the given order, of which the most active one is chosen."""
LOOK = 32
"""Choices after which `stop` is called."""


class _Nogood(list[int]):
    """Events that never happen together; the first two are watched."""

    used = 0


class ConflictSearch:
    """Search of one set of factors, which keeps what it learns from call to call.

    Parameters
    ----------
    factors : nonnegative tables; only where they are zero matters.

    Attributes
    ----------
    impossible : whether every assignment has a zero entry; proved.
    conflicts : dead ends so far.
    linear : whether draws begin with a solution of the parity checks, because a search without them was given up.
    alive : by number of a variable, the states that are left, as bits of an integer.
    number : of every variable.
    """

    def __init__(self, factors: Sequence[Factor]):
        self.number: dict[int, int] = {}
        self.sizes: list[int] = []
        self._tables: list[tuple[tuple[int, ...], tuple[int, ...], bytes]] = []
        self._touching: list[list[int]] = []
        self._factors, self.linear = factors, False
        self.impossible, self.conflicts = False, 0
        for scope, table in factors:
            for variable, size in zip(scope, table.shape, strict=True):
                if variable not in self.number:
                    self.number[variable] = len(self.sizes)
                    self.sizes.append(size)
                    self._touching.append([])
            positive = (table > 0).tobytes()
            if 0 in positive:
                self.impossible |= 1 not in positive
                numbers = tuple([self.number[variable] for variable in scope])
                for i in numbers:
                    self._touching[i].append(len(self._tables))
                self._tables.append((numbers, table.shape, positive))
        self.alive = [(1 << size) - 1 for size in self.sizes]
        self._lacks: list[int] = []  # the event that a variable lacks its first state; others follow
        self._has: list[int] = []  # the same of having it; of two states, lacking one is having the other
        self._opposite: list[int] = []
        self._variable: list[int] = []
        self._bit: list[int] = []  # of the state that is lacking; 0 of an event of having one
        for i, size in enumerate(self.sizes):
            first, two = len(self._opposite), size == 2
            self._lacks.append(first)
            self._has.append(first + size)
            lacks, has = list(range(first, first + size)), list(range(first + size, first + 2 * size))
            self._opposite += lacks[::-1] if two else has + lacks
            self._variable += [i] * (size if two else 2 * size)
            self._bit += [1 << state for state in range(size)] + [0] * (0 if two else size)
        count = len(self._opposite)
        self._level = [-1] * count  # of events that have happened
        self._reason: list[Any] = [None] * count
        self._watching: list[list[_Nogood]] = [[] for _ in range(count)]
        self._trail: list[int] = []
        self._seen = 0  # events of the trail that have been propagated
        self._starts: list[tuple[int, int]] = []  # by level: length of the trail, and steps taken, before it
        self._waiting = list(range(len(self._tables)))
        self._queued = [True] * len(self._tables)
        self._activity, self._bump = [0.0] * len(self.sizes), 1.0
        self._long: list[_Nogood] = []
        self.impossible |= self._propagate() is not None

    @functools.cached_property
    def parities(self) -> Parities:
        """The parity checks of the tables, which show at once if they contradict each other."""
        found = Parities(self._factors)
        self.impossible |= found.impossible
        return found

    def solve(
        self,
        order: Sequence[int],
        pick: Callable[[int, int], int],
        wanted: Sequence[tuple[int, int]] = (),
        stop: Callable[[], bool] = lambda: False,
        most_conflicts: int | float = math.inf,
    ) -> dict[int, int] | None:
        """States of all variables; None where there are none (`impossible`), or the search was stopped.

        Parameters
        ----------
        order : all variables; those that come next in it are chosen, the most active first.
        pick : chooses a state of a variable, given those left as bits; it may read `alive`.
        wanted : pairs of variable and state that are assumed first, in this order, unless they have become impossible.
        stop : called now and then, to end the search.
        most_conflicts : of this call.
        """
        self._jump(0)
        order = [self.number[variable] for variable in order]
        names = list(self.number)
        assumed = [(self.number[variable], state) for variable, state in wanted if variable in self.number]
        restarts, since, done, choices = 0, 0, 0, 0
        kept: list[int] | None = None  # states before the last restart, as bits
        while not self.impossible:
            conflict = self._propagate()
            if conflict is not None:
                self.conflicts += 1
                since, done = since + 1, done + 1
                if not self._starts:
                    self.impossible = True
                else:
                    self._learn(conflict)
                if done >= most_conflicts or stop():
                    return None
                if since >= RUN * luby(restarts + 1):
                    restarts, since = restarts + 1, 0
                    kept = list(self.alive)
                    self._jump(0)
                    self._forget()
                continue
            step = self._next(assumed, order)
            if step < len(assumed):
                chosen, state = assumed[step]
            elif step < len(assumed) + len(order):
                chosen = self._most_active(order, step - len(assumed))
                left = 0 if kept is None else self.alive[chosen] & kept[chosen]
                state = left.bit_length() - 1
                if not left or left & (left - 1):
                    state = pick(names[chosen], self.alive[chosen])
            else:
                return {variable: self.alive[i].bit_length() - 1 for variable, i in self.number.items()}
            choices += 1
            if choices % LOOK == 0 and stop():
                return None
            self._starts.append((len(self._trail), step))
            two = self.sizes[chosen] == 2
            self._add(self._lacks[chosen] + 1 - state if two else self._has[chosen] + state, None)
        return None

    def _next(self, assumed: Sequence[tuple[int, int]], order: Sequence[int]) -> int:
        """The first of the assumptions that is still open, or else, counted on, of the variables."""
        step = self._starts[-1][1] if self._starts else 0
        for i, state in assumed[step:]:
            if self.alive[i] >> state & 1 and not self._single(i):
                return step
            step += 1
        for i in order[step - len(assumed) :]:
            if not self._single(i):
                return step
            step += 1
        return step

    def _single(self, i: int) -> bool:
        return not self.alive[i] & (self.alive[i] - 1)

    def _most_active(self, order: Sequence[int], step: int) -> int:
        """The most active of the next few variables that have several states left; the first of them is at `step`."""
        best, seen = order[step], 0
        for i in order[step:]:
            if not self._single(i):
                seen += 1
                if self._activity[i] > self._activity[best]:
                    best = i
                if seen == NEXT:
                    break
        return best

    def _add(self, event: int, reason: Any) -> Sequence[int] | None:
        """Put an event on the trail; events that have happened and cannot together, where there are any."""
        if self._level[event] >= 0:
            return None
        self._level[event], self._reason[event] = len(self._starts), reason
        self._trail.append(event)
        bit, i = self._bit[event], self._variable[event]
        if bit:
            self.alive[i] &= ~bit
            return None if self.alive[i] else self._all_states(i)
        return [event, self._opposite[event]] if self._level[self._opposite[event]] >= 0 else None

    def _all_states(self, i: int) -> range:
        """The events that a variable lacks each of its states, which never happen together."""
        return range(self._lacks[i], self._lacks[i] + self.sizes[i])

    def _propagate(self) -> Sequence[int] | None:
        """Add all that follows from the trail; events that have happened and cannot together, where there are any."""
        while True:
            while self._seen < len(self._trail):
                event = self._trail[self._seen]
                self._seen += 1
                conflict = self._by_nogoods(event) or self._by_states(event)
                if conflict is not None:
                    return conflict
                for place in self._touching[self._variable[event]]:
                    if not self._queued[place]:
                        self._queued[place] = True
                        self._waiting.append(place)
            if not self._waiting:
                return None
            place = self._waiting.pop()
            self._queued[place] = False
            conflict = self._by_table(place)
            if conflict is not None:
                return conflict

    def _by_nogoods(self, event: int) -> Sequence[int] | None:
        watching, level, opposite = self._watching[event], self._level, self._opposite
        if not watching:
            return None
        still: list[_Nogood] = []
        self._watching[event] = still
        for at, nogood in enumerate(watching):
            if nogood[0] == event:
                nogood[0], nogood[1] = nogood[1], nogood[0]
            other = nogood[0]
            if level[opposite[other]] >= 0:
                still.append(nogood)
                continue
            for i in range(2, len(nogood)):
                if level[nogood[i]] < 0:
                    nogood[1], nogood[i] = nogood[i], nogood[1]
                    self._watching[nogood[1]].append(nogood)
                    break
            else:
                still.append(nogood)
                nogood.used = self.conflicts
                conflict = nogood if level[other] >= 0 else self._add(opposite[other], nogood)
                if conflict is not None:
                    still += watching[at + 1 :]
                    return conflict
        return None

    def _by_states(self, event: int) -> Sequence[int] | None:
        """A variable of more than two states has the one that is left, and lacks all others than the one it has."""
        i = self._variable[event]
        if self.sizes[i] == 2:
            return None
        if self._bit[event]:
            if self._single(i):
                return self._add(self._has[i] + self.alive[i].bit_length() - 1, self._all_states(i))
            return None
        for state in bit_places(self.alive[i] & ~(1 << event - self._has[i])):
            conflict = self._add(self._lacks[i] + state, (event, self._has[i] + state))
            if conflict is not None:
                return conflict
        return None

    def _by_table(self, place: int) -> Sequence[int] | None:
        scope, shape, positive = self._tables[place]
        before = tuple([self.alive[i] for i in scope])
        after = supported(shape, positive, before)
        if after == before:
            return None
        if not all(after):
            return self._events(scope, explanation(shape, positive, before, None))
        for axis, i in enumerate(scope):
            for state in bit_places(before[axis] & ~after[axis]):
                self._add(self._lacks[i] + state, _ByTable(place, before, axis, state))
        return None

    def _events(self, scope: Sequence[int], lacking: Sequence[tuple[int, int]]) -> list[int]:
        return [self._lacks[scope[axis]] + state for axis, state in lacking]

    def _causes(self, event: int) -> list[int]:
        """Events from which one followed."""
        reason, opposite = self._reason[event], self._opposite[event]
        if isinstance(reason, _ByTable):
            scope, shape, positive = self._tables[reason.place]
            lacking = explanation(shape, positive, reason.before, (reason.axis, reason.state))
            return self._events(scope, lacking)
        return [other for other in reason if other != opposite]

    def _learn(self, conflict: Sequence[int]) -> None:
        """Add a nogood that explains a conflict, jump back to where it rules out an event, and rule it out."""
        level, current = self._level, len(self._starts)
        known, below, at, here = set[int](), list[int](), len(self._trail), 0
        events = conflict
        while True:
            for event in events:
                if level[event] > 0 and event not in known:
                    known.add(event)
                    self._activity[self._variable[event]] += self._bump
                    if level[event] == current:
                        here += 1
                    else:
                        below.append(event)
            at -= 1
            while self._trail[at] not in known:
                at -= 1
            last, here = self._trail[at], here - 1
            if not here:
                break
            events = self._causes(last)
        below = [event for event in below if not self._follows(event, known)]
        below.sort(key=level.__getitem__, reverse=True)
        nogood = _Nogood([last, *below])
        nogood.used = self.conflicts
        self._jump(level[below[0]] if below else 0)
        if below:
            for event in nogood[:2]:
                self._watching[event].append(nogood)
        if len(nogood) > SHORT:
            self._long.append(nogood)
        self._add(self._opposite[last], nogood)
        self._bump /= DECAY
        if self._bump > LARGEST:
            self._activity = [each / LARGEST for each in self._activity]
            self._bump /= LARGEST

    def _follows(self, event: int, known: set[int]) -> bool:
        """Whether an event follows from known ones, and need not be in their nogood."""
        if self._reason[event] is None:
            return False
        return all(other in known or not self._level[other] for other in self._causes(event))

    def _jump(self, level: int) -> None:
        """Undo all events above a level."""
        if len(self._starts) > level:
            length, _ = self._starts[level]
            for event in self._trail[length:]:
                self._level[event] = -1
                self.alive[self._variable[event]] |= self._bit[event]
            del self._trail[length:], self._starts[level:]
            self._seen = length
        for place in self._waiting:
            self._queued[place] = False
        self._waiting.clear()

    def _forget(self) -> None:
        """Drop the half of the long nogoods that has not been used for longest, where there are too many."""
        if len(self._long) > MOST:
            self._long.sort(key=lambda nogood: nogood.used)
            half = len(self._long) // 2
            for nogood in self._long[:half]:
                nogood.clear()
            del self._long[:half]
            self._watching = [[nogood for nogood in each if nogood] for each in self._watching]


class _ByTable:
    """The reason of a state that a table rules out: states before, and the axis and state."""

    __slots__ = ("axis", "before", "place", "state")

    def __init__(self, place: int, before: tuple[int, ...], axis: int, state: int):
        self.place, self.before, self.axis, self.state = place, before, axis, state


def luby(number: int) -> int:
    """A term of the sequence 1, 1, 2, 1, 1, 2, 4, ... of Luby, Sinclair and Zuckerman, from number 1 on."""
    while number & (number + 1):
        number -= (1 << number.bit_length() - 1) - 1
    return (number + 1) // 2
