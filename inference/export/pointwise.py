r"""Pointwise quantities of a model over draws: log likelihoods, their increments, predictions, label orders.

They need the hook ``likelihood`` of :class:`~ethogram.models.conjugate_model.Exportable`.
Draws are processed in chunks of one shape, so that each function compiles once and memory stays bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int

from ethogram.inference.conjugate.padded_shapes import padded_data
from ethogram.models.chains.hidden_markov import LatentChain
from ethogram.models.conjugate_model import ConjugateModel, Exportable, log_likelihood, steps_by_entry
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.optimal_assignment import optimal_assignment
from ethogram.models.quick_jit import quick_jit

__all__ = ["Pointwise", "Steps", "chunks_of", "needed_draws", "own_labels"]

BUDGET = 2**24
"""Numbers per chunk of draws at most, one a feature, state and step."""

CALLS = 2**10
"""Draws of a typical export."""

CHUNK = 32
"""Draws per chunk at most; the size depends on the data only, so that any number of draws runs the same program."""

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
        self, model: Exportable, draws: dict[str, np.ndarray], data: Any, progress_bar: bool = False
    ):
        self.model, self.data, self.progress_bar = model, data, progress_bar
        self.draws = needed_draws(model, draws)
        entries = model.entries(data)
        self.value, self.batch = jax.device_put((entries.value, entries.batch))
        self.groups, self.unit = entries.sequences, entries.unit
        first = {name: draw[0] for name, draw in self.draws.items()}
        self.example: Any = jax.eval_shape(model.likelihood, first, self.batch)
        steps = steps_by_entry(model, data, entries)
        self.num_entries, self.counted = len(steps), np.flatnonzero(steps)

    def log_likelihood(self) -> np.ndarray:
        """Log likelihood (draw, entry) in nats, given a condition such as distinct roles.

        Entries are those of the model's `entries` that have an informative step, numbered `counted`. That of the others
        is a constant.
        """
        wide = self
        if isinstance(self.model, ConjugateModel) and isinstance(self.data, Trajectories):
            data = padded_data(self.model, self.data)  # whose further entries are last
            wide = Pointwise(self.model, self.draws, data, self.progress_bar)
        return wide._over_draws("log likelihood", _log_likelihood, wide.draws, wide.value)[:, self.counted]

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
        shared = {name: draws for name, draws in self.draws.items() if name in reference}
        reference = {name: reference[name] for name in shared}
        overlap = self._over_draws("align", _overlap, shared, self.value, reference)
        if not np.isfinite(overlap).all() or not overlap.any():
            raise ValueError(
                "the data have probability zero under align: choose a reference under which they are possible"
            )
        return own_labels(overlap)

    def _num_draws(self) -> int:
        return len(next(iter(self.draws.values())))

    def _over_draws(
        self, description: str, function: Callable[..., Any], draws: Any, *shared: Any
    ) -> np.ndarray:
        """Results (draw, ...) of a jitted function, chunk by chunk."""
        widest = max(draw.shape[1] if draw.ndim > 1 else 1 for draw in self.draws.values())
        cells = max(int(np.prod(self.value.shape)), 1) * widest
        size = min(max(BUDGET // cells, 1), CHUNK)
        # On an accelerator chains of many draws are one batch, which a CPU takes two to three times as long for; the
        # solvers of other models take as long as the slowest of a batch.
        together = hasattr(self.example, "smooth") and jax.default_backend() != "cpu"

        def of_chunk(chunk):
            return function(self.model, chunk, self.batch, *shared, together=together)

        from tqdm.auto import tqdm

        total, parts = self._num_draws(), []
        with tqdm(total=total, disable=not self.progress_bar, desc=description, delay=DELAY) as bar:
            for part in chunks_of(of_chunk, draws, size):
                parts.append(part)
                bar.update(len(part))
        return np.concatenate(parts)


def needed_draws(model: Any, draws: dict[str, np.ndarray], name: str = "result") -> dict[str, np.ndarray]:
    """Draws of the sites that the likelihood reads; a ValueError, which says whose `name` lacks some, where some do."""
    needed = model.needed_sites()
    if missing := [site for site in needed if site not in draws]:
        raise ValueError(
            f"{name} has no site {' and no '.join(missing)}: it has {', '.join(sorted(draws)) or 'none'}; "
            f"give draws of {', '.join(needed)}, the sites of this {type(model).__name__}, or its own model="
        )
    return {site: draws[site] for site in needed} if needed else draws


def own_labels(overlap: Float[np.ndarray, "*draw state reference"]) -> Int[np.ndarray, "*draw reference"]:
    """The own label of a draw for each label of a reference: where, one to one, their probabilities overlap most."""
    return np.argsort(optimal_assignment(-overlap).role, axis=-1)


def chunks_of(function: Callable[[Any], Any], draws: Any, size: int) -> Iterator[Any]:
    """Results (draw, ...) of a function of `size` draws, chunk by chunk; the last chunk repeats the last draw."""
    num_draws = len(jax.tree.leaves(draws)[0])
    for start in range(0, num_draws, size):
        rows = np.minimum(np.arange(start, start + size), num_draws - 1)
        found = function(jax.tree.map(lambda leaf, rows=rows: leaf[rows], draws))
        last = min(size, num_draws - start)
        yield jax.tree.map(lambda x, last=last: np.asarray(x)[:last], found)


def _each(function: Callable[..., Any], draws: Any, together: bool) -> Any:
    return jax.vmap(function)(draws) if together else jax.lax.map(function, draws)


@quick_jit(calls=CALLS, static_argnames="together")
def _log_likelihood(model, draws, batch, value, together):
    return _each(lambda one: log_likelihood(model, one, batch, value), draws, together)


@quick_jit(calls=CALLS, static_argnames="together")
def _increments(model, draws, batch, value, sequence, time, together):
    filtered = _each(lambda one: model.likelihood(one, batch).filter(value), draws, together)
    return filtered.log_increment[:, sequence, time]


@quick_jit(calls=CALLS, static_argnames="together")
def _sample(model, draws_and_keys, batch, together):
    return _each(lambda drawn: model.likelihood(drawn[0], batch).sample(drawn[1]), draws_and_keys, together)


@quick_jit(calls=CALLS, static_argnames="together")
def _overlap(model, draws, batch, value, reference, together):
    """Overlap of state marginals (draw, state, reference state), averaged over all steps."""

    def marginals(parameters):
        distribution = model.likelihood(parameters, batch)
        smoothed = distribution.smooth(value)
        state = getattr(smoothed, "state", smoothed)
        state = state[..., : state.shape[-1] - getattr(distribution, "num_rest", 0)]
        return state.reshape(-1, state.shape[-1])

    def led(draw, one):
        return jnp.concatenate([one[None].astype(draw.dtype), draw])

    state = _each(marginals, jax.tree.map(led, draws, reference), together)
    return jnp.einsum("dcj,ck->djk", state[1:], state[0], precision="highest") / len(state[0])
