r"""Chains of states whose dwell times are not geometric: every state is a row of phases with one emission.

A bout begins in the first phase. From phase r of state k the chain leaves with the hazard :math:`c_k(r)`, to the first
phase of the state j with :math:`A_t(k, j)`, and else goes on to phase r + 1; the last phase is its own successor, so
that the tail is geometric. With :math:`c_k(r) = p_k(r) / (1 - F_k(r - 1))` dwell times have the probabilities
:math:`p_k` up to the number of phases: Langrock and Zucchini (2011), "Hidden Markov models with arbitrary state
dwell-time distributions", section 3.

Functions are those of :mod:`ethogram.models.chains.markov_chain`, whose results they have, of states. One step moves
all phases on and sums what leaves them, which is linear in the phases, where the matrix of the expanded chain is
quadratic. Recursions are in log space, exact at any magnitude. Arguments are

- `phases`: their log potentials, :class:`Phases`;
- `log_next` (..., time - 1, state, state): where a state is left to, minus infinity on the diagonal, rows sum to one;
- `log_likelihood` (..., time, state), zero where nothing was observed and beyond a length; `length` (...).
"""

from __future__ import annotations

import sys
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float

from ethogram.models.chains.driven_markov import DrivenMarkov
from ethogram.models.chains.filtering import Filtered
from ethogram.models.chains.log_space import finite, logsumexp
from ethogram.models.chains.markov_chain import Marginals
from ethogram.models.chains.paths import Path
from ethogram.models.quick_jit import quick_jit

__all__ = [
    "DwellMarkov",
    "Phases",
    "filter_states",
    "log_normalizer",
    "marginals",
    "most_likely_path",
    "sample_path",
]

KEPT = 2**20
"""Numbers of the messages of a sequence up to which its gradient keeps them all; more are made anew by stretches."""
STRETCH = 64
"""Steps of a stretch."""
ARGUMENTS = "(k,m),(k,m),(k,m),(s,k,k),(t,k)"


class Phases(NamedTuple):
    """Log probabilities of phases."""

    first: Float[Array, "*batch state phase"]  # of the first step; sums to one over states and phases
    leave: Float[Array, "*batch state phase"]  # hazards
    stay: Float[Array, "*batch state phase"]  # of what does not leave


@quick_jit(calls=10, inline=True)
def log_normalizer(phases: Phases, log_next: Array, log_likelihood: Array, length: Any) -> Array:
    """Log evidence (...); minus infinity, with zero gradient, where the data are impossible.

    Rows of `log_next` sum to one, so that steps beyond a length do not count.
    """
    return _over_sequences(_evidence, "->()")(*phases, log_next, log_likelihood)


@quick_jit(calls=10, inline=True)
def marginals(phases: Phases, log_next: Array, log_likelihood: Array, length: Any) -> Marginals:
    """Log evidence, state marginals and pair marginals: its gradients, summed over phases."""
    batch = jnp.broadcast_shapes(log_next.shape[:-3], log_likelihood.shape[:-2], jnp.shape(length))
    num_steps, num_states = log_likelihood.shape[-2:]
    steps = jnp.broadcast_to(log_likelihood, (*batch, num_steps, num_states))
    moves = jnp.broadcast_to(log_next, (*batch, *log_next.shape[-3:]))
    value, pull = jax.vjp(_over_sequences(_evidence, "->()"), *phases, moves, steps)
    *_, changes, state = pull(jnp.ones_like(value))
    alive = jnp.arange(num_steps) < jnp.asarray(length)[..., None]
    state = jnp.where(alive[..., None], state, 0)
    stays = jnp.maximum(state[..., :-1, :] - changes.sum(-1), 0)
    pair = changes + stays[..., None] * jnp.eye(num_states, dtype=changes.dtype)
    return Marginals(value, state, jnp.where(alive[..., 1:, None, None], pair, 0))


@quick_jit(calls=10, inline=True)
def filter_states(phases: Phases, log_next: Array, log_likelihood: Array, length: Any) -> Filtered:
    """Filtered and predicted state probabilities, and the evidence step by step."""
    log_state, log_predicted = _over_sequences(_messages_of_states, "->(t,k),(t,k)")(
        *phases, log_next, log_likelihood
    )
    alive = jnp.arange(log_likelihood.shape[-2]) < jnp.asarray(length)[..., None]
    before, after = logsumexp(log_predicted, -1), logsumexp(log_state, -1)
    increment = jnp.where(alive & (before > -jnp.inf), after - finite(before), jnp.where(alive, -jnp.inf, 0))
    uniform = -jnp.log(log_state.shape[-1])

    def shares(log_weight: Array, total: Array) -> Array:
        known = (total > -jnp.inf)[..., None]
        log_share = jnp.where(known, log_weight - finite(total)[..., None], uniform)
        return jnp.where(alive[..., None], jnp.exp(log_share), 0)

    evidence = jnp.sum(increment, axis=-1)
    return Filtered(evidence, shares(log_state, after), shares(log_predicted, before), increment)


