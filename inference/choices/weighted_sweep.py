r"""Sweeps of data augmentation where decisions have weights: Student noise, and lapses.

Given the scale :math:`\lambda_t` of a decision in Student noise, :math:`\sqrt{\lambda_t} w_t` are the latent utilities
of a probit with the rows of its design multiplied by :math:`\sqrt{\lambda_t}`. Scales are drawn between values and
latent utilities, :math:`\lambda_t \sim \Gamma((\nu + M_t)/2, (\nu + \sum_j e_{tj}^2)/2)` with M legal options and
errors e; before them, where nu has a prior, nu given the errors alone, which are multivariate t. Decisions that lapse
have weight zero: they leave the sums, and the shape of the scale of the expansion. As lapses are drawn with the latent
utilities integrated out, these are then drawn exactly.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.linalg import cholesky
from jax.scipy.special import betaln

from ethogram.inference.choices.gibbs_sweep import Move, ProbitProblem, draw_parameters, fitted
from ethogram.inference.choices.latent_utilities import draw_latents
from ethogram.inference.choices.slice_draw import slice_draw
from ethogram.models.choices.probit_choice import NODES, log_probability

__all__ = ["draw_degrees", "draw_scales", "draw_weighted", "sweep_lapses", "sweep_student"]


def sweep_student(
    key: Array,
    problem: ProbitProblem,
    theta: Array,
    latents: Array,
    move: Move,
    winner: str,
    nu: Any,
    prior: Any = None,
) -> tuple[Array, Array, Array, Any]:
    """Theta (parameter, chain), latents (option, decision, chain) and scales (chain,) after a sweep, and nu.

    Nu (chain,) is drawn where it has a prior.
    """
    key_scale, key_latents, key_rest, key_nu = jax.random.split(key, 4)
    if prior is not None:
        nu = draw_degrees(key_nu, problem, theta, latents, nu, prior)
    root = jnp.sqrt(draw_scales(key_scale, problem, theta, latents, nu))
    mean = jnp.reshape(fitted(problem, theta), latents.shape)
    drawn = draw_latents(key_latents, root * mean, problem.legal, root * latents, winner)
    theta, latents, scale = draw_weighted(key_rest, problem, drawn, root, move)
    return theta, latents / root, scale, nu


def sweep_lapses(
    key: Array, problem: ProbitProblem, theta: Array, latents: Array, move: Move, lapse: Array, prior: Any
) -> tuple[Array, Array, Array, Array]:
    """As `sweep_student` where decisions lapse with probability (chain,); also its next draw, where it has a prior."""
    key_lapsed, key_lapse, key_latents, key_rest = jax.random.split(key, 4)
    mean = jnp.reshape(fitted(problem, theta), latents.shape)
    others = jnp.broadcast_to(problem.legal[1:], mean[1:].shape)
    log_base = log_probability(jnp.where(others, mean[0] - mean[1:], 0), others, NODES[mean.dtype])
    known = problem.counts > 0
    by_lapse = lapse / jnp.maximum(problem.counts, 1)
    chance = by_lapse / (by_lapse + (1 - lapse) * jnp.exp(log_base))
    lapsed = known & (jax.random.uniform(key_lapsed, chance.shape, chance.dtype) < chance)
    if prior is not None:
        count = jnp.sum(lapsed, axis=0)
        ends = prior.concentration1 + count, prior.concentration0 + jnp.sum(known) - count
        lapse = jax.random.beta(key_lapse, *ends, dtype=chance.dtype)
    drawn = draw_latents(key_latents, mean, problem.legal, latents, "rejection")
    weight = (known & ~lapsed).astype(mean.dtype)
    return *draw_weighted(key_rest, problem, drawn, weight, move), lapse


def draw_scales(key: Array, problem: ProbitProblem, theta: Array, latents: Array, nu: Any) -> Array:
    """Scales (decision, chain) of Student noise given values and latent utilities."""
    squares = _squares(problem, theta, latents)
    shape = jnp.broadcast_to((nu + problem.counts) / 2, squares.shape).astype(latents.dtype)
    return jax.random.gamma(key, shape, dtype=latents.dtype) / ((nu + squares) / 2)


def draw_degrees(
    key: Array, problem: ProbitProblem, theta: Array, latents: Array, nu: Array, prior: Any
) -> Array:
    """Next degrees of freedom (chain,) given values and latent utilities, with the scales summed out."""
    squares, counts = _squares(problem, theta, latents), problem.counts
    half = jnp.maximum(counts, 1) / 2

    def log_density(x):
        degrees = jnp.exp(x)
        inside = prior.support(degrees)
        degrees = jnp.where(inside, degrees, nu)
        # In place of a difference of log gammas, which rounding would spoil where nu is large.
        each = -betaln(degrees / 2, half) - half * jnp.log(degrees)
        each = each - (degrees / 2 + half) * jnp.log1p(squares / degrees)
        total = jnp.sum(jnp.where(counts > 0, each, 0), axis=0)
        return jnp.where(inside, prior.log_prob(degrees) + x + total, -jnp.inf)

    return jnp.exp(slice_draw(key, log_density, jnp.log(nu)))


def _squares(problem: ProbitProblem, theta: Array, latents: Array) -> Array:
    """Sums of squared errors (decision, chain)."""
    mean = jnp.reshape(fitted(problem, theta), latents.shape)
    return jnp.sum(jnp.where(problem.legal, latents - mean, 0) ** 2, axis=0)


def draw_weighted(
    key: Array, problem: ProbitProblem, latents: Array, weight: Array, move: Move
) -> tuple[Array, Array, Array]:
    """As `draw_parameters`, of weighted latents, with weights (decision, chain) of the rows of the design."""
    options, decisions, chains = latents.shape
    prior = jnp.matmul(problem.axes.T, problem.precision[:, None] * problem.axes, precision="highest")

    def of_chain(key, latents, weight):
        rows = jnp.reshape(problem.design, (options, decisions, -1)) * weight[:, None]
        rows = jnp.reshape(rows, problem.design.shape)
        counted = (weight > 0)[:, None]
        own = problem._replace(
            design=rows,
            legal=problem.legal & counted,
            counts=problem.counts * counted,
            factor=cholesky(prior + jnp.matmul(rows.T, rows, precision="highest"), lower=True),
        )
        inside = jnp.where(own.legal, latents[..., None], 0)
        theta, moved, scale = draw_parameters(key, own, inside, move)
        return theta[:, 0], jnp.where(own.legal, moved, latents[..., None])[..., 0], scale[0]

    keys = jax.random.split(key, chains)
    each = jax.vmap(of_chain, in_axes=(0, -1, -1), out_axes=(-1, -1, 0))
    return each(keys, latents, weight)
