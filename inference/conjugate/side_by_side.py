"""Small fits side by side: the restarts of many data sets of one padded shape in one compiled program.

A lane is one restart of one data set. A lane that has converged is filled with a restart that waits, so that each takes
the iterations it needs; what a lane computes does not depend on the others. The iterations, and the rule that ends
them, are those of :mod:`ethogram.inference.conjugate.steps`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array

from ethogram.inference.conjugate.ascent import one_of
from ethogram.inference.conjugate.conjugate_svi import chosen_search, result_of
from ethogram.inference.conjugate.journal import Journal
from ethogram.inference.conjugate.padded_shapes import pad_batch
from ethogram.inference.conjugate.posterior import ConjugateResult
from ethogram.inference.conjugate.problem import Problem, make_problem
from ethogram.inference.conjugate.search import Settled
from ethogram.inference.conjugate.starts import start_blocks
from ethogram.inference.conjugate.steps import BLOCK, float_type, iterations_of
from ethogram.models.conjugate_model import ConjugateModel, require_informative
from ethogram.models.keys import split_key
from ethogram.models.quick_jit import quick_jit

__all__ = ["DATA_SETS", "Started", "fit_side_by_side", "goes_side_by_side", "start", "structure_of"]

DATA_SETS, LANES = 64, 64
"""Data sets, and restarts of them, that one program holds."""

ITERATIONS = 2**8
"""Iterations that a program makes of so many data sets."""


def goes_side_by_side(model: Any, search: str, restarts: int) -> bool:
    """Whether small fits of a model by coordinate ascent are restarts alone, with exact local steps."""
    if not isinstance(model, ConjugateModel) or model.e_step.costly or model.e_step.period > 1:
        return False
    return chosen_search(search, model, True, restarts > 1) == "restarts"


class Started(NamedTuple):
    """A data set with the starts of its restarts.

    Attributes
    ----------
    problem : its batch in the shape of the program.
    blocks : q(theta) of the restarts, on a leading axis.
    key : to continue with.
    """

    problem: Problem
    blocks: Any
    key: Array


def start(key: Array, model: Any, data: Any, restarts: int, init: str, shape: tuple[int, int]) -> Started:
    """What ``ConjugateSVI.run`` begins with, the data in one batch of a padded shape (sequence, step).

    Raises
    ------
    TypeError, ValueError : the data do not fit the model, or have nothing to learn from.
    """
    model.check(data)
    require_informative(model, data)
    key_start, _, key_next = split_key(key, 3)
    problem = make_problem(model.bind(data), data)
    problem = problem._replace(batches=[pad_batch(batch, *shape) for batch in problem.arranged])
    fixed = problem.model, problem.prior, problem.arranged, restarts, init, problem.batches
    blocks = start_blocks(key_start, *fixed)
    return Started(problem, jax.tree.map(np.asarray, blocks), key_next)


def _fixed(problem: Problem) -> Any:
    return problem.model, problem.prior, problem.batches, problem.frames


def structure_of(started: Started) -> Any:
    """What data sets of one program have in common."""
    leaves, structure = jax.tree.flatten((_fixed(started.problem), started.blocks))
    return structure, tuple((np.shape(leaf), np.result_type(leaf)) for leaf in leaves)


def fit_side_by_side(
    each: Sequence[Started], num_steps: int, tol: float, count: int
) -> list[ConjugateResult | None]:
    """Results by coordinate ascent of data sets of one structure and shape, `DATA_SETS` at most.

    None where a restart used up the steps, or has no finite ELBO: ``ConjugateSVI.run`` says what is wrong, or cuts off.

    Parameters
    ----------
    each : data sets with their starts.
    num_steps, tol : as of ``ConjugateSVI.run``.
    count : data sets of this shape in all calls, which decides how thoroughly the program is compiled.
    """
    parts = [_fixed(one.problem) for one in each]
    fixed = jax.tree.map(lambda *x: np.stack([*x, *x[:1] * (DATA_SETS - len(x))]), *parts)
    restarts = jax.tree.leaves(each[0].blocks)[0].shape[0]
    single = [one_of(one.blocks, slice(r, r + 1)) for one in each for r in range(restarts)]
    lanes = _Lanes(fixed, single)
    lanes.run(num_steps, tol, restarts, count)
    found = []
    for number, one in enumerate(each):
        own = range(number * restarts, (number + 1) * restarts)
        whole = all(lanes.converged[restart] for restart in own)
        found.append(
            _result(one, [lanes.blocks[r] for r in own], [lanes.traces[r] for r in own]) if whole else None
        )
    return found


class _Lanes:
    """Restarts on their way through the lanes of a program."""

    def __init__(self, fixed: Any, blocks: list[Any]) -> None:
        self.fixed, self.blocks = fixed, blocks
        self.traces: list[np.ndarray] = [np.empty(0, float_type(blocks[0]))] * len(blocks)
        self.converged = [False] * len(blocks)

    def run(self, num_steps: int, tol: float, restarts: int, count: int) -> None:
        """Iterate until every restart has converged, has no finite ELBO, or has used up the steps."""
        dtype = self.traces[0].dtype
        waiting = deque(range(len(self.blocks)))
        running: list[int] = []
        while waiting or running:
            while waiting and len(running) < LANES:
                running.append(waiting.popleft())
            full = running + running[:1] * (LANES - len(running))
            first = np.array([len(self.traces[at]) for at in full])
            latest = np.array(
                [self.traces[at][-1:] if len(self.traces[at]) else [-np.inf] for at in full], dtype
            )
            limit = np.minimum(BLOCK, num_steps - first)
            limit[len(running) :] = 0
            stacked = jax.tree.map(lambda *x: np.stack(x), *[self.blocks[at] for at in full])
            items = np.array(full) // restarts
            found = _advance(self.fixed, items, stacked, latest, first, limit, np.array([tol], dtype), count)
            blocks, active, trace, done = jax.tree.map(np.asarray, found)
            for lane, at in enumerate(running):
                self.traces[at] = np.concatenate([self.traces[at], trace[lane, : done[lane], 0]])
                self.blocks[at] = one_of(blocks, lane)
                self.converged[at] = bool(np.isfinite(self.traces[at][-1]) and not active[lane, 0])
            running = [
                at for lane, at in enumerate(running) if active[lane, 0] and len(self.traces[at]) < num_steps
            ]


def _iterations(*arguments: Any) -> int:
    """Iterations of a program over all the data sets that it is compiled for, a number of the arguments."""
    return ITERATIONS * -(-int(arguments[-1]) // DATA_SETS)


@quick_jit(calls=_iterations)
def _advance(
    fixed: Any, items: Any, blocks: Any, latest: Any, first: Any, limit: Any, tol: Any, count: Any
) -> Any:
    """At most BLOCK iterations of every lane; `count` says for how many data sets the program is worth compiling."""

    def one(item: Any, blocks: Any, latest: Any, first: Any, limit: Any) -> Any:
        model, prior, batches, frames = jax.tree.map(lambda x: x[item], fixed)
        carried = jax.tree.map(lambda x: x[None], [model.e_step.init(batch) for batch in batches])
        active, best = latest == latest, -np.inf
        found = iterations_of(
            model, prior, batches, blocks, carried, active, latest, tol, best, first, limit, frames, np.inf
        )
        return found[0], found[2], found[4], found[5]

    return jax.vmap(one)(items, blocks, latest, first, limit)


def _result(one: Started, blocks: list[Any], traces: list[np.ndarray]) -> ConjugateResult:
    """The result of the best restart, with the traces of all."""
    steps = max(map(len, traces))
    rows = np.stack([np.append(trace, np.repeat(trace[-1], steps - len(trace))) for trace in traces], axis=1)
    journal = Journal(None, str, 1, steps)
    journal.advance(None, steps, [*range(steps)], [*rows])
    at = int(np.argmax(rows[-1]))
    best = Settled(one_of(blocks[at], 0), float(rows[-1, at]), False)
    return result_of(one.problem, best, rows[-1].copy(), journal, 0, one.key, True, "restarts")
