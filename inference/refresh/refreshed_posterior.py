"""Draws by NUTS of a posterior whose starts and labels come from a variational fit."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax import Array

from ethogram.inference.draws import Draws, library_attributes
from ethogram.inference.sampled_posterior import SampledPosterior
from ethogram.models.arguments import is_concrete
from ethogram.models.conjugate_model import ConjugateModel
from ethogram.models.families.numpyro_sites import by_site
from ethogram.models.model_object import model_object

__all__ = ["RefreshedPosterior"]

DRAWS_FROM = "NUTS, with starts drawn from a variational fit, and labels matched to it"


@model_object
class RefreshedPosterior(SampledPosterior):
    """Posterior draws of several chains, with the labels of the fit at which the chains started.

    Parameters
    ----------
    model : the model, bound to its data.
    sites : (chain, draw, ...) arrays by site.
    statistics : (chain, draw) arrays of the sampler under ArviZ's names: ``diverging``, ``lp``, ``n_steps``,
        ``acceptance_rate``.
    ess : smallest bulk effective sample size of an entry of a site.
    r_hat : largest rank-normalised split R-hat; 0 for a single chain.
    """

    ess: float
    r_hat: float

    def __post_init__(self):
        if not isinstance(self.model, ConjugateModel):
            raise TypeError(f"model is {type(self.model).__name__}: give a ConjugateModel")
        if is_concrete(*jax.tree.leaves((self.model, self.sites, self.statistics))):
            _check_sites(self.model, self.sites, self.statistics)

    def draws_for_export(self, key: Array, num_draws: int) -> Draws:
        """All draws of all chains, whatever `num_draws` is."""
        attributes = library_attributes() | {"draws_from": DRAWS_FROM}
        return Draws(self.model, self.sites, self.statistics, {}, attributes)


def _check_sites(model: ConjugateModel, sites: Any, statistics: Any) -> None:
    shapes = {
        name: np.shape(x)
        for name, x in by_site(
            {name: block.reference_point() for name, block in model.prior().items()}
        ).items()
    }
    if set(sites) != set(shapes):
        raise ValueError(f"sites has {sorted(sites)}, but the model has {sorted(shapes)}")
    lead = np.shape(next(iter(sites.values())))[:2]
    if len(lead) < 2 or 0 in lead:
        raise ValueError(f"sites lead with {lead}: give (chain, draw, ...) arrays with a draw")
    expected = {f"sites[{name!r}]": (*lead, *shape) for name, shape in shapes.items()}
    expected |= {f"statistics[{name!r}]": lead for name in statistics}
    for group, arrays in {"sites": sites, "statistics": statistics}.items():
        for name, array in arrays.items():
            place = f"{group}[{name!r}]"
            if np.shape(array) != expected[place]:
                raise ValueError(f"{place} has shape {np.shape(array)}, expected {expected[place]}")
            if not np.isfinite(array).all():
                raise ValueError(f"{place} is not finite at {np.argwhere(~np.isfinite(array))[0].tolist()}")
