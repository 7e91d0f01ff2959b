"""The E-step of a chain by an associative scan: ``log(time)`` rounds of matrix products in log space.

It does `state` times the work of the sequential recursion, and pays where rounds are dear and arithmetic is
cheap: few long chains on an accelerator. Särkkä and García-Fernández (2021), "Temporal parallelization of
inference in hidden Markov models", section III.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from ethogram.models.chains.log_space import EStep, logsumexp

__all__ = ["associative_e_step"]


class _Scaled(NamedTuple):
    """A log matrix as ``log_scale + log_matrix``; a maximum of zero keeps rounding small on long chains."""

    log_scale: Array  # (...)
    log_matrix: Array  # (..., state, state)


def associative_e_step(
    log_initial: Array, log_transition: Array, log_likelihood: Array, length: Array
) -> EStep:
    """Evidence, state marginals and pair statistics, shaped as by the sequential E-step.

    Parameters
    ----------
    log_initial : (chain, state).
    log_transition : (chain, state, state), or driven (chain, sequence, time - 1, state, state).
    log_likelihood : (chain, sequence, time, state).
    length : (chain, sequence).
    """
    transitions = 0 if log_transition.ndim == 5 else None
    by_sequence = jax.vmap(_one_chain, in_axes=(None, transitions, 0, 0))
    return jax.vmap(by_sequence)(log_initial, log_transition, log_likelihood, length)


def _one_chain(log_initial: Array, log_transition: Array, log_likelihood: Array, length: Array) -> EStep:
    num_steps, num_states = log_likelihood.shape
    square = (num_states, num_states)
    alive = jnp.arange(num_steps) < length
    log_likelihood = jnp.where(alive[:, None], log_likelihood, 0)
    driven = log_transition.ndim == 3
    matrices = log_transition if driven else jnp.broadcast_to(log_transition[None], (num_steps - 1, *square))
    unmoved = jnp.where(jnp.eye(num_states, dtype=bool), jnp.zeros_like(matrices, shape=()), -jnp.inf)
    moving = jnp.where(alive[1:, None, None], matrices + log_likelihood[1:, None], unmoved[None])
    # Equal rows make every row of a product from the start alpha; equal columns at the end do so for beta.
    start = jnp.broadcast_to((log_initial + log_likelihood[0])[None, None], (1, *square))
    end = jnp.zeros_like(start)

    forward = lax.associative_scan(_compose, _scaled(jnp.concatenate([start, moving])))
    backward = lax.associative_scan(
        lambda after, before: _compose(before, after), _scaled(jnp.concatenate([moving, end])), reverse=True
    )
    alpha, beta = forward.log_matrix[:, 0], backward.log_matrix[:, :, 0]
    log_normalizer = jnp.where(length > 0, forward.log_scale[-1] + logsumexp(alpha[-1], 0), 0)
    possible = log_normalizer > -jnp.inf

    state = _normalized(alpha + beta, alive & possible)
    entering = matrices + (log_likelihood + beta)[1:, None]
    pair = _normalized(alpha[:-1, :, None] + entering, alive[1:] & possible)
    return EStep(log_normalizer, state, pair if driven else jnp.sum(pair, 0))


def _scaled(log_matrix: Array) -> _Scaled:
    top = jnp.max(log_matrix, axis=(-2, -1))
    top = jnp.where(top > -jnp.inf, top, 0)
    return _Scaled(top, log_matrix - top[..., None, None])


def _compose(left: _Scaled, right: _Scaled) -> _Scaled:
    """Matrix product of log matrices."""
    product = _scaled(logsumexp(left.log_matrix[..., :, :, None] + right.log_matrix[..., None, :, :], -2))
    return _Scaled(left.log_scale + right.log_scale + product.log_scale, product.log_matrix)


def _normalized(log_weight: Array, where: Array) -> Array:
    """Probabilities that sum to one over all axes but the first, the steps; zero at steps outside `where`."""
    within = tuple(range(1, log_weight.ndim))
    log_weight = jnp.where(jnp.expand_dims(where, within), log_weight, -jnp.inf)
    total = logsumexp(log_weight.reshape(log_weight.shape[0], math.prod(log_weight.shape[1:])), 1)
    return jnp.exp(log_weight - jnp.expand_dims(jnp.where(total > -jnp.inf, total, 0), within))
