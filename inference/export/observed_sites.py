"""Observed sites of a numpyro model without the hooks of :mod:`ethogram.inference.export.pointwise`."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.handlers

__all__ = ["ObservedSite", "counted_entries", "observed_sites"]


class ObservedSite(NamedTuple):
    """Value of an observed site, with its plates and mask."""

    value: np.ndarray
    plates: tuple[str, ...]  # of its log probabilities, outermost first
    counted: np.ndarray  # booleans, one a log probability, False where it is masked


def observed_sites(model: Any, draws: dict[str, Any], data: Any) -> dict[str, ObservedSite]:
    """Observed sites of a model by name; a ValueError if there is none, or the draws lack a latent site."""
    first = {name: jnp.asarray(draw[0]) for name, draw in draws.items()}
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
        raise ValueError(
            "model has no observed site: give log_likelihood=None and posterior_predictive=False"
        )
    found = {}
    for name, site in observed.items():
        frames = sorted(site["cond_indep_stack"], key=lambda frame: frame.dim)
        plates = tuple(frame.name for frame in frames)
        found[name] = ObservedSite(np.asarray(site["value"]), plates, _counted(site["fn"]))
    return found


def counted_entries(sites: dict[str, ObservedSite]) -> dict[str, np.ndarray]:
    """Unmasked entries of every plate in which some entries are masked at all sites.

    Masked entries have no log likelihood (rather than one of zero), and leave-one-out scores must not sum over them.
    """
    found: dict[str, np.ndarray] = {}
    for site in sites.values():
        if len(site.plates) != site.counted.ndim:
            continue
        for axis, plate in enumerate(site.plates):
            others = tuple(other for other in range(site.counted.ndim) if other != axis)
            here = site.counted.any(axis=others)
            found[plate] = np.logical_or(found.get(plate, False), here)
    return {plate: np.flatnonzero(here) for plate, here in found.items() if not here.all()}


def _counted(distribution: Any) -> np.ndarray:
    """Unmasked log probabilities of a distribution."""
    shape = distribution.batch_shape
    counted = np.ones(shape, bool)
    while distribution is not None:
        mask = np.asarray(getattr(distribution, "_mask", True))
        inner = tuple(range(len(shape), mask.ndim))  # axes that became part of the event later
        counted = counted & mask.any(axis=inner)
        distribution = getattr(distribution, "base_dist", None)
    return counted
