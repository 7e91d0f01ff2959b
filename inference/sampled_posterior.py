"""Posterior draws of several chains, apart from the sampler that made them, so that they can be saved."""

from __future__ import annotations

import os
from typing import Any

import jax
import numpy as np
from jax import Array

from ethogram.inference import storage
from ethogram.inference.convergence import convergence
from ethogram.inference.draws import Draws, flat_draws, library_attributes
from ethogram.models.arguments import require_integer, require_key
from ethogram.models.model_object import model_object, static_field

__all__ = ["SampledPosterior"]


@model_object
class SampledPosterior:
    """Draws by site, with the statistics of the sampler.

    Parameters
    ----------
    model : that was sampled.
    sites : (chain, draw, ...) arrays by site.
    statistics : (chain, draw, ...) arrays of the sampler under ArviZ's names: ``diverging``, ``lp``, ``n_steps``,
        ``acceptance_rate``.
    draws_from : where the draws come from, for exports; empty where the sampler says all.
    """

    model: Any
    sites: dict[str, np.ndarray]
    statistics: dict[str, np.ndarray]
    draws_from: str = static_field(default="")

    @property
    def ess(self) -> float:
        """Smallest bulk effective sample size of an entry of a site."""
        return float(min(convergence(site).ess.min(initial=np.inf) for site in self.sites.values()))

    @property
    def r_hat(self) -> float:
        """Largest rank-normalised split R-hat of an entry of a site; NaN for a single chain."""
        each = np.concatenate([convergence(site).r_hat.ravel() for site in self.sites.values()])
        return float(np.max(each[~np.isnan(each)])) if not np.isnan(each).all() else float("nan")

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
        attributes = library_attributes("numpyro")
        attributes |= {"draws_from": self.draws_from} if self.draws_from else {}
        return Draws(self.model, self.sites, self.statistics, {}, attributes)

    def save(self, path: str | os.PathLike) -> None:
        """Write draws, statistics and model to one file, atomically; read it with ``ethogram.load``."""
        storage.write(path, {"posterior": self})
