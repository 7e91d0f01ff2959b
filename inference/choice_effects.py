r"""What follows from a posterior of values for changed options: shares, elasticities, marginal effects, and prices.

.. math:: S_j = \frac{1}{T} \sum_t P_t(j), \qquad
          \frac{\partial S_j}{\partial x_{kf}} = \frac{1}{T} \sum_t \frac{\partial P_t(j)}{\partial \mu_{tk}} v_f,
          \qquad e_{jk} = \frac{\sum_t \partial P_t(j) / \partial \mu_{tk} \; v_f\, x_{tkf}}{\sum_t P_t(j)}

Every draw of the values gives one such table, and all draws together its band. Change the features or the legal options
of the decisions (``data._replace``) and ask again. Train (2009), "Discrete choice methods with simulation", sections
2.5 and 3.6: sums over the decisions of the sample, those of elasticities weighted by the probabilities.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ethogram.inference.choice_predictions import draws_of
from ethogram.models.choice import ProbitChoice
from ethogram.models.decisions import Decisions
from ethogram.models.noisy_mdp import NoisyMDP

__all__ = ["Band", "choice_shares", "elasticities", "marginal_effects", "willingness_to_pay"]

MOST_DRAWS = 1000
"""Draws are thinned evenly to so many: the error of a band's ends is then a few hundredths of its width."""


class Band(NamedTuple):
    """A posterior mean and median, and the central band around them.

    Attributes
    ----------
    mean, median, lower, upper : arrays of one shape.
    probability : of the band.
    """

    mean: np.ndarray
    median: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    probability: float


def choice_shares(
    model: NoisyMDP, samples: dict[str, Any], data: Decisions, *, probability: float | int = 0.9
) -> Band:
    """Expected share (option,) of every slot among the choices.

    Parameters
    ----------
    samples : with ``theta (draw, ...)``, such as ``mcmc.get_samples()``.
    data : options to choose from; what was chosen is not looked at, and weights count.
    probability : of the band.

    Raises
    ------
    ValueError
        If draws fit the decisions not, the probability is not in (0, 1), or as the model's `check`.
    """
    each = _by_draw(_shares, model, samples, data, probability)
    return _band(each, probability)


def marginal_effects(
    model: NoisyMDP,
    samples: dict[str, Any],
    data: Decisions,
    feature: int | str,
    *,
    probability: float | int = 0.9,
) -> Band:
    """Change (option, option) of the first slot's share for a unit more of a feature of the second.

    Parameters
    ----------
    feature : number or name.
    samples, data, probability : as for :func:`choice_shares`.
    """
    number = _feature(data, feature)
    each = _by_draw(_responses, model, samples, data, probability, number)[0]
    return _band(each, probability)


def elasticities(
    model: NoisyMDP,
    samples: dict[str, Any],
    data: Decisions,
    feature: int | str,
    *,
    probability: float | int = 0.9,
) -> Band:
    """Per cent (option, option) that the first slot's share changes by for a per cent more of a feature of the second.

    A slot that is never legal, and has no share, is NaN: there is nothing to change.

    Parameters
    ----------
    feature : number or name.
    samples, data, probability : as for :func:`choice_shares`.
    """
    number = _feature(data, feature)
    each = _by_draw(_responses, model, samples, data, probability, number)[1]
    each[:, ~np.asarray(data.legal).any(0)] = np.nan
    return _band(each, probability)


def willingness_to_pay(
    model: NoisyMDP,
    samples: dict[str, Any],
    data: Decisions,
    feature: int | str,
    price: int | str,
    *,
    probability: float | int = 0.9,
) -> Band:
    """How much of the price a unit of a feature is worth, -v[feature] / v[price]; (subject,) where there are any.

    Where the weight of the price may be zero the ratio has no mean: read the median and the band, which then is wide.

    Parameters
    ----------
    feature, price : numbers or names.
    samples, data, probability : as for :func:`choice_shares`.

    Raises
    ------
    ValueError
        If values are tabular, the features are the same, or as for :func:`choice_shares`.
    """
    if model.kind != "features":
        raise ValueError('the model is of kind "tabular": only features, of kind "features", are paid for')
    first, second = _feature(data, feature), _feature(data, price)
    if first == second:
        raise ValueError(f"feature and price are both {feature!r}: give two")
    _check(probability)
    values = np.asarray(model.parts(np.asarray(draws_of(model, samples, data)), data)["v"], float)
    return _band(-values[..., first] / values[..., second], probability)


def _shares(theta, model, data, weight):
    return weight @ ProbitChoice(model.utilities(theta, data), data.legal).probs


def _responses(theta, model, data, weight, number):
    """Derivatives of shares by a feature of every option (option, option), and elasticities."""
    utilities = model.utilities(theta, data)
    value = jnp.take(model.parts(theta, data)["v"], number, axis=-1)
    if data.subject is not None:
        value = value[jnp.asarray(data.subject)]
    if model.beta is not None:
        value = value * model.beta

    def probs(mu, legal):
        return ProbitChoice(mu, legal).probs

    slopes = jax.vmap(jax.jacfwd(probs))(utilities, data.legal)  # (decision, option, option)
    slopes = slopes * jnp.broadcast_to(value, weight.shape)[:, None, None]
    share = weight @ probs(utilities, data.legal)
    level = jnp.where(data.legal, data.features[..., number], 0)
    percent = jnp.einsum("d,djk,dk->jk", weight, slopes, level) / jnp.where(share > 0, share, 1)[:, None]
    return jnp.tensordot(weight, slopes, axes=1), percent


def _by_draw(
    function: Any,
    model: NoisyMDP,
    samples: dict[str, Any],
    data: Decisions,
    probability: float | int,
    *rest: Any,
):
    _check(probability)
    theta = np.asarray(draws_of(model, samples, data))
    theta = theta[np.linspace(0, len(theta) - 1, min(len(theta), MOST_DRAWS)).astype(int)]
    weight = np.ones(data.num_decisions) if data.weight is None else np.asarray(data.weight, float)
    if not weight.sum() > 0:
        raise ValueError("the weights of the decisions are all zero")
    data = jax.tree.map(jnp.asarray, data)
    found = _mapped(function, jnp.asarray(theta), model, data, jnp.asarray(weight / weight.sum()), *rest)
    return jax.tree.map(lambda x: np.array(x), found)


def _mapped(function: Any, theta: Array, *rest: Any) -> Any:
    return lax.map(lambda one: function(one, *rest), theta)


_mapped = jax.jit(_mapped, static_argnums=0)


def _feature(data: Decisions, feature: int | str) -> int:
    names, count = data.metadata.feature_names, data.features.shape[-1]
    if isinstance(feature, str):
        if names is None or feature not in names:
            raise ValueError(f"there is no feature {feature!r}: the names are {names}")
        return tuple(names).index(feature)
    if not 0 <= feature < count:
        raise ValueError(f"there is no feature {feature}: they are numbered 0 to {count - 1}")
    return int(feature)


def _check(probability: float | int) -> None:
    if not 0 < probability < 1:
        raise ValueError(f"probability is {probability}: give a number in (0, 1)")


def _band(draws: np.ndarray, probability: float | int) -> Band:
    tail = 50 * (1 - probability)
    lower, median, upper = np.percentile(draws, [tail, 50, 100 - tail], axis=0)
    return Band(draws.mean(0), median, lower, upper, float(probability))
