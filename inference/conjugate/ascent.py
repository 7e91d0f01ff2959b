"""Coordinate ascent of several restarts within a number of steps: the one function that a search calls.

A step is one iteration of all restarts that run. Hoffman, Blei, Wang, Paisley (2013), section 2; the compiled
iterations are those of :mod:`ethogram.inference.conjugate.steps`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ethogram.inference.conjugate.journal import Journal
from ethogram.inference.conjugate.problem import Problem
from ethogram.inference.conjugate.steps import BLOCK, ascent_block, float_type, settled

__all__ = ["Ascended", "Ascent", "one_of", "order_of", "stacked"]


Target = tuple[float, float]
"""Iterations within which a restart must reach an ELBO, and this ELBO."""


class Ascended(NamedTuple):
    """Restarts after some iterations.

    Attributes
    ----------
    blocks : q(theta), on a leading axis of restarts.
    elbo : (restart,) ELBOs in nats, -inf where the data are impossible; of restarts that run, before their last step.
    active : (restart,) whether they have not converged.
    """

    blocks: Any
    elbo: np.ndarray
    active: np.ndarray


class AscentState(NamedTuple):
    """Restarts between two compiled calls."""

    blocks: Any
    local: Any  # what local steps hand on, by batch, of every restart
    elbo: np.ndarray
    active: np.ndarray
    iteration: int


class Ascent:
    """Coordinate ascent that counts its steps, records its calls and evaluations, and stops when steps are used up.

    Parameters
    ----------
    num_steps, first_step : steps of this run at most, and those of the result that it continues.
    tol : relative change of the ELBO at which a restart has converged.
    restarts, evaluate_every : columns of the traces, and steps between two of their rows.
    journal : of this run.
    bar : progress bar.
    check : raises where no restart has a finite ELBO, given a problem, its first blocks, and the ELBOs.

    Attributes
    ----------
    spent : whether the steps were used up: what a call returned, and later ones return, is cut off.
    """

    def __init__(
        self,
        num_steps: int,
        first_step: int,
        tol: float,
        restarts: int,
        evaluate_every: int,
        journal: Journal,
        bar: Any,
        check: Any,
    ):
        self.num_steps, self.first_step, self.tol = num_steps, first_step, tol
        self.restarts, self.evaluate_every = restarts, evaluate_every
        self.journal, self.bar, self.check = journal, bar, check
        self.spent = False

    @property
    def steps(self) -> int:
        """Steps done."""
        return self.journal.pages.steps

    def __call__(
        self,
        problem: Problem,
        blocks: Any,
        *,
        elbo: Any = None,
        active: Any = None,
        limit: int | None = None,
        floor: float = -np.inf,
        horizon: float = np.inf,
        aim: float = -np.inf,
        tol: float | None = None,
    ) -> Ascended:
        """Restarts after iterations until they have converged.

        Parameters
        ----------
        blocks : q(theta) on a leading axis of restarts.
        elbo, active : (restart,) their ELBOs so far, which the next are compared with, and which of them run.
        limit : iterations at most.
        floor : ELBO of the best fit so far, below which the traces do not fall.
        horizon, aim : a restart also stops where so many times the gain of its last iteration does not take it to the
            best of them, or to this ELBO.
        tol : in place of that of the run.
        """

        def ascend() -> Ascended:
            state = self.journal.pages.running
            if state is None:
                state = self._start(problem, blocks, elbo, active)
            return self._ascend(
                problem, state, limit, floor, (horizon, aim), self.tol if tol is None else tol
            )

        return self.journal.call(ascend)

    def _start(self, problem: Problem, blocks: Any, elbo: Any, active: Any) -> AscentState:
        dtype, count = float_type(blocks), jax.tree.leaves(blocks)[0].shape[0]
        local = [problem.model.e_step.init(batch) for batch in problem.whole]
        local = jax.tree.map(lambda x: jnp.broadcast_to(x, (count, *x.shape)), local)
        elbo = np.full(count, -np.inf, dtype) if elbo is None else np.asarray(elbo, dtype)
        return AscentState(blocks, local, elbo, np.ones(count, bool) if active is None else active, 0)

    def _ascend(
        self,
        problem: Problem,
        state: AscentState,
        limit: int | None,
        floor: float,
        target: Target,
        tol: float,
    ) -> Ascended:
        limits = np.inf if limit is None else limit
        while state.active.any() and state.iteration < limits:
            # Calls end at multiples of a block, however many steps are left: a longer run makes the same calls.
            size = int(min(BLOCK - state.iteration % BLOCK, limits - state.iteration))
            left = self.num_steps - self.steps
            if left < size:
                return self._cut_off(problem, state, left, floor, target, tol)
            state, trace = self._iterate(problem, state, size, target, tol)
            self._record(state, trace, floor)
        return Ascended(state.blocks, state.elbo, state.active)

    def _iterate(
        self, problem: Problem, state: AscentState, size: int, target: Target, tol: float
    ) -> tuple[AscentState, np.ndarray]:
        tols = np.full(len(state.elbo), tol, state.elbo.dtype)
        fixed = problem.model, state.blocks, problem.prior, problem.batches, state.local
        blocks, local, active, elbo, trace, done = ascent_block(
            *fixed, state.active, state.elbo, state.iteration, size, tols, problem.frames, *target
        )
        trace = np.asarray(trace)[: int(done)]
        if not self.journal.pages.evaluated and state.iteration == 0:
            self.check(problem, state.blocks, trace[0])
        after = AscentState(blocks, local, np.asarray(elbo), np.asarray(active), state.iteration + int(done))
        return after, trace

    def _record(self, state: AscentState | None, trace: np.ndarray, floor: float) -> None:
        steps = range(self.steps, self.steps + len(trace))
        kept = [i for i, step in enumerate(steps) if step % self.evaluate_every == 0]
        rows = [self._row(trace[i], floor) for i in kept]
        self.journal.advance(state, steps.stop, [self.first_step + steps[i] for i in kept], rows)
        self.bar.set_postfix_str(f"ELBO {np.max(trace[-1]):.1f}", refresh=False)
        self.bar.update(len(trace))

    def _row(self, elbo: np.ndarray, floor: float) -> np.ndarray:
        """ELBOs of a row of the traces: candidates of a search are shown by the best of them."""
        if len(elbo) == self.restarts:
            return np.fmax(elbo, floor) if np.isfinite(floor) else elbo
        row = np.full(self.restarts, floor, elbo.dtype)
        row[0] = np.fmax.reduce([*elbo, floor])
        return row

    def _cut_off(
        self, problem: Problem, state: AscentState, left: int, floor: float, target: Target, tol: float
    ) -> Ascended:
        """Restarts after the steps that are left, with the ELBOs of their blocks."""
        self.journal.close()
        self.spent = True
        if left > 0:
            state, trace = self._iterate(problem, state, left, target, tol)
            self._record(None, trace, floor)
        # The compiled iterations again, whose step is dropped.
        everyone = state._replace(active=np.ones_like(state.active))
        elbo = self._iterate(problem, everyone, 1, (np.inf, -np.inf), tol)[0].elbo
        with np.errstate(invalid="ignore"):  # ELBOs of -inf have no difference
            converged = settled(elbo, state.elbo, tol, problem.frames)
        compared = state.iteration % problem.model.e_step.period == 0
        active = state.active & np.isfinite(elbo) & ~(converged & compared)
        return Ascended(state.blocks, elbo, active)


def order_of(elbo: np.ndarray) -> np.ndarray:
    """Numbers of restarts, the largest ELBO first, NaN last."""
    return np.argsort(-np.where(np.isnan(elbo), -np.inf, elbo), kind="stable")


def one_of(blocks: Any, number: int) -> Any:
    """Blocks of one restart, on the host."""
    return jax.tree.map(lambda x: np.array(np.asarray(x)[number]), blocks)


def stacked(each: list[Any]) -> Any:
    """Blocks of several restarts, each without a leading axis, on the host."""
    return jax.tree.map(lambda *x: np.stack([np.asarray(one) for one in x]), *each)
