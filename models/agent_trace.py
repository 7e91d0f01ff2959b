r"""The actions of an agent with latent intent as a numpyro distribution: intents are summed out inside.

.. math:: x_0 \sim b, \qquad a_t \sim \pi_{x_t, s_t}, \qquad x_{t+1} \sim T_{x_t, s_t, a_t}

One batch entry is one trace. States s are covariates; the value is the actions. Rows and tables have K + 1 intents,
the last standing for all beyond a truncation: evidence is that of paths among the first K, and a draw that leaves
these stays a draw. Unhelkar and Shah (2019), eq. 1 and 7.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from numpyro.distributions import constraints

from ethogram.models.hidden_markov import safe_log
from ethogram.models.intent_agent import IntentAgent, check_world, walk
from ethogram.models.latent_chain import LatentChain

__all__ = ["AgentForecast", "AgentTrace", "evidence_of_stay"]


def evidence_of_stay(accuracy: Any, num_intents: int) -> Array:
    """Log factor (said, intent, next intent) of what was said of a step: 0 changed, 1 stayed, -1 (last) nothing."""
    accuracy = jnp.asarray(accuracy)
    right, wrong = jnp.log(accuracy), safe_log(1 - accuracy)
    same = jnp.eye(num_intents, dtype=bool)
    nothing = jnp.zeros_like(right, shape=same.shape)
    return jnp.stack([jnp.where(same, wrong, right), jnp.where(same, right, wrong), nothing])


class AgentForecast(NamedTuple):
    """What may follow (..., step); intents beyond the truncation are the last."""

    states: Array
    actions: Array
    intents: Array


class AgentTrace(LatentChain):
    r"""Distribution of the actions (..., time) of traces, -1 where missing or beyond a length.

    ``log_prob`` is :math:`\ln p(a \mid s)`, with evidence :math:`\ln p(a, c \mid s)`. Draws are of actions alone.

    Parameters
    ----------
    initial : b (intent + 1,).
    transition : T (row, intent + 1, intent + 1), rows as `row_of` numbers them.
    policy : pi (intent + 1, state, action).
    states : (..., time) integers.
    row_of : (state, action + 1) integers, the row by which a step is left; the last column for missing actions.
    lengths : (...) integers.
    stay : (..., time) integers, what was said of each step: 1 stayed, 0 changed, -1 nothing; None for nothing.
    accuracy : how often that is right, in (0, 1].
    """

    arg_constraints = {
        "initial": constraints.simplex,
        "transition": constraints.independent(constraints.simplex, 2),
        "policy": constraints.independent(constraints.simplex, 2),
    }
    pytree_data_fields = (
        "initial",
        "transition",
        "policy",
        "states",
        "row_of",
        "lengths",
        "stay",
        "accuracy",
    )

    def __init__(
        self,
        initial: Any,
        transition: Any,
        policy: Any,
        states: Any,
        row_of: Any,
        lengths: Any,
        stay: Any = None,
        accuracy: Any = None,
        *,
        validate_args: bool | None = None,
    ):
        self.initial, self.transition, self.policy = (jnp.asarray(x) for x in (initial, transition, policy))
        self.states, self.row_of, self.lengths = (jnp.asarray(x) for x in (states, row_of, lengths))
        self.stay, self.accuracy = stay, accuracy
        count = self.initial.shape[-1]
        shapes = self.transition.shape[-2:], self.policy.shape[-3]
        if shapes != ((count, count), count):
            raise ValueError(
                f"initial has {count} intents, transition {self.transition.shape}, policy {self.policy.shape}: "
                "give transition (row, intent + 1, intent + 1) and policy (intent + 1, state, action)"
            )
        if (stay is None) != (accuracy is None):
            raise ValueError("stay and accuracy belong together: give both, or neither")
        super().__init__(self.states.shape[:-1], self.states.shape[-1:], validate_args=validate_args)

    @property
    def support(self) -> Any:
        """Actions, and -1 where missing."""
        return constraints.independent(constraints.integer_interval(-1, self.policy.shape[-1] - 1), 1)

    def _chain(self, value: Any) -> tuple[Array, Array, Array, Array]:
        """Log potentials of the chain of intents within the truncation, one matrix a step."""
        value = jnp.asarray(value)
        batch = jnp.broadcast_shapes(value.shape, self.states.shape)
        value, states = jnp.broadcast_to(value, batch), jnp.broadcast_to(self.states, batch)
        lengths = jnp.broadcast_to(self.lengths, batch[:-1])
        inside = jnp.arange(batch[-1]) < lengths[..., None]
        known = inside & (value >= 0)
        states = jnp.where(inside, states, 0)
        count, num_actions = self.initial.shape[-1] - 1, self.policy.shape[-1]
        each = jnp.moveaxis(safe_log(self.policy[:count])[:, states, jnp.where(known, value, 0)], 0, -1)
        rows = self.row_of[states, jnp.where(known, value, num_actions)][..., :-1]
        matrices = safe_log(self.transition[:, :count, :count])[rows]
        if self.stay is not None:
            said = jnp.where(inside, jnp.broadcast_to(jnp.asarray(self.stay), batch), -1)[..., :-1]
            matrices = matrices + evidence_of_stay(self.accuracy, count)[said]
        return safe_log(self.initial[:count]), matrices, jnp.where(known[..., None], each, 0), lengths

    def informative(self, value: Any) -> Array:
        """Whether a step (..., time) has an action, or something was said of the way to it."""
        known = jnp.asarray(value) >= 0
        if self.stay is not None:
            said = jnp.broadcast_to(jnp.asarray(self.stay), known.shape)[..., :-1] >= 0
            known = known.at[..., 1:].set(known[..., 1:] | said)
        return known & (jnp.arange(known.shape[-1]) < jnp.asarray(self.lengths)[..., None])

    def change_probability(self, value: Any) -> Array:
        """Posterior probability (..., time - 1) that the intent changes after each step; 0 after the last."""
        pair = self.smooth(value).pair
        return jnp.sum(pair, (-2, -1)) - jnp.trace(pair, axis1=-2, axis2=-1)

    def forecast(self, key: Array, value: Any, steps: int, world: Any) -> AgentForecast:
        """One draw of what follows each trace, for so many steps: states, actions, and the intents behind them.

        Parameters
        ----------
        value : actions (..., time); those missing at the last step are drawn.
        world : what follows a state and action: states (state, action), integers, or their probabilities (state,
            action, next state).
        """
        check_world(world, *self.policy.shape[1:])
        value = jnp.asarray(value)
        last = jnp.broadcast_to(self.lengths, value.shape[:-1])[..., None] - 1
        now = jnp.take_along_axis(self.smooth(value).state, last[..., None], axis=-2)[..., 0, :]
        key_intent, key_action, key_step, key_walk = jax.random.split(key, 4)
        intent = jax.random.categorical(key_intent, safe_log(now))
        state = jnp.take_along_axis(jnp.broadcast_to(self.states, value.shape), last, axis=-1)[..., 0]
        drawn = jax.random.categorical(key_action, safe_log(self.policy)[intent, state])
        action = jnp.take_along_axis(value, last, axis=-1)[..., 0]
        action = jnp.where(action < 0, drawn.astype(action.dtype), action)
        world = jnp.asarray(world)
        key_state, key_next = jax.random.split(key_step)
        after = world[state, action]
        if world.ndim == 3:
            after = jax.random.categorical(key_state, safe_log(after))
        agent = IntentAgent.of_rows(self.initial, self.transition, self.row_of, self.policy)
        following = jax.random.categorical(key_next, safe_log(agent.transition[intent, state, action]))
        start = (after.astype(jnp.int32), following.astype(jnp.int32))
        return AgentForecast(*walk(key_walk, agent, world, start, steps))

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Actions (*sample_shape, ..., time) in the given states, -1 beyond a length."""
        return self.sample_with_intents(key, sample_shape)[0]

    def sample_with_intents(self, key: Array, sample_shape: tuple[int, ...] = ()) -> tuple[Array, Array]:
        """Actions and the intents behind them, -1 beyond a length."""
        shape = (*sample_shape, *self.batch_shape)
        key_first, key_walk = jax.random.split(key)
        first = jax.random.categorical(key_first, safe_log(self.initial), shape=shape)
        states = jnp.moveaxis(jnp.broadcast_to(self.states, (*shape, self.states.shape[-1])), -1, 0)
        log_policy, log_transition = safe_log(self.policy), safe_log(self.transition)

        def step(intent, now):
            key, state = now
            key_action, key_next = jax.random.split(key)
            state = jnp.maximum(state, 0)
            action = jax.random.categorical(key_action, log_policy[intent, state])
            after = jax.random.categorical(key_next, log_transition[self.row_of[state, action], intent])
            return after.astype(intent.dtype), (action, intent)

        _, drawn = lax.scan(step, first, (jax.random.split(key_walk, states.shape[0]), states))
        inside = jnp.arange(states.shape[0]) < jnp.broadcast_to(self.lengths, shape)[..., None]
        actions, intents = (jnp.where(inside, jnp.moveaxis(x, 0, -1), -1) for x in drawn)
        return actions, intents
