"""Fits of noisy MDPs: what options are worth, and which is chosen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ethogram.fits.systems import System, log_likelihood_of
from ethogram.inference.choices import predict_choice_probabilities, summarize_choices
from ethogram.models.choices import Decisions
from ethogram.models.choices.decisions import weights_of
from ethogram.plots import choices as plots

__all__ = ["ChoiceFits"]


class ChoiceFits(System):
    """Fits of a `NoisyMDP`."""

    def predict(self, fit: Any, data: Decisions, settings: Mapping[str, int]) -> Any:
        return predict_choice_probabilities(None, fit.model, fit.result.sites, data)

    def log_densities(self, fit: Any, data: Decisions, num_draws: int) -> tuple[np.ndarray, np.ndarray]:
        counts = np.asarray(weights_of(data, known=True), float)
        return log_likelihood_of(fit, data, num_draws), counts[counts > 0]

    def draw(self, fit: Any, figure: Any) -> None:
        axes = figure.subplots()
        parts = fit.model.parts(np.asarray(fit.result.sites["theta"]), fit.data)
        names = summarize_choices(fit.model, fit.result.sites, fit.data).names
        values = np.concatenate(
            [np.asarray(each).reshape(*each.shape[:2], -1) for each in parts.values()], -1
        )
        plots.value_marginals(values, axes, names=names)
        axes.set_title("posterior of the values")
