"""Many small fits side by side: restarts of coordinate ascent, whose arrays have a leading axis of fits.

A compiled call makes a block of iterations of as many fits as there are lanes. A fit that has converged, as judged for
it alone, gives its lane to the next, so that every fit makes the iterations that :class:`ConjugateSVI` makes of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from ethogram.inference.conjugate.ascent import order_of, stacked
from ethogram.inference.conjugate.conjugate_svi import check_settings, chosen_search, result_of, warn_of_falls
from ethogram.inference.conjugate.journal import Pages
from ethogram.inference.conjugate.padded_shapes import num_steps_of
from ethogram.inference.conjugate.posterior import ConjugateResult
from ethogram.inference.conjugate.problem import Problem, make_problem
from ethogram.inference.conjugate.search import Settled
from ethogram.inference.conjugate.starts import kinds_of, updated_side_by_side
from ethogram.inference.conjugate.steps import BLOCK, float_type, iterations_side_by_side, settled
from ethogram.models.conjugate_model import check_data, group_size, require_informative
from ethogram.models.families.constrained_dirichlet import ConstrainedDirichlet
from ethogram.models.held_warnings import held_warnings
from ethogram.models.keys import split_words
from ethogram.models.quick_jit import repeated

__all__ = ["SmallFit", "fit_side_by_side", "lanes_for"]

STEPS, LANES = 2**12, (8, 64)
"""Padded steps of all lanes, whose messages then stay in a cache, and least and most lanes."""

IMPL = "threefry2x32"
"""Keys of which many are split as each of them is."""


def lanes_for(num_steps: int, count: int) -> int:
    """Fits of so many padded steps that run side by side, of `count` in all; 0 where that gains nothing."""
    least, most = LANES
    most = min(STEPS // num_steps, most)
    return 0 if most < least or count < 2 else min(max(2 ** (count - 1).bit_length(), least), most)


class SmallFit(NamedTuple):
    """A fit that is done, in the arrays of its ascent.

    Attributes
    ----------
    best, elbos : its best restart, and the ELBOs (restart,) of all.
    traces : (iteration, restart) ELBOs before every iteration.
    every : iterations between those that the result has.
    cut_off : whether steps were used up.
    words : of the key to continue with.
    notes : warnings of its data and prior.
    """

    problem: Problem
    best: Settled
    elbos: np.ndarray
    traces: np.ndarray
    every: int
    cut_off: bool
    words: np.ndarray
    notes: tuple[str, ...]

    def result(self) -> ConjugateResult:
        """What `ConjugateSVI.run` returns."""
        steps = len(self.traces)
        pages = Pages(steps, [*range(0, steps, self.every)], [*self.traces[:: self.every]], [], None)
        key = jax.random.wrap_key_data(jax.device_put(self.words), impl=IMPL)
        return result_of(self.problem, self.best, self.elbos, pages, self.cut_off, 0, key, True, "restarts")


class Prepared(NamedTuple):
    """A fit before its first iteration.

    Attributes
    ----------
    fixed : model, prior and padded batches, arrays of NumPy.
    start : `start_data` of its model.
    """

    problem: Problem
    fixed: Any
    start: Any
    notes: tuple[str, ...] = ()

    @property
    def num_steps(self) -> int:
        """Padded steps of its data."""
        (batch,) = self.problem.batches
        return len(jax.tree.leaves(batch)[0]) * num_steps_of(batch)


def fit_side_by_side(
    model: Any,
    words: np.ndarray,
    data: Sequence[Any],
    count: int,
    *,
    num_steps: int,
    restarts: int = 8,
    init: str = "mixed",
    tol: float = 1e-6,
    search: str = "auto",
    evaluate_every: int | None = None,
) -> list[SmallFit | None]:
    """Fits of a model to several data sets; None where `ConjugateSVI.run` has to make one, or to say what is wrong.

    Parameters
    ----------
    words : (fit, word) of keys, which are of JAX's usual kind.
    data : of every fit, of like padded shapes.
    count : fits in all, of which these are some: by it programs are compiled.
    num_steps, restarts, init, tol, search, evaluate_every : valid ones of `ConjugateSVI.run`.
    """
    check_settings(num_steps, restarts, tol, search, evaluate_every)
    parts = split_words(words, 3, IMPL)
    prepared: dict[int, Prepared] = {}
    for number, one in enumerate(data):
        with held_warnings() as notes:
            found = _prepared(model, one, restarts, init, tol, search)
        if found is not None:
            prepared[number] = found._replace(notes=tuple(notes))
    alike: dict[Any, list[int]] = {}
    for number, one in prepared.items():
        leaves, structure = jax.tree.flatten(one.fixed)
        alike.setdefault((structure, *[(x.shape, x.dtype) for x in leaves]), []).append(number)
    results: list[SmallFit | None] = [None] * len(data)
    for numbers in alike.values():
        lanes = lanes_for(prepared[numbers[0]].num_steps, count)
        if not lanes:
            continue
        with repeated(-(-count // lanes)):
            some = [prepared[number] for number in numbers]
            fits = [(one.problem.model, one.start) for one in some]
            kinds, _ = kinds_of(fits[0][0], restarts, init)
            statistics = fits[0][0].starts_of_fits(fits, parts[numbers, 0].tolist(), kinds)
            ascended = _ascended(some, statistics, lanes, num_steps, tol)
        for number, one, (best, elbos, traces, cut_off) in zip(numbers, some, ascended, strict=True):
            problem, every = one.problem._replace(arranged=[], batches=[]), evaluate_every or 1
            fit = SmallFit(problem, best, elbos, traces, every, cut_off, parts[number, 2], one.notes)
            results[number] = fit if _is_sound(fit) else None
    return results


def _prepared(model: Any, data: Any, restarts: int, init: str, tol: float, search: str) -> Prepared | None:
    """A fit of data that are checked; None where it does not run beside others."""
    try:
        check_data(model, data)
        require_informative(model, data)
        problem = make_problem(model.bind(data), data)
        (batch,), bound = problem.batches, problem.model
        _, drawn = kinds_of(bound, restarts, init)
        constrained = any(isinstance(block, ConstrainedDirichlet) for block in problem.prior.values())
        alone = (
            drawn or constrained or bound.growth or group_size(batch) > 1 or _has_local_state(bound, batch)
        )
        if alone or chosen_search(search, bound, tol > 0, restarts > 1) != "restarts":
            return None
        start = bound.start_data(problem.arranged)
    except Exception:  # that of the fit alone says what is wrong
        return None
    fixed = jax.tree.map(np.asarray, (bound, problem.prior, problem.batches))
    return Prepared(problem, fixed, start)


def _has_local_state(model: Any, batch: Any) -> bool:
    """Whether local steps begin with those of the iteration before, or are of many numbers."""
    step = model.e_step
    return step.period > 1 or step.costly or bool(jax.tree.leaves(step.init(batch)))


class Lanes:
    """Arrays of the fits that run, one in each lane: (lane, ...), and (lane, restart, ...) of restarts."""

    def __init__(self, lanes: int, like: Prepared, blocks: Any):
        def empty(x: np.ndarray) -> np.ndarray:
            return np.repeat(x[None], lanes, axis=0)

        self.fixed, self.blocks = jax.tree.map(empty, (like.fixed, blocks))
        restarts = jax.tree.leaves(blocks)[0].shape[0]
        self.fit = np.full(lanes, -1)  # its number, -1 in a lane that is free
        self.frames, self.iteration = np.ones(lanes), np.zeros(lanes, int)
        self.elbo = np.full((lanes, restarts), -np.inf, float_type(blocks))
        self.active = np.zeros((lanes, restarts), bool)

    def enter(self, lane: int, number: int, one: Prepared, blocks: Any) -> None:
        """A fit takes a lane."""

        def put(target: np.ndarray, x: np.ndarray) -> None:
            target[lane] = x

        jax.tree.map(put, (self.fixed, self.blocks), (one.fixed, blocks))
        self.fit[lane], self.frames[lane], self.iteration[lane] = number, one.problem.frames, 0
        self.elbo[lane], self.active[lane] = -np.inf, True


def _ascended(
    prepared: list[Prepared], statistics: list[Any], lanes: int, num_steps: int, tol: float
) -> list[tuple[Settled, np.ndarray, np.ndarray, bool]]:
    """The best restart of every fit, the ELBOs of all, their traces, and whether steps were used up."""
    starts = _started(prepared, statistics, lanes)
    now = Lanes(lanes, prepared[0], starts[0])
    waiting = iter(enumerate(zip(prepared, starts, strict=True)))
    traces: list[list[np.ndarray]] = [[] for _ in prepared]
    done: dict[int, tuple[Settled, np.ndarray, np.ndarray, bool]] = {}
    while len(done) < len(prepared):
        for lane, (number, one) in zip(np.flatnonzero(now.fit < 0).tolist(), waiting, strict=False):
            now.enter(lane, number, *one)
        # Fits whose steps are used up get the ELBO of their blocks, by an iteration whose step is dropped.
        spent = now.iteration >= num_steps
        running = now.active | spent[:, None]
        limit = np.where(spent, 1, np.minimum(num_steps - now.iteration, BLOCK))
        tols = np.full(now.elbo.shape[1], tol, now.elbo.dtype)
        given = (
            *now.fixed,
            now.blocks,
            [()],
            running,
            now.elbo,
            tols,
            -np.inf,
            now.iteration,
            limit,
            now.frames,
        )
        blocks, _, active, elbo, trace, count = jax.tree.map(
            np.array, iterations_side_by_side(*given, np.inf)
        )
        for lane in np.flatnonzero(now.fit >= 0).tolist():
            number, latest, still = int(now.fit[lane]), elbo[lane], active[lane]  # views
            if spent[lane]:
                with np.errstate(invalid="ignore"):  # ELBOs of -inf have no difference
                    converged = settled(latest, now.elbo[lane], tol, now.frames[lane])
                still = now.active[lane] & np.isfinite(latest) & ~converged
            else:
                traces[number].append(trace[lane, : count[lane]])
            if spent[lane] or not still.any():
                final = now.blocks if spent[lane] else blocks
                best = int(order_of(latest)[0])
                blocks_of = jax.tree.map(lambda x, at=(lane, best): np.array(x[at]), final)
                own = Settled(blocks_of, latest[best], bool(still[best]))
                done[number] = own, latest.copy(), np.concatenate(traces[number]), bool(spent[lane])
                now.fit[lane], active[lane], count[lane] = -1, False, -now.iteration[lane]
        now.blocks, now.active, now.elbo = blocks, active, elbo
        now.iteration += count
    return [done[number] for number in range(len(prepared))]


def _started(prepared: list[Prepared], statistics: list[Any], lanes: int) -> list[Any]:
    """Blocks (restart, ...) of every fit before its first iteration."""
    found: list[Any] = []
    for start in range(0, len(prepared), lanes):
        some = [min(start + lane, len(prepared) - 1) for lane in range(lanes)]
        given = stacked([prepared[at].fixed[1] for at in some]), stacked([statistics[at] for at in some])
        blocks = jax.tree.map(np.asarray, updated_side_by_side(*given))
        found += [jax.tree.map(lambda x, lane=lane: x[lane], blocks) for lane in range(lanes)]
    return found[: len(prepared)]


def _is_sound(fit: SmallFit) -> bool:
    """Whether a fit has a posterior, and an ELBO that did not fall by more than rounding."""
    if not np.isfinite(fit.traces[0]).any() or not np.isfinite(fit.best.elbo):
        return False
    if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(fit.best.blocks)):
        return False
    at = int(order_of(fit.elbos)[0])
    with held_warnings() as notes:
        warn_of_falls(np.append(fit.traces[:: fit.every, at], fit.elbos[at]), fit.problem.frames)
    return not notes
