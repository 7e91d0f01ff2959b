"""Posterior draws of several chains, apart from the sampler that made them, so that they can be saved."""

from __future__ import annotations

import os
from typing import Any

import jax
import numpy as np
from jax import Array

from ethogram.inference import storage
from ethogram.inference.draws import Draws, flat_draws, library_attributes
from ethogram.models.arguments import require_integer, require_key
from ethogram.models.model_object import model_object

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
    """

    model: Any
    sites: dict[str, np.ndarray]
    statistics: dict[str, np.ndarray]

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
        return Draws(self.model, self.sites, self.statistics, {}, library_attributes("numpyro"))

    def save(self, path: str | os.PathLike) -> None:
        """Write draws, statistics and model to one file, atomically; read it with ``ethogram.load``."""
        storage.write(path, {"posterior": self})
