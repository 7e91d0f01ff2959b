"""Toy chain: a small random MDP and an agent that maximises noisy expected values of the next state.

Seven states and three actions; transition rows are Dirichlet(1/2) draws, values are drawn from the prior of the noisy
Markov decision process. Singh, Chopin and Whiteley, "Bayesian learning of noisy Markov decision processes", section
5.1. The paper gives neither transitions nor seed, and draws values of variance 2500, with which choices are nearly
deterministic and mostly separated: the default here is 16.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float, Int

from ethogram.models.arguments import require_integer, require_number
from ethogram.models.choices.decisions import Decisions
from ethogram.models.mdps.mdp import MDP

__all__ = ["ToyChain", "simulate"]


class ToyChain(NamedTuple):
    """A random MDP with a simulated agent.

    Attributes
    ----------
    mdp : the MDP.
    values : (state,), the agent's state values, with mean zero.
    states : (decision,) states of the agent.
    decisions : its choices, with next-state probabilities as features.
    """

    mdp: MDP
    values: Float[np.ndarray, "state"]
    states: Int[np.ndarray, "decision"]
    decisions: Decisions


def simulate(
    key: Array,
    num_decisions: int = 20,
    *,
    kappa: float | int = 16.0,
    num_states: int = 7,
    num_actions: int = 3,
) -> ToyChain:
    """A random MDP, and one simulated trajectory of choices in it.

    Parameters
    ----------
    key : a typed key, ``jax.random.key(seed)``.
    kappa : variance of the values before centring.

    Raises
    ------
    TypeError, ValueError
        If there is no decision, fewer than two states or actions, or kappa is not a positive number.

    Examples
    --------
    >>> import jax
    >>> toy = simulate(jax.random.key(0), 50)
    >>> toy.decisions.features.shape, toy.values.shape
    ((50, 3, 7), (7,))
    """
    require_integer("num_decisions", num_decisions, 1)
    require_integer("num_states", num_states, 2)
    require_integer("num_actions", num_actions, 2)
    scale = math.sqrt(require_number("kappa", kappa, above=0))
    drawn = _drawn(key, scale, num_decisions, num_states, num_actions)
    table, values, states, actions = map(np.asarray, drawn)
    mdp = MDP.dense(table.astype(float) / table.astype(float).sum(-1, keepdims=True))
    return ToyChain(mdp, values, states, Decisions.from_mdp(mdp, states, actions))


@functools.partial(jax.jit, static_argnums=(2, 3, 4))
def _drawn(
    key: Array, scale: Any, num_decisions: int, num_states: int, num_actions: int
) -> tuple[Array, ...]:
    """Transition probabilities, values, states and actions."""
    key_table, key_values, key_first, key_steps = jax.random.split(key, 4)
    table = jax.random.dirichlet(key_table, jnp.full(num_states, 0.5), (num_states, num_actions))
    values = scale * jax.random.normal(key_values, (num_states,))
    values = values - jnp.mean(values)
    first = jax.random.randint(key_first, (), 0, num_states)

    def decide(state, key):
        key_noise, key_next = jax.random.split(key)
        action = jnp.argmax(table[state] @ values + jax.random.normal(key_noise, (num_actions,)))
        following = jax.random.choice(key_next, num_states, p=table[state, action])
        return following, (state, action)

    _, (states, actions) = lax.scan(decide, first, jax.random.split(key_steps, num_decisions))
    return table, values, states, actions
