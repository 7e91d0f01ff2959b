r"""Chains of discrete states: log normaliser, posterior marginals, entropy, paths, filtering.

A chain of states :math:`z_1, \dots, z_T` has the unnormalised weight

.. math:: \exp\Big(\pi(z_1) + \sum_{t=2}^T A_t(z_{t-1}, z_t) + \sum_{t=1}^T \ell_t(z_t)\Big)

with log potentials ``log_initial`` :math:`\pi`, ``log_transition`` :math:`A` (the same at every step, or one
matrix per step) and ``step_log_likelihood`` :math:`\ell`. Nothing needs to be normalised, and entries may be
``-inf``. The gradient of the log normaliser is the posterior: :math:`\partial \log Z / \partial \ell_t(k) =
p(z_t = k)`, written explicitly as the backward messages, so that one function serves sampling, gradients and the
E-step of conjugate updates. Rabiner (1989), section III, has the recursions.

Shapes: ``log_initial (..., state)``; ``log_transition (..., state, state)`` for fixed or
``(..., time - 1, state, state)`` for input-driven transitions, the latter always with every batch axis of the
likelihood; ``step_log_likelihood (..., time, state)``; ``length (...)``, the number of steps that count (all
of them where None). A row of zeros in ``step_log_likelihood`` is a step at which nothing was observed.
Leading batch axes broadcast, and are the fast way to do many chains.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.custom_derivatives import SymbolicZero
from jaxtyping import ArrayLike, Float

from ethogram.models.arguments import is_concrete
from ethogram.models.chains.batching import by_chains, by_chunks, chunk_size
from ethogram.models.chains.filtering import Filtered, filter_states, forecast_states
from ethogram.models.chains.forward_backward import chunk_e_step
from ethogram.models.chains.log_space import EStep, log_space_e_step
from ethogram.models.chains.paths import Path, most_likely_path, sample_path
from ethogram.models.chains.potentials import ChainPotentials, chain_potentials
from ethogram.models.printing import short_repr
from ethogram.models.quick_jit import quick_jit

__all__ = [
    "ExpectedCounts",
    "Filtered",
    "Marginals",
    "Path",
    "entropy",
    "expected_counts",
    "filter_states",
    "forecast_states",
    "log_normalizer",
    "marginals",
    "most_likely_path",
    "sample_path",
]


CALLS = 1000
"""Calls of a kernel on data of one shape, as a fit by EM makes them, for which quick compiling has to pay."""


@short_repr
class Marginals(NamedTuple):
    """Posterior of a chain; everything is zero where the data are impossible, but the log normaliser.

    Attributes
    ----------
    log_normalizer : (...), log p(y); -inf where the data are impossible.
    state : (..., time, state), p(z_t = k | y); zero beyond each length.
    pair : (..., time - 1, state, state), p(z_{t-1} = j, z_t = k | y); zero beyond each length.
    """

    log_normalizer: Float[Array, "*batch"]
    state: Float[Array, "*batch time state"]
    pair: Float[Array, "*batch pair_time state state"]


@short_repr
class ExpectedCounts(NamedTuple):
    """Expected statistics of one E-step; everything is zero where the data are impossible, but the log normaliser.

    Attributes
    ----------
    log_normalizer : (...), log p(y); -inf where the data are impossible.
    state : (..., time, state), p(z_t = k | y); zero beyond each length.
    transition : (*chain, state, state), expected counts of transitions, summed over time and the sequences of a chain.
    """

    log_normalizer: Float[Array, "*batch"]
    state: Float[Array, "*batch time state"]
    transition: Float[Array, "*chain state state"]


def log_normalizer(
    log_initial: ArrayLike,
    log_transition: ArrayLike,
    step_log_likelihood: ArrayLike,
    length: ArrayLike | None = None,
) -> Float[Array, "*batch"]:
    r"""Log of the summed weight of all state paths, ``log p(y)`` for normalised potentials.

    Differentiable in forward and reverse mode, any number of times. Impossible data give ``-inf`` with zero
    gradient; a zero probability (``-inf``) has a zero gradient, never NaN.

    Parameters
    ----------
    log_initial, log_transition, step_log_likelihood, length : see the module.

    Raises
    ------
    ValueError
        If shapes disagree, a length lies outside the chain, or a potential is NaN or ``+inf``.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> half = jnp.log(jnp.full((2, 2), 0.5))
    >>> print(f"{log_normalizer(half[0], half, jnp.log(jnp.array([[0.2, 0.4]] * 3))):.4f}")
    -3.6119
    """
    potentials = chain_potentials(log_initial, log_transition, step_log_likelihood, length)
    return _value(potentials)


def marginals(
    log_initial: ArrayLike,
    log_transition: ArrayLike,
    step_log_likelihood: ArrayLike,
    length: ArrayLike | None = None,
) -> Marginals:
    r"""Log normaliser, state marginals ``p(z_t = k)`` and pair marginals ``p(z_{t-1} = j, z_t = k)``.

    ``state (..., time, state)`` and ``pair (..., time - 1, state, state)`` are zero beyond each length, and
    zero throughout where the data are impossible. Parameters and errors as for :func:`log_normalizer`.
    Rabiner (1989), eq. 27 and 37.
    """
    potentials = chain_potentials(log_initial, log_transition, step_log_likelihood, length)
    return _marginals(potentials)


def expected_counts(
    log_initial: ArrayLike,
    log_transition: ArrayLike,
    step_log_likelihood: ArrayLike,
    length: ArrayLike | None = None,
) -> ExpectedCounts:
    r"""One E-step: log normaliser, state marginals, and expected transition counts summed over the sequences.

    The fast E-step of expectation maximisation: pair marginals are summed as they are computed. Counts
    ``transition (*chain, state, state)`` have the leading batch axes along which a parameter changes; those that
    follow, the sequences, are summed. ``state (*batch, time, state)`` is zero beyond each length; its first step
    holds the counts of initial states. Transitions must be fixed (:func:`marginals` takes input-driven ones);
    other parameters and errors as for :func:`log_normalizer`. Rabiner (1989), eq. 27, 37 and 40.
    """
    potentials = chain_potentials(log_initial, log_transition, step_log_likelihood, length)
    if potentials.driven:
        raise ValueError(
            f"log_transition {potentials.log_transition.shape} changes along the chain: pass one matrix "
            "(..., state, state), or use marginals() for the pairs of every step"
        )
    return _counts(potentials)


def entropy(
    log_initial: ArrayLike,
    log_transition: ArrayLike,
    step_log_likelihood: ArrayLike,
    length: ArrayLike | None = None,
) -> Float[Array, "*batch"]:
    r"""Entropy of the posterior over state paths, in nats: :math:`\log Z` less the expected log weight.

    Impossible data have no posterior: their entropy is reported as zero. Parameters and errors as for
    :func:`log_normalizer`.
    """
    potentials = chain_potentials(log_initial, log_transition, step_log_likelihood, length)
    return _entropy(potentials)


def _program(function: Callable[[ChainPotentials], Any]) -> Callable[[ChainPotentials], Any]:
    """One program per public function: small ones compile quickly, and the caller's own program has it inlined."""
    quick, inlined = quick_jit(function, calls=CALLS), jax.jit(function, inline=True)

    def call(potentials: ChainPotentials) -> Any:
        return (quick if is_concrete(*potentials.arrays) else inlined)(potentials)

    return call


