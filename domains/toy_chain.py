"""Toy chain: a small world of random transitions, whose agent values states and acts on what it values, with noise.

Seven states and three actions; rows of the transitions are Dirichlet(1/2) draws, values come from the prior of the
noisy Markov decision process. Singh, Chopin and Whiteley, "Bayesian learning of noisy Markov decision processes",
section 5.1. The paper gives neither transitions nor seed, and draws values of variance 2500, whose choices are almost
never noisy and mostly separated: the default here is 16.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float, Int

from ethogram.models.decisions import Decisions
from ethogram.models.emissions.emission import whole_number
from ethogram.models.mdp import MDP

__all__ = ["ToyChain", "simulate"]


class ToyChain(NamedTuple):
    """A world, what its agent values, and what it did.

    Attributes
    ----------
    mdp : the world.
    values : (state,), summing to zero.
    states : (decision,) where the agent was.
    decisions : its choices, with the probabilities of the next states for features.
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
    """A random world and one life in it, each decision where the last one led.

    Parameters
    ----------
    key : a typed key, ``jax.random.key(seed)``.
    kappa : variance of the values before their mean is taken off.

    Raises
    ------
    TypeError, ValueError
        If there is no decision, fewer than two states or actions, or kappa is not a finite number above 0.

    Examples
    --------
    >>> import jax
    >>> toy = simulate(jax.random.key(0), 50)
    >>> toy.decisions.features.shape, toy.values.shape
    ((50, 3, 7), (7,))
    """
    whole_number("num_decisions", num_decisions, 1)
    whole_number("num_states", num_states, 2)
    whole_number("num_actions", num_actions, 2)
    if np.ndim(kappa) or np.asarray(kappa).dtype.kind not in "iuf":
        raise TypeError(f"kappa is {kappa!r}: give one number")
    scale = jnp.sqrt(kappa) if kappa > 0 else jnp.nan
    if not 0 < scale < jnp.inf:
        raise ValueError(f"kappa is {kappa}: give a finite variance above 0")
    key_world, key_values, key_first, key_life = jax.random.split(key, 4)
    table = jax.random.dirichlet(key_world, jnp.full(num_states, 0.5), (num_states, num_actions))
    values = scale * jax.random.normal(key_values, (num_states,))
    values = values - jnp.mean(values)
    first = jax.random.randint(key_first, (), 0, num_states)

    def decide(state, key):
        key_noise, key_next = jax.random.split(key)
        action = jnp.argmax(table[state] @ values + jax.random.normal(key_noise, (num_actions,)))
        following = jax.random.choice(key_next, num_states, p=table[state, action])
        return following, (state, action)

    _, (states, actions) = lax.scan(decide, first, jax.random.split(key_life, num_decisions))
    mdp = MDP.dense(np.asarray(table, float) / np.asarray(table, float).sum(-1, keepdims=True))
    where = np.asarray(states)
    return ToyChain(mdp, np.asarray(values), where, Decisions.from_mdp(mdp, where, np.asarray(actions)))
