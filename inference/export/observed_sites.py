"""What any numpyro model says of its observed sites at many draws, by numpyro's own means.

For models that are not asked more directly, by :mod:`ethogram.inference.export.pointwise`. The model is called as
``model(data)``, and ``model(data, condition=False)`` for new data.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np
import numpyro.handlers
from jax import Array
from numpyro.infer import Predictive
from numpyro.infer.util import log_likelihood

__all__ = ["ObservedSite", "observed_sites", "site_log_likelihood", "site_predictive"]


class ObservedSite(NamedTuple):
    """Value of an observed site, and the plates that its log probabilities stand in, outermost first."""

    value: np.ndarray
    plates: tuple[str, ...]


def observed_sites(model: Any, draws: dict[str, Any], data: Any) -> dict[str, ObservedSite]:
    """Observed sites of a model by name.

    Raises
    ------
    ValueError
        If there is none, or the model has latent sites of which there are no draws.
    """
    first = {name: draw[0] for name, draw in draws.items()}
    seeded = numpyro.handlers.substitute(numpyro.handlers.seed(model, jax.random.key(0)), first)
    trace = numpyro.handlers.trace(seeded).get_trace(data)
    sites = {name: site for name, site in trace.items() if site["type"] == "sample"}
    drawn = [name for name, site in sites.items() if not site["is_observed"] and name not in draws]
    if drawn:
        raise ValueError(
            f"result has no draws of {', '.join(drawn)}, latent sites of the model: give its own model"
        )
    observed = {name: site for name, site in sites.items() if site["is_observed"]}
    if not observed:
        raise ValueError("model observes nothing: give log_likelihood=None and posterior_predictive=False")
    return {name: ObservedSite(np.asarray(site["value"]), _plates(site)) for name, site in observed.items()}


def site_log_likelihood(model: Any, draws: dict[str, Any], data: Any) -> dict[str, np.ndarray]:
    """Log likelihood (draw, ...) of every observed site, an entry for each of its batch."""
    scores = log_likelihood(model, draws, data)
    return {name: np.asarray(score) for name, score in scores.items()}


def site_predictive(
    key: Array, model: Any, draws: dict[str, Any], data: Any, names: list[str]
) -> dict[str, np.ndarray]:
    """New values (draw, ...) of the observed sites `names`."""
    new = Predictive(model, draws, return_sites=names)(key, data, condition=False)
    return {name: np.asarray(value) for name, value in new.items()}


def _plates(site: dict[str, Any]) -> tuple[str, ...]:
    frames = sorted(site["cond_indep_stack"], key=lambda frame: frame.dim)
    return tuple(frame.name for frame in frames)
