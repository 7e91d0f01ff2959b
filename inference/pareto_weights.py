"""Importance weights whose largest are smoothed by a Pareto distribution, and draws resampled by them.

Vehtari, Simpson, Gelman, Yao, Gabry (2024), "Pareto smoothed importance sampling".
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

__all__ = ["smoothed_weights", "systematic_resample"]

LEAST_TAIL = 5
"""Weights that a Pareto distribution is fitted to."""


def smoothed_weights(log_ratios: np.ndarray) -> tuple[np.ndarray, float]:
    """Log weights (draw,) with the largest smoothed, and the k of the generalised Pareto distribution of these.

    Vehtari and others (2024), algorithm 1. The k is infinite where too few ratios differ.
    """
    count = len(log_ratios)
    num_tail = math.ceil(min(count / 5, 3 * math.sqrt(count)))
    order = np.argsort(log_ratios, kind="stable")
    tail, top = order[-num_tail:], log_ratios.max()
    if num_tail < LEAST_TAIL or not np.isfinite(log_ratios[order[-num_tail - 1 :]]).all():
        return log_ratios, math.inf
    cutoff = np.exp(log_ratios[order[-num_tail - 1]] - top)
    excess = np.exp(log_ratios[tail] - top) - cutoff
    if not excess[0] > np.finfo(float).eps:
        return (log_ratios, -math.inf) if excess[-1] <= 1e-10 else (log_ratios, math.inf)
    k, scale = _pareto_fit(excess)
    share = (np.arange(num_tail) + 0.5) / num_tail
    quantiles = -scale * np.log1p(-share) if abs(k) < 1e-12 else scale * np.expm1(-k * np.log1p(-share)) / k
    smoothed = log_ratios.copy()
    smoothed[tail] = np.minimum(np.log(cutoff + quantiles), 0) + top
    return smoothed, k


def _pareto_fit(excess: np.ndarray) -> tuple[float, float]:
    """Shape k and scale of a generalised Pareto distribution of ascending numbers above zero.

    Zhang and Stephens (2009), "A new and efficient estimation method for the generalized Pareto distribution", with a
    prior of k about 1/2 that counts as ten numbers.
    """
    count = len(excess)
    number = 30 + int(math.sqrt(count))
    grid = (1 - np.sqrt(number / (np.arange(number) + 0.5))) / (
        3 * excess[int(count / 4 + 0.5) - 1]
    ) + 1 / excess[-1]
    shapes = np.log1p(-grid[:, None] * excess).mean(1)
    heights = count * (np.log(-grid / shapes) - shapes - 1)
    weights = np.exp(heights - heights.max())
    place = (grid * weights).sum() / weights.sum()
    shape = np.log1p(-place * excess).mean()
    return float((count * shape + 5) / (count + 10)), float(-shape / place)


def systematic_resample(rng: Any, log_weights: np.ndarray) -> np.ndarray:
    """Ascending indices of as many draws, each as often as its weight says, up to one."""
    count = len(log_weights)
    weights = np.exp(log_weights - log_weights.max())
    ends = np.cumsum(weights) / weights.sum()
    return np.minimum(np.searchsorted(ends, (np.arange(count) + rng.uniform()) / count), count - 1)
