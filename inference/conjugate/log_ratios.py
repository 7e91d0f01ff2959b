r"""Log ratios of the posterior and q at draws of q, for importance weights.

Prior and q are of one exponential family, so that with natural parameters :math:`\eta_0` and :math:`\eta`

.. math:: \ln p(x, \theta) - \ln q(\theta) = \ln \tilde Z(s(\theta)) - \langle \eta - \eta_0, s(\theta) \rangle + const.

Yao, Vehtari, Simpson, Gelman (2018), "Yes, but did it work? Evaluating variational inference", section 2.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float

from ethogram.inference.conjugate.padded_shapes import padded_data
from ethogram.models.numpy_generator import numpy_generator
from ethogram.models.quick_jit import quick_jit

__all__ = ["log_ratios"]

SMALLEST = -100.0
"""Log probability in place of that of an entry that is 0, by rounding or always."""


def log_ratios(
    key: Array, posterior: Any, data: Any, num_draws: int, prior: Any = None
) -> Float[np.ndarray, " draw"]:
    """Log p(data, theta) - log q(theta), up to a constant, at draws of q.

    Parameters
    ----------
    posterior : `ConjugatePosterior` of a model with the exact local step.
    data : of the fit.
    prior : blocks of the prior; those of the model where None. Points, such as weights of intents, are held.
    """
    model, blocks, random = posterior.model, posterior.blocks, numpy_generator(key)
    drawn = {name: blocks[name].sample_numpy(random, num_draws) for name in sorted(blocks)}
    batch = model.arrange(padded_data(model, data))
    return np.asarray(_log_ratios(model, blocks, prior or model.prior(), batch, drawn), float)


@quick_jit(calls=2**9)
def _log_ratios(model: Any, blocks: Any, prior: Any, batch: Any, drawn: Any) -> Array:
    def one(given: Any) -> Array:
        values = {name: x if isinstance(x, tuple) else (x,) for name, x in given.items()}
        expected = {name: blocks[name].statistics(*value) for name, value in values.items()}
        expected = jax.tree.map(lambda s: jnp.where(s == -jnp.inf, SMALLEST, s), expected)
        free = {name: s for name, s in expected.items() if jax.tree.leaves(s)}  # others are points
        products = [
            jax.tree.map(lambda q, p, s: jnp.sum((q - p) * s), blocks[name].natural, prior[name].natural, s)
            for name, s in free.items()
        ]
        return model.log_normalizer(expected, batch) - sum(jax.tree.leaves(products))

    return lax.map(one, drawn)
