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

from ethogram.models.blocks.conjugate_block import is_concrete
from ethogram.models.choice import ProbitChoice
from ethogram.models.decisions import Decisions, require_key, weights_of
from ethogram.models.emissions.emission import whole_number
from ethogram.models.noisy_mdp import NoisyMDP

__all__ = [
    "Calibration",
    "band_ends",
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
    data : decisions to predict, of subjects that there are draws of; what was chosen is not looked at.

    Raises
    ------
    ValueError
        As :func:`draws_of`.
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
    key: Any = None,
) -> Int[np.ndarray, "decision"]:
    """The option that is most probable, or with ``method="vote"`` most often chosen by noisy choices, one a draw.

    Parameters
    ----------
    samples, data : as for :func:`predict_probabilities`.
    method : ``"probability"``, exact; or ``"vote"``, the paper's (eq. 23), which needs a key.
    key : a typed key.

    Raises
    ------
    TypeError, ValueError
        If there is no such method, the vote has no typed key, or as :func:`draws_of`.
    """
    if method == "probability":
        return np.asarray(jnp.argmax(predict_probabilities(model, samples, data), axis=-1))
    if method != "vote" or key is None:
        raise ValueError(
            f'method must be "probability", or "vote" with a key, not {method!r} with key {key!r}'
        )
    require_key(key)
    theta = draws_of(model, samples, data)
    utilities = jax.vmap(lambda one: model.utilities(one, data))(theta)
    chosen = ProbitChoice(utilities, data.legal).sample(key)
    votes = jnp.sum(chosen[..., None] == jnp.arange(utilities.shape[-1]), axis=0)
    return np.asarray(jnp.argmax(votes, axis=-1))


def choice_error(predicted: Any, data: Decisions) -> float:
    """Share of decisions whose choice is another than the predicted one (eq. 24).

    Decisions count by their weights; those whose choice is not known do not.

    Parameters
    ----------
    predicted : (decision,) numbers of options.

    Raises
    ------
    TypeError, ValueError
        If an entry is the number of no option, there is not one a decision, or no choice is known.
    """
    predicted, chosen = np.asarray(predicted), np.asarray(data.choice)
    if predicted.shape != chosen.shape:
        raise ValueError(f"predicted has shape {predicted.shape}, not {chosen.shape}, one entry a decision")
    if predicted.dtype.kind not in "iuf":
        raise TypeError(f"predicted holds {predicted.dtype}: give numbers of options")
    wrong = ~np.isin(predicted, np.arange(data.legal.shape[1]))
    if wrong.any():
        worst = int(wrong.argmax())
        raise ValueError(f"predicted[{worst}] is {predicted[worst]}, outside 0..{data.legal.shape[1] - 1}")
    return float(np.average(predicted != chosen, weights=_counts(data)))


def noise_floor(utilities: Any, data: Decisions) -> float:
    """The choice error to expect of who knows the utilities: noise is drawn anew each time.

    Decisions count as in :func:`choice_error`: by their weights, and where the choice is known.

    Parameters
    ----------
    utilities : (decision, option).

    Raises
    ------
    ValueError
        If utilities have another shape, one of a legal option is not finite, or no choice is known.
    """
    utilities = np.asarray(utilities)
    if utilities.shape != data.legal.shape:
        raise ValueError(f"utilities has shape {utilities.shape}, not {data.legal.shape}, (decision, option)")
    best = np.asarray(ProbitChoice(utilities, data.legal).probs, float).max(-1)
    return float(np.average(1 - best, weights=_counts(data)))


class Calibration(NamedTuple):
    """How often options were chosen that had a predicted probability in each bin.

    Attributes
    ----------
    lower, upper : (bin,) edges.
    predicted : (bin,) mean predicted probability of the options in the bin.
    chosen : (bin,) share of them that was chosen.
    error : (bin,) standard error of that share if the predictions are right, and a weight says how often a decision
        was made.
    options : (bin,) how many, by weight.
    """

    lower: np.ndarray
    upper: np.ndarray
    predicted: np.ndarray
    chosen: np.ndarray
    error: np.ndarray
    options: np.ndarray


def calibration(probabilities: Any, data: Decisions, num_bins: int = 10) -> Calibration:
    """Calibration table of predicted probabilities; bins without an option are left out.

    Decisions count by their weights; those whose choice is not known do not.

    Parameters
    ----------
    probabilities : (decision, option), such as :func:`predict_probabilities` gives; only those of legal options are
        looked at.
    num_bins : of equal width.

    Raises
    ------
    TypeError, ValueError
        If probabilities have another shape, one is not in [0, 1], there is no bin, or no choice is known.
    """
    probabilities, legal = np.asarray(probabilities, float), np.asarray(data.legal)
    if probabilities.shape != legal.shape:
        raise ValueError(f"probabilities has shape {probabilities.shape}, not {legal.shape}")
    wrong = np.argwhere(legal & ~((probabilities >= 0) & (probabilities <= 1)))
    if len(wrong):
        at = tuple(wrong[0].tolist())
        raise ValueError(f"probabilities{list(at)} is {probabilities[at]}: give numbers in [0, 1]")
    whole_number("num_bins", num_bins, 1)
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


def _counts(data: Decisions) -> np.ndarray:
    """How often each decision counts where predictions are compared with choices."""
    weight = weights_of(data, known=True)
    if not weight.sum() > 0:
        raise ValueError("data have no known choice of a weight above 0 to compare with")
    return weight


def draws_of(model: NoisyMDP, samples: dict[str, Any], data: Decisions) -> Array:
    """Theta of the samples, once it is found to fit the model and the decisions.

    Where decisions have subjects, there may be draws of more of them: held-out decisions need not have all.

    Raises
    ------
    TypeError, ValueError
        If samples have no theta, no draw of it, one that is not finite, or one of another shape than (draw, parameter),
        or (draw, subject, parameter); or as the model's `check`.
    """
    model.check(data, condition=False)
    if "theta" not in samples:
        raise ValueError(f"samples have no theta: they have {', '.join(sorted(samples)) or 'nothing'}")
    theta = jnp.asarray(samples["theta"])
    size = sum(model.sizes(data))
    if data.subject is None:
        fits, wanted = theta.ndim == 2, f"(draw, {size})"
    else:
        least = data.num_subjects or 0
        fits = theta.ndim == 3 and theta.shape[1] >= least
        wanted = f"(draw, {least}, {size}), with {least} subjects at least"
    if not fits or theta.shape[-1] != size:
        raise ValueError(
            f"samples have theta of shape {theta.shape}: give {wanted}, as mcmc.get_samples() has it, which is not "
            "grouped by chain"
        )
    if not len(theta):
        raise ValueError("samples have no draw of theta: give one at least")
    if is_concrete(theta):
        wrong = np.argwhere(~np.isfinite(np.asarray(theta)))
        if len(wrong):
            raise ValueError(
                f"samples have theta{wrong[0].tolist()} that is not finite: leave such draws out"
            )
    return theta


def band_ends(probability: float | int) -> tuple[float, float]:
    """Percentiles at the ends of the central band of a probability.

    Raises
    ------
    ValueError
        If the probability is not in (0, 1).
    """
    if not 0 < probability < 1:
        raise ValueError(f"probability is {probability}: give a number in (0, 1)")
    tail = 50 * (1 - float(probability))
    return tail, 100 - tail
