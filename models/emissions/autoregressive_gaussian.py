"""Gaussian vector autoregressions of given coefficients, as a numpyro distribution of frames given those before."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import Array, lax
from numpyro.distributions import constraints

from ethogram.models.chains.emitted_steps import DependentSteps, Past
from ethogram.models.emissions.missing_features import MarginalNormal, whitened_log_density

__all__ = ["AutoregressiveGaussian", "with_lags"]


class AutoregressiveGaussian(DependentSteps):
    r"""Gaussian frames whose mean is linear in the frames before, in every state.

    .. math:: y_t \mid z_t = k \sim N(m + A_k (y_{t-1} - m, \ldots, y_{t-L} - m, 1), \Sigma_k)

    A frame of which one of the L frames before is not known, or is before the first, is from N(m, S) in every state.

    Parameters
    ----------
    coefficients : A (state, feature, regressor), of L D + 1 regressors.
    covariance : Sigma (state, feature, feature).
    mean, start_covariance : m (feature,) and S (feature, feature).
    """

    arg_constraints: ClassVar[dict] = {}
    support = constraints.real_vector
    pytree_data_fields = ("coefficients", "factor", "centre", "start_factor")
    pytree_aux_fields = ("order",)

    def __init__(
        self,
        coefficients: Any,
        covariance: Any,
        mean: Any,
        start_covariance: Any,
        *,
        validate_args: bool | None = None,
    ):
        self.coefficients = jnp.asarray(coefficients)
        self.factor = jnp.linalg.cholesky(jnp.asarray(covariance))
        self.centre, self.start_factor = jnp.asarray(mean), jnp.linalg.cholesky(jnp.asarray(start_covariance))
        *batch, size, count = self.coefficients.shape
        self.order = (count - 1) // size
        super().__init__(tuple(batch), (size,), validate_args=validate_args)

    @property
    def _start(self) -> MarginalNormal:
        """Distribution N(m, S) of a frame without its past."""
        return MarginalNormal(self.centre, scale_tril=self.start_factor, num_patterns=1)

    def log_prob(self, value: Any) -> Array:
        """Log density (..., state) of frames (..., feature) before which nothing is known: that of N(m, S)."""
        start = self._start.log_prob(value)
        return jnp.broadcast_to(start, jnp.broadcast_shapes(start.shape, self.batch_shape))

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Frames (*sample_shape, state, feature) before which nothing is known."""
        return self._start.sample(key, (*sample_shape, *self.batch_shape))

    def log_prob_of_steps(self, value: Array, known: Array) -> Array:
        """Log density (..., time, state) of the known frames of values (..., time, feature)."""
        x = jnp.where(known[..., None], value - self.centre, 0)
        regressors, complete = with_lags(jnp, x, known, self.order)
        rows = jnp.concatenate([x, regressors], axis=-1)
        identity = jnp.broadcast_to(jnp.eye(x.shape[-1], dtype=self.factor.dtype), self.factor.shape)
        residual = jnp.concatenate([identity, -self.coefficients], axis=-1)
        each = whitened_log_density(self.factor, residual, rows.reshape(-1, rows.shape[-1]).T)
        each = each.reshape(*x.shape[:-1], len(residual))
        return jnp.where(complete[..., None], each, self.log_prob(value[..., None, :]))

    def sample_steps(self, key: Array, states: Array, known: Array, past: Past | None) -> Array:
        """Frames (..., time, feature) of states (..., time), one after another."""
        size, order = self.event_shape[0], self.order
        batch = states.shape[:-1]
        noise = jax.random.normal(key, (*states.shape, size), self.coefficients.dtype)
        if past is None:
            lags, seen = jnp.zeros((*batch, order, size), noise.dtype), jnp.zeros((*batch, order), bool)
        else:  # the latest first
            value, seen = past.value[..., ::-1, :], jnp.broadcast_to(past.known[..., ::-1], (*batch, order))
            lags = jnp.broadcast_to(jnp.where(seen[..., None], value - self.centre, 0), (*batch, order, size))
            lags = lags.astype(noise.dtype)

        def step(carry, now):
            lags, seen = carry
            state, noise, here = now
            regressors = jnp.concatenate([lags.reshape(*batch, -1), jnp.ones((*batch, 1), noise.dtype)], -1)
            centre = jnp.einsum("...dp,...p->...d", self.coefficients[state], regressors, precision="highest")
            follows = centre + jnp.einsum("...ij,...j->...i", self.factor[state], noise, precision="highest")
            start = jnp.matmul(noise, self.start_factor.T, precision="highest")
            frame = jnp.where(jnp.all(seen, -1, keepdims=True), follows, start)
            lags = jnp.concatenate([frame[..., None, :], lags[..., :-1, :]], axis=-2)
            return (lags, jnp.concatenate([here[..., None], seen[..., :-1]], axis=-1)), frame

        steps = (jnp.moveaxis(states, -1, 0), jnp.moveaxis(noise, -2, 0), jnp.moveaxis(known, -1, 0))
        return jnp.moveaxis(lax.scan(step, (lags, seen), steps)[1], 0, -2) + self.centre


def with_lags(xp: Any, x: Any, known: Any, order: int) -> tuple[Any, Any]:
    """Regressors (..., time, regressor) of frames (..., time, feature), and whether a frame and its past are known.

    The frames 1, ..., `order` steps before, and 1; of NumPy or JAX arrays, by the array module ``xp``. Frames that are
    not known (..., time) must be finite.
    """
    num_steps = x.shape[-2]

    def delayed(values, axis, lag):
        pad = [(0, 0)] * values.ndim
        pad[axis] = (min(lag, num_steps), 0)
        return xp.pad(values, pad)[(..., slice(num_steps), *[slice(None)] * (-1 - axis))]

    complete = known
    for lag in range(1, order + 1):
        complete = complete & delayed(known, -1, lag)
    past = [delayed(x, -2, lag) for lag in range(1, order + 1)]
    return xp.concatenate([*past, xp.ones_like(x[..., :1])], axis=-1), complete
