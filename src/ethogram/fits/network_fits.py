"""Answers to marginal MAP queries as fits: the assignment, its bounds, and the incumbents over time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ethogram.fits.systems import System
from ethogram.plots import networks as plots

__all__ = ["NetworkFits"]


class NetworkFits(System):
    """Answers to a `MarginalMAP` query."""

    has_posterior = False

    def predict(self, fit: Any, data: Any, settings: Mapping[str, int]) -> dict[str, Any] | None:
        return fit.result.assignment

    def log_densities(self, fit: Any, data: Any, num_draws: int) -> tuple[np.ndarray, np.ndarray]:
        raise TypeError("an assignment has no predictive density: read fit.result.log_probability")

    def draw(self, fit: Any, figure: Any) -> None:
        axes, found = figure.subplots(), fit.result
        plots.anytime_curves({fit.method: found.trace}, axes, until=max(found.seconds, 1e-3))
        if np.isfinite(found.upper_bound):
            axes.axhline(found.upper_bound, color="0.3", linestyle=":", label="upper bound")
        axes.legend(loc="lower right")
        axes.set_title("incumbents" + (", proved optimal" if found.proved_optimal else ""))

    def exported(self, fit: Any) -> Any:
        return answers_dataset({fit.method: fit.result})


def answers_dataset(results: dict[str, Any]) -> Any:
    """An xarray Dataset of answers: states and names (method, variable), log probabilities and bounds (method)."""
    import xarray

    names = next((list(each.assignment) for each in results.values() if each.assignment is not None), [])
    none = np.full(len(names), -1)
    states = np.stack([none if each.states is None else np.asarray(each.states) for each in results.values()])
    variables: dict[str, Any] = {"states": (("method", "variable"), states)}
    for field in ("log_probability", "upper_bound", "lower_bound", "seconds"):
        variables[field] = "method", np.array([float(getattr(each, field)) for each in results.values()])
    variables["proved_optimal"] = "method", np.array([each.proved_optimal for each in results.values()])
    variables["kind"] = "method", np.array([each.kind for each in results.values()])
    return xarray.Dataset(variables, coords={"method": list(results), "variable": names})
