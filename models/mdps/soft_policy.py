r"""The soft-optimal (maximum-entropy) agent as a distribution over demonstrations.

.. math:: \ln p(D \mid r) = \sum_{(s, a) \in D} \ln \pi_r(a \mid s)
          = \sum_{s,a} n(s, a)\, (Q_r(s, a) - V_r(s))

The counts n(s, a) of state-action pairs are sufficient. Densities are of actions given states: transition probabilities
do not depend on the reward and are left out; samples are simulated with them. Ziebart, Bagnell and Dey (2010),
"Modeling interaction via the principle of maximum causal entropy", section 3.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array, lax
from numpyro.distributions import constraints

from ethogram.models.arguments import concretely, is_concrete, require_integer
from ethogram.models.mdps.demonstrations import count_log_likelihood
from ethogram.models.mdps.mdp import MDP
from ethogram.models.mdps.values import SoftSolution, soft_values
from ethogram.models.quick_jit import quick_jit

__all__ = ["ActionCounts", "SoftPolicy", "first_states", "spread"]


class SoftPolicy(dist.Distribution):
    """Demonstrations of a soft-optimal agent with a known reward; each batch entry is one demonstration.

    The value is integers (time, 2), a state and an action per step: -1 for a missing action, and for both in padding.
    ``log_prob`` is that of the actions given the states.

    Parameters
    ----------
    mdp : S states, A actions, a discount below 1.
    reward : (state,) or (state, action); with a leading axis, one per agent.
    length : steps of the longest demonstration.
    pairs : as of `soft_values`.
    lengths : (...) integers, steps of each; all of them `length` where None.
    start : (...) integers, first state of each demonstration; None to draw it from the start distribution.
    agent : (...) integers, which agent demonstrates, for rewards with a leading axis.
    solution : result of `soft_values`, if already known.

    Examples
    --------
    >>> corridor = MDP.deterministic([[0, 1], [0, 2], [1, 2]], discount=0.9)
    >>> agent = SoftPolicy(corridor, jnp.array([0.0, 0.0, 3.0]), length=4, start=jnp.array([0, 0]))
    >>> agent.sample(jax.random.key(0)).shape
    (2, 4, 2)
    """

    arg_constraints: ClassVar[dict] = {}
    pytree_data_fields = ("mdp", "log_policy", "lengths", "start", "agent")
    pytree_aux_fields = ("length",)

    def __init__(
        self,
        mdp: MDP,
        reward: Any,
        *,
        length: int,
        pairs: bool | None = None,
        lengths: Any = None,
        start: Any = None,
        agent: Any = None,
        solution: SoftSolution | None = None,
        validate_args: bool | None = None,
    ):
        require_integer("length", length, 1)
        self.mdp, self.length = mdp, int(length)
        solution = soft_values(mdp, reward, pairs=pairs) if solution is None else solution
        self.log_policy = solution.log_policy
        batch = jnp.broadcast_shapes(*(jnp.shape(x) for x in (lengths, start, agent) if x is not None))
        if agent is None and self.log_policy.ndim > 2:
            raise ValueError(
                f"reward has shape {jnp.shape(reward)}, one per agent: pass agent=, integers per sequence"
            )
        if start is not None and is_concrete(start):
            outside = ~np.isin(np.asarray(start), np.arange(mdp.num_states))
            if outside.any():
                raise ValueError(
                    f"start has {np.asarray(start)[outside][0]}, outside 0..{mdp.num_states - 1}: give states"
                )
        self.lengths = spread(length if lengths is None else lengths, batch)
        self.start, self.agent = spread(start, batch), spread(agent, batch)
        super().__init__(batch, (self.length, 2), validate_args=validate_args)

    @property
    def support(self):
        """Integers, -1 where missing; values that are not states or actions have probability zero."""
        return constraints.independent(constraints.integer_greater_than(-1), 2)

    def log_prob(self, value: Any) -> Array:
        """Log probability (...) of the actions; -inf where one is not available."""
        return _log_prob(self._parts(), spread(value, np.shape(value)))

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Simulated demonstrations (..., time, 2)."""
        return _draw(self._parts(), key, self.length, (*sample_shape, *self.batch_shape))

    def _parts(self) -> _Parts:
        return _Parts(self.mdp, self.log_policy, self.lengths, self.start, self.agent)


