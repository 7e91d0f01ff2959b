"""Where two sets of draws of one posterior disagree beyond their Monte Carlo error.

Standard errors of a mean and of a standard deviation, sd / sqrt(n) and sd / sqrt(2 n), with n the effective sample
size: Vehtari, Gelman, Simpson, Carpenter, Bürkner (2021), "Rank-normalization, folding, and localization".
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

__all__ = ["Moments", "disagreements", "moments"]

ERRORS = 4.0
"""Standard errors of a difference beyond which it is one: by chance, 6 of 100 000 estimates."""
LEAST_SHIFT, LEAST_RATIO = 0.1, 0.1
"""Differences that are told, in posterior standard deviations, and in the log of the ratio of these."""


class Moments(NamedTuple):
    """Moments of every entry of a fit, and the effective samples behind them."""

    mean: Float[np.ndarray, " entry"]
    sd: Float[np.ndarray, " entry"]
    ess: Float[np.ndarray, " entry"]


def moments(draws: np.ndarray, ess: np.ndarray | None) -> Moments:
    """Moments of draws (chain, draw, entry); of independent draws every one is effective."""
    flat = draws.reshape(-1, draws.shape[-1])
    effective = np.full(flat.shape[1], float(len(flat))) if ess is None else np.maximum(ess, 1.0)
    return Moments(flat.mean(0), flat.std(0, ddof=1), effective)


def disagreements(one: Moments, other: Moments) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Shift of the means in standard deviations, ratio of these, and whether either is beyond Monte Carlo error.

    All of one entry each (entry,); the shift is by the larger standard deviation, and 0 where both are 0.
    """
    scale = np.maximum(one.sd, other.sd)
    known = scale > 0
    with np.errstate(divide="ignore", invalid="ignore"):
        shift = np.where(known, (one.mean - other.mean) / scale, 0.0)
        error = np.sqrt(one.sd**2 / one.ess + other.sd**2 / other.ess) / scale
        ratio = np.where(known, one.sd / other.sd, 1.0)
        spread = np.abs(np.log(ratio)) / np.sqrt(0.5 / one.ess + 0.5 / other.ess)
        far = (np.abs(shift) > ERRORS * error) & (np.abs(shift) > LEAST_SHIFT)
        wide = (spread > ERRORS) & (np.abs(np.log(ratio)) > LEAST_RATIO)
    return shift, ratio, known & (far | wide)
