"""Predictive densities of data under the draws of a fit, entry by entry."""

from __future__ import annotations

from typing import Any

import numpy as np

from ethogram.inference.export import to_arviz
from ethogram.models.conjugate_model import check_data, steps_by_entry
from ethogram.models.data import Trajectories

__all__ = ["log_densities", "log_likelihood"]


def log_densities(fit: Any, data: Any, num_draws: int) -> tuple[np.ndarray, np.ndarray]:
    """Log densities (draw, entry) of the entries of data, and the steps or decisions (entry,) of each."""
    if not isinstance(data, Trajectories):
        values = log_likelihood(fit, data, num_draws)
        return values, np.ones(values.shape[1])
    check_data(fit.model, data)
    steps = steps_by_entry(fit.model, data).astype(float)
    return log_likelihood(fit, data, num_draws, steps), steps


def log_likelihood(fit: Any, data: Any, num_draws: int, counts: np.ndarray | None = None) -> np.ndarray:
    """Log likelihoods (draw, entry), one entry per sequence, group or decision.

    Parameters
    ----------
    counts : (entry,), what each counts; the export leaves those of 0 out, whose log likelihoods are 0 here. None: all
        entries are those of the export.
    """
    if not fit.has_draws:
        raise TypeError(f"a fit by {fit.method!r} is one answer, without draws: it has no predictive density")
    tree = to_arviz(
        fit.result, data, key=fit._key, num_draws=num_draws, log_likelihood="sequence", progress_bar=False
    )
    (values,) = (np.asarray(each) for each in tree.log_likelihood.data_vars.values())
    known = values.reshape(values.shape[0] * values.shape[1], *values.shape[2:]).astype(float)
    if counts is None:
        return known
    every = np.zeros((len(known), len(counts)))
    every[:, counts > 0] = known
    return every
