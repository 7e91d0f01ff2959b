r"""Rows over intents that pool states and actions: an exact conjugate mixture of a shared row and one of their own.

.. math:: z_t \sim g_{s_t, a_t}, \quad x_{t+1} \sim \theta_{x_t} \text{ where } z_t \text{ is shared, else }
          \phi_{x_t, s_t, a_t}, \quad g_{s,a} \sim Dir(g_0), \quad
          \theta_x, \phi_{x,s,a} \sim Dir(\alpha\beta + \kappa e_x)

An intent pays once for what it does everywhere, and the row of a state and action only where its data differ. z is
summed out, exactly: messages have the potential :math:`e^{E\ln g_{sh}} e^{E\ln\theta} + e^{E\ln g_{own}} e^{E\ln\phi}`,
and its gradient splits counts by the terms' shares. With :math:`g_0 = (1, 1)` every pair costs 1.5 nats; the default
(1, .1) makes the shared row cheap. A hierarchical mean in place of the mixture is not conjugate.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from ethogram.models.arguments import is_concrete, read_reals, require_one_of

__all__ = ["mixed_rows", "read_pool"]


def read_pool(pool: str | None, prior: Any, constraints: Any) -> Any:
    """The Dirichlet concentrations of the shares (2,), None without a pool; ValueErrors for bad arguments."""
    if pool is None:
        if prior is not None:
            raise ValueError('pool_prior is given and pool is None: give pool="shared", or leave it out')
        return None
    require_one_of("pool", pool, ("shared",))
    if constraints:
        raise ValueError(
            f'pool="{pool}" mixes rows, of which constraints bound one at a time: leave one of the two out'
        )
    (shares,) = read_reals(pool_prior=(1.0, 0.1) if prior is None else prior)
    if shares.shape != (2,) or (is_concrete(shares) and (np.asarray(shares) <= 0).any()):
        raise ValueError(f"pool_prior must be two numbers above 0, not {prior!r}")
    return shares


def mixed_rows(expected: dict[str, Any]) -> Array:
    """Log potentials (row, intent, next intent) by the expected logs of the blocks; those of the rows if not pooled."""
    own = expected["transition"].concentration
    if "share" not in expected:
        return own
    share = expected["share"].concentration[:, None, None, :]
    return jnp.logaddexp(share[..., 0] + expected["shared"].concentration, share[..., 1] + own)
