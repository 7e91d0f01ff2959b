r"""Rows over intents, and the weights, as sites of the numpyro model.

Sites: ``sticks`` unless the weights are fixed, ``weights``, ``stickiness`` where it is learned, ``initial`` and
``transition``. Sticky rows are sampled as

.. math:: T_r = s_r e_x + (1 - s_r)\,\theta_r, \quad s_r \sim Beta(\kappa, \alpha), \quad
          \theta_r \sim Dir(\alpha\beta),

which is exactly :math:`Dir(\alpha\beta + \kappa e_x)`: latent sites ``transition_stay`` and ``transition_free``. A
stickiness far below 1 puts s near 0, where NUTS takes small steps.
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
    never = rows.never[:, None, None] if model.constraints else None
    free = dist.Dirichlet(
        jnp.broadcast_to(model.alpha * weights, (rows.num_rows, count, count + 1))
    ).to_event(2)
    if kappa is None and never is None:
        return sites | {"transition": numpyro.sample("transition", free)}
    drawn = numpyro.sample("transition_free", free)
    if kappa is not None:
        stay = dist.Beta(kappa, model.alpha).expand((rows.num_rows, count)).to_event(2)
        share = numpyro.sample("transition_stay", stay)[..., None]
        drawn = share * own + (1 - share) * drawn
    drawn = drawn if never is None else jnp.where(never, own, drawn)
    return sites | {"transition": numpyro.deterministic("transition", drawn)}
