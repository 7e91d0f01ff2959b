"""Draws of parameters out of a fit, whatever made it, with what the fit says of itself."""

from __future__ import annotations

import importlib.metadata
from typing import Any, NamedTuple

import jax
import numpy as np
import numpyro.handlers
from jax import Array
from numpyro.infer import MCMC, Predictive
from numpyro.infer.svi import SVIRunResult

from ethogram.inference.conjugate_svi import ConjugateResult
from ethogram.inference.posterior import Posterior
from ethogram.inference.reward_result import RewardFit, RewardPosterior

__all__ = ["Draws", "flat_draws", "read_draws"]

ARVIZ_NAMES = {"potential_energy": "lp", "num_steps": "n_steps", "accept_prob": "acceptance_rate"}
"""Fields of numpyro's samplers that ArviZ calls otherwise; `lp` is minus the potential energy."""


class Draws(NamedTuple):
    """Draws of parameters, and how they came about.

    Attributes
    ----------
    model : the model object (or numpyro function) that was fitted; None where nobody said.
    sites : (chain, draw, ...) arrays by site.
    statistics : (chain, draw, ...) of the sampler, under ArviZ's names.
    fit : dims and array of what a fit reports by step or restart.
    attributes : of the whole result.
    """

    model: Any
    sites: dict[str, np.ndarray]
    statistics: dict[str, np.ndarray]
    fit: dict[str, tuple[tuple[str, ...], np.ndarray]]
    attributes: dict[str, Any]


def read_draws(key: Array, result: Any, data: Any, model: Any, guide: Any, num_draws: int) -> Draws:
    """Draws of a `ConjugateResult`, a `Posterior`, a `RewardFit`, numpyro's `MCMC` or its `SVIRunResult`.

    Raises
    ------
    TypeError
        For any other result, and for samples without site names.
    ValueError
        For an MCMC that has not run, and an SVI result without model, guide or data.
    """
    if isinstance(result, ConjugateResult):
        return _from_conjugate(key, result, model, num_draws)
    if isinstance(result, Posterior):
        return _from_posterior(key, result, model, num_draws)
    if isinstance(result, RewardFit | RewardPosterior):
        return _from_reward(key, result, model, num_draws)
    if isinstance(result, MCMC):
        return _from_mcmc(result, model)
    if isinstance(result, SVIRunResult):
        return _from_svi(key, result, data, model, guide, num_draws)
    raise TypeError(
        f"result is {type(result).__name__}: give a ConjugateResult, a Posterior, a RewardFit, numpyro's MCMC after "
        "run, or what numpyro's SVI.run returned"
    )


