"""Findings of choices: predicted probabilities beside what was chosen, and how far the prior decides.

A number g of every option has, where the model is true, the mean sum p g over the options of a decision and the
variance sum p g^2 less the square of the mean. Sums of g of the chosen options over decisions are compared with both:
of the cube of the normal quantile of p (calibration), of slots, of the slot chosen last, of squares of features, and of
features in blocks of decisions (drift). These are score tests of what the model leaves out (Rao 1948), less what fitted
parameters account for: g is taken about its regression on the design, by the information matrix. Weights of decisions
are counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import chdtri, ndtri, pdtrc

from ethogram.inference.diagnostics.finding import CHANCE, LEAST_Z, Finding, Level
from ethogram.inference.diagnostics.weights import LEAST_SHIFT, of_shifts, shifts_of_normal

__all__ = ["Predicted", "of_predictions", "of_prior"]

CURVE_CHANCE = 1e-4
"""In place of CHANCE, of the one test of calibration."""
LEAST_CURVE = 0.1
"""Least utility per standard deviation of the cube of normal quantiles of predicted probabilities that matters."""
SURE = 0.97
"""Least predicted probability of the options whose predicted and chosen shares are compared in words."""
LEAST_MISS = 0.05
"""Least difference of predicted and chosen shares that matters, of slots, and of the slot chosen last."""
TINY, LEAST_LAPSES = 0.02, 0.005
"""Probability of options that are hardly ever chosen, and least share of decisions for them beyond chance."""
LEAST_BEND = 0.15
"""Least utility per standard deviation of the square of a feature that matters; the noise has a deviation of 1."""
LEAST_CHANGE = 0.25
"""Least standard deviation of the value of a feature over time that matters, in utility per its deviation."""
ROUNDING = 1e-9
BLOCKS = (2, 4, 8)
FAR, MOST_FAR = 8.0, 0.05
"""Robust standard deviations from which on a feature is far out, and share of the decisions up to which it may be."""
LEAST_DECISIONS = 20.0
"""Decisions, as many equal ones as have the same precision, from which on a sum counts."""
LEAST_LEARNED = 0.9
"""Least ratio of posterior and prior deviation that matters."""


class Predicted(NamedTuple):
    """Predicted probabilities of options, and what was chosen.

    Attributes
    ----------
    probability : (decision, option), zero where there is no option.
    choice : (decision,) known choices, in the order in which they were made.
    features : (decision, option, feature).
    legal : (decision, option).
    weight : (decision,), how often each counts.
    subject : (decision,), zeros of one.
    design : (decision, option, parameter), by which utilities are linear in the fitted parameters; of none where these
        are so many that they are not looked at.
    number : (decision,), of each decision among those of the data, which may be unknown or of no weight.
    """

    probability: Float[np.ndarray, "decision option"]
    choice: Int[np.ndarray, "decision"]
    features: Float[np.ndarray, "decision option feature"]
    legal: Bool[np.ndarray, "decision option"]
    weight: Float[np.ndarray, "decision"]
    subject: Int[np.ndarray, "decision"]
    design: Float[np.ndarray, "decision option parameter"]
    number: Int[np.ndarray, "decision"]

    def about_mean(self, number: np.ndarray) -> np.ndarray:
        """Numbers (decision, option, ...) less their means over the options of a decision."""
        return number - np.einsum("no,no...->n...", self.probability, number)[:, None]


class Sums(NamedTuple):
    """Of each decision: the number of its chosen option less its mean, and its variance, by weight."""

    beyond: np.ndarray
    variance: np.ndarray

    def z(self, some: np.ndarray | slice = slice(None)) -> float:
        """Standard deviations from zero of the sum over some decisions; 0 where too few decide it."""
        variance = self.variance[some]
        if not variance.sum() ** 2 >= LEAST_DECISIONS * (variance**2).sum() > 0:
            return 0.0
        return float(self.beyond[some].sum() / np.sqrt(variance.sum()))

    def utility(self, weight: np.ndarray, some: np.ndarray | slice = slice(None)) -> float:
        """What the number is worth beyond the model, per standard deviation of it, in utility."""
        return float(self.beyond[some].sum() / np.sqrt(self.variance[some].sum() * weight[some].sum()))


def of_predictions(data: Predicted, names: Sequence[str]) -> Iterator[Finding]:
    """Findings of predicted choices.

    Parameters
    ----------
    names : of the features.
    """
    data = with_centred_design(data)
    yield from _calibration(data)
    yield from _lapses(data)
    yield from _slots(data)
    for number, name in enumerate(names):
        yield from _feature(data, data.features[..., number], name)


def with_centred_design(data: Predicted) -> Predicted:
    """Predictions whose design is about its means over options, in units of the square root of its information."""
    x, chance = data.about_mean(data.design), data.weight[:, None] * data.probability
    size = np.sqrt(np.einsum("no,nok->k", chance, x**2))
    return data._replace(design=x / np.maximum(size, 1e-300))


def _sums(data: Predicted, number: np.ndarray, fitted: bool = False) -> Sums:
    """Of a number (decision, option) of the options; `fitted`: less what the parameters account for."""
    each = data.about_mean(number)
    chance = data.weight[:, None] * data.probability
    if fitted and data.design.shape[-1]:
        x, weighted = data.design, (chance[..., None] * data.design).reshape(-1, data.design.shape[-1])
        information = x.reshape(weighted.shape).T @ weighted
        rest = each - x @ np.linalg.lstsq(information, weighted.T @ each.ravel(), rcond=1e-9)[0]
        each = rest if (chance * rest**2).sum() > 1e-6 * (chance * each**2).sum() else np.zeros_like(each)
    chosen = np.take_along_axis(each, data.choice[:, None], 1)[:, 0]
    return Sums(data.weight * chosen, data.weight * (data.probability * each**2).sum(1))


def _calibration(data: Predicted) -> Iterator[Finding]:
    quantile = ndtri(np.clip(data.probability, 1e-3, 1 - 1e-3))
    sums = _sums(data, quantile**3, fitted=True)
    size = abs(sums.z()) / -ndtri(CURVE_CHANCE / 2)
    if size > 1 and abs(sums.utility(data.weight)) > LEAST_CURVE:
        sure = (data.probability >= SURE) * data.weight[:, None]
        chosen = np.take_along_axis(sure, data.choice[:, None], 1).sum()
        expected = (sure * data.probability).sum()
        said = (
            f" Of options with a probability above {SURE}, {100 * chosen / sure.sum():.1f} % are chosen, where "
            f"{100 * expected / sure.sum():.1f} % are expected."
            if (chosen - expected) * sums.beyond.sum() > 0  # in other ranges shares may differ the other way
            else ""
        )
        surer = "less" if sums.beyond.sum() < 0 else "more"
        yield Finding(
            "calibration",
            Level.CAUTION,
            f"Clear choices are {surer} certain, beside the others, than the noise of the model says.{said}",
            'Look for lapses (lapse=Beta(1, 19)), noise with heavier tails (noise="student"), subjects that differ, '
            "and features that enter in another form.",
            float(np.log(size)),
        )


def _lapses(data: Predicted) -> Iterator[Finding]:
    tiny = data.legal & (data.probability < TINY)
    surprising = tiny[np.arange(len(tiny)), data.choice]
    seen, expected = float(data.weight @ surprising), float(data.weight @ (data.probability * tiny).sum(1))
    total = float(data.weight.sum())
    if seen < 3 or seen - expected < LEAST_LAPSES * total or pdtrc(seen - 1, expected) > CHANCE:
        return
    first = ", ".join(map(str, data.number[surprising][:5]))
    yield Finding(
        "lapses",
        Level.WARNING,
        f"{seen:g} of {total:g} choices ({100 * seen / total:.2g} %) are of options with a probability below {TINY}, "
        f"where {expected:.2g} are expected; the first are decisions {first}.",
        "Look at them for errors in the table; where there are none, choices have lapses (lapse=Beta(1, 19)) or noise "
        'with heavier tails (noise="student").',
        float(np.log(seen / max(expected, 1))),
    )


def _slots(data: Predicted) -> Iterator[Finding]:
    """Slots that are chosen more often than predicted, and the one that the same subject has chosen before."""
    count = data.legal.shape[1]
    order = np.argsort(data.subject, kind="stable")
    last = np.full(len(order), -1)
    same = data.subject[order][1:] == data.subject[order][:-1]
    last[order[1:]] = np.where(same, data.choice[order][:-1], -1)
    each = {
        f"options in slot {slot}": np.arange(count) == np.full((len(last), 1), slot) for slot in range(count)
    }
    each["options in the slot that was chosen last"] = np.arange(count) == last[:, None]
    found = []
    for name, where in each.items():
        sums = _sums(data, (where & data.legal).astype(float), fitted=True)
        offered = float(data.weight @ (where & data.legal).any(1))
        miss = float(sums.beyond.sum()) / max(offered, 1)
        if abs(miss) > LEAST_MISS:
            found.append((abs(sums.z()) / LEAST_Z, name, miss))
    if not found or max(found)[0] <= 1:
        return
    size, name, miss = max(found)
    habit = name.endswith("last")
    yield Finding(
        "habit" if habit else "position",
        Level.CAUTION,
        f"The {name} are chosen {'more' if miss > 0 else 'less'} often than predicted, by {100 * abs(miss):.0f} % of "
        "the decisions.",
        "Add a feature that is 1 for the option of the decision before."
        if habit
        else "Give action_rewards=True, where slots mean the same in all decisions.",
        float(np.log(size)),
    )


def _feature(data: Predicted, feature: np.ndarray, name: str) -> Iterator[Finding]:
    """What one feature (decision, option) leaves unexplained: far values, changes over time, and its square."""
    level = feature[data.legal]
    middle, scale = np.median(level), np.median(np.abs(level - np.median(level))) / ndtri(0.75)
    scale = scale if scale > 0 else np.std(level)
    if not scale > 0:
        return
    x = np.where(data.legal, (feature - middle) / scale, 0.0)
    if not (np.abs(data.about_mean(x)) > ROUNDING * np.abs(x))[data.legal].any():
        return  # it is of decisions, and of no option
    sums = _sums(data, x)
    far: np.ndarray = np.any(np.abs(x) > FAR, axis=1)
    z = abs(sums.z(~far)) / LEAST_Z
    if z > 1 and 0 < far.mean() <= MOST_FAR and abs(sums.utility(data.weight, ~far)) > LEAST_CHANGE:
        yield Finding(
            "outliers",
            Level.WARNING,
            f"{far.sum()} decisions with values of {name} over {FAR:g} standard deviations away hold its value back: "
            "the others contradict it.",
            "Look at them for errors, correct or leave them out, and fit again.",
            float(np.log(z)),
        )
        return
    found = max(_drift(sums, data.weight, count) for count in BLOCKS)
    if found[0] > 1:
        yield Finding(
            "drift",
            Level.CAUTION,
            f"The value of {name} varies over the decisions, by {found[1]:.2f} of utility per standard deviation.",
            "Fit the first and the second half on their own, or give subjects if several people decide.",
            float(np.log(found[0])),
        )
    square = np.where(data.legal, np.minimum(x**2, FAR**2), 0.0)
    bent = _sums(data, square, fitted=True)
    z = abs(bent.z()) / LEAST_Z
    if z > 1 and abs(bend := bent.utility(data.weight)) > LEAST_BEND:
        yield Finding(
            "nonlinear",
            Level.CAUTION,
            f"The utility is not linear in {name}: its square is worth {bend:+.2f} per standard deviation.",
            "Add its square or its logarithm as a feature.",
            float(np.log(z)),
        )


def _drift(sums: Sums, weight: np.ndarray, count: int) -> tuple[float, float]:
    """How far values of blocks of decisions differ beyond chance (above 1: a finding), and their spread in utility."""
    variance, total = sums.variance, sums.variance.sum()
    if not total > 0 or total**2 < count * LEAST_DECISIONS * (variance**2).sum():
        return 0.0, 0.0
    block = np.minimum(np.cumsum(variance) / total * count, count - 1).astype(int)
    seen, expected = np.bincount(block, sums.beyond, count), np.bincount(block, variance, count)
    if not (expected > 0).all():
        return 0.0, 0.0
    change = seen / expected - seen.sum() / total
    statistic = float((expected * change**2).sum())
    spread = float(np.sqrt(max(statistic - (count - 1), 0) / weight.sum()))
    return (statistic / float(chdtri(count - 1, CHANCE)) if spread > LEAST_CHANGE else 0.0), spread


def of_prior(
    draws: Float[np.ndarray, "draw parameter"],
    deviation: Float[np.ndarray, "parameter"],
    names: Sequence[str],
) -> Iterator[Finding]:
    """Whether normal priors about zero decide the answer; the posterior is taken as the normal of these moments.

    Parameters
    ----------
    deviation : of the priors.
    """
    if len(np.unique(draws, axis=0)) <= draws.shape[1]:
        return  # their covariance is singular
    covariance = np.atleast_2d(np.cov(draws.T))
    shift = shifts_of_normal(draws.mean(0), covariance, deviation)
    learned = np.sqrt(np.diagonal(covariance)) / deviation
    kept = [
        f"{names[at]} ({learned[at]:.2f})"
        for at in np.flatnonzero((learned > LEAST_LEARNED) & (shift <= LEAST_SHIFT)).tolist()
    ]
    if kept:
        yield Finding(
            "prior",
            Level.CAUTION,
            f"The decisions say next to nothing of {', '.join(kept)}: ratios of posterior and prior deviations.",
            "Scale the feature so that it differs by about 1 between options, or leave it out.",
            float(len(kept) / len(names)),
        )
    yield from of_shifts(
        shift, names, "Give a wider prior (kappa), or say in the report how the answer depends on it."
    )