@_program
def _value(potentials: ChainPotentials) -> Array:
    return potentials.unfold(_log_normalizer(*potentials.arrays))


@_program
def _marginals(potentials: ChainPotentials) -> Marginals:
    result = e_step(*potentials.every_step().arrays)
    return Marginals(*(potentials.unfold(part) for part in result))


@_program
def _counts(potentials: ChainPotentials) -> ExpectedCounts:
    result = e_step(*potentials.arrays, True)
    state = potentials.unfold(result.state)
    counts = result.pair.reshape(*potentials.chain_shape, *result.pair.shape[1:])
    return ExpectedCounts(potentials.unfold(result.log_normalizer), state, counts)


@_program
def _entropy(potentials: ChainPotentials) -> Array:
    log_pi, log_a, log_lik, lengths = potentials.arrays
    result = e_step(log_pi, log_a, log_lik, lengths)
    pairs = _expect(result.pair, log_a if potentials.driven else log_a[:, None])
    expected = (
        jnp.sum(_expect(result.state[..., 0, :], log_pi[:, None]), -1)
        + jnp.sum(_expect(result.state, log_lik), (-2, -1))
        + jnp.sum(pairs, tuple(range(2, pairs.ndim)))
    )
    possible = result.log_normalizer > -jnp.inf
    total = jnp.where(possible, jnp.where(possible, result.log_normalizer, 0) - expected, 0)
    return potentials.unfold(jnp.maximum(total, 0))


def _expect(probability: Array, log_potential: Array) -> Array:
    """Probability times potential, with ``0 * -inf = 0``."""
    used = probability > 0
    return jnp.where(used, probability * jnp.where(used, log_potential, 0), 0)


# The kernel's calling convention below: parameters (chain, ...), data (chain, sequence, ...).


