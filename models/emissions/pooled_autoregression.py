"""One vector autoregression of all frames by least squares, from which the priors of an emission are taken."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from ethogram.models.arguments import concretely
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.emissions.autoregressive_gaussian import with_lags
from ethogram.models.emissions.data_prior import SHRINKAGE, data_moments

__all__ = ["PooledAutoregression", "pooled_autoregression"]

LEAST_RESIDUAL = 1e-8
"""Share of the variance that is left unexplained at least, so that frames that follow exactly leave a proper prior."""

ROUNDING = 1e3
"""Relative to the precision, the least share of the frames that the ridge is worth."""


class PooledAutoregression(NamedTuple):
    """Mean and covariance of the frames, and an autoregression of those whose past is known."""

    mean: Float[Array, "feature"]
    covariance: Float[Array, "feature feature"]
    coefficients: Float[
        np.ndarray, "feature regressor"
    ]  # of frames relative to the mean; the intercept is last
    residual_covariance: Float[Array, "feature feature"]
    whitening: Float[Array, "regressor regressor"]  # T, lower triangular: T h has the mean square I


def pooled_autoregression(data: Trajectories, order: int, mean: Any, dtype: Any) -> PooledAutoregression:
    """Least squares, of features scaled to the covariance I, with a ridge that is worth (P / n)^2 frames.

    P is the number of regressors, n that of frames whose past is known; the ridge is worth one frame at most.

    Parameters
    ----------
    order : frames before each that it depends on.
    mean : that frames are relative to; that of the data where None.
    """
    moments = data_moments(data, dtype)
    centre = moments.mean if mean is None else mean

    def fitted(xp, x, observed, centre, covariance):
        wide = np.float64 if xp is np else jnp.result_type(x.dtype, dtype)
        size = x.shape[-1]
        root = xp.linalg.cholesky(covariance.astype(wide))
        unit = xp.linalg.inv(root)
        scaled = xp.where(observed[..., None], x.astype(wide) - centre.astype(wide), 0) @ unit.T
        regressors, complete = with_lags(xp, scaled, observed, order)
        h = xp.where(complete[..., None], regressors, 0).reshape(-1, regressors.shape[-1])
        z = xp.where(complete[..., None], scaled, 0).reshape(-1, size)
        count, identity = xp.sum(complete), xp.eye(h.shape[-1], dtype=wide)
        ridge = (
            xp.minimum(1, (h.shape[-1] / xp.maximum(count, 1)) ** 2) + ROUNDING * xp.finfo(wide).eps * count
        )
        square = h.T @ h + ridge * identity
        coefficients = xp.linalg.solve(square, h.T @ z).T
        residual = z - h @ coefficients.T
        residual = residual @ root.T
        variance, apart = xp.diagonal(covariance), ~xp.eye(size, dtype=bool)
        still = xp.mean((z @ root.T) ** 2, axis=0) < LEAST_RESIDUAL * variance  # or no frame has its past
        unexplained = residual.T @ residual / xp.maximum(count - h.shape[-1], 1)
        unexplained = unexplained + xp.diag(xp.where(still, 1, LEAST_RESIDUAL) * variance)
        unexplained = xp.where(apart, (1 - SHRINKAGE) * unexplained, unexplained)
        lags = xp.kron(xp.eye(order, dtype=wide), unit)
        lags = xp.pad(lags, [(0, 1), (0, 1)]) + xp.diag(identity[-1])
        whitening = xp.linalg.inv(xp.linalg.cholesky(square / xp.maximum(count, 1)))
        found = (root @ coefficients @ lags, unexplained, xp.tril(whitening @ lags))
        return tuple(part.astype(dtype) for part in found)

    with jax.default_matmul_precision("highest"):
        found = concretely(fitted, data.observations, data.observed, centre, moments.covariance)
    return PooledAutoregression(centre, moments.covariance, *found)
