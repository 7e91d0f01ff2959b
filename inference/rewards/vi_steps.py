"""Steps of variational inference whose sizes decay or are halved, until the ELBO gains no more on the same draws.

Each step has fresh draws and the size :math:`1 / (1 + n)`, so that precision and mean of a Gaussian average over the
draws so far. A step that lowers the ELBO on the fixed draws by more than their noise is tried again at half the size.
The step counter n is frozen while the ELBO improves quickly.

What the average of n steps still lacks is what it has gained since half of them: the noise of a mean of n falls as 1/n.
The gain of a single step is n times smaller, and no measure of what is left. A gain may be small by chance, so that the
divergence of a step, times n, must be within the tolerance too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ethogram.inference.rewards.search_status import Status

__all__ = ["VIState", "convergence_status", "init", "run_steps", "settle", "standard_error", "step"]

HALVINGS = 6
"""Sizes that are tried for a step, each half of the one before."""

MOST_LOST = 1.0
"""Nats that a step may lose at most, however noisy the difference: a q that is too wide has a noisy ELBO."""

MOST_MOVED = 0.25
"""KL divergence in nats of half a step, up to which a q that was moved from other hyper-parameters may be kept."""

MIN_KEPT = 2
"""Fewest steps whose gain is judged, and before which the step counter does not wait."""


class VIState(NamedTuple):
    """State of a search."""

    q: Any  # the current one: a Gaussian, of switching rewards with their chain
    best: Any  # that of the highest ELBO, or a later one within its noise
    best_elbo: float  # on the fixed draws
    trace: list[float]  # ELBOs so far on the fixed draws
    at_draws: list[Any]  # the latest of them by draw
    steps: int
    num_averaged: int  # n in the size 1 / (1 + n)
    step_scale: float  # of the size, below one after halvings
    remaining_nats: float  # by the latest step and its size
    status: str


def standard_error(at_draws: np.ndarray) -> float:
    """Standard error of the mean over antithetic draws."""
    pairs = at_draws.reshape(2, -1).mean(0)
    return float(pairs.std(ddof=1) / np.sqrt(len(pairs))) if len(pairs) > 1 else np.inf


def init(q: Any, at_draws: np.ndarray) -> VIState:
    """The state before the first step, with the ELBO at each of the draws on which ELBOs are compared."""
    first = float(at_draws.mean())
    return VIState(q, q, first, [first], [at_draws], 0, 0, 1.0, np.inf, Status.TOO_FEW_STEPS)


def settle(state: VIState, move: Callable[[float], tuple[Any, np.ndarray]], tol: float) -> VIState | None:
    """The better of the first q and q after one step, of size one half; None where that gains or moves much."""
    after, at_draws = move(0.5)
    gain = float(at_draws.mean()) - state.best_elbo
    if not (gain <= tol and _divergence(state.q, after) <= MOST_MOVED):
        return None
    if gain > 0:
        state = init(after, at_draws)
    return state._replace(steps=1, status=Status.CONVERGED)


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
        if np.isfinite(at_draws).all() and not step_gain < -max(tol, min(2 * step_error, MOST_LOST)):
            break
        scale *= 0.5
    else:
        status = Status.ELBO_FELL if np.isfinite(latest).all() else Status.NOT_FINITE
        trace = [*state.trace, state.trace[-1]]
        return state._replace(
            trace=trace, num_averaged=state.num_averaged + 1, step_scale=scale, status=status
        )
    now = float(at_draws.mean())
    # Later ones average over more draws; the noise of a wild step is no reason to keep what is below them.
    within = not now <= np.nanmax([-np.inf, *state.trace]) - 2 * step_error
    higher = within or now >= state.best_elbo
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


def _divergence(q: Any, after: Any) -> float:
    """KL(after || q) of w, in nats; over the share of a step it is the noise that an average of steps has left."""
    root = np.linalg.solve(q.root, after.root)
    gap = np.linalg.solve(q.root, (after.mean - q.mean)[..., None])
    logs = np.log(np.abs(np.diagonal(root, axis1=-2, axis2=-1)))
    return float(0.5 * (np.sum(root**2) + np.sum(gap**2) - q.mean.size) - np.sum(logs))
