"""Draws of parameters out of any fit: results of this package describe their own, numpyro's are read here."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import numpyro.handlers
from jax import Array
from numpyro.infer import MCMC, Predictive
from numpyro.infer.svi import SVIRunResult

from ethogram.inference.draws import (
    Draws,
    ExportsDraws,
    FitStatistics,
    mcmc_draws,
    one_chain,
    variational_attributes,
)

__all__ = ["read_draws"]


def read_draws(key: Array, result: Any, data: Any, model: Any, guide: Any, num_draws: int) -> Draws:
    """Draws of a result that describes its own, of numpyro's `MCMC`, or of its `SVIRunResult`.

    A TypeError for a result of another type or without draws, and for samples without site names; a ValueError for an
    MCMC that has not run, and an SVI result without model, guide or data.
    """
    if isinstance(result, ExportsDraws):
        drawn = result.draws_for_export(key, num_draws)
        return drawn if model is None else drawn._replace(model=model)
    if isinstance(result, MCMC):
        return mcmc_draws(result, model)
    if isinstance(result, SVIRunResult):
        return _from_svi(key, result, data, model, guide, num_draws)
    raise TypeError(
        f"result is {type(result).__name__}: give a ConjugateResult, a ConjugatePosterior, a SampledPosterior, a "
        "RewardFit, a RewardPosterior, numpyro's MCMC after run, or what numpyro's SVI.run returned"
    )


def _from_svi(key: Array, result: Any, data: Any, model: Any, guide: Any, num_draws: int) -> Draws:
    given = {"model": model, "guide": guide, "data": data}
    missing = [name for name, value in given.items() if value is None]
    if missing:
        raise ValueError(
            f"result of numpyro's SVI holds parameters only, and {', '.join(missing)} is missing: "
            "call to_arviz(result, data, model=model, guide=guide)"
        )
    key_draws, key_rest = jax.random.split(key)
    if hasattr(guide, "sample_posterior"):
        draws = guide.sample_posterior(key_draws, result.params, data, sample_shape=(num_draws,))
    else:
        draws = Predictive(guide, params=result.params, num_samples=num_draws)(key_draws, data)
    draws = {**draws, **_deterministic(key_rest, model, draws, data)}
    fit: FitStatistics = {"elbo": (("step",), -np.asarray(result.losses))}
    return Draws(model, one_chain(draws), {}, fit, variational_attributes("numpyro"))


def _deterministic(key: Array, model: Any, draws: dict[str, Any], data: Any) -> dict[str, Any]:
    """Deterministic sites of the model that are not among the draws of the guide."""
    names: list[str] = []

    def look(first):
        seeded = numpyro.handlers.substitute(numpyro.handlers.seed(model, key), first)
        sites = numpyro.handlers.trace(seeded).get_trace(data)
        names.extend(name for name, site in sites.items() if site["type"] == "deterministic")

    jax.eval_shape(look, {name: draw[0] for name, draw in draws.items()})
    names = [name for name in names if name not in draws]
    return Predictive(model, draws, return_sites=names, parallel=True)(key, data) if names else {}
