r"""Distinct roles: the agents of a group are independent chains, given that no two share a role in any frame.

The evidence D, "roles are distinct in every frame", is conditioned on like data, so that conjugate updates stand:
``log_prob`` is :math:`\ln p(y, D \mid \theta)`. The probability of D alone is `role_sets.log_prob_distinct`. Ours; Le,
Yue, Carr, Lucey (2017), Algorithm 4, assign distinct roles after the fit, one a demonstration.
"""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from jaxtyping import Float
from numpyro.distributions import constraints

from ethogram.models.chains.conjugate_chain import masked_log_likelihood
from ethogram.models.chains.emitted_steps import log_prob_of_steps, sample_steps
from ethogram.models.chains.log_space import safe_log
from ethogram.models.roles.mean_field_roles import FrameChain, bound, settle
from ethogram.models.roles.role_maps import MAX_MAPS, map_chain, num_maps
from ethogram.models.roles.role_sets import log_prob_distinct, sample_distinct

__all__ = ["SETTLING", "DistinctRoles"]

SETTLING = 10
"""Sweeps of the mean field where parameters are fixed."""


class DistinctRoles(dist.Distribution):
    """Distribution of a group's observations jointly with the evidence that its roles are distinct in every frame.

    One batch entry is one group; values are ``(..., agent, time, *event)``. All agents hold a role until the last frame
    of the group. Entries beyond a length, or at unobserved steps, are ignored. With more than 720 maps of agents to
    roles, ``log_prob`` is the lower bound of :mod:`ethogram.models.roles.mean_field_roles`.

    Parameters
    ----------
    initial, transition : probabilities (role,) and (role, next_role).
    emission : a numpyro distribution with batch shape (role,).
    lengths : (group, agent) integers.
    observed : (group, agent, time) booleans.
    states : (group, agent, time) integers, known roles, -1 where unknown; None for none.
    """

    arg_constraints: ClassVar[dict] = {}
    pytree_data_fields = ("initial", "transition", "emission", "lengths", "observed", "states")

    def __init__(
        self,
        initial: Any,
        transition: Any,
        emission: dist.Distribution,
        lengths: Any,
        observed: Any,
        states: Any = None,
        *,
        validate_args: bool | None = None,
    ):
        self.initial, self.transition, self.emission = jnp.asarray(initial), jnp.asarray(transition), emission
        self.lengths, self.observed, self.states = lengths, observed, states
        num_groups, num_agents, num_steps = jnp.shape(observed)
        num_roles = emission.batch_shape[-1]
        if num_agents > num_roles:
            raise ValueError(
                f"{num_agents} agents in {num_roles} exclusive roles: give num_roles >= {num_agents}"
            )
        shape = (num_agents, num_steps, *emission.event_shape)
        super().__init__((num_groups,), shape, validate_args=validate_args)

    @property
    def support(self):
        """Support of the emission, over all agents and steps."""
        return constraints.independent(self.emission.support, 2)

    @property
    def is_exact(self) -> bool:
        """Whether ``log_prob`` is the log evidence, not a bound."""
        return num_maps(self.event_shape[0], self.emission.batch_shape[-1]) <= MAX_MAPS

    @property
    def _group_lengths(self) -> Array:
        return jnp.max(jnp.asarray(self.lengths), axis=-1)

    def _alive(self) -> Array:
        return jnp.arange(self.event_shape[1]) < jnp.asarray(self.lengths)[..., None]

    def _chain(self, value: Any) -> FrameChain:
        known = jnp.asarray(self.observed) & self._alive()
        each = log_prob_of_steps(self.emission, value, known)
        states = None if self.states is None else jnp.where(self._alive(), jnp.asarray(self.states), -1)
        potentials = jnp.swapaxes(masked_log_likelihood(each, known, states), 1, 2)
        frames = jnp.arange(self.event_shape[1]) < self._group_lengths[:, None]
        return FrameChain(safe_log(self.initial), safe_log(self.transition), potentials, frames)

    def log_prob(self, value: Any) -> Float[Array, "*batch"]:
        """Log probability of each group's data and distinct roles, in nats; a lower bound unless `is_exact`."""
        chain = self._chain(value)
        if self.is_exact:
            return map_chain(*chain[:3], self._group_lengths).log_normalizer()
        return bound(chain, jax.lax.stop_gradient(settle(chain, SETTLING)))

    @jax.jit
    def log_prob_of_condition(self) -> Float[Array, "*batch"]:
        """Log probability that the roles of each group are distinct in every frame, by `role_sets`."""
        num_agents, num_steps = self.event_shape[:2]
        each = log_prob_distinct(self.initial, self.transition, num_agents, num_steps)
        lengths = self._group_lengths
        return jnp.where(lengths > 0, each[jnp.maximum(lengths - 1, 0)], 0)

    def smooth(self, value: Any) -> Float[Array, "*batch time agent role"]:
        """Posterior probability of every role of every agent in every frame (group, time, agent, role)."""
        chain = self._chain(value)
        if self.is_exact:
            return map_chain(*chain[:3], self._group_lengths).marginals()
        return settle(chain, SETTLING).marginals

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Observations (*sample_shape, group, agent, time, *event); zero beyond a length."""
        return self.sample_with_roles(key, sample_shape)[0]

    def sample_with_roles(self, key: Array, sample_shape: tuple[int, ...] = ()) -> tuple[Array, Array]:
        """Observations, and the role of every agent in every frame (*sample_shape, group, agent, time).

        Exact for up to 500 sets of roles, else a ValueError. Known roles are ignored.
        """
        if sample_shape:
            keys = jax.random.split(key, sample_shape[0])
            return jax.vmap(lambda one: self.sample_with_roles(one, sample_shape[1:]))(keys)
        num_agents, num_steps = self.event_shape[:2]
        key_roles, key_observations = jax.random.split(key)
        lengths = self._group_lengths
        roles = sample_distinct(key_roles, self.initial, self.transition, num_agents, lengths, num_steps)
        roles = jnp.swapaxes(roles, 1, 2)
        known = jnp.asarray(self.observed) & self._alive()
        observations = sample_steps(self.emission, key_observations, roles, known)
        inside = self._alive().reshape(*roles.shape, *(1,) * self.emission.event_dim)
        return jnp.where(inside, observations, 0), jnp.where(self._alive(), roles, -1)
