"""The algorithms that fit latent classes of choosers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from jax import Array

from ethogram.fits.choice_methods import choose_of_choices
from ethogram.fits.methods import (
    DEFAULTS,
    LAPLACE,
    NUTS,
    Method,
    Methods,
    aligned,
    at_least,
    chains_of,
    without_bar,
)
from ethogram.inference.sampled_posterior import SampledPosterior

__all__ = ["class_methods"]


def class_methods(model: Any, data: Any) -> Methods:
    """Methods of `LatentClasses`."""
    restarts = {"restarts": at_least(1)}
    by_name = {
        "laplace": Method(_laplace_of_classes, LAPLACE | restarts),
        "nuts": Method(_nuts_of_classes, NUTS | restarts),
    }
    return Methods(by_name, "laplace", "", partial(choose_of_choices, by_name))


def _laplace_of_classes(key: Array, model: Any, data: Any, settings: Mapping[str, Any]) -> Any:
    from ethogram.inference.choices.latent_class_fit import laplace_classes

    return laplace_classes(key, model, data, **without_bar(settings))


def _nuts_of_classes(key: Array, model: Any, data: Any, settings: Mapping[str, Any]) -> SampledPosterior:
    """Chains that start at the best mode, with the labels of each draw matched to those of the highest."""
    from ethogram.inference.choices.latent_class_fit import RESTARTS, starts_of_chains

    problem = model.check(data)
    kernel = {**DEFAULTS, "dense_mass": True, **settings}
    starts, mass, unit = starts_of_chains(
        key, model, problem, kernel["num_chains"], kernel.pop("restarts", RESTARTS)
    )
    if kernel["dense_mass"] is True:
        kernel = {"inverse_mass_matrix": {tuple(starts): mass}, **kernel}
    problem = problem._replace(pooled=problem.pooled._replace(unit=unit))
    found = chains_of(key, model, problem, kernel, starts=starts)
    kept = {name: site for name, site in found.sites.items() if not name.endswith(("_scaled", "_free"))}
    found = SampledPosterior(model, kept, found.statistics)
    return aligned(found, data) if model.switches_labels() else found
