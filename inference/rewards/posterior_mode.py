r"""Posterior modes of the reward: the centre of Laplace's approximation, and Levine's MAP estimate.

At fixed hyper-parameters the posterior mode of w in :math:`r = A w` maximises :math:`\ln p(D \mid A w) - |w|^2 / 2`.
Levine's estimate maximises, over rewards u of inducing points and the hyper-parameters together,

.. math:: \ln p(D \mid r = S u) + \ln N(u; 0, K_{uu}) - \sum_l \ln(1 + \lambda_l) - \tfrac12 \|K_{uu}^{-1}\|_F^2

with :math:`S = K_{ru} K_{uu}^{-1}`: the noise of a reward given u is left out, and the last term penalises redundant
inducing points. Levine, Popovic and Koltun (2011), eq. 7 and 8; the last term is that of their toolkit.
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

from ethogram.inference.rewards.gaussian import log_likelihood
from ethogram.models.rewards import kernel as reward_kernel
from ethogram.models.rewards.gp_irl import GPIRL
from ethogram.models.rewards.kernel import RewardMap

__all__ = ["LevineMode", "levine_mode", "posterior_mode"]

INITIAL_SCALE = 5.0
STARTS = 5
NOWHERE = 1e300
"""Value reported to the optimiser where a function is not finite."""

FLAT = 1e-3
"""Half the squared gradient at a mode, at most: the nats left to gain where the curvature is at least that of the prior
of white rewards, one."""

SHORT = 100
"""Iterations from each start; the best one is then continued."""


class LevineMode(NamedTuple):
    """Levine's MAP estimate."""

    u: Float[np.ndarray, "inducing"]  # rewards of the inducing points
    log_hyper: Float[np.ndarray, "hyper"]  # logarithms of scale and relevance
    objective: float  # at the end of its maximisation
    converged: bool  # whether the search ended at a maximum


@jax.jit
def _negative_posterior(
    white: Array, model: GPIRL, mapping: RewardMap, rationality: Array, counts: Array
) -> tuple[Array, Array]:
    def objective(white):
        likelihood = log_likelihood(model, mapping.reward(white), rationality, counts)
        return -(likelihood - 0.5 * jnp.sum(white**2))

    return jax.value_and_grad(objective)(white)


def posterior_mode(
    model: GPIRL, mapping: RewardMap, rationality: Any, counts: Any, start: Any
) -> tuple[np.ndarray, float, bool]:
    """Posterior mode of w (w,) of one expert under a fixed map to the rewards, log density, and convergence."""
    found = _minimise(_negative_posterior, start, (model, mapping, rationality, counts), 2000)
    return found.x, -float(found.fun), _is_flat(found)


def levine_mode(key: Array, model: GPIRL, counts: Any) -> tuple[LevineMode, np.ndarray]:
    """Rewards and hyper-parameters that maximise Levine's objective, the best of five starts, and inducing points.

    The best is continued to convergence, once as it is and once from its rewards and the initial hyper-parameters.
    The priors of the model are not used. Without inducing points of the model all visited states are.
    """
    visited = np.asarray(counts).sum(1) > 0
    inducing = np.flatnonzero(visited) if model.inducing is None else np.asarray(model.inducing)
    first = np.log(np.append(INITIAL_SCALE, np.ones(model.num_features)))
    task = (model, inducing, counts)
    draws = np.asarray(jax.random.uniform(key, (STARTS, len(inducing)), model.dtype))
    found = [_minimise(_negative_levine, np.append(u, first), task, SHORT) for u in draws]
    best = min(found, key=lambda one: one.fun)
    both = (best.x, np.append(best.x[: len(inducing)], first))
    fine = min((_minimise(_negative_levine, x, task, 2000) for x in both), key=lambda one: one.fun)
    u, log_hyper = fine.x[: len(inducing)], fine.x[len(inducing) :]
    return LevineMode(u, log_hyper, -float(fine.fun), _is_flat(fine)), inducing


@jax.jit
def _negative_levine(flat: Array, model: GPIRL, inducing: Array, counts: Array) -> tuple[Array, Array]:
    count = len(inducing)

    def objective(flat):
        u, log_hyper = flat[:count], flat[count:]
        scale, relevance = jnp.exp(log_hyper[0]), jnp.exp(log_hyper[1:])
        low, mean = levine_conditional(model, inducing, scale, relevance)
        white = solve_triangular(low, u, lower=True)
        likelihood = log_likelihood(model, mean @ u, jnp.asarray(model.rationality), counts)
        prior = (
            -0.5 * jnp.sum(white**2) - jnp.sum(jnp.log(jnp.diag(low))) - 0.5 * count * math.log(2 * math.pi)
        )
        inverse = solve_triangular(low, jnp.eye(count, dtype=low.dtype), lower=True)
        inverse = inverse.T @ inverse
        return -(likelihood + prior - jnp.sum(jnp.log1p(relevance)) - 0.5 * jnp.sum(inverse**2))

    return jax.value_and_grad(objective)(flat)


def levine_conditional(model: GPIRL, inducing: Any, scale: Any, relevance: Any) -> tuple[Array, Array]:
    """Cholesky factor of the covariance of the inducing points, and S (point, inducing)."""
    noise = jnp.asarray(model.noise, model.dtype)
    low, half = reward_kernel.whitened_cross(model.points, model.points[inducing], scale, relevance, noise)
    return low, solve_triangular(low, half, lower=True, trans=1).T


def _minimise(function: Any, start: Any, arguments: tuple, most: int) -> Any:
    """Minimum by L-BFGS of a function that returns its value and gradient."""
    from scipy.optimize import minimize

    def loss(x):
        value, gradient = function(x, *arguments)
        if not np.isfinite(value):
            return NOWHERE, np.zeros_like(x)
        return float(value), np.asarray(gradient, float)

    options = {"maxiter": most, "maxfun": 2 * most, "maxcor": 20, "gtol": 1e-6}
    found, x = None, np.asarray(start, float)
    for least in (
        1e-12,
        0.0,
    ):  # relative gain of a step, below which the search stops; of many steps, 1e-12 is much
        found = minimize(loss, x, jac=True, method="L-BFGS-B", options=options | {"ftol": least})
        if found.fun >= NOWHERE:
            raise FloatingPointError(
                "the log posterior density is not finite where the search for its mode starts: check the scale of the "
                "prior and of the features"
            )
        if _is_flat(found) or not found.success:
            break
        x = found.x
    return found


def _is_flat(found: Any) -> bool:
    """Whether the gradient is zero at the end of a search, whatever the optimiser says of it."""
    return bool(0.5 * np.sum(found.jac**2) <= FLAT)
