"""Optimal one-to-one assignment by costs, with its margin over the second-best map.

Le, Yue, Carr, Lucey (2017), Algorithm 4, assigns agents to roles by it; the margin is original to this package.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from ethogram.models.arguments import read_array, require, require_kind
from ethogram.models.printing import short_repr

__all__ = ["Assignment", "checked_costs", "optimal_assignment", "ranked_assignment"]


@short_repr
class Assignment(NamedTuple):
    """Optimal one-to-one maps of agents to roles.

    Attributes
    ----------
    role : (..., agent), the role of each agent.
    cost : (...), the cost of the map, in the unit of the costs it was made from.
    margin : (...), what the second-best map costs more: 0 for a tie, ``inf`` if no other map is possible.
    """

    role: Int[np.ndarray, "*batch agent"]
    cost: Float[np.ndarray, "*batch"]
    margin: Float[np.ndarray, "*batch"]


def optimal_assignment(cost: ArrayLike) -> Assignment:
    r"""Cheapest one-to-one map of agents to roles, its cost, and its margin over the second-best map.

    .. math:: \min_\sigma \sum_a C_{a, \sigma(a)}

    over the injective maps :math:`\sigma`. The second-best map lacks a pair of the best one, so it is the best of the
    maps that each forbid one such pair. Where maps tie, which of them is returned is left to the solver.

    Parameters
    ----------
    cost : (..., agent, role), such as minus a log likelihood; ``+inf`` forbids a pair. At least as many roles
        as agents.

    Returns
    -------
    Assignment
        NumPy arrays `role` (..., agent) int32, `cost` (...) and `margin` (...) float64.

    Raises
    ------
    ValueError
        For fewer than two axes, more agents than roles, NaN or ``-inf``, and for a batch entry, named by its
        indices, in which the forbidden pairs leave no map.

    References
    ----------
    Crouse (2016), On implementing 2D rectangular assignment algorithms: the solver, SciPy's.
    Murty (1968), An algorithm for ranking all the assignments in order of increasing cost: the second best.

    Examples
    --------
    >>> best = optimal_assignment([[1.0, 2.0, 9.0], [1.0, 4.0, 9.0]])
    >>> print(best.role, best.cost, best.margin)
    [1 0] 3.0 2.0
    """
    costs = checked_costs(cost)
    *batch, num_agents, _ = costs.shape
    role = np.zeros((*batch, num_agents), np.int32)
    total, margin = np.zeros(batch), np.zeros(batch)
    for entry in np.ndindex(*batch):
        found = ranked_assignment(costs[entry])
        if found is None:
            place = f"cost[{', '.join(map(str, entry))}]" if entry else "cost"
            raise ValueError(
                f"{place} has no feasible assignment: make more entries finite or leave an agent out"
            )
        role[entry], total[entry], margin[entry] = found
    return Assignment(role, total, margin)


def checked_costs(cost: ArrayLike) -> Float[np.ndarray, "*batch agent role"]:
    costs = read_array("cost", cost)
    require_kind("cost", costs, "biuf", "give numbers")
    costs = costs.astype(np.float64)
    if costs.ndim < 2:
        raise ValueError(f"cost has shape {costs.shape}: give at least two axes, (..., agent, role)")
    num_agents, num_roles = costs.shape[-2:]
    if num_agents > num_roles:
        raise ValueError(
            f"cost has {num_agents} agents but {num_roles} roles: "
            f"a one-to-one map needs at least {num_agents} roles"
        )
    bad = np.isnan(costs) | np.isneginf(costs)
    require(~bad, "cost", costs, ": give finite costs, or inf for a forbidden pair")
    return costs


def ranked_assignment(cost: Float[np.ndarray, "agent role"]) -> tuple[np.ndarray, float, float] | None:
    """Best map, its cost and its margin; None if no map is possible."""
    best = _cheapest(cost)
    if best is None:
        return None
    second = math.inf
    for agent in range(len(cost)):
        without = cost.copy()
        without[agent, best[0][agent]] = np.inf
        other = _cheapest(without)
        if other is not None:
            # The solver's sums round, so that it can take two near ties in the wrong order.
            best, other = (other, best) if other[1] < best[1] else (best, other)
            second = min(second, other[1])
    return *best, second - best[1]


def _cheapest(cost: Float[np.ndarray, "agent role"]) -> tuple[np.ndarray, float] | None:
    from scipy.optimize import linear_sum_assignment

    try:
        agents, role = linear_sum_assignment(cost)
    except ValueError:  # infeasible: NaN and -inf were refused before
        return None
    return role, math.fsum(cost[agents, role])
