"""Gaussians whose densities sum out the features that are NaN."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array, lax
from jax.scipy.linalg import solve_triangular

from ethogram.models.emissions.missing_features import WORD, blocks_of, in_frames, in_slots

__all__ = ["GappedNormal"]


class GappedNormal(dist.MultivariateNormal):
    """Multivariate normal distributions whose values are NaN in missing features: these are summed out.

    Samples have all features. Covariances are factored once for every set of missing features.

    Parameters
    ----------
    loc, covariance_matrix : (*batch, feature) and (*batch, feature, feature).
    num_patterns : sets of features that are missing in the values, at most; None where that is not known, and values
        without NaN take the usual density.
    """

    pytree_aux_fields = ("num_patterns",)

    def __init__(self, loc: Any, covariance_matrix: Any, num_patterns: int | None = None):
        self.num_patterns = num_patterns
        super().__init__(loc, covariance_matrix, validate_args=False)

    def log_prob(self, value: Any) -> Array:
        """Log density (...) of the features that are not NaN, of values (..., feature)."""
        value = jnp.asarray(value)
        shape = jnp.broadcast_shapes(value.shape[:-1], self.batch_shape)
        axes = len(self.batch_shape)
        size = value.shape[-1]
        loc, factor = self.loc.reshape(-1, size), self.scale_tril.reshape(-1, size, size)
        if value.shape[value.ndim - 1 - axes : -1] != (1,) * axes:  # values for each entry of the batch
            entry = jnp.broadcast_to(np.arange(len(loc)).reshape(self.batch_shape), shape).ravel()
            frames = jnp.broadcast_to(value, (*shape, size)).reshape(-1, 1, size)
            return jax.vmap(lambda at, x: _marginal(loc[at][None], factor[at][None], x, 1)[0, 0])(
                entry, frames
            ).reshape(shape)
        frames = value.reshape(-1, size)
        if self.num_patterns is not None:
            return _marginal(loc, factor, frames, self.num_patterns).reshape(shape)
        count = 2 ** min(size, WORD)
        return lax.cond(
            jnp.isnan(frames).any(),
            lambda: _marginal(loc, factor, frames, count).reshape(shape),
            lambda: jnp.broadcast_to(super(GappedNormal, self).log_prob(value), shape),
        )


def _marginal(loc: Array, factor: Array, frames: Array, num_patterns: int) -> Array:
    """Log densities (frame, entry) of frames (frame, feature) in blocks that miss the same features."""
    missing = jnp.isnan(frames)
    size = frames.shape[-1]
    blocks = blocks_of(missing, num_patterns)
    out = blocks.missing[:, None]
    covariance = jnp.einsum("kij,klj->kil", factor, factor, precision="highest")
    apart = out[..., :, None] | out[..., None, :]
    masked = jnp.where(apart, jnp.eye(size, dtype=factor.dtype), covariance)
    root = jnp.linalg.cholesky(masked)
    identity = jnp.broadcast_to(jnp.eye(size, dtype=factor.dtype), root.shape)
    whitening = solve_triangular(root, identity, lower=True)
    scale = jnp.sum(jnp.log(jnp.diagonal(root, axis1=-2, axis2=-1)), axis=-1)
    scale = scale + 0.5 * math.log(2 * math.pi) * jnp.sum(~out, axis=-1)
    x = in_slots(jnp.where(missing, 0, frames), blocks)[:, None] - loc[:, None]
    x = jnp.where(out[blocks.pattern][..., None, :], 0, x)
    white = jnp.einsum("bkij,bkwj->bkwi", whitening[blocks.pattern], x, precision="highest")
    values = -0.5 * jnp.sum(white**2, axis=-1) - scale[blocks.pattern][..., None]
    return in_frames(jnp.swapaxes(values, 1, 2), blocks)
