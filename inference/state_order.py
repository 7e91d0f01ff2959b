"""States of a fit in an order that does not depend on the start of the algorithm."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from ethogram.inference.conjugate import ConjugateResult
from ethogram.inference.conjugate.problem import placed
from ethogram.inference.conjugate.search import mass_of_states
from ethogram.inference.draws import flat_draws
from ethogram.inference.export.labelled_arrays import relabel
from ethogram.inference.sampled_posterior import SampledPosterior
from ethogram.models.conjugate_model import ConjugateModel, Exportable
from ethogram.models.label_permutations import permuted
from ethogram.models.model_object import changed

__all__ = ["in_order"]


def in_order(result: Any, data: Any) -> Any:
    """The result with its states in the order of the model's `state_positions`, or of their expected steps in q.

    One permutation for q, or for all draws of all chains, whose labels are taken to agree. It changes no likelihood and
    no ELBO. Results are returned as they are where the numbers of states mean something, by a prior or by known labels,
    and where there are no states.

    Parameters
    ----------
    result : what an algorithm returned.
    data : that it was fitted to.
    """
    model: Any = getattr(getattr(result, "posterior", result), "model", None)
    if not isinstance(model, Exportable):
        return result
    axes = model.exchangeable_axes() if isinstance(model, ConjugateModel) else {}
    if not (axes if isinstance(model, ConjugateModel) else model.switches_labels()):
        return result
    if isinstance(result, ConjugateResult):
        blocks = result.posterior.blocks
        if result.posterior.model.growth:
            position: Any = -np.asarray(mass_of_states(model, blocks))
        else:
            mean = {name: np.asarray(site)[None] for name, site in result.posterior.mean().items()}
            position = model.state_positions(mean, data)
        if _is_in_order(position):
            return result
        moved = placed(permuted(blocks, axes, np.argsort(position, kind="stable")))
        return result._replace(posterior=changed(result.posterior, blocks=moved))
    if not isinstance(result, SampledPosterior):
        return result
    position = model.state_positions(flat_draws(result.sites), data)
    if _is_in_order(position):
        return result
    order = np.argsort(position, kind="stable")
    dims = model.site_layout(data)[0]
    sites = {}
    for name, site in result.sites.items():
        every = np.broadcast_to(order, (*site.shape[:2], len(order)))
        sites[name] = relabel(site, dims.get(name, ()), model.label_dims, every)
    return dataclasses.replace(result, sites=sites)


def _is_in_order(position: Any) -> bool:
    return position is None or bool((np.diff(position) >= 0).all())
