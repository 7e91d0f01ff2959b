r"""Posterior choice shares, elasticities and marginal effects.

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

from ethogram.inference.choices.predictions import band_ends, parameters_of, require_noisy_mdp
from ethogram.models.arguments import require_integer, warn_user
from ethogram.models.choices.choice_distribution import ChoiceDistribution
from ethogram.models.choices.choice_formulas import products_of
from ethogram.models.choices.decisions import Decisions, weights_of
from ethogram.models.choices.noisy_mdp import NoisyMDP
from ethogram.models.printing import printed_as

__all__ = [
    "Band",
    "by_draw",
    "choice_shares",
    "elasticities",
    "entering",
    "make_band",
    "marginal_effects",
    "share_changes",
    "unit_and_name",
]

UNIT = "unit"
"""What features without a unit are counted in."""

MOST_DRAWS = 1000
"""Draws are thinned to this number: the Monte Carlo error of the bounds is then a few hundredths of the width."""


def _in_words(band: Band) -> str:
    centre = "median" if band.mean is None else "mean, median"
    title = f"{band.what}: posterior {centre} and {100 * band.probability:.3g} % interval"
    lines = [title, band.to_table().to_string(float_format="{:.4g}".format), band.note]
    return "\n".join(filter(None, lines))


@printed_as(_in_words)
class Band(NamedTuple):
    """Posterior mean and median, and the central interval; it prints as a table with names and units.

    Attributes
    ----------
    mean, median, lower, upper : arrays of one shape; mean is None of ratios, which have none.
    probability : of the interval.
    what : the quantity, and its unit.
    axes : names of the entries along each axis, by name of the axis.
    note : what else to know of it.
    """

    mean: Float[np.ndarray, "..."] | None
    median: Float[np.ndarray, "..."]
    lower: Float[np.ndarray, "..."]
    upper: Float[np.ndarray, "..."]
    probability: float
    what: str = ""
    axes: Mapping[str, Sequence[str]] = MappingProxyType({})
    note: str = ""

    def to_table(self) -> Any:
        """A pandas DataFrame: one row per entry, by names, with mean, median and the ends of the interval."""
        import pandas

        names = [name for name in ("mean", "median", "lower", "upper") if getattr(self, name) is not None]
        parts = {name: np.ravel(getattr(self, name)) for name in names}
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
    found = by_draw(_shares, model, draws, data, probability)
    return make_band(found, probability, "choice shares", {"option": slot_names(data)})


def share_changes(
    model: NoisyMDP, draws: Any, before: Decisions, after: Decisions, *, probability: float | int = 0.9
) -> Band:
    """Choice shares (option, 3) before a change and after it, and the difference, draw by draw.

    Parameters
    ----------
    before, after : choice sets with the same options, such as `data` and ``data.scale_feature("price", 1.1)``, or a
        changed table that was read with ``metadata=data.metadata``.
    model, draws, probability : as for :func:`choice_shares`.
    """
    if slot_names(before) != slot_names(after):
        raise ValueError(
            f"before has the options {slot_names(before)}, after {slot_names(after)}: pass the same"
        )
    one, two = (by_draw(_shares, model, draws, each, probability) for each in (before, after))
    found = np.stack([one, two, two - one], axis=-1)
    axes = {"option": slot_names(before), "share": ["before", "after", "change"]}
    return make_band(found, probability, "choice shares", axes)


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
        If values are tabular (a transition probability cannot change alone), the feature is unknown or enters products
        or functions of a formula, or as for :func:`choice_shares`.
    """
    products = entering(model, data, feature)
    if any(products.values()):
        names = [(data.metadata.feature_names or ())[number] for number in products]
        raise ValueError(
            f"{feature!r} enters {', '.join(names)}, of which a unit more is no one thing: pass the index of one, or "
            "see elasticities and share_changes"
        )
    (number,) = products
    slopes = np.zeros(data.features.shape)
    slopes[:, _slots_of(data, number), number] = 1
    found, _ = by_draw(_responses, model, draws, data, probability, slopes)
    unit, name = unit_and_name(data, feature, products)
    axes = dict.fromkeys(("share of", f"{name} of"), slot_names(data))
    return make_band(found, probability, f"changes of shares by one {unit} more of {name}", axes)


def elasticities(
    model: NoisyMDP, draws: Any, data: Decisions, feature: Any, *, probability: float | int = 0.9
) -> Band:
    """Elasticity (option, option) of the first slot's share with respect to a feature of the second slot.

    It is NaN for a slot that is legal in no decision of positive weight. Shares that underflow have accurate
    elasticities, which are computed from their logarithms. Parameters and errors are those of :func:`marginal_effects`,
    but a name is taken with its products in a formula, ``price:income`` with ``price``.
    """
    products = entering(model, data, feature)
    levels = np.array(data.features, float)
    levels[..., [number for number in range(levels.shape[-1]) if number not in products]] = 0
    _, each = by_draw(_responses, model, draws, data, probability, levels)
    each[:, ~np.asarray(data.legal)[weights_of(data) > 0].any(0)] = np.nan
    name = unit_and_name(data, feature, products)[1]
    axes = dict.fromkeys(("share of", f"{name} of"), slot_names(data))
    return make_band(each, probability, f"elasticities of shares with respect to {name}", axes)


