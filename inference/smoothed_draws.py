"""Posterior of hidden labels averaged over draws of the parameters, such as those of NUTS."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from numpyro.infer import MCMC

from ethogram.inference.conjugate.posterior import require_model_of
from ethogram.inference.draws import flat_draws, mcmc_draws
from ethogram.inference.refresh.refreshed_posterior import RefreshedPosterior
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.optimal_assignment import optimal_assignment

__all__ = ["DRAWS", "Averaged", "are_draws", "average_over_draws"]

DRAWS = ", a RefreshedPosterior, numpyro's MCMC after run, or its draws by site with model="
"""What is accepted besides posteriors, for messages."""

CHUNK = 16
"""Draws of one compiled call: memory holds the marginals of so many, whatever their number."""


class Averaged(NamedTuple):
    """Means over draws, of aligned labels; whatever stands beyond a length."""

    state: Float[np.ndarray, "sequence time state"]
    change: Float[np.ndarray, "sequence step"]  # probability that the label changes after a step


def are_draws(value: Any) -> bool:
    """Whether `value` is a refreshed posterior, an MCMC of numpyro, or draws by site."""
    return isinstance(value, RefreshedPosterior | MCMC | Mapping)


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
    elif isinstance(posterior, RefreshedPosterior):
        model, draws = posterior.model if model is None else model, flat_draws(posterior.sites)
    else:
        draws = {name: np.asarray(site) for name, site in posterior.items()}
    if model is None:
        raise TypeError(
            f"model is NoneType: give model=, the {kind.__name__} that the draws are of, or numpyro's MCMC of one"
        )
    require_model_of(model, kind)
    bound: Any = model
    bound.check(data)
    if bound.grouped_sequences(data) is not None:
        raise ValueError(
            "model scores the sequences of a group jointly (exclusive roles), which is not implemented for draws: "
            "fit it by ConjugateSVI"
        )
    model = bound.bound_to(data)
    needed = model.needed_sites()
    if missing := [name for name in needed if name not in draws]:
        raise ValueError(
            f"posterior has no site {' and no '.join(missing)}: it has {', '.join(sorted(draws)) or 'none'}; "
            f"give draws of {', '.join(needed)}, the sites of this {kind.__name__}, or its own model="
        )
    draws = {name: draws[name] for name in needed}
    counts = {name: len(site) if np.ndim(site) else 0 for name, site in draws.items()}
    count = next(iter(counts.values()), 0)
    if not count or len(set(counts.values())) > 1:
        raise ValueError(f"posterior has sites with {counts} draws: give (draw, ...) arrays of one length")
    for name, site in draws.items():
        if not np.isfinite(site).all():
            raise ValueError(
                f"posterior[{name!r}] is not finite at draw {np.argwhere(~np.isfinite(site))[0][0]}"
            )
    inside = np.arange(np.shape(data.observed)[1]) < np.asarray(data.lengths)[:, None]
    mean: Any = 0.0
    change: Any = 0.0
    matched = model.switches_labels()
    for start in range(0, count, CHUNK):
        rows = np.minimum(np.arange(start, start + CHUNK), count - 1)
        found = _smoothed(model, {name: x[rows] for name, x in draws.items()}, data)
        marginals, changes = map(np.asarray, found)
        for number in range(min(CHUNK, count - start)):
            done, state = start + number, marginals[number]
            if done and matched:
                overlap = np.einsum("nk,nj->kj", mean[inside], state[inside])
                state = state[..., optimal_assignment(-overlap).role]
            mean = mean + (state - mean) / (done + 1)
            change = change + (changes[number] - change) / (done + 1)
    return model, Averaged(np.asarray(mean), np.asarray(change))


@jax.jit
def _smoothed(model: Any, draws: dict[str, Any], data: Trajectories) -> tuple[Any, Any]:
    value = model.observed_value(data)

    def one(parameters):
        chain = model.observation(parameters, data).within_truncation()
        state, pair = chain.smooth(value)[-2:]
        return state[..., : state.shape[-1] - chain.num_rest], pair.sum((-2, -1)) - jnp.trace(
            pair, axis1=-2, axis2=-1
        )

    return jax.lax.map(one, draws)
