r"""Posterior predictive choice probabilities, and their errors and calibration.

Singh, Chopin and Whiteley, "Bayesian learning of noisy Markov decision processes", section 4.2 (eq. 23 and 24). The
vote of eq. 23, one noisy choice a posterior draw, is a Monte Carlo estimate of the exact posterior predictive.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from ethogram.inference.convergence import grouped_draws, warn_of_convergence
from ethogram.models.arguments import is_concrete, require, require_integer, require_key
from ethogram.models.choices.choice_distribution import ChoiceDistribution
from ethogram.models.choices.choice_problem import ChoiceProblem
from ethogram.models.choices.decisions import Decisions, HostOrDevice, weights_of
from ethogram.models.choices.latent_classes import LatentClasses
from ethogram.models.choices.noises import given_noise
from ethogram.models.choices.noisy_mdp import NoisyMDP
from ethogram.models.choices.probit_choice import NormalNoise
from ethogram.models.printing import short_repr

__all__ = [
    "Calibration",
    "band_ends",
    "calibration",
    "choice_error",
    "draws_of",
    "noise_floor",
    "parameters_of",
    "predict_choice_probabilities",
    "require_noisy_mdp",
    "theta_chains",
]


def predict_choice_probabilities(
    key: Any, model: NoisyMDP, draws: Any, data: Decisions, *, vote: bool = False
) -> Float[Array, "decision option"]:
    """Posterior predictive probability of every option; its ``argmax(-1)`` is the predicted choice.

    Parameters
    ----------
    key : a typed key for the vote; not used, and may be None, without it.
    model : the fitted model.
    draws : the `MCMC` object, or its samples, grouped by chain or not, with ``theta (draw, parameter)`` or
        ``(draw, subject, parameter)``.
    data : decisions to predict, of subjects among those of the draws; their choices are ignored.
    vote : False for the mean over draws of the exact probability; True for the share of draws whose simulated noisy
        choice is the option (eq. 23).

    Raises
    ------
    TypeError, ValueError
        If the vote has no typed key, or as :func:`draws_of`.

    Warns
    -----
    UserWarning
        If the draws have fewer than 100 effective samples, or chains an r_hat above 1.01.
    """
    if vote:
        require_key(key)
    parameters = parameters_of(model, draws, data)
    problem = model.check(data, condition=False).without_names()
    if vote:
        return _vote_shares(key, parameters, model, problem)
    return _mean_probabilities(parameters, model, problem)


@jax.jit
def _vote_shares(key, parameters, model, problem):
    count, options = len(parameters["theta"]), problem.data.legal.shape[1]

    def one(key, own):
        return model.likelihood(own, problem).sample(key)

    chosen = jax.vmap(one)(jax.random.split(key, count), parameters)
    return jnp.mean(chosen[..., None] == jnp.arange(options), axis=0, dtype=parameters["theta"].dtype)


@jax.jit
def _mean_probabilities(parameters, model, problem):
    theta = parameters["theta"]

    def add(total, one):
        return total + model.likelihood(one, problem).probs, None

    total = jnp.zeros(problem.data.legal.shape, jnp.result_type(theta, problem.design))
    return lax.scan(add, total, parameters)[0] / len(theta)


def choice_error(predicted: ArrayLike, data: Decisions) -> float:
    """Misclassification rate of predicted choices (eq. 24), over decisions with a known choice and by their weights.

    Parameters
    ----------
    predicted : (decision,) indices of options.
    data : the decisions, with their choices.
    """
    predicted, chosen = np.asarray(predicted), np.asarray(data.choice)
    _require_shape("predicted", predicted, chosen.shape, "one option per decision")
    if predicted.dtype.kind not in "iuf":
        raise TypeError(f"predicted has dtype {predicted.dtype}: pass indices of options")
    options = np.arange(data.legal.shape[1])
    fix = f", not an option: pass indices from 0 to {options[-1]}"
    require(np.isin(predicted, options), "predicted", predicted, fix)
    return float(np.average(predicted != chosen, weights=_counts(data)))


def noise_floor(
    utilities: ArrayLike,
    data: Decisions,
    model: NoisyMDP | None = None,
    parameters: dict[str, Any] | None = None,
) -> float:
    """Expected choice error of the oracle, with known utilities and unknown noise.

    Decisions count as in :func:`choice_error`: by their weights, and where the choice is known.

    Parameters
    ----------
    utilities : (decision, option); those of options that are not legal are ignored.
    data : the decisions; a choice is only looked at for whether it is known.
    model : whose noise it is; None for standard normal noise without lapses, whatever noise was fitted.
    parameters : values of what of its noise has a prior, ``lapse`` or ``noise_covariance``.
    """
    given = dict(parameters or {})
    sites = () if model is None else model.needed_sites()[1:]
    if set(given) != set(sites):
        raise ValueError(
            f"parameters are {sorted(given)}, and {list(sites)} of the noise has a prior: pass their values, such as "
            'parameters={"lapse": 0.05}'
        )
    if model is not None:
        given_noise(model, dict(given), data)
    utilities = np.asarray(utilities)
    _require_shape("utilities", utilities, data.legal.shape, "(decision, option)")
    noise = NormalNoise() if model is None else model.choice_noise(given)
    best = np.asarray(ChoiceDistribution(utilities, data.legal, noise).probs, float).max(-1)
    return float(np.average(1 - best, weights=_counts(data)))


@short_repr
class Calibration(NamedTuple):
    """Calibration table of predicted probabilities, one row per bin.

    Attributes
    ----------
    lower, upper : (bin,) edges.
    predicted : (bin,) mean predicted probability of the options in the bin.
    chosen : (bin,) observed share of chosen options.
    error : (bin,) standard error of that share under the predicted probabilities, with weights as counts.
    options : (bin,) number of options, by weight.
    """

    lower: Float[np.ndarray, "bin"]
    upper: Float[np.ndarray, "bin"]
    predicted: Float[np.ndarray, "bin"]
    chosen: Float[np.ndarray, "bin"]
    error: Float[np.ndarray, "bin"]
    options: Float[np.ndarray, "bin"]


def calibration(probabilities: ArrayLike, data: Decisions, num_bins: int = 10) -> Calibration:
    """Calibration table of predicted probabilities, without empty bins.

    Decisions with a known choice count, by their weights.

    Parameters
    ----------
    probabilities : (decision, option), as from :func:`predict_choice_probabilities`; those of options that are not
        legal are ignored.
    data : the decisions, with their choices.
    num_bins : number of bins of equal width.
    """
    probabilities, legal = np.asarray(probabilities, float), np.asarray(data.legal)
    _require_shape("probabilities", probabilities, legal.shape, "(decision, option)")
    wrong = legal & ~((probabilities >= 0) & (probabilities <= 1))
    require(~wrong, "probabilities", probabilities, ": pass probabilities in [0, 1]")
    require_integer("num_bins", num_bins, 1)
    weight = _counts(data)[:, None] * legal
    counted = weight > 0
    weight, chance = weight[counted], probabilities[counted]
    hit = (np.arange(legal.shape[1]) == np.asarray(data.choice)[:, None])[counted]
    which = np.minimum((chance * num_bins).astype(int), num_bins - 1)
    count = np.bincount(which, weight, num_bins)
    some = count > 0
    total, hits, spread = (
        np.bincount(which, weight * x, num_bins)[some] / count[some]
        for x in (chance, hit, chance * (1 - chance))
    )
    edges = np.arange(num_bins + 1) / num_bins
    error = np.sqrt(spread / count[some])
    return Calibration(edges[:-1][some], edges[1:][some], total, hits, error, count[some])


def _require_shape(name: str, array: np.ndarray, shape: tuple[int, ...], fix: str) -> None:
    if array.shape != shape:
        raise ValueError(f"{name} has shape {array.shape}, not {shape}: pass {fix}")


def _counts(data: Decisions) -> np.ndarray:
    """Weight of each decision in comparisons of predictions with choices."""
    weight = weights_of(data, known=True)
    if not weight.sum() > 0:
        raise ValueError("data have no known choice of positive weight: pass the choices that were made")
    return weight


def draws_of(model: NoisyMDP, draws: Any, data: Decisions | ChoiceProblem) -> HostOrDevice:
    """Theta (draw, ...) of posterior draws, with a UserWarning where they have not converged; as `theta_chains`."""
    chains = theta_chains(model, draws, data)
    if is_concrete(chains):
        warn_of_convergence({"theta": chains})
    return chains.reshape(-1, *chains.shape[2:])


def parameters_of(model: NoisyMDP, draws: Any, data: Decisions | ChoiceProblem) -> dict[str, HostOrDevice]:
    """Draws (draw, ...) of all that the likelihood needs, with theta as `draws_of`.

    A ValueError if draws lack what of the noise has a prior, or have another number of it.
    """
    found = {"theta": draws_of(model, draws, data)}
    known = grouped_draws(draws)
    sites = draws if known is None else known
    for name in model.needed_sites()[1:]:
        if name not in sites:
            raise ValueError(
                f"draws have no {name}, which has a prior: pass the MCMC object, or mcmc.get_samples()"
            )
        event = sites[name].shape[-2:] if name == "noise_covariance" else ()
        found[name] = sites[name].reshape(-1, *event)
        if len(found[name]) != len(found["theta"]):
            raise ValueError(
                f"draws have {len(found['theta'])} of theta and {name} of shape {sites[name].shape}: pass one per draw"
            )
    return found


def theta_chains(model: NoisyMDP, draws: Any, data: Decisions | ChoiceProblem) -> HostOrDevice:
    """Theta (chain, draw, ...), once it fits the model and the decisions; held-out data may lack some subjects.

    Draws are an `MCMC` object that has run, its samples, or its samples grouped by chain; not grouped, they count as
    one chain. A TypeError or ValueError if draws have no theta, no entry,
    one that is not finite, or another shape than (draw, parameter), or (draw, subject, parameter), with a leading chain
    axis or without; or as the model's `check`.
    """
    require_noisy_mdp(model)
    data = model.check(data, condition=False).data
    known = grouped_draws(draws)
    sites = draws if known is None else known
    if "theta" not in sites:
        raise ValueError(
            f"draws have no theta, but {', '.join(sorted(sites)) or 'nothing'}: pass the MCMC object, or "
            "mcmc.get_samples()"
        )
    theta = np.asarray(sites["theta"]) if is_concrete(sites["theta"]) else sites["theta"]
    shape, size = theta.shape, sum(model.sizes(data))
    least = 0 if data.subject is None else data.num_subjects or 0
    axes = 2 if data.subject is None else 3
    # More chains than draws are rather subjects, of whom the decisions know nothing.
    grouped = theta.ndim == axes + 1 and (known is not None or shape[0] <= shape[1])
    chains = theta if grouped else theta[None]
    if chains.ndim != axes + 1 or shape[-1] != size or (axes == 3 and chains.shape[2] < least):
        wanted = (
            f"(draw, {size})" if axes == 2 else f"(draw, {least}, {size}), with at least {least} subjects"
        )
        raise ValueError(
            f"draws have theta of shape {shape}: pass {wanted}, as in mcmc.get_samples(), or with a leading chain axis"
        )
    if not chains.shape[0] * chains.shape[1]:
        raise ValueError("draws have no draw of theta: pass at least one")
    wrong = np.argwhere(~np.isfinite(np.asarray(theta)) if is_concrete(theta) else np.zeros(0, bool))
    if len(wrong):
        raise ValueError(f"draws have theta{wrong[0].tolist()}, which is not finite: drop such draws")
    return chains


def require_noisy_mdp(model: Any) -> None:
    """Raise TypeError for latent classes, and all else that is no `NoisyMDP`."""
    if not isinstance(model, NoisyMDP):
        fix = ": pass what by_class(model, draws, data) returns" if isinstance(model, LatentClasses) else ""
        raise TypeError(f"model is {type(model).__name__}, not NoisyMDP{fix}")


def band_ends(probability: float | int) -> tuple[float, float]:
    """Percentiles at the ends of the central interval with this probability."""
    if not 0 < probability < 1:
        raise ValueError(f"probability is {probability}: pass a number in (0, 1)")
    tail = 50 * (1 - float(probability))
    return tail, 100 - tail
