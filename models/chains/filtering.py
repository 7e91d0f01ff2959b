"""Filtering and forecasting of a chain's state."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import ArrayLike, Float

from ethogram.models.arguments import require_integer
from ethogram.models.chains.log_space import logsumexp
from ethogram.models.chains.potentials import ChainPotentials, chain_potentials, into_step
from ethogram.models.printing import short_repr
from ethogram.models.quick_jit import quick_jit

__all__ = ["Filtered", "filter_states", "forecast_states", "log_filter"]


@short_repr
class Filtered(NamedTuple):
    """Filtered and predicted state probabilities with the evidence they explain; rows are zero beyond each length.

    Attributes
    ----------
    log_evidence : (...), log p(y), in nats; -inf where the data are impossible.
    state : (..., time, state), p(z_t | y_1..t).
    predicted : (..., time, state), p(z_t | y_1..t-1).
    log_increment : (..., time), log p(y_t | y_1..t-1).
    """

    log_evidence: Float[Array, "*batch"]
    state: Float[Array, "*batch time state"]
    predicted: Float[Array, "*batch time state"]
    log_increment: Float[Array, "*batch time"]


def filter_states(
    log_initial: ArrayLike,
    log_transition: ArrayLike,
    step_log_likelihood: ArrayLike,
    length: ArrayLike | None = None,
) -> Filtered:
    r"""Filtered state probabilities, one-step predictions, and the evidence step by step.

    .. math:: \alpha_t(k) \propto p(y_t \mid k) \sum_j \alpha_{t-1}(j)\, A_{jk}

    From the first impossible step on, filtered rows are uniform and increments are ``-inf``, and so is the
    evidence; predicted rows are uniform behind it. Nothing is ever NaN. Parameters and errors as for
    :func:`ethogram.models.chains.log_normalizer`. Rabiner (1989), eq. 19-21.
    """
    return _filtered(chain_potentials(log_initial, log_transition, step_log_likelihood, length))


def forecast_states(
    log_initial: ArrayLike,
    log_transition: ArrayLike,
    step_log_likelihood: ArrayLike,
    steps: int,
    length: ArrayLike | None = None,
) -> Float[Array, "*batch steps state"]:
    """State probabilities 1 to `steps` steps after each sequence's last one, given all its data.

    Transitions must be fixed, since the inputs of later ones are unknown. An empty sequence is forecast from
    ``log_initial``, impossible data from a uniform last state. Other parameters and errors as for
    :func:`ethogram.models.chains.log_normalizer`.

    Raises
    ------
    TypeError, ValueError
        If `steps` is not an integer of at least 1, or transitions are input-driven.
    """
    require_integer("steps", steps, 1)
    potentials = chain_potentials(log_initial, log_transition, step_log_likelihood, length)
    if potentials.driven:
        raise ValueError(
            "log_transition is input-driven: a forecast needs fixed transitions (..., state, state)"
        )
    return _forecast(potentials, steps)


@quick_jit(calls=10)
def _filtered(potentials: ChainPotentials) -> Filtered:
    def one_sequence(log_initial, log_transition, log_likelihood, length):
        log_state, log_predicted, increment = log_filter(log_initial, log_transition, log_likelihood)
        alive = jnp.arange(log_likelihood.shape[0]) < length
        increment = jnp.where(alive, increment, 0)
        state, predicted = (jnp.where(alive[:, None], jnp.exp(x), 0) for x in (log_state, log_predicted))
        return Filtered(jnp.sum(increment), state, predicted, increment)

    return potentials.over_sequences(one_sequence)


@quick_jit(calls=10, static_argnames="steps")
def _forecast(potentials: ChainPotentials, steps: int) -> Array:
    def one_sequence(log_initial, log_transition, log_likelihood, length):
        def onward(log_state, _):
            return logsumexp(log_state[:, None] + log_transition, 0), jnp.exp(log_state)

        log_state, _, _ = log_filter(log_initial, log_transition, log_likelihood)
        last = log_state[jnp.maximum(length - 1, 0)]
        after = logsumexp(last[:, None] + log_transition, 0)
        return lax.scan(onward, jnp.where(length > 0, after, log_initial), length=steps)[1]

    return potentials.over_sequences(one_sequence)


def log_filter(
    log_initial: Array, log_transition: Array, log_likelihood: Array
) -> tuple[Array, Array, Array]:
    """Logs of one sequence's filtered states, predicted states, both (time, state), and increments (time,).

    Arguments as :meth:`~ethogram.models.chains.potentials.ChainPotentials.over_sequences` passes them.
    """
    num_steps, num_states = log_likelihood.shape
    uniform = jnp.full_like(log_initial, -jnp.log(num_states))

    def or_uniform(log_weight: Array) -> Array:
        return jnp.where(jnp.any(log_weight > -jnp.inf), log_weight, uniform)

    def forward(log_predicted, step):
        t, log_lik = step
        log_weight = log_predicted + log_lik
        increment = logsumexp(log_weight, 0)
        log_state = log_weight - jnp.where(increment > -jnp.inf, increment, 0)
        onward = logsumexp(log_state[:, None] + into_step(log_transition, t + 1), 0)
        return onward, (or_uniform(log_state), or_uniform(log_predicted), increment)

    return lax.scan(forward, log_initial, (jnp.arange(num_steps), log_likelihood))[1]
