r"""Gaussian posterior of rewards at given hyper-parameters: Laplace's approximation, then natural-gradient VI.

q is Gaussian over the standard normal variables w of each reward :math:`r = A_\eta w + C_\eta e`; e keeps its prior:

.. math:: L(\eta) = E_q[\ln p(D \mid r)] - KL(q(w) \| N(0, I)) + \ln p(\eta)

A natural-gradient step, with gradients g and Hessians H of the log likelihood at draws of r, is

.. math:: P \leftarrow (1 - a) P + a\, (I - E[A^\top H A]), \qquad
          m \leftarrow m + a\, P^{-1} (E[A^\top g] - m)

Stochastic gradients of the ELBO leave good starts for worse ones, and do not converge from the prior; exact Hessians
need a dozen draws where Stein's identity needs thousands. Each step has fresh draws and the size
:math:`1 / (1 + n)`, so that precision and mean average over the draws so far. A step that lowers the ELBO on the fixed
draws by more than their noise is tried again at half the size. The step counter n is frozen while the ELBO improves
quickly.

What the average of n steps still lacks is what it has gained since half of them: the noise of a mean of n falls as 1/n.
The gain of a single step is n times smaller, and no measure of what is left. A gain may be small by chance, so that the
divergence of a step, times n, must be within the tolerance too.

Dilkas (2019), "Variational inference for inverse reinforcement learning with Gaussian processes", section 3, for the
bound; Khan and Nielsen (2018), "Fast yet simple natural-gradient descent for variational inference", eq. 7 and 8, for
the step.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.scipy.linalg import cho_factor, cho_solve, solve_triangular
from jaxtyping import Float

from ethogram.inference.rewards.hyper_parameters import log_prior, unpack
from ethogram.inference.rewards.search_status import Status
from ethogram.models.mdps.soft_curvature import likelihood_curvature
from ethogram.models.numpy_generator import numpy_generator
from ethogram.models.quick_jit import quick_jit
from ethogram.models.rewards import kernel as reward_kernel
from ethogram.models.rewards.gp_irl import GPIRL
from ethogram.models.rewards.kernel import RewardMap

__all__ = [
    "BaseDraws",
    "Gaussian",
    "Laplace",
    "PosteriorMode",
    "VIState",
    "base_draws",
    "bounded_inverse",
    "convergence_status",
    "divergence",
    "elbo",
    "evidence_gradient",
    "init",
    "laplace",
    "maximize_elbo",
    "mean_derivatives",
    "natural_step",
    "posterior_mode",
    "reward_map",
    "rewards_at",
    "run_steps",
    "standard_error",
    "step",
    "transport",
    "whitening_root",
]

MIN_PRECISION = 0.05
"""Lower limit of the precision of q(w), whose prior has one: the likelihood of a draw may not be concave."""

GRADIENT_TOL = 1e-3
"""Half the squared gradient at a mode, at most: the nats left to gain where the curvature is at least that of the prior
of white rewards, one."""

MAX_NEWTON_STEPS = 200
"""Steps of the search for the mode."""

HALVINGS = 6
"""Sizes that are tried for a step, each half of the one before."""

MIN_KEPT = 2
"""Fewest steps whose gain is judged, and before which the step counter does not wait."""

ROWS = 12
"""Draws whose derivatives one call of a program sums."""

CALLS, STEPS_PER_GRADIENT = 300, 10
"""Typical number of steps of a search, each of which handles its numbers about once per state; steps per gradient."""


class Gaussian(NamedTuple):
    """q(w) of each reward: of experts, of intents, or of one."""

    mean: Float[Any, "reward w"]
    root: Float[Any, "reward w w"]  # lower triangular


class BaseDraws(NamedTuple):
    """Standard normal draws: of w, and of the noise e of rewards given inducing points, where there are any."""

    latent: Float[Any, "draw reward w"]
    conditional: Float[Any, "draw reward point"] | None


class Laplace(NamedTuple):
    """Laplace's approximation at fixed hyper-parameters."""

    q: Gaussian
    objective: float  # log likelihood less half the squared norm of w at the mode, in nats
    converged: bool  # whether the search for the mode ended at a maximum


class VIState(NamedTuple):
    """State of a search."""

    q: Gaussian  # the current one
    best: Gaussian  # that of the highest ELBO, or a later one within its noise
    best_elbo: float  # on the fixed draws
    trace: list[float]  # ELBOs so far on the fixed draws
    at_draws: list[Any]  # the latest of them by draw
    steps: int
    num_averaged: int  # n in the size 1 / (1 + n)
    step_scale: float  # of the size, below one after halvings
    remaining_nats: float  # by the latest step and its size
    status: str


