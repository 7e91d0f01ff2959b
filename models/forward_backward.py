r"""The forward-backward recursions of a chain: scaled, with a log-space pass where scaling would lose mass.

Arrays are laid out ``(time, state, chain, sequence)``: sequences are on the fast axis, so that each step is a
few wide vector operations. ``chain`` counts parameter sets (restarts, posterior draws, MCMC chains);
``sequence`` counts the sequences that share a parameter set. This is the kernel below
:mod:`ethogram.models.markov_chain`, where users enter.

The scaled pass works on probabilities, normalised at every step. Products that underflow lose at most
``tiny`` of a message of size one; multiplied by what the future may still make of them,
``max_k beta_t(k) / c_t``, this bounds the error of the whole evidence, and the backward pass keeps the
largest such factor. Where the bound is not far below rounding, or a normaliser vanishes, the chunk is
repeated in log space (one ``lax.cond``), and each sequence takes the pass that is right for it.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

__all__ = ["EStep", "chunk_e_step", "log_space_e_step", "logsumexp"]

UNROLLED_STATES = 10
"""Up to this many states a matrix-vector product is written out, which fuses into one loop."""


class EStep(NamedTuple):
    """Evidence and posterior marginals in the kernel's layout."""

    log_normalizer: Array  # (chain, sequence): -inf for an impossible sequence
    state: Array  # (time, state, chain, sequence): zero at dead steps and for impossible sequences
    pair: Array  # (state, next_state, chain, sequence), summed over time; (time - 1, ...) where driven;
    # (state, next_state, chain) where weights were given: summed over sequences too


def logsumexp(x: Array, axis: int) -> Array:
    """Log of summed exponentials; a slice of ``-inf`` gives ``-inf`` with zero gradient."""
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

    def into(t):
        """Log transition into step t; at t = 0 any matrix, whose use is masked."""
        if not driven:
            return log_transition
        if num_steps == 1:
            return jnp.zeros_like(log_likelihood, shape=pair_shape)
        return lax.dynamic_index_in_dim(log_transition, jnp.maximum(t - 1, 0), keepdims=False)

    pair_shape = (num_states, num_states, num_chains, num_sequences)
    first = jnp.where(alive[0][None], log_initial + log_likelihood[0], 0)

    def forward(alpha, t):
        reached = logsumexp(alpha[:, None] + into(t), 0) + log_likelihood[t]
        alpha = jnp.where(alive[t][None], reached, alpha)
        return alpha, alpha

    last, later = lax.scan(forward, first, jnp.arange(1, num_steps))
    alphas = jnp.concatenate([first[None], later])
    log_normalizer = jnp.where(alive[0], logsumexp(last, 0), 0)
    possible = alive[0] & (log_normalizer != -jnp.inf)
    offset = jnp.where(possible, log_normalizer, 0)

    def probability(log_weight, where):
        where = where & _like(possible, log_weight)
        return jnp.where(
            where, jnp.exp(jnp.where(where, log_weight - _like(offset, log_weight), -jnp.inf)), 0
        )

    def backward(carry, t):
        beta, counts = carry
        state = probability(alphas[t] + beta, alive[t][None])
        entering = into(t) + (log_likelihood[t] + beta)[None]
        moved = alive[t] & (t > 0)
        previous = lax.dynamic_index_in_dim(alphas, jnp.maximum(t - 1, 0), keepdims=False)
        pair = probability(previous[:, None] + entering, moved[None, None])
        beta = jnp.where(moved[None], logsumexp(entering, 1), beta)
        return (beta, counts if driven else counts + pair), (state, pair if driven else None)

    counts = jnp.zeros_like(log_likelihood, shape=pair_shape)
    (_, counts), (state, pairs) = lax.scan(
        backward, (jnp.zeros_like(first), counts), jnp.arange(num_steps), reverse=True
    )
    return EStep(log_normalizer, state, pairs[1:] if driven else counts)


def _product(matrix: Array, message: Array) -> Array:
    """``sum_j matrix[j, k] message[j]`` for every chain and sequence."""
    num_states, num_chains, num_sequences = message.shape
    if num_chains * num_sequences < 4:
        return jnp.sum(matrix * message[:, None], axis=0)
    if num_states <= UNROLLED_STATES:
        total = matrix[0] * message[0][None]
        for j in range(1, num_states):
            total = total + matrix[j] * message[j][None]
        return total
    if matrix.shape[-1] > 1:
        return jnp.sum(matrix * message[:, None], axis=0)
    if num_chains == 1:
        return (matrix[:, :, 0, 0].T @ message[:, 0])[:, None]
    return jnp.einsum("jkr,jrn->krn", matrix[..., 0], message)


