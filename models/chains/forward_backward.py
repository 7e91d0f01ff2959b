r"""The forward-backward recursions of a chain: scaled, with a log-space pass where scaling would lose mass.

Arrays are laid out ``(time, state, chain, sequence)``: sequences are on the fast axis, so that each step is a
few wide vector operations. ``chain`` counts parameter sets (restarts, posterior draws, MCMC chains);
``sequence`` counts the sequences that share a parameter set. This is the kernel below
:mod:`ethogram.models.markov_chain`, where users enter.

The scaled pass works on probabilities: with the normaliser ``c_t`` and the backward message divided by it,
``future_t = beta_t / c_t``, the joint ``p_t = predicted_t * likelihood_t`` gives the marginal
``p_t * future_t``. A product that underflows loses at most ``tiny``. In ``p_t`` that is worth
``tiny * future_t``; in the matrix-vector product that follows, ``tiny * future_{t+1} / c_t``. The backward pass
keeps the largest such factor; nothing possible is ever less than ``tiny`` there, so that what is lost twice is
seen too. Where the bound it gives is not below rounding, or a normaliser vanishes, the
chunk is repeated in log space (one ``lax.cond``), and each sequence takes the pass that is right for it.

What is fast on a CPU is decided by what XLA fuses. A slice of one state at one step, taken once, vectorises;
a slice of a whole step that several terms share does not. Sums and maxima over states outside the loops are
reductions, since an unrolled maximum would be worked out anew for each state that it is taken from.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

__all__ = ["EStep", "chunk_e_step", "log_space_e_step", "logsumexp"]

UNROLLED_STATES = 10
"""Up to this many states a matrix-vector product is written out, which fuses; above, a matrix product wins."""


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
        return log_weight - _finite(top)[None], top

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
        top = _finite(lax.stop_gradient(jnp.max(entering, axis=1)))
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


def chunk_e_step(
    log_initial: Array,
    log_transition: Array,
    make_log_likelihood: Callable[[], Array],
    alive: Array,
    weight: Array | None = None,
) -> EStep:
    """Log evidence, state marginals and pair statistics of one chunk of sequences.

    Parameters
    ----------
    log_initial : (state, chain, 1).
    log_transition : (state, next_state, chain, 1), or driven (time - 1, state, next_state, chain, sequence).
    make_log_likelihood : gives (time, state, chain, sequence); what stands at dead steps is ignored. Each pass
        makes its own: one array for both would be written out for the sake of the pass that hardly ever runs.
    alive : (time, chain or 1, sequence) bool.
    weight : (chain or 1, sequence), with fixed transitions only: sum the counts over the sequences with these
        weights. None keeps each sequence's own.
    """
    log_likelihood = make_log_likelihood()
    num_steps, num_states, num_chains, num_sequences = log_likelihood.shape
    driven = is_driven(log_transition)
    dtype = log_likelihood.dtype
    tiny = float(jnp.finfo(dtype).tiny)
    alive = jnp.broadcast_to(alive, (num_steps, num_chains, num_sequences))
    if weight is not None:
        weight = jnp.broadcast_to(weight, (num_chains, num_sequences))

    # Inside, arrays are (time, chain, state, sequence): a step of one chain is a matrix for the product.
    by_chain = jnp.swapaxes(log_likelihood, 1, 2)
    best = jnp.max(by_chain, axis=2)
    top = _finite(best)
    likelihood = jnp.where(alive[:, :, None], _floored(by_chain - top[:, :, None]), 0)
    best_initial = jnp.max(log_initial, axis=0)
    initial_shift = _finite(best_initial)
    initial = jnp.swapaxes(jnp.exp(log_initial - initial_shift[None]), 0, 1)
    best_transition = jnp.max(log_transition, axis=(1, 2) if driven else (0, 1))
    transition_shift = _finite(best_transition)
    unknown = jnp.any(alive & jnp.isnan(best), axis=0) | jnp.isnan(best_initial)
    unknown |= jnp.any(alive[1:] & jnp.isnan(best_transition if driven else best_transition[None]), axis=0)
    unknown &= jnp.any(alive, axis=0)
    if driven:
        transition = jnp.transpose(
            _floored(log_transition - transition_shift[:, None, None]), (0, 3, 1, 2, 4)
        )
        transition = jnp.concatenate(
            [transition, jnp.ones_like(transition, shape=(1, *transition.shape[1:]))]
        )
    else:
        transition = jnp.transpose(_floored(log_transition - transition_shift[None, None]), (3, 2, 0, 1))[0]

    joint, normalizer = _forward(initial, transition, likelihood, tiny)
    inverse = jnp.where(unknown[None], jnp.nan, _inverse(normalizer, tiny))  # NaN is handed on, never hidden
    before = jnp.concatenate([jnp.zeros_like(inverse[:1]), inverse[:-1]])
    state, counts, entering, reach = _backward(transition, likelihood, joint, inverse, before, alive, weight)

    kept = alive & (normalizer >= tiny)
    log_c = jnp.log(jnp.where(kept, normalizer, 1)) + jnp.where(alive, top, 0)
    shifts = jnp.where(alive[1:], transition_shift if driven else transition_shift[None], 0)
    log_normalizer = jnp.sum(log_c, axis=0) + jnp.sum(shifts, axis=0) + jnp.where(alive[0], initial_shift, 0)
    log_normalizer = jnp.where(unknown, jnp.nan, log_normalizer)

    limit = jnp.finfo(dtype).eps / (tiny * num_states**2 * num_steps)
    redo = jnp.any(alive & ~kept, axis=0) | (~(reach < limit) & jnp.any(alive, axis=0))
    redo &= ~unknown

    def pairs():
        """Pair statistics of the scaled pass."""
        if driven:
            each = joint[:-1, :, :, None] * transition[:-1] * entering[1:, :, None]
            return jnp.transpose(each, (0, 2, 3, 1, 4))
        if counts is None:
            each = jnp.einsum("trjn,trkn->rnjk", joint[:-1], entering[1:], precision="highest")
            return jnp.transpose(each * transition[:, None], (2, 3, 0, 1))
        if counts.ndim == 3:
            return jnp.transpose(counts * transition, (1, 2, 0))
        each = jnp.transpose(counts * transition[..., None], (1, 2, 0, 3))
        return each if weight is None else jnp.sum(each * weight[None, None], axis=-1)

    def keep():
        return EStep(log_normalizer, jnp.swapaxes(state, 1, 2), pairs())

    def repair():
        exact = log_space_e_step(
            log_initial, log_transition, jnp.where(alive[:, None], make_log_likelihood(), 0), alive
        )
        if weight is None:
            own = pairs()
            pair = jnp.where(_like(redo, own), exact.pair, own)
        else:  # the sum over sequences has to be made anew; both passes are right for those that either fits
            each = jnp.where(unknown[None, None], jnp.nan, exact.pair)
            pair = jnp.sum(each * weight[None, None], axis=-1)
        return EStep(
            jnp.where(redo, exact.log_normalizer, log_normalizer),
            jnp.where(_like(redo, exact.state), exact.state, jnp.swapaxes(state, 1, 2)),
            pair,
        )

    return lax.cond(jnp.any(redo), repair, keep)


def _forward(initial: Array, transition: Array, likelihood: Array, tiny: float) -> tuple[Array, Array]:
    """Joint ``predicted * likelihood`` of every step (time, chain, state, sequence) and its sum over states."""
    num_steps, num_chains, num_states, num_sequences = likelihood.shape
    if not _written_out(transition, num_states):
        with_sum = jnp.concatenate([transition, jnp.ones_like(transition[..., :1])], axis=-1)
        with_sum = jnp.swapaxes(with_sum, 1, 2)

        def step(reached, b):
            joint = reached[:, :-1] * _inverse(reached[:, -1:], tiny) * b
            reached = jnp.matmul(with_sum, joint, precision="highest")
            return reached, (joint, reached[:, -1])

        first = jnp.concatenate([initial, jnp.ones_like(initial[:, :1])], axis=1)
        first = jnp.broadcast_to(first, (num_chains, num_states + 1, num_sequences))
        return lax.scan(step, first, likelihood)[1]

    def written_out_step(predicted, t):
        joint = [predicted[:, j] * _one_state(likelihood, t, j) for j in range(num_states)]
        c = _total(joint)
        reached = _total([_leaving(transition, t, j) * joint[j][:, None] for j in range(num_states)])
        return reached * _inverse(c, tiny)[:, None], (predicted * _step(likelihood, t), c)

    first = jnp.broadcast_to(initial, (num_chains, num_states, num_sequences))
    return lax.scan(written_out_step, first, jnp.arange(num_steps))[1]


def _backward(
    transition: Array,
    likelihood: Array,
    joint: Array,
    inverse: Array,
    before: Array,
    alive: Array,
    weight: Array | None,
) -> tuple[Array, Array | None, Array | None, Array]:
    """State marginals, what pair statistics are made of, and the reach of the smallest number that is kept.

    Pair statistics are ``joint_{t-1}(j) A(j, k) entering_t(k)`` with ``entering_t = likelihood_t * future_t /
    c_{t-1}``. With fixed transitions their sums over time are returned: with few states (chain, state, next_state,
    sequence), with more the weighted sum over the sequences too, a matrix product a step. Otherwise ``entering``.
    """
    num_steps, num_chains, num_states, num_sequences = likelihood.shape
    driven = transition.ndim == 5
    written_out = _written_out(transition, num_states)
    multiplying = not written_out and weight is not None
    summing = (written_out and not driven) or multiplying
    dead = 1 - alive.astype(likelihood.dtype)
    least = 2 * num_states * float(jnp.finfo(likelihood.dtype).tiny)

    def step(carry, t):
        future, reach, counts = carry
        scale = _step(before, t)
        t_before = jnp.maximum(t - 1, 0)
        largest = functools.reduce(jnp.maximum, [future[:, k] for k in range(num_states)])
        reach = jnp.maximum(reach, largest * jnp.maximum(scale, 1))
        state = _step(joint, t) * future
        entering = future * _step(likelihood, t)
        if written_out:
            each = [future[:, k] * _one_state(likelihood, t, k) for k in range(num_states)]
            earlier = _total(
                [_entering(transition, t_before, k) * each[k][:, None] for k in range(num_states)]
            )
        else:
            earlier = jnp.matmul(transition, entering, precision="highest")
        earlier = scale[:, None] * jnp.maximum(earlier + _step(dead, t)[:, None], least)
        if multiplying:
            after = entering * (scale * weight)[:, None]
            counts = counts + jnp.matmul(_step(joint, t_before), after.mT, precision="highest")
        elif summing:
            counts = counts + (_step(joint, t_before) * scale[:, None])[:, :, None] * entering[:, None]
        return (earlier, reach, counts), (state, None if summing else entering * scale[:, None])

    last = jnp.broadcast_to(inverse[-1][:, None], (num_chains, num_states, num_sequences))
    no_reach = jnp.zeros_like(inverse[0])
    shape = (num_chains, num_states, num_states)
    no_counts = (
        jnp.zeros_like(last, shape=shape if multiplying else (*shape, num_sequences)) if summing else None
    )
    (_, reach, counts), (state, entering) = lax.scan(
        step, (last, no_reach, no_counts), jnp.arange(num_steps), reverse=True
    )
    return state, counts, entering, reach


def _written_out(transition: Array, num_states: int) -> bool:
    return transition.ndim == 5 or num_states <= UNROLLED_STATES


def _step(x: Array, t: Array) -> Array:
    """Step t of an array whose first axis is time."""
    return lax.dynamic_index_in_dim(x, t, keepdims=False)


def _one_state(x: Array, t: Array, k: int) -> Array:
    """State k at step t, (chain, sequence), as a slice of its own."""
    num_chains, _, num_sequences = x.shape[1:]
    return lax.dynamic_slice(x, (t, 0, k, 0), (1, num_chains, 1, num_sequences))[0, :, 0]


def _leaving(transition: Array, t: Array, j: int) -> Array:
    """Transitions out of state j, (chain, next_state, sequence or 1)."""
    if transition.ndim == 3:
        return transition[:, j, :, None]
    num_chains, _, num_states, num_sequences = transition.shape[1:]
    return lax.dynamic_slice(transition, (t, 0, j, 0, 0), (1, num_chains, 1, num_states, num_sequences))[
        0, :, 0
    ]


def _entering(transition: Array, t: Array, k: int) -> Array:
    """Transitions into state k, (chain, state, sequence or 1)."""
    if transition.ndim == 3:
        return transition[:, :, k, None]
    num_chains, num_states, _, num_sequences = transition.shape[1:]
    return lax.dynamic_slice(transition, (t, 0, 0, k, 0), (1, num_chains, num_states, 1, num_sequences))[
        0, :, :, 0
    ]


def _total(terms: Sequence[Array]) -> Array:
    return functools.reduce(operator.add, terms)


def _inverse(c: Array, tiny: float) -> Array:
    """Reciprocal of the normaliser, zero at dead steps and where the log-space pass must decide."""
    return jnp.where(c >= tiny, 1 / c, 0)


def _finite(shift: Array) -> Array:
    """The shift, or zero where everything is impossible."""
    return jnp.where(jnp.isfinite(shift), shift, 0)


def _like(mask: Array, array: Array) -> Array:
    """The (chain, sequence) mask with leading axes of one, to stand beside an array of higher rank."""
    return jnp.reshape(mask, (1,) * (array.ndim - 2) + mask.shape)


def _floored(log_probability: Array) -> Array:
    """Exponential that keeps what is possible possible: zero for ``-inf`` alone."""
    least = jnp.finfo(log_probability.dtype).tiny
    return jnp.where(log_probability > -jnp.inf, jnp.maximum(jnp.exp(log_probability), least), 0)
