r"""Agents with latent intent as tables, and their rollouts in an environment: the ground truth of simulations.

.. math:: x_0 \sim b, \quad a_t \sim \pi_{x_t, s_t}, \quad s_{t+1} \sim T_s(s_t, a_t), \quad
          x_{t+1} \sim T_x(x_t, s_t, a_t)

Unhelkar and Shah (2019), eq. 1. The next intent depends on the state the agent leaves, not on the one it reaches.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from ethogram.models.arguments import require, require_number
from ethogram.models.chains.log_space import safe_log
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.printing import short_repr

__all__ = ["IntentAgent", "Rollout", "check_dynamics", "noisy_stay_labels", "roll_out", "walk"]


@short_repr
class IntentAgent(NamedTuple):
    """Probability tables of an agent with latent intent; rows sum to one.

    Attributes
    ----------
    initial : b (intent,).
    transition : T_x (intent, state, action, next intent).
    policy : pi (intent, state, action).
    """

    initial: Any
    transition: Any
    policy: Any

    @classmethod
    def of_rows(
        cls,
        initial: Float[Array | np.ndarray, "next_intent"],
        rows: Float[Array | np.ndarray, "row intent next_intent"],
        row_of: Any,
        policy: Float[Array | np.ndarray, "intent state action"],
    ) -> IntentAgent:
        """The agent whose transition rows (row, intent, next intent) are indexed by `row_of` (state, action).

        A last column of `row_of`, for missing actions, is dropped.
        """
        indexed = rows[row_of[:, : policy.shape[-1]]]
        return cls(initial, jnp.moveaxis(indexed, 2, 0), policy)


@short_repr
class Rollout(NamedTuple):
    """Traces of an agent with the true intents.

    Attributes
    ----------
    data : states and actions of every trace.
    intents : (sequence, time) integers, -1 beyond a length.
    """

    data: Trajectories
    intents: Int[np.ndarray, "sequence time"]


def roll_out(
    key: Array, agent: IntentAgent, dynamics: ArrayLike, first_states: ArrayLike, lengths: int | ArrayLike
) -> Rollout:
    """Simulate traces of an agent in an environment.

    Parameters
    ----------
    key : typed PRNG key.
    agent : its tables, over all intents.
    dynamics : next states (state, action), integers, or their probabilities (state, action, next state).
    first_states : (sequence,) integers.
    lengths : steps of a trace, each with its state and action: an integer, or (sequence,) integers.

    Raises
    ------
    ValueError
        For tables whose shapes disagree with each other or the dynamics, first states out of range, or lengths below 1.
    """
    agent = IntentAgent(*(np.asarray(table) for table in agent))
    dynamics = np.asarray(dynamics)
    num_intents, num_states, num_actions = agent.policy.shape
    shapes = {
        "agent.initial": (agent.initial.shape, (num_intents,)),
        "agent.transition": (agent.transition.shape, (num_intents, num_states, num_actions, num_intents)),
    }
    for name, (came, expected) in shapes.items():
        if came != expected:
            raise ValueError(
                f"{name} has shape {came}; with agent.policy of shape {agent.policy.shape} it must be {expected}"
            )
    check_dynamics(dynamics, num_states, num_actions)
    first = np.asarray(first_states)
    wrong = first.ndim != 1 or not first.size or first.dtype.kind not in "iu"
    if wrong or first.min() < 0 or first.max() >= num_states:
        raise ValueError(
            f"first_states must be (sequence,) integers from 0 to {num_states - 1}, not {first_states!r}"
        )
    steps = np.asarray(lengths)
    if steps.dtype.kind not in "iu" or steps.shape not in ((), first.shape) or steps.min() < 1:
        raise ValueError(
            f"lengths must be integers of at least 1, one or one a first state {first.shape}, not {lengths!r}"
        )
    steps = np.broadcast_to(steps, first.shape).astype(np.int32)
    drawn = _from_the_start(key, agent, dynamics, first, int(steps.max()))
    states, actions, intents = (np.asarray(x).astype(np.int32) for x in drawn)
    inside = np.arange(states.shape[1]) < steps[:, None]
    states, actions, intents = (np.where(inside, x, -1) for x in (states, actions, intents))
    return Rollout(Trajectories(None, states, actions, steps, inside), intents)


def check_dynamics(dynamics: Any, num_states: int, num_actions: int) -> None:
    """Raise ValueError unless `dynamics` has a next state, or next-state probabilities, for every state and action."""
    dynamics = np.asarray(dynamics)
    expected = (num_states, num_actions, num_states)[: max(min(dynamics.ndim, 3), 2)]
    if dynamics.shape != expected:
        raise ValueError(
            f"dynamics has shape {dynamics.shape}, not {expected}: give the next state of every state and action"
        )
    if dynamics.ndim == 2:
        integers = np.issubdtype(dynamics.dtype, np.integer)
        if not integers or dynamics.min() < 0 or dynamics.max() >= num_states:
            raise ValueError(
                f"dynamics must hold next states, integers from 0 to {num_states - 1}, or their probabilities"
            )
        return
    wrong = (dynamics < 0).any(-1) | (np.abs(dynamics.sum(-1) - 1) > 1e-4)
    require(~wrong, "dynamics", dynamics, ", not a probability vector: divide each row by its sum")


def noisy_stay_labels(
    key: Array, intents: ArrayLike, accuracy: float | int
) -> Int[np.ndarray, "sequence time"]:
    """Noisy labels of every step for ``data.stay``: 1 the intent stayed, 0 it changed, -1 at the last step.

    Parameters
    ----------
    key : typed PRNG key.
    intents : (sequence, time) integers, -1 beyond a length.
    accuracy : probability that a label is right, in (0, 1].
    """
    accuracy = require_number("accuracy", accuracy, above=0, most=1)
    intents = np.asarray(intents)
    following = np.pad(intents[:, 1:], ((0, 0), (0, 1)), constant_values=-1)
    right = np.asarray(jax.random.bernoulli(key, accuracy, intents.shape))
    stayed = (intents == following) == right
    return np.where((intents >= 0) & (following >= 0), stayed, -1).astype(np.int32)


@functools.partial(jax.jit, static_argnums=4)
def _from_the_start(key: Array, agent: IntentAgent, dynamics: Array, first: Array, num_steps: int) -> Any:
    key_first, key_walk = jax.random.split(key)
    intent = jax.random.categorical(key_first, safe_log(agent.initial), shape=first.shape)
    return walk(key_walk, agent, dynamics, (first, intent), num_steps)


@functools.partial(jax.jit, static_argnums=4)
def walk(
    key: Array, agent: IntentAgent, dynamics: Array, start: tuple[Array, Array], num_steps: int
) -> tuple[Array, ...]:
    """States, actions and intents (..., time) from `start`, a state and an intent each."""
    logs = IntentAgent(*(safe_log(table) for table in agent))
    log_dynamics = None if dynamics.ndim == 2 else safe_log(dynamics)

    def step(now, key):
        state, intent = now
        key_action, key_state, key_intent = jax.random.split(key, 3)
        action = jax.random.categorical(key_action, logs.policy[intent, state])
        if log_dynamics is None:
            after = dynamics[state, action]
        else:
            after = jax.random.categorical(key_state, log_dynamics[state, action])
        following = jax.random.categorical(key_intent, logs.transition[intent, state, action])
        return (after.astype(state.dtype), following.astype(intent.dtype)), (state, action, intent)

    _, drawn = lax.scan(step, start, jax.random.split(key, num_steps))
    return tuple(jnp.moveaxis(x, 0, -1) for x in drawn)
