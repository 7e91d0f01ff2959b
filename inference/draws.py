"""Draws from a fit with its diagnostics, as ``to_arviz`` reads them."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.infer import MCMC

__all__ = [
    "Draws",
    "ExportsDraws",
    "HasMean",
    "draw_in_chunks",
    "flat_draws",
    "library_attributes",
    "mcmc_draws",
    "one_chain",
    "variational_attributes",
]

CHUNK = 128
"""Draws at most that a compiled program makes at once, whatever the number requested."""

NUMBERS = 2**22
"""Numbers at most in a chunk of draws, unless one draw has more."""

ARVIZ_NAMES = {"potential_energy": "lp", "num_steps": "n_steps", "accept_prob": "acceptance_rate"}
"""ArviZ's names of fields of numpyro's samplers; `lp` is minus the potential energy."""


FitStatistics = dict[str, tuple[tuple[str, ...], np.ndarray]]

CAUTION = (
    "draws from q, which is narrower than the posterior: LOO and WAIC of them favour the overconfident fit, and do not "
    "rank models, or q against MCMC; compare held-out log predictive densities"
)
"""Exported with the draws of every variational fit."""


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
        """`num_draws` draws in one chain, with the diagnostics of the fit; a TypeError where it has no draws."""


@runtime_checkable
class HasMean(Protocol):
    """A posterior with a point estimate."""

    def draws_for_export(self, key: Array, num_draws: int) -> Draws:
        """Independent draws."""

    def mean(self) -> dict[str, Array]:
        """Posterior means of the parameters, by site."""


def _joined(parts: tuple[Array, ...], num_draws: int) -> Array:
    """Chunks on one axis, joined on the host where values are known: on the device each number would compile."""
    if any(isinstance(part, jax.core.Tracer) for part in parts):
        return jnp.concatenate(parts)[:num_draws]
    return jax.device_put(np.concatenate([np.asarray(part) for part in parts])[:num_draws])


def one_chain(draws: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Sites (draw, ...) as sites (chain, draw, ...) of a single chain."""
    return {name: np.asarray(draw)[None] for name, draw in draws.items()}


def draw_in_chunks(
    draw: Callable[[Array, int], dict[str, Array]], key: Array, num_draws: int, numbers: int
) -> dict[str, Array]:
    """`num_draws` draws by site from ``draw(key, size)``, called with one size whatever `num_draws` is.

    The size depends on `numbers`, those in a draw, so that one compiled program serves every number of draws; the last
    chunk is cut. More draws with the same key begin with those of fewer.
    """
    size = max(1, min(CHUNK, NUMBERS // max(numbers, 1)))
    parts = [draw(jax.random.fold_in(key, start), size) for start in range(0, num_draws, size)]
    return jax.tree.map(lambda *leaves: _joined(leaves, num_draws), *parts)


def flat_draws(sites: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Sites (chain, draw, ...) with chains and draws on one axis."""
    return {
        name: site.reshape(site.shape[0] * site.shape[1], *site.shape[2:]) for name, site in sites.items()
    }


def mcmc_draws(mcmc: MCMC, model: Any, name: str = "result") -> Draws:
    """Draws of numpyro's `MCMC` by site, with its extra fields; `name` is the argument that an error names.

    A ValueError if it has not run; a TypeError for samples without site names.
    """
    if mcmc.last_state is None:
        raise ValueError(f"{name} is an MCMC that has not run: call its run method first")
    samples = mcmc.get_samples(group_by_chain=True)
    if not isinstance(samples, dict):
        raise TypeError(
            f"{name} holds samples as {type(samples).__name__}, without site names: run MCMC on a model"
        )
    sites = {name: np.asarray(value) for name, value in samples.items()}
    statistics = {}
    for field, value in mcmc.get_extra_fields(group_by_chain=True).items():
        if not hasattr(value, "shape"):
            continue
        last, array = field.rpartition(".")[2], np.asarray(value)
        statistics[ARVIZ_NAMES.get(last, last)] = -array if last == "potential_energy" else array
        if last == "num_steps":
            statistics["tree_depth"] = np.log2(array).astype(int) + 1
    chosen = getattr(mcmc.sampler, "model", None) if model is None else model
    return Draws(chosen, sites, statistics, {}, library_attributes("numpyro"))


def library_attributes(library: str = "ethogram") -> dict[str, Any]:
    """Name and version of the library that made the draws, as ArviZ records them."""
    return {"inference_library": library, "inference_library_version": importlib.metadata.version(library)}


def variational_attributes(library: str = "ethogram") -> dict[str, Any]:
    """Those of `library_attributes`, and that the draws come from q, with what that means for model comparison."""
    return library_attributes(library) | {"draws_from": "variational approximation", "caution": CAUTION}
