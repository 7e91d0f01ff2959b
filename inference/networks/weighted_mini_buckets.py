r"""Weighted mini-bucket upper bound of a marginal MAP query, tightened by shifting costs between mini-buckets.

Where the bucket of a variable would make too large a table, its factors are shared out among mini-buckets r with
weights :math:`w_r > 0`, which sum to one where the variable is summed and go to zero where it is maximised:

.. math:: \sum_x \prod_r f_r(x) \le \prod_r \Big(\sum_x f_r(x)^{1/w_r}\Big)^{w_r}, \qquad
          \max_x \prod_r f_r(x) \le \prod_r \max_x f_r(x)

The result is an upper bound, exact where no bucket is shared out. It is valid for all weights, and for all factors with
the same product: mini-buckets exchange functions of their variable, the shifts, that sum to zero. Beliefs of the
mini-buckets are the bound's gradient with respect to shifts, their conditional entropies the one with respect to
weights; passes alternate backwards (beliefs, weights) and forwards (shifts that match the beliefs, messages).

Liu, Ihler (2011), "Bounding the partition function using Hölder's inequality", eq. 4 and section 4; Ihler, Flerova,
Dechter, Otten (2012), "Join-graph based cost-shifting schemes", for maximised variables; Dechter, Rish (2003),
"Mini-buckets: a general scheme for bounded inference", for weights of one and zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from ethogram.inference.networks.mini_bucket_plan import MiniBucketPlan
from ethogram.inference.networks.products import log_product
from ethogram.inference.networks.zero_propagation import Factor

__all__ = ["FINITE", "WeightedMiniBuckets"]

WARMEST, COOLING, COLDEST = 0.5, 0.93, 0.1
"""Temperatures at which maximised variables have beliefs."""
WEIGHT_STEP, LEAST_WEIGHT = 4.0, 1e-3
LARGEST_SHIFT, LEAST_BELIEF = 40.0, 1e-250
DAMPED = 0.4
"""Step of shifts that follow beliefs: with 1 they oscillate."""
PATIENCE, LEAST_STEP = 3, 1e-2
"""Passes without gain after which the best shifts return with half the step; and the least step."""
STALLED, FEW = 0.02, 5
"""A share of the gap, and passes in which a bound that is worth going on with has gained it."""
FINITE = -1e300
"""Replaces minus infinity where it is multiplied by zero."""


class _Node:
    """A mini-bucket at work: log tables with its variable on the first axis."""

    def __init__(self, shape: tuple[int, ...], base: np.ndarray, hard: bool):
        self.shape, self.base, self.hard = shape, base.reshape(shape[0], -1), hard
        self.psi = np.empty_like(self.base)
        self.message = np.zeros(self.base.shape[1])
        self.back = np.ones(self.base.shape[1])
        self.shift, self.weight = np.zeros(shape[0]), 1.0
        self.kids: list[tuple[_Node, tuple[int, ...], tuple[int, ...], tuple[int, ...]]] = []
        self.root = len(shape) == 1


class WeightedMiniBuckets:
    """Upper bound on the log of the maximised sum of a product of factors, tighter with every pass.

    The search of :mod:`branch_and_bound` looks up its messages.

    Parameters
    ----------
    factors : nonnegative tables, each with a scope that is not empty.
    sizes : states by variable.
    maximised : variables that are maximised; the others are summed.
    order : elimination order; an order in which a maximised variable is before a summed one is an upper bound too.
    plan : mini-buckets of the factors in this order.
    """

    def __init__(
        self,
        factors: Sequence[Factor],
        sizes: Mapping[int, int],
        maximised: Iterable[int],
        order: Sequence[int],
        plan: MiniBucketPlan,
    ):
        self.order, self.plan, last = list(order), plan, frozenset(maximised)
        self.nodes: list[_Node] = []
        for scope, numbers, kids in self.plan.mini_buckets:
            shape = tuple(sizes[v] for v in scope)
            node = _Node(shape, log_product([factors[i] for i in numbers], scope, shape), scope[0] in last)
            for kid in kids:
                node.kids.append(
                    (self.nodes[kid], *_embedding(scope, self.plan.mini_buckets[kid].scope[1:], shape))
                )
            self.nodes.append(node)
        self.buckets = [[self.nodes[i] for i in bucket] for bucket in self.plan.buckets]
        for bucket in self.buckets:
            for node in bucket:
                node.weight = 1.0 / len(bucket)
        self.bound, self.passes = math.inf, 0
        self.finished = False
        self._kept = self._parameters()
        self._current = False  # whether messages are those of the kept shifts and weights
        self._step, self._worse = 1.0, 0
        self._history: list[float] = []

    def tighten(self, incumbent: float = -math.inf, stop: Callable[[], bool] = lambda: False) -> bool:
        """One more pass; whether there is any use in another.

        The first two are forward passes with weights of one and zero, and with equal weights. Where `stop`, which is
        called for every bucket, says so, the pass is given up and the bound stays as it is.
        """
        if self.finished:
            return False
        number = self.passes
        if number == 0:
            total = self._forward(stop, plain=True)
        elif number == 1:
            total = self._forward(stop)
        elif number == 2:
            total = self._forward(stop, match=_first_match)
        else:
            tau = max(COLDEST, WARMEST * COOLING ** (number - 1))
            if not self._current and not self._refresh(stop):
                return True
            if not self._backward(tau, stop):
                self._restore()
                return True
            step = min(self._step, DAMPED)
            total = self._forward(stop, match=lambda bucket: _match_beliefs(bucket, tau), step=step)
        if total is None:
            if number > 1:
                self._restore()
            return True
        self.passes += 1
        self._history.append(min(self.bound, total))
        if total < self.bound:
            if number:
                self._kept, self._worse = self._parameters(), 0
            self.bound = total
        elif number > 1:
            self._worse += 1
        self._current = number > 0
        if self._worse == PATIENCE:
            self._restore()
            self._step, self._worse = min(self._step, DAMPED) / 2, 0
        self.finished = self._settled(incumbent)
        return not self.finished

    def settle(self, stop: Callable[[], bool] = lambda: False) -> bool:
        """Make all messages those of the best shifts and weights; False if `stop` said so before."""
        self._restore()
        return self._refresh(stop)

    def _settled(self, incumbent: float) -> bool:
        if self.bound == -math.inf or self.bound - incumbent < 1e-9:
            return True
        if self.plan.exact:
            return self.passes > 1  # the second pass has equal weights, as messages of a search need them
        if self._step < LEAST_STEP:
            return True
        if len(self._history) <= FEW + 2 or incumbent == -math.inf:
            return False
        return self._history[-1 - FEW] - self.bound < STALLED * (self.bound - incumbent)

    def _parameters(self) -> list[tuple[np.ndarray, float]]:
        return [(node.shift.copy(), node.weight) for node in self.nodes]

    def _restore(self) -> None:
        for node, (shift, weight) in zip(self.nodes, self._kept, strict=True):
            node.shift, node.weight = shift.copy(), weight
        self._current = False

    def _refresh(self, stop: Callable[[], bool]) -> bool:
        self._current = self._forward(stop) is not None
        return self._current

    def _forward(
        self,
        stop: Callable[[], bool],
        match: Callable[[list[_Node]], tuple[list[np.ndarray], list[float]]] | None = None,
        step: float = 1.0,
        plain: bool = False,
    ) -> float | None:
        """Messages from the leaves to the roots, costs shifted on the way where a rule is given; their sum."""
        total = 0.0
        with np.errstate(divide="ignore"):
            for bucket in self.buckets:
                if stop():
                    return None
                for node in bucket:
                    _gather(node)
                if len(bucket) > 1 and not plain:
                    dead = np.zeros(bucket[0].shape[0], bool)
                    for node in bucket:
                        dead |= node.psi.max(1) == -math.inf
                    if match is not None:
                        _shift(bucket, *match(bucket), dead, step)
                    if dead.any():
                        for node in bucket:
                            node.psi[dead] = -math.inf
                for place, node in enumerate(bucket):
                    node.message = _eliminated(
                        node, node.hard or (plain and place > 0), 1.0 if plain else None
                    )
                    if node.root:
                        total += float(node.message[0])
        return total

    def _backward(self, tau: float, stop: Callable[[], bool]) -> bool:
        """Beliefs from the roots to the leaves, and a step of the weights; False if it was stopped."""
        for bucket in reversed(self.buckets):
            if stop():
                return False
            entropies = []
            for node in bucket:
                belief, share = _conditional(node, tau / len(bucket) if node.hard else node.weight)
                belief *= share
                if len(bucket) > 1 and not node.hard:
                    finite = np.maximum(node.psi, FINITE)
                    top = np.where(node.message > -math.inf, node.message, 0.0)
                    entropies.append((node.back @ top - np.vdot(belief, finite)) / node.weight)
                for kid, shape, axes, _ in node.kids:
                    kid.back = belief.reshape(shape).sum(axes).ravel()
            if entropies:
                _step_weights(bucket, np.array(entropies))
        return True


def _embedding(
    scope: tuple[int, ...], part: tuple[int, ...], shape: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Shape of a table over a scope with neighbouring axes merged, its axes outside a part, and the part's shape."""
    inside = set(part)
    merged: list[int] = []
    kinds: list[bool] = []
    for variable, size in zip(scope, shape, strict=True):
        if kinds and kinds[-1] == (variable in inside):
            merged[-1] *= size
        else:
            merged.append(size)
            kinds.append(variable in inside)
    gone = tuple(axis for axis, kind in enumerate(kinds) if not kind)
    return tuple(merged), gone, tuple(size if kind else 1 for size, kind in zip(merged, kinds, strict=True))


