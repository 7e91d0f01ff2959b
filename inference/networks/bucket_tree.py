r"""Bucket tree: sums over hidden variables given an assignment, as messages that are cheap to update.

Hidden variables have one elimination order whatever the assignment. The bucket of a variable has the factors in which
it is eliminated first; its message goes to the bucket of the next variable in its scope. Where a few variables of the
assignment change, only messages above their buckets change. The conditional problem of a few freed variables is the
part of the tree between their buckets, with the messages into it.

Dechter (1999), "Bucket elimination: a unifying framework for reasoning"; Kask, Dechter, Larrosa, Dechter (2005),
"Unifying tree decompositions for reasoning in graphical models" (bucket-tree elimination).
"""

from __future__ import annotations

import collections
import heapq
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from ethogram.inference.networks.elimination import elimination_order
from ethogram.inference.networks.products import reduced
from ethogram.inference.networks.zero_propagation import Factor

__all__ = ["BucketTree"]


class BucketTree:
    """Log sum over hidden variables of a product of factors, for one assignment of the held variables at a time.

    Parameters
    ----------
    factors, sizes : and the number of states by variable.
    held : variables that have a state.
    order : elimination order of the others, which may have variables that are not there; min-fill where None.
    """

    def __init__(
        self,
        factors: Sequence[Factor],
        sizes: Mapping[int, int],
        held: Iterable[int],
        order: Sequence[int] | None = None,
    ):
        self.factors, self.held = list(factors), frozenset(held)
        hidden = [[v for v in scope if v not in self.held] for scope, _ in self.factors]
        there = {variable for scope in hidden for variable in scope}
        if order is None:
            order = elimination_order(hidden, dict(sizes), [sorted(there)]).variables
        self.order = [variable for variable in order if variable in there]
        self.rank = {variable: i for i, variable in enumerate(self.order)}
        self.home = [min(scope, key=self.rank.__getitem__) if scope else None for scope in hidden]
        self.inside: dict[int, list[int]] = {variable: [] for variable in self.order}
        self.touched: dict[int, list[int]] = {}
        after: dict[int, set[int]] = {variable: set() for variable in self.order}  # scopes of messages
        for i, (scope, _) in enumerate(self.factors):
            bucket = self.home[i]
            if bucket is not None:
                self.inside[bucket].append(i)
                after[bucket].update(hidden[i])
            for variable in scope:
                if variable in self.held:
                    self.touched.setdefault(variable, []).append(i)
        self.parent: dict[int, int | None] = {}
        self.children: dict[int, list[int]] = {variable: [] for variable in self.order}
        self.cells, self.work = 1, 0  # of the largest table, and of all
        for variable in self.order:
            after[variable].add(variable)
            table = math.prod(sizes[other] for other in after[variable])
            self.cells, self.work = max(self.cells, table), self.work + table
            after[variable].discard(variable)
            above = self.parent[variable] = min(after[variable], key=self.rank.__getitem__, default=None)
            if above is not None:
                after[above] |= after[variable]
                self.children[above].append(variable)
        self.root: dict[int, int] = {}
        for variable in reversed(self.order):
            above = self.parent[variable]
            self.root[variable] = variable if above is None else self.root[above]
        self.places: dict[int, int] = {}
        self.settled = False
        self.up: dict[int, list[Factor]] = {}
        self.scale: dict[int, float] = {}
        self.down: dict[int, list[Factor]] = {}
        self.alone: dict[int, float] = {}

    def settle(self, places: Mapping[int, int]) -> float:
        """Log sum at an assignment of the held variables; all messages are computed anew."""
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
        """Log sum after changes to the assignment; only messages above the changes are computed."""
        if not self.settled:
            return self.settle(self.places | dict(changes))
        self.down.clear()
        self.settled = False  # an exception on the way leaves stale messages
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
        """Log sum at the current assignment."""
        if -math.inf in self.scale.values() or -math.inf in self.alone.values():
            return -math.inf
        return math.fsum(self.scale.values()) + math.fsum(self.alone.values())

    def _look(self, i: int) -> None:
        scope, table = self.factors[i]
        entry = float(table[tuple(self.places[variable] for variable in scope)])
        self.alone[i] = math.log(entry) if entry > 0 else -math.inf

    def sliced(self, i: int, free: frozenset[int] = frozenset()) -> Factor:
        """A factor with held variables, except the free ones, sliced at their values."""
        scope, table = self.factors[i]
        loose = [variable not in self.held or variable in free for variable in scope]
        index = tuple(slice(None) if ok else self.places[v] for v, ok in zip(scope, loose, strict=True))
        return Factor(tuple(itertools.compress(scope, loose)), table[index])

    def _below(self, variable: int, without: int | None = None) -> list[Factor]:
        """Factors of a bucket and messages of its children, except one."""
        parts = [self.sliced(i) for i in self.inside[variable]]
        kids = (self.up[child] for child in self.children[variable] if child != without)
        return [*parts, *itertools.chain.from_iterable(kids)]

    def _send(self, variable: int) -> None:
        """Compute a bucket's upward message, scaled to a largest entry of one, and its log scale."""
        self.up[variable], self.scale[variable], _ = reduced(self._below(variable), (variable,))

    def _from_above(self, variable: int) -> list[Factor]:
        """Downward message into a bucket; nothing for a root."""
        way = []
        while variable is not None and variable not in self.down and self.parent[variable] is not None:
            way.append(variable)
            variable = self.parent[variable]  # type: ignore[assignment]
        for below in reversed(way):
            above = self.parent[below]
            assert above is not None
            wanted, table = self.up[below][0]
            parts = [
                *self._below(above, below),
                *self.down.get(above, ()),
                Factor(wanted, np.ones(table.shape)),
            ]
            gone = {other for scope, _ in parts for other in scope}.difference(wanted)
            self.down[below] = reduced(parts, gone).factors
        return self.down.get(way[0] if way else variable, [])

    def belief(self, variable: int) -> np.ndarray:
        """Unnormalised marginal of a hidden variable."""
        parts = [*self._below(variable), *self._from_above(variable)]
        gone = {other for scope, _ in parts for other in scope} - {variable}
        return np.prod([table for _, table in reduced(parts, gone).factors], 0)

    def between(self, free: Iterable[int]) -> list[Factor]:
        """Factors, hidden variables included, of the problem of some free variables, the other held ones fixed."""
        loose = frozenset(free)
        places = {i for variable in loose for i in self.touched.get(variable, ())}
        found = [self.sliced(i, loose) for i in sorted(places) if self.home[i] is None]
        buckets = {bucket for i in places if (bucket := self.home[i]) is not None}
        kept = self._joined(buckets)
        for bucket in sorted(kept, key=self.rank.__getitem__):
            found += [self.sliced(i, loose) for i in self.inside[bucket]]
            for child in self.children[bucket]:
                found += self.up[child] if child not in kept else []
            if self.parent[bucket] not in kept:
                found += self._from_above(bucket)
        return found

    def _joined(self, buckets: set[int]) -> set[int]:
        """Buckets of the smallest subtrees that connect the given ones: paths upwards end where all have met."""
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
