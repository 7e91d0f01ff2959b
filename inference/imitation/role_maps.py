"""Maps of the agents of each game to roles, weighted by their posterior.

Le, Yue, Carr, Lucey (2017), Algorithm 4, assigns the most probable map. Here the probability of each agent-role pair
weights what the agent's data teach the policy of the role.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ethogram.models.optimal_assignment import optimal_assignment
from ethogram.models.roles.log_permanent import matching_marginals

__all__ = ["RoleMaps", "certain_probability", "map_probability", "shuffled_roles", "weighted_maps"]

LEAST_WEIGHT = 0.01
"""Pairs of agent and role that are less probable do not enter training."""


class RoleMaps(NamedTuple):
    """Weighted one-to-one maps.

    Attributes
    ----------
    best : (game, agent), the most probable map of each game.
    game : (map,), game of each map.
    role : (map, agent), role of each agent.
    weight : (map, agent), of the agent's data under this map; over all maps of a game, the weights of an agent in a
        role sum to the probability of that role.
    """

    best: Int[np.ndarray, "game agent"]
    game: Int[np.ndarray, "map"]
    role: Int[np.ndarray, "map agent"]
    weight: Float[np.ndarray, "map agent"]


def map_probability(
    log_likelihood: Float[np.ndarray, "game agent role"],
) -> Float[np.ndarray, "game agent role"]:
    """Probability of each agent-role pair under one-to-one maps that are equally probable a priori."""
    return np.asarray(matching_marginals(log_likelihood), dtype=float)


def certain_probability(
    roles: Int[np.ndarray, "game agent"], num_roles: int
) -> Float[np.ndarray, "game agent role"]:
    """Probability one for known roles."""
    return (roles[..., None] == np.arange(num_roles)).astype(float)


def shuffled_roles(
    rng: np.random.Generator, num_games: int, num_agents: int, num_roles: int
) -> Int[np.ndarray, "game agent"]:
    """An arbitrary one-to-one map for each game, the baseline without structure."""
    everyone = np.broadcast_to(np.arange(num_roles), (num_games, num_roles))
    return rng.permuted(everyone, axis=1)[:, :num_agents]


def weighted_maps(
    probability: Float[np.ndarray, "game agent role"],
    log_likelihood: Float[np.ndarray, "game agent role"] | None = None,
) -> RoleMaps:
    """Maps that carry the probability of every pair: the best map, and for other pairs the best map that has them.

    Parameters
    ----------
    probability : of each pair, as `map_probability` gives it.
    log_likelihood : by which maps are compared; the log of `probability` where None.
    """
    if log_likelihood is None:
        with np.errstate(divide="ignore"):
            log_likelihood = np.log(probability)
    cost = -np.asarray(log_likelihood, dtype=float)
    best = optimal_assignment(cost).role.astype(int)
    num_games, num_agents, num_roles = cost.shape
    held = certain_probability(best, num_roles).astype(bool)
    kept = np.where((probability >= LEAST_WEIGHT) | held, probability, 0.0)
    total = kept.sum(axis=2, keepdims=True)
    kept = np.divide(kept, total, out=held.astype(float), where=total > 0)
    weights = {(game, tuple(best[game])): np.zeros(num_agents) for game in range(num_games)}
    for game in range(num_games):
        weights[game, tuple(best[game])] += kept[game, np.arange(num_agents), best[game]]
    for game, agent, role in np.argwhere((kept > 0) & ~held):
        forced = cost[game].copy()
        forced[agent, np.arange(num_roles) != role] = np.inf
        other = tuple(optimal_assignment(forced).role.tolist())
        weights.setdefault((int(game), other), np.zeros(num_agents))[agent] += kept[game, agent, role]
    return RoleMaps(
        best,
        np.array([game for game, _ in weights]),
        np.array([role for _, role in weights]),
        np.array(list(weights.values())),
    )
