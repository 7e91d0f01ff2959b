r"""The hidden Markov model as a numpyro distribution: latent states are summed out inside.

.. math:: z_1 \sim \pi, \qquad z_t \sim A_{z_{t-1}}, \qquad y_t \sim p(\cdot \mid z_t)

One batch entry is one sequence, so that plates, masks, ``log_likelihood`` and LOO see a sequence as one
datum. Rabiner (1989), sections II and III.
"""

from __future__ import annotations

import abc
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array, lax
from jaxtyping import Float
from numpyro.distributions import constraints

from ethogram.models.arguments import read_part, require_integer
from ethogram.models.chains import markov_chain
from ethogram.models.chains.conjugate_chain import masked_log_likelihood
from ethogram.models.chains.emitted_steps import last_frames, log_prob_of_steps, sample_steps
from ethogram.models.chains.log_space import safe_log
from ethogram.models.chains.markov_chain import Filtered, Marginals, Path
from ethogram.models.printing import short_repr
from ethogram.models.quick_jit import quick_jit

__all__ = ["Forecast", "HiddenMarkov", "LatentChain"]


@short_repr
class Forecast(NamedTuple):
    """State probabilities of the steps after the last one, and one draw of their observations.

    Attributes
    ----------
    state : (..., steps, state).
    observations : (..., steps, *event).
    """

    state: Float[Array, "*batch steps state"]
    observations: Array


class LatentChain(dist.Distribution):
    """A distribution with latent Markov chains, one per batch entry, that are summed out.

    Attributes
    ----------
    num_rest : how many of the last states have no label to permute, such as the remainder of a truncation.
    kernels : module with the messages of the chain, which take what `_chain` gives.
    """

    num_rest: ClassVar[int] = 0
    kernels: ClassVar[Any] = markov_chain

    @abc.abstractmethod
    def _chain(self, value: Any) -> tuple[Any, Array, Array, Array]:
        """Log potentials and lengths given a value: the arguments of `kernels.log_normalizer`."""

    def within_truncation(self) -> Any:
        """The distribution without paths through its rest. Default: itself, which has none."""
        return self

    def check_value(self, value: Any) -> None:
        """Raise ValueError where a value that is not traced cannot be one of these. Default: all can."""

    def log_prob(self, value: Any) -> Array:
        r"""Log evidence :math:`\ln p(y)`, one entry per sequence; where states z are known, of both."""
        return self.kernels.log_normalizer(*_chain_of(self, value))

    def filter(self, value: Any) -> Filtered:
        r"""Filtered and predicted state probabilities; ``log_increment`` is :math:`\ln p(y_t \mid y_{<t})`."""
        return self.kernels.filter_states(*_chain_of(self, value))

    def smooth(self, value: Any) -> Marginals:
        """Posterior state and pair marginals given the whole sequence."""
        return self.kernels.marginals(*_chain_of(self, value))

    def most_likely_path(self, value: Any) -> Path:
        """Viterbi path; -1 beyond the length."""
        return self.kernels.most_likely_path(*_chain_of(self, value))

    def sample_path(self, key: Array, value: Any) -> Path:
        """One exact posterior draw of the states; -1 beyond the length."""
        return self.kernels.sample_path(key, *_chain_of(self, value))


def _chain_of(chain: LatentChain, value: Any) -> tuple[Any, Array, Array, Array]:
    """The arguments of `kernels.log_normalizer`, of a checked value."""
    chain.check_value(value)
    return _in_one_program(chain, value)


@quick_jit(inline=True)
def _in_one_program(chain: LatentChain, value: Any) -> tuple[Any, Array, Array, Array]:
    return chain._chain(value)


