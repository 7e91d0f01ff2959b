"""Draws by NUTS of a posterior whose starts and labels come from a variational fit."""

from __future__ import annotations

import os
from typing import Any

import jax
import numpy as np
from jax import Array

from ethogram.inference import storage
from ethogram.inference.draws import Draws, flat_draws, library_attributes
from ethogram.models.arguments import is_concrete, require_integer, require_key
from ethogram.models.conjugate_model import ConjugateModel
from ethogram.models.families.numpyro_sites import by_site
from ethogram.models.model_object import model_object

__all__ = ["RefreshedPosterior"]

DRAWS_FROM = "NUTS, with starts drawn from a variational fit, and labels matched to it"


@model_object
class RefreshedPosterior:
    """Posterior draws of several chains, with the labels of the fit at which the chains started.

    Parameters
    ----------
    model : the model, bound to its data.
    sites : (chain, draw, ...) arrays by site.
    statistics : (chain, draw) arrays of the sampler under ArviZ's names: ``diverging``, ``lp``, ``n_steps``,
        ``acceptance_rate``.
    ess : smallest bulk effective sample size of an entry of a site.
    r_hat : largest rank-normalised split R-hat; 0 for a single chain, and for fewer than four draws.

    Raises
    ------
    ValueError, TypeError
        If sites are missing, left over, not finite, or of other shapes than in the prior of the model, or if numbers of
        chains or draws differ.
    """

    model: Any
    sites: dict[str, np.ndarray]
    statistics: dict[str, np.ndarray]
    ess: float
    r_hat: float

    def __post_init__(self):
        if not isinstance(self.model, ConjugateModel):
            raise TypeError(f"model is {type(self.model).__name__}: give a ConjugateModel")
        if is_concrete(*jax.tree.leaves((self.model, self.sites, self.statistics))):
            _check_sites(self.model, self.sites, self.statistics)

    def sample(self, key: Array, num_draws: int) -> dict[str, np.ndarray]:
        """Draws (num_draws, ...) by site, picked at random: without repetition where there are enough."""
        require_key(key)
        require_integer("num_draws", num_draws, 1)
        flat = flat_draws(self.sites)
        count = len(next(iter(flat.values())))
        rows = np.asarray(jax.random.choice(key, count, (num_draws,), replace=num_draws > count))
        return {name: site[rows] for name, site in flat.items()}

    def mean(self) -> dict[str, np.ndarray]:
        """Means of all draws by site."""
        return {name: site.mean(axis=(0, 1)) for name, site in self.sites.items()}

    def draws_for_export(self, key: Array, num_draws: int) -> Draws:
        """All draws of all chains, whatever `num_draws` is."""
        attributes = library_attributes() | {"draws_from": DRAWS_FROM}
        return Draws(self.model, self.sites, self.statistics, {}, attributes)

    def save(self, path: str | os.PathLike) -> None:
        """Write draws, statistics and model to one file, atomically; read it with ``ethogram.load``."""
        storage.write(path, {"posterior": self})


def _check_sites(model: ConjugateModel, sites: Any, statistics: Any) -> None:
    shapes = {
        name: np.shape(x)
        for name, x in by_site({name: block.inner_point() for name, block in model.prior().items()}).items()
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
