r"""Willingness to pay, and changes of consumer surplus.

.. math:: \mathrm{WTP}_k = -\frac{\theta_k}{\theta_{\mathrm{price}}}, \qquad
          \Delta \mathrm{CS}_t = -\frac{1}{\theta_{\mathrm{price}}}
          \Bigl( \ln \sum_j e^{\mu'_{tj}} - \ln \sum_j e^{\mu_{tj}} \Bigr)

Every posterior draw gives one value. Ratios have no posterior mean where the coefficient of the price has density at
zero: there are medians and intervals alone. Train (2009), "Discrete choice methods with simulation", sections 2.3 and
3.5; Train and Weeks (2005), "Discrete choice models in preference space and willingness-to-pay space".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Float

from ethogram.inference.choices.effects import (
    UNIT,
    Band,
    by_draw,
    entering,
    make_band,
    unit_and_name,
)
from ethogram.inference.choices.predictions import band_ends, draws_of
from ethogram.inference.choices.summary import Mode
from ethogram.models.arguments import warn_user
from ethogram.models.choices.choice_formulas import factor_at, require_factors
from ethogram.models.choices.decisions import Decisions
from ethogram.models.choices.noisy_mdp import NoisyMDP

__all__ = ["consumer_surplus", "willingness_to_pay", "wtp_space"]

LEAST_DECIDED = 0.99
"""Posterior probability of a negative coefficient of the price, below which ratios to it may be of any size."""


def willingness_to_pay(
    model: NoisyMDP,
    draws: Any,
    data: Decisions,
    feature: Any,
    price: Any,
    *,
    at: Mapping[str, Any] | None = None,
    population: bool = False,
    probability: float | int = 0.9,
) -> Band:
    """Willingness to pay for a unit of a feature, -v[feature] / v[price]; (subject,) where there are any.

    The band has no mean, since the ratio has none. Its note is the probability that the price deters, of the draws,
    and of the subjects too where there are any.

    Parameters
    ----------
    feature, price : names, with their products in a formula; or indices, of these features alone. A feature of None is
        every feature but the price by itself, (feature,) or (feature, subject).
    at : values of the covariates, or levels, that enter products with either, ``{"income": 3.0}``; ``"option"`` is the
        alternative where coefficients differ by it.
    population : of subjects, the distribution over all of them, and the posterior of their median, in place of each.
    model, draws, data, probability : as for :func:`choice_shares`.

    Raises
    ------
    TypeError, ValueError
        If values are tabular, the features are the same, `at` lacks a covariate or has another, or as for
        :func:`choice_shares`.

    Warns
    -----
    UserWarning
        If the sign of the price's coefficient has a probability below .99: the set of values may then be unbounded
        (Fieller 1954).
    """
    band_ends(probability)
    if at is not None:
        require_factors(data.metadata, at)
    first = {} if feature is None else entering(model, data, feature)
    second = entering(model, data, price)
    if [*first] == [*second]:
        raise ValueError(f"feature and price are both {feature!r}: pass two features")
    values = np.asarray(model.parts(np.asarray(draws_of(model, draws, data)), data)["v"], float)
    paid, money = _derivative(values, data, price, second, at), unit_and_name(data, price, second)
    several = data.subject is not None
    if population and not several:
        raise ValueError("population=True needs subjects: pass decisions with subject, or population=False")
    if feature is None:
        names = data.metadata.feature_names or [f"feature {number}" for number in range(values.shape[-1])]
        others = [number for number in range(values.shape[-1]) if number not in second]
        labels, unit = [names[number] for number in others], f"unit of {len(others)} features"
        ratio = -np.moveaxis(values[..., others], -1, 1) / paid[:, None]
    else:
        each, name = unit_and_name(data, feature, first)
        labels, unit = [name], f"{each} of {name}"
        ratio = -_derivative(values, data, feature, first, at)[:, None] / paid[:, None]
    axes: dict[str, Any] = {"feature": labels}
    if population:
        tails = np.array([50, *band_ends(probability)])
        pooled = np.percentile(np.moveaxis(ratio, 1, -1).reshape(-1, len(labels)), tails, axis=0)
        median = np.percentile(np.median(ratio, axis=2), tails, axis=0)
        centre, lower, upper = np.stack([pooled, median], axis=-1)
        band = Band(
            None, centre, lower, upper, float(probability), "", {**axes, "of": ["subjects", "their median"]}
        )
    else:
        if several:
            known = data.metadata.subject_names or ()
            axes["subject"] = [*known, *map(str, range(len(known), ratio.shape[-1]))]
        ratio = ratio if feature is None else ratio[:, 0]
        band = make_band(ratio, probability, "", axes)
    priced = f"{money[0]}s of {money[1]}" if money[0] == UNIT else money[0]
    return band._replace(
        mean=None, what=f"willingness to pay, {priced} per {unit}", note=_note(paid, money[1], several)
    )


def _derivative(
    values: np.ndarray, data: Decisions, feature: Any, products: Mapping[int, tuple[str, ...]], at: Any
) -> Float[np.ndarray, "draw ..."]:
    """Draws of the derivative of utility by a feature, with its products at covariates."""
    at, total = {} if at is None else at, np.zeros(())
    for number, others in products.items():
        weight = 1.0
        for factor in others:
            level = factor_at(data.metadata, factor, at)
            if level is None:
                names = data.metadata.feature_names or ()
                raise ValueError(
                    f"{feature!r} enters {names[number]!r} too, and at has {list(at)}: give at={{...}} with the value "
                    f"of {factor}, or 'option' where it is an alternative; an index is of one feature alone"
                )
            weight *= level
        total = total + weight * values[..., number]
    return total


def _note(paid: np.ndarray, price: str, several: bool) -> str:
    """The probability that the price deters, in words; a warning where its sign is not decided."""
    negative = (paid < 0).mean(0)
    smallest, decided = float(np.min(negative)), np.maximum(negative, 1 - negative)
    if np.min(decided) < LEAST_DECIDED:
        at = int(np.argmin(decided))
        of = f" of subject {at}" if several else ""
        warn_user(
            f"the coefficient of {price}{of} is negative with probability {np.ravel(negative)[at]:.3g}: the set of "
            "values of ratios to it may be unbounded, and an interval of them says little"
        )
    least = f", at least {smallest:.4g} of each subject" if several else ""
    return f"P({price} < 0) = {float(np.mean(negative)):.4g}{least}"


def wtp_space(mode: Mode, price: str, *, probability: float | int = 0.9) -> Any:
    """The mode in willingness-to-pay space: -theta_k / theta_price of every coefficient, and theta_price.

    Coefficients theta_price * w_k are a one-to-one function of these, so that the optimum there is the transformed one
    of the preference space, which is global where the noise is normal or Gumbel. Standard errors are by the delta
    method.

    Parameters
    ----------
    mode : of :func:`find_choice_mode`.
    price : its name there.

    Returns
    -------
    A pandas DataFrame by name: ``estimate``, ``se``, ``lower``, ``upper``; the price last.
    """
    import pandas
    from scipy.special import ndtri

    names, value = list(mode.names), mode.to_table()["estimate"].to_numpy()
    if price not in names:
        raise ValueError(f"price is {price!r}: pass one of the names {tuple(names)}")
    at = names.index(price)
    others = [number for number in range(len(names)) if number != at]
    slope = np.zeros((len(names), len(names)))
    slope[range(len(others)), others] = -1 / value[at]
    slope[: len(others), at] = value[others] / value[at] ** 2
    slope[-1, at] = 1
    found = np.append(-value[others] / value[at], value[at])
    error = np.sqrt(np.diag(slope @ mode.covariance @ slope.T))
    half = ndtri(band_ends(probability)[1] / 100) * error
    columns = {"estimate": found, "se": error, "lower": found - half, "upper": found + half}
    return pandas.DataFrame(columns, index=[*(names[number] for number in others), price])


def consumer_surplus(
    model: NoisyMDP,
    draws: Any,
    before: Decisions,
    after: Decisions,
    price: Any,
    *,
    probability: float | int = 0.9,
) -> Band:
    """Mean change of consumer surplus per decision, by the log sum, in units of the price; without a mean.

    Parameters
    ----------
    before, after : the same decisions, as for :func:`share_changes`.
    price : name or index of the price, whose coefficient is the negative marginal utility of money.
    model, draws, probability : as for :func:`choice_shares`.

    Raises
    ------
    TypeError, ValueError
        If noise is not Gumbel, or has lapses, of which the log sum is no expected maximum; if decisions differ in
        number, or the price has products.

    Warns
    -----
    UserWarning
        As :func:`willingness_to_pay`.
    """
    if model.noise != "gumbel" or model.lapse is not None:
        raise ValueError(
            f"noise is {model.choice_noise().in_words()}: the log sum is the expected maximum of utilities with Gumbel "
            "noise alone, without lapses; fit ethogram.Logit"
        )
    products = entering(model, before, price)
    if len(products) > 1:
        raise ValueError(
            f"price {price!r} enters several features, and money has several marginal utilities: leave its products "
            "out of the formula"
        )
    if before.num_decisions != after.num_decisions:
        raise ValueError(
            f"before has {before.num_decisions} decisions, after {after.num_decisions}: pass the same ones"
        )
    for name in ("subject", "weight"):
        if not np.array_equal(np.asarray(getattr(before, name)), np.asarray(getattr(after, name))):
            raise ValueError(
                f"before and after differ in {name}: pass the same decisions, with other features"
            )
    number = next(iter(products))
    one, two = (by_draw(_surplus, model, draws, each, probability, number) for each in (before, after))
    values = np.asarray(model.parts(np.asarray(draws_of(model, draws, before)), before)["v"], float)[
        ..., number
    ]
    unit, name = unit_and_name(before, price, products)
    what = f"mean change of consumer surplus per decision, {f'{unit}s of {name}' if unit == UNIT else unit}"
    band = make_band((two - one)[:, None], probability, what, {"surplus": ["change"]})
    return band._replace(mean=None, note=_note(values, name, before.subject is not None))


def _surplus(parameters, model, problem, weight, number):
    """Mean log sum of utilities over the negative coefficient of the price, up to a constant."""
    data, theta = problem.data, parameters["theta"]
    utilities = jnp.where(data.legal, model.utilities(theta, problem), -jnp.inf)
    paid = model.parts(theta, data)["v"][..., number] * (1 if model.beta is None else model.beta)
    paid = paid if data.subject is None else paid[jnp.asarray(data.subject)]
    return -(weight @ (logsumexp(utilities, axis=-1) / paid))
