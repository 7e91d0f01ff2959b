r"""Posterior choice shares, elasticities, marginal effects and willingness to pay.

.. math:: S_j = \frac{1}{T} \sum_t P_t(j), \qquad
          \frac{\partial S_j}{\partial x_{kf}} = \frac{1}{T} \sum_t \frac{\partial P_t(j)}{\partial \mu_{tk}} v_f,
          \qquad e_{jk} = \frac{\sum_t \partial P_t(j) / \partial \mu_{tk} \; v_f\, x_{tkf}}{\sum_t P_t(j)}

Every posterior draw gives one such table, and all draws together its interval. For counterfactuals, change the features
or legal options of the decisions (``data._replace``). Train (2009), "Discrete choice methods with simulation", sections
2.5 (sample enumeration) and 3.6 (derivatives and elasticities, here aggregated with the probabilities as weights).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from ethogram.inference.choices.predictions import band_ends, draws_of, parameters_of
from ethogram.models.arguments import require_integer, warn_user
from ethogram.models.choices.choice_distribution import ChoiceDistribution
from ethogram.models.choices.decisions import Decisions, weights_of
from ethogram.models.choices.noisy_mdp import NoisyMDP
from ethogram.models.printing import printed_as

__all__ = ["Band", "choice_shares", "elasticities", "marginal_effects", "willingness_to_pay"]

UNIT = "unit"
"""What features without a unit are counted in."""

MOST_DRAWS = 1000
"""Draws are thinned to this number: the Monte Carlo error of the bounds is then a few hundredths of the width."""


def _in_words(band: Band) -> str:
    title = f"{band.what}: posterior mean, median and {100 * band.probability:.3g} % interval"
    return f"{title}\n{band.to_table().to_string(float_format='{:.4g}'.format)}"


@printed_as(_in_words)
class Band(NamedTuple):
    """Posterior mean and median, and the central interval; it prints as a table with names and units.

    Attributes
    ----------
    mean, median, lower, upper : arrays of one shape.
    probability : of the interval.
    what : the quantity, and its unit.
    axes : names of the entries along each axis, by name of the axis.
    """

    mean: Float[np.ndarray, "..."]
    median: Float[np.ndarray, "..."]
    lower: Float[np.ndarray, "..."]
    upper: Float[np.ndarray, "..."]
    probability: float
    what: str = ""
    axes: Mapping[str, Sequence[str]] = MappingProxyType({})

    def to_table(self) -> Any:
        """A pandas DataFrame: one row per entry, by names, with mean, median and the ends of the interval."""
        import pandas

        parts = {name: np.ravel(getattr(self, name)) for name in ("mean", "median", "lower", "upper")}
        return pandas.DataFrame(parts, pandas.MultiIndex.from_product(self.axes.values(), names=self.axes))


def choice_shares(model: NoisyMDP, draws: Any, data: Decisions, *, probability: float | int = 0.9) -> Band:
    """Expected choice share (option,) of every slot.

    Parameters
    ----------
    model : the fitted model.
    draws : the `MCMC` object, or its samples, grouped by chain or not, with ``theta (draw, ...)``.
    data : choice sets, by weight; their choices are ignored.
    probability : of the interval.

    Raises
    ------
    ValueError
        If weights are all zero, the probability is not in (0, 1), or as `draws_of`.

    Warns
    -----
    UserWarning
        If the draws have fewer than 100 effective samples, or chains an r_hat above 1.01. The effects of a feature also
        warn where it differs between no two options.
    """
    found = _by_draw(_shares, model, draws, data, probability)
    return _band(found, probability, "choice shares", {"option": _slots(data)})


def marginal_effects(
    model: NoisyMDP, draws: Any, data: Decisions, feature: Any, *, probability: float | int = 0.9
) -> Band:
    """Derivative (option, option) of the first slot's share by a feature of the second slot.

    Parameters
    ----------
    feature : index or name.
    model, draws, data, probability : as for :func:`choice_shares`.

    Raises
    ------
    TypeError, ValueError
        If values are tabular (a transition probability cannot change alone), the feature is unknown, or as for
        :func:`choice_shares`.
    """
    number = _feature(model, data, feature)
    found, _ = _by_draw(_responses, model, draws, data, probability, number)
    unit, name = _unit_and_name(data, number)
    axes = dict.fromkeys(("share of", f"{name} of"), _slots(data))
    return _band(found, probability, f"changes of shares by one {unit} more of {name}", axes)


def elasticities(
    model: NoisyMDP, draws: Any, data: Decisions, feature: Any, *, probability: float | int = 0.9
) -> Band:
    """Elasticity (option, option) of the first slot's share with respect to a feature of the second slot.

    It is NaN for a slot that is legal in no decision of positive weight. Shares that underflow have accurate
    elasticities, which are computed from their logarithms. Parameters and errors are those of :func:`marginal_effects`.
    """
    number = _feature(model, data, feature)
    _, each = _by_draw(_responses, model, draws, data, probability, number)
    each[:, ~np.asarray(data.legal)[weights_of(data) > 0].any(0)] = np.nan
    name = _unit_and_name(data, number)[1]
    axes = dict.fromkeys(("share of", f"{name} of"), _slots(data))
    return _band(each, probability, f"elasticities of shares with respect to {name}", axes)


def willingness_to_pay(
    model: NoisyMDP,
    draws: Any,
    data: Decisions,
    feature: Any,
    price: Any,
    *,
    probability: float | int = 0.9,
) -> Band:
    """Willingness to pay for a unit of a feature, -v[feature] / v[price]; (subject,) where there are any.

    The ratio has no posterior mean where the weight of the price has density at zero: use the median and the interval.

    Parameters
    ----------
    feature, price : indices or names.
    model, draws, data, probability : as for :func:`choice_shares`.

    Raises
    ------
    TypeError, ValueError
        If values are tabular, the features are the same, or as for :func:`choice_shares`.
    """
    first, second = _feature(model, data, feature), _feature(model, data, price)
    if first == second:
        raise ValueError(f"feature and price are both {feature!r}: pass two features")
    band_ends(probability)
    values = np.asarray(model.parts(np.asarray(draws_of(model, draws, data)), data)["v"], float)
    (unit, name), (money, paid) = _unit_and_name(data, first), _unit_and_name(data, second)
    money = f"{money}s of {paid}" if money == UNIT else money
    ratio, axes = -values[..., first] / values[..., second], {"feature": [name]}
    if data.subject is not None:
        known = data.metadata.subject_names or ()
        axes["subject"] = [*known, *map(str, range(len(known), ratio.shape[-1]))]
    return _band(ratio, probability, f"willingness to pay, {money} per {unit} of {name}", axes)


def _shares(parameters, model, problem, weight):
    return weight @ model.likelihood(parameters, problem).probs


def _responses(parameters, model, problem, weight, number):
    """Derivatives of shares by a feature of every option (option, option), and elasticities.

    Both from log probabilities: derivatives of a probability that underflows are zero.
    """
    data, theta, noise = problem.data, parameters["theta"], model.choice_noise(parameters)
    utilities = model.utilities(theta, problem)
    value = jnp.take(model.parts(theta, data)["v"], number, axis=-1)
    if data.subject is not None:
        value = value[jnp.asarray(data.subject)]
    if model.beta is not None:
        value = value * model.beta
    value = jnp.broadcast_to(value, weight.shape)[:, None]
    level = jnp.where(data.legal, data.features[..., number], 0)

    def of_slot(slot):
        def log_share(mu):
            each = ChoiceDistribution(mu, data.legal, noise).log_prob(jnp.broadcast_to(slot, weight.shape))
            return jnp.sum(jnp.where(data.legal[:, slot], each, 0)), each

        slopes, each = jax.grad(log_share, has_aux=True)(utilities)  # (decision, option) by utilities
        slopes = slopes * value
        logs = jnp.where(weight > 0, jnp.log(jnp.where(weight > 0, weight, 1)) + each, -jnp.inf)
        part = jnp.exp(logs - jnp.where(jnp.isfinite(jnp.max(logs)), jnp.max(logs), 0))
        part = part / jnp.where(jnp.sum(part) > 0, jnp.sum(part), 1)  # each decision's part of the share
        return (weight * jnp.exp(each)) @ slopes, part @ (slopes * level)

    # One slot at a time: all at once would hold options squared times nodes of numbers per decision.
    return lax.map(of_slot, jnp.arange(data.legal.shape[1]))


def _by_draw(function, model, draws, data, probability, *rest):
    """The function of each draw (thinned), once the arguments are checked."""
    band_ends(probability)
    parameters = {name: np.asarray(site) for name, site in parameters_of(model, draws, data).items()}
    count = len(parameters["theta"])
    rows = np.linspace(0, count - 1, min(count, MOST_DRAWS)).astype(int)
    parameters = {name: site[rows] for name, site in parameters.items()}
    weight = weights_of(data)
    if not weight.sum() > 0:
        raise ValueError("weight is all zero: pass decisions of positive weight")
    problem = model.check(data, condition=False).without_names()
    found = _mapped(function, parameters, model, problem, weight / weight.sum(), *rest)
    return jax.tree.map(np.array, found)


@functools.partial(jax.jit, static_argnums=0)
def _mapped(function: Any, parameters: dict[str, Array], *rest: Any) -> Any:
    return lax.map(lambda one: function(one, *rest), parameters)


def _feature(model: NoisyMDP, data: Decisions, feature: Any) -> int:
    """Index of a feature that is given by index or name."""
    if model.kind != "features":
        raise ValueError(
            'the model is of kind "tabular", whose features are transition probabilities that cannot change alone: use '
            'kind="features"'
        )
    names, count = data.metadata.feature_names, data.features.shape[-1]
    if isinstance(feature, str):
        if names is None or feature not in names:
            raise ValueError(f"feature is {feature!r}: pass an index, or one of the names {names}")
        number = tuple(names).index(feature)
    else:
        number = require_integer("feature", feature, 0, count - 1)
    if not np.any((weights_of(data, known=True) > 0) & (np.asarray(data.legal).sum(-1) > 1)):
        return number  # decisions without choices among options are counterfactual
    found = model.separating(data)[1]
    if found is not None and not found.agreeing.any() and abs(found.direction[number]) > 1e-6:
        warn_user(
            f"the decisions say nothing of feature {feature!r} by itself, since no two options differ along "
            f"{np.array2string(found.direction, precision=3, threshold=12)}: what follows is its prior"
        )
    return number


def _slots(data: Decisions) -> Sequence[str]:
    return data.metadata.action_names or [str(slot) for slot in range(data.legal.shape[1])]


def _unit_and_name(data: Decisions, number: int) -> tuple[str, str]:
    names, units = data.metadata.feature_names, data.metadata.feature_units
    return (units[number] if units else "") or UNIT, names[number] if names else f"feature {number}"


def _band(draws: np.ndarray, probability: float | int, what: str, axes: Mapping[str, Sequence[str]]) -> Band:
    lower, upper = band_ends(probability)
    low, median, high = np.percentile(draws, [lower, 50, upper], axis=0)
    return Band(draws.mean(0), median, low, high, float(probability), what, axes)
