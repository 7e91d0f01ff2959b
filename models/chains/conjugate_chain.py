r"""The chain's log normaliser under expected log potentials: E-step and statistics in one pass over the data.

This is the first term of the conjugate engine's bound, :math:`\sum_s \log \tilde Z_s`, where
:math:`\tilde Z` is the chain's normaliser with every log potential replaced by its expectation under q. Its
gradient with respect to the expected statistics are the statistics of the data under the optimal q(z), which
is all that a conjugate update needs. Features, messages and statistics of a chunk of sequences are made,
used and dropped together, so that memory does not grow with the data.

Le, Yue, Carr, Lucey (2017), supplement: eq. 7-15, with the local step's :math:`\tilde p_0 = \exp E \ln p_0`
(printed there: :math:`\exp \ln E p_0`) and :math:`F_1 = \tilde p_0 \tilde L_1` (printed without
:math:`\tilde L_1`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from ethogram.models.chains.batching import by_chains, by_chunks, chunk_size
from ethogram.models.chains.forward_backward import (
    UNROLLED_STATES,
    RowTransitions,
    SymbolLikelihoods,
    chunk_e_step,
    joined_e_step,
)
from ethogram.models.hooks import overrides

__all__ = [
    "ChainData",
    "ChainEmission",
    "conjugate_log_normalizer",
    "masked_log_likelihood",
    "state_marginals",
    "zero_where_missing",
]


class ChainData(NamedTuple):
    """Data of sequences, as the chain sees them."""

    observations: Any  # (sequence, time, ...): what the emission reads, an array or a pytree of them
    observed: Array  # (sequence, time) bool
    lengths: Array  # (sequence,)
    states: Array | None = None  # (sequence, time): known states, -1 where not known
    rows: Array | None = None  # (sequence, time): row of the transition table by which each step is left


class ChainEmission:
    """Hooks of the expected log likelihoods of the states; base class of emissions.

    `expected_log_likelihood` serves all data. An emission of symbols may also define `symbol_table`, and one that is
    linear in features of the data both `chain_features` and `chain_weights`: the values are the same, with less work.
    """

    def expected_log_likelihood(self, expected: dict[str, Any], observations: Array) -> Array:
        """Expected log likelihood (..., state) of observations under q, by the expected statistics of the blocks."""
        raise NotImplementedError(f"{type(self).__name__} has no method expected_log_likelihood")

    def symbol_table(self, expected: dict[str, Any]) -> Array:
        """Expected log probability (symbol, state) of integer observations. Default: observations are no symbols."""
        raise NotImplementedError(f"{type(self).__name__} has no method symbol_table")

    def chain_features(self, observations: Array, observed: Array) -> Array:
        """Features (time, feature, sequence) of observations (sequence, time, ...), zero where missing.

        Default: there are none, and statistics are the gradient of `expected_log_likelihood`.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method chain_features")

    def chain_weights(self, expected: dict[str, Any]) -> Array:
        """Weights (state, feature) of `chain_features` in the expected log likelihood; needed with these only."""
        raise NotImplementedError(f"{type(self).__name__} has no method chain_weights")


def masked_log_likelihood(log_likelihood: Array, observed: Array, states: Array | None) -> Array:
    """Step log likelihood (..., state): zero where nothing was observed, ``-inf`` off a known state."""
    log_likelihood = jnp.where(observed[..., None], log_likelihood, 0)
    if states is None:
        return log_likelihood
    state = jnp.arange(log_likelihood.shape[-1])
    allowed = (states[..., None] < 0) | (states[..., None] == state.reshape((1,) * states.ndim + (-1,)))
    return jnp.where(allowed, log_likelihood, -jnp.inf)


def zero_where_missing(observations: Any, observed: Array) -> Any:
    """Observations (sequence, time, ...), an array or a pytree of them, with zero in frames that were not observed."""

    def zero(x):
        return jnp.where(observed.reshape(observed.shape + (1,) * (x.ndim - 2)), x, 0)

    return jax.tree.map(zero, observations)


@jax.custom_jvp
def conjugate_log_normalizer(emission: ChainEmission, expected: dict[str, Any], data: ChainData) -> Array:
    r"""Summed log normaliser :math:`\sum_s \log \tilde Z_s` of all sequences, a scalar.

    Differentiable with respect to `expected` only, once; the gradient holds the expected statistics.

    Parameters
    ----------
    emission : an emission of :mod:`ethogram.models.emissions`.
    expected : expected statistics by block: ``initial`` and ``transition`` (of Dirichlet blocks; the latter a
        table with a leading axis of rows where the data name the row of each step), and those of the emission's
        own blocks.
    data : sequences; those of length zero add nothing.
    """
    return _value_and_statistics(emission, expected, data)[0]


