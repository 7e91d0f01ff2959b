"""Fits of noisy MDPs: what options are worth, and which is chosen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.special import logsumexp

from ethogram.fits.estimates import entries_of
from ethogram.fits.systems import System, log_likelihood_of
from ethogram.inference.choices import predict_choice_probabilities
from ethogram.models.choices import Decisions
from ethogram.models.choices.decisions import check_decisions, weights_of
from ethogram.plots import choices as plots

__all__ = ["ChoiceFits"]


class ChoiceFits(System):
    """Fits of a `NoisyMDP`."""

    def predict(self, fit: Any, data: Decisions, settings: Mapping[str, int]) -> Any:
        _require_parameters(fit, data)
        return predict_choice_probabilities(None, fit.model, fit.result.sites, data)

    def log_densities(self, fit: Any, data: Decisions, num_draws: int) -> tuple[np.ndarray, np.ndarray]:
        _require_parameters(fit, data)
        counts = np.asarray(weights_of(data, known=True), float)
        values = log_likelihood_of(fit, data, num_draws, counts)
        return (counts * (logsumexp(values, axis=0) - np.log(len(values))))[None], counts

    def draw(self, fit: Any, figure: Any) -> None:
        names, values = entries_of(fit)
        plots.value_marginals(values, figure.subplots(), names=names)


def _require_parameters(fit: Any, data: Decisions) -> None:
    """Raise ValueError unless decisions have the features, slots and subjects of those of the fit."""
    model, needed = fit.model, fit.result.sites["theta"].shape[2:]
    subjects = () if data.subject is None else (data.num_subjects,)
    found = (*subjects, sum(model.sizes(check_decisions(data))))
    if len(found) != len(needed) or found[-1] != needed[-1] or (subjects and found[0] > needed[0]):
        raise ValueError(
            f"data need parameters of shape {found}, and those of the fit have {needed}, one a subject, if there are "
            "any, by feature and slot: give decisions with the features, slots and subjects of the fit"
        )
