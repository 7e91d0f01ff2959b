r"""A sweep of data augmentation for the probit with a covariance of alternatives, and its exact Metropolis factor.

Utilities less that of the base are drawn one alternative after the other; then a scale, the values and the covariance,
by way of unidentified :math:`\tilde\theta = \alpha \theta` and :math:`\tilde\Sigma = \alpha^2 \Sigma`. Imai and van Dyk
(2005), "A Bayesian analysis of the multinomial probit model using marginal data augmentation"; Burgette and Nordheim
(2012), "The trace restriction". Erratum: both draw :math:`\tilde\Sigma` given :math:`\tilde\theta` as if the prior of
the latter did not depend on the scale. The proposal is accepted with the ratio of these priors,

.. math:: (\alpha^2 / \alpha'^2)^{k/2} \exp\{-\tilde\theta' A \tilde\theta\, (\alpha'^{-2} - \alpha^{-2}) / 2\},

with k values of prior precision A; always accepting moves posterior means by half a standard deviation in 60 decisions.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.linalg import cholesky, solve_triangular

from ethogram.inference.choices.latent_utilities import normal_below, open_uniform
from ethogram.models.choices.covariance_noise import independent_covariance, inverse_wishart, scaled_to_trace

__all__ = ["CovarianceProblem", "covariance_problem", "first_latents", "sweep_covariance"]

FREE = 40.0
"""Standard deviations to a bound that does not bind."""


class CovarianceProblem(NamedTuple):
    """Decisions as a sweep reads them; those without a choice among several alternatives are dropped."""

    design: (
        Array  # (difference, decision, parameter): alternatives less the base, zero where one is not legal
    )
    sums: Array  # (difference, difference, parameter, parameter), over decisions
    legal: Array  # (alternative, decision, 1) booleans
    chosen: Array  # (alternative, decision, 1) booleans
    precision: Array  # (parameter,) of the prior
    degrees: Array  # of freedom of the prior of the covariance


def covariance_problem(
    design: np.ndarray, legal: np.ndarray, choice: np.ndarray, degrees: Any
) -> CovarianceProblem:
    """The decisions from a design (decision, alternative, parameter), without a prior of the values yet.

    Where the base is not legal its utility is any, here zero; where another is not, its difference is an error alone.
    """
    kept = (legal.sum(-1) > 1) & (choice >= 0)
    design, legal, choice = np.asarray(design, float)[kept], legal[kept], choice[kept]
    design = np.where(legal[..., None], design, 0)
    rows = np.where(legal[:, :-1, None], design[:, :-1] - design[:, -1:], 0).swapaxes(0, 1)
    dtype = jnp.result_type(float)
    sums = np.einsum("jtp,ktq->jkpq", rows, rows, optimize=True)
    chosen = np.arange(legal.shape[1])[:, None] == choice
    none = np.zeros(design.shape[-1], dtype)
    degrees = np.asarray(legal.shape[1] + 1 if degrees is None else degrees, dtype)
    parts: Any = rows.astype(dtype), sums.astype(dtype), legal.T[..., None], chosen[..., None], none, degrees
    return CovarianceProblem(*parts)


def first_latents(problem: CovarianceProblem, num_chains: int) -> np.ndarray:
    """Utilities less the base's (difference, decision, chain) that agree with the choices."""
    chosen = np.asarray(problem.chosen, float)
    first = (chosen[:-1] - chosen[-1:] - (1 - chosen[:-1] - chosen[-1:]) / 2).astype(problem.design.dtype)
    return np.broadcast_to(first, (*first.shape[:-1], num_chains))


