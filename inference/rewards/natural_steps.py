r"""Natural-gradient steps that decay or are halved, until the ELBO gains no more on the same draws.

Every step has fresh draws, and moves q(w) by a share :math:`1 / (1 + n)` towards what they say, so that precision and
mean average over the draws so far. A step that lowers the ELBO on the fixed draws by more than their noise is tried
again at half the size. While the ELBO rises fast, far from the optimum, n waits; where hyper-parameters move too, it
falls back. They move with what the data say of the rewards held, so that q follows its optimum.

What the average of n steps still lacks is what it has gained since half of them: the noise of a mean of n falls as 1/n.
The gain of a single step is n times smaller, and no measure of what is left. A gain may be small by chance, so that the
divergence of a step, times n, must be within the tolerance too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from ethogram.inference.rewards.gaussian import Normals, RewardGaussian, bound, natural_step, with_hypers
from ethogram.models.rewards.gp_irl import GPIRL

if TYPE_CHECKING:
    from ethogram.inference.rewards.natural_gradient import RewardSearch

__all__ = [
    "RULE",
    "Climb",
    "begin_climb",
    "climb",
    "first_moments",
    "hyper_change",
    "hyper_gradient",
    "moved_hypers",
    "standard_error",
    "with_moved_hypers",
]

HALVINGS = 6
"""Sizes that are tried for a step, each half of the one before."""

SHORTEST, SHORTEST_MOVING = 3, 6
"""Fewest steps whose gain is judged, with hyper-parameters held and with moving ones."""

FULL = 3
"""Steps before n may fall back; the step of hyper-parameters shrinks after them."""

RULE = optax.adam(0.1)
"""Optimiser of the hyper-parameters' logarithms."""

BACK = 2
"""What n loses in a step where hyper-parameters move and the ELBO rises: small steps must not pass for a maximum."""


class Climb(NamedTuple):
    """State of a search from one start."""

    q: RewardGaussian  # the current one
    best: RewardGaussian  # that of the highest ELBO, or a later one within its noise
    best_elbo: float  # on the fixed draws
    trace: list[float]  # ELBOs so far on the fixed draws
    at_draws: list[np.ndarray]  # the latest of them by draw
    moments: list[Any]  # leaves of the optimiser state of `RULE`
    key: Any  # of later steps
    step: int  # steps done
    decay: int  # n in the size 1 / (1 + n)
    factor: float  # of the size, below one after halvings
    left: float  # nats to go by the latest step and its size
    reason: str  # why the search has not converged, empty where it has


def standard_error(at_draws: np.ndarray) -> float:
    """Standard error of the mean over antithetic draws."""
    pairs = at_draws.reshape(2, -1).mean(0)
    return float(pairs.std(ddof=1) / np.sqrt(len(pairs))) if len(pairs) > 1 else np.inf


def begin_climb(search: RewardSearch, q: RewardGaussian, fixed: Normals, key: Array) -> Climb:
    """The state before the first step."""
    at_draws = np.asarray(search.bounds(q, fixed))
    fewest = f"fewer than {2 * _shortest(search, q)} steps were done"
    elbo = float(at_draws.mean())
    return Climb(q, q, elbo, [elbo], [at_draws], first_moments(q), key, 0, 0, 1.0, np.inf, fewest)


def climb(
    search: RewardSearch,
    state: Climb,
    fixed: Normals,
    num_steps: int,
    tol: float,
    report: Callable[[Climb], None] = lambda state: None,
) -> Climb:
    """The state where the search has converged, or after `num_steps` steps; `report` is called after each."""
    if not state.reason:  # of an earlier call, whose tolerance may have been another
        state = state._replace(reason=_open_question(state, _shortest(search, state.q), tol))
    while state.step < num_steps and state.reason:
        state = _after_step(search, state, fixed, tol)
        report(state)
    return state


def moved_hypers(q: RewardGaussian) -> tuple[Any, Any]:
    """Parameters of q(ln hyper-parameters) that are optimised."""
    return np.asarray(q.log_hyper), np.log(np.maximum(np.asarray(q.log_hyper_sd), 1e-3))


def first_moments(q: RewardGaussian) -> list[Any]:
    """Leaves of the optimiser state before the first step."""
    return jax.tree.leaves(_init(moved_hypers(q)))


def _moves_hypers(search: RewardSearch, q: RewardGaussian) -> bool:
    return search.hyper in ("variational", "point") and len(q.log_hyper) > 0


def _shortest(search: RewardSearch, q: RewardGaussian) -> int:
    return SHORTEST_MOVING if _moves_hypers(search, q) else SHORTEST


