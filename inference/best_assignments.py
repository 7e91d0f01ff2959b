"""The most probable settings of MAP variables one after the other, and what single changes to one would cost."""

from __future__ import annotations

import heapq
import math
from typing import Any, NamedTuple

import numpy as np

from ethogram.inference.bucket_tree import BucketTree
from ethogram.inference.elimination import MOST_CELLS, WidthError, carry_out, plan_elimination
from ethogram.inference.zero_propagation import Factor, propagate_zeros, query_factors
from ethogram.models.bayes_net import MarginalMAP

__all__ = ["RankedAssignment", "best_assignments", "single_flips"]


class RankedAssignment(NamedTuple):
    """An answer and how far it is from the best.

    Attributes
    ----------
    assignment : states by name, as names where the network has some.
    states : (map,) their numbers, in the order of the query.
    log_probability : ln p(d, e), exact.
    gap : nats below the best.
    """

    assignment: dict[str, Any]
    states: np.ndarray
    log_probability: float
    gap: float


def best_assignments(
    query: MarginalMAP, count: int, *, most_cells: int = MOST_CELLS
) -> tuple[RankedAssignment, ...]:
    """The `count` most probable joint settings of the MAP variables, proved, best first; fewer where no more can be.

    The best of all is found by elimination; the next is the best of those that share its first states and differ in the
    one after, and so on (Lawler's partition).

    Raises
    ------
    ValueError : `count` is below 1.
    WidthError : elimination would need a table with more than `most_cells` cells.

    References
    ----------
    Lawler (1972), "A procedure for computing the K best solutions to discrete optimization problems".
    """
    if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 1:
        raise ValueError(f"count is {count!r}: give an integer of at least 1")
    masks = {v: np.ones(query.network.sizes[v], bool) for v in query.map_variables}
    found: list[RankedAssignment] = []
    waiting: list[tuple[float, int, np.ndarray, dict[int, np.ndarray], int]] = []
    number = 0

    def add(masks: dict[int, np.ndarray], first: int) -> None:
        nonlocal number
        states, value = _best(query, masks, most_cells)
        if value > -math.inf:
            heapq.heappush(waiting, (-value, number, states, masks, first))
            number += 1

    add(masks, 0)
    while waiting and len(found) < count:
        negative, _, states, masks, first = heapq.heappop(waiting)
        gap = 0.0 if not found else found[0].log_probability + negative
        found.append(RankedAssignment(query.named(states), states, -negative, gap))
        for i in range(first, len(states)):
            others = {v: mask.copy() for v, mask in masks.items()}
            for before in range(first, i):
                others[query.map_variables[before]][:] = False
                others[query.map_variables[before]][states[before]] = True
            others[query.map_variables[i]][states[i]] = False
            if others[query.map_variables[i]].any():
                add(others, i)
    return tuple(found)


def _best(query: MarginalMAP, masks: dict[int, np.ndarray], most_cells: int) -> tuple[np.ndarray, float]:
    """The most probable answer among states that masks leave."""
    marks = [Factor((variable,), mask.astype(float)) for variable, mask in masks.items() if not mask.all()]
    possible = propagate_zeros([*query_factors(query), *marks])
    if possible.impossible:
        return np.zeros(len(masks), int), -math.inf
    plan = plan_elimination(possible, query.map_variables)
    if plan.cells > most_cells:
        raise WidthError(
            f"a table of {math.log2(plan.cells):.1f} bits would be made, and 2**{math.log2(most_cells):.3g} cells are "
            "allowed: ask for other MAP variables, or give more evidence"
        )
    states, value = carry_out(possible, plan, query.map_variables)
    return np.array([states.get(v, 0) for v in query.map_variables]), query.network.log_constant + value


def single_flips(query: MarginalMAP, states: Any, *, most_cells: int = MOST_CELLS) -> dict[str, np.ndarray]:
    """Of every MAP variable, ln p(d, e) of the answer with each of its states (state,) in place of its own.

    Differences say how sure each part of an answer is, all others held: the derivative of the network's polynomial by
    the indicator of a state, through the messages of one tree.

    Parameters
    ----------
    states : (map,) of the MAP variables, in the order of the query, or by name.

    Raises
    ------
    ValueError : `states` is not one state a MAP variable.
    WidthError : the sum over the hidden variables would need a table with more than `most_cells` cells.
    """
    network = query.network
    places = dict(zip(query.map_variables, query.states(states, "states"), strict=True))
    sizes = dict(enumerate(network.sizes))
    tree = BucketTree(query_factors(query), sizes, query.map_variables)
    if tree.cells > most_cells:
        raise WidthError(
            f"a table of {math.log2(tree.cells):.1f} bits would be made, and 2**{math.log2(most_cells):.3g} cells are "
            "allowed: ask for more MAP variables, or give more evidence"
        )
    tree.settle(places)
    told = {}
    for variable, own in places.items():
        values = [network.log_constant + tree.move({variable: state}) for state in range(sizes[variable])]
        tree.move({variable: own})
        told[network.names[variable]] = np.array(values)
    return told
