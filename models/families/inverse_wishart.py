r"""What blocks of Gaussians with an inverse-Wishart covariance share, by the lower Cholesky factor of the scale Psi.

.. math:: p(\Sigma) \propto |\Sigma|^{-(\nu + D + 1) / 2} \exp(-\tfrac12 \mathrm{tr}\, \Psi \Sigma^{-1})
"""

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import digamma
from jaxtyping import Array, Float

from ethogram.models.arguments import is_concrete, require, require_covariance
from ethogram.models.families.array_modules import modules_of
from ethogram.models.families.cholesky_factors import half_log_det, solve
from ethogram.models.families.divergences import half_dofs
from ethogram.models.families.variates import Variates

__all__ = ["covariance_mean", "draw_roots", "expected_half_log_precision", "require_proper"]


def require_proper(dof: Any, scale: Any) -> None:
    """Raise ValueError unless concrete nu exceed D - 1, and concrete Psi are symmetric positive definite."""
    size = scale.shape[-1]
    if is_concrete(dof):
        fix = f"dof must exceed D - 1 = {size - 1}; D + 2 gives the covariance a mean"
        require(np.asarray(dof) > size - 1, "dof", dof, f"is too small for {size} features", fix)
    if is_concrete(scale):
        require_covariance("scale", scale)


def expected_half_log_precision(
    dof: Float[Array, "*batch"], factor: Float[Array, "*batch feature feature"]
) -> Float[Array, "*batch"]:
    """E(-log|Sigma| / 2), (sum_d psi((nu + 1 - d) / 2) + D log 2 - log|Psi|) / 2."""
    dimension = factor.shape[-1]
    log_precision = jnp.sum(digamma(half_dofs(dof, dimension)), axis=-1) + dimension * math.log(2)
    return 0.5 * log_precision - half_log_det(factor)


def draw_roots(
    of_diagonal: Variates, of_below: Variates, dof: Any, factor: Any, sample_shape: tuple[int, ...]
) -> Any:
    """Roots Y (*sample_shape, *batch, feature, feature) of covariances Sigma = Y Y'.

    Bartlett's decomposition in its inverse form: with A lower triangular, A_ii^2 ~ chi^2(nu - D + i) and standard
    normal below, Y = L A^-1 for Psi = L L'.
    """
    xp, _ = modules_of(dof, factor)
    shape, dimension = (*sample_shape, *factor.shape), factor.shape[-1]
    log_diagonal = of_diagonal.log_gamma(half_dofs(dof, dimension)[..., ::-1], sample_shape) + math.log(2)
    below = of_below.normal(shape, factor.dtype)
    identity = xp.broadcast_to(xp.eye(dimension, dtype=factor.dtype), shape)
    bartlett = xp.tril(below, -1) + xp.exp(0.5 * log_diagonal)[..., None] * identity
    return solve(bartlett, xp.broadcast_to(factor.mT, shape), transposed=True).mT


def covariance_mean(dof: Array, scale: Array) -> Float[Array, "*batch feature feature"]:
    """Psi / (nu - D - 1), infinite where nu <= D + 1: there is no mean."""
    spare = (dof - (scale.shape[-1] + 1))[..., None, None]
    return jnp.where(spare > 0, scale / jnp.where(spare > 0, spare, 1), jnp.inf)
