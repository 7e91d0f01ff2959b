"""Draws of Laplace's approximation that were weighted by the joint density, with what the weights say of them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from jax import Array

from ethogram.inference.draws import Draws, FitStatistics
from ethogram.inference.sampled_posterior import SampledPosterior
from ethogram.models.model_object import model_object

__all__ = ["USABLE_K", "LaplacePosterior"]

USABLE_K = 0.7
"""Pareto k up to which estimates by the weights are right (Vehtari and others 2024, section 3.3)."""


@model_object
class LaplacePosterior(SampledPosterior):
    """Draws from Laplace's approximation, resampled by their weights.

    Attributes
    ----------
    mode : the expansion's place, by site.
    covariance : (parameter, parameter) of theta at the mode; (subject, parameter, parameter) given loc and kappa.
    pareto_k : of the weights: below .5 they have a variance, above .7 the draws are not those of the posterior.
    log_evidence : ln p(choices), from the mean weight; NaN under a flat prior.
    restart_heights : (restart,) log joint densities that several starts reached; None where there is one.
    """

    mode: Any = None
    covariance: Any = None
    pareto_k: float = math.nan
    log_evidence: float = math.nan
    restart_heights: Any = None

    def draws_for_export(self, key: Array, num_draws: int) -> Draws:
        """All draws, with the Pareto k of their weights."""
        found = super().draws_for_export(key, num_draws)
        names = ("pareto_k", "log_evidence")
        statistics: FitStatistics = {name: ((), np.asarray(getattr(self, name))) for name in names}
        return found._replace(fit=statistics)
