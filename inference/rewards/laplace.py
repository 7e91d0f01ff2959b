"""Posterior mode of rewards at given hyper-parameters, and Laplace's approximation there.

Gradients and Hessians of the log likelihood are exact (:mod:`ethogram.models.mdps.soft_curvature`), so that Newton's
method finds the mode in a handful of steps; natural-gradient steps average the same derivatives over draws.

Conn, Gould and Toint (2000), "Trust-region methods", section 7.3.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float

from ethogram.inference.rewards.hyper_parameters import unpack
from ethogram.models.mdps.soft_curvature import likelihood_curvature
from ethogram.models.quick_jit import quick_jit
from ethogram.models.rewards.gp_irl import GPIRL
from ethogram.models.rewards.kernel import RewardMap

__all__ = [
    "MIN_PRECISION",
    "Gaussian",
    "Laplace",
    "PosteriorMode",
    "bounded_inverse",
    "laplace",
    "mean_derivatives",
    "posterior_mode",
    "reward_map",
    "work",
]

MIN_PRECISION = 0.05
"""Lower limit of the precision of q(w), whose prior has one: the likelihood of a draw may not be concave."""

GRADIENT_TOL = 1e-3
"""Half the squared gradient at a mode, at most: the nats left to gain where the curvature is at least that of the prior
of white rewards, one."""

MAX_NEWTON_STEPS = 200
"""Steps of the search for the mode."""

ROWS = 12
"""Draws whose derivatives one call of a program sums."""

CALLS = 300
"""Typical number of steps of a search, each of which handles its numbers about once per state."""


class Gaussian(NamedTuple):
    """q(w) of each reward: of experts, of intents, or of one."""

    mean: Float[Any, "reward w"]
    root: Float[Any, "reward w w"]  # lower triangular


class Laplace(NamedTuple):
    """Laplace's approximation at fixed hyper-parameters."""

    q: Gaussian
    objective: float  # log likelihood less half the squared norm of w at the mode, in nats
    converged: bool  # whether the search for the mode ended at a maximum


class PosteriorMode(NamedTuple):
    """Posterior mode of w of one reward at fixed hyper-parameters."""

    white: Float[np.ndarray, "w"]
    precision: Float[np.ndarray, "w w"]  # negative Hessian of the log posterior density
    log_density: float
    converged: bool


def reward_map(model: GPIRL, log_hyper: Array) -> tuple[RewardMap, Array]:
    """Linear map to the rewards at logarithms (hyper,), and the rationality."""
    values = unpack(model, log_hyper)
    return model.reward_map(values["scale"], values["relevance"]), values["rationality"]


def work(*arguments: Any, **_: Any) -> int:
    """Work of a program of a search, in numbers of its arguments that are handled, for `quick_jit`."""
    model = next(one for one in arguments if isinstance(one, GPIRL))
    return CALLS * model.mdp.num_states


@quick_jit(calls=work)
def _summed_derivatives(
    model: GPIRL, counts: Array, log_hyper: Array, latent: Array, conditional: Array | None, num_used: Any
) -> tuple[Array, Array, Array]:
    """Log likelihoods of one reward, gradients (w,) and Hessians (w, w), summed over the first `num_used` draws."""
    mapping, rationality = reward_map(model, log_hyper)
    pairs = model.features.ndim == 3

    def add(draw, totals):
        rest = None if conditional is None else conditional[draw]
        acted = rationality * mapping.reward(latent[draw], rest).reshape(model.features.shape[:-1])
        found = likelihood_curvature(model.mdp, acted, counts, basis=mapping.weights, pairs=pairs)
        each = (found.log_likelihood, rationality * found.gradient, rationality**2 * found.hessian)
        return jax.tree.map(jnp.add, totals, each)

    size = latent.shape[-1]
    nothing = tuple(jnp.zeros(shape, latent.dtype) for shape in ((), (size,), (size, size)))
    return lax.fori_loop(0, num_used, add, nothing)


def mean_derivatives(
    model: GPIRL, counts: Any, log_hyper: Any, latent: np.ndarray, conditional: np.ndarray | None
) -> tuple[np.ndarray, ...]:
    """Log likelihood of one reward, gradient (w,) and Hessian (w, w), as means over draws of w (draw, w) and e."""
    totals: list[Any] = [0.0] * 3
    for first in range(0, len(latent), ROWS):  # in tables of as many rows, so that all calls share a program
        used = latent[first : first + ROWS]
        rows = np.zeros((ROWS, latent.shape[-1]))
        rows[: len(used)] = used
        rest = None
        if model.inducing is not None:
            rest = np.zeros((ROWS, model.num_points))
            if conditional is not None:
                rest[: len(used)] = conditional[first : first + ROWS]
        found = _summed_derivatives(model, counts, log_hyper, rows, rest, len(used))
        totals = [total + np.asarray(one) for total, one in zip(totals, found, strict=True)]
    return tuple(np.asarray(total / len(latent)) for total in totals)


def bounded_inverse(precision: np.ndarray) -> np.ndarray:
    """Covariance (w, w) of a precision, whose eigenvalues are taken to be at least `MIN_PRECISION`."""
    values, vectors = np.linalg.eigh(0.5 * (precision + precision.T))
    return (vectors / np.maximum(values, MIN_PRECISION)) @ vectors.T


def laplace(
    model: GPIRL,
    counts: Any,
    log_hyper: Any,
    *,
    generator: np.random.Generator | None = None,
    num_restarts: int = 0,
) -> Laplace:
    """Laplace's approximation at logarithms (hyper,), for counts (reward, state, action).

    Besides zero, `num_restarts` draws from the prior are starts of the search for each mode.
    """
    means, roots, objective, converged = [], [], 0.0, True
    for of_reward in counts:
        starts = [np.zeros(model.num_white)]
        if generator is not None and num_restarts:
            starts += list(generator.standard_normal((num_restarts, model.num_white)))
        found = [posterior_mode(model, of_reward, log_hyper, one) for one in starts]
        mode = max(found, key=lambda one: one.log_density)
        means.append(mode.white)
        roots.append(np.linalg.cholesky(bounded_inverse(mode.precision)))
        objective += mode.log_density
        converged &= mode.converged
    return Laplace(Gaussian(np.stack(means), np.stack(roots)), objective, converged)


def posterior_mode(model: GPIRL, counts: Any, log_hyper: Any, start: np.ndarray) -> PosteriorMode:
    """The maximum of the log likelihood less half the squared norm of w, by Newton's method in a trust region.

    Its steps are exact where the likelihood is not concave too.
    """
    from scipy.optimize import minimize

    known: dict[bytes, tuple[float, np.ndarray, np.ndarray]] = {}

    def at(white):
        if white.tobytes() not in known:
            value, gradient, hessian = mean_derivatives(model, counts, log_hyper, white[None], None)
            known.clear()
            loss = 0.5 * float(white @ white) - float(value)
            known[white.tobytes()] = loss, white - gradient, np.eye(len(white)) - hessian
        return known[white.tobytes()]

    if not np.isfinite(at(start)[0]):
        raise FloatingPointError(
            "the log posterior density is not finite where the search for its mode starts: check the scale of the "
            "prior and of the features"
        )
    found = minimize(
        lambda white: at(white)[0], start, jac=lambda white: at(white)[1], hess=lambda white: at(white)[2],
        method="trust-exact", options={"gtol": 1e-6, "maxiter": MAX_NEWTON_STEPS},
    )  # fmt: skip
    converged = 0.5 * float(np.sum(found.jac**2)) <= GRADIENT_TOL
    return PosteriorMode(found.x, np.asarray(found.hess), -float(found.fun), converged)
