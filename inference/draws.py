"""Draws from a fit with its diagnostics, as ``to_arviz`` reads them."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jax import Array

__all__ = ["Draws", "ExportsDraws", "flat_draws", "library_attributes", "one_chain"]

FitStatistics = dict[str, tuple[tuple[str, ...], np.ndarray]]


class Draws(NamedTuple):
    """Draws of parameters, with the diagnostics of the fit."""

    model: Any  # the model object (or numpyro function) that was fitted; None where unknown
    sites: dict[str, np.ndarray]  # (chain, draw, ...) arrays by site
    statistics: dict[str, np.ndarray]  # (chain, draw, ...) of the sampler, under ArviZ's names
    fit: FitStatistics  # dims and array of statistics by step or restart
    attributes: dict[str, Any]  # of the whole result


@runtime_checkable
class ExportsDraws(Protocol):
    """A result or posterior that describes its own draws."""

    def draws_for_export(self, key: Array, num_draws: int) -> Draws:
        """`num_draws` draws in one chain, with the diagnostics of the fit."""


def one_chain(draws: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Sites (draw, ...) as sites (chain, draw, ...) of a single chain."""
    return {name: np.asarray(draw)[None] for name, draw in draws.items()}


def flat_draws(sites: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Sites (chain, draw, ...) with chains and draws on one axis."""
    return {name: site.reshape(-1, *site.shape[2:]) for name, site in sites.items()}


def library_attributes(library: str = "ethogram") -> dict[str, Any]:
    """Name and version of the library that made the draws, as ArviZ records them."""
    return {"inference_library": library, "inference_library_version": importlib.metadata.version(library)}
