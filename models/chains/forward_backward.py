r"""The forward-backward recursions of a chain: scaled, with a log-space pass where scaling would lose mass.

Arrays are ``(time, state, chain, sequence)``: sequences are on the fast axis, so that each step is a few wide vector
operations; ``chain`` counts parameter sets (restarts, posterior draws, MCMC chains), each shared by its sequences.

The scaled pass works on probabilities: with the normaliser ``c_t`` and the backward message divided by it,
``future_t = beta_t / c_t``, the joint ``p_t = predicted_t * likelihood_t`` gives the marginal
``p_t * future_t``. A product that underflows loses at most ``tiny``. In ``p_t`` that is worth
``tiny * future_t``; in the matrix-vector product that follows, ``tiny * future_{t+1} / c_t``. The backward pass
keeps the largest such factor, with probabilities of possible events floored at ``tiny``, so that repeated underflow is
detected. Where the resulting bound is not below rounding, or a normaliser vanishes, the chunk is repeated in log space
(one ``lax.cond``), and each sequence takes the valid pass.

On a CPU, XLA vectorises a slice of one state at one step that is used once, but not a slice of a whole step that
several terms share. Sums and maxima over states outside the loops are reductions: an unrolled maximum would be
evaluated anew for each state that it is subtracted from. Rabiner (1989), eq. 19-27, scaled as in section V-A.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax
from jax.custom_batching import custom_vmap

from ethogram.models.chains.log_space import EStep, finite, is_driven, log_space_e_step

__all__ = ["UNROLLED_STATES", "RowTransitions", "SymbolLikelihoods", "chunk_e_step", "joined_e_step"]

UNROLLED_STATES = 10
"""Up to this many states a matrix-vector product is written out, which fuses; above, a matrix product wins."""


class RowTransitions(NamedTuple):
    """Log transitions of an input-driven chain whose steps share the rows of one table."""

    table: Array  # (row, state, next_state, chain)
    row: Array  # (time - 1, sequence): the row by which each step is left; any row at dead steps


class SymbolLikelihoods(NamedTuple):
    """Log likelihoods of a chain whose steps share the rows of one table."""

    table: Array  # (symbol, state, chain)
    symbol: Array  # (time, sequence): the row of each step; any row at dead steps

    def __call__(self) -> Array:
        """The rows written out for every step (time, state, chain, sequence)."""
        return jnp.transpose(self.table[self.symbol], (0, 2, 3, 1))


class _Rows(NamedTuple):
    """The same as probabilities, the rows on the fast axis: a step gathers one number for each sequence."""

    probability: Array  # (chain, state, next_state, row)
    row: Array  # (time, sequence); the last step is left by row 0, to no effect


def chunk_e_step(
    log_initial: Array,
    log_transition: Array | RowTransitions,
    make_log_likelihood: Callable[[], Array],
    alive: Array,
    *,
    summed: bool = False,
) -> EStep:
    """Log evidence, state marginals and pair statistics of one chunk of sequences.

    Parameters
    ----------
    log_initial : (state, chain, 1).
    log_transition : (state, next_state, chain, 1); with few states also of each sequence, (state, next_state, chain,
        sequence), where pair statistics are not summed; or driven (time - 1, state, next_state, chain, sequence), or a
        table with the row of each step; pair statistics are then those of the table, (row, state, next_state,
        chain), and must be summed over the sequences.
    make_log_likelihood : gives (time, state, chain, sequence); what stands at dead steps is ignored. Each pass
        makes its own: one array for both would be written out for the sake of the pass that hardly ever runs.
        From :class:`SymbolLikelihoods` the scaled pass takes exponentials of the table, not of every step.
    alive : (time, chain or 1, sequence) bool.
    summed : add up the pair statistics of the sequences, of fixed transitions or of a table. Otherwise each
        sequence has its own.
    """
    num_steps, num_sequences = alive.shape[0], alive.shape[2]
    num_states, num_chains = log_initial.shape[:2]
    driven = isinstance(log_transition, RowTransitions) or is_driven(log_transition)
    dtype = log_initial.dtype
    tiny = float(jnp.finfo(dtype).tiny)
    alive = jnp.broadcast_to(alive, (num_steps, num_chains, num_sequences))

    # Inside, arrays are (time, chain, state, sequence): a step of one chain is a matrix for the product.
    likelihood, best = _scaled_likelihood(make_log_likelihood)
    likelihood, best = jnp.where(alive[:, :, None], likelihood, 0).astype(dtype), best.astype(dtype)
    top = finite(best)
    best_initial = jnp.max(log_initial, axis=0)
    initial_shift = finite(best_initial)
    initial = jnp.swapaxes(jnp.exp(log_initial - initial_shift[None]), 0, 1)
    if isinstance(log_transition, RowTransitions):
        best_of_row = jnp.max(log_transition.table, axis=(1, 2))
        shifted = _floored(log_transition.table - finite(best_of_row)[:, None, None])
        best_transition = jnp.swapaxes(best_of_row[log_transition.row], 1, 2)
    else:
        best_transition = jnp.max(log_transition, axis=(1, 2) if driven else (0, 1))
    transition_shift = finite(best_transition)
    unknown = jnp.any(alive & jnp.isnan(best), axis=0) | jnp.isnan(best_initial)
    unknown |= jnp.any(alive[1:] & jnp.isnan(best_transition if driven else best_transition[None]), axis=0)
    unknown &= jnp.any(alive, axis=0)
    transition: Array | _Rows
    if isinstance(log_transition, RowTransitions):
        row = jnp.concatenate(
            [log_transition.row, jnp.zeros_like(log_transition.row, shape=(1, num_sequences))]
        )
        transition = _Rows(jnp.transpose(shifted, (3, 1, 2, 0)), row)
    elif driven:
        each = _floored(log_transition - transition_shift[:, None, None])
        each = jnp.transpose(each, (0, 3, 1, 2, 4))
        transition = jnp.concatenate([each, jnp.ones_like(each, shape=(1, *each.shape[1:]))])
    else:
        transition = jnp.transpose(_floored(log_transition - transition_shift[None, None]), (2, 0, 1, 3))
        transition = transition if transition.shape[-1] > 1 else transition[..., 0]

    joint, normalizer = _forward(initial, transition, likelihood, tiny)
    inverse = jnp.where(unknown[None], jnp.nan, _inverse(normalizer, tiny))  # propagate NaN
    before = jnp.concatenate([jnp.zeros_like(inverse[:1]), inverse[:-1]])
    state, counts, entering, reach = _backward(transition, likelihood, joint, inverse, before, alive, summed)

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
        if isinstance(transition, _Rows):
            return jnp.transpose(counts * jnp.transpose(transition.probability, (3, 0, 1, 2)), (0, 2, 3, 1))
        if driven:
            each = joint[:-1, :, :, None] * transition[:-1] * entering[1:, :, None]
            return jnp.transpose(each, (0, 2, 3, 1, 4))
        if counts is None:
            each = jnp.einsum("trjn,trkn->rnjk", joint[:-1], entering[1:], precision="highest")
            return jnp.transpose(each * transition[:, None], (2, 3, 0, 1))
        if counts.ndim == 3:
            return jnp.transpose(counts * transition, (1, 2, 0))
        each = jnp.transpose(counts * _by_sequence(transition), (1, 2, 0, 3))
        return jnp.sum(each, axis=-1) if summed else each

    def keep():
        return EStep(log_normalizer, jnp.swapaxes(state, 1, 2), pairs())

    def repair():
        exact = log_space_e_step(
            log_initial,
            _every_step(log_transition),
            jnp.where(alive[:, None], make_log_likelihood(), 0).astype(dtype),
            alive,
        )
        if summed:  # the sum has to be made anew; both passes are right for sequences that either fits
            pair = _added_up(log_transition, jnp.where(_like(unknown, exact.pair), jnp.nan, exact.pair))
        else:
            own = pairs()
            pair = jnp.where(_like(redo, own), exact.pair, own)
        return EStep(
            jnp.where(redo, exact.log_normalizer, log_normalizer),
            jnp.where(_like(redo, exact.state), exact.state, jnp.swapaxes(state, 1, 2)),
            pair,
        )

    return lax.cond(jnp.any(redo), repair, keep)


def joined_e_step(
    log_initial: Array,
    log_transition: Array,
    make_log_likelihood: Callable[[], Array],
    alive: Array,
    *,
    summed: bool = True,
) -> EStep:
    """As `chunk_e_step` of few states, with fixed transitions and summed statistics.

    Chains of a mapped axis become sequences of one chain, with parameters of their own.
    """
    each = log_initial, log_transition, make_log_likelihood()
    return _joined(*each, jnp.broadcast_to(alive, (len(alive), log_initial.shape[1], alive.shape[2])))


@custom_vmap
def _joined(log_initial: Array, log_transition: Array, log_likelihood: Array, alive: Array) -> EStep:
    return chunk_e_step(log_initial, log_transition, lambda: log_likelihood, alive, summed=True)


@_joined.def_vmap
def _(axis_size, in_batched, *given):
    shape = (axis_size, *given[-1].shape[-2:])  # (set, chain, sequence), the last axes of all arguments

    def joined(x, batched):
        x = jnp.moveaxis(x if batched else jnp.broadcast_to(x, (axis_size, *x.shape)), 0, -3)
        return jnp.broadcast_to(x, (*x.shape[:-3], *shape)).reshape(*x.shape[:-3], 1, -1)

    def apart(x):
        return jnp.moveaxis(x.reshape(*x.shape[:-2], *shape), -3, 0)

    initial, transition, likelihood, alive = map(joined, given, in_batched)
    found = EStep(*map(apart, chunk_e_step(initial, transition, lambda: likelihood, alive)))
    return found._replace(pair=jnp.sum(found.pair, axis=-1)), EStep(True, True, True)


def _scaled_likelihood(make_log_likelihood: Callable[[], Array]) -> tuple[Array, Array]:
    """Likelihood (time, chain, state, sequence) over its largest in each step, and the log of that."""
    if isinstance(make_log_likelihood, SymbolLikelihoods):
        table, symbol = make_log_likelihood
        best = jnp.max(table, axis=1)
        scaled = _floored(table - finite(best)[:, None])
        return jnp.transpose(scaled[symbol], (0, 3, 2, 1)), jnp.swapaxes(best[symbol], 1, 2)
    by_chain = jnp.swapaxes(make_log_likelihood(), 1, 2)
    best = jnp.max(by_chain, axis=2)
    return _floored(by_chain - finite(best)[:, :, None]), best


def _every_step(log_transition: Array | RowTransitions) -> Array:
    """Transitions as the log-space pass takes them: rows of a table written out for every step."""
    if not isinstance(log_transition, RowTransitions):
        return log_transition
    return jnp.transpose(log_transition.table[log_transition.row], (0, 2, 3, 4, 1))


def _added_up(log_transition: Array | RowTransitions, pair: Array) -> Array:
    """Pair statistics of the log-space pass summed over sequences, and over the steps of each row of a table."""
    if not isinstance(log_transition, RowTransitions):
        return jnp.sum(pair, axis=-1)
    each = jnp.moveaxis(pair, -1, 1)
    return jnp.zeros_like(log_transition.table, dtype=pair.dtype).at[log_transition.row].add(each)


def _forward(
    initial: Array, transition: Array | _Rows, likelihood: Array, tiny: float
) -> tuple[Array, Array]:
    """Joint ``predicted * likelihood`` of every step (time, chain, state, sequence) and its sum over states."""
    num_steps, num_chains, num_states, num_sequences = likelihood.shape
    if not isinstance(transition, _Rows) and not _written_out(transition, num_states):
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
        reached = _total([_of_state(transition, t, j, 1) * joint[j][:, None] for j in range(num_states)])
        return reached * _inverse(c, tiny)[:, None], (predicted * _step(likelihood, t), c)

    first = jnp.broadcast_to(initial, (num_chains, num_states, num_sequences))
    return lax.scan(written_out_step, first, jnp.arange(num_steps))[1]


def _backward(
    transition: Array | _Rows,
    likelihood: Array,
    joint: Array,
    inverse: Array,
    before: Array,
    alive: Array,
    summed: bool,
) -> tuple[Array, Array | None, Array | None, Array]:
    """State marginals, what pair statistics are made of, and the reach of the smallest number that is kept.

    Pair statistics are ``joint_{t-1}(j) A(j, k) entering_t(k)`` with ``entering_t = likelihood_t * future_t /
    c_{t-1}``. With fixed transitions their sums over time are returned: with few states (chain, state, next_state,
    sequence), with more the sum over the sequences too, one matrix product per step. With a table the
    sums of its rows (row, chain, state, next_state). Otherwise ``entering``.
    """
    num_steps, num_chains, num_states, num_sequences = likelihood.shape
    written_out = _written_out(transition, num_states)
    multiplying = not written_out and summed
    summing = isinstance(transition, _Rows) or multiplying or (written_out and transition.ndim < 5)
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
                [_of_state(transition, t_before, k, 2) * each[k][:, None] for k in range(num_states)]
            )
        else:
            earlier = jnp.matmul(transition, entering, precision="highest")
        earlier = scale[:, None] * jnp.maximum(earlier + _step(dead, t)[:, None], least)
        if multiplying:
            after = entering * scale[:, None]
            counts = counts + jnp.matmul(_step(joint, t_before), after.mT, precision="highest")
        elif isinstance(transition, _Rows):
            left = (_step(joint, t_before) * scale[:, None])[:, :, None]
            here = _step(transition.row, t_before)
            counts = counts.at[here].add(jnp.transpose(left * entering[:, None], (3, 0, 1, 2)), mode="clip")
        elif summing:
            counts = counts + (_step(joint, t_before) * scale[:, None])[:, :, None] * entering[:, None]
        return (earlier, reach, counts), (state, None if summing else entering * scale[:, None])

    last = jnp.broadcast_to(inverse[-1][:, None], (num_chains, num_states, num_sequences))
    no_reach = jnp.zeros_like(inverse[0])
    shape: tuple[int, ...] = (num_chains, num_states, num_states)
    if isinstance(transition, _Rows):
        shape = (transition.probability.shape[-1], *shape)
    elif not multiplying:
        shape = (*shape, num_sequences)
    no_counts = jnp.zeros_like(last, shape=shape) if summing else None
    (_, reach, counts), (state, entering) = lax.scan(
        step, (last, no_reach, no_counts), jnp.arange(num_steps), reverse=True
    )
    return state, counts, entering, reach


def _written_out(transition: Array | _Rows, num_states: int) -> bool:
    return isinstance(transition, _Rows) or transition.ndim == 5 or num_states <= UNROLLED_STATES


def _step(x: Array, t: Array) -> Array:
    """Step t of an array whose first axis is time."""
    return lax.dynamic_index_in_dim(x, t, keepdims=False)


def _one_state(x: Array, t: Array, k: int) -> Array:
    """State k at step t, (chain, sequence), as a slice of its own."""
    num_chains, _, num_sequences = x.shape[1:]
    return lax.dynamic_slice(x, (t, 0, k, 0), (1, num_chains, 1, num_sequences))[0, :, 0]


def _of_state(transition: Array | _Rows, t: Array, k: int, axis: int) -> Array:
    """Transitions out of state k (axis 1) or into it (axis 2): (chain, other state, sequence or 1)."""
    if isinstance(transition, _Rows):
        part = lax.index_in_dim(transition.probability, k, axis, keepdims=False)
        return part.at[:, :, _step(transition.row, t)].get(mode="clip")
    if transition.ndim < 5:
        return lax.index_in_dim(_by_sequence(transition), k, axis, keepdims=False)
    start = (t, 0, k, 0, 0) if axis == 1 else (t, 0, 0, k, 0)
    size = [1 if i in (0, 1 + axis) else length for i, length in enumerate(transition.shape)]
    return jnp.squeeze(lax.dynamic_slice(transition, start, size), (0, 1 + axis))


def _by_sequence(transition: Array) -> Array:
    """Transitions of chains (chain, state, next_state), or of their sequences, with an axis of sequences."""
    return transition[..., None] if transition.ndim == 3 else transition


def _total(terms: Sequence[Array]) -> Array:
    return functools.reduce(operator.add, terms)


def _inverse(c: Array, tiny: float) -> Array:
    """Reciprocal of the normaliser, zero at dead steps and where the log-space pass must decide."""
    return jnp.where(c >= tiny, 1 / c, 0)


def _like(mask: Array, array: Array) -> Array:
    """The (chain, sequence) mask with leading axes of one, to stand beside an array of higher rank."""
    return jnp.reshape(mask, (1,) * (array.ndim - 2) + mask.shape)


def _floored(log_probability: Array) -> Array:
    """Exponential that keeps what is possible possible: zero for ``-inf`` alone."""
    least = jnp.finfo(log_probability.dtype).tiny
    return jnp.where(log_probability > -jnp.inf, jnp.maximum(jnp.exp(log_probability), least), 0)
