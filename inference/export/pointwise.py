r"""What a model says of every sequence at every draw: log likelihoods, their steps, new data, state labels.

A model offers ``observation(parameters, data)``, a distribution with one batch entry a sequence (or a group),
and ``observed_value(data)``, the value of that distribution. Draws go through in chunks of one shape, so that
each function compiles once and memory stays bounded however many draws there are.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ethogram.inference.assignment import optimal_assignment
from ethogram.models.exclusive_roles import ExclusiveRoles
from ethogram.models.trajectories import Metadata, Trajectories

__all__ = ["Pointwise", "Steps"]

BUDGET = 2**24
"""Numbers that a chunk of draws may hold at once, one a feature, state and step."""

PLAIN = Metadata()


class Steps(NamedTuple):
    """Log-likelihood increments of every step that says something.

    Attributes
    ----------
    increment : (draw, observation), log p(y_t given y_<t) in nats.
    sequence, time : (observation,), where each of them stands in the data.
    """

    increment: np.ndarray
    sequence: np.ndarray
    time: np.ndarray


class _Labels(NamedTuple):
    """Integers by which a model arranges its data, hashable: models need to know them before jit."""

    agent: tuple[int, ...] | None
    group: tuple[int, ...] | None
    subject: tuple[int, ...] | None


class Pointwise:
    """A model on its data, asked at many draws.

    Parameters
    ----------
    model : with ``observation(parameters, data)`` and ``observed_value(data)``.
    draws : (draw, ...) arrays by site.
    data : trajectories that fit the model.
    """

    def __init__(self, model: Any, draws: dict[str, np.ndarray], data: Trajectories):
        self.model, self.draws, self.data = model, draws, data
        self.value = jnp.asarray(model.observed_value(data))
        labels = {name: getattr(data, name) for name in _Labels._fields}
        self.labels = _Labels(
            **{name: None if x is None else tuple(np.asarray(x).tolist()) for name, x in labels.items()}
        )
        bare = data._replace(agent=None, group=None, subject=None, metadata=PLAIN)
        self.arrays = jax.tree.map(jnp.asarray, bare)
        first = {name: jnp.asarray(draw[0]) for name, draw in draws.items()}
        self.example = model.observation(first, data)
        self.by_group = isinstance(self.example, ExclusiveRoles)

    def log_likelihood(self) -> np.ndarray:
        """Log likelihood (draw, sequence), or (draw, group) where roles are exclusive, in nats."""
        return self._over_draws(_log_likelihood, self.draws, self.value)

    def steps(self) -> Steps:
        """Increments of the log likelihood over the steps on which something is known."""
        if not hasattr(self.example, "filter"):
            raise ValueError(
                f'log_likelihood="step" needs a chain, but the observations of {type(self.model).__name__} are a '
                f'{type(self.example).__name__}, which has no order in time: choose "sequence"'
            )
        sequence, time = np.nonzero(np.asarray(self.example.informative(self.value)))
        increment = self._over_draws(_increments, self.draws, self.value, sequence, time)
        return Steps(increment, sequence, time)

    def predictive(self, key: Array) -> np.ndarray:
        """New data (draw, sequence, ...), one set a draw, on the lengths of the data."""
        keys = jax.random.split(key, self._num_draws())
        values = self._over_draws(_sample, (self.draws, keys))
        if not self.by_group:
            return values
        values = values.reshape(values.shape[0], self.data.num_sequences, *values.shape[3:])
        in_place = np.empty_like(values)
        in_place[:, self.model.group_order(self.data)] = values
        return in_place

    def group_numbers(self) -> np.ndarray:
        """Number of the group of every entry (group,), where roles are exclusive."""
        in_order = np.asarray(self.data.group)[self.model.group_order(self.data)]
        return in_order.reshape(self.model.group_shape(self.data))[:, 0]

    def state_order(self, reference: dict[str, Any]) -> np.ndarray:
        r"""Which of its states each draw has in the place of every reference state (draw, state).

        .. math:: \max_\sigma \sum_t \sum_k p(z_t = \sigma(k) \mid y, \theta)\, p(z_t = k \mid y, \theta_0),

        which is the permutation with the least squared distance between the state marginals of the draw and
        of the reference. States are told apart by what they explain, so that units, priors and the kind of
        emission have no say. After Stephens (2000), "Dealing with label switching in mixture models", whose
        distance is a divergence.

        Parameters
        ----------
        reference : parameters by site, without a draw axis; those that the model's observations depend on.
        """
        if not hasattr(self.example, "smooth"):
            raise ValueError(
                f"align needs state probabilities, but the {type(self.example).__name__} of "
                f"{type(self.model).__name__} has no method smooth: leave align out"
            )
        overlap = self._over_draws(_overlap, self.draws, self.value, reference)
        if not np.isfinite(overlap).all() or not overlap.any():
            raise ValueError(
                "align gives the data probability zero: take a reference under which they can occur"
            )
        return np.argsort(optimal_assignment(-overlap).role, axis=-1)

    def _num_draws(self) -> int:
        return len(next(iter(self.draws.values())))

    def _over_draws(self, function: Callable[..., Any], draws: Any, *shared: Any) -> np.ndarray:
        """Results (draw, ...) of a jitted function, chunk by chunk; the last chunk repeats the last draw."""
        num_draws = self._num_draws()
        widest = max(draw.shape[1] if draw.ndim > 1 else 1 for draw in self.draws.values())
        cells = max(int(np.prod(self.value.shape)), 1) * widest
        num_chunks = math.ceil(num_draws / max(BUDGET // cells, 1))
        size = math.ceil(num_draws / num_chunks)
        parts = []
        for start in range(0, num_draws, size):
            rows = np.minimum(np.arange(start, start + size), num_draws - 1)
            chunk = jax.tree.map(lambda leaf, rows=rows: leaf[rows], draws)
            part = np.asarray(function(self.model, chunk, self.arrays, self.labels, *shared))
            parts.append(part[: num_draws - start])
        return np.concatenate(parts)


def _distribution(model, parameters, arrays, labels: _Labels):
    restored = {name: None if x is None else np.asarray(x, np.int32) for name, x in labels._asdict().items()}
    return model.observation(parameters, arrays._replace(**restored))


@functools.partial(jax.jit, static_argnames="labels")
def _log_likelihood(model, draws, arrays, labels, value):
    return jax.vmap(lambda one: _distribution(model, one, arrays, labels).log_prob(value))(draws)


@functools.partial(jax.jit, static_argnames="labels")
def _increments(model, draws, arrays, labels, value, sequence, time):
    def one(parameters):
        filtered = _distribution(model, parameters, arrays, labels).filter(value)
        return filtered.log_increment[sequence, time]

    return jax.vmap(one)(draws)


@functools.partial(jax.jit, static_argnames="labels")
def _sample(model, draws_and_keys, arrays, labels):
    def one(parameters, key):
        return _distribution(model, parameters, arrays, labels).sample(key)

    return jax.vmap(one)(*draws_and_keys)


@functools.partial(jax.jit, static_argnames="labels")
def _overlap(model, draws, arrays, labels, value, reference):
    """Shared state probability (draw, state, reference state), a mean over all cells."""

    def marginals(parameters):
        smoothed = _distribution(model, parameters, arrays, labels).smooth(value)
        state = getattr(smoothed, "state", smoothed)
        return state.reshape(-1, state.shape[-1])

    led = jax.tree.map(
        lambda draw, one: jnp.concatenate([one[None].astype(draw.dtype), draw]), draws, reference
    )
    state = jax.vmap(marginals)(led)
    anchor = state[0]
    return jnp.einsum("dcj,ck->djk", state[1:], anchor, precision="highest") / len(anchor)
