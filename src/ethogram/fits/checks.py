"""Whether hidden states explain data: forecast pseudo-residuals, and posterior predictive checks along sampled paths.

Zucchini, MacDonald, Langrock (2016), "Hidden Markov models for time series", section 6.2.3: forecast pseudo-residuals.
Gelman, Meng, Stern (1996), "Posterior predictive assessment of model fitness via realized discrepancies": numbers of
paths from the posterior beside those of paths that the chain makes at the same draw of the parameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float
from scipy.special import ndtr, ndtri

from ethogram.fits.new_data import require_free_states
from ethogram.models.data.gaps import lacking
from ethogram.models.quick_jit import quick_jit

__all__ = ["chain_checks", "checked", "pseudo_residuals"]

SAMPLES = 4000
"""Of every feature in every state, for its distribution function where this has no closed form here."""


def pseudo_residuals(
    key: Array, model: Any, draws: Mapping[str, np.ndarray], data: Any
) -> Float[np.ndarray, "sequence time feature"]:
    """Normal quantiles of the predictive probability of a smaller value, given the frames before; NaN where missing.

    Standard normal where the model is true, and independent over time. Ties of discrete features count half; those of
    choices with covariates, and of `LogitEmission`, a uniform share: Dunn and Smyth (1996), "Randomized quantile
    residuals".

    Parameters
    ----------
    model : a `RoleHMM` whose frames are independent given the state, bound to the data.
    draws : (draw, ...) by site, over which the probabilities are averaged.
    """
    x, seen = np.asarray(data.observations, float), np.asarray(data.observed)
    missing = lacking(x, seen) | ~seen[..., None]
    count, entries = len(next(iter(draws.values()))), model.entries(data)
    below = np.zeros(x.shape)
    if hasattr(model.emission, "distribution_function"):
        ends = np.zeros((2, *x.shape))
        for number in range(count):
            at = {name: site[number] for name, site in draws.items()}
            ends += np.asarray(_ends(model, at, entries.batch, entries.value)) / count
        share = np.asarray(jax.random.uniform(key, x.shape))
        below = ends[0] + share * (ends[1] - ends[0])
        return np.where(missing, np.nan, ndtri(np.clip(below, 1e-9, 1 - 1e-9)))
    for number, part in enumerate(jax.random.split(key, count)):
        at = {name: site[number] for name, site in draws.items()}
        predicted = np.asarray(_predicted(model, at, entries.batch, entries.value))
        of_state = _distribution_functions(part, model, at)
        for feature in range(x.shape[-1]):
            values = np.where(missing[..., feature], 0, x[..., feature])
            for state in range(predicted.shape[-1]):
                below[..., feature] += predicted[..., state] * of_state(values, state, feature) / count
    return np.where(missing, np.nan, ndtri(np.clip(below, 1e-9, 1 - 1e-9)))


@quick_jit(calls=2**4)
def _ends(model: Any, parameters: Any, batch: Any, value: Any) -> tuple[Array, Array]:
    """Predictive probabilities (sequence, time, feature) of a smaller value, and of one up to it."""
    predicted = model.likelihood(parameters, batch).filter(value).predicted
    columns = jnp.asarray(batch.covariates)[..., -jnp.shape(parameters["weight"])[-1] :]
    eta = model.emission.predictor(parameters, columns)
    found = model.emission.distribution_function(eta, jnp.asarray(value))
    below, upto = (jnp.einsum("ntk,ntkf->ntf", predicted, each) for each in found)
    return below, upto


def checked(fit: Any, data: Any) -> Any:
    """The model of a fit, bound to data; TypeError unless it is a `RoleHMM` that has pseudo-residuals."""
    from ethogram.models.emissions import AutoregressiveGaussianEmission
    from ethogram.models.roles import CovariateEmission, RoleHMM

    model = fit.model
    emission = getattr(model, "emission", None)
    without = isinstance(emission, CovariateEmission) and not hasattr(emission, "distribution_function")
    if not isinstance(model, RoleHMM) or without or isinstance(emission, AutoregressiveGaussianEmission):
        raise TypeError(
            f"a {type(model).__name__} has no pseudo-residuals here: give a RoleHMM whose frames are independent given "
            "the state, and whose emission has no covariates, or is a ChoiceEmission or LogitEmission"
        )
    require_free_states(model, data, "pseudo-residuals")
    return fit.draws(1).model


@quick_jit(calls=2**4)
def _predicted(model: Any, parameters: Any, batch: Any, value: Any) -> Array:
    """State probabilities (sequence, time, state) before each frame."""
    return model.likelihood(parameters, batch).filter(value).predicted


def _distribution_functions(key: Array, model: Any, parameters: Any) -> Any:
    """Probability of a smaller value, given (values, state, feature): exact of Gaussians, else that of samples."""
    from ethogram.models.emissions import GaussianEmission

    if isinstance(model.emission, GaussianEmission):
        mean, covariance = (np.asarray(parameters[site], float) for site in ("mean", "covariance"))
        sd = np.sqrt(np.diagonal(covariance, axis1=-2, axis2=-1))
        return lambda values, state, feature: ndtr((values - mean[state, feature]) / sd[state, feature])
    simulated = np.sort(np.asarray(_samples(key, model, parameters)), axis=0)

    def among_samples(values: np.ndarray, state: int, feature: int) -> np.ndarray:
        known = simulated[:, state, feature]
        rank = (np.searchsorted(known, values) + np.searchsorted(known, values, "right")) / 2
        return (rank + 0.5) / (SAMPLES + 1)

    return among_samples


@quick_jit
def _samples(key: Array, model: Any, parameters: Any) -> Array:
    """Samples (sample, state, feature) of every state."""
    samples = model.emission.distribution(parameters).sample(key, (SAMPLES,))
    return samples.reshape(SAMPLES, samples.shape[1], -1)


def chain_checks(
    key: Array, model: Any, draws: Mapping[str, np.ndarray], data: Any, paths: np.ndarray
) -> dict[str, list[np.ndarray]]:
    """Numbers (draw, state) by name, of sampled paths (draw, sequence, time) and of paths that the chain makes.

    They are shares of the frames, and shares of the bouts, of those whose start is in the data, that last one frame.
    Where bouts are not geometric, as those of animals seldom are, the second differ.
    """
    keys, size = jax.random.split(key, len(paths)), draws["initial"].shape[-1]
    needed = {name: draws[name] for name in model.needed_sites()}
    made = np.asarray(_made(keys, model, needed, model.entries(data).batch))
    numbers = {"share of the frames": _shares, "share of bouts of a single frame": _short}
    return {
        name: [np.stack([of_path(path, size) for path in which]) for which in (paths, made)]
        for name, of_path in numbers.items()
    }


@quick_jit(calls=2**8)
def _made(keys: Array, model: Any, draws: Any, batch: Any) -> Array:
    """Paths (draw, sequence, time) of the chain itself, -1 beyond a length."""
    return jax.lax.map(
        lambda one: model.likelihood(one[1], batch).sample_with_states(one[0])[1], (keys, draws)
    )


def _shares(path: np.ndarray, size: int) -> np.ndarray:
    number = np.bincount(path[path >= 0], minlength=size)
    return number / number.sum()


def _short(path: np.ndarray, size: int) -> np.ndarray:
    """Share (state,) of bouts of one frame among those that begin and end inside a sequence."""
    before, at, after = path[:, :-2], path[:, 1:-1], path[:, 2:]
    begins = (before != at) & (after >= 0)
    alone = begins & (after != at)
    number = np.bincount(at[begins], minlength=size)
    with np.errstate(invalid="ignore"):
        return np.bincount(at[alone], minlength=size) / np.where(number, number, np.nan)
