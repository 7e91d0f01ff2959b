r"""Exclusive roles: distinct roles of the agents of a group, constant over a demonstration.

.. math:: \sigma_g \sim \text{uniform over one-to-one maps of agents to roles}, \qquad
          y_{g a t} \mid \sigma_g(a) = k \sim p(\cdot \mid \phi_k)

The one-to-one maps are marginalised by a log-permanent: with :math:`W_{ak} = \sum_t \ln p(y_{at} \mid \phi_k)`,
:math:`\ln p(y_g) = \mathrm{lper}(W) - \ln (K! / (K - K_a)!)`. Ours; Le, Yue, Carr, Lucey (2017), Algorithm 4, assign
distinct roles after the fit.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from jaxtyping import Float
from numpyro.distributions import constraints

from ethogram.models.chains.conjugate_chain import masked_log_likelihood
from ethogram.models.chains.emitted_steps import log_prob_of_steps, sample_steps
from ethogram.models.model_object import model_object, static_field
from ethogram.models.roles.log_permanent import log_permanent, matching_marginals, sample_matching

__all__ = ["ExclusiveRoles", "GroupedChains", "log_num_maps"]


@model_object
class GroupedChains:
    """Sequences in order of their groups, each of `num_agents` agents."""

    chains: Any  # ChainData, or Trajectories where densities are asked for
    num_agents: int = static_field()


def log_num_maps(num_agents: int, num_roles: int) -> float:
    """Log of the number of one-to-one maps of agents to roles, ``K! / (K - K_a)!``."""
    return math.lgamma(num_roles + 1) - math.lgamma(num_roles - num_agents + 1)


class ExclusiveRoles(dist.Distribution):
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

    arg_constraints: ClassVar[dict] = {}
    pytree_data_fields = ("emission", "lengths", "observed", "states")

    def __init__(
        self,
        emission: dist.Distribution,
        lengths: Any,
        observed: Any,
        states: Any = None,
        *,
        validate_args: bool | None = None,
    ):
        self.emission, self.lengths, self.observed, self.states = emission, lengths, observed, states
        *batch_shape, num_agents, num_steps = jnp.shape(observed)
        num_roles = emission.batch_shape[-1]
        if num_agents > num_roles:
            raise ValueError(
                f"{num_agents} agents in {num_roles} exclusive roles: give num_roles >= {num_agents}"
            )
        super().__init__(
            tuple(batch_shape), (num_agents, num_steps, *emission.event_shape), validate_args=validate_args
        )

    @property
    def support(self):
        """Support of the emission, over all agents and steps."""
        return constraints.independent(self.emission.support, 2)

    @property
    def num_roles(self) -> int:
        """Number of roles, at least the number of agents."""
        return self.emission.batch_shape[-1]

    def _alive(self) -> Array:
        steps = jnp.arange(self.event_shape[1])
        lengths = jnp.asarray(self.lengths)
        return steps.reshape((1,) * lengths.ndim + (-1,)) < lengths[..., None]

    def _restricted(self, each: Array, observed: Array) -> Array:
        """Log likelihood (..., agent, time, role) summed over steps, ``-inf`` off an agent's known role."""
        states = None if self.states is None else jnp.where(self._alive(), jnp.asarray(self.states), -1)
        return jnp.sum(masked_log_likelihood(each, observed, states), axis=-2)

    def role_potentials(self, value: Any) -> Float[Array, "*batch agent role"]:
        """Log likelihood of every agent in every role summed over its steps, W (..., agent, role)."""
        known = jnp.asarray(self.observed) & self._alive()
        return self._restricted(log_prob_of_steps(self.emission, value, known), known)

    def log_prob(self, value: Any) -> Float[Array, "*batch"]:
        """Log evidence of each group, jointly with its known roles."""
        return log_permanent(self.role_potentials(value)) - log_num_maps(self.event_shape[0], self.num_roles)

    def smooth(self, value: Any) -> Float[Array, "*batch agent role"]:
        """Posterior probability of every agent-role pair (..., agent, role)."""
        return matching_marginals(self.role_potentials(value))

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Observations (*sample_shape, group, agent, time, *event); zero beyond a length."""
        return self.sample_with_roles(key, sample_shape)[0]

    def sample_with_roles(self, key: Array, sample_shape: tuple[int, ...] = ()) -> tuple[Array, Array]:
        """Observations and the role of every agent (*sample_shape, group, agent)."""
        shape = (*sample_shape, *self.batch_shape)
        num_agents, num_steps = self.event_shape[:2]
        key_roles, key_observations = jax.random.split(key)
        observed = jnp.asarray(self.observed)
        nothing_seen = jnp.zeros((*observed.shape, self.num_roles))
        potentials = self._restricted(nothing_seen, jnp.ones_like(observed))
        potentials = jnp.broadcast_to(potentials, (*shape, num_agents, self.num_roles))
        roles = jnp.maximum(sample_matching(key_roles, potentials), 0)
        steps = (*shape, num_agents, num_steps)
        held, known = (jnp.broadcast_to(x, steps) for x in (roles[..., None], observed & self._alive()))
        observations = sample_steps(self.emission, key_observations, held, known)
        inside = jnp.broadcast_to(self._alive(), steps)
        inside = inside.reshape(inside.shape + (1,) * self.emission.event_dim)
        return jnp.where(inside, observations, 0), roles
