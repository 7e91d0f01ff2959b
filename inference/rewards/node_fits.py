"""Gaussians at the values of the hyper-parameters that a search visits, with its progress and its checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ethogram.inference.rewards.vi_steps import VIState

__all__ = ["NodeFit", "Progress", "SearchState", "Settings", "node_fits"]


class Settings(NamedTuple):
    """Settings of a fit, as `fit_reward` describes them."""

    hyper: str
    num_steps: int
    num_draws: int
    num_evaluations: int
    num_restarts: int
    tol: float


class NodeFit(NamedTuple):
    """The best Gaussian found at given hyper-parameters."""

    log_hyper: Any  # (hyper,)
    q: Any  # a Gaussian, of switching rewards with their chain
    elbo: float  # with the log prior density of the hyper-parameters
    status: str
    steps: int
    trace: list[float]


class SearchState(NamedTuple):
    """State of a search: the values that were visited, in order, and the steps of the one that runs."""

    fits: list[NodeFit]
    running: VIState | None


class Progress:
    """Progress bar of a search, and its checkpoint, which is written after steps."""

    def __init__(
        self, shown: bool, save: Callable[[SearchState, int], None], state: SearchState, single: bool
    ):
        from tqdm import tqdm

        self.fits, self.single, self._save, self._running = list(state.fits), single, save, state.running
        done = state.running.steps if state.running is not None else 0
        unit, name = ("step", "natural gradient") if single else ("fit", "hyper-parameters")
        self._bar = tqdm(disable=not shown, initial=done if single else len(self.fits), desc=name, unit=unit)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: Any) -> None:
        self._bar.close()

    @property
    def steps(self) -> int:
        """Natural-gradient steps of all fits."""
        return sum(fit.steps for fit in self.fits)

    def take_running(self) -> VIState | None:
        """State of the fit that was interrupted, once."""
        running, self._running = self._running, None
        return running

    def after_step(self, state: VIState) -> None:
        self._save(SearchState([*self.fits], state), self.steps + state.steps)
        if self.single:
            self._advance(state.trace[-1])

    def after_fit(self, fit: NodeFit) -> None:
        self.fits.append(fit)
        if self.single:
            return
        self._advance(fit.elbo)
        self._save(SearchState([*self.fits], None), self.steps)

    def _advance(self, elbo: float) -> None:
        self._bar.update()
        self._bar.set_postfix_str(f"ELBO {elbo:.2f}", refresh=False)


def node_fits(
    first: tuple[np.ndarray, Any],
    transport: Callable[[Any, np.ndarray, np.ndarray], Any],
    maximize: Callable[..., VIState],
    progress: Progress,
) -> Callable[..., NodeFit]:
    """The best q at logarithms (hyper,), from that of the nearest ones before.

    Parameters
    ----------
    first : logarithms and q before any other.
    transport : of q, its logarithms and others, the q to begin with there.
    maximize : of logarithms, the q to begin with, the state of an interrupted search or None, what is called after
        each step, and further arguments of the function that is returned; the state at the end.
    """
    visited = {fit.log_hyper.tobytes(): fit for fit in progress.fits}

    def fit_at(log_hyper: np.ndarray, **settings: Any) -> NodeFit:
        place = np.ascontiguousarray(log_hyper, float).tobytes()
        if place in visited:
            return visited[place]
        known = [first, *((fit.log_hyper, fit.q) for fit in visited.values())]
        near, q = min(reversed(known), key=lambda one: np.sum((one[0] - log_hyper) ** 2))
        if not np.array_equal(near, log_hyper):
            q = transport(q, near, log_hyper)
        found = maximize(log_hyper, q, progress.take_running(), progress.after_step, **settings)
        fit = NodeFit(
            np.array(log_hyper, float), found.best, found.best_elbo, found.status, found.steps, found.trace
        )
        visited[place] = fit
        progress.after_fit(fit)
        return fit

    return fit_at
