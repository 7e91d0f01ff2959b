r"""The actions of an agent with latent intent as a numpyro distribution, with the intents summed out.

.. math:: x_0 \sim b, \qquad a_t \sim \pi_{x_t, s_t}, \qquad x_{t+1} \sim T_{x_t, s_t, a_t}

One batch entry is one trace. States s are covariates; the value is the actions. Tables have K + 1 intents, the last
for all intents beyond the truncation. Paths and samples may enter it, so that ``log_prob`` is normalised: with mean
parameters all intents beyond the truncation have one policy and one law of leaving, and lump to one exactly.
`within_truncation` leaves these paths out, as the bound of a fit does, and is not normalised.
Unhelkar and Shah (2019), eq. 1 (the model), 7 (forward messages) and 15 (the evidence of stay labels).
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float, Int
from numpyro.distributions import constraints

from ethogram.models.arguments import is_concrete, require, require_integer
from ethogram.models.chains.hidden_markov import LatentChain
from ethogram.models.chains.log_space import safe_log
from ethogram.models.intents.intent_agent import IntentAgent, check_dynamics, walk

__all__ = ["AgentForecast", "AgentTrace", "log_stay_evidence"]


def log_stay_evidence(accuracy: Any, num_intents: int) -> Float[Array, "label intent next_intent"]:
    """Log likelihood of a stay label given the intents of its step: 0 changed, 1 stayed, -1 (the last) unknown."""
    accuracy = jnp.asarray(accuracy)
    right, wrong = jnp.log(accuracy), safe_log(1 - accuracy)
    same = jnp.eye(num_intents, dtype=bool)
    unknown = jnp.zeros_like(right, shape=same.shape)
    return jnp.stack([jnp.where(same, wrong, right), jnp.where(same, right, wrong), unknown])


class AgentForecast(NamedTuple):
    """Sampled continuations (..., step); the last intent stands for all beyond the truncation."""

    states: Int[Array, "*batch step"]
    actions: Int[Array, "*batch step"]
    intents: Int[Array, "*batch step"]


class AgentTrace(LatentChain):
    r"""Distribution of the actions (..., time) of traces, -1 where missing or beyond a length.

    ``log_prob`` is :math:`\ln p(a \mid s)`, with stay labels :math:`\ln p(a, c \mid s)`. Samples are actions only.

    Parameters
    ----------
    initial : b (intent + 1,).
    transition : T (row, intent + 1, intent + 1), rows indexed by `row_of`.
    policy : pi (intent + 1, state, action).
    states : (..., time) integers.
    row_of : (state, action + 1) integers, the transition row of each state and action; the last column for missing
        actions.
    lengths : (...) integers.
    stay : (..., time) integers, the label of each step: 1 the intent stayed, 0 it changed, -1 unknown; or None.
    accuracy : probability that a label is right, in (0, 1].
    """

    num_rest: ClassVar[int] = 1
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
                f"initial has {count} intents, transition has shape {self.transition.shape}, policy "
                f"{self.policy.shape}: give transition (row, intent + 1, intent + 1) and policy (intent + 1, state, "
                "action)"
            )
        if (stay is None) != (accuracy is None):
            raise ValueError("stay and accuracy must be given together: give both, or neither")
        self._refuse("states", states, 0, self.policy.shape[-2])
        self._refuse("stay", stay, -1, 2)
        super().__init__(self.states.shape[:-1], self.states.shape[-1:], validate_args=validate_args)

    @property
    def support(self) -> Any:
        """Actions, and -1 where missing."""
        return constraints.independent(constraints.integer_interval(-1, self.policy.shape[-1] - 1), 1)

    def _refuse(self, name: str, value: Any, least: int, count: int) -> None:
        """Raise ValueError where an integer within a length is out of range: indices of arrays would be clamped."""
        if value is None or not is_concrete(value, self.lengths):
            return
        value = np.asarray(value)
        inside = np.arange(value.shape[-1]) < np.asarray(self.lengths)[..., None]
        wrong = inside & ((value < least) | (value >= count))
        require(~wrong, name, np.broadcast_to(value, wrong.shape), f", outside {least}..{count - 1}")

    def check_value(self, value: Any) -> None:
        """Raise ValueError where an action within a length is out of range; traced ones are not checked."""
        self._refuse("value", value, -1, self.policy.shape[-1])

    def _chain(self, value: Any) -> tuple[Array, Array, Array, Array]:
        """Log potentials of the chain of intents, one matrix per step."""
        value = jnp.asarray(value)
        batch = jnp.broadcast_shapes(value.shape, self.states.shape)
        value, states = jnp.broadcast_to(value, batch), jnp.broadcast_to(self.states, batch)
        lengths = jnp.broadcast_to(self.lengths, batch[:-1])
        inside = jnp.arange(batch[-1]) < lengths[..., None]
        known = inside & (value >= 0)
        states = jnp.where(inside, states, 0)
        count, num_actions = self.initial.shape[-1], self.policy.shape[-1]
        each = jnp.moveaxis(safe_log(self.policy)[:, states, jnp.where(known, value, 0)], 0, -1)
        rows = self.row_of[states, jnp.where(known, value, num_actions)][..., :-1]
        matrices = safe_log(self.transition)[rows]
        if self.stay is not None:
            labels = jnp.where(inside, jnp.broadcast_to(jnp.asarray(self.stay), batch), -1)[..., :-1]
            matrices = matrices + log_stay_evidence(self.accuracy, count)[labels]
        return safe_log(self.initial), matrices, jnp.where(known[..., None], each, 0), lengths

    def within_truncation(self) -> AgentTrace:
        """The trace without paths beyond the truncation: ``log_prob`` is sub-normalised, and no predictive score."""
        initial, transition = (x.at[..., -1].set(0) for x in (self.initial, self.transition))
        rest = (self.policy, self.states, self.row_of, self.lengths, self.stay, self.accuracy)
        return AgentTrace(initial, transition, *rest, validate_args=False)

    def change_probability(self, value: Any) -> Float[Array, "*batch step"]:
        """Posterior probability that the intent changes after each step; 0 beyond a length.

        Intents beyond the truncation count as one.
        """
        pair = self.smooth(value).pair
        return jnp.sum(pair, (-2, -1)) - jnp.trace(pair, axis1=-2, axis2=-1)

    def forecast(self, key: Array, value: Any, steps: int, dynamics: Any) -> AgentForecast:
        """One sampled continuation of each trace: states, actions and latent intents of the next `steps` steps.

        Parameters
        ----------
        value : actions (..., time); those missing at the last step are sampled.
        dynamics : next states (state, action), integers, or their probabilities (state, action, next state).
        """
        require_integer("steps", steps, 1)
        check_dynamics(dynamics, *self.policy.shape[1:])
        value = jnp.asarray(value)
        last = jnp.broadcast_to(self.lengths, value.shape[:-1])[..., None] - 1
        now = jnp.take_along_axis(self.smooth(value).state, last[..., None], axis=-2)[..., 0, :]
        key_intent, key_action, key_step, key_walk = jax.random.split(key, 4)
        intent = jax.random.categorical(key_intent, safe_log(now))
        state = jnp.take_along_axis(jnp.broadcast_to(self.states, value.shape), last, axis=-1)[..., 0]
        drawn = jax.random.categorical(key_action, safe_log(self.policy)[intent, state])
        action = jnp.take_along_axis(value, last, axis=-1)[..., 0]
        action = jnp.where(action < 0, drawn.astype(action.dtype), action)
        dynamics = jnp.asarray(dynamics)
        key_state, key_next = jax.random.split(key_step)
        after = dynamics[state, action]
        if dynamics.ndim == 3:
            after = jax.random.categorical(key_state, safe_log(after))
        agent = IntentAgent.of_rows(self.initial, self.transition, self.row_of, self.policy)
        following = jax.random.categorical(key_next, safe_log(agent.transition[intent, state, action]))
        start = (after.astype(jnp.int32), following.astype(jnp.int32))
        return AgentForecast(*walk(key_walk, agent, dynamics, start, steps))

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Int[Array, "*shape time"]:
        """Actions (*sample_shape, ..., time) in the given states, -1 beyond a length."""
        return self.sample_with_intents(key, sample_shape)[0]

    def sample_with_intents(
        self, key: Array, sample_shape: tuple[int, ...] = ()
    ) -> tuple[Int[Array, "*shape time"], Int[Array, "*shape time"]]:
        """Actions and their latent intents (*sample_shape, ..., time), -1 beyond a length."""
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
