"""One vector autoregression of all frames by least squares, from which the priors of an emission are taken."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jax import Array
from jaxtyping import Float

from ethogram.models.arguments import concretely
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.emissions.data_prior import data_moments

__all__ = ["PooledAutoregression", "pooled_autoregression", "with_lags"]

LEAST_RESIDUAL = 1e-8
"""Share of the variance that is left unexplained at least, so that frames that follow exactly leave a proper prior."""


class PooledAutoregression(NamedTuple):
    """Mean and covariance of the frames, and an autoregression of those whose past is known."""

    mean: Float[Array, "feature"]
    covariance: Float[Array, "feature feature"]
    coefficients: Float[
        np.ndarray, "feature regressor"
    ]  # of frames relative to the mean; the intercept is last
    residual_covariance: Float[Array, "feature feature"]
    whitening: Float[Array, "regressor regressor"]  # T, lower triangular: T h has the mean square I


def with_lags(xp: Any, x: Any, observed: Any, order: int) -> tuple[Any, Any]:
    """Regressors (sequence, time, regressor) of frames (sequence, time, feature), and whether all are known.

    The frames 1, ..., `order` steps before, and 1; of NumPy or JAX arrays, by the array module ``xp``. Frames that were
    not observed must be finite.
    """
    num_steps = x.shape[1]

    def delayed(values, lag):
        pad = [(0, 0), (min(lag, num_steps), 0)] + [(0, 0)] * (values.ndim - 2)
        return xp.pad(values, pad)[:, :num_steps]

    complete = observed
    for lag in range(1, order + 1):
        complete = complete & delayed(observed, lag)
    past = [delayed(x, lag) for lag in range(1, order + 1)]
    return xp.concatenate([*past, xp.ones_like(x[..., :1])], axis=-1), complete


def pooled_autoregression(data: Trajectories, order: int, mean: Any, dtype: Any) -> PooledAutoregression:
    """Least squares with a ridge worth one frame, of features scaled to the covariance I.

    Parameters
    ----------
    order : frames before each that it depends on.
    mean : that frames are relative to; that of the data where None.
    """
    moments = data_moments(data, dtype)
    centre = moments.mean if mean is None else mean

    def fitted(xp, x, observed, centre, covariance):
        wide = np.float64 if xp is np else x.dtype
        size = x.shape[-1]
        root = xp.linalg.cholesky(covariance.astype(wide))
        unit = xp.linalg.inv(root)
        scaled = xp.where(observed[..., None], x.astype(wide) - centre.astype(wide), 0) @ unit.T
        regressors, complete = with_lags(xp, scaled, observed, order)
        h = xp.where(complete[..., None], regressors, 0).reshape(-1, regressors.shape[-1])
        z = xp.where(complete[..., None], scaled, 0).reshape(-1, size)
        count, identity = xp.sum(complete), xp.eye(h.shape[-1], dtype=wide)
        square = h.T @ h + identity
        coefficients = xp.linalg.solve(square, h.T @ z).T
        residual = z - h @ coefficients.T
        unexplained = residual.T @ residual / xp.maximum(count - h.shape[-1], 1)
        unexplained = xp.where(count > 0, unexplained, xp.eye(size, dtype=wide))
        unexplained = unexplained + LEAST_RESIDUAL * xp.eye(size, dtype=wide)
        apart = xp.kron(xp.eye(order, dtype=wide), unit)
        apart = xp.pad(apart, [(0, 1), (0, 1)]) + xp.diag(identity[-1])
        whitening = xp.linalg.inv(xp.linalg.cholesky(square / (count + 1)))
        found = (root @ coefficients @ apart, root @ unexplained @ root.T, xp.tril(whitening @ apart))
        return tuple(part.astype(dtype) for part in found)

    found = concretely(fitted, data.observations, data.observed, centre, moments.covariance)
    return PooledAutoregression(centre, moments.covariance, *found)