def _gather(node: _Node) -> None:
    """A mini-bucket's table: factors, shift and messages."""
    np.add(node.base, node.shift[:, None], out=node.psi)
    for kid, shape, _, part in node.kids:
        whole = node.psi.reshape(shape)
        whole += kid.message.reshape(part)


def _eliminated(node: _Node, hard: bool, weight: float | None) -> np.ndarray:
    """A mini-bucket's message: maxima, or power sums."""
    largest = node.psi.max(0)
    if hard:
        return largest
    weight = node.weight if weight is None else weight
    cond = np.subtract(node.psi, _finite(largest))
    cond /= weight
    total = np.exp(cond, out=cond).sum(0)
    return largest + weight * np.log(_positive(total))


def _conditional(node: _Node, weight: float) -> tuple[np.ndarray, np.ndarray]:
    """Unnormalised distribution of a mini-bucket's variable given the others, and beliefs of those over its sums."""
    cond = np.subtract(node.psi, _finite(node.psi.max(0)))
    cond /= weight
    total = np.exp(cond, out=cond).sum(0)
    share = node.back / _positive(total)
    return cond, share if total.all() else np.where(total > 0, share, 0.0)


def _finite(table: np.ndarray) -> np.ndarray:
    """The table with zero for minus infinity, which is subtracted where nothing is possible."""
    return table if table.min() > -math.inf else np.where(table > -math.inf, table, 0.0)


