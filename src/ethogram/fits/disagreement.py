"""Where two sets of draws of one posterior disagree beyond their Monte Carlo error.

The standard error of a mean is sd / sqrt(n), with n the effective sample size; that of the log of a standard deviation
is that of the mean of the squared deviations, with an effective sample size of their own, over 2 sd^2, which for normal
draws is 1 / sqrt(2 n), and more for heavy tails: Vehtari, Gelman, Simpson, Carpenter, Bürkner (2021),
"Rank-normalization, folding, and localization".
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ethogram.inference.convergence import convergence

__all__ = ["Moments", "disagreements", "moments"]

ERRORS = 4.0
"""Standard errors of a difference beyond which it is one: by chance, 6 of 100 000 estimates."""
LEAST_SHIFT, LEAST_RATIO = 0.1, 0.1
"""Smallest differences reported: of means, in posterior standard deviations, and of the logs of these."""


class Moments(NamedTuple):
    """Moments of every entry of a fit, the effective samples behind them, and the standard error of the log of `sd`."""

    mean: Float[np.ndarray, " entry"]
    sd: Float[np.ndarray, " entry"]
    ess: Float[np.ndarray, " entry"]
    log_sd_error: Float[np.ndarray, " entry"]

    @property
    def single(self) -> bool:
        """Whether all draws are one answer, without a spread."""
        return not (self.sd > 0).any()


def moments(draws: np.ndarray, sampled: bool) -> Moments:
    """Moments of draws (chain, draw, entry), of a sampler or independent: of these every one is effective."""
    flat = draws.reshape(-1, draws.shape[-1])
    mean, constant = flat.mean(0), np.ptp(flat, axis=0) == 0
    squares = np.where(constant, 0.0, (draws - mean) ** 2)
    variance = squares.mean((0, 1)) * len(flat) / max(len(flat) - 1, 1)

    def effective(values: np.ndarray) -> np.ndarray:
        return np.maximum(convergence(values).ess, 1.0) if sampled else np.full(len(mean), float(len(flat)))

    with np.errstate(divide="ignore", invalid="ignore"):
        error = squares.std((0, 1)) / (2 * variance * np.sqrt(effective(squares)))
    return Moments(mean, np.sqrt(variance), effective(draws), np.where(constant, 0.0, error))


def disagreements(one: Moments, other: Moments) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Shift of the means in standard deviations, ratio of these, and whether either is beyond Monte Carlo error.

    All of one entry each (entry,); the shift is by the larger standard deviation, and 0 where both are 0. Spreads are
    compared where both fits have one: a mode has none.
    """
    scale = np.maximum(one.sd, other.sd)
    known = scale > 0
    with np.errstate(divide="ignore", invalid="ignore"):
        shift = np.where(known, (one.mean - other.mean) / scale, 0.0)
        error = np.sqrt(one.sd**2 / one.ess + other.sd**2 / other.ess) / scale
        ratio = np.where(known, one.sd / other.sd, 1.0)
        spread = np.abs(np.log(ratio)) / np.hypot(one.log_sd_error, other.log_sd_error)
        far = (np.abs(shift) > ERRORS * error) & (np.abs(shift) > LEAST_SHIFT)
        both = (one.sd > 0) & (other.sd > 0)
        wide = both & (spread > ERRORS) & (np.abs(np.log(ratio)) > LEAST_RATIO)
    return shift, ratio, known & (far | wide)
