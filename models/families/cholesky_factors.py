"""Products, and positive definite matrices by their lower Cholesky factors, of NumPy or JAX arrays.

Products are in full precision, which accelerators do not use by default. Matrices of one row need no factorization.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

from ethogram.models.families.array_modules import modules_of

__all__ = ["cholesky", "half_log_det", "inverse", "product", "solve", "solve_positive"]


def product(left: Any, right: Any) -> Any:
    """Matrix products, whose batch axes broadcast; those with a column are elementwise, which XLA fuses."""
    xp, _ = modules_of(left, right)
    if left.shape[-1] == 1:
        return left * right
    if right.shape[-1] == 1:
        return xp.sum(left * right.mT, axis=-1, keepdims=True)
    return left @ right if xp is np else jnp.matmul(left, right, precision="highest")


def cholesky(matrix: Any) -> Any:
    """Lower Cholesky factors L of L L'."""
    xp, _ = modules_of(matrix)
    return xp.sqrt(matrix) if matrix.shape[-1] == 1 else xp.linalg.cholesky(matrix)


def solve(factor: Any, right: Any, transposed: bool = False) -> Any:
    """L^-1 R, or L'^-1 R, for lower triangular factors L; batch axes broadcast."""
    xp, _ = modules_of(factor, right)
    batch = np.broadcast_shapes(factor.shape[:-2], right.shape[:-2])
    factor, right = (xp.broadcast_to(x, (*batch, *x.shape[-2:])) for x in (factor, right))
    if factor.shape[-1] == 1:
        return right / factor
    if xp is np:
        return np.linalg.solve(factor.mT if transposed else factor, right)
    return solve_triangular(factor, right, trans=int(transposed), lower=True)


def solve_positive(factor: Any, right: Any) -> Any:
    """(L L')^-1 R for lower triangular factors L; batch axes broadcast."""
    return solve(factor, solve(factor, right), transposed=True)


def half_log_det(factor: Float[Array, "*batch feature feature"]) -> Float[Array, "*batch"]:
    """log|L L'| / 2."""
    return jnp.sum(jnp.log(jnp.diagonal(factor, axis1=-2, axis2=-1)), axis=-1)


def inverse(factor: Float[Array, "*batch feature feature"]) -> Float[Array, "*batch feature feature"]:
    """(L L')^-1, symmetric to the last bit."""
    identity = jnp.broadcast_to(jnp.eye(factor.shape[-1], dtype=factor.dtype), factor.shape)
    inverse = solve_positive(factor, identity)
    return 0.5 * (inverse + inverse.mT)
