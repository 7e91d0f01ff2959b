r"""Mini-bucket upper bound of a marginal MAP query.

Where the bucket of a variable would make too large a table, its factors are split among several mini-buckets, and the
variable is eliminated from each separately: summed out of the first, maximised out of the others. Since

.. math:: \sum_x f(x)\, g(x) \le \Big(\sum_x f(x)\Big) \max_x g(x), \qquad
          \max_x f(x)\, g(x) \le \max_x f(x)\, \max_x g(x)

the result is an upper bound, and exact where no bucket is split.

Dechter, Rish (2003), "Mini-buckets: a general scheme for bounded inference", mini-bucket elimination for MAP.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from ethogram.inference.networks.elimination import constrained_order, independent_parts, product
from ethogram.inference.networks.zero_propagation import Factor, Possible

__all__ = ["mini_bucket_bound"]

MODERATE = 2**22
"""Cells of a table beyond which a min-fill order is not worth its time."""


def mini_bucket_bound(possible: Possible, maximised: Iterable[int], most_cells: int) -> float:
    """Upper bound on max over d of ln p(d, e), without the network's constant.

    No mini-bucket of several factors has a table of more than `most_cells` cells.
    """
    if possible.impossible:
        return -math.inf
    total, kept = possible.log_constant, set(maximised)
    sizes = {variable: len(each) for variable, each in possible.states.items()}
    for part in independent_parts([factor for factor in possible.factors if factor.scope]):
        live = list(part)
        for variable in _order(part, sizes, kept):
            bucket = [factor for factor in live if variable in factor.scope]
            live = [factor for factor in live if variable not in factor.scope]
            for place, mini in enumerate(_mini_buckets(bucket, sizes, most_cells)):
                (scope, table), log_scale = product(mini)
                axis = scope.index(variable)
                message = table.max(axis) if place or variable in kept else table.sum(axis)
                largest = message.max()
                if largest == 0:
                    return -math.inf
                total += float(np.log(largest)) + log_scale
                rest = scope[:axis] + scope[axis + 1 :]
                if rest:
                    live.append(Factor(rest, message / largest))
    return float(total)


def _order(part: list[Factor], sizes: dict[int, int], maximised: set[int]) -> list[int]:
    """Constrained min-fill order while tables are moderate, then the other variables, summed ones first."""
    order = constrained_order(part, sizes, maximised, MODERATE).variables
    rest = sorted({variable for scope, _ in part for variable in scope}.difference(order))
    return [*order, *(v for v in rest if v not in maximised), *(v for v in rest if v in maximised)]


def _mini_buckets(bucket: list[Factor], sizes: dict[int, int], most_cells: int) -> list[list[Factor]]:
    """Factors split among mini-buckets, first fit, large factors first."""
    groups: list[tuple[set[int], list[Factor]]] = []
    for factor in sorted(bucket, key=lambda factor: -np.size(factor.table)):
        for scope, group in groups:
            if math.prod(sizes[v] for v in scope.union(factor.scope)) <= most_cells:
                scope.update(factor.scope)
                group.append(factor)
                break
        else:
            groups.append((set(factor.scope), [factor]))
    return [group for _, group in groups]