def base_draws(generator: np.random.Generator, model: GPIRL, num_rewards: int, num_draws: int) -> BaseDraws:
    """Antithetic standard normals, draws and their negatives: odd functions have no Monte Carlo error."""

    def draw(size):
        half = generator.standard_normal((num_draws // 2, num_rewards, size))
        return np.concatenate([half, -half])

    return BaseDraws(draw(model.num_white), None if model.inducing is None else draw(model.num_points))


def standard_error(at_draws: np.ndarray) -> float:
    """Standard error of the mean over antithetic draws."""
    pairs = at_draws.reshape(2, -1).mean(0)
    return float(pairs.std(ddof=1) / np.sqrt(len(pairs))) if len(pairs) > 1 else np.inf


def reward_map(model: GPIRL, log_hyper: Array) -> tuple[RewardMap, Array]:
    """Linear map to the rewards at logarithms (hyper,), and the rationality."""
    values = unpack(model, log_hyper)
    return model.reward_map(values["scale"], values["relevance"]), values["rationality"]


def whitening_root(model: GPIRL, scale: Any, relevance: Any) -> Array:
    """Cholesky factor of the covariance of the rewards that w whitens: of inducing points, where there are any."""
    points = model.points if model.inducing is None else model.points[model.inducing]
    noise = jnp.asarray(model.noise, points.dtype)
    return reward_kernel.root(reward_kernel.covariance(points, scale, relevance, noise), scale)


def _work(*arguments: Any, **_: Any) -> int:
    model = next(one for one in arguments if isinstance(one, GPIRL))
    return CALLS * model.mdp.num_states


@quick_jit(calls=_work)
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


class PosteriorMode(NamedTuple):
    """Posterior mode of w of one reward at fixed hyper-parameters."""

    white: Float[np.ndarray, "w"]
    precision: Float[np.ndarray, "w w"]  # negative Hessian of the log posterior density
    log_density: float
    converged: bool


def posterior_mode(model: GPIRL, counts: Any, log_hyper: Any, start: np.ndarray) -> PosteriorMode:
    """The maximum of the log likelihood less half the squared norm of w, by Newton's method in a trust region.

    Conn, Gould and Toint (2000), "Trust-region methods", section 7.3; its steps are exact where the likelihood is
    not concave.
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


def rewards_at(model: GPIRL, log_hyper: Array, q: Gaussian, draws: BaseDraws) -> tuple[Array, Array]:
    """Rewards (draw, reward, point) under q, and the rationality."""
    mapping, rationality = reward_map(model, log_hyper)
    white = q.mean + jnp.einsum("eij,dej->dei", q.root, draws.latent)
    return mapping.reward(white, draws.conditional), rationality


def divergence(q: Gaussian) -> Array:
    """KL(q(w) || N(0, I)), in nats."""
    roots = jnp.log(jnp.abs(jnp.diagonal(q.root, axis1=-2, axis2=-1)))
    return 0.5 * (jnp.sum(q.root**2) + jnp.sum(q.mean**2) - q.mean.size) - jnp.sum(roots)


def _elbo(model: GPIRL, counts: Array, log_hyper: Array, q: Gaussian, draws: BaseDraws) -> Array:
    rewards, rationality = rewards_at(model, log_hyper, q, draws)
    expected = jnp.sum(model.count_log_likelihood(rewards, counts, rationality), -1)
    return expected - divergence(q) + log_prior(model, log_hyper)


_compiled_elbo = quick_jit(_elbo, calls=_work)


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


_compiled_transport = quick_jit(_transport, calls=_work, static_argnames="bounded")


def transport(model: GPIRL, q: Gaussian, log_hyper: Any, new: Any) -> Gaussian:
    """Q at other logarithms of hyper-parameters, with what the data say of the rewards held.

    That is q over the prior, a Gaussian function of the rewards that w whitens; it meets the prior at the others. Where
    the data say little, w keeps its distribution, and where they say all, the rewards.
    """
    if not len(new):
        return q
    return Gaussian(*map(np.asarray, _compiled_transport(model, q, log_hyper, np.asarray(new), bounded=True)))


@quick_jit(calls=lambda *arguments: _work(*arguments) // STEPS_PER_GRADIENT)
@jax.grad
def _evidence_gradient(
    new: Array, model: GPIRL, counts: Array, log_hyper: Array, q: Gaussian, draws: BaseDraws
) -> Array:
    return jnp.mean(_elbo(model, counts, new, _transport(model, q, log_hyper, new, False), draws))


def evidence_gradient(
    model: GPIRL, counts: Any, log_hyper: Any, q: Gaussian, draws: BaseDraws
) -> Float[np.ndarray, "hyper"]:
    """Gradient of the mean ELBO in the logarithms of the hyper-parameters.

    The Gaussian moves along, as `transport` says: at the best q that adds nothing, and near it the error is of second
    order.
    """
    if not len(log_hyper):
        return np.zeros(0)
    return np.asarray(_evidence_gradient(np.asarray(log_hyper), model, counts, log_hyper, q, draws))


def init(q: Any, at_draws: np.ndarray) -> VIState:
    """The state before the first step, with the ELBO at each of the draws on which ELBOs are compared."""
    first = float(at_draws.mean())
    return VIState(q, q, first, [first], [at_draws], 0, 0, 1.0, np.inf, Status.TOO_FEW_STEPS)


def step(state: VIState, move: Callable[[float], tuple[Any, np.ndarray]], tol: float) -> VIState:
    """The state after one step, whose size is halved until the ELBO does not fall.

    ``move(step_size)`` has q after a natural-gradient step at fresh draws, and its ELBO at each of the fixed draws.
    """
    state = state._replace(steps=state.steps + 1)
    latest, scale = state.at_draws[-1], state.step_scale
    for _ in range(HALVINGS):
        size = scale / (1 + state.num_averaged)
        after, at_draws = move(size)
        step_gain, step_error = _gain(latest, at_draws)
        if np.isfinite(at_draws).all() and not step_gain < -max(tol, 2 * step_error):
            break
        scale *= 0.5
    else:
        status = Status.ELBO_FELL if np.isfinite(latest).all() else Status.NOT_FINITE
        trace = [*state.trace, state.trace[-1]]
        return state._replace(
            trace=trace, num_averaged=state.num_averaged + 1, step_scale=scale, status=status
        )
    now = float(at_draws.mean())
    higher = (
        not now <= np.nanmax([-np.inf, *state.trace]) - 2 * step_error
    )  # later ones average over more draws
    kept = max(MIN_KEPT, (state.num_averaged + 2) // 2)
    moved = state._replace(
        q=after,
        best=after if higher else state.best,
        best_elbo=now if higher else state.best_elbo,
        trace=[*state.trace, now],
        at_draws=[*state.at_draws, at_draws][-kept - 1 :],
        step_scale=min(1.0, 2 * scale),
        remaining_nats=_divergence(state.q, after) / size,
    )
    gain, error = _gain(state.at_draws[0], at_draws)
    # Averages over more draws raise the ELBO too, but by less and less in a step.
    quick = state.num_averaged > MIN_KEPT and gain > max(tol, 2 * error)
    waits = quick and step_gain > max(tol / 4, 2 * step_error)
    moved = moved._replace(num_averaged=state.num_averaged + (not waits))
    return moved._replace(status=_status(moved, tol))


def _status(state: VIState, tol: float) -> Status:
    return convergence_status(
        state.at_draws, state.steps, state.num_averaged, state.step_scale, state.remaining_nats, tol
    )


def convergence_status(
    at_draws: list[Any], steps: int, num_averaged: float, step_scale: float, remaining_nats: float, tol: float
) -> Status:
    """What speaks against convergence within `tol` nats, if anything does.

    Parameters
    ----------
    at_draws : the latest ELBOs by draw, on common draws; what the last has gained over the first is judged.
    steps, num_averaged, step_scale, remaining_nats : as in `VIState`.
    """
    if steps < 2 * MIN_KEPT or len(at_draws) <= MIN_KEPT:
        return Status.TOO_FEW_STEPS
    gain, error = _gain(at_draws[0], at_draws[-1])
    if not np.isfinite(gain):
        return Status.NOT_FINITE
    if abs(gain) + error <= tol:
        if step_scale < 1:
            return Status.ELBO_FELL
        if num_averaged < 2 * MIN_KEPT:
            return Status.TOO_FEW_STEPS
        return Status.CONVERGED if remaining_nats <= tol else Status.UNSETTLED
    if abs(gain) <= 2 * error:
        return Status.NOISY
    return Status.ELBO_RISING if gain > 0 else Status.ELBO_FELL


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
    state: VIState | None = None,
    callback: Callable[[VIState], None] = lambda state: None,
) -> VIState:
    """The state where the search has converged, or after `num_steps` steps; `callback` is called after each.

    It begins at q, or goes on from a state, whose tolerance may have been another.
    """

    def move(state, step_size):
        draws = base_draws(numpy_generator(key, state.steps), model, len(state.q.mean), num_draws)
        after = natural_step(model, counts, log_hyper, state.q, draws, step_size)
        return after, elbo(model, counts, log_hyper, after, fixed)

    if state is None:
        state = init(q, elbo(model, counts, log_hyper, q, fixed))
    return run_steps(state, move, num_steps=num_steps, tol=tol, callback=callback)


def run_steps(
    state: VIState,
    move: Callable[[VIState, float], tuple[Any, np.ndarray]],
    *,
    num_steps: int,
    tol: float,
    callback: Callable[[VIState], None],
) -> VIState:
    """The state where the search has converged, or after `num_steps` steps; `move` is that of `step`, from a state."""
    if state.status == Status.CONVERGED:  # of an earlier call, whose tolerance may have been another
        state = state._replace(status=_status(state, tol))
    while state.steps < num_steps and state.status != Status.CONVERGED:
        state = step(state, functools.partial(move, state), tol)
        callback(state)
    return state


def _gain(before: np.ndarray, after: np.ndarray) -> tuple[float, float]:
    """Paired difference of two ELBOs, and its standard error."""
    return float(np.mean(after - before)), standard_error(after - before)


def _divergence(q: Gaussian, after: Gaussian) -> float:
    """KL(after || q) of w, in nats; over the share of a step it is the noise that an average of steps has left."""
    root = np.linalg.solve(q.root, after.root)
    gap = np.linalg.solve(q.root, (after.mean - q.mean)[..., None])
    logs = np.log(np.abs(np.diagonal(root, axis1=-2, axis2=-1)))
    return float(0.5 * (np.sum(root**2) + np.sum(gap**2) - q.mean.size) - np.sum(logs))
