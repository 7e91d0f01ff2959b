r"""Sums over a network's hidden variables given an answer, kept as messages of a tree so that changes stay cheap.

Hidden variables are eliminated in one order, whatever the answer is. The bucket of each has the factors in which it is
the first to go; its message, summed over it, goes to the bucket of the next of its variables. Where an answer changes
in a few variables, only the messages above their buckets change; and what the best setting of a few variables depends
on is the small part of the tree between their buckets, with messages into it from all sides.

Dechter (1999), "Bucket elimination: a unifying framework for reasoning"; Kask, Dechter, Larrosa, Dechter (2005),
"Unifying tree decompositions for reasoning in graphical models".
"""

from __future__ import annotations

import collections
import heapq
import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from ethogram.inference.elimination import elimination_order, product
from ethogram.inference.zero_propagation import Factor

__all__ = ["BucketTree"]


class BucketTree:
    """Log of the sum over hidden variables of a product of factors, for one setting of the others at a time.

    Parameters
    ----------
    factors : over hidden variables and others.
    sizes : number of states by variable.
    held : the others, which are not summed out.
    """

    def __init__(self, factors: Sequence[Factor], sizes: Mapping[int, int], held: Iterable[int]):
        self.factors, self.held = list(factors), frozenset(held)
        hidden = [[v for v in scope if v not in self.held] for scope, _ in self.factors]
        stage = sorted({variable for scope in hidden for variable in scope})
        order = elimination_order(hidden, dict(sizes), [stage])
        self.cells, self.work = order.cells, order.work
        self.rank = {variable: i for i, variable in enumerate(order.variables)}
        self.order = order.variables
        self.home = [min(scope, key=self.rank.__getitem__) if scope else None for scope in hidden]
        self.inside: dict[int, list[int]] = {variable: [] for variable in order.variables}
        self.touched: dict[int, list[int]] = {}
        for i, (scope, _) in enumerate(self.factors):
            bucket = self.home[i]
            if bucket is not None:
                self.inside[bucket].append(i)
            for variable in scope:
                if variable in self.held:
                    self.touched.setdefault(variable, []).append(i)
        self.parent, self.children = self._hang(hidden)
        self.root: dict[int, int] = {}
        for variable in reversed(self.order):
            above = self.parent[variable]
            self.root[variable] = variable if above is None else self.root[above]
        self.places: dict[int, int] = {}
        self.settled = False
        self.up: dict[int, Factor] = {}
        self.scale: dict[int, float] = {}
        self.down: dict[int, Factor] = {}
        self.alone: dict[int, float] = {}

    def _hang(self, hidden: list[list[int]]) -> tuple[dict[int, int | None], dict[int, list[int]]]:
        """The bucket that every message goes to, and those that it comes from."""
        after: dict[int, set[int]] = {variable: set() for variable in self.order}
        for i, scope in enumerate(hidden):
            bucket = self.home[i]
            if bucket is not None:
                after[bucket].update(scope)
        parent: dict[int, int | None] = {}
        children: dict[int, list[int]] = {variable: [] for variable in self.order}
        for variable in self.order:
            after[variable].discard(variable)
            parent[variable] = min(after[variable], key=self.rank.__getitem__, default=None)
            above = parent[variable]
            if above is not None:
                after[above] |= after[variable]
                children[above].append(variable)
        return parent, children

    def settle(self, places: Mapping[int, int]) -> float:
        """Log of the sum at these places of the others."""
        self.places, self.settled = dict(places), False
        self.down.clear()
        for variable in self.order:
            self._send(variable)
        for i, bucket in enumerate(self.home):
            if bucket is None:
                self._look(i)
        self.settled = True
        return self.log_sum()

    def move(self, changes: Mapping[int, int]) -> float:
        """Log of the sum once some of the others have moved; all of them where it has not been settled."""
        if not self.settled:
            return self.settle(self.places | dict(changes))
        self.down.clear()
        self.settled = False  # an error on the way leaves messages that are out of date
        dirty: set[int] = set()
        for variable, place in changes.items():
            if self.places[variable] != place:
                self.places[variable] = place
                for i in self.touched.get(variable, ()):
                    bucket = self.home[i]
                    if bucket is None:
                        self._look(i)
                    while bucket is not None and bucket not in dirty:
                        dirty.add(bucket)
                        bucket = self.parent[bucket]
        for variable in sorted(dirty, key=self.rank.__getitem__):
            self._send(variable)
        self.settled = True
        return self.log_sum()

    def log_sum(self) -> float:
        """Log of the sum where the others are."""
        return (
            math.fsum(self.scale.values()) + math.fsum(self.alone.values()) if self._possible() else -math.inf
        )

    def _possible(self) -> bool:
        return -math.inf not in self.scale.values() and -math.inf not in self.alone.values()

    def _look(self, i: int) -> None:
        scope, table = self.factors[i]
        entry = float(table[tuple(self.places[variable] for variable in scope)])
        self.alone[i] = math.log(entry) if entry > 0 else -math.inf

    def sliced(self, i: int, free: frozenset[int] = frozenset()) -> Factor:
        """A factor with the others, but for the free ones, at their places."""
        scope, table = self.factors[i]
        index = tuple(
            self.places[variable] if variable in self.held and variable not in free else slice(None)
            for variable in scope
        )
        return Factor(
            tuple(v for v, at in zip(scope, index, strict=True) if isinstance(at, slice)), table[index]
        )

    def _send(self, variable: int) -> None:
        """The message of a bucket, its largest entry one, and the log of what it was."""
        parts = [self.sliced(i) for i in self.inside[variable]] + [
            self.up[child] for child in self.children[variable]
        ]
        (scope, table), log_scale = product(parts)
        axis = scope.index(variable)
        self._keep(variable, Factor(scope[:axis] + scope[axis + 1 :], table.sum(axis)), log_scale)

    def _keep(self, variable: int, message: Factor, log_scale: float) -> None:
        largest = message.table.max()
        self.scale[variable] = log_scale + float(np.log(largest)) if largest > 0 else -math.inf
        self.up[variable] = Factor(message.scope, message.table / largest if largest > 0 else message.table)

    def _from_above(self, variable: int) -> Factor | None:
        """What reaches a bucket from its parent; None for a root."""
        way = []
        while variable is not None and variable not in self.down and self.parent[variable] is not None:
            way.append(variable)
            variable = self.parent[variable]  # type: ignore[assignment]
        for below in reversed(way):
            above = self.parent[below]
            assert above is not None
            parts = [self.sliced(i) for i in self.inside[above]]
            parts += [self.up[child] for child in self.children[above] if child != below]
            if above in self.down:
                parts.append(self.down[above])
            wanted = self.up[below].scope
            (scope, table), _ = product([*parts, Factor(wanted, np.ones(self.up[below].table.shape))])
            gone = tuple(axis for axis, other in enumerate(scope) if other not in wanted)
            message = table.sum(gone)
            largest = message.max()
            left = tuple(other for other in scope if other in wanted)
            self.down[below] = Factor(left, message / largest if largest > 0 else message)
        return self.down.get(way[0] if way else variable)

    def belief(self, variable: int) -> Factor:
        """Of a hidden variable, the sum over all others, but for a constant."""
        parts = [self.sliced(i) for i in self.inside[variable]] + [
            self.up[child] for child in self.children[variable]
        ]
        above = self._from_above(variable)
        (scope, table), _ = product(parts if above is None else [*parts, above])
        return Factor(
            (variable,), table.sum(tuple(axis for axis, other in enumerate(scope) if other != variable))
        )

    def between(self, free: Iterable[int]) -> list[Factor]:
        """Factors whose best setting of free variables is that of everything, all others held.

        Hidden variables in them are to be summed out.
        """
        loose = frozenset(free)
        places = {i for variable in loose for i in self.touched.get(variable, ())}
        found = [self.sliced(i, loose) for i in sorted(places) if self.home[i] is None]
        buckets = {bucket for i in places if (bucket := self.home[i]) is not None}
        kept = self._joined(buckets)
        for bucket in sorted(kept, key=self.rank.__getitem__):
            found += [self.sliced(i, loose) for i in self.inside[bucket]]
            found += [self.up[child] for child in self.children[bucket] if child not in kept]
            if self.parent[bucket] not in kept:
                above = self._from_above(bucket)
                if above is not None:
                    found.append(above)
        return found

    def _joined(self, buckets: set[int]) -> set[int]:
        """Buckets on the ways between some, tree by tree: ways up from the lowest end where all of a tree have met."""
        kept = set(buckets)
        heads = collections.Counter(self.root[bucket] for bucket in buckets)
        waiting = [(self.rank[bucket], bucket) for bucket in buckets]
        heapq.heapify(waiting)
        while waiting:
            _, bucket = heapq.heappop(waiting)
            above = self.parent[bucket]
            if heads[self.root[bucket]] == 1 or above is None:
                continue
            if above in kept:
                heads[self.root[bucket]] -= 1
            else:
                kept.add(above)
                heapq.heappush(waiting, (self.rank[above], above))
        return kept