class HiddenMarkov(LatentChain):
    r"""Distribution of the observations of a hidden Markov chain, one batch entry per sequence.

    Values are ``(..., time, *event)`` arrays with the event of the emission; values beyond a length and at
    missing steps are ignored, NaN included. ``log_prob`` is :math:`\ln p(y_{1:T})`,
    differentiable any number of times; impossible data give ``-inf`` with a finite gradient.

    Parameters
    ----------
    initial : pi (state,), sums to one; exact zeros are allowed.
    transition : A (state, state), rows sum to one; exact zeros are allowed.
    emission : a numpyro distribution with batch shape (state,); frames may depend on those before
        (:mod:`ethogram.models.chains.emitted_steps`).
    lengths : (...) integers, the steps of each sequence; None for all.
    observed : (..., time) booleans; None for all.
    states : (..., time) integers, known states, -1 where not known; None for none.
    num_steps : time; needed where neither `observed` nor `states` is given.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, numpyro.distributions as dist
    >>> chain = HiddenMarkov(jnp.array([0.5, 0.5]), jnp.array([[0.9, 0.1], [0.2, 0.8]]),
    ...                      dist.Normal(jnp.array([0.0, 3.0]), 1.0), num_steps=4)
    >>> y = chain.sample(jax.random.key(0), (2,))
    >>> y.shape, chain.log_prob(y).shape, chain.most_likely_path(y).path.shape
    ((2, 4), (2,), (2, 4))
    """

    arg_constraints: ClassVar[dict] = {
        "initial": constraints.simplex,
        "transition": constraints.independent(constraints.simplex, 1),
    }
    pytree_data_fields = ("initial", "transition", "emission", "lengths", "observed", "states")
    pytree_aux_fields = ("num_steps",)

    def __init__(
        self,
        initial: Any,
        transition: Any,
        emission: dist.Distribution,
        lengths: Any = None,
        observed: Any = None,
        states: Any = None,
        *,
        num_steps: int | None = None,
        validate_args: bool | None = None,
    ):
        initial = read_part("initial", initial, "biuf", "give probabilities (state,)")
        transition = read_part("transition", transition, "biuf", "give probabilities (state, next state)")
        lengths = read_part("lengths", lengths, "iu", "give integers")
        observed = read_part("observed", observed, "b", "give booleans (..., time)")
        states = read_part("states", states, "iu", "give integers (..., time)")
        if not np.ndim(initial) or transition is None:
            raise TypeError("initial has no axes, or transition is None: give probabilities of every state")
        if not isinstance(emission, dist.Distribution):
            raise TypeError(
                f"emission is {type(emission).__name__}: give a numpyro distribution, one entry per state"
            )
        self.initial, self.transition, self.emission = jnp.asarray(initial), jnp.asarray(transition), emission
        self.lengths, self.observed, self.states = lengths, observed, states
        num_states = self.initial.shape[-1]
        if self.transition.shape[-2:] != (num_states, num_states):
            raise ValueError(
                f"transition has shape {self.transition.shape}, but initial has {num_states} states: "
                f"pass transition (..., {num_states}, {num_states})"
            )
        if emission.batch_shape != (num_states,):
            raise ValueError(
                f"emission has batch shape {emission.batch_shape}, not ({num_states},), one entry per state"
            )
        for part in (observed, states):
            num_steps = part.shape[-1] if num_steps is None and part is not None else num_steps
        if num_steps is None:
            raise ValueError("num_steps is unknown: pass it, or observed (..., time)")
        require_integer("num_steps", num_steps, 0)
        self.num_steps = num_steps
        batch_shape = jnp.broadcast_shapes(
            self.initial.shape[:-1],
            self.transition.shape[:-2],
            () if lengths is None else jnp.shape(lengths),
            () if observed is None else jnp.shape(observed)[:-1],
            () if states is None else jnp.shape(states)[:-1],
        )
        event_shape = (num_steps, *emission.event_shape)
        super().__init__(batch_shape, event_shape, validate_args=validate_args)

    @property
    def support(self):
        """That of the emission, over all steps."""
        return constraints.independent(self.emission.support, 1)

    @property
    def _log_initial(self) -> Array:
        return safe_log(self.initial)

    @property
    def _log_transition(self) -> Array:
        return safe_log(self.transition)

    def _alive(self) -> Array:
        """(..., time) booleans: steps before the length."""
        shape = (*self.batch_shape, self.num_steps)
        if self.lengths is None:
            return jnp.ones(shape, bool)
        lengths = jnp.asarray(self.lengths)[..., None]
        steps = jnp.arange(self.num_steps).reshape((1,) * (lengths.ndim - 1) + (-1,))
        return jnp.broadcast_to(steps < lengths, shape)

    def step_log_likelihood(self, value: Any) -> Array:
        r""":math:`\ln p(y_t \mid z_t = k)`, shape (..., time, state); zero at missing steps."""
        value, known = self._with_known(value)
        each = log_prob_of_steps(self.emission, value, known)
        states = None if self.states is None else jnp.broadcast_to(self.states, known.shape)
        return masked_log_likelihood(each, known, states)

    def _known(self) -> Array:
        """(..., time) booleans: observed steps before the length."""
        return self._alive() if self.observed is None else self._alive() & jnp.asarray(self.observed)

    def _with_known(self, value: Any) -> tuple[Array, Array]:
        """Values (..., time, *event) and which of their steps are known, of one batch shape."""
        value = jnp.asarray(value)
        batch = jnp.broadcast_shapes(self.batch_shape, value.shape[: value.ndim - self.event_dim])
        known = jnp.broadcast_to(self._known(), (*batch, self.num_steps))
        return jnp.broadcast_to(value, batch + self.event_shape), known

    def _chain(self, value: Any) -> tuple[Any, Array, Array, Array]:
        return self._potentials(self.step_log_likelihood(value), jnp.sum(self._alive(), axis=-1))

    def _potentials(self, likelihood: Array, lengths: Array) -> tuple[Any, Array, Array, Array]:
        return self._log_initial, self._log_transition, likelihood, lengths

    def forecast(self, key: Array, value: Any, steps: int) -> Forecast:
        """State probabilities of the `steps` steps after each length, and one draw of their observations."""
        require_integer("steps", steps, 1)
        log_pi, log_a, likelihood, lengths = self._chain(value)
        probability = markov_chain.forecast_states(log_pi, log_a, likelihood, steps, lengths)
        key_first, key_walk, key_observations = jax.random.split(key, 3)
        first = jax.random.categorical(key_first, safe_log(probability[..., 0, :]))
        states = self._walk(key_walk, first, steps)
        past = last_frames(self.emission, *self._with_known(value), lengths)
        known = jnp.ones_like(states, bool)
        return Forecast(probability, sample_steps(self.emission, key_observations, states, known, past))

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Observations (*sample_shape, ..., time, *event); zero beyond a length."""
        return self.sample_with_states(key, sample_shape)[0]

    def sample_with_states(self, key: Array, sample_shape: tuple[int, ...] = ()) -> tuple[Array, Array]:
        """Observations and the states behind them (*sample_shape, ..., time), -1 beyond a length."""
        shape = (*sample_shape, *self.batch_shape)
        key_first, key_walk, key_observations = jax.random.split(key, 3)
        num_states = self.initial.shape[-1]
        if self.states is None:
            log_initial = jnp.broadcast_to(self._log_initial, (*shape, num_states))
            first = jax.random.categorical(key_first, log_initial)
            states = self._walk(key_walk, first, self.num_steps)
        else:  # conditional on the known states, before and after
            nothing_seen = jnp.zeros((*shape, self.num_steps, num_states), self._log_initial.dtype)
            known = jnp.broadcast_to(self.states, nothing_seen.shape[:-1])
            likelihood = masked_log_likelihood(nothing_seen, jnp.ones_like(known, bool), known)
            lengths = jnp.broadcast_to(jnp.sum(self._alive(), axis=-1), shape)
            chain = self._potentials(likelihood, lengths)
            states = jnp.maximum(self.kernels.sample_path(key_walk, *chain).path, 0)
        alive = jnp.broadcast_to(self._alive(), states.shape)
        known = jnp.broadcast_to(self._known(), states.shape)
        observations = sample_steps(self.emission, key_observations, states, known)
        inside = alive.reshape(alive.shape + (1,) * self.emission.event_dim)
        return jnp.where(inside, observations, 0), jnp.where(alive, states, -1)

    def _walk(self, key: Array, first: Array, steps: int) -> Array:
        """States (..., steps) from the first one on."""
        log_transition = jnp.broadcast_to(self._log_transition, (*first.shape, *self.transition.shape[-2:]))

        def step(state, key):
            rows = jnp.take_along_axis(log_transition, state[..., None, None], axis=-2)[..., 0, :]
            after = jax.random.categorical(key, rows).astype(state.dtype)
            return after, after

        _, later = lax.scan(step, first, jax.random.split(key, steps)[1:])
        return jnp.concatenate([first[..., None], jnp.moveaxis(later, 0, -1)], axis=-1)
