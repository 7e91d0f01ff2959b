r"""Intents and actions of the next steps under a belief, in closed form.

Which states follow changes what is known. ``dynamics`` alone: they are uncertain, and intents and states are
propagated together. ``states`` alone: they are set from outside, whatever the agent does, and tell nothing about its
actions. Both: they are observed, and each weighs the actions that lead to it, also earlier ones.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float

from ethogram.inference.intents.intent_belief import IntentBelief, moved
from ethogram.models.arguments import require_integer
from ethogram.models.intents.intent_agent import check_dynamics
from ethogram.models.printing import short_repr

__all__ = ["IntentForecast", "forecast_intents"]


@short_repr
class IntentForecast(NamedTuple):
    """The next steps of every agent.

    Attributes
    ----------
    intent : (..., step, intent + 1) probabilities of the intents; the last is "none of these".
    action : (..., step, action) probabilities of the actions.
    """

    intent: Float[Array, "*batch step intent"]
    action: Float[Array, "*batch step action"]


def forecast_intents(
    belief: IntentBelief, steps: int | None = None, *, states: Any = None, dynamics: Any = None
) -> IntentForecast:
    """Probabilities of intents and actions 1, 2, ... steps after the last one.

    Parameters
    ----------
    belief : after at least one step.
    steps : number of steps, with `dynamics` alone; else that of the states.
    states : (..., step) integers, the states of the next steps.
    dynamics : next states (state, action), integers, or their probabilities (state, action, next state). With `states`,
        those are observed; without, they are not.

    Raises
    ------
    TypeError, ValueError
        Neither states nor dynamics are given, or a number of steps with states; shapes or numbers do not fit; the
        belief has no step; or states that are observed are impossible.
    """
    if not isinstance(belief, IntentBelief):
        raise TypeError(f"belief is {type(belief).__name__}: give an IntentBelief")
    if (np.asarray(belief.state) < 0).any():
        raise ValueError("belief has no step yet: call belief.step first")
    num_states, _, num_actions = belief.agent.policy.shape[1:]
    table = None
    if dynamics is not None:
        check_dynamics(dynamics, num_states, num_actions)
        table = np.asarray(dynamics)
        table = (table if table.ndim == 3 else np.eye(num_states)[table]).astype(belief.intent.dtype)
    if states is None:
        if table is None or steps is None:
            raise ValueError("give steps and dynamics, or states")
        require_integer("steps", steps, 1)
        return _unknown(belief, table, steps)
    if steps is not None:
        raise ValueError("steps are those of states: give one of both")
    known, shape = np.asarray(states), belief.state.shape
    if (
        known.dtype.kind not in "iu"
        or known.shape[:-1] != shape
        or known.ndim != len(shape) + 1
        or not known.size
    ):
        raise ValueError(
            f"states has shape {known.shape}: give integers (..., step) for agents of shape {shape}"
        )
    if known.min() < 0 or known.max() >= num_states:
        raise ValueError(
            f"states are {known.min()} to {known.max()}: expected integers from 0 to {num_states - 1}"
        )
    by_step = np.moveaxis(known.astype(np.int32), -1, 0)
    if table is None:
        return _given(belief, by_step)
    found, possible = _observed(belief, by_step, table)
    if not np.asarray(possible).all():
        raise ValueError("states are impossible under the dynamics and the actions that the agent may take")
    return found


def _mean(
    belief: IntentBelief, intent: Array, action: Array, log_weight: Array | None = None
) -> IntentForecast:
    """The forecast (step, draw, ..., ) averaged over draws."""
    share = jax.nn.softmax(belief.log_weight if log_weight is None else log_weight, 0)
    return IntentForecast(
        jnp.einsum("d...,kd...i->...ki", share, intent), jnp.einsum("d...,kd...a->...ka", share, action)
    )


def _rows(belief: IntentBelief) -> Array:
    """Rows (draw, state, action, intent, next intent) of known actions."""
    return belief.agent.transition[:, belief.agent.row_of[:, :-1]]


@functools.partial(jax.jit, static_argnames="steps")
def _unknown(belief: IntentBelief, dynamics: Array, steps: int) -> IntentForecast:
    policy, rows = belief.agent.policy, _rows(belief)
    shape = belief.state.shape
    now = belief.state.reshape(-1)
    action = belief.action.reshape(-1)
    pair = moved(belief).sum(-2)
    pair = pair.reshape(len(pair), -1, pair.shape[-1])
    # Where the last action is missing, its place is taken by what the agent may have done.
    chance = jnp.einsum("dni,dnia->dna", belief.intent.reshape(pair.shape), policy[:, now])
    num_actions = policy.shape[-1]
    drawn = jnp.where((action < num_actions)[:, None], jax.nn.one_hot(action, num_actions), chance)
    following = jnp.einsum("dna,naz->dnz", drawn, dynamics[now])
    joint = pair[..., :, None] * following[..., None, :]  # (draw, agent, intent, state)

    def onward(joint: Array, _: Any) -> tuple[Array, tuple[Array, Array]]:
        acted = joint[..., None] * jnp.moveaxis(policy, 1, 2)[:, None]  # (draw, agent, intent, state, action)
        after = jnp.einsum("dnisa,dsaij->dnjsa", acted, rows)
        return jnp.einsum("dnjsa,saz->dnjz", after, dynamics), (joint.sum(-1), acted.sum((2, 3)))

    _, (intent, actions) = lax.scan(onward, joint, length=steps)
    intent, actions = (each.reshape(*each.shape[:2], *shape, each.shape[-1]) for each in (intent, actions))
    return _mean(belief, intent, actions)


@jax.jit
def _given(belief: IntentBelief, states: Array) -> IntentForecast:
    agent = belief.agent

    def onward(intent: Array, state: Array) -> tuple[Array, tuple[Array, Array]]:
        policy = agent.policy[:, state]
        rows = agent.transition[:, agent.row_of[state, :-1]]
        acted = intent[..., None] * policy
        return jnp.einsum("d...ia,d...aij->d...j", acted, rows), (intent, acted.sum(-2))

    _, found = lax.scan(onward, moved(belief).sum(-2), states)
    return _mean(belief, *found)


@jax.jit
def _observed(belief: IntentBelief, states: Array, dynamics: Array) -> tuple[IntentForecast, Array]:
    """Smoothed intents and actions given all states, and whether these are possible."""
    agent, num_actions = belief.agent, belief.agent.policy.shape[-1]
    last = jnp.minimum(belief.action, num_actions - 1)
    chance = jnp.einsum("d...i,d...ia->d...a", belief.intent, agent.policy[:, belief.state])
    led = dynamics[belief.state, :, states[0]]
    first = jnp.where(
        belief.action < num_actions,
        jnp.take_along_axis(led, last[..., None], -1)[..., 0],
        jnp.einsum("d...a,...a->d...", chance, led),
    )
    # What each action is weighed by: the state that follows, none after the last.
    weighed = dynamics[states[:-1], :, states[1:]]
    weighed = jnp.concatenate(
        (
            weighed,
            jnp.ones_like(weighed[:1])
            if len(states) > 1
            else jnp.ones((1, *states.shape[1:], num_actions), dynamics.dtype),
        )
    )

    def acted(state: Array, weight: Array) -> Array:
        return agent.policy[:, state] * weight[..., None, :]  # (draw, ..., intent, action)

    def back(after: Array, step: tuple[Array, Array]) -> tuple[Array, Array]:
        state, weight = step
        rows = agent.transition[:, agent.row_of[state, :-1]]
        value = jnp.einsum("d...ia,d...aij,d...j->d...ia", acted(state, weight), rows, after)
        return value.sum(-1), value

    ones = jnp.ones_like(belief.intent)
    _, values = lax.scan(back, ones, (states, weighed), reverse=True)

    def onward(intent: Array, step: tuple[Array, Array, Array]) -> tuple[Array, tuple[Array, Array]]:
        state, weight, value = step
        rows = agent.transition[:, agent.row_of[state, :-1]]
        following = jnp.einsum("d...ia,d...aij->d...j", intent[..., None] * acted(state, weight), rows)
        return following, (intent * value.sum(-1), (intent[..., None] * value).sum(-2))

    _, (intent, actions) = lax.scan(onward, moved(belief).sum(-2), (states, weighed, values))
    evidence = intent[0].sum(-1)
    safe = jnp.maximum(evidence, jnp.finfo(evidence.dtype).tiny)[None, ..., None]
    log_weight = belief.log_weight + jnp.log(jnp.maximum(evidence * first, jnp.finfo(evidence.dtype).tiny))
    return _mean(belief, intent / safe, actions / safe, log_weight), ((evidence * first) > 0).any(0)
