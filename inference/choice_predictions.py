r"""What a posterior of values says of choices: probabilities of the next ones, and how good they were.

Singh, Chopin and Whiteley, "Bayesian learning of noisy Markov decision processes", section 4.2 (eq. 23 and 24). Printed
there and offered beside the exact form: one noisy choice a draw, and the option that was chosen most often; that is a
Monte Carlo estimate of the most probable one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float, Int

from ethogram.models.choice import ProbitChoice
from ethogram.models.decisions import Decisions
from ethogram.models.noisy_mdp import NoisyMDP

__all__ = [
    "Calibration",
    "calibration",
    "choice_error",
    "draws_of",
    "noise_floor",
    "predict_choice",
    "predict_probabilities",
]


def predict_probabilities(
    model: NoisyMDP, samples: dict[str, Any], data: Decisions
) -> Float[Array, "decision option"]:
    """Posterior predictive probability of every option: the mean over draws of its exact probability.

    Parameters
    ----------
    samples : with ``theta (draw, parameter)``, or ``(draw, subject, parameter)``, such as ``mcmc.get_samples()``.
    data : decisions to predict; what was chosen is not looked at.

    Raises
    ------
    ValueError
        If draws have another number of parameters than the decisions, or as the model's `check`.
    """
    theta = draws_of(model, samples, data)
    return _mean_probabilities(theta, model, jax.tree.map(jnp.asarray, data))


@jax.jit
def _mean_probabilities(theta, model, data):
    def add(total, one):
        return total + ProbitChoice(model.utilities(one, data), data.legal).probs, None

    total = jnp.zeros(data.legal.shape, jnp.result_type(theta, data.features))
    return lax.scan(add, total, theta)[0] / len(theta)


def predict_choice(
    model: NoisyMDP,
    samples: dict[str, Any],
    data: Decisions,
    *,
    method: str = "probability",
    key: Array | None = None,
) -> Int[np.ndarray, "decision"]:
    """The option that is most probable, or with ``method="vote"`` most often chosen by noisy choices, one a draw.

    Parameters
    ----------
    samples, data : as for :func:`predict_probabilities`.
    method : ``"probability"``, exact; or ``"vote"``, the paper's (eq. 23), which needs a key.
    key : a typed key.

    Raises
    ------
    ValueError
        If there is no such method, or the vote has no key.
    """
    if method == "probability":
        return np.asarray(jnp.argmax(predict_probabilities(model, samples, data), axis=-1))
    if method != "vote" or key is None:
        raise ValueError(
            f'method must be "probability", or "vote" with a key, not {method!r} with key {key!r}'
        )
    theta = draws_of(model, samples, data)
    utilities = jax.vmap(lambda one: model.utilities(one, data))(theta)
    chosen = ProbitChoice(utilities, data.legal).sample(key)
    votes = jnp.sum(chosen[..., None] == jnp.arange(utilities.shape[-1]), axis=0)
    return np.asarray(jnp.argmax(votes, axis=-1))


def choice_error(predicted: Any, data: Decisions) -> float:
    """Share of decisions whose choice is another than the predicted one (eq. 24); unknown choices do not count."""
    predicted, chosen = np.asarray(predicted), np.asarray(data.choice)
    if predicted.shape != chosen.shape:
        raise ValueError(f"predicted has shape {predicted.shape}, not {chosen.shape}, one entry a decision")
    known = chosen >= 0
    if not known.any():
        raise ValueError("data have no known choice to compare with")
    return float(np.mean(predicted[known] != chosen[known]))


def noise_floor(utilities: Any, data: Decisions) -> float:
    """The choice error to expect of who knows the utilities (decision, option): noise is drawn anew each time."""
    return float(np.mean(1 - np.asarray(ProbitChoice(utilities, data.legal).probs).max(-1)))


class Calibration(NamedTuple):
    """How often options were chosen that had a predicted probability in each bin.

    Attributes
    ----------
    lower, upper : (bin,) edges.
    predicted : (bin,) mean predicted probability of the options in the bin.
    chosen : (bin,) share of them that was chosen.
    error : (bin,) standard error of that share if the predictions are right.
    options : (bin,) how many.
    """

    lower: np.ndarray
    upper: np.ndarray
    predicted: np.ndarray
    chosen: np.ndarray
    error: np.ndarray
    options: np.ndarray


def calibration(probabilities: Any, data: Decisions, num_bins: int = 10) -> Calibration:
    """Calibration table of predicted probabilities (decision, option); bins without an option are left out."""
    probabilities, legal = np.asarray(probabilities, float), np.asarray(data.legal)
    if probabilities.shape != legal.shape:
        raise ValueError(f"probabilities has shape {probabilities.shape}, not {legal.shape}")
    if num_bins < 1:
        raise ValueError(f"num_bins is {num_bins}: give at least 1")
    known = legal & (np.asarray(data.choice) >= 0)[:, None]
    chance = probabilities[known]
    hit = (np.arange(legal.shape[1]) == np.asarray(data.choice)[:, None])[known]
    which = np.minimum((chance * num_bins).astype(int), num_bins - 1)
    count = np.bincount(which, minlength=num_bins)
    some = count > 0
    total, hits, spread = (
        np.bincount(which, x, num_bins)[some] / count[some] for x in (chance, hit, chance * (1 - chance))
    )
    edges = np.arange(num_bins + 1) / num_bins
    error = np.sqrt(spread / count[some])
    return Calibration(edges[:-1][some], edges[1:][some], total, hits, error, count[some])


def draws_of(model: NoisyMDP, samples: dict[str, Any], data: Decisions) -> Array:
    """Theta of the samples, once it is found to fit the model and the decisions."""
    model.check(data, condition=False)
    theta = jnp.asarray(samples["theta"])
    subjects = () if data.subject is None else (data.num_subjects,)
    shape = (*subjects, sum(model.sizes(data)))
    if theta.ndim != len(shape) + 1 or theta.shape[1:] != shape:
        raise ValueError(
            f"samples have theta of shape {theta.shape}: give (draw, {str(shape)[1:-1].rstrip(',')}), one a parameter"
        )
    return theta
