"""Findings of pseudo-residuals, which are standard normal and independent where the model is true.

Zucchini, MacDonald, Langrock (2016), "Hidden Markov models for time series", chapter 6. A finding needs two things: a
statistic that chance hardly ever reaches, and an effect that is large enough to matter.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Float
from scipy.special import chdtrc, chdtri, ndtr, pdtrc

from ethogram.inference.diagnostics.finding import CHANCE, LEAST_Z, Finding, Level

__all__ = ["of_residuals"]

FAR = 4.0
"""Residuals beyond are far: 6 of 100 000 values."""
MOST_FAR = 0.03
"""Share of the values up to which far ones are outliers."""

LEAST_KURTOSIS, LEAST_SKEW = 0.5, 0.25
LEAST_SHIFT = 0.15
"""Least shift of means that matters, in standard deviations of a residual."""
LEAST_CORRELATION = 0.1

LEAST_VALUES = 30
"""Values of a sequence or half sequence from which on its mean is compared."""


def of_residuals(
    residuals: Float[np.ndarray, "sequence time feature"], names: Sequence[str]
) -> Iterator[Finding]:
    """Findings of tails, outliers, drift and dependence, feature by feature.

    Parameters
    ----------
    residuals : NaN where a value is missing.
    names : of the features.
    """
    for number, name in enumerate(names):
        x = residuals[..., number]
        if np.isfinite(x).sum() >= 2 * LEAST_VALUES:
            yield from _far(x, name)
            yield from _shape(x, name)
            yield from _drift(x, name)
            yield from _dependence(x, name)


def _far(x: np.ndarray, name: str) -> Iterator[Finding]:
    values = x[np.isfinite(x)]
    count, expected = int((np.abs(values) > FAR).sum()), len(values) * 2 * ndtr(-FAR)
    share = count / len(values)
    if count < 3 or pdtrc(count - 1, expected) > CHANCE:
        return
    outliers = share <= MOST_FAR
    yield Finding(
        "outliers" if outliers else "tails",
        Level.WARNING if outliers else Level.CAUTION,
        f"{count} of {len(values)} values of {name} ({100 * share:.3g} %) lie more than {FAR:g} standard deviations "
        f"from what is forecast, where {expected:.2g} are expected.",
        "Look at them, and mark errors of the device as missing; where they are real, allow one state more for them.",
        float(np.log(count / expected)),
    )


def _shape(x: np.ndarray, name: str) -> Iterator[Finding]:
    values = x[np.isfinite(x)]
    values = (values - values.mean()) / values.std()
    values = values[np.abs(values) <= FAR]  # outliers have a finding of their own
    skew, kurtosis = np.mean(values**3), np.mean(values**4) / np.mean(values**2) ** 2 - 3
    errors = np.sqrt([6 / len(values), 24 / len(values)])
    beyond = [
        (abs(skew) / max(LEAST_SKEW, LEAST_Z * errors[0]), f"a skewness of {skew:.2f}"),
        (abs(kurtosis) / max(LEAST_KURTOSIS, LEAST_Z * errors[1]), f"an excess kurtosis of {kurtosis:.2f}"),
    ]
    size, words = max(beyond)
    if size > 1:
        yield Finding(
            "emission",
            Level.CAUTION,
            f"Residuals of {name} have {words}, where the model says 0: within a state the feature has another "
            "distribution.",
            "Transform it (a logarithm, a difference), choose another emission, or allow more states.",
            float(np.log(size)),
        )


def _drift(x: np.ndarray, name: str) -> Iterator[Finding]:
    """Means of sequences, and of first and second halves, that differ by more than chance."""
    middle = np.isfinite(x).sum(1)[:, None] / 2 >= np.cumsum(np.isfinite(x), axis=1)
    halves = [np.where(part, x, np.nan) for part in (middle, ~middle)]
    counts = [np.isfinite(half).sum(1) for half in halves]
    long = (counts[0] >= LEAST_VALUES / 2) & (counts[1] >= LEAST_VALUES / 2)
    if long.any():
        means = [np.nanmean(half[long], axis=1) for half in halves]
        weight = 1 / (1 / counts[0][long] + 1 / counts[1][long])
        shift = float(np.sum(weight * (means[1] - means[0])) / weight.sum())
        z = abs(shift) * np.sqrt(weight.sum())
        if z > LEAST_Z and abs(shift) > LEAST_SHIFT:
            yield Finding(
                "drift",
                Level.CAUTION,
                f"From the first to the second half of the sequences {name} shifts by {shift:.2f} standard deviations "
                "of its forecasts.",
                "Remove the trend, or fit the halves on their own and compare them.",
                float(np.log(z / LEAST_Z)),
            )
    count = np.isfinite(x).sum(1)
    enough = count >= LEAST_VALUES
    if enough.sum() >= 3:
        mean = np.nansum(x[enough], axis=1) / count[enough]
        mean = mean - np.average(mean, weights=count[enough])
        statistic, freedom = float(np.sum(count[enough] * mean**2)), int(enough.sum()) - 1
        variance = np.average(mean**2, weights=count[enough]) - freedom / count[enough].sum()
        if chdtrc(freedom, statistic) < CHANCE and variance > LEAST_SHIFT**2:
            yield Finding(
                "drift",
                Level.CAUTION,
                f"Means of {name} differ between sequences by {np.sqrt(variance):.2f} standard deviations of its "
                "forecasts.",
                "Centre every sequence, or fit the groups that differ on their own.",
                float(np.log(statistic / chdtri(freedom, CHANCE))),
            )


def _dependence(x: np.ndarray, name: str) -> Iterator[Finding]:
    before, after = x[:, :-1], x[:, 1:]
    both = np.isfinite(before) & np.isfinite(after)
    if both.sum() < 2 * LEAST_VALUES:
        return
    correlation = float(np.corrcoef(before[both], after[both])[0, 1])
    z = abs(correlation) * np.sqrt(both.sum())
    if z > LEAST_Z and abs(correlation) > LEAST_CORRELATION:
        yield Finding(
            "number of states",
            Level.CAUTION,
            f"Forecast errors of {name} follow one another with a correlation of {correlation:.2f}, where the model "
            "says 0: something that lasts has no state.",
            "Allow more states, or an emission that depends on the frame before.",
            float(np.log(z / LEAST_Z)),
        )