def flat_draws(sites: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Sites (chain, draw, ...) with both leading axes as one."""
    return {name: site.reshape(-1, *site.shape[2:]) for name, site in sites.items()}


def _from_posterior(key: Array, posterior: Posterior, model: Any, num_draws: int) -> Draws:
    sites = _one_chain(posterior.sample(key, num_draws))
    chosen = posterior.model if model is None else model
    return Draws(chosen, sites, {}, {}, _attributes("ethogram"))


def _from_conjugate(key: Array, result: ConjugateResult, model: Any, num_draws: int) -> Draws:
    drawn = _from_posterior(key, result.posterior, model, num_draws)
    fit: dict[str, tuple[tuple[str, ...], np.ndarray]] = {
        "elbo": (("step",), np.asarray(result.elbo)),
        "step": (("step",), np.asarray(result.evaluated)),
        "restart_elbos": (("restart",), np.asarray(result.restart_elbos)),
    }
    attributes = {**drawn.attributes, "converged": int(result.converged), "num_steps": int(result.step)}
    return drawn._replace(fit=fit, attributes=attributes)


def _from_reward(key: Array, result: Any, model: Any, num_draws: int) -> Draws:
    posterior = result.posterior if isinstance(result, RewardFit) else result
    sites = _one_chain(posterior.sample(key, num_draws))
    fit: dict[str, tuple[tuple[str, ...], np.ndarray]] = {}
    attributes = {**_attributes("ethogram"), "method": posterior.method}
    if isinstance(result, RewardFit):
        fit = {"elbo": (("step",), np.asarray(result.trace))}
        attributes |= {"converged": int(result.converged), "num_steps": int(result.steps)}
        attributes |= {"objective": float(result.objective), "white_share": float(result.white_share)}
        if np.isfinite(result.elbo):
            attributes |= {"final_elbo": float(result.elbo), "final_elbo_se": float(result.elbo_se)}
            attributes |= {"laplace_elbo": float(result.laplace_elbo)}
    return Draws(posterior.model if model is None else model, sites, {}, fit, attributes)


def _from_mcmc(mcmc: MCMC, model: Any) -> Draws:
    if mcmc.last_state is None:
        raise ValueError("result is an MCMC that has not run: call its run method first")
    samples = mcmc.get_samples(group_by_chain=True)
    if not isinstance(samples, dict):
        raise TypeError(
            f"result holds samples as {type(samples).__name__}, without site names: run MCMC on a model"
        )
    sites = {name: np.asarray(value) for name, value in samples.items()}
    statistics = {}
    for field, value in mcmc.get_extra_fields(group_by_chain=True).items():
        if not hasattr(value, "shape"):
            continue
        last = field.rpartition(".")[2]
        statistics[ARVIZ_NAMES.get(last, last)] = -np.asarray(value) if last == "potential_energy" else value
        if last == "num_steps":
            statistics["tree_depth"] = np.log2(np.asarray(value)).astype(int) + 1
    chosen = getattr(mcmc.sampler, "model", None) if model is None else model
    statistics = {name: np.asarray(value) for name, value in statistics.items()}
    return Draws(chosen, sites, statistics, {}, _attributes("numpyro"))


def _from_svi(key: Array, result: Any, data: Any, model: Any, guide: Any, num_draws: int) -> Draws:
    given = {"model": model, "guide": guide, "data": data}
    missing = [name for name, value in given.items() if value is None]
    if missing:
        raise ValueError(
            f"result of numpyro's SVI knows its parameters only, and {', '.join(missing)} is missing: "
            "call to_arviz(result, data, model=model, guide=guide)"
        )
    key_draws, key_rest = jax.random.split(key)
    if hasattr(guide, "sample_posterior"):
        draws = guide.sample_posterior(key_draws, result.params, data, sample_shape=(num_draws,))
    else:
        draws = Predictive(guide, params=result.params, num_samples=num_draws)(key_draws, data)
    draws = {**draws, **_deterministic(key_rest, model, draws, data)}
    fit: dict[str, tuple[tuple[str, ...], np.ndarray]] = {"elbo": (("step",), -np.asarray(result.losses))}
    return Draws(model, _one_chain(draws), {}, fit, _attributes("numpyro"))


def _deterministic(key: Array, model: Any, draws: dict[str, Any], data: Any) -> dict[str, Any]:
    """Deterministic sites of the model that the guide knows nothing of."""
    names: list[str] = []

    def look(first):
        seeded = numpyro.handlers.substitute(numpyro.handlers.seed(model, key), first)
        sites = numpyro.handlers.trace(seeded).get_trace(data)
        names.extend(name for name, site in sites.items() if site["type"] == "deterministic")

    jax.eval_shape(look, {name: draw[0] for name, draw in draws.items()})
    names = [name for name in names if name not in draws]
    return Predictive(model, draws, return_sites=names, parallel=True)(key, data) if names else {}


def _one_chain(draws: dict[str, Any]) -> dict[str, np.ndarray]:
    return {name: np.asarray(draw)[None] for name, draw in draws.items()}


def _attributes(library: str) -> dict[str, Any]:
    return {"inference_library": library, "inference_library_version": importlib.metadata.version(library)}
