"""Assignments of the agents of each game to roles, weighted by their posterior.

Le, Yue, Carr, Lucey (2017), Algorithm 4, takes the most probable assignment. Here the probability of each agent-role
pair weights what the agent's data teach the policy of the role.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ethogram.inference.imitation.world import sequences_of_games
from ethogram.inference.roles.assignment import role_log_likelihood
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.optimal_assignment import optimal_assignment
from ethogram.models.printing import short_repr
from ethogram.models.roles.log_permanent import matching_marginals

__all__ = [
    "WeightedAssignments",
    "game_log_likelihood",
    "known_assignments",
    "roles_of_plays",
    "shuffled_roles",
    "weighted_assignments",
]

LEAST_WEIGHT = 0.01
"""Pairs of agent and role that are less probable do not enter training."""


@short_repr
class WeightedAssignments(NamedTuple):
    """Weighted one-to-one assignments of agents to roles.

    Attributes
    ----------
    probability : (game, agent, role) of every pair.
    best : (game, agent), the most probable assignment of each game.
    game : (assignment,), game of each assignment.
    role : (assignment, agent), role of each agent.
    weight : (assignment, agent), of the agent's data under this assignment; over all assignments of a game, the weights
        of an agent in a role sum to the probability of that role.
    """

    probability: Float[np.ndarray, "game agent role"]
    best: Int[np.ndarray, "game agent"]
    game: Int[np.ndarray, "assignment"]
    role: Int[np.ndarray, "assignment agent"]
    weight: Float[np.ndarray, "assignment agent"]


def shuffled_roles(
    rng: np.random.Generator, num_games: int, num_agents: int, num_roles: int
) -> Int[np.ndarray, "game agent"]:
    """An arbitrary one-to-one assignment of each game, the baseline without structure."""
    everyone = np.broadcast_to(np.arange(num_roles), (num_games, num_roles))
    return rng.permuted(everyone, axis=1)[:, :num_agents]


def known_assignments(roles: Int[np.ndarray, "game agent"], num_roles: int) -> WeightedAssignments:
    """The assignments of known roles, of weight 1."""
    probability = (roles[..., None] == np.arange(num_roles)).astype(float)
    return WeightedAssignments(probability, roles, np.arange(len(roles)), roles, np.ones(roles.shape))


def weighted_assignments(log_likelihood: Float[np.ndarray, "game agent role"]) -> WeightedAssignments:
    """The best assignment of each game, and the best one with each other pair of agent and role that counts.

    Assignments are equally probable a priori.

    Parameters
    ----------
    log_likelihood : of every agent in every role, in nats; -inf for a role that an agent cannot have.
    """
    probability = np.asarray(matching_marginals(log_likelihood), dtype=float)
    cost = -np.asarray(log_likelihood, dtype=float)
    best = optimal_assignment(cost).role.astype(int)
    num_games, num_agents, num_roles = cost.shape
    held = best[..., None] == np.arange(num_roles)
    kept = np.where((probability >= LEAST_WEIGHT) | held, probability, 0.0)
    total = kept.sum(axis=2, keepdims=True)
    kept = np.divide(kept, total, out=held.astype(float), where=total > 0)
    weights = {(game, tuple(best[game])): kept[game][held[game]] for game in range(num_games)}
    for game, agent, role in np.argwhere((kept > 0) & ~held):
        forced = cost[game].copy()
        forced[agent, np.arange(num_roles) != role] = np.inf
        other = tuple(optimal_assignment(forced).role.tolist())
        weights.setdefault((int(game), other), np.zeros(num_agents))[agent] += kept[game, agent, role]
    return WeightedAssignments(
        probability,
        best,
        np.array([game for game, _ in weights]),
        np.array([role for _, role in weights]),
        np.array(list(weights.values())),
    )


def game_log_likelihood(
    fit: Any, data: Trajectories, sequences: Int[np.ndarray, "game agent"]
) -> Float[np.ndarray, "game agent role"]:
    """Expected log likelihood of every agent of the games in every role, in nats."""
    return np.asarray(role_log_likelihood(fit, data), dtype=float)[sequences]


def roles_of_plays(fit: Any, data: Trajectories, num_agents: int) -> WeightedAssignments:
    """Roles of the agents of plays, one group of trajectories each, under a fit of a `RoleHMM`."""
    return weighted_assignments(game_log_likelihood(fit, data, sequences_of_games(data, num_agents)))
