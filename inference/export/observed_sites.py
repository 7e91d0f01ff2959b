"""What any numpyro model says of its observed sites at many draws, by numpyro's own means.

For models that are not asked more directly, by :mod:`ethogram.inference.export.pointwise`. The model is called as
``model(data)``, and ``model(data, condition=False)`` for new data.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.handlers
from jax import Array
from numpyro.infer import Predictive
from numpyro.infer.util import log_likelihood

__all__ = ["ObservedSite", "counted_entries", "observed_sites", "site_log_likelihood", "site_predictive"]


class ObservedSite(NamedTuple):
    """What was observed at a site, and which of it counts.

    Attributes
    ----------
    value : what was observed.
    plates : that its log probabilities stand in, outermost first.
    counted : booleans, one a log probability, False where a mask leaves it out of the density.
    """

    value: np.ndarray
    plates: tuple[str, ...]
    counted: np.ndarray


def observed_sites(model: Any, draws: dict[str, Any], data: Any) -> dict[str, ObservedSite]:
    """Observed sites of a model by name.

    Raises
    ------
    ValueError
        If there is none, or the model has latent sites of which there are no draws.
    """
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
        raise ValueError("model observes nothing: give log_likelihood=None and posterior_predictive=False")
    return {
        name: ObservedSite(np.asarray(site["value"]), _plates(site), _counted(site["fn"]))
        for name, site in observed.items()
    }


def counted_entries(sites: dict[str, ObservedSite]) -> dict[str, np.ndarray]:
    """Numbers of the entries that count, of every plate where some do not: at no site, under any mask.

    The log likelihood of the others is not zero: there is none, and who sums entries, as leave-one-out scores do, has
    to leave them out.
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


def _counted(law: Any) -> np.ndarray:
    """Which log probabilities of a distribution no mask leaves out."""
    shape, counted = law.batch_shape, np.ones(law.batch_shape, bool)
    while law is not None:
        mask = np.asarray(getattr(law, "_mask", True))
        inner = tuple(range(len(shape), mask.ndim))  # axes that became part of the event later
        counted = counted & mask.any(axis=inner)
        law = getattr(law, "base_dist", None)
    return counted
