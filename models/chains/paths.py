"""Whole paths of a chain: the most likely one, and exact draws from the posterior."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import ArrayLike, Float, Int32

from ethogram.models.chains.filtering import log_filter
from ethogram.models.chains.potentials import ChainPotentials, chain_potentials, into_step
from ethogram.models.printing import short_repr
from ethogram.models.quick_jit import quick_jit

__all__ = ["Path", "most_likely_path", "sample_path"]


@short_repr
class Path(NamedTuple):
    """A path of states and its log weight.

    Attributes
    ----------
    path : (..., time) integers; -1 beyond each length, and everywhere where the data are impossible.
    log_probability : (...), log p(y, z), in nats; -inf where the data are impossible.
    """

    path: Int32[Array, "*batch time"]
    log_probability: Float[Array, "*batch"]


def most_likely_path(
    log_initial: ArrayLike,
    log_transition: ArrayLike,
    step_log_likelihood: ArrayLike,
    length: ArrayLike | None = None,
) -> Path:
    r"""The most likely path of states and its joint log weight :math:`\max_z \log p(y, z)`.

    Ties go to the lowest state, looking back from the end. Parameters and errors as for
    :func:`ethogram.models.chains.log_normalizer`. Viterbi's recursion: Rabiner (1989), eq. 32-35.
    """
    return _most_likely(chain_potentials(log_initial, log_transition, step_log_likelihood, length))


def sample_path(
    key: Array,
    log_initial: ArrayLike,
    log_transition: ArrayLike,
    step_log_likelihood: ArrayLike,
    length: ArrayLike | None = None,
) -> Path:
    r"""One exact draw from the posterior over paths, and its joint log weight :math:`\log p(y, z)`.

    Forward filtering, then backward :math:`z_t \sim \alpha_t(z)\, A_{z z_{t+1}}`: Scott (2002), "Bayesian
    methods for hidden Markov models". Batches draw independently, and a draw does not depend on the padding.
    Parameters and errors as for :func:`ethogram.models.chains.log_normalizer`.
    """
    return _sampled(key, chain_potentials(log_initial, log_transition, step_log_likelihood, length))


@quick_jit
def _most_likely(potentials: ChainPotentials) -> Path:
    def one_sequence(log_initial, log_transition, log_likelihood, length):
        num_steps, num_states = log_likelihood.shape

        def forward(best, t):
            reached = best[:, None] + into_step(log_transition, t)
            back = jnp.where(t < length, jnp.argmax(reached, 0), jnp.arange(num_states))
            return jnp.where(t < length, _shifted(jnp.max(reached, 0) + log_likelihood[t]), best), back

        def backward(state, pointers):
            before = pointers[state]
            return before, before

        best, back = lax.scan(forward, _shifted(log_initial + log_likelihood[0]), jnp.arange(1, num_steps))
        end = jnp.argmax(best)
        _, earlier = lax.scan(backward, end, back, reverse=True)
        return _scored(jnp.append(earlier, end), log_initial, log_transition, log_likelihood, length)

    return potentials.over_sequences(one_sequence)


@quick_jit
def _sampled(key: Array, potentials: ChainPotentials) -> Path:
    def one_sequence(key, log_initial, log_transition, log_likelihood, length):
        log_state, _, _ = log_filter(log_initial, log_transition, log_likelihood)

        def backward(following, step):
            t, log_alpha, noise = step
            onward = into_step(log_transition, t + 1)[:, following]
            state = jnp.argmax(log_alpha + jnp.where(t + 1 < length, onward, 0) + noise)
            return state, state

        steps = jnp.arange(log_likelihood.shape[0])
        # Maxima of log weights with Gumbel noise are draws; more random bits keep rare states in float32.
        noise = jax.random.gumbel(key, log_likelihood.shape, log_likelihood.dtype, mode="high")
        _, path = lax.scan(backward, jnp.zeros_like(steps, shape=()), (steps, log_state, noise), reverse=True)
        return _scored(path, log_initial, log_transition, log_likelihood, length)

    return potentials.over_sequences(one_sequence, key=key)


def _shifted(log_weight: Array) -> Array:
    """Log weights with maximum zero: rounding stays small however long the chain."""
    top = jnp.max(log_weight)
    return log_weight - jnp.where(top > -jnp.inf, top, 0)


def _scored(
    path: Array, log_initial: Array, log_transition: Array, log_likelihood: Array, length: Array
) -> Path:
    """The path, masked, with its log weight; where that is ``-inf``, nothing is possible."""
    steps = jnp.arange(path.size)
    before, after = path[:-1], path[1:]
    if log_transition.ndim == 2:
        moves = log_transition[before, after]
    else:
        moves = log_transition[steps[:-1], before, after]
    visited = jnp.where(steps < length, log_likelihood[steps, path], 0)
    moved = jnp.where(steps[1:] < length, moves, 0)
    weight = jnp.where(length > 0, log_initial[path[0]], 0) + jnp.sum(visited) + jnp.sum(moved)
    masked = jnp.where((steps < length) & (weight > -jnp.inf), path, -1)
    return Path(masked.astype(jnp.int32), weight)
