"""Log determinants and inverses of positive definite matrices by their lower Cholesky factors."""

import jax.numpy as jnp
from jax.scipy.linalg import cho_solve
from jaxtyping import Array, Float

__all__ = ["half_log_det", "inverse"]


def half_log_det(factor: Float[Array, "*batch feature feature"]) -> Float[Array, "*batch"]:
    """log|L L'| / 2."""
    return jnp.sum(jnp.log(jnp.diagonal(factor, axis1=-2, axis2=-1)), axis=-1)


def inverse(factor: Float[Array, "*batch feature feature"]) -> Float[Array, "*batch feature feature"]:
    """(L L')^-1, symmetric to the last bit."""
    identity = jnp.broadcast_to(jnp.eye(factor.shape[-1], dtype=factor.dtype), factor.shape)
    inverse = cho_solve((factor, True), identity)
    return 0.5 * (inverse + inverse.mT)
