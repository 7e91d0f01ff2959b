r"""The covariance function of rewards: a squared exponential with noise in the features.

.. math:: k(x_i, x_j) = \lambda_0 \exp\Big(-\tfrac12 \sum_l \lambda_l (x_{il} - x_{jl})^2
          - [i \ne j]\, \sigma^2 \sum_l \lambda_l\Big)

With :math:`h = \sigma^2 \sum_l \lambda_l` this is :math:`\lambda_0 e^{-h}` times a squared exponential, and white noise
of variance :math:`\lambda_0 (1 - e^{-h})`. [i = j] compares states, not features: two states with the same features
have different rewards, and so do a state and an inducing point copied from it.

Levine, Popovic and Koltun (2011), "Nonlinear inverse reinforcement learning with Gaussian processes", eq. 6, where the
noise is the expected squared distance of inputs that are themselves noisy, of variance :math:`\sigma^2` each.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array, lax
from jax.scipy.linalg import solve_triangular
from jaxtyping import Float

__all__ = [
    "RewardMap",
    "conditional_map",
    "conditional_sd",
    "covariance",
    "cross_covariance",
    "jittered",
    "root",
    "white_share",
    "whitened_cross",
]

JITTER = 4.0
"""Diagonal jitter, in units of the machine epsilon times the number of points."""


class RewardMap(NamedTuple):
    """Rewards given hyper-parameters, ``weights @ w + noise @ e`` with w and e standard normal.

    The noise is a matrix, the standard deviations (point,) where it is independent, or None.
    """

    weights: Float[Array, "point w"]
    noise: Array | None

    def reward(self, white: Array, rest: Array | None = None) -> Array:
        """Rewards (..., point) of w (..., w) and e (..., point)."""
        reward = white @ self.weights.T
        if self.noise is None or rest is None:
            return reward
        return reward + (rest * self.noise if self.noise.ndim == 1 else rest @ self.noise.T)


def covariance(
    features: Float[Array, "state feature"], scale: Any, relevance: Float[Array, "feature"], noise: Any
) -> Float[Array, "state state"]:
    """Covariances of the rewards of states with these features; `scale` on the diagonal."""
    apart = cross_covariance(features, features, scale, relevance, noise)
    same = jnp.eye(len(features), dtype=bool)
    return jnp.where(same, jnp.broadcast_to(scale, apart.shape), apart)


def cross_covariance(
    features: Float[Array, "point feature"],
    others: Float[Array, "other feature"],
    scale: Any,
    relevance: Float[Array, "feature"],
    noise: Any,
) -> Float[Array, "point other"]:
    """Covariances of the rewards of points and others; no point may be one of the others."""
    return scale * jnp.exp(-0.5 * _distances(features, others, relevance) - noise * jnp.sum(relevance))


def _distances(features: Array, others: Array, relevance: Array) -> Array:
    """Squared distances with features weighted by their relevance."""
    # Digits are lost in squares of what is far from zero.
    middle = lax.stop_gradient(jnp.mean(features, axis=0))
    features, others = features - middle, others - middle
    weighted = features * relevance
    squares = jnp.sum(weighted * features, -1)[:, None] + jnp.sum(others * relevance * others, -1)
    return jnp.maximum(squares - 2 * jnp.matmul(weighted, others.T, precision="highest"), 0)


def jittered(matrix: Float[Array, "point point"], scale: Any) -> Float[Array, "point point"]:
    """A covariance with `scale` on its diagonal, and a little more, so that it has a Cholesky factor."""
    slack = JITTER * len(matrix) * jnp.finfo(matrix.dtype).eps * scale
    return matrix + slack * jnp.eye(len(matrix), dtype=matrix.dtype)


def root(matrix: Float[Array, "point point"], scale: Any) -> Float[Array, "point point"]:
    """Cholesky factor of a covariance with `scale` on its diagonal."""
    return jnp.linalg.cholesky(jittered(matrix, scale))


def conditional_map(
    features: Float[Array, "state feature"],
    inducing: Float[Array, "inducing feature"],
    scale: Any,
    relevance: Float[Array, "feature"],
    noise: Any,
    independent: bool,
) -> RewardMap:
    """All rewards given inducing points, as a map of standard normal variables.

    With `independent` the noise is the conditional standard deviation of every reward, and no matrix (state, state) is
    formed.
    """
    half = whitened_cross(features, inducing, scale, relevance, noise)[1]
    if independent:
        return RewardMap(half.T, conditional_sd(half, scale))
    own = covariance(features, scale, relevance, noise)
    return RewardMap(half.T, root(own - jnp.matmul(half.T, half, precision="highest"), scale))


def conditional_sd(half: Float[Array, "inducing state"], prior_variance: Any) -> Float[Array, "state"]:
    r"""Standard deviations of rewards given inducing points, of :math:`L^{-1} K_{ur}`."""
    left = prior_variance - jnp.sum(half**2, axis=0)
    return jnp.sqrt(jnp.maximum(left, jnp.finfo(half.dtype).eps * prior_variance))


def whitened_cross(
    features: Array, inducing: Array, scale: Any, relevance: Array, noise: Any
) -> tuple[Array, Array]:
    """Cholesky factor L of the covariance of the inducing points, and L^-1 K (inducing, state)."""
    low = root(covariance(inducing, scale, relevance, noise), scale)
    cross = cross_covariance(inducing, features, scale, relevance, noise)
    return low, solve_triangular(low, cross, lower=True)


def white_share(relevance: Float[Array, "*batch feature"], noise: Any) -> Float[Array, "*batch"]:
    r"""Share :math:`1 - e^{-h}` of the prior variance of rewards that is white noise, independent between states."""
    return -jnp.expm1(-noise * jnp.sum(relevance, axis=-1))
