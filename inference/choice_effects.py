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

from ethogram.inference.choice_predictions import band_ends, draws_of
from ethogram.models.choice import ProbitChoice
from ethogram.models.decisions import Decisions, weights_of
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
        If weights are all zero, the probability is not in (0, 1), or as `draws_of`.
    """
    each = _by_draw(_shares, model, samples, data, probability)
    return _band(each, probability)


def marginal_effects(
    model: NoisyMDP,
    samples: dict[str, Any],
    data: Decisions,
    feature: Any,
    *,
    probability: float | int = 0.9,
) -> Band:
    """Change (option, option) of the first slot's share for a unit more of a feature of the second.

    Parameters
    ----------
    feature : number or name.
    samples, data, probability : as for :func:`choice_shares`.

    Raises
    ------
    TypeError, ValueError
        If values are tabular (a unit more of one probability is no distribution), there is no such feature, or as for
        :func:`choice_shares`.
    """
    number = _feature(model, data, feature)
    each = _by_draw(_responses, model, samples, data, probability, number)[0]
    return _band(each, probability)


def elasticities(
    model: NoisyMDP,
    samples: dict[str, Any],
    data: Decisions,
    feature: Any,
    *,
    probability: float | int = 0.9,
) -> Band:
    """Per cent (option, option) that the first slot's share changes by for a per cent more of a feature of the second.

    A slot that is legal in no decision that counts, and has no share, is NaN: there is nothing to change. Shares may be
    as small as they like: what is computed is how their logarithms change.

    Parameters
    ----------
    feature : number or name.
    samples, data, probability : as for :func:`choice_shares`.

    Raises
    ------
    TypeError, ValueError
        As :func:`marginal_effects`.
    """
    number = _feature(model, data, feature)
    each = _by_draw(_responses, model, samples, data, probability, number)[1]
    each[:, ~np.asarray(data.legal)[weights_of(data) > 0].any(0)] = np.nan
    return _band(each, probability)


def willingness_to_pay(
    model: NoisyMDP,
    samples: dict[str, Any],
    data: Decisions,
    feature: Any,
    price: Any,
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
    TypeError, ValueError
        If values are tabular, the features are the same, or as for :func:`choice_shares`.
    """
    first, second = _feature(model, data, feature), _feature(model, data, price)
    if first == second:
        raise ValueError(f"feature and price are both {feature!r}: give two")
    band_ends(probability)
    values = np.asarray(model.parts(np.asarray(draws_of(model, samples, data)), data)["v"], float)
    return _band(-values[..., first] / values[..., second], probability)


def _shares(theta, model, data, weight):
    return weight @ ProbitChoice(model.utilities(theta, data), data.legal).probs


def _responses(theta, model, data, weight, number):
    """Derivatives of shares by a feature of every option (option, option), and elasticities.

    Both from the logarithms of the probabilities, since what changes a share that is too small for a float is none.
    """
    utilities = model.utilities(theta, data)
    value = jnp.take(model.parts(theta, data)["v"], number, axis=-1)
    if data.subject is not None:
        value = value[jnp.asarray(data.subject)]
    if model.beta is not None:
        value = value * model.beta
    value = jnp.broadcast_to(value, weight.shape)[:, None]
    level = jnp.where(data.legal, data.features[..., number], 0)

    def of_slot(slot):
        def log_share(mu):
            each = ProbitChoice(mu, data.legal).log_prob(jnp.broadcast_to(slot, weight.shape))
            return jnp.sum(jnp.where(data.legal[:, slot], each, 0)), each

        slopes, each = jax.grad(log_share, has_aux=True)(utilities)  # (decision, option) by utilities
        slopes = slopes * value
        logs = jnp.where(weight > 0, jnp.log(jnp.where(weight > 0, weight, 1)) + each, -jnp.inf)
        part = jnp.exp(logs - jnp.where(jnp.isfinite(jnp.max(logs)), jnp.max(logs), 0))
        part = part / jnp.where(jnp.sum(part) > 0, jnp.sum(part), 1)  # of the share, by decision
        return (weight * jnp.exp(each)) @ slopes, part @ (slopes * level)

    # One slot at a time: all at once would hold options squared times nodes of numbers a decision.
    return lax.map(of_slot, jnp.arange(data.legal.shape[1]))


def _by_draw(
    function: Any,
    model: NoisyMDP,
    samples: dict[str, Any],
    data: Decisions,
    probability: float | int,
    *rest: Any,
):
    band_ends(probability)
    theta = np.asarray(draws_of(model, samples, data))
    theta = theta[np.linspace(0, len(theta) - 1, min(len(theta), MOST_DRAWS)).astype(int)]
    weight = weights_of(data)
    if not weight.sum() > 0:
        raise ValueError("the weights of the decisions are all zero")
    data = jax.tree.map(jnp.asarray, data)
    found = _mapped(function, jnp.asarray(theta), model, data, jnp.asarray(weight / weight.sum()), *rest)
    return jax.tree.map(lambda x: np.array(x), found)


def _mapped(function: Any, theta: Array, *rest: Any) -> Any:
    return lax.map(lambda one: function(one, *rest), theta)


_mapped = jax.jit(_mapped, static_argnums=0)


def _feature(model: NoisyMDP, data: Decisions, feature: Any) -> int:
    """Number of a feature, by its number or name, that may have a unit more or less."""
    if model.kind != "features":
        raise ValueError(
            'the model is of kind "tabular": probabilities of next states sum to one, and only features, of kind '
            '"features", can have a unit more'
        )
    names, count = data.metadata.feature_names, data.features.shape[-1]
    if isinstance(feature, str):
        if names is None or feature not in names:
            raise ValueError(f"there is no feature {feature!r}: the names are {names}")
        return tuple(names).index(feature)
    if isinstance(feature, bool) or not isinstance(feature, int | np.integer):
        raise TypeError(f"feature is {feature!r}: give a number or a name")
    if not 0 <= feature < count:
        raise ValueError(f"there is no feature {feature}: they are numbered 0 to {count - 1}")
    return int(feature)


def _band(draws: np.ndarray, probability: float | int) -> Band:
    lower, upper = band_ends(probability)
    low, median, high = np.percentile(draws, [lower, 50, upper], axis=0)
    return Band(draws.mean(0), median, low, high, float(probability))
