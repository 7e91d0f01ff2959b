"""Methods of models of choices, and which of them ``"auto"`` takes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from jax import Array
from numpyro.diagnostics import effective_sample_size
from numpyro.distributions import Distribution

from ethogram.fits.methods import (
    DEFAULTS,
    LAPLACE,
    NUTS,
    PXDA,
    Method,
    Methods,
    chains_of,
    read_settings,
    without_bar,
)
from ethogram.inference.convergence import LEAST_ESS
from ethogram.inference.sampled_posterior import SampledPosterior
from ethogram.models.arguments import require_flag, warn_user
from ethogram.models.held_warnings import held_warnings

__all__ = ["choice_methods", "choose_of_choices"]

LARGEST_K = 0.5
"""Pareto k below which the weights of draws have a variance, and ``"auto"`` takes Laplace of choices."""
LEAST_SHARE = 0.1
"""Least share of effective draws with which ``"auto"`` takes it: a summary needs 100, here of 1000."""
OF_SUBJECTS = ("theta", "v", "action_rewards")
"""Sites with values of every subject, of which there may be thousands: means and variances tell whether chains mix."""
SHORT_WARMUP, SHALLOW = 100, 4
"""Iterations for the step alone, and depth of trees with these masses: seven steps cross a Gaussian, and where all
directions are alike some steps never make the U-turn that ends a tree."""


def choice_methods(model: Any, data: Any) -> Methods:
    """Methods of a `NoisyMDP`."""
    by_name = {
        "laplace": Method(_laplace_of_choices, LAPLACE),
        "nuts": Method(_nuts_of_choices, NUTS | {"centred": require_flag}),
        "px-da": Method(_px_da, PXDA),
    }
    return Methods(by_name, "laplace", "", partial(choose_of_choices, by_name))


def choose_of_choices(
    by_name: dict[str, Method], key: Array, model: Any, data: Any, settings: Mapping[str, Any]
) -> tuple[str, str, Any]:
    """Laplace's approximation where its weights have a variance; elsewhere PX-DA, where it is fast and its draws are
    enough for a summary; else NUTS, as where its settings are given.
    """
    from ethogram.inference.choices.laplace import refusal

    read_settings("auto", settings, by_name["nuts"].settings)
    known = by_name["laplace"].settings
    foreign, reason = [name for name in settings if name not in known], refusal(model)
    if foreign:
        reason = f"Laplace's approximation takes no setting {', '.join(foreign)}"
    elif not reason:
        read_settings("laplace", settings, known)
        with held_warnings() as notes:
            try:
                result = by_name["laplace"].run(key, model, data, settings)
            except RuntimeError as error:
                result, reason = None, f"Laplace's approximation failed: {error}"
        if result is not None:
            reason = f"the Pareto k of Laplace's approximation is {result.pareto_k:.2f}, "
            if not result.pareto_k < LARGEST_K:
                reason = f"{reason}not below {LARGEST_K}"
            elif result.ess < LEAST_SHARE * result.sites["theta"].shape[1]:
                reason = f"{reason}but its draws have an ESS of {result.ess:.0f}"
            else:
                for note in notes:
                    warn_user(note)
                return "laplace", f"{reason}below {LARGEST_K}", result
    if "px-da" in by_name and _is_fast_by_px_da(model, data) and not {*settings} - {*PXDA}:
        result = by_name["px-da"].run(key, model, data, settings)
        population = [
            x for name, x in result.sites.items() if name not in OF_SUBJECTS or data.subject is None
        ]
        # By numpyro: ArviZ takes as long as the sweeps.
        several = all(x.shape[1] > 3 for x in population)
        ess = min(np.nanmin(effective_sample_size(x), initial=np.inf) for x in population) if several else 0.0
        if isinstance(model.nu, Distribution) or ess > LEAST_ESS:
            return "px-da", reason, result
        reason = f"{reason}; the draws of PX-DA have a smallest ESS of {ess:.0f}"
    return "nuts", reason, by_name["nuts"].run(key, model, data, settings)


def _is_fast_by_px_da(model: Any, data: Any) -> bool:
    """Whether PX-DA takes the model, and less time: of subjects, a prior of nu, a covariance that NUTS simulates."""
    noise = model.choice_noise()
    if noise.no_augmentation or any(law != "normal" for _, law in model.random or ()):
        return False
    if data.weight is not None:  # it repeats decisions, by integers
        return False
    if data.subject is not None:
        return model.noise == "normal" and model.lapse is None
    simulated = noise.refined(data.legal.shape[1]) is not None
    return not isinstance(model.kappa, Distribution) and (simulated or isinstance(model.nu, Distribution))


def _laplace_of_choices(key: Array, model: Any, data: Any, settings: Mapping[str, Any]) -> Any:
    from ethogram.inference.choices.laplace import laplace_choices

    return laplace_choices(key, model, data, **without_bar(settings))


def _nuts_of_choices(key: Array, model: Any, data: Any, settings: Mapping[str, Any]) -> SampledPosterior:
    from ethogram.inference.choices.choice_expansion import units
    from ethogram.models.choices.choice_problem import padded
    from ethogram.models.choices.subject_values import subject_values

    problem = model.check(data)
    model.warn_of_separation(problem)
    model.warn_of_prior(problem)
    several = problem.data.subject is not None  # a dense matrix of many subjects cannot be estimated
    kernel, starts = {"dense_mass": not several, "centred": False, **settings}, None
    non_centred = (subject_values(model, problem.data).site,) if not kernel.pop("centred") and several else ()
    # Starts and masses that a caller gives are those of theta and loc themselves.
    given = kernel.keys() & {"init_strategy", "inverse_mass_matrix"}
    if not given and not isinstance(kernel["dense_mass"], list):
        unit = units(problem)
        problem = problem._replace(unit=unit)
        alone = not (several or isinstance(model.kappa, Distribution) or len(model.needed_sites()) > 1)
        if alone and settings.get("adapt_mass_matrix", True):
            starts, mass = _starts_of_choices(key, model, problem, kernel)
            kernel = mass | kernel
    found = chains_of(key, model, padded(problem), kernel, non_centred, starts)
    sites = {name: site for name, site in found.sites.items() if not name.endswith(("_scaled", "_normal"))}
    return SampledPosterior(model, sites, found.statistics)


def _starts_of_choices(
    key: Array, model: Any, problem: Any, settings: Mapping[str, Any]
) -> tuple[dict[str, np.ndarray] | None, dict[str, Any]]:
    """Starts and masses of Laplace's approximation, for a warm-up that finds the step alone; nothing where it fails."""
    from ethogram.inference.choices.laplace import laplace_choices
    from ethogram.inference.laplace_posterior import USABLE_K

    num_chains = settings.get("num_chains", DEFAULTS["num_chains"])
    with held_warnings():
        try:
            found = laplace_choices(key, model, problem)
        except RuntimeError:
            return None, {}
    if found.pareto_k > USABLE_K:
        return None, {}
    rows = np.linspace(0, found.sites["theta"].shape[1] - 1, num_chains).round().astype(int)
    covariance = found.covariance / np.outer(problem.unit, problem.unit)
    mass = covariance if settings["dense_mass"] else np.diag(covariance)
    return {"theta_scaled": found.sites["theta"][0, rows] / problem.unit}, {
        "inverse_mass_matrix": {("theta_scaled",): mass},
        "adapt_mass_matrix": False,
        "num_warmup": SHORT_WARMUP,
        "max_tree_depth": SHALLOW,
    }


def _px_da(key: Array, model: Any, data: Any, settings: Mapping[str, Any]) -> Any:
    from ethogram.inference.choices.px_da_chains import sample_px_da

    return sample_px_da(key, model, data, **{**DEFAULTS, "num_samples": 2000, **settings})