class _Parts(NamedTuple):
    """What a `SoftPolicy` holds: as an argument itself, its leaves would have another order in every process."""

    mdp: MDP
    log_policy: Array
    lengths: Array
    start: Array | None
    agent: Array | None


@quick_jit
def _log_prob(acts: _Parts, value: Array) -> Array:
    states, actions = value[..., 0], value[..., 1]
    known = (states >= 0) & (actions >= 0)
    inside = (states < acts.mdp.num_states) & (actions < acts.mdp.num_actions)
    at: tuple[Array, ...] = (jnp.where(known, states, 0), jnp.where(known, actions, 0))
    if acts.agent is not None:
        at = (jnp.broadcast_to(acts.agent[..., None], known.shape), *at)
    each = jnp.where(inside, acts.log_policy[at], -jnp.inf)
    return jnp.sum(jnp.where(known, each, 0), axis=-1)


def _work_of_draws(acts: _Parts, key: Array, length: int, shape: tuple[int, ...]) -> int:
    """Work of `_draw` per number of its arguments: a step takes about 20 for each action."""
    work = 20 * length * math.prod(shape) * acts.log_policy.shape[-1]
    return 1 + work // sum(map(np.size, jax.tree.leaves((acts, key))))


@quick_jit(calls=_work_of_draws, static_argnames=("length", "shape"))
def _draw(acts: _Parts, key: Array, length: int, shape: tuple[int, ...]) -> Array:
    key_start, key_steps = jax.random.split(key)
    state = first_states(acts, key_start, shape)
    agent = None if acts.agent is None else jnp.broadcast_to(acts.agent, shape)

    def step(state, key):
        key_action, key_next = jax.random.split(key)
        log_policy = acts.log_policy[state] if agent is None else acts.log_policy[agent, state]
        action = jax.random.categorical(key_action, log_policy)
        next_state = acts.mdp.transitions.draw(key_next, state, action)
        return next_state.astype(state.dtype), jnp.stack([state, action.astype(state.dtype)], -1)

    steps = lax.scan(step, state, jax.random.split(key_steps, length))[1]
    inside = jnp.arange(length) < acts.lengths[..., None]
    return jnp.where(inside[..., None], jnp.moveaxis(steps, 0, -2), -1)


def first_states(acts: Any, key: Array, shape: tuple[int, ...]) -> Array:
    """States in which demonstrations begin: those given, or drawn from the start distribution."""
    if acts.start is not None:
        return jnp.broadcast_to(acts.start, shape).astype(np.int32)
    probs = jnp.ones(acts.mdp.num_states) if acts.mdp.start is None else acts.mdp.start
    return jax.random.categorical(key, jnp.log(probs), shape=shape).astype(np.int32)


class ActionCounts(dist.Distribution):
    """Counts of actions in a state, given their total; each batch entry is a state.

    ``log_prob`` is that of one sequence of actions, as for `SoftPolicy`: without the multinomial coefficient.

    Parameters
    ----------
    log_policy : (..., action), -inf where an action is not available.
    total : (...) integers, number of actions.
    """

    arg_constraints: ClassVar[dict] = {}
    pytree_data_fields = ("log_policy", "total")

    def __init__(self, log_policy: Any, total: Any, *, validate_args: bool | None = None):
        self.log_policy, self.total = jnp.asarray(log_policy), jnp.asarray(total)
        batch = jnp.broadcast_shapes(self.log_policy.shape[:-1], self.total.shape)
        super().__init__(batch, self.log_policy.shape[-1:], validate_args=validate_args)

    @property
    def support(self):
        """Nonnegative integers."""
        return constraints.independent(constraints.nonnegative_integer, 1)

    def log_prob(self, value: Any) -> Array:
        """Log probability (...) of a sequence of actions with these counts."""
        return count_log_likelihood(self.log_policy, jnp.asarray(value), axis=-1)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Counts (..., action) that sum to the totals."""
        shape = (*sample_shape, *self.batch_shape, *self.event_shape)
        total = jnp.broadcast_to(self.total, shape[:-1]).astype(self.log_policy.dtype)
        probability = jnp.broadcast_to(jnp.exp(self.log_policy), shape)
        return jax.random.multinomial(key, total, probability).astype(np.int32)


def spread(value: Any, batch: tuple[int, ...]) -> Any:
    """A value with the batch axes of a distribution; None of None."""
    return None if value is None else concretely(lambda xp, x: xp.broadcast_to(x, batch), value)
