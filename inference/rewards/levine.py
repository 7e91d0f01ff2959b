r"""Levine's MAP estimate of a reward and its hyper-parameters: a point, without uncertainty.

It maximises, over rewards u of inducing points and the hyper-parameters together,

.. math:: \ln p(D \mid r = S u) + \ln N(u; 0, K_{uu}) - \sum_l \ln(1 + \lambda_l) - \tfrac12 \|K_{uu}^{-1}\|_F^2

with :math:`S = K_{ru} K_{uu}^{-1}`: the noise of a reward given u is left out, and the last term penalises redundant
inducing points. The priors of the model are not used.

Levine, Popovic and Koltun (2011), "Nonlinear inverse reinforcement learning with Gaussian processes", eq. 7 and 8; the
last term is that of their toolkit.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from jax.scipy.linalg import cho_solve
from jaxtyping import Float, Int

from ethogram.inference.draws import Draws, one_chain, variational_attributes
from ethogram.inference.rewards.blas_threads import one_blas_thread
from ethogram.inference.rewards.reward_posterior import as_double
from ethogram.models.arguments import require_key, warn_user
from ethogram.models.numpy_generator import numpy_generator
from ethogram.models.printing import short_repr
from ethogram.models.quick_jit import quick_jit
from ethogram.models.rewards import kernel as reward_kernel
from ethogram.models.rewards.gp_irl import GPIRL, reward_sites

__all__ = ["LevineEstimate", "levine_map", "maximize_levine", "takes_levine"]

INITIAL_SCALE = 5.0
FTOL = 1e-12
"""Relative gain of an iteration that ends the search."""

THOROUGH, ROUGH = (5, 100, FTOL), (3, 30, 1e-6)
"""Starts, iterations from each before the best one is chosen, and the relative gain that ends these; of an estimate
that is a start itself they are fewer."""

MAX_STEPS = 2000
"""Iterations to convergence, at most."""

CALLS = 500
"""Typical number of evaluations, each of which handles its numbers about once per state."""

GRADIENT_TOL = 1e-3
"""Half the squared gradient at a maximum, at most."""

NOT_FINITE = 1e300
"""Value reported to the optimiser where the objective is not finite."""


@short_repr
class LevineEstimate(NamedTuple):
    """Levine's estimate.

    Attributes
    ----------
    model : the model that was fitted.
    reward : S u (state,) or (state, action), without the noise of points that are not inducing points.
    u : (inducing,), rewards of the inducing points.
    inducing : (inducing,), their numbers.
    scale, relevance : hyper-parameters; the latter (feature,).
    objective : at the end of its maximisation.
    converged : whether the search ended at a maximum.
    """

    model: GPIRL
    reward: Float[np.ndarray, "*point"]
    u: Float[np.ndarray, "inducing"]
    inducing: Int[np.ndarray, "inducing"]
    scale: float
    relevance: Float[np.ndarray, "feature"]
    objective: float
    converged: bool

    @property
    def method(self) -> str:
        """Name of the algorithm."""
        return "levine"

    def mean(self) -> dict[str, Array]:
        """Sites of the model at the estimate."""
        model = self.model
        reward = jnp.asarray(self.reward.ravel(), model.dtype)
        hypers = {"scale": self.scale, "relevance": self.relevance, "u": self.u}
        return {name: jnp.asarray(x, model.dtype) for name, x in hypers.items()} | _sites(model, reward)

    def draws_for_export(self, key: Array, num_draws: int) -> Draws:
        """The estimate, repeated, in one chain."""
        sites = {name: np.broadcast_to(x, (num_draws, *np.shape(x))) for name, x in self.mean().items()}
        attributes = {
            "method": self.method,
            "converged": int(self.converged),
            "objective": float(self.objective),
        }
        return Draws(self.model, one_chain(sites), {}, {}, variational_attributes() | attributes)


def levine_map(key: Array, model: GPIRL, demonstrations: Any) -> LevineEstimate:
    """Levine's estimate of the reward behind demonstrations.

    Parameters
    ----------
    key : typed PRNG key, of the starts of the search.
    model : a GPIRL of rewards of states, with a fixed rationality. Its inducing points are the estimate's; without any
        all visited states are.
    demonstrations : of one expert: `Trajectories` with states and actions, or counts (state, action).

    Warns
    -----
    UserWarning : the search did not end at a maximum.

    Examples
    --------
    >>> from ethogram.models.mdps import MDP
    >>> corridor = MDP.deterministic([[0, 1], [0, 2], [1, 2]], discount=0.9)
    >>> model = GPIRL(corridor, [[0.0], [1.0], [2.0]])
    >>> estimate = levine_map(jax.random.key(0), model, np.array([[0, 3], [0, 3], [0, 3]]))
    >>> int(estimate.reward.argmax())
    2
    """
    require_key(key)
    if not isinstance(model, GPIRL):
        raise TypeError(f"model is {type(model).__name__}: give a GPIRL")
    counts = model.counts(demonstrations)
    if counts.ndim == 3 or not takes_levine(model):
        raise ValueError(
            "Levine's estimate needs one expert, a reward of states and a fixed rationality: leave subject out, or use "
            "fit_reward"
        )
    with jax.enable_x64(True), one_blas_thread():
        found = maximize_levine(key, as_double(model), counts)
    if not found.converged:
        warn_user(
            "the search for Levine's estimate did not end at a maximum: check the scale of the features"
        )
    return found._replace(model=model)


def takes_levine(model: GPIRL) -> bool:
    """Whether Levine's objective applies to the model."""
    return model.features.ndim == 2 and not isinstance(model.rationality, dist.Distribution)


