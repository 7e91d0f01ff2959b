r"""The most probable reward: the point that Laplace's approximation is about, and Levine's point estimate.

At known hyper-parameters the posterior mode of w in :math:`r = A w` maximises :math:`\ln p(D \mid A w) - |w|^2 / 2`.
Levine's estimate maximises, over rewards u of inducing points and the hyper-parameters together,

.. math:: \ln p(D \mid r = S u) + \ln N(u; 0, K_{uu}) - \sum_l \ln(1 + \lambda_l) - \tfrac12 \|K_{uu}^{-1}\|_F^2

with :math:`S = K_{ru} K_{uu}^{-1}`: the noise of a reward given u is left out, and the last term keeps inducing points
from saying the same. Levine, Popovic and Koltun (2011), eq. 7 and 8; the last term is in their toolkit.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.linalg import solve_triangular
from jaxtyping import Float

from ethogram.inference.reward_gaussian import law_of, log_likelihood
from ethogram.models import reward_kernel
from ethogram.models.gp_irl import GPIRL

__all__ = ["LevineMode", "levine_mode", "posterior_mode"]

INITIAL_SCALE = 5.0
STARTS = 5
NOWHERE = 1e300
"""What is said where a function is not finite."""

SHORT = 100
"""Steps of a start, which is gone on with if it was the best."""


class LevineMode(NamedTuple):
    """Levine's estimate.

    Attributes
    ----------
    u : rewards (inducing,) of the inducing points.
    log_hyper : logarithms (1 + feature,) of scale and relevance.
    objective : what was maximised.
    converged : whether the search ended at a maximum.
    """

    u: Float[np.ndarray, "inducing"]
    log_hyper: Float[np.ndarray, "hyper"]
    objective: float
    converged: bool


@jax.jit
def _negative_posterior(white: Array, model: GPIRL, log_hyper: Array, counts: Array) -> tuple[Array, Array]:
    def objective(white):
        law, times = law_of(model, log_hyper)
        told = log_likelihood(model, law.reward(white), times, counts)
        return -(told - 0.5 * jnp.sum(white**2))

    return jax.value_and_grad(objective)(white)


def posterior_mode(model: GPIRL, log_hyper: Any, counts: Any, start: Any) -> tuple[np.ndarray, float, bool]:
    """The most probable w (w,) of one expert at known hyper-parameters, log density, whether the search arrived.

    Parameters
    ----------
    log_hyper : logarithms (hyper,) of the free hyper-parameters.
    counts : (state, action).
    start : (w,).
    """
    found = _minimise(_negative_posterior, start, (model, log_hyper, counts), 2000)
    return found.x, -float(found.fun), bool(found.success)


def levine_mode(key: Array, model: GPIRL, inducing: Any, counts: Any) -> LevineMode:
    """Rewards and hyper-parameters that maximise Levine's objective, from five starts.

    The best of them is gone on with, and so are its rewards with the hyper-parameters of the beginning.

    Parameters
    ----------
    model : its priors have no part in this.
    inducing : (inducing,) integers, points.
    counts : (state, action).
    """
    inducing = np.asarray(inducing)
    first = np.log(np.append(INITIAL_SCALE, np.ones(model.num_features)))
    task = (model, jnp.asarray(inducing), jnp.asarray(counts))
    draws = np.asarray(jax.random.uniform(key, (STARTS, len(inducing)), model.features.dtype))
    found = [_minimise(_negative_levine, np.append(u, first), task, SHORT) for u in draws]
    best = min(found, key=lambda one: one.fun)
    # A start may have been stopped short of a maximum that is above the one found anew from its rewards.
    both = (best.x, np.append(best.x[: len(inducing)], first))
    fine = min((_minimise(_negative_levine, x, task, 2000) for x in both), key=lambda one: one.fun)
    return LevineMode(fine.x[: len(inducing)], fine.x[len(inducing) :], -float(fine.fun), bool(fine.success))


@jax.jit
def _negative_levine(flat: Array, model: GPIRL, inducing: Array, counts: Array) -> tuple[Array, Array]:
    count = len(inducing)

    def objective(flat):
        u, log_hyper = flat[:count], flat[count:]
        scale, relevance = jnp.exp(log_hyper[0]), jnp.exp(log_hyper[1:])
        low, mean = levine_conditional(model, inducing, scale, relevance)
        white = solve_triangular(low, u, lower=True)
        told = log_likelihood(model, mean @ u, jnp.asarray(model.rationality), counts)
        prior = (
            -0.5 * jnp.sum(white**2) - jnp.sum(jnp.log(jnp.diag(low))) - 0.5 * count * math.log(2 * math.pi)
        )
        inverse = solve_triangular(low, jnp.eye(count, dtype=low.dtype), lower=True)
        inverse = inverse.T @ inverse
        return -(told + prior - jnp.sum(jnp.log1p(relevance)) - 0.5 * jnp.sum(inverse**2))

    return jax.value_and_grad(objective)(flat)


def levine_conditional(model: GPIRL, inducing: Any, scale: Any, relevance: Any) -> tuple[Array, Array]:
    """Root of the covariance of the inducing points, and S (point, inducing)."""
    noise = jnp.asarray(model.noise, model.features.dtype)
    low, given = reward_kernel.conditional(model.points, model.points[inducing], scale, relevance, noise)
    return low, given.mean


def _minimise(function: Any, start: Any, arguments: tuple, most: int) -> Any:
    """What L-BFGS finds of a function that returns its value and gradient."""
    from scipy.optimize import minimize

    def told(x):
        value, gradient = function(jnp.asarray(x), *arguments)
        if not np.isfinite(value):
            return NOWHERE, np.zeros_like(x)
        return float(value), np.asarray(gradient, float)

    options = {"maxiter": most, "maxfun": 2 * most, "maxcor": 20, "ftol": 1e-12, "gtol": 1e-6}
    found = minimize(told, np.asarray(start, float), jac=True, method="L-BFGS-B", options=options)
    if found.fun >= NOWHERE:
        raise FloatingPointError(
            "the log posterior density is not finite where the search for its mode begins: rewards or priors are "
            "beyond what double precision holds"
        )
    return found
