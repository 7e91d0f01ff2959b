"""Draws of the posterior itself, by short chains of NUTS that start at draws of a variational fit.

q of a mean field is narrower than the posterior. NUTS (Hoffman and Gelman 2014) on the same model has no such error; a
fit saves it the search: chains start at draws of q, with the variances of q as inverse mass matrix, and labels are
matched to the fit. The chains sample the mode that the fit found, and leave for another only where NUTS passes between
the two.
"""

from __future__ import annotations

import os
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.handlers
from jax import Array
from numpyro.distributions import biject_to, constraints

from ethogram.inference import storage
from ethogram.inference.checkpoint import check_path
from ethogram.inference.conjugate.posterior import ConjugatePosterior, posterior_of
from ethogram.inference.convergence import warn_of_convergence
from ethogram.inference.draws import flat_draws
from ethogram.inference.export.labelled_arrays import relabel
from ethogram.inference.export.pointwise import Pointwise
from ethogram.inference.nuts_chains import run_chains
from ethogram.inference.sampled_posterior import SampledPosterior
from ethogram.models.arguments import require_integer, require_key
from ethogram.models.conjugate_model import require_informative
from ethogram.models.data.trajectories import Metadata, Trajectories
from ethogram.models.families.numpyro_sites import by_site, start_of_site
from ethogram.models.quick_jit import quick_jit

__all__ = ["refresh_posterior"]

DRAWS_FROM = "NUTS, with starts drawn from a variational fit, and labels matched to it"

NUM_DRAWS = 200
"""Draws of q behind the inverse mass matrix."""

INTERIOR = 1e-3
"""Added to each entry of a probability row at a start: draws of q may be 0 to rounding, where the logit is infinite."""

LEAST_VARIANCE = 1e-4
"""Smallest first entry of the inverse mass matrix."""


def refresh_posterior(
    key: Array,
    fit: Any,
    data: Trajectories,
    *,
    num_warmup: int = 300,
    num_draws: int = 500,
    num_chains: int = 4,
    progress_bar: bool = True,
    checkpoint: str | os.PathLike | None = None,
) -> SampledPosterior:
    """Posterior draws by NUTS that start at the fit, with its labels: with calibrated intervals.

    Intervals of q are too short where hidden states are uncertain: where emissions overlap, or steps are few. The
    result goes where draws go: ``to_arviz``, ``infer_roles``, ``infer_intents``. It takes some hundred times the time
    of the fit. Refreshes of one model on data of one shape share the compiled programs.

    Parameters
    ----------
    key : a typed key, as ``jax.random.key`` makes it.
    fit : `ConjugateResult` of `ConjugateSVI`, or its posterior.
    data : the training data.
    num_warmup, num_draws : iterations of each chain.
    num_chains : in one compiled program, on a CPU one after the other.
    checkpoint : file written every 50 iterations. The same call resumes after the last of these, and returns what an
        uninterrupted one does; with another `num_draws`, too: a larger one continues chains that have ended.

    Raises
    ------
    ValueError, TypeError
        If the data do not fit the model, or it has no density: constraints on means of an `AgentMarkov`, and roles
        distinct in every frame with more than 720 maps. Also for a checkpoint that is damaged, or of another fit, data,
        key, `num_warmup` or `num_chains`.

    Warns
    -----
    UserWarning
        If an effective sample size is below 100, or an R-hat above 1.01.

    Examples
    --------
    ``tree = to_arviz(refresh_posterior(jax.random.key(2), fit, data), data)``
    """
    require_key(key)
    for name, count in {"num_warmup": num_warmup, "num_draws": num_draws, "num_chains": num_chains}.items():
        require_integer(name, count, 1)
    posterior = posterior_of(fit, "fit")
    model = posterior.model
    model.check(data)
    require_informative(model, data)
    if checkpoint is not None:
        check_path(checkpoint)

    def signature():
        bare = data._replace(times=None, metadata=Metadata())
        return storage.fingerprint(
            jax.random.key_data(key), model, posterior.blocks, bare, num_warmup, num_chains
        )

    key_starts, key_chains = jax.random.split(key)
    batch = model.entries(data).batch
    starts, variance = _starts(key_starts, posterior, batch, num_chains)
    counts = (num_warmup, num_draws, num_chains, progress_bar)
    settings = {"inverse_mass_matrix": variance}  # of each unconstrained coordinate, raveled by site
    saved: Any = {"checkpoint": checkpoint, "signature": signature, "title": "refresh"}
    chains = run_chains(key_chains, model, batch, *counts, settings=settings, starts=starts, **saved)
    reference = by_site({name: block.reference_point() for name, block in posterior.blocks.items()})
    sites = {name: chains.sites[name] for name in sorted(reference)}
    if model.switches_labels():
        order = Pointwise(model, flat_draws(sites), data).state_order(reference)
        order = order.reshape(num_chains, num_draws, -1)
        dims = model.site_layout(data)[0]
        sites = {name: relabel(site, dims[name], model.label_dims, order) for name, site in sites.items()}
    warn_of_convergence(sites)
    return SampledPosterior(model, sites, chains.statistics, DRAWS_FROM)


def _starts(
    key: Array, posterior: ConjugatePosterior, batch: Any, num_chains: int
) -> tuple[dict[str, Array], Array]:
    """Unconstrained starts (chain, ...) by latent site, and the variance under q of each raveled coordinate.

    Sites of which q has no draw, such as the sticks behind weights, start at 0 with variance 1.
    """
    count = max(NUM_DRAWS, num_chains)
    drawn = flat_draws(posterior.draws_for_export(key, count).sites)
    supports, values, unconstrained = {}, {}, {}
    for name, (support, shape) in _latent_sites(key, posterior.model, batch).items():
        value = start_of_site(name, drawn, posterior.blocks)
        if value is not None and value.shape[1:] == shape:
            if _is_simplex(support):
                value = (value + INTERIOR) / (1 + INTERIOR * value.shape[-1])
            supports[name], values[name] = support, value
        else:
            like = jax.ShapeDtypeStruct(shape, jnp.result_type(float))
            like = jax.eval_shape(biject_to(support).inv, like)
            unconstrained[name] = np.zeros((count, *like.shape), like.dtype)
    precision = jnp.result_type(float)  # which numpyro's transforms take, whatever that of the prior
    unconstrained |= jax.tree.map(lambda x: np.asarray(x, precision), _unconstrained(supports, values))
    spread = {
        name: np.maximum(x.var(axis=0), LEAST_VARIANCE) if name in values else np.ones_like(x[0])
        for name, x in unconstrained.items()
    }
    variance = np.concatenate([spread[name].ravel() for name in sorted(spread)])  # as `ravel_pytree` has them
    return jax.device_put(({name: x[:num_chains] for name, x in unconstrained.items()}, variance))


@quick_jit
def _unconstrained(supports, values):
    return {name: biject_to(support).inv(values[name]) for name, support in supports.items()}


def _is_simplex(support: Any) -> bool:
    while hasattr(support, "base_constraint"):
        support = support.base_constraint
    return support is constraints.simplex


def _latent_sites(key: Array, model: Any, batch: Any) -> dict[str, tuple[Any, tuple[int, ...]]]:
    """Support and shape of every latent site of the numpyro model."""
    found: dict[str, tuple[Any, tuple[int, ...]]] = {}

    def look():
        for name, site in numpyro.handlers.trace(numpyro.handlers.seed(model, key)).get_trace(batch).items():
            if site["type"] == "sample" and not site["is_observed"]:
                found[name] = (site["fn"].support, np.shape(site["value"]))

    jax.eval_shape(look)
    return found
