"""Roles of agents under a fit: optimal assignment, one role each, and how decided it is; role paths."""

import math
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from ethogram.inference.posterior import Posterior
from ethogram.models.log_permanent import matching_marginals
from ethogram.models.markov_chain import e_step, most_likely_path
from ethogram.models.trajectories import Trajectories, group_labels, valid_steps

__all__ = ["Assignment", "InferredRoles", "assign_roles", "infer_roles", "optimal_assignment"]


class Assignment(NamedTuple):
    """The cheapest one-to-one maps of agents to roles.

    Attributes
    ----------
    role : (..., agent), the role of each agent.
    cost : (...), the cost of the map, in the unit of the costs it was made from.
    margin : (...), what the second-best map costs more: 0 for a tie, ``inf`` if no other map is possible.
    """

    role: Int[np.ndarray, "*batch agent"]
    cost: Float[np.ndarray, "*batch"]
    margin: Float[np.ndarray, "*batch"]


class InferredRoles(NamedTuple):
    """Roles step by step.

    Attributes
    ----------
    path : (sequence, time), the most likely path of roles, -1 beyond the length.
    probability : (sequence, time, role), of every role at every step; zero beyond the length.
    """

    path: Int[np.ndarray, "sequence time"]
    probability: Float[np.ndarray, "sequence time role"]


def assign_roles(posterior: Posterior, data: Trajectories) -> Assignment:
    r"""One role for every sequence, no two in a group alike; the cost of each group's map, and its margin.

    The cost of agent a in role k is :math:`-\sum_t E_q \ln p(x_{a,t} \mid \phi_k)` over its observed steps.
    (The paper prints the product of a likelihood and its logarithm, which is no cost: it is not monotone.)

    Parameters
    ----------
    posterior : of a `RoleHMM`.
    data : trajectories; sequences without a group (None or -1) are groups of their own.

    Returns
    -------
    Assignment
        `role` (sequence,); `cost` and `margin` (group,), groups in ascending order of their number, those without
        one last; costs in nats.

    Raises
    ------
    ValueError
        If a group has more agents than there are roles, or known states leave no map.

    References
    ----------
    Le, Yue, Carr, Lucey (2017), Algorithm 4, with eq. 2 mended.
    """
    model = posterior.model
    model.check(data)
    potentials = _role_potentials(model, posterior.expected_statistics(), _chains(model, data))
    cost = -np.asarray(potentials, dtype=float)
    numbers, unit, counts = np.unique(group_labels(data), return_inverse=True, return_counts=True)
    if counts.max() > cost.shape[1]:
        raise ValueError(
            f"group {numbers[counts.argmax()]} has {counts.max()} agents, the model num_roles={cost.shape[1]}: "
            "no map gives each its own role"
        )
    role = np.empty(data.num_sequences, dtype=np.int32)
    total, margin = np.empty(len(counts)), np.empty(len(counts))
    for number in range(len(counts)):
        members = np.flatnonzero(unit == number)
        found = _ranked(_checked(cost[members]))
        if found is None:
            raise ValueError(
                f"group {numbers[number]} has no possible map: known states or symbols of probability 0 forbid "
                "every one"
            )
        role[members], total[number], margin[number] = found
    return Assignment(role, total, margin)


def infer_roles(posterior: Posterior, data: Trajectories) -> InferredRoles:
    r"""Most likely role paths, and the probability of every role at every step.

    Both are taken under q's expected log potentials, as in its local step. With exclusive roles the path of an
    agent is its role in the optimal assignment, and the probabilities are those of the matching.

    Raises
    ------
    ValueError, TypeError
        If the data do not fit the model.
    """
    model, expected = posterior.model, posterior.expected_statistics()
    model.check(data)
    chains = _chains(model, data)
    inside = np.asarray(valid_steps(data))
    if model.exclusive is None:
        path, probability = _decode(model, expected, chains)
        return InferredRoles(np.asarray(path), np.asarray(probability))
    order, shape = model.group_order(data), model.group_shape(data)
    potentials = _role_potentials(model, expected, chains)
    marginals = matching_marginals(potentials[order].reshape(*shape, -1)).reshape(data.num_sequences, -1)
    probability = np.empty(marginals.shape, dtype=marginals.dtype)
    probability[order] = marginals
    roles = assign_roles(posterior, data).role
    path = np.where(inside, roles[:, None], -1)
    return InferredRoles(path.astype(np.int32), np.where(inside[..., None], probability[:, None], 0))