@conjugate_log_normalizer.defjvp
def _conjugate_log_normalizer_jvp(primals, tangents):
    value, statistics = _value_and_statistics(*primals)
    parts = jax.tree.map(lambda s, t: jnp.sum(s * t), statistics, tangents[1])
    return value, jax.tree.reduce(jnp.add, parts)


# One compilation where it is called outside jit, and no call of its own inside.
@functools.partial(jax.jit, inline=True)
def _value_and_statistics(emission, expected, data):
    one_chain = jax.tree.map(lambda x: x[None], expected)
    return jax.tree.map(lambda x: x[0], _many_chains((emission, data), one_chain))


def _side_by_side(shared: tuple[ChainEmission, ChainData], expected: dict[str, Any]) -> Any:
    """The same for data sets of their own (set, ...), whose chains the recursions take as further ones of one set."""
    many = expected["initial"].concentration.shape[-1] > UNROLLED_STATES
    if (
        many or shared[1].rows is not None
    ):  # whose statistics are matrix products, or those of the table of a set
        return lax.map(lambda one: _many_chains(*one), (shared, expected))
    return jax.vmap(functools.partial(_of_chains, joined_e_step))(shared, expected)


def _of_chains(
    e_step: Callable[..., Any], shared: tuple[ChainEmission, ChainData], expected: dict[str, Any]
) -> tuple[Array, dict[str, Any]]:
    """Value (chain,) and statistics with a leading chain axis, chunk by chunk of sequences."""
    emission, data = shared
    expected = dict(expected)
    initial, transition = expected.pop("initial"), expected.pop("transition")
    log_initial = jnp.transpose(initial.concentration, (1, 0))[..., None]
    log_transition = jnp.moveaxis(transition.concentration, 0, -1)
    num_states, num_chains = log_initial.shape[:2]
    num_sequences, num_steps = data.observed.shape

    def one_chunk(chunk: ChainData, counted: Array):
        result, statistics_of = _chunk_marginals(
            emission, (log_initial, log_transition), expected, chunk, counted, e_step
        )
        counts = {
            "initial": initial._replace(concentration=jnp.sum(result.state[0], axis=-1).T),
            "transition": transition._replace(concentration=jnp.moveaxis(result.pair, -1, 0)),
        }
        value = jnp.sum(result.log_normalizer, axis=-1)
        return None, (value, {**counts, **statistics_of(result.state)})

    size = chunk_size(num_chains, num_sequences, num_steps, num_states)
    return by_chunks(one_chunk, data, size, axis=0)[1]


_many_chains = by_chains(functools.partial(_of_chains, chunk_e_step), _side_by_side)


def state_marginals(emission: ChainEmission, expected: dict[str, Any], data: ChainData) -> Array:
    """q(z) of every step (sequence, time, state) under expected log potentials, zero beyond each length."""
    expected = jax.tree.map(lambda x: x[None], expected)
    initial, transition = expected.pop("initial"), expected.pop("transition")
    log_initial = jnp.transpose(initial.concentration, (1, 0))[..., None]
    chain = log_initial, jnp.moveaxis(transition.concentration, 0, -1)

    def one_chunk(chunk: ChainData, counted: Array):
        state = _chunk_marginals(emission, chain, expected, chunk, counted)[0].state
        return jnp.transpose(state[:, :, 0], (2, 0, 1)), ()

    num_sequences, num_steps = data.observed.shape
    size = chunk_size(1, num_sequences, num_steps, log_initial.shape[0])
    return by_chunks(one_chunk, data, size, axis=0)[0]


def _chunk_marginals(
    emission: ChainEmission,
    chain: tuple[Array, Array],
    expected: dict[str, Any],
    chunk: ChainData,
    counted: Array,
    e_step: Callable[..., Any] = chunk_e_step,
) -> tuple[Any, Any]:
    """E-step of a chunk under the log potentials of its chain, and what gives statistics of marginals by block."""
    log_initial, log_transition = chain
    steps, statistics_of = _step_potentials(emission, expected, chunk, by_step=e_step is chunk_e_step)
    dtype = jnp.result_type(jax.eval_shape(steps), log_initial)
    lengths = jnp.where(counted, chunk.lengths, 0)
    table = log_transition.astype(dtype)
    result = e_step(
        log_initial.astype(dtype),
        table[..., None] if chunk.rows is None else RowTransitions(table, chunk.rows[:, :-1].T),
        steps,
        jnp.arange(chunk.observed.shape[1])[:, None, None] < lengths[None, None],
        summed=True,
    )
    return result, statistics_of