@quick_jit(calls=10, inline=True)
def most_likely_path(phases: Phases, log_next: Array, log_likelihood: Array, length: Any) -> Path:
    """The states of the most likely path of phases (Viterbi), and its joint log weight."""
    path, weight = _over_sequences(_viterbi, "->(t),()", ",()")(
        *phases, log_next, log_likelihood, jnp.asarray(length)
    )
    return _masked(path, weight, length)


@quick_jit(calls=10, inline=True)
def sample_path(key: Array, phases: Phases, log_next: Array, log_likelihood: Array, length: Any) -> Path:
    """One exact draw of the states from their posterior, and the joint log weight of its phases.

    Forward filtering, backward sampling of phases: Scott (2002), "Bayesian methods for hidden Markov models".
    """
    batch = jnp.broadcast_shapes(log_next.shape[:-3], log_likelihood.shape[:-2], jnp.shape(length))
    keys = jax.random.split(key, batch)
    path, weight = _over_sequences(_backward_draw, "->(t),()", ",(),()")(
        *phases, log_next, log_likelihood, jnp.broadcast_to(jnp.asarray(length), batch), keys
    )
    return _masked(path, weight, length)


class DwellMarkov(DrivenMarkov):
    """Distribution of the observations of a hidden chain of states whose dwell times are those of phases.

    Parameters
    ----------
    initial : pi (state,).
    log_next : (..., time - 1, state, state), of this module.
    phases : of this module, those of the first step given the state: sums over phases are one.
    emission, lengths, observed, states : as of `HiddenMarkov`.
    """

    pytree_data_fields = (*DrivenMarkov.pytree_data_fields, "phases")  # type: ignore[assignment]

    kernels: ClassVar[Any] = sys.modules[__name__]

    def __init__(self, initial: Any, log_next: Any, phases: Phases, *of: Any, **options: Any):
        self.phases = phases
        super().__init__(initial, log_next, *of, **options)

    def _potentials(self, likelihood: Array, lengths: Array) -> Any:
        first = self._log_initial[..., None] + self.phases.first
        return self.phases._replace(first=first), self.log_transition, likelihood, lengths

    def _walk(self, key: Array, first: Array, steps: int) -> Array:
        """States (..., time) from the first one on."""
        key_phase, key_steps = jax.random.split(key)
        last = self.phases.leave.shape[-1] - 1
        phase = jax.random.categorical(key_phase, self.phases.first[first]).astype(first.dtype)

        def step(at: tuple[Array, Array], now: Any) -> tuple[tuple[Array, Array], Array]:
            (state, phase), (key, matrix) = at, now
            key_leave, key_next = jax.random.split(key)
            matrix = jnp.broadcast_to(matrix, (*state.shape, *matrix.shape[-2:]))
            rows = jnp.take_along_axis(matrix, state[..., None, None], axis=-2)[..., 0, :]
            other = jax.random.categorical(key_next, rows).astype(state.dtype)
            leaves = jax.random.uniform(key_leave, state.shape) < jnp.exp(self.phases.leave[state, phase])
            state = jnp.where(leaves, other, state)
            return (state, jnp.where(leaves, 0, jnp.minimum(phase + 1, last))), state

        matrices = jnp.moveaxis(self.log_transition, -3, 0)
        _, later = lax.scan(step, (first, phase), (jax.random.split(key_steps, steps - 1), matrices))
        return jnp.concatenate([first[..., None], jnp.moveaxis(later, 0, -1)], axis=-1)


def _over_sequences(function: Any, result: str, further: str = "") -> Any:
    """A function of one sequence over all leading axes, which broadcast."""
    return jnp.vectorize(function, signature=ARGUMENTS + further + result)


def _moved(alpha: Array, leave: Array, stay: Array, log_next: Array) -> tuple[Array, Array]:
    """Messages (state, phase) one step on, less the largest weight that enters a state, and that weight."""
    enter = logsumexp(logsumexp(alpha + leave, 1)[:, None] + log_next, 0)
    top = finite(lax.stop_gradient(jnp.max(enter)))
    kept = alpha + stay
    last = logsumexp(kept[:, -2:], 1)
    return jnp.concatenate([enter[:, None], kept[:, :-2], last[:, None]], axis=1) - top, top


def _evidence(first: Array, leave: Array, stay: Array, log_next: Array, log_likelihood: Array) -> Array:
    def step(carry: Any, now: Any) -> Any:
        (alpha, total), (matrix, likelihood) = carry, now
        alpha, top = _moved(alpha, leave, stay, matrix)
        return (alpha + likelihood[:, None], total + top), None

    carry = first + log_likelihood[0][:, None], jnp.zeros_like(first, shape=())
    steps = log_next, log_likelihood[1:]
    whole = len(log_next) // STRETCH if len(log_next) * first.size > KEPT else 0
    if whole:
        many = jax.tree.map(lambda x: x[: whole * STRETCH].reshape(whole, STRETCH, *x.shape[1:]), steps)
        carry, _ = lax.scan(jax.checkpoint(lambda carry, part: lax.scan(step, carry, part)), carry, many)
    (alpha, total), _ = lax.scan(step, carry, jax.tree.map(lambda x: x[whole * STRETCH :], steps))
    return total + logsumexp(alpha.ravel(), 0)