def _after_step(search: RewardSearch, state: Climb, fixed: Normals, tol: float) -> Climb:
    key, key_step = jax.random.split(state.key)
    normals = search.normals(key_step, search.num_draws)
    moving, q, latest = _moves_hypers(search, state.q), state.q, state.at_draws[-1]
    state = state._replace(key=key, step=state.step + 1)
    change, moments = hyper_change(search, q, normals, state.moments) if moving else (None, state.moments)
    factor = state.factor
    for _ in range(HALVINGS):
        size = factor / (1 + state.decay)
        after = natural_step(search.model, q, search.counts, normals, size, search.hyper != "variational")
        if change is not None:
            length = factor * min(1.0, (1 + FULL) / (1 + state.decay))
            log_sd = moved_hypers(q)[1] + length * change[1]
            log_hyper = moved_hypers(q)[0] + length * change[0]
            after = with_moved_hypers(search.model, after, log_hyper)
            if search.hyper == "variational":
                after = after._replace(log_hyper_sd=np.exp(log_sd))
        at_draws = np.asarray(search.bounds(after, fixed))
        gain, error = _gain(latest, at_draws)
        if np.isfinite(at_draws).all() and not gain < -max(tol, 2 * error):
            break
        factor *= 0.5
    else:
        finite = np.isfinite(latest).all()
        reason = "the ELBO falls at steps of any size" if finite else "ELBOs are not finite"
        return state._replace(
            trace=[*state.trace, state.trace[-1]], decay=state.decay + 1, factor=factor, reason=reason
        )
    now = float(at_draws.mean())
    higher = not now <= np.nanmax([-np.inf, *state.trace]) - 2 * error  # later ones average over more draws
    shortest = _shortest(search, q)
    kept = max(shortest, (state.decay + 2) // 2)
    state = state._replace(
        q=after,
        best=after if higher else state.best,
        best_elbo=now if higher else state.best_elbo,
        trace=[*state.trace, now],
        at_draws=[*state.at_draws, at_draws][-kept - 1 :],
        moments=moments,
        factor=min(1.0, 2 * factor),
    )
    step_gain, step_error = gain, error
    gain, error = _gain(state.at_draws[0], at_draws)
    rises = state.decay > FULL and gain > max(tol, 2 * error)
    if rises and moving:
        decay = max(FULL, state.decay - BACK)
    else:  # averages over more draws raise the ELBO too, but by less and less in a step
        decay = state.decay + (not (rises and step_gain > max(tol / 4, 2 * step_error)))
    state = state._replace(decay=decay, left=float(_divergence(q, after) / size))
    return state._replace(reason=_open_question(state, shortest, tol))


@jax.jit
def _divergence(q: RewardGaussian, after: RewardGaussian) -> Array:
    """KL(after || q) of w, in nats; over the share of a step it is the noise that an average of steps has left."""
    root = jnp.linalg.solve(q.root, after.root)
    gap = jnp.linalg.solve(q.root, (after.mean - q.mean)[..., None])
    logs = jnp.log(jnp.abs(jnp.diagonal(root, axis1=-2, axis2=-1)))
    return 0.5 * (jnp.sum(root**2) + jnp.sum(gap**2) - q.mean.size) - jnp.sum(logs)


def _gain(before: np.ndarray, after: np.ndarray) -> tuple[float, float]:
    """Paired difference of two ELBOs, and its standard error."""
    return float(np.mean(after - before)), standard_error(after - before)


def _open_question(state: Climb, shortest: int, tol: float) -> str:
    """What speaks against convergence, in words; empty where nothing does."""
    if state.step < 2 * shortest or len(state.at_draws) <= shortest:
        return f"fewer than {2 * shortest} steps were done"
    gain, error = _gain(state.at_draws[0], state.at_draws[-1])
    if abs(gain) + error <= tol:
        if state.factor < 1:
            return "the ELBO falls at steps of full size"
        if state.decay < 2 * shortest:
            return "the steps have hardly begun to decay"
        return (
            ""
            if state.left <= tol
            else f"the steps still move, with {state.left:.2g} nats to go by their size"
        )
    steps = f"over the latest {len(state.at_draws) - 1} steps"
    of = f"by {abs(gain):.2g} nats (standard error {error:.2g}) {steps}"
    if abs(gain) <= 2 * error:
        return f"the standard error of the gain {steps} is {error:.2g} nats"
    return f"the ELBO still increases, {of}" if gain > 0 else f"the ELBO has fallen, {of}"


def hyper_change(
    search: RewardSearch, q: RewardGaussian, normals: Normals, moments: list[Any]
) -> tuple[Any, list[Any]]:
    """Step of full size of the hyper-parameters' logarithms, None where a gradient is not finite, and moments."""
    gradient = hyper_gradient(search.model, q, search.counts, normals, search.hyper == "variational")
    if not all(np.isfinite(x).all() for x in gradient):
        return None, moments
    change, moments = _update(gradient, moments)
    return jax.tree.map(np.asarray, change), moments


_init = jax.jit(RULE.init)


@jax.jit
def _update(gradient: tuple[Array, Array], moments: list[Any]) -> tuple[Any, list[Any]]:
    state = jax.tree.unflatten(jax.tree.structure(RULE.init(gradient)), moments)
    change, state = RULE.update(jax.tree.map(jnp.negative, gradient), state)
    return change, jax.tree.leaves(state)


with_moved_hypers = jax.jit(with_hypers)


@functools.partial(jax.jit, static_argnames="variational")
def hyper_gradient(
    model: GPIRL, q: RewardGaussian, counts: Array, normals: Normals, variational: bool
) -> Any:
    """Gradient of the ELBO in the logarithms of the hyper-parameters and of their standard deviations.

    The Gaussian of w moves along, as `with_hypers` says: at the best q that adds nothing, and near it the error is of
    second order.
    """

    def mean_bound(log_hyper, log_sd):
        sd = jnp.exp(log_sd) if variational else q.log_hyper_sd
        moved = with_hypers(model, q, log_hyper, differentiable=True)._replace(log_hyper_sd=sd)
        return jnp.mean(bound(model, moved, counts, normals, not variational))

    return jax.grad(mean_bound, (0, 1))(q.log_hyper, jnp.log(q.log_hyper_sd))
