"""The search of coordinate ascent: restarts, a growing number of states, and edits of the labels of steps.

Starts are rough labels of all steps; an edit is the labels of a fit with two states merged, one deleted, or one split.
A few exact iterations from each judge them, so that no bound has to be derived for an edit, and what raises the ELBO
is kept. Where the number of states that are used is learned, restarts use two states at first and one more each time
until the best fit leaves two unused: the same fits with few states are found whatever the truncation, and a state that
is not used costs no ELBO, only time. A fit with more states is reduced by merges and deletions before it has converged:
in the labyrinth that found better fits with two states than starts with two (docs/architecture.md).

Hughes, Stephenson, Sudderth (2015), "Scalable adaptation of state complexity for nonparametric hidden Markov models",
for merges, deletions and splits.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array

from ethogram.inference.conjugate.ascent import Ascended, Ascent, one_of, order_of, stacked
from ethogram.inference.conjugate.problem import Problem
from ethogram.inference.conjugate.starts import start_blocks
from ethogram.inference.conjugate.steps import float_type, size_of
from ethogram.models.families.exponential_family import expected_statistics
from ethogram.models.families.projection import constrain
from ethogram.models.keys import folded_key
from ethogram.models.numpy_generator import numpy_generator
from ethogram.models.quick_jit import quick_jit

__all__ = ["Settled", "edit_search", "grow_search", "mass_of_states", "restart_search"]

FEWEST, UNUSED, ROOM = 2, 2, 6
"""States of the first restarts, one of which has a single state; states that the best fit leaves unused at the end;
and states of the model in which the search begins, which doubles as they are used."""

HORIZON = 300.0
"""Iterations, at the gain of the last, within which a restart must reach the best one; otherwise it stops early."""

EARLY, EARLIEST = 40, 5
"""Iterations after which restarts with more than the fewest states are reduced, and how many of the best of them."""

BEST = 3
"""Restarts that go on after they are reduced, and that are edited."""

EMPTY = 0.5
"""Expected steps below which a state counts as unused."""

LEAST_GAIN = 1e-9
"""Relative rise of the ELBO from which an edit is kept, where rounding is smaller."""

JUDGED = ((4, 3), (8, 1), (10, 1))
"""Iterations of candidates, and how many of the best of them go on."""

WITHIN = 30.0
"""Iterations, at the gain of the last, within which a merge or deletion must reach the ELBO that it has to raise."""

SPLITS, FAILURES = 9, 2
"""Splits that are tried together, and rounds without a gain after which a search ends."""

RUNS = (10, 30, 80)
"""Steps of the runs and half windows that are split off."""

POLISH = 0.01
"""Share of `tol` to which the best fit goes on at the end: the ELBOs of equal fits then agree to `tol`."""


class Settled(NamedTuple):
    """One fit of a search.

    Attributes
    ----------
    blocks, elbo, active : q(theta), its ELBO, and whether it has not converged.
    room : states of the model that the blocks are of; 0 for that of the data.
    used : states that are used.
    """

    blocks: Any
    elbo: float
    active: bool
    room: int = 0
    used: int = 0


Found = tuple[Settled, np.ndarray]
"""The best fit, and the ELBOs of the last restarts."""


def restart_search(ascend: Ascent, problem: Problem, blocks: Any) -> Found:
    """The best of restarts that run until they have converged."""
    found = ascend(problem, blocks)
    return _fits(found)[0], found.elbo


def edit_search(ascend: Ascent, problem: Problem, blocks: Any, key: Array) -> Found:
    """The best of restarts, and of edits of the best three that keep the number of states."""
    found = ascend(problem, blocks)
    fits = _fits(found)[:BEST]
    for number, fit in enumerate(fits):
        if not ascend.spent and np.isfinite(fit.elbo):
            edit = functools.partial(_edited, ascend, problem, folded_key(key, number), fit, fits[0].elbo)
            fits[number] = ascend.journal.call(edit)
    best = max(fits, key=_height)
    return _polished(ascend, problem, best), found.elbo


def grow_search(ascend: Ascent, problem: Problem, key: Array, restarts: int, init: str) -> Found:
    """The best fit of a model that learns how many of its states are used."""
    (most,) = mass_of_states.eval_shape(problem.model, problem.prior).shape
    problem_of = functools.cache(lambda room: problem if room >= most else problem.with_states(room))
    best, number, room = None, min(FEWEST, most), min(ROOM, most)
    while best is None or number < min(best.used + UNUSED, most + 1):
        room = room if number <= room else min(2 * room, most)
        starts = functools.partial(_starts, problem_of(room), key, restarts, init)
        wider = None if best is None else _in_room(best, problem_of, room)
        grow = functools.partial(_grown, ascend, problem_of(room), starts, wider, number, room)
        best, elbos = ascend.journal.call(grow)
        number += 1
        if ascend.spent:
            return best, elbos
    problem = problem_of(best.room)
    if most > 1 and np.isfinite(best.elbo):
        edit = functools.partial(_edited, ascend, problem, folded_key(key, 0), best, best.elbo)
        best = ascend.journal.call(edit)
    return _polished(ascend, problem, best), elbos


def _starts(problem: Problem, key: Array, restarts: int, init: str, number: int) -> Any:
    """Initial blocks of restarts that use the first `number` states."""
    model, prior = problem.model, problem.model.growth.prior_of_first(number)
    key = folded_key(key, number)
    fixed = model, prior, problem.arranged, restarts, init, problem.whole
    return start_blocks(key, *fixed, number)


def _grown(
    ascend: Ascent,
    problem: Problem,
    starts: Callable[[int], Any],
    best: Settled | None,
    number: int,
    room: int,
) -> Found:
    """The best of a fit with fewer states and of restarts with `number`, which are reduced; and the ELBOs of these."""
    blocks, floor = starts(number), -np.inf
    if best is not None:
        floor = best.elbo
    elif number > 1:  # one of the first restarts has a single state
        blocks = jax.tree.map(
            lambda x, y: np.concatenate([np.asarray(x)[:1], np.asarray(y)[1:]]), starts(1), blocks
        )
    if number > FEWEST:
        found = ascend(problem, blocks, limit=EARLY, floor=floor)
        early = [_reduced(ascend, problem, fit, floor) for fit in _fits(found)[:EARLIEST]]
        early = sorted(early, key=_height, reverse=True)[:BEST]
        blocks = stacked([fit.blocks for fit in early])
    found = ascend(problem, blocks, horizon=HORIZON, floor=floor)
    fits = [_reduced(ascend, problem, fit, floor) for fit in _fits(found)[:BEST]]
    best = max([*fits, *([] if best is None else [best])], key=_height)
    elbos = np.full(ascend.restarts, best.elbo, found.elbo.dtype)
    elbos[: len(found.elbo)] = np.fmax(found.elbo, floor)
    used = int(np.sum(_labelled(problem, best).mass > EMPTY)) if np.isfinite(best.elbo) else number
    return best._replace(room=room, used=used), elbos


def _in_room(fit: Settled, problem_of: Callable[[int], Problem], room: int) -> Settled:
    """A fit in a model with more room, with states that no step uses."""
    if fit.room == room:
        return fit
    blocks = problem_of(room).model.growth.widened(problem_of(fit.room).model, fit.blocks)
    return fit._replace(blocks=jax.tree.map(np.asarray, blocks), room=room)


def _reduced(ascend: Ascent, problem: Problem, fit: Settled, floor: float) -> Settled:
    """A fit after merges and deletions, as long as they raise its ELBO."""
    while not ascend.spent and np.isfinite(fit.elbo):
        labelled = _labelled(problem, fit)
        found = _judged(ascend, problem, reductions(labelled), max(floor, fit.elbo), fit.elbo)
        if not found or not _rises(problem, found[0].elbo, fit.elbo):
            break
        fit = found[0]._replace(room=fit.room)
    return fit


def _edited(ascend: Ascent, problem: Problem, key: Array, fit: Settled, floor: float) -> Settled:
    """A fit after splits, until several rounds of them in turn do not raise its ELBO.

    Where the number of states is learned, merges and deletions follow a split; else a split has the label of a state
    that is merged into another.
    """
    learned = problem.model.growth is not None
    failures, number = 0, 0
    while failures < FAILURES and not ascend.spent:
        rng = numpy_generator(key, number)
        labelled = _labelled(problem, fit)
        found = _judged(ascend, problem, splits(rng, labelled, SPLITS), max(floor, fit.elbo))
        if learned:
            found = [_reduced(ascend, problem, each, max(floor, fit.elbo)) for each in found]
        failures, number = failures + 1, number + 1
        best = max(found, key=_height, default=fit)
        if _rises(problem, best.elbo, fit.elbo):
            after = ascend(problem, stacked([best.blocks]), floor=max(floor, best.elbo))
            fit, failures = _fits(after)[0]._replace(room=fit.room), 0
    return fit


def _polished(ascend: Ascent, problem: Problem, fit: Settled) -> Settled:
    """A fit after it has converged to a share of `tol`."""
    if ascend.spent or not np.isfinite(fit.elbo):
        return fit
    tol = max(ascend.tol * POLISH, min(ascend.tol, 4 * rounding(problem)))
    after = _fits(ascend(problem, stacked([fit.blocks]), floor=fit.elbo, tol=tol))[0]
    return after._replace(elbo=max(after.elbo, fit.elbo), room=fit.room, used=fit.used)


def _judged(
    ascend: Ascent,
    problem: Problem,
    proposals: list[list[np.ndarray]],
    floor: float,
    base: float | None = None,
) -> list[Settled]:
    """The best fits from proposed labels after a few iterations.

    With `base` these end where one of them lies above it, and fits that will not reach it are dropped.
    """
    if not proposals or ascend.spent:
        return []
    dtype = float_type(problem.prior)
    each = []
    for number, labels in enumerate(proposals):
        statistics = problem.model.labelling.statistics(np.random.default_rng(number), labels, problem.whole)
        statistics = jax.tree.map(lambda x: np.asarray(x, dtype), statistics)
        each.append(_updated(problem.model, problem.prior, statistics))
    unknown = np.full(len(each), -np.inf, dtype)
    found = Ascended(stacked(each), unknown, np.ones(len(each), bool))
    for limit, kept in JUDGED:
        found = ascend(
            problem,
            found.blocks,
            elbo=found.elbo,
            active=found.active,
            limit=limit,
            floor=floor,
            horizon=np.inf if base is None else WITHIN,
            aim=-np.inf if base is None else base,
        )
        order = order_of(found.elbo)
        if ascend.spent or (base is not None and _rises(problem, found.elbo[order[0]], base)):
            break
        found = found._replace(active=found.active & np.isin(np.arange(len(each)), order[:kept]))
    return _fits(found)[:BEST]


class Labelled(NamedTuple):
    """Labels of the steps of a fit."""

    probability: list[np.ndarray]  # (sequence, time, state) by batch, zero beyond each length
    labels: list[np.ndarray]  # (sequence, time) by batch: the most probable states
    mass: np.ndarray  # (state,) expected steps

    @property
    def inside(self) -> list[np.ndarray]:
        """Steps (sequence, time) by batch that are within a length."""
        return [x.sum(-1) > 0.5 for x in self.probability]

    @property
    def used(self) -> list[int]:
        """States that are used, the smallest first."""
        order = np.argsort(self.mass, kind="stable")
        return [int(state) for state in order if self.mass[state] > EMPTY]


def _labelled(problem: Problem, fit: Settled) -> Labelled:
    each = [np.asarray(x) for x in _probabilities(problem.model, fit.blocks, problem.whole)]
    mass = np.sum([x.sum((0, 1)) for x in each], axis=0)
    return Labelled(each, [x.argmax(-1) for x in each], mass)


def reductions(labelled: Labelled) -> list[list[np.ndarray]]:
    """Labels with a state merged into a larger one, or deleted: its steps take the state that is next to it."""
    used, found = labelled.used, []
    for number, state in enumerate(used if len(used) > 1 else []):
        others = [np.where(np.arange(x.shape[-1]) == state, -1, x).argmax(-1) for x in labelled.probability]
        found.append(_relabelled(labelled, state, others))
        found += [_relabelled(labelled, state, [into] * len(others)) for into in used[number + 1 :]]
    return found


def splits(rng: np.random.Generator, labelled: Labelled, count: int) -> list[list[np.ndarray]]:
    """Labels with part of the steps of a state in a free one: whole sequences, random runs, or a short window.

    Where no state is free, one is merged into another.
    """
    used, found = labelled.used, []
    free = [state for state in np.argsort(labelled.mass) if state not in used]
    share = labelled.mass[used] / labelled.mass[used].sum()
    for number in range(count if free or len(used) > 1 else 0):
        state, merged = int(rng.choice(used, p=share)), labelled
        if not free:
            into, label = (int(x) for x in rng.choice(used, 2, replace=False))
            merged = labelled._replace(labels=_relabelled(labelled, label, [into] * len(labelled.labels)))
            state = into if state == label else state
        else:
            label = int(free[0])
        parts = _parts(rng, merged, state, number % 3)
        found.append(
            [np.where((x == state) & part, label, x) for x, part in zip(merged.labels, parts, strict=True)]
        )
    return found


def _parts(rng: np.random.Generator, labelled: Labelled, state: int, kind: int) -> list[np.ndarray]:
    """Half of the sequences, half of the time in random runs, or a window about one step of a state; of every batch."""
    labels, length = labelled.labels, int(rng.choice(RUNS))
    if kind == 0:
        return [np.repeat(rng.random((len(x), 1)) < 0.5, x.shape[1], axis=1) for x in labels]
    if kind == 1:
        starts = [rng.integers(2, size=(len(x), 1)) for x in labels]
        ends = [np.cumsum(rng.random(x.shape) < 1 / length, axis=1) for x in labels]
        return [(start + end) % 2 == 1 for start, end in zip(starts, ends, strict=True)]
    parts = [np.zeros(x.shape, bool) for x in labels]
    own = [np.argwhere((x == state) & inside) for x, inside in zip(labels, labelled.inside, strict=True)]
    steps = [len(places) for places in own]
    if sum(steps):
        number = int(rng.choice(len(own), p=np.array(steps) / sum(steps)))
        sequence, time = own[number][rng.integers(steps[number])]
        parts[number][sequence, max(time - length, 0) : time + length] = True
    return parts


def _relabelled(labelled: Labelled, state: int, others: list[Any]) -> list[np.ndarray]:
    """Labels with others where they are `state`."""
    return [np.where(x == state, other, x) for x, other in zip(labelled.labels, others, strict=True)]


def _rises(problem: Problem, elbo: Any, base: Any) -> bool:
    """Whether an ELBO lies above another by more than rounding."""
    least = max(LEAST_GAIN, 4 * rounding(problem))
    return bool(elbo > base + least * size_of(np.asarray(base), problem.frames))


def _height(fit: Settled) -> float:
    """The ELBO of a fit, which may be NaN, to sort by."""
    return -np.inf if np.isnan(fit.elbo) else fit.elbo


def rounding(problem: Problem) -> float:
    """Relative rounding of the precision of a problem."""
    return float(np.finfo(float_type(problem.prior)).eps)


def _fits(found: Ascended) -> list[Settled]:
    """Fits of all restarts, the best first."""
    return [
        Settled(one_of(found.blocks, at), found.elbo[at], bool(found.active[at]))
        for at in order_of(found.elbo).tolist()
    ]


@quick_jit
def mass_of_states(model: Any, blocks: Any) -> Array:
    """Expected steps (state,) in every state, of blocks after a global step of size 1."""
    return model.growth.mass(blocks)


@quick_jit(calls=2**7)
def _probabilities(model: Any, blocks: Any, batches: Any) -> list[Array]:
    expected = expected_statistics(blocks)
    return [model.labelling.probabilities(expected, batch) for batch in batches]


@quick_jit(calls=2**9)
def _updated(model: Any, prior: Any, statistics: Any) -> Any:
    """Blocks after one global step from the prior."""
    return constrain(model.update(prior, prior, statistics, 1.0, 1.0))