def _forward(first: Array, leave: Array, stay: Array, log_next: Array, log_likelihood: Array) -> Any:
    """Messages (time, state, phase) before and after the observation of each step, up to a factor of the step."""

    def step(alpha: Array, now: Any) -> Any:
        matrix, likelihood = now
        before, _ = _moved(alpha, leave, stay, matrix)
        after = before + likelihood[:, None]
        return after, (before, after)

    begin = first + log_likelihood[0][:, None]
    _, (before, after) = lax.scan(step, begin, (log_next, log_likelihood[1:]))
    return jnp.concatenate([first[None], before]), jnp.concatenate([begin[None], after])


def _messages_of_states(*arguments: Array) -> tuple[Array, Array]:
    before, after = _forward(*arguments)
    return logsumexp(after, -1), logsumexp(before, -1)


def _viterbi(
    first: Array, leave: Array, stay: Array, log_next: Array, log_likelihood: Array, length: Array
) -> tuple[Array, Array]:
    steps, last = jnp.arange(1, len(log_likelihood)), first.shape[1] - 1

    def forward(carry: Any, now: Any) -> Any:
        (best, total), (time, matrix, likelihood) = carry, now
        left = best + leave
        reached = jnp.max(left, axis=1)[:, None] + matrix
        kept = best + stay
        moved = jnp.concatenate([reached.max(0)[:, None], kept[:, :-2], kept[:, -2:].max(1)[:, None]], axis=1)
        back = jnp.argmax(left, axis=1), jnp.argmax(reached, axis=0), kept[:, -1] > kept[:, -2]
        moved = jnp.where(time < length, moved + likelihood[:, None], best)
        top = finite(jnp.max(moved))  # rounding stays small however long the chain
        return (moved - top, total + top), back

    def backward(at: Any, now: Any) -> Any:
        (state, phase), (time, (leaving, origin, waits)) = at, now
        before = origin[state]
        kept = jnp.where((phase == last) & waits[state], last, phase - 1)
        earlier = jnp.where(phase == 0, before, state), jnp.where(phase == 0, leaving[before], kept)
        earlier = jax.tree.map(lambda new, old: jnp.where(time < length, new, old), earlier, at)
        return earlier, earlier[0]

    start = first + log_likelihood[0][:, None], jnp.zeros_like(first, shape=())
    (best, total), back = lax.scan(forward, start, (steps, log_next, log_likelihood[1:]))
    end = jnp.divmod(jnp.argmax(best), best.shape[1])
    _, path = lax.scan(backward, end, (steps, back), reverse=True)
    return jnp.append(path, end[0]), total + jnp.max(best)


def _backward_draw(
    first: Array, leave: Array, stay: Array, log_next: Array, log_likelihood: Array, length: Array, key: Array
) -> tuple[Array, Array]:
    _, alpha = _forward(first, leave, stay, log_next, log_likelihood)
    count, last = first.shape[0], first.shape[1] - 1
    states, places = jnp.arange(count)[:, None], jnp.arange(last + 1)

    def drawn(key: Array, log_weight: Array) -> Any:
        noise = jax.random.gumbel(key, log_weight.shape, log_weight.dtype, mode="high")
        return jnp.divmod(jnp.argmax(log_weight + noise), last + 1)

    def backward(at: Any, now: Any) -> Any:
        (state, phase), (key, message, matrix) = at, now
        here = (places == phase - 1) | ((phase == last) & (places == last))
        kept = jnp.where((states == state) & here, stay, -jnp.inf)
        onward = jnp.where(phase == 0, leave + matrix[:, state][:, None], kept)
        earlier = drawn(key, message + onward)
        return earlier, (earlier[0], onward[earlier])

    keys = jax.random.split(key, len(log_likelihood))
    end = drawn(keys[-1], alpha[-1])
    (begin, phase), (path, moves) = lax.scan(backward, end, (keys[:-1], alpha[:-1], log_next), reverse=True)
    path = jnp.append(path, end[0])
    times = jnp.arange(len(path))
    seen = jnp.take_along_axis(log_likelihood, path[:, None], axis=1)[:, 0]
    weight = first[begin, phase] + jnp.sum(jnp.where(times < length, seen, 0))
    return path, weight + jnp.sum(jnp.where(times[1:] < length, moves, 0))


def _masked(path: Array, weight: Array, length: Any) -> Path:
    """The path with -1 beyond its length, and everywhere where the data are impossible."""
    inside = jnp.arange(path.shape[-1]) < jnp.asarray(length)[..., None]
    return Path(jnp.where(inside & (weight > -jnp.inf)[..., None], path, -1).astype(jnp.int32), weight)
