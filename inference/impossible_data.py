"""Which sequences a model calls impossible: looked for only once a fit has failed on them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ethogram.models.exponential_family import ConjugateBlock, expected_statistics

__all__ = ["impossible_sequences"]


def impossible_sequences(model: Any, blocks: dict[str, ConjugateBlock], batch: Any) -> np.ndarray:
    """Numbers of the sequences whose own log normaliser is ``-inf``.

    Where the model joins the agents of a group, all of an impossible group's.

    Parameters
    ----------
    model : a conjugate model.
    blocks : one q(theta), without an axis of restarts.
    batch : all data as the model arranges them, in order of their groups.
    """
    size = getattr(batch, "num_agents", 1)
    units = jax.tree.map(lambda x: jnp.reshape(x, (-1, size, *x.shape[1:])), batch)
    values = np.asarray(_log_normalizers(model, expected_statistics(blocks), units))
    return np.flatnonzero(np.repeat(np.isneginf(values), size))


@jax.jit
def _log_normalizers(model, expected, units):
    return lax.map(lambda one: model.log_normalizer(expected, one), units)
