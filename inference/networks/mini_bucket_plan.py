r"""Partition of factors among mini-buckets, from scopes alone, before any table is made.

The bucket of a variable has the factors and messages whose first variable in the elimination order it is. They are
shared out among mini-buckets, each with a union of scopes of limited size. A mini-bucket's message goes to the bucket
of its next variable, so that mini-buckets are a forest with one parent each.

Dechter, Rish (2003), "Mini-buckets: a general scheme for bounded inference", section 3.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ethogram.inference.networks.elimination import part_order
from ethogram.inference.networks.zero_propagation import ReducedFactors

__all__ = ["MiniBucket", "MiniBucketPlan", "bounded_order", "plan_mini_buckets"]

MODERATE = 2**22
"""Cells of a table beyond which a min-fill order is not worth its time."""


class MiniBucket(NamedTuple):
    """A mini-bucket's place in the forest.

    Attributes
    ----------
    scope : variables in elimination order; the first is eliminated.
    factors : numbers of its factors.
    kids : numbers of the mini-buckets that send it their messages.
    """

    scope: tuple[int, ...]
    factors: tuple[int, ...]
    kids: tuple[int, ...]


class MiniBucketPlan(NamedTuple):
    """Mini-buckets, those of one variable beside each other in `buckets`, in elimination order; and all their cells."""

    mini_buckets: list[MiniBucket]
    buckets: list[list[int]]
    cells: int

    @property
    def exact(self) -> bool:
        """Whether no bucket was shared out."""
        return all(len(bucket) == 1 for bucket in self.buckets)


def bounded_order(possible: ReducedFactors, number: int, maximised: Iterable[int]) -> list[int]:
    """Constrained min-fill order of a part while tables are moderate, then its other variables, summed ones first."""
    last, variables = frozenset(maximised), {v for scope, _ in possible.parts[number] for v in scope}
    found = part_order(possible, number, last, MODERATE)
    large = next((i for i, cells in enumerate(found.tables) if cells > MODERATE), len(found.tables))
    order = found.variables[: large + 1]
    rest = sorted(variables.difference(order))
    return [*order, *(v for v in rest if v not in last), *(v for v in rest if v in last)]


def plan_mini_buckets(
    scopes: Sequence[Sequence[int]], sizes: Mapping[int, int], order: Sequence[int], most_cells: int | float
) -> MiniBucketPlan:
    """Mini-buckets of at most `most_cells` cells each; a factor that is larger has one to itself."""
    rank = {variable: i for i, variable in enumerate(order)}
    waiting: dict[int, list[tuple[int, frozenset[int], int, bool]]] = {variable: [] for variable in order}
    for i, scope in enumerate(scopes):
        first = min(scope, key=rank.__getitem__)
        cells = math.prod(sizes[v] for v in scope)
        waiting[first].append((-cells, frozenset(scope), i, False))
    found: list[MiniBucket] = []
    buckets, total = [], 0
    for variable in order:
        groups: list[tuple[set[int], list[int], list[int]]] = []
        for _, each, i, is_message in sorted(waiting.pop(variable), key=lambda item: item[0]):
            fitting = (
                group for group in groups if math.prod(sizes[v] for v in group[0] | each) <= most_cells
            )
            group = next(fitting, None)
            if group is None:
                group = (set[int](), list[int](), list[int]())
                groups.append(group)
            union, factors, kids = group
            union |= each
            (kids if is_message else factors).append(i)
        bucket = []
        for union, factors, kids in groups:
            bucket.append(len(found))
            ordered = tuple(sorted(union, key=rank.__getitem__))
            cells = math.prod(sizes[v] for v in ordered)
            total += cells
            if len(ordered) > 1:
                above = waiting[ordered[1]]
                above.append((-cells // sizes[variable], frozenset(ordered[1:]), len(found), True))
            found.append(MiniBucket(ordered, tuple(factors), tuple(kids)))
        if bucket:
            buckets.append(bucket)
    return MiniBucketPlan(found, buckets, total)
