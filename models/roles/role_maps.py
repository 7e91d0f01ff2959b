r"""Chains of one-to-one maps of agents to roles: distinct roles in every frame, exactly, where the maps are few.

A map :math:`\sigma` of the agents of a group to distinct roles is one state of a chain with initial weight
:math:`\sum_a \ln p_0(\sigma(a))`, transitions :math:`\sum_a \ln P(\sigma(a), \sigma'(a))` and step potentials
:math:`\sum_a L_t(a, \sigma(a))`, so that the recursions of :mod:`ethogram.models.chains` apply. Ours.
"""

from __future__ import annotations

import functools
import itertools
import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int

from ethogram.models.chains import markov_chain

__all__ = ["MAX_MAPS", "MapChain", "map_chain", "num_maps"]

MAX_MAPS = 720
"""Maps that are summed over at most: 6 agents in 6 roles."""


def num_maps(num_agents: int, num_roles: int) -> int:
    """Number of one-to-one maps of agents to roles, ``K! / (K - K_a)!``."""
    return math.perm(num_roles, num_agents)


@functools.lru_cache
def one_to_one_maps(num_agents: int, num_roles: int) -> Int[np.ndarray, "map agent"]:
    """All one-to-one maps, the roles of the agents of each."""
    return np.array(list(itertools.permutations(range(num_roles), num_agents)), np.int32)


class MapChain(NamedTuple):
    """The chain of maps of every group, with its log potentials."""

    maps: np.ndarray  # (map, agent)
    log_initial: Array  # (map,)
    log_transition: Array  # (map, next_map)
    step_potentials: Array  # (group, time, map)
    lengths: Array  # (group,)

    def log_normalizer(self) -> Float[Array, "group"]:
        """Log of the summed weight of all sequences of maps."""
        return markov_chain.log_normalizer(*self[1:])

    def marginals(self) -> Float[Array, "group time agent role"]:
        """Probability of every agent-role pair in every frame; zero beyond a length."""
        state = markov_chain.marginals(*self[1:]).state
        holds = self.maps[..., None] == np.arange(self.maps.max() + 1)
        return jnp.einsum("gtm,mak->gtak", state, holds.astype(state.dtype), precision="highest")

    def most_likely(self) -> Int[Array, "group time agent"]:
        """Roles of the agents along the most likely sequence of maps."""
        return jnp.asarray(self.maps)[jnp.maximum(markov_chain.most_likely_path(*self[1:]).path, 0)]


def map_chain(log_initial: Array, log_transition: Array, potentials: Array, lengths: Array) -> MapChain:
    """Chains of the maps of agents to roles.

    Parameters
    ----------
    log_initial, log_transition : (role,) and (role, next_role), of one agent.
    potentials : (group, time, agent, role), log weight of each agent in each role.
    lengths : (group,) integers, frames.
    """
    maps = one_to_one_maps(*potentials.shape[-2:])
    of_agents = list(maps.T)
    initial = jnp.sum(log_initial[maps], axis=-1)
    transition = functools.reduce(jnp.add, [log_transition[roles][:, roles] for roles in of_agents])
    steps = functools.reduce(jnp.add, [potentials[..., a, roles] for a, roles in enumerate(of_agents)])
    return MapChain(maps, initial, transition, steps, lengths)