def _step_potentials(
    emission: ChainEmission, expected: dict[str, Any], chunk: ChainData, by_step: bool
) -> tuple[Any, Any]:
    """What gives expected log likelihoods (time, state, chain, sequence), and statistics of marginals by block.

    Where it is linear in features of the data, both are matrix products with them, `by_step` or all steps at once;
    elsewhere the statistics are the pullback of the marginals through it.
    """
    if overrides(emission, "symbol_table") and chunk.states is None:
        return _symbol_potentials(emission, expected, chunk)
    if not overrides(emission, "chain_features") or not isinstance(chunk.observations, Array):
        return _general_potentials(emission, expected, chunk)
    features = emission.chain_features(chunk.observations, chunk.observed)
    weights, pullback = jax.vjp(jax.vmap(emission.chain_weights), expected)
    num_chains, num_states, num_features = weights.shape
    num_steps, _, num_sequences = features.shape
    rows = weights.reshape(1, -1, num_features)
    if by_step:  # rather than one product for all of them: the result has the layout that the messages need
        steps = jnp.matmul(
            jnp.broadcast_to(rows, (num_steps, *rows.shape[1:])), features, precision="highest"
        )
    else:  # of data sets of their own, whose products are small
        steps = jnp.einsum("cf,tfs->tcs", rows[0], features, precision="highest")
    steps = steps.reshape(num_steps, num_chains, num_states, num_sequences)
    steps = jnp.swapaxes(steps, 1, 2)
    if chunk.states is not None:  # impossible off a known state
        known = chunk.states.T[:, None, None]
        allowed = (known < 0) | (known == jnp.arange(steps.shape[1]).reshape(1, -1, 1, 1))
        steps = jnp.where(allowed, steps, -jnp.inf)

    def statistics_of(marginals: Array) -> dict[str, Any]:
        flat = jnp.swapaxes(marginals, 1, 2).reshape(num_steps, -1, num_sequences).astype(features.dtype)
        if by_step:
            total = jnp.sum(jnp.matmul(flat, features.mT, precision="highest"), axis=0)
        else:
            total = jnp.einsum("tcs,tfs->cf", flat, features, precision="highest")
        return pullback(total.reshape(weights.shape).astype(weights.dtype))[0]

    return lambda: steps, statistics_of


def _symbol_potentials(
    emission: ChainEmission, expected: dict[str, Any], chunk: ChainData
) -> tuple[Any, Any]:
    """The same where steps share the rows of a table: counts of its rows are added up by symbol."""
    table, pullback = jax.vjp(jax.vmap(emission.symbol_table, out_axes=-1), expected)
    nothing = table.shape[0]  # the last row, of zeros: a step where nothing was observed
    symbol = jnp.where(chunk.observed, chunk.observations, nothing).T

    def statistics_of(marginals: Array) -> dict[str, Any]:
        counts = jnp.zeros((nothing + 1, *table.shape[1:]), table.dtype)
        counts = counts.at[symbol].add(jnp.transpose(marginals, (0, 3, 1, 2)).astype(table.dtype))
        return pullback(counts[:nothing])[0]

    return SymbolLikelihoods(jnp.pad(table, ((0, 1), (0, 0), (0, 0))), symbol), statistics_of


def _general_potentials(
    emission: ChainEmission, expected: dict[str, Any], chunk: ChainData
) -> tuple[Any, Any]:
    observed = chunk.observed.T
    observations = zero_where_missing(chunk.observations, chunk.observed)
    observations = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), observations)
    states = None if chunk.states is None else chunk.states.T

    def log_likelihood(statistics):
        one = masked_log_likelihood(
            emission.expected_log_likelihood(statistics, observations), observed, states
        )
        return jnp.transpose(one, (0, 2, 1))

    steps, pullback = jax.vjp(jax.vmap(log_likelihood, out_axes=2), expected)
    return lambda: steps, lambda marginals: pullback(marginals.astype(steps.dtype))[0]
