r"""Exclusive roles: distinct roles of the agents of a group, constant over a demonstration.

.. math:: \sigma_g \sim \text{uniform over one-to-one maps of agents to roles}, \qquad
          y_{g a t} \mid \sigma_g(a) = k \sim p(\cdot \mid \phi_k)

The one-to-one maps are marginalised by a log-permanent: with :math:`W_{ak} = \sum_t \ln p(y_{at} \mid \phi_k)`,
:math:`\ln p(y_g) = \mathrm{lper}(W) - \ln (K! / (K - K_a)!)`. The model is original to this package; Le, Yue, Carr,
Lucey (2017), Algorithm 4, assign distinct roles after the fit.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from ethogram.models.optimal_assignment import optimal_assignment
from ethogram.models.roles.log_permanent import log_permanent, matching_marginals, sample_matching
from ethogram.models.roles.role_couplings import Decoded, IndependentRoles, role_potentials
from ethogram.models.roles.role_groups import GroupDistribution, GroupedChains
from ethogram.models.roles.starts import StartData, random_maps

__all__ = ["ExclusiveRoles", "PerSequence", "log_num_maps"]


def log_num_maps(num_agents: int, num_roles: int) -> float:
    """Log of the number of one-to-one maps of agents to roles, ``K! / (K - K_a)!``."""
    return math.lgamma(num_roles + 1) - math.lgamma(num_roles - num_agents + 1)


class ExclusiveRoles(GroupDistribution):
    """Distribution of a group's observations given that its agents hold distinct roles.

    One batch entry is one group; values are ``(..., agent, time, *event)``. Entries beyond a length, or at
    unobserved steps, are ignored.

    Parameters
    ----------
    emission : a numpyro distribution with batch shape (role,).
    lengths : (group, agent) integers.
    observed : (group, agent, time) booleans.
    states : (group, agent, time) integers, known roles, -1 where unknown; None for none.
    """

    def role_potentials(self, value: Any) -> Float[Array, "*batch agent role"]:
        """Log likelihood of every agent in every role summed over its steps, W (..., agent, role)."""
        return jnp.sum(self._step_potentials(value), axis=-2)

    def log_prob(self, value: Any) -> Float[Array, "*batch"]:
        """Log evidence of each group, jointly with its known roles."""
        return log_permanent(self.role_potentials(value)) - log_num_maps(self.event_shape[0], self.num_roles)

    def smooth(self, value: Any) -> Float[Array, "*batch agent role"]:
        """Posterior probability of every agent-role pair (..., agent, role)."""
        return matching_marginals(self.role_potentials(value))

    def sample_with_roles(self, key: Array, sample_shape: tuple[int, ...] = ()) -> tuple[Array, Array]:
        """Observations and the role of every agent (*sample_shape, group, agent)."""
        shape = (*sample_shape, *self.batch_shape)
        num_agents, num_steps = self.event_shape[:2]
        key_roles, key_observations = jax.random.split(key)
        observed = jnp.asarray(self.observed)
        nothing_seen = jnp.zeros((*observed.shape, self.num_roles))
        potentials = jnp.sum(self._restricted(nothing_seen, jnp.ones_like(observed)), axis=-2)
        potentials = jnp.broadcast_to(potentials, (*shape, num_agents, self.num_roles))
        roles = jnp.maximum(sample_matching(key_roles, potentials), 0)
        held = jnp.broadcast_to(roles[..., None], (*shape, num_agents, num_steps))
        return self._emitted(key_observations, held), roles


class PerSequence(IndependentRoles):
    """One role per agent and demonstration, all distinct: maps are summed by a log-permanent."""

    has_chain = False
    is_joint = True

    def log_normalizer(self, model: Any, expected: dict[str, Any], batch: GroupedChains) -> Float[Array, ""]:
        """Summed log-permanents of the potentials, relative to all maps."""
        potentials = model.role_potentials(expected, batch.chains)
        potentials = potentials.reshape(-1, batch.num_agents, model.num_roles)
        return jnp.sum(log_permanent(potentials) - log_num_maps(batch.num_agents, model.num_roles))

    def observation(
        self, emission: Any, parameters: dict[str, Any], lengths: Any, observed: Any, states: Any
    ) -> ExclusiveRoles:
        """Distribution of the data of whole groups at parameters by site."""
        return ExclusiveRoles(emission, lengths, observed, states)

    def start_labels(
        self, model: Any, rng: np.random.Generator, kind: str, data: StartData
    ) -> list[np.ndarray]:
        """One random map per group, whatever the kind."""
        return [random_maps(rng, batch, model.num_roles) for batch in data.batches]

    def decode(self, model: Any, expected: dict[str, Any], batch: GroupedChains) -> Decoded:
        """Optimal assignment of each group, and the marginals of the matching."""
        potentials = role_potentials(model, expected, batch.chains)
        grouped = potentials.reshape(-1, batch.num_agents, model.num_roles)
        role = optimal_assignment(-np.asarray(grouped, dtype=float)).role.reshape(-1, 1)
        probability = np.asarray(matching_marginals(grouped)).reshape(-1, 1, model.num_roles)
        num_steps = batch.chains.observed.shape[1]
        return np.repeat(role, num_steps, axis=1), np.repeat(probability, num_steps, axis=1)
