"""Draws by NUTS of a posterior whose starts and labels come from a variational fit."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array

from ethogram.inference.draws import Draws, flat_draws, library_attributes
from ethogram.models.arguments import require_integer

__all__ = ["RefreshedPosterior"]

DRAWS_FROM = "NUTS, with starts drawn from a variational fit, and labels matched to it"


class RefreshedPosterior(NamedTuple):
    """Posterior draws of several chains, with the labels of the fit at which the chains started.

    Attributes
    ----------
    model : the model, bound to its data.
    sites : (chain, draw, ...) arrays by site.
    statistics : (chain, draw) arrays of the sampler under ArviZ's names: ``diverging``, ``lp``, ``n_steps``,
        ``acceptance_rate``.
    ess : smallest bulk effective sample size of an entry of a site.
    r_hat : largest rank-normalised split R-hat; 0 for a single chain.
    """

    model: Any
    sites: dict[str, np.ndarray]
    statistics: dict[str, np.ndarray]
    ess: float
    r_hat: float

    def sample(self, key: Array, num_draws: int) -> dict[str, np.ndarray]:
        """Draws (num_draws, ...) by site, picked at random: without repetition where there are enough."""
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
