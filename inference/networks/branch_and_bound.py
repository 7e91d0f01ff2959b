r"""Branch and bound for marginal MAP, guided by the messages of weighted mini-buckets.

Maximised variables are assigned in reverse elimination order, so that all other variables of a maximised mini-bucket
have their states when its own variable gets one. With mini-buckets' tables :math:`\psi_r` and messages :math:`m_r`,

.. math:: f(\text{root}) = \text{bound}, \qquad f \leftarrow f + \sum_r \psi_r(v, \cdot) - m_r(\cdot)

never rises, and bounds the log probability of every completion. As soon as the context of a component of hidden
variables is assigned, the component's exact log sum replaces its bound, and f of a complete assignment is its exact log
probability. Assignments whose f does not exceed the incumbent are cut; when none is left, the incumbent is optimal.

Open assignments are kept by depth and taken in chunks, the largest f of every depth first, in waves from the root to
the leaves: each wave ends in answers and lowers the bound. Where they take too much memory, the deepest go first.

Marinescu, Lee, Dechter, Ihler (2018), "AND/OR search for marginal MAP", JAIR 63; waves: Kao, Sewell, Jacobson (2009),
"A branch, bound, and remember algorithm", cyclic best-first search.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ethogram.inference.networks.bucket_tree import BucketTree
from ethogram.inference.networks.elimination import independent_parts
from ethogram.inference.networks.weighted_mini_buckets import WeightedMiniBuckets
from ethogram.inference.networks.zero_propagation import Factor

__all__ = ["SAME", "BranchAndBound", "ComponentSum", "component_sums"]

MOST_SUMS = 2**17
"""Cached sums of a component; the oldest go first."""
SECONDS_A_MESSAGE, SECONDS_A_CELL = 2e-5, 2e-9


class ComponentSum:
    """Log sum of one component, given its context: the maximised variables beside its hidden ones.

    Attributes
    ----------
    hidden, context : variables, ascending.
    seconds : that a sum is expected to take.
    cache : sums that have been computed, by the places of the context.
    """

    def __init__(
        self,
        factors: Sequence[Factor],
        sizes: Mapping[int, int],
        maximised: Iterable[int],
        order: Sequence[int] | None = None,
    ):
        held = set(maximised)
        seen = {variable for scope, _ in factors for variable in scope}
        self.hidden, self.context = tuple(sorted(seen - held)), tuple(sorted(seen & held))
        self.tree = BucketTree(factors, sizes, self.context, order)
        self.cache: dict[tuple[int, ...], float] = {}
        self.seconds = SECONDS_A_MESSAGE * len(self.tree.order) + SECONDS_A_CELL * self.tree.work

    def compute(self, places: tuple[int, ...]) -> float:
        """The sum at these places of the context."""
        value = self.tree.move(dict(zip(self.context, places, strict=True)))
        if len(self.cache) >= MOST_SUMS:
            del self.cache[next(iter(self.cache))]
        self.cache[places] = value
        return value


def component_sums(
    factors: Sequence[Factor],
    sizes: Mapping[int, int],
    maximised: Iterable[int],
    order: Sequence[int] | None = None,
) -> list[ComponentSum]:
    """Components of the hidden variables, which are eliminated in this order, or by min-fill."""
    held = frozenset(maximised)
    links = [Factor(tuple(v for v in scope if v not in held), table) for scope, table in factors]
    number: dict[int, int] = {}
    for i, part in enumerate(independent_parts([factor for factor in links if factor.scope])):
        for scope, _ in part:
            number.update(dict.fromkeys(scope, i))
    parts: dict[int, list[Factor]] = {}
    for factor, link in zip(factors, links, strict=True):
        if link.scope:
            parts.setdefault(number[link.scope[0]], []).append(factor)
    return [ComponentSum(part, sizes, held, order) for part in parts.values()]


SAME = 1e-9
"""Nats within which an assignment is no better than the incumbent."""
LEAST_ROWS, MOST_ROWS = 8, 2048
"""Assignments taken at a time from one depth, in the first wave and at most."""
OPEN_BYTES = 2**27
"""Memory of open assignments beyond which the deepest are taken first."""
LONG_CHUNK_SECONDS = 0.02
"""Seconds of sums after which a chunk is shorter."""


class _LookUp(NamedTuple):
    """A table (state, context) or (context,), and how places of assigned variables lead into it."""

    table: np.ndarray
    depths: np.ndarray
    strides: np.ndarray

    def at(self, places: np.ndarray) -> np.ndarray:
        if not len(self.depths):
            return self.table[..., np.zeros(places.shape[1], np.intp)]
        return self.table.take(self.strides @ places[self.depths].astype(np.intp), axis=-1)


class _Closing(NamedTuple):
    """A component whose context is complete at some depth, and the messages that its sum replaces."""

    component: ComponentSum
    depths: list[int]
    messages: list[_LookUp]


class BranchAndBound:
    """Search of one connected part of a query.

    Parameters
    ----------
    bound : settled mini-buckets of the part, by an order with all maximised variables last.
    sizes : states by variable.
    maximised : variables of the part that are maximised.
    components : of its hidden variables; their cached sums outlive the search.
    same : nats within which an assignment is no better than the best.

    Attributes
    ----------
    value, best : log probability and places by variable of the best assignment, -inf and None before there is one.
    nodes : assignments expanded.
    """

    def __init__(
        self,
        bound: WeightedMiniBuckets,
        sizes: Mapping[int, int],
        maximised: Sequence[int],
        components: Sequence[ComponentSum],
        same: float = SAME,
    ):
        asked, self.same = set(maximised), same
        self.variables = [variable for variable in reversed(bound.order) if variable in asked]
        depth = {variable: i for i, variable in enumerate(self.variables)}
        self.value, self.nodes = -math.inf, 0
        self.best: dict[int, int] | None = None
        self.steps: list[list[_LookUp]] = [[] for _ in self.variables]
        self.sizes = [sizes[variable] for variable in self.variables]
        outside: dict[
            int, list[_LookUp]
        ] = {}  # messages to maximised variables, by the number of the component
        home = {variable: i for i, each in enumerate(components) for variable in each.hidden}
        shared = set()
        constant = dict.fromkeys(range(len(components)), 0.0)
        receivers = {kid: i for i, mini in enumerate(bound.plan.mini_buckets) for kid in mini.kids}
        for i, (node, mini) in enumerate(zip(bound.nodes, bound.plan.mini_buckets, strict=True)):
            variable, rest = mini.scope[0], mini.scope[1:]
            above = receivers.get(i)
            if node.hard:
                with np.errstate(invalid="ignore"):
                    table = node.psi - node.message
                table[:, node.message == -math.inf] = -math.inf
                self.steps[depth[variable]].append(_look_up(table, rest, depth, sizes))
            elif above is None:
                constant[home[variable]] += float(node.message[0])
            elif bound.nodes[above].hard:
                message = _look_up(node.message.copy(), rest, depth, sizes)
                outside.setdefault(home[variable], []).append(message)
        for bucket, numbers in zip(bound.buckets, bound.plan.buckets, strict=True):
            if len(bucket) > 1 and not bucket[0].hard:
                shared.add(home[bound.plan.mini_buckets[numbers[0]].scope[0]])
        self.closing: list[list[_Closing]] = [[] for _ in range(len(self.variables) + 1)]
        for i, each in enumerate(components):
            if i in shared:
                at = max((depth[variable] + 1 for variable in each.context), default=0)
                whole = _LookUp(np.array([constant[i]]), np.zeros(0, int), np.zeros(0, int))
                depths = [depth[variable] for variable in each.context]
                self.closing[at].append(_Closing(each, depths, [whole, *outside.get(i, [])]))
        self._rows, self._order = LEAST_ROWS, itertools.count()
        self._open: list[list[tuple[float, int, np.ndarray, np.ndarray]]] = [[] for _ in self.closing]
        self._bytes, self._depth = 0, 0
        root = math.fsum(float(node.message[0]) for node in bound.nodes if node.root)
        self._least = bound.bound  # of all passes, plain ones included
        smallest = np.min_scalar_type(max(self.sizes, default=1))
        self._push(0, np.zeros((len(self.variables), 1), smallest), np.array([root]))

    @property
    def closed(self) -> bool:
        """Whether no assignment better than the best can be left."""
        return self.upper_bound <= self.value + self.same

    @property
    def upper_bound(self) -> float:
        """Upper bound on the log probability of all assignments."""
        still_open = max((-pool[0][0] for pool in self._open if pool), default=-math.inf)
        return max(self.value, min(still_open, self._least))

    def offer(self, places: Mapping[int, int], value: float) -> None:
        """An assignment found elsewhere, with its log probability."""
        if value > self.value:
            self.value, self.best = value, {variable: places[variable] for variable in self.variables}

    def advance(self, stop: Callable[[], bool]) -> None:
        """Expand one chunk of open assignments; `stop` is called between exact sums."""
        depths = len(self._open)
        if self._bytes > OPEN_BYTES:
            self._depth = max(depth for depth in range(depths) if self._open[depth])
        else:
            for _ in range(depths + 1):
                if self._depth == depths:
                    self._depth, self._rows = 0, min(2 * self._rows, MOST_ROWS)
                if self._open[self._depth]:
                    break
                self._depth += 1
            else:
                return
        depth = self._depth
        places, f = taken = self._pop(depth)
        if not len(f):
            return
        for closing in self.closing[depth]:
            changed = self._summed(closing, f, places, stop)
            if changed is None:  # all sums of this depth are put in again when it goes on
                self._push(depth, *taken)
                return
            keep = changed > self.value + self.same
            places, f = places[:, keep], changed[keep]
        self._depth += 1
        self.nodes += len(f)
        if not len(f):
            return
        if depth == depths - 1:
            i = int(f.argmax())
            self.offer(dict(zip(self.variables, places[:, i].tolist(), strict=True)), float(f[i]))
            return
        values = np.broadcast_to(f, (self.sizes[depth], len(f)))
        for step in self.steps[depth]:
            values = values + step.at(places)
        states, rows = np.nonzero(values > self.value + self.same)
        if len(rows):
            below = places[:, rows]
            below[depth] = states
            self._push(depth + 1, below, values[states, rows])

    def _push(self, depth: int, places: np.ndarray, f: np.ndarray) -> None:
        order = np.argsort(-f, kind="stable")
        self._hold(depth, places[:, order], f[order])

    def _hold(self, depth: int, places: np.ndarray, f: np.ndarray) -> None:
        if len(f):
            self._bytes += places.nbytes + f.nbytes
            heapq.heappush(self._open[depth], (-float(f[0]), next(self._order), places, f))

    def _pop(self, depth: int) -> tuple[np.ndarray, np.ndarray]:
        """Open assignments of a depth with large f, as many as are expanded at a time."""
        pool, wanted, found = self._open[depth], self._rows, []
        slow = sum(closing.component.seconds for closing in self.closing[depth])
        if slow:
            wanted = max(1, min(wanted, int(LONG_CHUNK_SECONDS / slow)))
        while pool and wanted > 0:
            _, _, places, f = heapq.heappop(pool)
            self._bytes -= places.nbytes + f.nbytes
            good = int(np.searchsorted(-f, -(self.value + self.same)))
            if not good:  # and all others are worse
                for _, _, others, values in pool:
                    self._bytes -= others.nbytes + values.nbytes
                pool.clear()
                break
            if good > wanted:
                self._hold(depth, places[:, wanted:good], f[wanted:good])
                good = wanted
            found.append((places[:, :good], f[:good]))
            wanted -= good
        if len(found) == 1:
            return found[0]
        if not found:
            return np.zeros((len(self.variables), 0), int), np.zeros(0)
        return np.concatenate([each for each, _ in found], 1), np.concatenate([f for _, f in found])

    def _summed(
        self, closing: _Closing, f: np.ndarray, places: np.ndarray, stop: Callable[[], bool]
    ) -> np.ndarray | None:
        """Values of f with exact sums for their bounds; None where `stop` said so before all were computed."""
        component = closing.component
        contexts, first, which = np.unique(
            places[closing.depths], axis=1, return_index=True, return_inverse=True
        )
        sums = np.empty(len(first))
        for i, context in enumerate(contexts.T.tolist()):
            key = tuple(context)
            value = component.cache.get(key)
            if value is None:
                if stop():
                    return None
                value = component.compute(key)
            sums[i] = value
        after = f + sums[which.ravel()]
        for message in closing.messages:
            after -= message.at(places)
        return np.minimum(after, f)  # rounding never raises it


def _look_up(
    table: np.ndarray, rest: Sequence[int], depth: Mapping[int, int], sizes: Mapping[int, int]
) -> _LookUp:
    """Look-up of a table, the last axis of which is a context in C order."""
    strides = [1] * len(rest)
    for i in range(len(rest) - 2, -1, -1):
        strides[i] = strides[i + 1] * sizes[rest[i + 1]]
    return _LookUp(table, np.array([depth[v] for v in rest], np.intp), np.array(strides, np.intp))
