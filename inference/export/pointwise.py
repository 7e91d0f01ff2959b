r"""Pointwise quantities of a model over draws: log likelihoods, their increments, predictions, label orders.

They need the hooks ``observation`` and ``observed_value`` of :class:`~ethogram.models.conjugate_model.Exportable`.
Draws are processed in chunks of one shape, so that each function compiles once and memory stays bounded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ethogram.inference.concrete_labels import with_labels, without_labels
from ethogram.models.chains.hidden_markov import LatentChain
from ethogram.models.conjugate_model import Exportable, steps_by_entry
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.optimal_assignment import optimal_assignment
from ethogram.models.quick_jit import quick_jit

__all__ = ["CHUNK", "Pointwise", "Steps", "over_chunks"]

BUDGET = 2**24
"""Numbers per chunk of draws at most, one a feature, state and step."""

CALLS = 2**10
"""Draws of a typical export."""

CHUNK = 32
"""Draws per chunk at most: the size depends on the data only, so that any number of draws runs the same program."""

DELAY = 2.0
"""Seconds after which a progress bar appears."""


class Steps(NamedTuple):
    """Log-likelihood increments of the informative steps."""

    increment: np.ndarray  # (draw, observation), log p(y_t given y_<t) in nats
    sequence: np.ndarray  # (observation,), indices of each step in the data
    time: np.ndarray


class Pointwise:
    """Pointwise quantities of a model on its data, at draws (draw, ...) by site."""

    def __init__(
        self,
        model: Exportable,
        draws: dict[str, np.ndarray],
        data: Trajectories,
        progress_bar: bool = False,
    ):
        self.model, self.draws, self.data, self.progress_bar = model, draws, data, progress_bar
        self.arrays, self.labels = without_labels(data)
        self.value = _value(model, self.arrays, self.labels)
        self.first = {name: draw[0] for name, draw in draws.items()}
        self.example: Any = jax.eval_shape(lambda draw: model.observation(draw, data), self.first)
        self.groups = model.grouped_sequences(data)

        self.counted = np.flatnonzero(steps_by_entry(model, data))

    def log_likelihood(self) -> np.ndarray:
        """Log likelihood (draw, entry) in nats, given a condition such as distinct roles.

        An entry is a sequence, or a group where groups are scored jointly: those numbered `counted`, which have an
        informative step. That of the others is a constant.
        """
        values = self._over_draws("log likelihood", _log_likelihood, self.draws, self.value)
        return values[:, self.counted]

    def steps(self) -> Steps:
        """Increments of the log likelihood over the informative steps."""
        if not isinstance(self.example, LatentChain):
            raise ValueError(
                f'log_likelihood="step" needs a latent chain, but the observations of {type(self.model).__name__} are '
                f'{type(self.example).__name__}: choose "sequence"'
            )
        sequence, time = np.nonzero(self.model.informative_steps(self.data))
        increment = self._over_draws("log likelihood", _increments, self.draws, self.value, sequence, time)
        return Steps(increment, sequence, time)

    def predictive(self, key: Array) -> np.ndarray:
        """Posterior predictive data (draw, sequence, ...), of the lengths of the data."""
        keys = jax.random.split(key, self._num_draws())
        values = self._over_draws("posterior predictive", _sample, (self.draws, keys))
        if self.groups is None:
            return values
        values = values.reshape(values.shape[0], self.data.num_sequences, *values.shape[3:])
        in_place = np.empty_like(values)
        in_place[:, self.groups.ravel()] = values
        return in_place

    def state_order(self, reference: dict[str, Any]) -> np.ndarray:
        r"""State of each draw that matches every reference state (draw, state).

        .. math:: \max_\sigma \sum_t \sum_k p(z_t = \sigma(k) \mid y, \theta)\, p(z_t = k \mid y, \theta_0),

        which is the permutation with the least squared distance between the state marginals of the draw and
        of the reference. States are matched by the steps that they explain, independently of units, priors and
        emissions. After Stephens (2000), "Dealing with label switching in mixture models", Algorithm 2, whose
        distance is a Kullback-Leibler divergence. The reference has parameters by site, without a draw axis.
        """
        if not hasattr(self.example, "smooth"):
            raise ValueError(
                f"align needs state probabilities, but {type(self.example).__name__}, the observations of "
                f"{type(self.model).__name__}, has no method smooth: leave align out"
            )
        shared = {
            name: self.draws[name] for name in reference
        }  # without sticks, say, which only samplers have
        overlap = self._over_draws("align", _overlap, shared, self.value, reference)
        if not np.isfinite(overlap).all() or not overlap.any():
            raise ValueError(
                "the data have probability zero under align: choose a reference under which they are possible"
            )
        return np.argsort(optimal_assignment(-overlap).role, axis=-1)

    def _num_draws(self) -> int:
        return len(next(iter(self.draws.values())))

    def _over_draws(
        self, description: str, function: Callable[..., Any], draws: Any, *shared: Any
    ) -> np.ndarray:
        """Results (draw, ...) of a jitted function, chunk by chunk."""
        widest = max(draw.shape[1] if draw.ndim > 1 else 1 for draw in self.draws.values())
        cells = max(int(np.prod(self.value.shape)), 1) * widest
        size = min(max(BUDGET // cells, 1), CHUNK)

        def of_chunk(chunk):
            return function(self.model, chunk, self.arrays, self.labels, *shared)

        return over_chunks(of_chunk, draws, size, description, self.progress_bar)


def over_chunks(
    function: Callable[[Any], Any], draws: Any, size: int, description: str, progress_bar: bool
) -> Any:
    """Results (draw, ...) of a function of `size` draws, chunk by chunk; the last chunk repeats the last draw."""
    from tqdm.auto import tqdm

    num_draws = len(jax.tree.leaves(draws)[0])
    parts = []
    with tqdm(total=num_draws, disable=not progress_bar, desc=description, delay=DELAY) as bar:
        for start in range(0, num_draws, size):
            rows = np.minimum(np.arange(start, start + size), num_draws - 1)
            chunk = jax.tree.map(lambda leaf, rows=rows: leaf[rows], draws)
            last = min(size, num_draws - start)
            parts.append(jax.tree.map(lambda x, last=last: np.asarray(x)[:last], function(chunk)))
            bar.update(last)
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)


def _distribution(model, parameters, arrays, labels):
    return model.observation(parameters, with_labels(arrays, labels))


@quick_jit(static_argnames="labels")
def _value(model, arrays, labels):
    return jnp.asarray(model.observed_value(with_labels(arrays, labels)))


@quick_jit(calls=CALLS, static_argnames="labels")
def _log_likelihood(model, draws, arrays, labels, value):
    def of_data(one):
        condition = model.log_prob_of_condition(one, with_labels(arrays, labels))
        return _distribution(model, one, arrays, labels).log_prob(value) - condition

    return jax.vmap(of_data)(draws)


@quick_jit(calls=CALLS, static_argnames="labels")
def _increments(model, draws, arrays, labels, value, sequence, time):
    filtered = jax.vmap(lambda one: _distribution(model, one, arrays, labels).filter(value))(draws)
    return filtered.log_increment[:, sequence, time]


@quick_jit(calls=CALLS, static_argnames="labels")
def _sample(model, draws_and_keys, arrays, labels):
    return jax.vmap(lambda one, key: _distribution(model, one, arrays, labels).sample(key))(*draws_and_keys)


@quick_jit(calls=CALLS, static_argnames="labels")
def _overlap(model, draws, arrays, labels, value, reference):
    """Overlap of state marginals (draw, state, reference state), averaged over all steps."""

    def marginals(parameters):
        distribution = _distribution(model, parameters, arrays, labels)
        smoothed = distribution.smooth(value)
        state = getattr(smoothed, "state", smoothed)
        state = state[..., : state.shape[-1] - getattr(distribution, "num_rest", 0)]
        return state.reshape(-1, state.shape[-1])

    def led(draw, one):
        return jnp.concatenate([one[None].astype(draw.dtype), draw])

    state = jax.vmap(marginals)(jax.tree.map(led, draws, reference))
    return jnp.einsum("dcj,ck->djk", state[1:], state[0], precision="highest") / len(state[0])
