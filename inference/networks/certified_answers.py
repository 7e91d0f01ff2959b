r"""Answers whose sums over hidden variables are out of reach: estimates between certified bounds.

For any completion h of an answer d, :math:`\ln p(d, e) \ge \ln p(d, h, e)`. Holding only so many hidden variables at
h that the sum over the others is affordable gives a tighter lower bound, as certain. The answer is the one of the best
estimate among those whose lower bound is at least the largest :math:`\ln p(d, h, e)` of any completion seen and above
all exact values, so that its true probability is never below that of the best completion known; else that of the best
exact value.

The variables held are a cutset: Dechter (1990), "Enhancement schemes for constraint processing"; Bidyuk, Dechter
(2007), "Cutset sampling for Bayesian networks".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ethogram.inference.networks.anytime import Task
from ethogram.inference.networks.bucket_tree import BucketTree
from ethogram.inference.networks.elimination import elimination_order
from ethogram.inference.networks.samples import log_joint
from ethogram.inference.networks.weighted_mini_buckets import FINITE
from ethogram.inference.networks.zero_propagation import Factor

__all__ = ["CertifiedAnswers", "cutset"]

SHARE_HELD = 16
"""One in so many of the variables that cannot be eliminated yet are held at a time."""


class _Answer(NamedTuple):
    value: float
    kind: str
    lower_bound: float
    source: str
    completion: dict[int, int]


def cutset(
    factors: Sequence[Factor],
    sizes: Mapping[int, int],
    maximised: Sequence[int],
    most_cells: int,
    stop: Callable[[], bool] = lambda: False,
) -> frozenset[int] | None:
    """Hidden variables to hold so that the sum over the others needs no table of more than `most_cells` cells.

    None where `stop` ended the search for them.
    """
    held = set(maximised)
    while True:
        scopes = [[v for v in scope if v not in held] for scope, _ in factors]
        hidden = sorted({v for scope in scopes for v in scope})
        order = elimination_order(scopes, sizes, [hidden], most_cells, stop)
        if stop():
            return None
        if order.cells <= most_cells:
            return frozenset(held.difference(maximised))
        core = sorted(set(hidden).difference(order.variables[:-1]))
        degree = {v: sum(v in scope for scope in scopes) for v in core}
        many = math.ceil(len(core) / SHARE_HELD)
        held.update(sorted(core, key=lambda v: -degree[v])[:many])


class CertifiedAnswers:
    """Candidates seen, the best of which is the incumbent. Lower bounds are joint ones until they are tightened."""

    def __init__(self, task: Task):
        self.task = task
        self.tree: BucketTree | None = None
        self.best_joint, self.longest_offer = -math.inf, 0.0  # seconds
        self.answers: dict[tuple[int, ...], _Answer] = {}
        self.tried: set[tuple[int, ...]] = set()

    def doubtful(self) -> tuple[int, ...] | None:
        """The best estimate above all exact values, once for each answer; None where there is none."""
        left = {key: each.value for key, each in self.answers.items() if each.kind == "estimate"}
        best = max(left.keys() - self.tried, key=left.__getitem__, default=None)
        if best is None or left[best] <= self._best_exact():
            return None
        self.tried.add(best)
        return best

    def settle(self, answer: tuple[int, ...], value: float) -> None:
        """Take the exact log probability of an answer into account."""
        self.answers[answer] = self.answers[answer]._replace(value=value, kind="exact", lower_bound=value)
        self._choose()

    def _best_exact(self) -> float:
        return max((each.value for each in self.answers.values() if each.kind == "exact"), default=-math.inf)

    def tighten(self, most_cells: int, stop: Callable[[], bool]) -> None:
        """Choose a cutset, for lower bounds of all answers from now on; in vain where it is stopped before."""
        task, possible = self.task, self.task.possible
        factors, sizes = possible.live, possible.sizes
        known = {variable for scope, _ in factors for variable in scope}
        maximised = [variable for variable in task.query.map_variables if variable in known]
        held = cutset(factors, sizes, maximised, most_cells, stop)
        if held is None:
            return
        self.tree = BucketTree(factors, sizes, [*maximised, *sorted(held)])
        for answer in list(self.answers.values()):
            if not stop():
                self.offer(answer.completion, answer.source)

    def offer(self, states: Mapping[int, int], source: str) -> None:
        """Take states of all variables into account; those of MAP variables alone where only a part is possible."""
        task, query, begin = self.task, self.task.query, self.task.incumbent.clock.passed()
        states = dict(query.observed) | dict(states)
        answer, joint = tuple(task.chosen(states)), log_joint(query, states)
        before = self.answers.get(answer)
        if before is None:
            value, kind = task.score(answer)
            lower = value if kind == "exact" else -math.inf
            before = _Answer(value, kind, lower, source, states)
        completion, lower = before.completion, max(joint, before.lower_bound)
        if joint > -math.inf and self.tree is not None:
            possible = task.possible.states  # which has all states of a completion that is possible
            places = {v: int(np.searchsorted(possible[v], states[v])) for v in self.tree.held}
            constant = query.network.log_constant + task.possible.log_constant
            lower = max(lower, constant + self.tree.move(places))
        self.best_joint = max(self.best_joint, joint)
        if lower > before.lower_bound:
            completion = states
        value = before.value if before.kind == "exact" else max(before.value, lower)
        self.answers[answer] = _Answer(value, before.kind, lower, before.source, completion)
        self._choose()
        self.longest_offer = max(self.longest_offer, task.incumbent.clock.passed() - begin)

    def _choose(self) -> None:
        """The best estimate that is certified to be above the best completion and exact value, or that exact value."""
        least = max(self.best_joint, FINITE)
        certain = {key: each for key, each in self.answers.items() if each.lower_bound >= least}
        exact = max(least, self._best_exact())
        better = [
            key for key, each in certain.items() if each.kind == "estimate" and each.lower_bound > exact
        ]
        among = better or [key for key, each in certain.items() if each.kind == "exact"] or list(certain)
        if not among:
            return
        key = max(among, key=lambda key: certain[key].value)
        best, bound = certain[key], self.task.incumbent.upper_bound
        exactly = best.kind == "exact"  # whose lower bound may be above it by rounding
        value, lower = (best.value, best.value) if exactly else (min(best.value, bound), best.lower_bound)
        self.task.incumbent.replace(list(key), value, best.kind, best.source, lower)
