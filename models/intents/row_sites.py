r"""Rows over intents, and the weights, as sites of the numpyro model.

Sites: ``sticks`` unless the weights are fixed, ``weights``, ``stickiness`` where it is learned, ``initial``,
``transition``, and for pooled rows ``shared`` and ``share``. Sticky rows are sampled as

.. math:: T_r = s_r e_x + (1 - s_r)\,\theta_r, \quad s_r \sim Beta(\kappa, \alpha), \quad
          \theta_r \sim Dir(\alpha\beta),

which is exactly :math:`Dir(\alpha\beta + \kappa e_x)`: latent sites ``NAME_stay`` and ``NAME_free``. A stickiness far
below 1 puts s near 0, where NUTS takes small steps.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax import Array

from ethogram.models.intents import updates
from ethogram.models.intents.stick_weights import weights_of_sticks
from ethogram.models.intents.stickiness import StickinessPrior

__all__ = ["sample_rows"]


def sample_rows(model: Any) -> dict[str, Array]:
    """Sample weights, stickiness and rows inside a numpyro model; parameters by site."""
    rows, count, kappa = model.rows_carried(), model.truncation, model.stickiness
    weights = updates.start_weights(model).natural
    if model.beta_prior != "fixed":
        unit = jnp.ones(count, weights.dtype)
        sticks = numpyro.sample("sticks", dist.Beta(unit, model.gamma * unit).to_event(1))
        weights = weights_of_sticks(sticks)
    sites = {"weights": numpyro.deterministic("weights", weights)}
    if isinstance(kappa, StickinessPrior):
        kappa = numpyro.sample("stickiness", dist.Gamma(kappa.shape, kappa.rate))
        sites["stickiness"] = kappa
    sites["initial"] = numpyro.sample("initial", dist.Dirichlet(model.alpha * weights))
    own = jnp.eye(count, count + 1, dtype=weights.dtype)

    def leaving(name: str, *batch: int) -> Array:
        free = dist.Dirichlet(jnp.broadcast_to(model.alpha * weights, (*batch, count, count + 1)))
        never = rows.never[:, None, None] if name == "transition" and model.constraints else None
        if kappa is None and never is None:
            return numpyro.sample(name, free.to_event(len(batch) + 1))
        drawn = numpyro.sample(f"{name}_free", free.to_event(len(batch) + 1))
        if kappa is not None:
            stay = dist.Beta(kappa, model.alpha).expand((*batch, count)).to_event(len(batch) + 1)
            share = numpyro.sample(f"{name}_stay", stay)[..., None]
            drawn = share * own + (1 - share) * drawn
        return numpyro.deterministic(name, drawn if never is None else jnp.where(never, own, drawn))

    sites["transition"] = leaving("transition", rows.num_rows)
    if model.pool is not None:
        sites["shared"] = leaving("shared")
        prior = dist.Dirichlet(jnp.broadcast_to(model.pool_prior, (rows.num_rows, 2))).to_event(1)
        sites["share"] = numpyro.sample("share", prior)
    return sites
