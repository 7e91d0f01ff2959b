"""Posterior of hidden labels averaged over draws of the parameters, such as those of NUTS, and paths drawn from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int
from numpyro.infer import MCMC

from ethogram.inference.conjugate.padded_shapes import padded_data
from ethogram.inference.conjugate.posterior import require_model_of
from ethogram.inference.draws import flat_draws, mcmc_draws
from ethogram.inference.export.pointwise import chunks_of, needed_draws, own_labels
from ethogram.inference.sampled_posterior import SampledPosterior
from ethogram.models.conjugate_model import bound_model
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.quick_jit import quick_jit

__all__ = ["DRAWS", "Averaged", "are_draws", "average_over_draws", "sampled_paths"]

DRAWS = ", a SampledPosterior, numpyro's MCMC after run, or its draws by site with model="
"""What is accepted besides posteriors, for messages."""

CHUNK = 16
"""Draws of one compiled call: memory holds the marginals of so many, whatever their number."""


class Averaged(NamedTuple):
    """Means over draws, of aligned labels; whatever stands beyond a length."""

    state: Float[np.ndarray, "sequence time state"]
    change: Float[np.ndarray, "sequence step"]  # probability that the label changes after a step


def are_draws(value: Any) -> bool:
    """Whether `value` is a sampled posterior, an MCMC of numpyro, or draws by site."""
    return isinstance(value, SampledPosterior | MCMC | Mapping)


def average_over_draws(posterior: Any, data: Trajectories, model: Any, kind: type) -> tuple[Any, Averaged]:
    """The model, bound to the data, and its smoothed marginals averaged over draws.

    The labels of each draw are matched, one to one, to the mean of the draws before it, where their probabilities
    overlap most on the data: without this, chains that switched labels would average to nothing.

    Raises
    ------
    TypeError
        If no model of class `kind` is given or held.
    ValueError
        If there is no draw, a site is missing, numbers of draws differ, or a draw is not finite.
    """
    if isinstance(posterior, MCMC):
        drawn = mcmc_draws(posterior, model, "posterior")
        model, draws = drawn.model, flat_draws(drawn.sites)
    elif isinstance(posterior, SampledPosterior):
        model, draws = posterior.model if model is None else model, flat_draws(posterior.sites)
    else:
        draws = {name: np.asarray(site) for name, site in posterior.items()}
    if model is None:
        raise TypeError(
            f"model is NoneType: give model=, the {kind.__name__} that the draws are of, or numpyro's MCMC of one"
        )
    require_model_of(model, kind)
    model.check(data)
    model = bound_model(model, data)
    entries = model.entries(data)
    if entries.sequences is not None:
        raise ValueError(
            "model scores the sequences of a group jointly (exclusive roles), which is not implemented for draws: "
            "fit it by ConjugateSVI"
        )
    draws = needed_draws(model, draws, "posterior")
    counts = {name: len(site) if np.ndim(site) else 0 for name, site in draws.items()}
    count = next(iter(counts.values()), 0)
    if not count or len(set(counts.values())) > 1:
        raise ValueError(f"posterior has sites with {counts} draws: give (draw, ...) arrays of one length")
    for name, site in draws.items():
        if not np.isfinite(site).all():
            raise ValueError(
                f"posterior[{name!r}] is not finite at draw {np.argwhere(~np.isfinite(site))[0][0]}"
            )
    mean: Any = 0.0
    change: Any = 0.0
    inputs = model, entries.batch, entries.value
    for done, (state, changes) in enumerate(_by_draw(_smoothed, draws, *inputs)):
        if done and model.switches_labels():
            state = state[..., _own_labels(mean, state, data)]
        mean = mean + (state - mean) / (done + 1)
        change = change + (changes - change) / (done + 1)
    return model, Averaged(np.asarray(mean), np.asarray(change))


def sampled_paths(
    key: Array,
    model: Any,
    draws: Mapping[str, Any],
    data: Trajectories,
    num_states: int,
    reference: Float[np.ndarray, "sequence time state"] | None,
) -> Int[np.ndarray, "draw sequence time"]:
    """One path of every sequence per draw of the parameters, -1 beyond its length.

    Each is an exact draw from p(z | y, parameters). The labels of a draw are matched, one to one, to those of the
    reference, where their probabilities overlap most on the data.

    Parameters
    ----------
    key : a typed key.
    model : bound to the data, with chains.
    draws : (draw, ...) by site.
    num_states : of the labels.
    reference : probabilities of the labels, such as those of `infer_roles`; None where labels agree in all draws, as
        in those of a factorised posterior.
    """
    draws = {name: np.asarray(draws[name]) for name in model.needed_sites()}
    count, entries = len(next(iter(draws.values()))), model.entries(padded_data(model, data))
    size, width = np.shape(data.observed)
    found = np.empty((count, *np.shape(data.observed)), np.int8 if num_states <= 127 else np.int32)
    keyed = draws, jax.random.split(key, count)
    inputs = model, entries.batch, entries.value, None if reference is None else reference[0, 0]
    for number, (path, state) in enumerate(_by_draw(_sampled, keyed, *inputs)):
        path = path[:size, :width]
        if reference is not None:
            label = np.argsort(
                _own_labels(reference, state[:size, :width], data)
            )  # of the reference, by the draw's own
            path = np.where(path < 0, -1, label[path])
        found[number] = path
    return found


def _by_draw(function: Any, draws: Any, *arguments: Any) -> Iterator[Any]:
    """Results of a compiled function for each draw of a tree of arrays (draw, ...), as NumPy arrays."""
    for found in chunks_of(lambda chunk: function(chunk, *arguments), draws, CHUNK):
        for number in range(len(jax.tree.leaves(found)[0])):
            yield jax.tree.map(lambda x, number=number: x[number], found)


def _own_labels(
    reference: Float[np.ndarray, "sequence time state"],
    state: Float[np.ndarray, "sequence time state"],
    data: Trajectories,
) -> Int[np.ndarray, "state"]:
    """The own label of a draw for each label of the reference, by their probabilities in the steps of the data."""
    inside = np.arange(np.shape(data.observed)[1]) < np.asarray(data.lengths)[:, None]
    return own_labels(np.einsum("nj,nk->jk", state[inside], reference[inside]))


@quick_jit(calls=2**8)
def _sampled(drawn: Any, model: Any, batch: Any, value: Any, reference: Any) -> tuple[Array, Array | None]:
    """Paths (draw, sequence, time), and probabilities of their labels where there is one step of a reference."""

    def one(drawn: Any) -> Any:
        chain = model.likelihood(drawn[0], batch).within_truncation()
        path = chain.sample_path(drawn[1], value).path
        return path, None if reference is None else chain.smooth(value).state[..., : reference.shape[-1]]

    return jax.lax.map(one, drawn)


@quick_jit(calls=2**9)
def _smoothed(draws: dict[str, Any], model: Any, batch: Any, value: Any) -> tuple[Any, Any]:
    def one(parameters):
        chain = model.likelihood(parameters, batch).within_truncation()
        state, pair = chain.smooth(value)[-2:]
        return state[..., : state.shape[-1] - chain.num_rest], pair.sum((-2, -1)) - jnp.trace(
            pair, axis1=-2, axis2=-1
        )

    return jax.lax.map(one, draws)
