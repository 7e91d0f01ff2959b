"""Draws of the posterior in place of those of a q that is too narrow."""

from __future__ import annotations

import time
from typing import Any

import jax
import numpy as np

from ethogram.inference.conjugate import ConjugateResult
from ethogram.inference.conjugate.gibbs_draws import can_sweep, gibbs_draws
from ethogram.inference.refresh import refresh_posterior
from ethogram.inference.sampled_posterior import SampledPosterior
from ethogram.models.data.parts import is_large

__all__ = ["corrected_fit", "is_narrow"]

NUM_DRAWS, GROUPS = 1000, 4
"""Draws of parameters by Gibbs sweeps, and the groups of them that effective sample sizes and R-hat compare."""
DRAWS_FROM = "Gibbs sweeps that start at draws of a variational fit"


def is_narrow(fit: Any) -> bool:
    """Whether the draws of a fit are of a mean field, which is narrower than the posterior."""
    return isinstance(fit.result, ConjugateResult)


def corrected_fit(fit: Any) -> Any:
    """The fit with draws of the posterior, or the fit itself where its draws are not of a q."""
    if not is_narrow(fit):
        return fit
    start = time.perf_counter()
    drawn = _corrected_draws(fit)
    took = fit.seconds + time.perf_counter() - start
    reason = f"draws of the posterior that start at q, which {fit.method!r} found"
    code = f"{fit.code}\nfit = fit.corrected()" if fit.code else ""
    return type(fit)(fit.model, fit.data, "corrected", reason, drawn, took, fit._key, fit._names, code)


def _corrected_draws(fit: Any) -> SampledPosterior:
    """Draws by Gibbs sweeps, where sequences are independent chains of one transition matrix; else by NUTS."""
    posterior, key = fit.result.posterior, jax.random.fold_in(fit._key, 2)
    if is_large(fit.data):
        raise ValueError(
            "data on disk are read part by part: correct a fit to a part of them, by data.take(...)"
        )
    if not can_sweep(posterior.model):
        return refresh_posterior(key, fit.result, fit.data)
    sites = gibbs_draws(key, posterior, fit.data, NUM_DRAWS)[0]
    grouped = {name: np.reshape(site, (GROUPS, -1, *site.shape[1:])) for name, site in sites.items()}
    return SampledPosterior(posterior.model, grouped, {}, DRAWS_FROM)