def maximize_levine(
    key: Array, model: GPIRL, counts: Any, search: tuple[int, int, float] = THOROUGH
) -> LevineEstimate:
    """The best of some starts, in double precision.

    It goes on once as it is and once from its rewards and the initial hyper-parameters; the better is continued to
    convergence. `search` has the number of starts, their iterations, and the relative gain that ends these.
    """
    num_starts, screening_steps, ftol = search
    visited = np.asarray(counts).sum(1) > 0
    inducing = np.flatnonzero(visited) if model.inducing is None else np.asarray(model.inducing)
    # Features of large units would have no covariance at a relevance of 1, and no gradient.
    first = -np.log(np.append(1 / INITIAL_SCALE, np.maximum(np.var(np.asarray(model.points), axis=0), 1)))
    draws = numpy_generator(key).uniform(size=(num_starts, len(inducing)))

    def minimize(x, max_steps=screening_steps, ftol=ftol):
        return _minimize(np.asarray(x, float), (model, inducing, counts), max_steps, ftol)

    best = min((minimize(np.append(u, first)) for u in draws), key=lambda one: one.fun)
    again = minimize(np.append(best.x[: len(inducing)], first))
    best = min(minimize(best.x), again, key=lambda one: one.fun)
    found = minimize(best.x, MAX_STEPS, FTOL)
    u, log_hyper = np.split(found.x, [len(inducing)])
    reward = np.asarray(_reward(model, inducing, found.x)).reshape(model.features.shape[:-1])
    scale, relevance = float(np.exp(log_hyper[0])), np.exp(log_hyper[1:])
    return LevineEstimate(model, reward, u, inducing, scale, relevance, -float(found.fun), _is_flat(found))


def _minimize(start: np.ndarray, task: tuple, max_steps: int, ftol: float) -> Any:
    from scipy.optimize import minimize

    def loss(x):
        value, gradient = _negative_objective(x, *task)
        if not np.isfinite(value):
            return NOT_FINITE, np.zeros_like(x)
        return float(value), np.asarray(gradient, float)

    options = {"maxiter": max_steps, "maxfun": 2 * max_steps, "maxcor": 20, "gtol": 1e-6}
    found = minimize(loss, start, jac=True, method="L-BFGS-B", options=options | {"ftol": ftol})
    if found.fun >= NOT_FINITE:
        raise FloatingPointError(
            "Levine's objective is not finite where its search starts: check the scale of the features"
        )
    if (
        found.success and ftol == FTOL and not _is_flat(found)
    ):  # of many demonstrations, the smallest relative step is much
        found = minimize(loss, found.x, jac=True, method="L-BFGS-B", options=options | {"ftol": 0.0})
    return found


def _is_flat(found: Any) -> bool:
    """Whether the gradient is zero at the end of a search, whatever the optimiser says of it."""
    return bool(0.5 * np.sum(found.jac**2) <= GRADIENT_TOL)


def _calls(flat: Array, model: GPIRL, *_: Any) -> int:
    return CALLS * model.mdp.num_states


@quick_jit(calls=_calls)
@jax.value_and_grad
def _negative_objective(flat: Array, model: GPIRL, inducing: Array, counts: Array) -> Array:
    u, relevance, inverse, log_det, cross = _parts(flat, model, inducing)
    weights = inverse @ u
    log_prior = -0.5 * (u @ weights + log_det + len(u) * math.log(2 * math.pi))
    likelihood = model.count_log_likelihood(cross @ weights, counts)
    return -(likelihood + log_prior - jnp.sum(jnp.log1p(relevance)) - 0.5 * jnp.sum(inverse**2))


def _parts(flat: Array, model: GPIRL, inducing: Array) -> tuple[Array, ...]:
    """The rewards u, the relevances, inverse and log determinant of the covariance of u, and that with all rewards."""
    u, hyper = flat[: len(inducing)], jnp.exp(flat[len(inducing) :])
    scale, relevance = hyper[0], hyper[1:]
    noise, points = jnp.asarray(model.noise, model.dtype), model.points
    own = reward_kernel.jittered(reward_kernel.covariance(points[inducing], scale, relevance, noise), scale)
    cross = reward_kernel.cross_covariance(points, points[inducing], scale, relevance, noise)
    return u, relevance, *_inverse_and_log_det(own), cross


@jax.custom_vjp
def _inverse_and_log_det(matrix: Array) -> tuple[Array, Array]:
    """Of a positive definite matrix; the derivative reuses the inverse, and costs two products."""
    low = jnp.linalg.cholesky(matrix)
    inverse = cho_solve((low, True), jnp.eye(len(low), dtype=low.dtype))
    return inverse, 2 * jnp.sum(jnp.log(jnp.diag(low)))


def _forward(matrix):
    inverse, log_det = _inverse_and_log_det(matrix)
    return (inverse, log_det), inverse


def _backward(inverse, slopes):
    return (slopes[1] * inverse - inverse @ slopes[0] @ inverse,)


_inverse_and_log_det.defvjp(_forward, _backward)


@quick_jit
def _reward(model: GPIRL, inducing: Array, flat: Array) -> Array:
    u, _, inverse, _, cross = _parts(flat, model, inducing)
    return cross @ (inverse @ u)


@quick_jit
def _sites(model: GPIRL, reward: Array) -> dict[str, Array]:
    return reward_sites(model, reward, model.agent(reward))
