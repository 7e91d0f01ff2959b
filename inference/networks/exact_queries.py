"""Posteriors of single variables, the k best assignments, and the log probabilities of single changes to one.

Marginals come from the messages of one bucket tree, as elim-bel of Dechter (1999), "Bucket elimination: a unifying
framework for reasoning", where that is affordable; else from loopy belief propagation.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Array, Float, Int

from ethogram.inference.networks.bucket_tree import BucketTree
from ethogram.inference.networks.elimination import (
    MOST_CELLS,
    exact_map,
    guard_width,
    hidden_order,
    part_order,
)
from ethogram.inference.networks.mixed_product import normalised, propagate_beliefs
from ethogram.inference.networks.zero_propagation import (
    Factor,
    ReducedFactors,
    propagate_zeros,
    query_factors,
)
from ethogram.models.arguments import require_integer
from ethogram.models.networks.marginal_map import MarginalMAP
from ethogram.models.printing import short_repr

__all__ = [
    "RankedAssignment",
    "VariablePosteriors",
    "best_assignments",
    "factor_posteriors",
    "single_flips",
    "variable_posteriors",
]


@short_repr
class VariablePosteriors(NamedTuple):
    """Posterior marginals of the MAP variables, the other MAP variables summed out.

    Attributes
    ----------
    probabilities : by name, (state,); all zero where the evidence is impossible.
    kind : ``"exact"``, or ``"estimate"`` by loopy belief propagation.
    """

    probabilities: dict[str, Float[np.ndarray, " state"]]
    kind: str


def variable_posteriors(query: MarginalMAP, *, most_cells: int = 2**22) -> VariablePosteriors:
    """Posterior marginals p(D = s | e) of every MAP variable.

    They say how certain each variable is by itself; their modes need not be the most probable joint assignment.

    Parameters
    ----------
    query : network, evidence and MAP variables.
    most_cells : largest table allowed; where more is needed, the marginals are estimates.
    """
    require_integer("most_cells", most_cells, 1)
    possible = propagate_zeros(query_factors(query))
    sizes, names = query.network.sizes, query.network.names
    probabilities = {names[variable]: np.zeros(sizes[variable]) for variable in query.map_variables}
    if possible.impossible:
        return VariablePosteriors(probabilities, "exact")
    found, kind = factor_posteriors(possible, query.map_variables, most_cells)
    for variable, each in zip(query.map_variables, found, strict=True):
        probabilities[names[variable]][possible.states[variable]] = each
    return VariablePosteriors(probabilities, kind)


def factor_posteriors(
    possible: ReducedFactors, variables: Sequence[int], most_cells: int
) -> tuple[list[np.ndarray], str]:
    """Marginals of variables over their possible states, and whether they are exact or estimates."""
    live, sizes = possible.live, possible.sizes
    alone = {v: np.ones(sizes[v]) / max(sizes[v], 1) for v in variables}
    nothing = frozenset[int]()  # held; parity checks are not substituted, since the tree has all variables
    orders = (part_order(possible, number, nothing, most_cells) for number in range(len(possible.parts)))
    if any(order.cells > most_cells for order in orders):
        beliefs = propagate_beliefs(live, max_sweeps=50, damping=0.3).beliefs
        return [beliefs.get(variable, alone[variable]) for variable in variables], "estimate"
    tree = BucketTree(live, sizes, (), hidden_order(possible, nothing))
    if tree.settle({}) == -np.inf:
        return [np.zeros(sizes[variable]) for variable in variables], "exact"
    return [normalised(tree.belief(v)) if v in tree.rank else alone[v] for v in variables], "exact"


@short_repr
class RankedAssignment(NamedTuple):
    """One of the k best assignments.

    Attributes
    ----------
    assignment : states by name, with state names where the network has some.
    states : (map,) their numbers, in the order of the query.
    log_probability : ln p(d, e), exact.
    gap : nats below the best.
    """

    assignment: dict[str, Any]
    states: Int[np.ndarray, "map"]
    log_probability: float
    gap: float


def best_assignments(
    query: MarginalMAP, count: int, *, most_cells: int = MOST_CELLS
) -> tuple[RankedAssignment, ...]:
    """The `count` most probable assignments, proved, best first; fewer where fewer are possible.

    The best is found by constrained elimination; the others are the best of the subsets into which Lawler's procedure
    partitions the assignments that remain.

    Parameters
    ----------
    query : network, evidence and MAP variables.
    count : k, at least 1.
    most_cells : largest table allowed.

    Raises
    ------
    TypeError, ValueError : `count` is not an integer of at least 1.
    WidthError : elimination would need a table with more than `most_cells` cells.

    References
    ----------
    Lawler (1972), "A procedure for computing the K best solutions to discrete optimization problems".
    """
    require_integer("count", count, 1)
    masks = {v: np.ones(query.network.sizes[v], bool) for v in query.map_variables}
    found: list[RankedAssignment] = []
    waiting: list[tuple[float, int, np.ndarray, dict[int, np.ndarray], int]] = []
    numbers = itertools.count()

    def add(masks: dict[int, np.ndarray], first: int) -> None:
        """Queue the most probable assignment among the states that masks leave."""
        marks = [
            Factor((variable,), mask.astype(float)) for variable, mask in masks.items() if not mask.all()
        ]
        possible = propagate_zeros([*query_factors(query), *marks])
        states, value = exact_map(query, most_cells=most_cells, possible=possible)
        if value > -math.inf:
            heapq.heappush(waiting, (-value, next(numbers), states, masks, first))

    add(masks, 0)
    while waiting and len(found) < count:
        negative, _, states, masks, first = heapq.heappop(waiting)
        gap = 0.0 if not found else found[0].log_probability + negative
        found.append(RankedAssignment(query.named(states), states, -negative, gap))
        for i in range(first, len(states)):
            others = {v: mask.copy() for v, mask in masks.items()}
            for before in range(first, i):
                mask = others[query.map_variables[before]]
                mask[:] = np.arange(len(mask)) == states[before]
            mask = others[query.map_variables[i]]
            mask[states[i]] = False
            if mask.any():
                add(others, i)
    return tuple(found)


def single_flips(
    query: MarginalMAP,
    states: Int[np.ndarray | Array, "map"] | Sequence[Any] | Mapping[Any, Any],
    *,
    most_cells: int = MOST_CELLS,
) -> dict[str, Float[np.ndarray, " state"]]:
    """For every MAP variable, ln p(d, e) with each of its states, all other variables as in the assignment.

    Differences say how certain each variable of the answer is: logs of the partial derivatives of the network
    polynomial, computed from the messages of one bucket tree.

    Parameters
    ----------
    query : network, evidence and MAP variables.
    states : (map,) states of the MAP variables, by number or name, in the order of the query, or a dict by variable.
    most_cells : largest table allowed.

    Raises
    ------
    ValueError : `states` is not one state per MAP variable.
    WidthError : the sum over the hidden variables would need a table with more than `most_cells` cells.

    References
    ----------
    Darwiche (2003), "A differential approach to inference in Bayesian networks".
    """
    require_integer("most_cells", most_cells, 1)
    network = query.network
    places = dict(zip(query.map_variables, query.states(states, "states"), strict=True))
    sizes = dict(enumerate(network.sizes))
    tree = BucketTree(query_factors(query), sizes, query.map_variables)
    guard_width(tree.cells, most_cells)
    tree.settle(places)
    flips = {}
    for variable, own in places.items():
        values = [network.log_constant + tree.move({variable: state}) for state in range(sizes[variable])]
        tree.move({variable: own})
        flips[network.names[variable]] = np.array(values)
    return flips
