r"""An agent with latent intent, by its tables, and its life in a world: the truth that a model is held against.

.. math:: x_0 \sim b, \quad a_t \sim \pi_{x_t, s_t}, \quad s_{t+1} \sim T_s(s_t, a_t), \quad
          x_{t+1} \sim T_x(x_t, s_t, a_t)

Unhelkar and Shah (2019), eq. 1. The next intent depends on the state that is left, not on the one reached.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ethogram.models.hidden_markov import safe_log
from ethogram.models.trajectories import Trajectories

__all__ = ["IntentAgent", "Life", "check_world", "roll_out", "said_of_stay", "walk"]


class IntentAgent(NamedTuple):
    """Tables of an agent with latent intent; rows sum to one.

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
    def of_rows(cls, initial: Array, rows: Array, row_of: Array, policy: Array) -> IntentAgent:
        """The agent whose transitions are rows of a table (row, intent, next intent), numbered by (state, action).

        Numbers of missing actions, in a last column of `row_of`, are left out.
        """
        numbered = rows[row_of[:, : policy.shape[-1]]]
        return cls(initial, jnp.moveaxis(numbered, 2, 0), policy)


class Life(NamedTuple):
    """What an agent did, and what it was after.

    Attributes
    ----------
    data : states and actions of every trace.
    intents : (sequence, time) integers, -1 beyond a length.
    """

    data: Trajectories
    intents: np.ndarray


def roll_out(key: Array, agent: IntentAgent, world: Any, first_states: Any, lengths: Any) -> Life:
    """Traces of an agent in a world.

    Parameters
    ----------
    agent : its tables, over all intents.
    world : what follows a state and action: states (state, action), integers, or their probabilities (state,
        action, next state).
    first_states : (sequence,) integers.
    lengths : steps of a trace, each with its state and action, a number or (sequence,).

    Raises
    ------
    ValueError
        For tables that do not fit each other or the world, first states out of range, or lengths below 1.
    """
    agent = IntentAgent(*(jnp.asarray(table) for table in agent))
    world = np.asarray(world)
    num_intents, num_states, num_actions = agent.policy.shape
    shapes = {
        "agent.initial": (agent.initial.shape, (num_intents,)),
        "agent.transition": (agent.transition.shape, (num_intents, num_states, num_actions, num_intents)),
    }
    for name, (came, expected) in shapes.items():
        if came != expected:
            raise ValueError(
                f"{name} has shape {came}: the agent's policy, {agent.policy.shape}, asks for {expected}"
            )
    check_world(world, num_states, num_actions)
    first = np.asarray(first_states)
    if first.ndim != 1 or not first.size or first.min() < 0 or first.max() >= num_states:
        raise ValueError(
            f"first_states must be (sequence,) integers from 0 to {num_states - 1}, not {first_states!r}"
        )
    steps = np.broadcast_to(np.asarray(lengths), first.shape).astype(np.int32)
    if steps.min() < 1:
        raise ValueError(f"lengths has {steps.min()}: a trace has at least one step")
    key_first, key_walk = jax.random.split(key)
    intent = jax.random.categorical(key_first, safe_log(agent.initial), shape=first.shape)
    lived = walk(key_walk, agent, jnp.asarray(world), (jnp.asarray(first), intent), int(steps.max()))
    states, actions, intents = (np.asarray(x).astype(np.int32) for x in lived)
    inside = np.arange(states.shape[1]) < steps[:, None]
    states, actions, intents = (np.where(inside, x, -1) for x in (states, actions, intents))
    return Life(Trajectories(None, states, actions, steps, inside), intents)


def check_world(world: Any, num_states: int, num_actions: int) -> None:
    """Raise ValueError unless `world` has a state, or probabilities of all states, after every state and action."""
    world = np.asarray(world)
    expected = (num_states, num_actions, num_states)[: max(min(world.ndim, 3), 2)]
    if world.shape != expected:
        raise ValueError(
            f"world has shape {world.shape}, not {expected}: give what follows every state and action"
        )
    if world.ndim == 2:
        if not np.issubdtype(world.dtype, np.integer) or world.min() < 0 or world.max() >= num_states:
            raise ValueError(
                f"world must hold states, integers from 0 to {num_states - 1}, or probabilities of each"
            )
        return
    wrong = (world < 0).any(-1) | (np.abs(world.sum(-1) - 1) > 1e-4)
    if wrong.any():
        at = np.argwhere(wrong)[0].tolist()
        raise ValueError(
            f"world{at} is {world[tuple(at)]}, no probabilities that sum to 1: divide each row by its sum"
        )


def said_of_stay(key: Array, intents: Any, accuracy: float) -> np.ndarray:
    """What an observer says of every step (sequence, time): 1 the intent stayed, 0 it changed; -1 after the last.

    Parameters
    ----------
    intents : (sequence, time) integers, -1 beyond a length.
    accuracy : how often the observer is right, in (0, 1].
    """
    if not 0 < accuracy <= 1:
        raise ValueError(f"accuracy must be in (0, 1], not {accuracy}")
    intents = np.asarray(intents)
    following = np.pad(intents[:, 1:], ((0, 0), (0, 1)), constant_values=-1)
    right = np.asarray(jax.random.bernoulli(key, accuracy, intents.shape))
    said = (intents == following) == right
    return np.where((intents >= 0) & (following >= 0), said, -1).astype(np.int32)


@functools.partial(jax.jit, static_argnums=4)
def walk(
    key: Array, agent: IntentAgent, world: Array, start: tuple[Array, Array], num_steps: int
) -> tuple[Array, ...]:
    """States, actions and intents (..., time) from `start`, a state and an intent each."""
    logs = IntentAgent(*(safe_log(table) for table in agent))
    log_world = None if world.ndim == 2 else safe_log(world)

    def step(now, key):
        state, intent = now
        key_action, key_state, key_intent = jax.random.split(key, 3)
        action = jax.random.categorical(key_action, logs.policy[intent, state])
        if log_world is None:
            after = world[state, action]
        else:
            after = jax.random.categorical(key_state, log_world[state, action])
        following = jax.random.categorical(key_intent, logs.transition[intent, state, action])
        return (after.astype(state.dtype), following.astype(intent.dtype)), (state, action, intent)

    _, lived = lax.scan(step, start, jax.random.split(key, num_steps))
    return tuple(jnp.moveaxis(x, 0, -1) for x in lived)