def _positive(table: np.ndarray) -> np.ndarray:
    """The table with one for zero, where the log or the quotient is not used."""
    return table if table.all() else np.where(table > 0, table, 1.0)


def _first_match(bucket: list[_Node]) -> tuple[list[np.ndarray], list[float]]:
    """Logs of what mini-buckets say of their variable on the way forwards, and their shares of the shifts."""
    if bucket[0].hard:
        return [node.psi.max(1) for node in bucket], [1 / len(bucket)] * len(bucket)
    logs = []
    for node in bucket:
        largest = node.psi.max(1)
        raised = np.exp((node.psi - _finite(largest)[:, None]) / node.weight)
        logs.append(largest + node.weight * np.log(_positive(raised.sum(1))))
    return logs, [node.weight for node in bucket]


def _match_beliefs(bucket: list[_Node], tau: float) -> tuple[list[np.ndarray], list[float]]:
    """Logs of mini-buckets' beliefs of their variable, times their weights, and their shares of the shifts."""
    logs, shares, many = [], [], len(bucket)
    for node in bucket:
        weight = tau / many if node.hard else node.weight
        cond, share = _conditional(node, weight)
        logs.append(weight * np.log(np.maximum(cond @ share, LEAST_BELIEF)))
        shares.append(1 / many if node.hard else node.weight)
    return logs, shares


def _shift(
    bucket: list[_Node], logs: list[np.ndarray], shares: list[float], dead: np.ndarray, step: float
) -> None:
    """Shift costs between mini-buckets; what they gain sums to zero, or the bound would be false."""
    table = np.array(logs)
    table[:, dead] = 0.0
    share = np.array(shares)[:, None]
    shifts = step * np.clip(share * table.sum(0) - table, -LARGEST_SHIFT, LARGEST_SHIFT)
    shifts -= share * shifts.sum(0)
    for node, each in zip(bucket, shifts, strict=True):
        node.shift = node.shift + each
        node.psi += each[:, None]


def _step_weights(bucket: list[_Node], entropies: np.ndarray) -> None:
    """Multiplicative step of the weights of a summed variable along the bound's gradient."""
    weights = np.array([node.weight for node in bucket])
    exponent = -WEIGHT_STEP * weights * (entropies - weights @ entropies)
    weights = np.maximum(weights * np.exp(np.clip(exponent, -2.0, 2.0)), LEAST_WEIGHT)
    for node, weight in zip(bucket, weights / weights.sum(), strict=True):
        node.weight = float(weight)
