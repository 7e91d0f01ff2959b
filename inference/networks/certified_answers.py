r"""Answers whose sums over hidden variables are out of reach: estimates between certified bounds.

For any completion h of an answer d, :math:`\ln p(d, e) \ge \ln p(d, h, e)`. Holding only so many hidden variables at
h that the sum over the others is affordable gives a tighter lower bound, as certain. The answer is the one of the best
estimate among those whose lower bound is at least the largest :math:`\ln p(d, h, e)` of any completion seen, so that
its true probability is never below that of the best completion known.

The variables held are a cutset: Dechter (1990), "Enhancement schemes for constraint processing"; Bidyuk, Dechter
(2007), "Cutset sampling for Bayesian networks".
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ethogram.inference.networks.ancestral_draws import log_joint
from ethogram.inference.networks.bucket_tree import BucketTree
from ethogram.inference.networks.elimination import elimination_order
from ethogram.inference.networks.method import Task
from ethogram.inference.networks.zero_propagation import Factor

__all__ = ["CertifiedAnswers", "cutset"]

SHARE_HELD = 16
"""One in so many of the variables that cannot be eliminated yet are held at a time."""


class _Answer(NamedTuple):
    value: float
    kind: str
    lower_bound: float
    source: str


def cutset(
    factors: Sequence[Factor], sizes: Mapping[int, int], maximised: Sequence[int], most_cells: int
) -> frozenset[int]:
    """Hidden variables to hold so that the sum over the others needs no table of more than `most_cells` cells."""
    held = set(maximised)
    while True:
        scopes = [[v for v in scope if v not in held] for scope, _ in factors]
        hidden = sorted({v for scope in scopes for v in scope})
        order = elimination_order(scopes, sizes, [hidden], most_cells)
        if order.cells <= most_cells:
            return frozenset(held.difference(maximised))
        core = sorted(set(hidden).difference(order.variables[:-1]))
        degree = {v: sum(v in scope for scope in scopes) for v in core}
        many = math.ceil(len(core) / SHARE_HELD)
        held.update(sorted(core, key=lambda v: -degree[v])[:many])


class CertifiedAnswers:
    """Candidates seen, the best of which is the incumbent."""

    def __init__(self, task: Task):
        self.task = task
        possible, query = task.possible, task.query
        factors, sizes = possible.live, possible.sizes
        known = {variable for scope, _ in factors for variable in scope}
        maximised = [variable for variable in query.map_variables if variable in known]
        held = [*maximised, *sorted(cutset(factors, sizes, maximised, task.most_cells))]
        self.tree = BucketTree(factors, sizes, held)
        self.constant = query.network.log_constant + possible.log_constant
        self.best_joint = -math.inf
        self.answers: dict[tuple[int, ...], _Answer] = {}

    def offer(self, states: Mapping[int, int], source: str) -> None:
        """Score a completion, states of all variables, and update the incumbent."""
        task, query = self.task, self.task.query
        states = dict(query.observed) | dict(states)
        joint = log_joint(query, states)
        if joint == -math.inf:
            return
        answer = tuple(task.chosen(states))
        possible = task.possible.states  # which has all states of a completion that is possible
        places = {v: int(np.searchsorted(possible[v], states[v])) for v in self.tree.held}
        lower = max(joint, self.constant + self.tree.move(places))
        self.best_joint = max(self.best_joint, joint)
        before = self.answers.get(answer)
        if before is None:
            value, kind = task.score(answer)
            before = _Answer(value, kind, value if kind == "exact" else lower, source)
        lower = max(lower, before.lower_bound)
        value = before.value if before.kind == "exact" else max(before.value, lower)
        self.answers[answer] = _Answer(value, before.kind, lower, before.source)
        self._choose()

    def _choose(self) -> None:
        """The best estimate, exact ones first, among answers certified not to be below the best completion."""
        certain = {key: each for key, each in self.answers.items() if each.lower_bound >= self.best_joint}
        key = max(certain, key=lambda key: (certain[key].kind == "exact", certain[key].value))
        best, bound = certain[key], self.task.incumbent.upper_bound
        exact = best.kind == "exact"  # whose lower bound may be above it by rounding
        value, lower = (best.value, best.value) if exact else (min(best.value, bound), best.lower_bound)
        self.task.incumbent.replace(list(key), value, best.kind, best.source, lower)