def sweep_covariance(
    key: Array, problem: CovarianceProblem, theta: Array, covariance: Array, latents: Array
) -> tuple[Array, Array, Array, Array]:
    """Theta (parameter, chain), covariances (chain, p, p), latents (p, decision, chain) and ratios of scales (chain,).

    The last are of the covariance drawn to that of the values, before; one where the proposal was rejected.
    """
    keys = jax.random.split(key, 6)
    size, num_decisions, num_parameters = problem.design.shape
    scale = jnp.asarray(independent_covariance(size), theta.dtype)
    exact: Any = {"precision": "highest"}
    mean = jnp.einsum("jtp,pc->jtc", problem.design, theta, **exact)
    inverse = jnp.linalg.inv(covariance)  # (chain, p, p)
    latents = _latents(keys[0], problem, mean, inverse, latents)
    spread = jnp.einsum("jk,ckj->c", scale, inverse, **exact)

    def chi_square(key, degrees):
        return 2 * jax.random.gamma(key, degrees / 2, spread.shape, theta.dtype)

    latents = latents * jnp.sqrt(spread / chi_square(keys[1], problem.degrees * size))
    # Values and their scale, with all else integrated out.
    precision = jnp.einsum("cjk,jkpq->cpq", inverse, problem.sums, **exact) + jnp.diag(problem.precision)
    weighted = jnp.einsum("cjk,ktc->jtc", inverse, latents, **exact)
    pull = jnp.einsum("jtp,jtc->cp", problem.design, weighted, **exact)
    factor = cholesky(precision, lower=True)
    root = solve_triangular(factor, pull[..., None], lower=True)
    best = solve_triangular(factor, root, lower=True, trans=1)[..., 0]
    off = latents - jnp.einsum("jtp,cp->jtc", problem.design, best, **exact)
    rest = jnp.einsum("jtc,cjk,ktc->c", off, inverse, off, **exact) + best**2 @ problem.precision
    square = (rest + spread) / chi_square(keys[2], (num_decisions + problem.degrees) * size)
    noise = jax.random.normal(keys[3], (*best.shape, 1), theta.dtype)
    scaled = best + jnp.sqrt(square)[:, None] * solve_triangular(factor, noise, lower=True, trans=1)[..., 0]
    # The covariance given the scaled values.
    off = latents - jnp.einsum("jtp,cp->jtc", problem.design, scaled, **exact)
    total = scale + jnp.einsum("jtc,ktc->cjk", off, off, **exact)
    degrees = num_decisions + problem.degrees
    proposed, proposed_square = scaled_to_trace(
        inverse_wishart(keys[4], degrees, cholesky(total, lower=True))
    )
    energy = scaled**2 @ problem.precision
    log_ratio = log_acceptance(square, proposed_square, energy, num_parameters)
    taken = jnp.log(jax.random.uniform(keys[5], square.shape, theta.dtype)) < log_ratio
    final = jnp.where(taken, proposed_square, square)
    covariance = jnp.where(taken[:, None, None], proposed, covariance)
    return (scaled / jnp.sqrt(final)[:, None]).T, covariance, latents / jnp.sqrt(final), final / square


def log_acceptance(square: Array, proposed: Array, energy: Array, num_parameters: int) -> Array:
    """Log ratio (...) of the priors of scaled values of this energy, at the proposed squared scale and the current."""
    return num_parameters / 2 * jnp.log(square / proposed) - energy * (1 / proposed - 1 / square) / 2


def _latents(key: Array, problem: CovarianceProblem, mean: Array, inverse: Array, latents: Array) -> Array:
    """Utilities less the base's, each given the others: truncated normals."""
    uniform = open_uniform(jax.random.bits(key, latents.shape, jnp.uint32), latents.dtype)
    lowest = jnp.asarray(-jnp.inf, latents.dtype)
    for j in range(len(latents)):
        rest = jnp.einsum("ck,ktc->tc", inverse[:, j].at[:, j].set(0), latents - mean, precision="highest")
        deviation = 1 / jnp.sqrt(inverse[:, j, j])
        centre = mean[j] - rest * deviation**2
        base = jnp.zeros_like(latents[:1])
        every = jnp.concatenate([latents.at[j].set(lowest), base])
        others = jnp.max(jnp.where(problem.legal, every, lowest), axis=0)
        winner = jnp.sum(jnp.where(problem.chosen, jnp.concatenate([latents, base]), 0), axis=0)
        sign = jnp.where(problem.chosen[j], -1, 1)  # the chosen one is bounded below
        bound = sign * (jnp.where(problem.chosen[j], others, winner) - centre) / deviation
        bound = jnp.where(problem.legal[j], bound, FREE)
        latents = latents.at[j].set(centre + sign * deviation * normal_below(bound, uniform[j]))
    return latents