@jax.custom_jvp
def _log_normalizer(log_pi: Array, log_a: Array, log_lik: Array, length: Array) -> Array:
    return e_step(log_pi, log_a, log_lik, length).log_normalizer


# At full precision, which a GPU's tensor cores do not have by default.
_dot = functools.partial(jnp.einsum, precision="highest")


def _log_normalizer_jvp(primals, tangents):
    log_pi, log_a, log_lik, length = primals
    result = e_step(log_pi, log_a, log_lik, length)
    along = jnp.zeros_like(result.log_normalizer)
    d_pi, d_a, d_lik, _ = tangents
    if not isinstance(d_pi, SymbolicZero):
        along += _dot("rnk,rk->rn", result.state[:, :, 0], d_pi)
    if not isinstance(d_a, SymbolicZero):
        pairs = "rntjk,rntjk->rn" if log_a.ndim == 5 else "rnjk,rjk->rn"
        along += _dot(pairs, result.pair, d_a)
    if not isinstance(d_lik, SymbolicZero):
        along += _dot("rntk,rntk->rn", result.state, d_lik)
    return result.log_normalizer, along


_log_normalizer.defjvp(_log_normalizer_jvp, symbolic_zeros=True)


@functools.partial(jax.custom_jvp, nondiff_argnums=(4,))
def e_step(log_pi: Array, log_a: Array, log_lik: Array, length: Array, summed: bool = False) -> EStep:
    """Evidence (chain, sequence), state marginals (chain, sequence, time, state) and pair statistics.

    Fixed transitions give each sequence's expected counts (chain, sequence, state, state), with `summed` those of
    all (chain, state, state); driven ones the pair marginals of every step (chain, sequence, time - 1, state,
    state).
    """
    return _BATCHED[summed]((), (log_pi, log_a, log_lik, length))


@e_step.defjvp
def _e_step_jvp(summed, primals, tangents):
    """Second derivatives: through the log-space recursions, whose own derivatives are plain."""
    *potentials, length = primals

    def in_log_space(log_pi, log_a, by_step, alive):
        return log_space_e_step(log_pi, log_a, by_step(), alive)

    def exact(*args):
        result = _whole(in_log_space, *args, length)
        return result._replace(pair=jnp.sum(result.pair, 1)) if summed else result

    _, along = jax.jvp(exact, tuple(potentials), tuple(tangents[:3]))
    return e_step(*primals, summed), along


def _e_step_of_chains(summed: bool, _: tuple, chains: tuple[Array, Array, Array, Array]) -> EStep:
    log_pi, log_a, log_lik, length = chains
    kernel = functools.partial(chunk_e_step, summed=summed)
    driven = log_a.ndim == 5

    def one_chunk(chunk, counted):
        matrices, log_lik, length = chunk
        matrices = matrices if driven else log_a
        result = _whole(kernel, log_pi, matrices, log_lik, jnp.where(counted[None], length, 0))
        return (result._replace(pair=None), result.pair) if summed else (result, None)

    size = chunk_size(*log_lik.shape)
    each, pair = by_chunks(one_chunk, (log_a if driven else None, log_lik, length), size, axis=1)
    return each._replace(pair=pair) if summed else each


# Inlined into what calls them: a call of its own would copy whole arrays in and out.
_BATCHED = tuple(
    jax.jit(by_chains(functools.partial(_e_step_of_chains, summed)), inline=True) for summed in (False, True)
)


def _whole(kernel, log_pi: Array, log_a: Array, log_lik: Array, length: Array) -> EStep:
    """Call a kernel of :mod:`ethogram.models.chains.forward_backward` in its own layout, and turn its results back."""
    num_chains, num_sequences, num_steps, num_states = log_lik.shape
    alive = jnp.arange(num_steps)[:, None, None] < length[None]
    log_pi = log_pi.T[..., None]
    log_a = (
        jnp.moveaxis(log_a, (0, 1), (-2, -1)) if log_a.ndim == 5 else jnp.moveaxis(log_a, 0, -1)[..., None]
    )

    def by_step():
        # Turned over as a matrix: XLA does this several times faster than with three or four axes.
        turned = log_lik.reshape(num_chains * num_sequences, num_steps * num_states).T
        return turned.reshape(num_steps, num_states, num_chains, num_sequences)

    result = kernel(log_pi, log_a, by_step, alive)
    data_axes = (-1,) if result.pair.ndim == 3 else (-2, -1)
    pair = jnp.moveaxis(result.pair, data_axes, range(len(data_axes)))
    return EStep(result.log_normalizer, jnp.transpose(result.state, (2, 3, 0, 1)), pair)