def _chains(model: Any, data: Trajectories) -> Any:
    arranged = model.arrange(data)
    return getattr(arranged, "chains", arranged)


@jax.jit
def _role_potentials(model, expected, chains):
    return model.role_potentials(expected, chains)


@jax.jit
def _decode(model, expected, chains):
    log_initial, log_transition = expected["initial"].concentration, expected["transition"].concentration
    steps = model.step_potentials(expected, chains)
    path = most_likely_path(log_initial, log_transition, steps, chains.lengths).path
    return path, e_step(log_initial[None], log_transition[None], steps[None], chains.lengths[None]).state[0]


def optimal_assignment(cost: ArrayLike) -> Assignment:
    r"""Cheapest one-to-one map of agents to roles, its cost, and the gap to the second-best map.

    .. math:: \min_\sigma \sum_a C_{a, \sigma(a)}

    over the injective maps :math:`\sigma`. Maps whose costs are equal, as correctly rounded sums, tie: of
    these the lexicographically smallest vector of roles comes back. The second-best map lacks a pair of the
    best, so it is among the best maps that forbid one such pair.

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
    costs = _checked(cost)
    *batch, num_agents, _ = costs.shape
    role = np.zeros((*batch, num_agents), np.int32)
    total, margin = np.zeros(batch), np.zeros(batch)
    for entry in np.ndindex(*batch):
        found = _ranked(costs[entry])
        if found is None:
            place = f"cost[{', '.join(map(str, entry))}]" if entry else "cost"
            raise ValueError(
                f"{place} forbids every one-to-one map: make more entries finite or leave an agent out"
            )
        role[entry], total[entry], margin[entry] = found
    return Assignment(role, total, margin)


def _checked(cost: ArrayLike) -> Float[np.ndarray, "*batch agent role"]:
    costs = np.asarray(cost, dtype=np.float64)
    if costs.ndim < 2:
        raise ValueError(f"cost has shape {costs.shape}: give at least two axes, (..., agent, role)")
    num_agents, num_roles = costs.shape[-2:]
    if num_agents > num_roles:
        raise ValueError(
            f"cost has {num_agents} agents but {num_roles} roles: "
            f"a one-to-one map needs at least {num_agents} roles"
        )
    bad = np.isnan(costs) | np.isneginf(costs)
    if bad.any():
        place = tuple(int(i) for i in np.argwhere(bad)[0])
        raise ValueError(
            f"cost{list(place)} is {costs[place]}: give finite costs, or inf for a forbidden pair"
        )
    return costs


def _ranked(cost: Float[np.ndarray, "agent role"]) -> tuple[np.ndarray, float, float] | None:
    """Best map, its cost and its margin; None if no map is possible."""
    best = _cheapest(cost)
    if best is None:
        return None
    second = math.inf
    for agent in range(len(cost)):
        other = _cheapest(_forbid(cost, agent, best[0][agent]))
        if other is not None:
            # The solver's sums round, so that it can take two near ties in the wrong order.
            best, other = (other, best) if other[1] < best[1] else (best, other)
            second = min(second, other[1])
    role, total = best
    return (_first_of_ties(cost, role, total) if second == total else role), total, second - total


def _cheapest(cost: Float[np.ndarray, "agent role"]) -> tuple[np.ndarray, float] | None:
    from scipy.optimize import linear_sum_assignment

    try:
        agents, role = linear_sum_assignment(cost)
    except ValueError:  # infeasible: NaN and -inf were refused before
        return None
    return role, math.fsum(cost[agents, role])


def _forbid(cost: Float[np.ndarray, "agent role"], agent: int, roles: Any) -> Float[np.ndarray, "agent role"]:
    changed = cost.copy()
    changed[agent, roles] = np.inf
    return changed


def _first_of_ties(cost: Float[np.ndarray, "agent role"], role: np.ndarray, total: float) -> np.ndarray:
    """Lexicographically smallest map of cost `total`, from any map `role` of that cost."""
    for agent in range(len(cost)):
        for smaller in range(role[agent]):
            found = _cheapest(_forbid(cost, agent, np.arange(cost.shape[1]) != smaller))
            if found is not None and found[1] <= total:
                role = found[0]
                break
        cost = _forbid(cost, agent, np.arange(cost.shape[1]) != role[agent])
    return role
