r"""Log evidence of chains whose transitions are softmaxes of finite log odds, with its gradient, in double precision.

The recursions of :mod:`ethogram.models.chains.forward_backward` without its pass in log space, which compiles for
longer than all else. Where every initial and transition probability is above :math:`\epsilon`, the likeliest state of
an observation has at least :math:`\epsilon` before it, and no future favours a state over another by more than
:math:`1 / \epsilon`: a likelihood that is raised to f times the largest of its step changes the evidence by a share of
at most :math:`f / \epsilon^2`, which is :math:`e^{-100}` for the constants here. Chains with smaller probabilities, and
impossible ones, are left to `markov_chain.log_normalizer`. The gradient by log odds is that of expected statistics,

.. math:: \frac{\partial \ln p(y)}{\partial \eta_{ij}(t)} = \xi_t(i, j) - \gamma_t(i) P_{ij}(t).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float

__all__ = ["log_evidence"]

LEAST_PROBABILITY, LEAST_LIKELIHOOD = -250.0, -600.0
"""Logarithms of a probability of the chain, and of a likelihood over the largest of its step."""


@jax.custom_vjp
def log_evidence(
    log_initial: Float[Array, "state lane"],
    log_odds: Float[Array, "time_less_one edge lane"],
    log_likelihood: Float[Array, "time state lane"],
) -> Float[Array, "lane"]:
    """Log evidence of each chain, NaN where it is left to `markov_chain.log_normalizer`.

    Parameters
    ----------
    log_initial : log probabilities.
    log_odds : of the changes of state against staying, row by row; each step is left with its own.
    log_likelihood : zero where nothing was observed, and beyond the length.
    """
    return _forward(log_initial, log_odds, log_likelihood)[0]


def _forward(log_initial: Array, log_odds: Array, log_likelihood: Array) -> tuple[Array, Any]:
    """Log evidence, and of every step filtered probabilities, likelihoods over normalisers, and transitions."""
    num_states, lanes = log_initial.shape
    place = np.full((num_states, num_states), num_states * (num_states - 1))
    place[~np.eye(num_states, dtype=bool)] = np.arange(num_states * (num_states - 1))
    eta = jnp.concatenate([log_odds, jnp.zeros_like(log_odds, shape=(len(log_odds), 1, lanes))], axis=1)
    transition = jax.nn.softmax(eta[:, place], axis=2)
    top = jnp.max(log_likelihood, axis=1)
    scaled = jnp.exp(jnp.maximum(log_likelihood - top[:, None], LEAST_LIKELIHOOD))
    scaled = jnp.where(log_likelihood > -jnp.inf, scaled, 0)

    def step(before: Array, now: tuple[Array, Array]) -> tuple[Array, tuple[Array, Array]]:
        scaled, transition = now
        joint = before * scaled
        total = jnp.sum(joint, axis=0)
        after = joint / total
        return jnp.sum(after[:, None] * transition, axis=0), (after, total)

    last = jnp.full_like(transition, 1 / num_states, shape=(1, *transition.shape[1:]))
    transition = jnp.concatenate([transition, last])
    _, (filtered, total) = lax.scan(step, jnp.exp(log_initial), (scaled, transition))
    value = jnp.sum(jnp.log(total) + top, axis=0)
    least = jnp.minimum(jnp.min(jnp.exp(log_initial), axis=0), jnp.min(transition, axis=(0, 1, 2)))
    value = jnp.where((least > np.exp(LEAST_PROBABILITY)) & jnp.isfinite(value), value, jnp.nan)
    return value, (filtered, scaled / total[:, None], transition)


def _with_gradient(log_initial: Array, log_odds: Array, log_likelihood: Array) -> tuple[Array, Any]:
    """Log evidence, and its derivatives."""
    value, (filtered, scaled, transition) = _forward(log_initial, log_odds, log_likelihood)

    def step(entering: Array, now: tuple[Array, Array]) -> tuple[Array, tuple[Array, Array]]:
        scaled, transition = now
        future = jnp.sum(transition * entering, axis=1)
        return future * scaled, (future, entering)

    begin = jnp.ones_like(log_initial)
    _, (future, entering) = lax.scan(step, begin, (scaled, transition), reverse=True)
    state = filtered * future
    gain = filtered[:, :, None] * transition * (entering[:, None] - future[:, :, None])
    off = np.flatnonzero(~np.eye(len(log_initial), dtype=bool))
    moves = gain.reshape(len(gain), -1, gain.shape[-1])[:-1, off]
    return value, (state[0], moves, state)


def _gradient(parts: tuple[Array, ...], change: Array) -> tuple[Array, ...]:
    return tuple(part * change for part in parts)


log_evidence.defvjp(_with_gradient, _gradient)