def _shares(parameters, model, problem, weight):
    return weight @ model.likelihood(parameters, problem).probs


def _responses(parameters, model, problem, weight, direction):
    """Derivatives of shares as the features of every option change in a direction (option, option), and of their logs.

    The direction (decision, option, feature) is that of one more unit, or of a share more of what there is. Both from
    log probabilities: derivatives of a probability that underflows are zero.
    """
    data, theta, noise = problem.data, parameters["theta"], model.choice_noise(parameters)
    utilities = model.utilities(theta, problem)
    value = model.parts(theta, data)["v"]
    value = value if data.subject is None else value[jnp.asarray(data.subject)]
    if model.beta is not None:
        value = value * model.beta
    value = jnp.broadcast_to(value, (*weight.shape, value.shape[-1]))
    gain = jnp.einsum("dof,df->do", direction, value, precision="highest")
    gain = jnp.where(data.legal, gain, 0)

    def of_slot(slot):
        def log_share(mu):
            each = ChoiceDistribution(mu, data.legal, noise).log_prob(jnp.broadcast_to(slot, weight.shape))
            return jnp.sum(jnp.where(data.legal[:, slot], each, 0)), each

        slopes, each = jax.grad(log_share, has_aux=True)(utilities)  # (decision, option) by utilities
        slopes = slopes * gain
        logs = jnp.where(weight > 0, jnp.log(jnp.where(weight > 0, weight, 1)) + each, -jnp.inf)
        part = jnp.exp(logs - jnp.where(jnp.isfinite(jnp.max(logs)), jnp.max(logs), 0))
        part = part / jnp.where(jnp.sum(part) > 0, jnp.sum(part), 1)  # each decision's part of the share
        return (weight * jnp.exp(each)) @ slopes, part @ slopes

    # One slot at a time: all at once would hold options squared times nodes of numbers per decision.
    return lax.map(of_slot, jnp.arange(data.legal.shape[1]))


def by_draw(function, model, draws, data, probability, *rest):
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


def entering(model: NoisyMDP, data: Decisions, feature: Any) -> dict[int, tuple[str, ...]]:
    """Numbers of the features that a name enters, with their other factors; of an index, that feature alone."""
    require_noisy_mdp(model)
    if model.kind != "features":
        raise ValueError(
            'the model is of kind "tabular", whose features are transition probabilities that cannot change alone: use '
            'kind="features"'
        )
    if isinstance(feature, str):
        products = products_of(data.metadata, feature)
        if not products:
            names = data.metadata.feature_names
            raise ValueError(f"feature is {feature!r}: pass an index, or one of the names {names}")
    else:
        products = {require_integer("feature", feature, 0, data.features.shape[-1] - 1): ()}
    if not np.any((weights_of(data, known=True) > 0) & (np.asarray(data.legal).sum(-1) > 1)):
        return products  # decisions without choices among options are counterfactual
    found = model.separating(data)[1]
    if found is not None and not found.agreeing.any() and (np.abs(found.direction[[*products]]) > 1e-6).any():
        warn_user(
            f"the decisions say nothing of feature {feature!r} by itself, since no two options differ along "
            f"{np.array2string(found.direction, precision=3, threshold=12)}: what follows is its prior"
        )
    return products


def _slots_of(data: Decisions, number: int) -> np.ndarray:
    """Which slots (option,) a feature can change in: that of its alternative, where a formula has made it of one."""
    options, names = data.metadata.action_names, data.metadata.feature_names
    if data.metadata.formula is None or options is None or names is None:
        return np.ones(data.legal.shape[1], bool)
    own = np.isin(options, names[number].split(":"))
    return own if own.any() else ~own


def slot_names(data: Decisions) -> Sequence[str]:
    """Names of the options, else their numbers."""
    return data.metadata.action_names or [str(slot) for slot in range(data.legal.shape[1])]


def unit_and_name(data: Decisions, feature: Any, products: Mapping[int, Any]) -> tuple[str, str]:
    """The unit of a feature, and its name."""
    names, units, number = data.metadata.feature_names, data.metadata.feature_units, next(iter(products))
    unit = units[number] if units and not products[number] else ""
    if isinstance(feature, str):
        return unit or UNIT, feature
    return unit or UNIT, names[number] if names else f"feature {number}"


def make_band(
    draws: np.ndarray, probability: float | int, what: str, axes: Mapping[str, Sequence[str]]
) -> Band:
    """Mean, median and interval of draws (draw, ...)."""
    lower, upper = band_ends(probability)
    low, median, high = np.percentile(draws, [lower, 50, upper], axis=0)
    return Band(draws.mean(0), median, low, high, float(probability), what, axes)
