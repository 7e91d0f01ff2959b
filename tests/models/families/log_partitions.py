"""Log normalisers by natural coordinates, as textbooks print them: Bishop (2006), appendix B; Murphy (2007)."""

from __future__ import annotations

import math

import jax.numpy as jnp
from jax import Array
from jax.scipy.special import gammaln, multigammaln

__all__ = ["beta", "dirichlet", "matrix_normal_inverse_wishart", "normal", "normal_inverse_wishart"]


def dirichlet(concentration: Array) -> Array:
    return jnp.sum(gammaln(concentration), -1) - gammaln(jnp.sum(concentration, -1))


def beta(successes: Array, failures: Array) -> Array:
    return gammaln(successes) + gammaln(failures) - gammaln(successes + failures)


def normal(precision_mean: Array, precision: Array) -> Array:
    mean = jnp.linalg.solve(precision, precision_mean[..., None])[..., 0]
    constant = precision_mean.shape[-1] * math.log(2 * math.pi) - jnp.linalg.slogdet(precision)[1]
    return 0.5 * (jnp.sum(mean * precision_mean, -1) + constant)


def normal_inverse_wishart(location: Array, strength: Array, dof: Array, scatter: Array) -> Array:
    return matrix_normal_inverse_wishart(location[..., None], strength[..., None, None], dof, scatter)


def matrix_normal_inverse_wishart(location: Array, precision: Array, dof: Array, scatter: Array) -> Array:
    size, count = location.shape[-2:]
    scale = scatter - location @ jnp.linalg.solve(precision, location.mT)
    nu = dof - size - count - 1
    gaussian = 0.5 * size * (count * math.log(2 * math.pi) - jnp.linalg.slogdet(precision)[1])
    wishart = 0.5 * nu * (size * math.log(2) - jnp.linalg.slogdet(scale)[1])
    return gaussian + wishart + multigammaln(0.5 * nu, size)
