"""Groups of equal size, whose agents have roles that exclude one another: checks, arranged data, distributions."""

from __future__ import annotations

from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from jaxtyping import Float, Int
from numpyro.distributions import constraints

from ethogram.models.arguments import is_concrete, require
from ethogram.models.chains.conjugate_chain import masked_log_likelihood
from ethogram.models.chains.emitted_steps import log_prob_of_steps, sample_steps
from ethogram.models.data.selection import label_name
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.model_object import model_object, static_field

__all__ = ["GroupDistribution", "GroupedChains", "agents_of_groups", "grouped_sequences"]


@model_object
class GroupedChains:
    """Sequences in order of their groups, each of `num_agents` agents."""

    chains: Any  # ChainData, or Trajectories where densities are asked for
    num_agents: int = static_field()


class GroupDistribution(dist.Distribution):
    """Base class of distributions of a group's observations, given that its agents hold distinct roles.

    Parameters, batch and values are those of :class:`~ethogram.models.roles.ExclusiveRoles`.
    """

    arg_constraints: ClassVar[dict] = {}
    pytree_data_fields: ClassVar[tuple[str, ...]] = ("emission", "lengths", "observed", "states")

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
        if num_agents > self.num_roles:
            raise ValueError(
                f"{num_agents} agents in {self.num_roles} exclusive roles: give num_roles >= {num_agents}"
            )
        event_shape = num_agents, num_steps, *emission.event_shape
        super().__init__(tuple(batch_shape), event_shape, validate_args=validate_args)

    @property
    def support(self):
        """Support of the emission, over all agents and steps."""
        return constraints.independent(self.emission.support, 2)

    @property
    def num_roles(self) -> int:
        """Number of roles, at least the number of agents."""
        return self.emission.batch_shape[-1]

    def sample_with_roles(self, key: Array, sample_shape: tuple[int, ...] = ()) -> tuple[Array, Array]:
        """Observations (*sample_shape, group, agent, time, *event), zero beyond a length, and the agents' roles."""
        raise NotImplementedError

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Observations (*sample_shape, group, agent, time, *event); zero beyond a length."""
        return self.sample_with_roles(key, sample_shape)[0]

    def _alive(self) -> Array:
        """Whether steps (..., agent, time) are within their length."""
        return jnp.arange(self.event_shape[1]) < jnp.asarray(self.lengths)[..., None]

    def _restricted(self, each: Array, observed: Any) -> Float[Array, "*batch agent time role"]:
        """Log likelihood of every step: zero where not observed, ``-inf`` off an agent's known role."""
        states = None if self.states is None else jnp.where(self._alive(), jnp.asarray(self.states), -1)
        return masked_log_likelihood(each, observed, states)

    def _step_potentials(self, value: Any) -> Float[Array, "*batch agent time role"]:
        """Log likelihood of every step in every role."""
        known = jnp.asarray(self.observed) & self._alive()
        return self._restricted(log_prob_of_steps(self.emission, value, known), known)

    def _emitted(self, key: Array, roles: Int[Array, "*batch agent time"]) -> Array:
        """Observations of agents in these roles; zero beyond a length."""
        known = jnp.broadcast_to(jnp.asarray(self.observed) & self._alive(), roles.shape)
        observations = sample_steps(self.emission, key, roles, known)
        inside = jnp.broadcast_to(self._alive(), roles.shape)
        return jnp.where(inside.reshape(*roles.shape, *(1,) * self.emission.event_dim), observations, 0)


def agents_of_groups(data: Trajectories, num_roles: int) -> int:
    """Number of agents of every group.

    Raises
    ------
    ValueError, TypeError
        If the group of a sequence is unknown or traced, groups differ in size or have more agents than roles, or an
        agent is twice in a group.
    """
    if data.group is None:
        raise ValueError("data.group is None: exclusive roles need the group of every sequence")
    if not is_concrete(data.group):
        raise TypeError(
            "data.group is traced: exclusive roles need concrete groups: pass NumPy arrays, outside jit"
        )
    group = np.asarray(data.group)
    rule = ": exclusive roles need the group of every sequence; drop sequences without one"
    require(group >= 0, "data.group", group, rule)
    groups, counts = np.unique(group, return_counts=True)
    for odd in np.flatnonzero(counts != counts[0])[:1]:
        raise ValueError(
            f"ragged groups: group {label_name(data, 'group', groups[odd])} has {counts[odd]} agents, group "
            f"{label_name(data, 'group', groups[0])} has {counts[0]}; exclusive roles need groups of equal size: drop "
            "the others"
        )
    if counts[0] > num_roles:
        raise ValueError(
            f"groups have {counts[0]} agents for num_roles={num_roles} exclusive roles: "
            f"give num_roles >= {counts[0]}"
        )
    if data.agent is not None:
        pairs, repeats = np.unique([group, np.asarray(data.agent)], axis=1, return_counts=True)
        for number, agent in pairs[:, repeats > 1].T[:1]:
            raise ValueError(
                f"agent {label_name(data, 'agent', agent)} appears twice in group {label_name(data, 'group', number)}: "
                "give the agents of a group distinct numbers"
            )
    return int(counts[0])


def grouped_sequences(data: Trajectories, num_roles: int) -> Int[np.ndarray, "group agent"]:
    """Sequence numbers of the agents of each group, in order of appearance; raises as `agents_of_groups`."""
    return np.argsort(np.asarray(data.group), kind="stable").reshape(-1, agents_of_groups(data, num_roles))
