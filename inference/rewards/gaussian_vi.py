r"""Gaussian posterior of rewards at given hyper-parameters, by natural-gradient variational inference.

q is Gaussian over the standard normal variables w of each reward :math:`r = A_\eta w + C_\eta e`; e keeps its prior:

.. math:: L(\eta) = E_q[\ln p(D \mid r) + \ln N(w; 0, I) - \ln q(w)] + \ln p(\eta)

The densities are taken at the draws: near the posterior the bracket is nearly the same at all of them, so that L has a
fraction of the noise that it has with the KL divergence in closed form.

A natural-gradient step, with gradients g and Hessians H of the log likelihood at draws of r, is

.. math:: P \leftarrow (1 - a) P + a\, (I - E[A^\top H A]), \qquad
          m \leftarrow m + a\, P^{-1} (E[A^\top g] - m)

Stochastic gradients of the ELBO leave good starts for worse ones, and do not converge from the prior; exact Hessians
need a dozen draws where Stein's identity needs thousands. The sizes of the steps, and when they end, are those of
`vi_steps`.

Dilkas (2019), "Variational inference for inverse reinforcement learning with Gaussian processes", section 3, for the
bound; Khan and Nielsen (2018), "Fast yet simple natural-gradient descent for variational inference", eq. 7 and 8, for
the step; Roeder, Wu and Duvenaud (2017), "Sticking the landing", section 3, for the densities at the draws.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.linalg import cho_factor, cho_solve, solve_triangular
from jaxtyping import Float

from ethogram.inference.rewards.hyper_parameters import log_prior, unpack
from ethogram.inference.rewards.laplace import (
    MIN_PRECISION,
    Gaussian,
    bounded_inverse,
    mean_derivatives,
    reward_map,
    work,
)
from ethogram.inference.rewards.vi_steps import VIState, init, run_steps, settle
from ethogram.models.numpy_generator import numpy_generator
from ethogram.models.quick_jit import quick_jit
from ethogram.models.rewards import kernel as reward_kernel
from ethogram.models.rewards.gp_irl import GPIRL

__all__ = [
    "BaseDraws",
    "base_draws",
    "elbo",
    "log_ratio",
    "maximize_elbo",
    "moved_elbo",
    "natural_step",
    "rewards_at",
    "transport",
    "whitening_root",
]

STEPS_PER_GRADIENT = 10
"""Steps of a search for each gradient, in a typical search."""


class BaseDraws(NamedTuple):
    """Standard normal draws: of w, and of the noise e of rewards given inducing points, where there are any."""

    latent: Float[Any, "draw reward w"]
    conditional: Float[Any, "draw reward point"] | None


def base_draws(generator: np.random.Generator, model: GPIRL, num_rewards: int, num_draws: int) -> BaseDraws:
    """Antithetic standard normals, draws and their negatives: odd functions have no Monte Carlo error."""

    def draw(size):
        half = generator.standard_normal((num_draws // 2, num_rewards, size))
        return np.concatenate([half, -half])

    return BaseDraws(draw(model.num_white), None if model.inducing is None else draw(model.num_points))


def whitening_root(model: GPIRL, scale: Any, relevance: Any) -> Array:
    """Cholesky factor of the covariance of the rewards that w whitens: of inducing points, where there are any."""
    points = model.points if model.inducing is None else model.points[model.inducing]
    noise = jnp.asarray(model.noise, points.dtype)
    return reward_kernel.root(reward_kernel.covariance(points, scale, relevance, noise), scale)


def rewards_at(model: GPIRL, log_hyper: Array, q: Gaussian, draws: BaseDraws) -> tuple[Array, Array]:
    """Rewards (draw, reward, point) under q, and the rationality."""
    mapping, rationality = reward_map(model, log_hyper)
    white = q.mean + jnp.einsum("eij,dej->dei", q.root, draws.latent)
    return mapping.reward(white, draws.conditional), rationality


def log_ratio(q: Gaussian, draws: BaseDraws) -> Array:
    """Prior over q, ln N(w; 0, I) - ln q(w), at each draw of w, summed over the rewards; its mean is -KL."""
    white = q.mean + jnp.einsum("eij,dej->dei", q.root, draws.latent)
    roots = jnp.log(jnp.abs(jnp.diagonal(q.root, axis1=-2, axis2=-1)))
    return 0.5 * jnp.sum(draws.latent**2 - white**2, (-2, -1)) + jnp.sum(roots)


def _elbo(model: GPIRL, counts: Array, log_hyper: Array, q: Gaussian, draws: BaseDraws) -> Array:
    rewards, rationality = rewards_at(model, log_hyper, q, draws)
    expected = jnp.sum(model.count_log_likelihood(rewards, counts, rationality), -1)
    return expected + log_ratio(q, draws) + log_prior(model, log_hyper)


_compiled_elbo = quick_jit(_elbo, calls=work)


def elbo(
    model: GPIRL, counts: Any, log_hyper: Any, q: Gaussian, draws: BaseDraws
) -> Float[np.ndarray, "draw"]:
    """ELBO at each draw, whose mean estimates it, with the log prior density of the hyper-parameters."""
    return np.asarray(_compiled_elbo(model, counts, log_hyper, q, draws))


def natural_step(
    model: GPIRL, counts: Any, log_hyper: Any, q: Gaussian, draws: BaseDraws, step_size: float
) -> Gaussian:
    """Q after one natural-gradient step."""
    means, roots = [], []
    for number, (mean, root) in enumerate(zip(q.mean, q.root, strict=True)):
        latent = mean + draws.latent[:, number] @ root.T
        rest = None if draws.conditional is None else draws.conditional[:, number]
        _, gradient, hessian = mean_derivatives(model, counts[number], log_hyper, latent, rest)
        identity = np.eye(len(mean))
        inverse = np.linalg.inv(root)
        precision = (1 - step_size) * inverse.T @ inverse + step_size * (identity - hessian)
        covariance = bounded_inverse(precision)
        means.append(mean + step_size * covariance @ (gradient - mean))
        roots.append(np.linalg.cholesky(covariance))
    return Gaussian(np.stack(means), np.stack(roots))


def _transport(model: GPIRL, q: Gaussian, log_hyper: Array, new: Array, bounded: bool) -> Gaussian:
    before, after = unpack(model, log_hyper), unpack(model, new)
    roots = [whitening_root(model, one["scale"], one["relevance"]) for one in (before, after)]
    change = solve_triangular(roots[0], roots[1], lower=True) * (after["rationality"] / before["rationality"])
    identity = jnp.eye(len(change), dtype=change.dtype)

    def one(mean, root):
        inverse = solve_triangular(root, identity, lower=True)
        precision = inverse.T @ inverse
        moved = change.T @ (precision - identity) @ change + identity
        if bounded:
            values, vectors = jnp.linalg.eigh(0.5 * (moved + moved.T))
            covariance = (vectors / jnp.maximum(values, MIN_PRECISION)) @ vectors.T
        else:  # at nearby hyper-parameters, where it has derivatives
            covariance = cho_solve(cho_factor(moved, lower=True), identity)
        root = jnp.linalg.cholesky(0.5 * (covariance + covariance.T))
        return covariance @ (change.T @ (precision @ mean)), root

    return Gaussian(*jax.vmap(one)(q.mean, q.root))


_compiled_transport = quick_jit(_transport, calls=work, static_argnames="bounded")


def transport(model: GPIRL, q: Gaussian, log_hyper: Any, new: Any) -> Gaussian:
    """Q at other logarithms of hyper-parameters, with what the data say of the rewards held.

    That is q over the prior, a Gaussian function of the rewards that w whitens; it meets the prior at the others. Where
    the data say little, w keeps its distribution, and where they say all, the rewards.
    """
    if not len(new):
        return q
    return Gaussian(*map(np.asarray, _compiled_transport(model, q, log_hyper, np.asarray(new), bounded=True)))


@quick_jit(calls=lambda *arguments: work(*arguments) // STEPS_PER_GRADIENT)
@jax.value_and_grad
def _moved_elbo(
    new: Array, model: GPIRL, counts: Array, log_hyper: Array, q: Gaussian, draws: BaseDraws
) -> Array:
    return jnp.mean(_elbo(model, counts, new, _transport(model, q, log_hyper, new, False), draws))


def moved_elbo(
    model: GPIRL, counts: Any, draws: BaseDraws, log_hyper: Any, q: Gaussian, new: np.ndarray
) -> tuple[float, Float[np.ndarray, "hyper"]]:
    """Mean ELBO at other logarithms of hyper-parameters of q that was moved there by `transport`, and its gradient.

    It is a smooth function on given draws, and at the q that is best at `log_hyper` has the gradient of the largest
    ELBO there.
    """
    value, slope = _moved_elbo(new, model, counts, log_hyper, q, draws)
    return float(value), np.asarray(slope)


def maximize_elbo(
    key: Array,
    model: GPIRL,
    counts: Any,
    log_hyper: Any,
    q: Gaussian,
    fixed: BaseDraws,
    *,
    num_steps: int,
    num_draws: int,
    tol: float,
    moved_tol: float | None = None,
    state: VIState | None = None,
    callback: Callable[[VIState], None] = lambda state: None,
) -> VIState:
    """The state where the search has converged, or after `num_steps` steps; `callback` is called after each.

    It begins at q, or goes on from a state, whose tolerance may have been another. A q that was moved from other
    hyper-parameters, where it was the best, has `moved_tol`: it has converged if a step gains no more than `tol`, and
    further steps end at this tolerance.
    """

    def move(state, step_size):
        draws = base_draws(numpy_generator(key, state.steps), model, len(state.q.mean), num_draws)
        after = natural_step(model, counts, log_hyper, state.q, draws, step_size)
        return after, elbo(model, counts, log_hyper, after, fixed)

    if state is None:
        state = init(q, elbo(model, counts, log_hyper, q, fixed))
        if moved_tol is not None:
            if settled := settle(state, functools.partial(move, state), tol):
                return settled
            tol = moved_tol
    return run_steps(state, move, num_steps=num_steps, tol=tol, callback=callback)
