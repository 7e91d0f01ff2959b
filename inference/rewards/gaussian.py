r"""Gaussian variational approximations of the posterior of a reward, and their ELBO.

q is Gaussian over the standard normal variables w of the reward :math:`r = A_\lambda w + C_\lambda e`, and
independently over the logarithms :math:`\eta` of the hyper-parameters (a point where their standard deviation is zero);
e keeps its prior.

.. math:: L = E_q[\ln p(D \mid r)] - KL(q(w) \| N(0, I)) - KL(q(\eta) \| p(\eta))

A natural-gradient step, with gradients g and Hessians H of the log likelihood at draws of r, is

.. math:: P \leftarrow (1 - a) P + a\, (I - E[A^\top H A]), \qquad
          m \leftarrow m + a\, P^{-1} (E[A^\top g] - m)

Dilkas (2019), "Variational inference for inverse reinforcement learning with Gaussian processes", section 3, for
the bound; Khan and Nielsen (2018), "Fast yet simple natural-gradient descent for variational inference", for the step.
Exact Hessians need a dozen draws where Stein's identity needs thousands.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from jax.scipy.linalg import solve_triangular
from jaxtyping import Float

from ethogram.models.mdps.policy_system import DIRECT_AT_MOST
from ethogram.models.mdps.soft_curvature import likelihood_curvature
from ethogram.models.rewards import kernel as reward_kernel
from ethogram.models.rewards.gp_irl import GPIRL
from ethogram.models.rewards.kernel import RewardMap

__all__ = [
    "HYPERS",
    "RewardGaussian",
    "bound",
    "divergence",
    "free_hypers",
    "hyper_priors",
    "hyper_values",
    "log_hyper_prior",
    "log_likelihood",
    "natural_step",
    "reward_map_of",
    "rewards_at",
    "white_root",
    "white_share_at",
]

SMALLEST = 0.05
"""Lower limit of the precision of q(w), whose prior has one: the likelihood of a draw may not be concave."""

HYPERS = ("variational", "point", "fixed")
"""Treatments of the hyper-parameters with one Gaussian."""


class RewardGaussian(NamedTuple):
    """q(w) and q(ln hyper-parameters); with a leading axis ``expert`` on what is of w."""

    mean: Float[Any, "expert w"]
    root: Float[Any, "expert w w"]  # lower triangular
    log_hyper: Float[Any, "hyper"]  # means of logarithms
    log_hyper_sd: Float[Any, "hyper"]  # and their standard deviations


def hyper_priors(model: GPIRL) -> dict[str, Any]:
    """Prior, or fixed value, of each hyper-parameter."""
    return {"scale": model.scale_prior, "relevance": model.relevance_prior, "rationality": model.rationality}


def free_hypers(model: GPIRL) -> dict[str, int]:
    """Hyper-parameters that have a prior, in order, and their sizes."""
    sizes = {"scale": 1, "relevance": model.num_features, "rationality": 1}
    priors = hyper_priors(model)
    return {name: sizes[name] for name, prior in priors.items() if isinstance(prior, dist.Distribution)}


def hyper_values(model: GPIRL, log_hyper: Array) -> dict[str, Array]:
    """Values of scale, relevance (..., feature) and rationality at logarithms (..., hyper) of the free ones."""
    values: dict[str, Array] = {}
    place = 0
    for name, size in free_hypers(model).items():
        found = jnp.exp(log_hyper[..., place : place + size])
        values[name] = found if name == "relevance" else found[..., 0]
        place += size
    for name, value in hyper_priors(model).items():
        if name not in values:
            shape = (model.num_features,) if name == "relevance" else ()
            values[name] = jnp.broadcast_to(jnp.asarray(value), (*log_hyper.shape[:-1], *shape))
    return values


def log_hyper_prior(model: GPIRL, log_hyper: Array) -> Array:
    """Log prior density (...) of the logarithms (..., hyper)."""
    values, priors = hyper_values(model, log_hyper), hyper_priors(model)
    total = jnp.sum(log_hyper, -1)
    for name in free_hypers(model):
        density = priors[name].log_prob(values[name])
        total += jnp.sum(density, -1) if name == "relevance" else density
    return total


@jax.jit
def white_share_at(model: GPIRL, log_hyper: Array) -> Array:
    """Share of the prior variance of rewards that is white noise, at the logarithms (hyper,)."""
    return reward_kernel.white_share(hyper_values(model, log_hyper)["relevance"], model.noise)


def reward_map_of(model: GPIRL, log_hyper: Array) -> tuple[RewardMap, Array]:
    """Linear map to the rewards at the logarithms (hyper,), and the rationality."""
    values = hyper_values(model, log_hyper)
    return model.reward_map(values["scale"], values["relevance"]), values["rationality"]


def white_root(model: GPIRL, scale: Any, relevance: Any) -> Array:
    """Cholesky factor of the covariance of the rewards that w whitens: of inducing points, where there are any."""
    points = model.points if model.inducing is None else model.points[model.inducing]
    noise = jnp.asarray(model.noise, points.dtype)
    return reward_kernel.root(reward_kernel.covariance(points, scale, relevance, noise), scale)


def with_hypers(
    model: GPIRL, q: RewardGaussian, log_hyper: Array, differentiable: bool = False
) -> RewardGaussian:
    """The Gaussian at other hyper-parameters (hyper,), with what the data say of the rewards held.

    That is q over the prior, a Gaussian function of the rewards that w whitens; it meets the prior at the others. Where
    the data say little, w keeps its distribution, and where they say all, the rewards. With `differentiable` the
    other hyper-parameters are near: precisions are not bounded from below.
    """
    before, after = hyper_values(model, q.log_hyper), hyper_values(model, log_hyper)
    roots = [white_root(model, one["scale"], one["relevance"]) for one in (before, after)]
    change = solve_triangular(roots[0], roots[1], lower=True) * (after["rationality"] / before["rationality"])
    identity = jnp.eye(len(change), dtype=change.dtype)

    def one(mean, root):
        inverse = solve_triangular(root, identity, lower=True)
        precision = inverse.T @ inverse
        linear = change.T @ (precision @ mean)
        moved = change.T @ (precision - identity) @ change + identity
        if differentiable:
            covariance = jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(moved, lower=True), identity)
        else:
            covariance = _bounded_inverse(0.5 * (moved + moved.T))
        return covariance @ linear, jnp.linalg.cholesky(0.5 * (covariance + covariance.T))

    mean, root = jax.vmap(one)(q.mean, q.root)
    return q._replace(mean=mean, root=root, log_hyper=log_hyper)


def _bounded_inverse(precision: Array) -> Array:
    """Covariance (..., w, w) of a precision, whose eigenvalues are taken to be at least `SMALLEST`."""
    values, vectors = jnp.linalg.eigh(precision)
    values = jnp.maximum(values, SMALLEST)
    return (vectors / values[..., None, :]) @ jnp.swapaxes(vectors, -2, -1)


def log_likelihood(model: GPIRL, reward: Array, rationality: Array, counts: Array) -> Array:
    """Log likelihood of counts (..., state, action) under rewards (..., point)."""
    if reward.ndim == 1 or model.mdp.num_states <= DIRECT_AT_MOST:
        return _log_likelihood(model, rationality * reward, counts)
    # One after the other, since policies of all draws would take more memory than everything else.
    acted = rationality * reward
    one = jax.checkpoint(functools.partial(_log_likelihood, model))
    if counts.ndim == 2:
        return jax.lax.map(lambda r: one(r, counts), acted)
    each = jax.lax.map(
        lambda x: jax.lax.map(lambda r: one(r, x[1]), x[0]), (jnp.moveaxis(acted, -2, 0), counts)
    )
    return jnp.moveaxis(each, 0, -1)


def _log_likelihood(model: GPIRL, acted: Array, counts: Array) -> Array:
    log_policy = model.agent(acted, 1).log_policy
    each = jnp.where(counts > 0, counts * jnp.where(counts > 0, log_policy, 0), 0)
    return jnp.sum(each, (-2, -1))


class Normals(NamedTuple):
    """Standard normal draws: of w (draw, expert, w), of e (draw, expert, point), of the logarithms (draw, hyper)."""

    white: Array
    rest: Array | None
    hyper: Array


def rewards_at(
    model: GPIRL, q: RewardGaussian, normals: Normals, point: bool = False
) -> tuple[Array, Array, Array]:
    """Rewards (draw, expert, point) under q, rationalities and logarithms, at standard normal draws.

    With `point` the logarithms of the hyper-parameters have no spread, so that all draws share a map to the rewards.
    """
    log_hyper = q.log_hyper + q.log_hyper_sd * normals.hyper
    white = q.mean + jnp.einsum("eij,dej->dei", q.root, normals.white)
    if point or not free_hypers(model):
        mapping, times = reward_map_of(model, q.log_hyper)
        rest = None if mapping.noise is None else normals.rest
        return mapping.reward(white, rest), jnp.broadcast_to(times, len(white)), log_hyper

    def one(log_hyper, white, rest):
        mapping, times = reward_map_of(model, log_hyper)
        return mapping.reward(white, rest), times

    reward, times = jax.lax.map(lambda x: one(*x), (log_hyper, white, normals.rest))
    return reward, times, log_hyper


def divergence(q: RewardGaussian) -> Array:
    """KL(q(w) || N(0, I)), in nats."""
    roots = jnp.log(jnp.abs(jnp.diagonal(q.root, axis1=-2, axis2=-1)))
    return 0.5 * (jnp.sum(q.root**2) + jnp.sum(q.mean**2) - q.mean.size) - jnp.sum(roots)


@functools.partial(jax.jit, static_argnames="point")
def bound(model: GPIRL, q: RewardGaussian, counts: Array, normals: Normals, point: bool) -> Array:
    """The ELBO at every draw (draw,), whose mean estimates it; with `point` without the entropy of q(ln hyper)."""
    reward, times, log_hyper = rewards_at(model, q, normals, point)
    expected = jnp.sum(log_likelihood(model, reward, times[:, None, None], counts), -1)
    hyper = log_hyper_prior(model, log_hyper)
    if not point and len(q.log_hyper):
        hyper += 0.5 * len(q.log_hyper) * (1 + np.log(2 * np.pi)) + jnp.sum(jnp.log(q.log_hyper_sd))
    return expected - divergence(q) + hyper


@functools.partial(jax.jit, static_argnames="point")
def natural_step(
    model: GPIRL, q: RewardGaussian, counts: Array, normals: Normals, size: Any, point: bool = False
) -> RewardGaussian:
    """Approximation after one natural-gradient step in w, with the hyper-parameters held fixed."""
    reward, times, log_hyper = rewards_at(model, q, normals, point)
    pairs = model.features.ndim == 3
    shape = model.features.shape[:-1]
    shared = reward_map_of(model, q.log_hyper)[0] if point or not free_hypers(model) else None

    def one(reward, times, log_hyper):
        mapping = reward_map_of(model, log_hyper)[0] if shared is None else shared

        def expert(arguments):
            reward, counts = arguments
            found = likelihood_curvature(
                model.mdp, times * reward.reshape(shape), counts, basis=mapping.weights, pairs=pairs
            )
            return times * found.gradient, times**2 * found.hessian

        return jax.lax.map(expert, (reward, counts))

    each = jax.lax.map(lambda x: one(*x), (reward, times, log_hyper))
    gradient, hessian = (jnp.mean(x, 0) for x in each)
    identity = jnp.eye(q.mean.shape[-1], dtype=q.mean.dtype)
    inverse = jnp.linalg.inv(q.root)
    precision = jnp.swapaxes(inverse, -2, -1) @ inverse
    precision = (1 - size) * precision + size * (identity - hessian)
    covariance = _bounded_inverse(precision)
    mean = q.mean + size * jnp.einsum("eij,ej->ei", covariance, gradient - q.mean)
    return q._replace(mean=mean, root=jnp.linalg.cholesky(covariance))
