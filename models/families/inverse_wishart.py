r"""What blocks of Gaussians with an inverse-Wishart covariance share, by the lower Cholesky factor of the scale Psi.

.. math:: p(\Sigma) \propto |\Sigma|^{-(\nu + D + 1) / 2} \exp(-\tfrac12 \mathrm{tr}\, \Psi \Sigma^{-1})
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jax.scipy.special import digamma, gammaln
from jaxtyping import Array, Float

from ethogram.models.families.cholesky_factors import half_log_det
from ethogram.models.families.divergences import half_dofs
from ethogram.models.families.host_gamma import draw_log_gamma

__all__ = [
    "covariance_mean",
    "draw_roots",
    "draw_roots_on_host",
    "expected_half_log_precision",
    "log_integral",
]


def log_integral(
    dof: Float[Array, "*batch"], factor: Float[Array, "*batch feature feature"]
) -> Float[Array, "*batch"]:
    """Log of the integral of the density without its constant.

    nu D/2 log 2 + log Gamma_D(nu / 2) - nu/2 log|Psi|.
    """
    dimension = factor.shape[-1]
    log_gamma = jnp.sum(gammaln(half_dofs(dof, dimension)), axis=-1)
    powers = 0.5 * dimension * (dof * math.log(2) + 0.5 * (dimension - 1) * math.log(math.pi))
    return log_gamma + powers - dof * half_log_det(factor)


def expected_half_log_precision(
    dof: Float[Array, "*batch"], factor: Float[Array, "*batch feature feature"]
) -> Float[Array, "*batch"]:
    """E(-log|Sigma| / 2), (sum_d psi((nu + 1 - d) / 2) + D log 2 - log|Psi|) / 2."""
    dimension = factor.shape[-1]
    log_precision = jnp.sum(digamma(half_dofs(dof, dimension)), axis=-1) + dimension * math.log(2)
    return 0.5 * log_precision - half_log_det(factor)


def draw_roots(
    key_diagonal: Any, key_below: Any, dof: Array, factor: Array, sample_shape: tuple[int, ...]
) -> Float[Array, "*shape feature feature"]:
    """Roots Y (*sample_shape, *batch, feature, feature) of covariances Sigma = Y Y'.

    Bartlett's decomposition in its inverse form: with A lower triangular, A_ii^2 ~ chi^2(nu - D + i) and standard
    normal below, Y = L A^-1 for Psi = L L'.
    """
    shape = (*sample_shape, *factor.shape[:-1])
    dimension = factor.shape[-1]
    halves = jnp.broadcast_to(half_dofs(dof, dimension)[..., ::-1], shape)
    log_diagonal = jax.random.loggamma(key_diagonal, halves, dtype=factor.dtype) + math.log(2)
    below = jax.random.normal(key_below, (*shape, dimension), dtype=factor.dtype)
    identity = jnp.broadcast_to(jnp.eye(dimension, dtype=factor.dtype), below.shape)
    bartlett = jnp.tril(below, -1) + jnp.exp(0.5 * log_diagonal)[..., None] * identity
    factor = jnp.broadcast_to(factor, below.shape)
    return solve_triangular(bartlett, factor.mT, trans=1, lower=True).mT


def draw_roots_on_host(
    random: np.random.Generator, dof: np.ndarray, scale: np.ndarray, num_draws: int
) -> Float[np.ndarray, "draw *batch feature feature"]:
    """The same roots as NumPy arrays, with one leading axis, of scales Psi (*batch, feature, feature)."""
    dimension = scale.shape[-1]
    halves = 0.5 * (dof[..., None] - np.arange(dimension)[::-1])
    diagonal = np.exp(0.5 * (draw_log_gamma(random, halves, num_draws) + math.log(2)))
    below = random.standard_normal((num_draws, *scale.shape))
    bartlett = np.tril(below, -1) + diagonal[..., None] * np.eye(dimension)
    factor = np.linalg.cholesky(scale).swapaxes(-2, -1)
    return np.linalg.solve(bartlett.swapaxes(-2, -1), factor).swapaxes(-2, -1)


def covariance_mean(dof: Array, scale: Array) -> Float[Array, "*batch feature feature"]:
    """Psi / (nu - D - 1), infinite where nu <= D + 1: there is no mean."""
    spare = (dof - (scale.shape[-1] + 1))[..., None, None]
    return jnp.where(spare > 0, scale / jnp.where(spare > 0, spare, 1), jnp.inf)
