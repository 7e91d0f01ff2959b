r"""An upper bound of a marginal MAP question by elimination with small tables.

Where the factors of a variable would make too large a table, they are shared out among several smaller ones, and the
variable is eliminated from each alone: summed out of the first, maximised out of the others. Since

.. math:: \sum_x f(x)\, g(x) \le \Big(\sum_x f(x)\Big) \max_x g(x), \qquad
          \max_x f(x)\, g(x) \le \max_x f(x)\, \max_x g(x)

what is left is never below the truth, and where nothing had to be shared out it is the truth.

Dechter, Rish (2003), "Mini-buckets: a general scheme for bounded inference".
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from ethogram.inference.elimination import constrained_order, independent_parts, product
from ethogram.inference.zero_propagation import Factor, Possible

__all__ = ["mini_bucket_bound"]

MODERATE = 2**22
"""Cells beyond which looking for the order of least fill takes longer than it is worth."""


def mini_bucket_bound(possible: Possible, maximised: Iterable[int], most_cells: int) -> float:
    """A number that max over d of ln p(d, e) is not above, but for the network's constant.

    Parameters
    ----------
    most_cells : of one table, unless a factor has more by itself.
    """
    constants = [float(factor.table) for factor in possible.factors if not factor.scope]
    if possible.impossible or not all(constants):
        return -math.inf
    total, asked = math.fsum(map(math.log, constants)), set(maximised)
    sizes = {variable: len(each) for variable, each in possible.states.items()}
    for part in independent_parts([factor for factor in possible.factors if factor.scope]):
        live = list(part)
        for variable in _order(part, sizes, asked):
            bucket = [factor for factor in live if variable in factor.scope]
            live = [factor for factor in live if variable not in factor.scope]
            for place, mini in enumerate(_shared_out(bucket, sizes, most_cells)):
                (scope, table), log_scale = product(mini)
                axis = scope.index(variable)
                message = table.max(axis) if place or variable in asked else table.sum(axis)
                largest = message.max()
                if largest == 0:
                    return -math.inf
                total += float(np.log(largest)) + log_scale
                rest = scope[:axis] + scope[axis + 1 :]
                if rest:
                    live.append(Factor(rest, message / largest))
    return float(total)


def _order(part: list[Factor], sizes: dict[int, int], asked: set[int]) -> list[int]:
    """Order of least fill as far as tables are moderate, then summed variables before maximised ones as they come."""
    order = constrained_order(part, sizes, asked, MODERATE).variables
    rest = sorted({variable for scope, _ in part for variable in scope}.difference(order))
    return [*order, *(v for v in rest if v not in asked), *(v for v in rest if v in asked)]


def _shared_out(bucket: list[Factor], sizes: dict[int, int], most_cells: int) -> list[list[Factor]]:
    """Factors in as few groups as fit one after the other, large ones first."""
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
