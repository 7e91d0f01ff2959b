"""The forward-backward recursions of a chain in log space: slow, and exact at any magnitude.

The fallback of :mod:`ethogram.models.chains.forward_backward`, in its layout. Rabiner (1989), eq. 19-27, in logs.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

__all__ = ["EStep", "finite", "is_driven", "log_space_e_step", "logsumexp", "safe_log"]


class EStep(NamedTuple):
    """Evidence and posterior marginals in the kernel's layout."""

    log_normalizer: Array  # (chain, sequence): -inf for an impossible sequence
    state: Array  # (time, state, chain, sequence): zero at dead steps and for impossible sequences
    pair: Array  # (state, next_state, chain, sequence), summed over time; (time - 1, ...) where driven;
    # (state, next_state, chain) where weights were given: summed over sequences too


def logsumexp(x: Array, axis: int) -> Array:
    """Log of summed exponentials of `x` along `axis`; a slice of ``-inf`` gives ``-inf`` with zero gradient."""
    top = lax.stop_gradient(jnp.max(x, axis=axis, keepdims=True))
    top = jnp.where(jnp.isfinite(top), top, 0)
    total = jnp.sum(jnp.exp(x - top), axis=axis)
    empty = total == 0
    return jnp.where(empty, -jnp.inf, jnp.log(jnp.where(empty, 1, total)) + jnp.squeeze(top, axis))


def is_driven(log_transition: Array) -> bool:
    """Whether transitions change along the chain: ``(time - 1, state, state, chain, sequence)``."""
    return log_transition.ndim == 5


def log_space_e_step(log_initial: Array, log_transition: Array, log_likelihood: Array, alive: Array) -> EStep:
    """E-step by logsumexp recursions: several times slower than the scaled pass, exact at any magnitude.

    Parameters
    ----------
    log_initial : (state, chain, sequence or 1).
    log_transition : (state, next_state, chain, sequence or 1), or with a leading ``time - 1`` axis.
    log_likelihood : (time, state, chain, sequence); entries of dead steps must be zero.
    alive : (time, chain or 1, sequence) bool, the steps before each sequence's length.
    """
    num_steps, num_states, num_chains, num_sequences = log_likelihood.shape
    driven = is_driven(log_transition)
    alive = jnp.broadcast_to(alive, (num_steps, num_chains, num_sequences))
    pair_shape = (num_states, num_states, num_chains, num_sequences)

    def into(t):
        """Log transition into step t."""
        if not driven:
            return log_transition
        if num_steps == 1:  # traced, never run
            return jnp.zeros_like(log_likelihood, shape=pair_shape)
        return lax.dynamic_index_in_dim(log_transition, t - 1, keepdims=False)

    def lowered(log_weight, here):
        """Messages of a step with their maximum taken off: rounding stays small however long the chain."""
        top = jnp.where(here, lax.stop_gradient(jnp.max(log_weight, axis=0)), 0)
        return log_weight - finite(top)[None], top

    def forward(alpha, t):
        reached, top = lowered(logsumexp(alpha[:, None] + into(t), 0) + log_likelihood[t], alive[t])
        alpha = jnp.where(alive[t][None], reached, alpha)
        return alpha, (alpha, top)

    first, first_top = lowered(jnp.where(alive[0][None], log_initial + log_likelihood[0], 0), alive[0])
    last, (later, tops) = lax.scan(forward, first, jnp.arange(1, num_steps))
    alphas = jnp.concatenate([first[None], later])
    tops = jnp.concatenate([first_top[None], tops])
    possible = jnp.all(tops > -jnp.inf, axis=0)
    rest = jnp.where(alive[0], logsumexp(last, 0), 0)
    log_normalizer = jnp.where(possible, jnp.sum(jnp.where(possible, tops, 0), axis=0) + rest, -jnp.inf)

    def posterior(log_weight, here):
        """Shares of the states: exponentials divided by their sum, zero where there is nothing to share."""
        weight = jnp.exp(lowered(jnp.where(here[None], log_weight, -jnp.inf), here)[0])
        return weight / jnp.where(here, jnp.sum(weight, axis=0), 1)[None]

    def backward(carry, t):
        """The message to step t - 1, its state marginals, and the pairs of steps t - 1 and t."""
        beta, counts = carry
        moved = alive[t] & possible
        entering = into(t) + (log_likelihood[t] + beta)[None]
        top = finite(lax.stop_gradient(jnp.max(entering, axis=1)))
        weight = jnp.where(moved[None, None], jnp.exp(entering - top[:, None]), 0)
        total = jnp.sum(weight, axis=1)
        some = total > 0
        reached = jnp.where(some, jnp.log(jnp.where(some, total, 1)) + top, -jnp.inf)
        beta = jnp.where(moved[None], lowered(reached, moved)[0], beta)
        state = posterior(alphas[t - 1] + beta, alive[t - 1] & possible)
        pair = weight * (state / jnp.where(some, total, 1))[:, None]
        return (beta, counts if driven else counts + pair), (state, pair if driven else None)

    nothing = jnp.zeros_like(log_likelihood, shape=pair_shape)
    (_, counts), (earlier, pairs) = lax.scan(
        backward, (jnp.zeros_like(first), nothing), jnp.arange(1, num_steps), reverse=True
    )
    final = posterior(last, alive[-1] & possible)
    return EStep(log_normalizer, jnp.concatenate([earlier, final[None]]), pairs if driven else counts)


def finite(shift: Array) -> Array:
    """The shift, or zero where everything is impossible."""
    return jnp.where(jnp.isfinite(shift), shift, 0)


def safe_log(probability: Array) -> Array:
    """Log of a probability, in its shape; zero gives exactly ``-inf``, with gradient zero."""
    positive = probability > 0
    return jnp.where(positive, jnp.log(jnp.where(positive, probability, 1)), -jnp.inf)
