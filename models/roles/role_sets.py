r"""Probability that the roles of a group's agents are distinct in every frame, and samples of such roles, exactly.

What is left of a map of agents to roles, for the probability of all later frames, is the set S of its roles:

.. math:: v_1(S) = K_a! \prod_{k \in S} p_0(k), \qquad
          v_t(S') = \sum_S v_{t-1}(S) \, \mathrm{per}\, P[S, S'], \qquad p(D) = \sum_S v_T(S)

with the permanent of the transitions between two sets; the same recursion from the last frame on gives the weight of
the frames that follow, with which roles are sampled forwards (original to this package).
"""

from __future__ import annotations

import functools
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import ArrayLike, Float, Int

from ethogram.models.chains.log_space import logsumexp, safe_log
from ethogram.models.quick_jit import quick_jit
from ethogram.models.roles.log_permanent import log_permanent, sample_matching

__all__ = ["MAX_SETS", "log_prob_distinct", "sample_distinct"]

MAX_SETS = 500
"""Sets of roles that are summed over at most."""


@functools.lru_cache
def _role_sets(num_agents: int, num_roles: int) -> Int[np.ndarray, "set agent"]:
    count = math.comb(num_roles, num_agents)
    if count > MAX_SETS:
        raise ValueError(
            f"{num_agents} agents in {num_roles} roles leave {count} sets of roles, more than {MAX_SETS}: the "
            "probability of distinct roles is not computed; give fewer roles"
        )
    return np.array(list(itertools.combinations(range(num_roles), num_agents)), np.int32)


def _between(log_transition: Array, sets: np.ndarray) -> Float[Array, "set next_set"]:
    return log_permanent(log_transition[sets[:, None, :, None], sets[None, :, None, :]])


@quick_jit(static_argnames=("num_agents", "num_steps"))
def log_prob_distinct(
    initial: ArrayLike, transition: ArrayLike, num_agents: int, num_steps: int
) -> Float[Array, "time"]:
    """Log probability that the roles are distinct in all of the first 1, 2, ... frames.

    Parameters
    ----------
    initial, transition : probabilities (role,) and (role, next_role).
    num_agents : K_a, each an independent chain.
    num_steps : frames.

    Raises
    ------
    ValueError
        For more than 500 sets of `num_agents` roles.
    """
    log_initial, log_transition = safe_log(jnp.asarray(initial)), safe_log(jnp.asarray(transition))
    sets = _role_sets(num_agents, log_initial.shape[0])
    between = _between(log_transition, sets)
    first = math.lgamma(num_agents + 1) + jnp.sum(log_initial[sets], axis=1)

    def step(weight, _):
        return logsumexp(weight[:, None] + between, axis=0), logsumexp(weight, axis=0)

    return lax.scan(step, first, length=num_steps)[1]


@quick_jit(static_argnames=("num_agents", "num_steps"))
def sample_distinct(
    key: Array, initial: ArrayLike, transition: ArrayLike, num_agents: int, lengths: ArrayLike, num_steps: int
) -> Int[Array, "group time agent"]:
    """Roles of the agents of every group, given that they are distinct in every frame of its length.

    Parameters and errors as in `log_prob_distinct`; `lengths` (group,) integers. Roles beyond a length are arbitrary.
    """
    log_initial, log_transition = safe_log(jnp.asarray(initial)), safe_log(jnp.asarray(transition))
    sets = _role_sets(num_agents, log_initial.shape[0])
    between = _between(log_transition, sets)

    def back(weight, _):
        return logsumexp(between + weight[None], axis=1), weight

    # after[n]: log weight of the next n frames, by the set of the present one
    _, after = lax.scan(back, jnp.zeros(len(sets), between.dtype), length=num_steps)

    def choose(key, into, ahead):
        """Roles of one frame, given log weights (agent, role) of each agent's role in it."""
        key_set, key_map = jax.random.split(key)
        of_sets = jnp.moveaxis(into[:, sets], 1, 0)  # (set, agent, member)
        chosen = jax.random.categorical(key_set, log_permanent(of_sets) + ahead)
        return jnp.asarray(sets)[chosen][jnp.maximum(sample_matching(key_map, of_sets[chosen]), 0)]

    def one_group(key, length):
        keys = jax.random.split(key, num_steps)

        def step(roles, now):
            key, t = now
            into = jnp.where(
                t == 0, jnp.broadcast_to(log_initial, (num_agents, len(log_initial))), log_transition[roles]
            )
            roles = choose(key, into, after[jnp.maximum(length - 1 - t, 0)])
            return roles, roles

        return lax.scan(step, jnp.asarray(sets[0]), (keys, jnp.arange(num_steps)))[1]

    lengths = jnp.asarray(lengths)
    return jax.vmap(one_group)(jax.random.split(key, len(lengths)), lengths)