def chunk_e_step(
    log_initial: Array,
    log_transition: Array,
    log_likelihood: Array,
    alive: Array,
    weight: Array | None = None,
) -> EStep:
    """Log evidence, state marginals and pair statistics of one chunk of sequences.

    Parameters
    ----------
    log_initial : (state, chain, 1).
    log_transition : (state, next_state, chain, 1), or driven (time - 1, state, next_state, chain, sequence).
    log_likelihood : (time, state, chain, sequence); what stands at dead steps is ignored.
    alive : (time, chain or 1, sequence) bool.
    weight : (chain or 1, sequence), with fixed transitions only: sum the counts over the sequences with these
        weights inside the recursion. None keeps each sequence's own.
    """
    num_steps, num_states, num_chains, num_sequences = log_likelihood.shape
    driven = is_driven(log_transition)
    few = num_states <= UNROLLED_STATES
    tiny = jnp.finfo(log_likelihood.dtype).tiny
    steps = jnp.arange(num_steps)
    log_likelihood = jnp.where(alive[:, None], log_likelihood, 0)

    initial_shift = _finite(jnp.max(log_initial, axis=0))
    top = _finite(jnp.max(log_likelihood, axis=1))
    likelihood = jnp.exp(log_likelihood - top[:, None])
    transition_shift = _finite(jnp.max(log_transition, axis=(1, 2) if driven else (0, 1)))
    if driven:
        unused = jnp.ones_like(log_transition, shape=(1, *log_transition.shape[1:]))
        transition = jnp.concatenate([jnp.exp(log_transition - transition_shift[:, None, None]), unused])
    else:
        transition = jnp.exp(log_transition - transition_shift[None, None])

    def matrix(t):
        return lax.dynamic_index_in_dim(transition, t, keepdims=False) if driven else transition

    def forward(predicted, step):
        t, b = step
        p = predicted * b
        c = jnp.sum(p, axis=0)
        inverse = 1 / jnp.where(c >= tiny, c, 1)
        a = p * inverse[None]
        return _product(matrix(t), a), (a, c, inverse)

    predicted = jnp.exp(log_initial - initial_shift[None])
    predicted = jnp.broadcast_to(predicted, (num_states, num_chains, num_sequences))
    _, (a, c, inverse) = lax.scan(forward, predicted, (steps, likelihood))

    vanished = jnp.any(alive & ~(c >= tiny), axis=0)
    log_c = jnp.log(jnp.where(alive & (c >= tiny), c, 1)) + jnp.where(alive, top, 0)
    shifts = jnp.where(alive[1:], transition_shift if driven else transition_shift[None], 0)
    log_normalizer = jnp.sum(log_c, axis=0) + jnp.sum(shifts, axis=0) + jnp.where(alive[0], initial_shift, 0)

    living = alive.astype(likelihood.dtype)
    moved = jnp.where(steps[:, None, None] > 0, living, 0)
    summed_inside = weight is not None and not few
    if driven or not (few or summed_inside):
        no_counts = jnp.zeros_like(a, shape=())
    else:
        no_counts = jnp.zeros_like(
            a, shape=(num_states, num_states, num_chains, 1 if summed_inside else num_sequences)
        )

    def backward(carry, step):
        beta, reach, counts = carry
        t, b, a_t, inverse_t, living_t, moved_t = step
        state = a_t * (beta * living_t[None])
        potential = beta * (inverse_t * living_t)[None]
        reach = jnp.maximum(reach, jnp.max(potential, axis=0))
        v = b * potential * moved_t[None]
        t_before = jnp.maximum(t - 1, 0)
        previous = lax.dynamic_index_in_dim(a, t_before, keepdims=False)
        before = matrix(t_before)
        pair = None
        if driven:
            pair = previous[:, None] * before * v[None]
        elif few:
            counts = counts + previous[:, None] * v[None]
        elif summed_inside:
            counts = counts + jnp.einsum("jrn,krn->jkr", previous, v * weight[None])[..., None]
        else:
            pair = v
        beta = _product(jnp.swapaxes(before, 0, 1), v) + (1 - living_t)[None]
        return (beta, reach, counts), (state, pair)

    ones = jnp.ones_like(a, shape=a.shape[1:])
    no_reach = jnp.zeros_like(a, shape=a.shape[2:])
    (_, reach, counts), (state, pair) = lax.scan(
        backward, (ones, no_reach, no_counts), (steps, likelihood, a, inverse, living, moved), reverse=True
    )
    limit = jnp.finfo(a.dtype).eps / (tiny * num_states * num_steps)
    redo = (vanished | ~(reach < limit)) & jnp.any(alive, axis=0)

    if driven:
        pair = pair[1:]
    elif few or summed_inside:
        pair = counts * transition
    else:
        pair = jnp.einsum("tjrn,tkrn->jkrn", a[:-1], pair[1:]) * transition

    def total(pair):
        return jnp.sum(pair * weight[None, None], axis=-1)

    def keep():
        if weight is None:
            return EStep(log_normalizer, state, pair)
        return EStep(log_normalizer, state, pair[..., 0] if summed_inside else total(pair))

    def repair():
        exact = log_space_e_step(log_initial, log_transition, log_likelihood, alive)
        repaired_pair = exact.pair if summed_inside else jnp.where(_like(redo, pair), exact.pair, pair)
        return EStep(
            jnp.where(redo, exact.log_normalizer, log_normalizer),
            jnp.where(_like(redo, state), exact.state, state),
            repaired_pair if weight is None else total(repaired_pair),
        )

    return lax.cond(jnp.any(redo), repair, keep)


def _finite(shift: Array) -> Array:
    """The shift, or zero where everything is impossible."""
    return jnp.where(jnp.isfinite(shift), shift, 0)


def _like(mask: Array, array: Array) -> Array:
    """The (chain, sequence) mask with leading axes of one, to stand beside an array of higher rank."""
    return jnp.reshape(mask, (1,) * (array.ndim - 2) + mask.shape)
