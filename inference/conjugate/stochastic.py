"""Natural-gradient steps of several restarts, on mini-batches of whole groups or on all data.

Hoffman, Blei, Wang, Paisley (2013), section 2.4. Steps are planned ahead, so that a run that is resumed takes the same.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array

from ethogram.inference.checkpoint import CURE
from ethogram.inference.conjugate.ascent import one_of, order_of
from ethogram.inference.conjugate.journal import Journal
from ethogram.inference.conjugate.mini_batches import (
    GroupLayout,
    group_layout,
    group_order,
    in_group_order,
    plan_batches,
)
from ethogram.inference.conjugate.padded_shapes import num_steps_of, pad_batch
from ethogram.inference.conjugate.problem import MAX_WASTE, Problem, arranged, is_small, padded, stripped
from ethogram.inference.conjugate.search import Found, Settled
from ethogram.inference.conjugate.step_sizes import step_size_at
from ethogram.inference.conjugate.steps import (
    BLOCK,
    bounds,
    divergences,
    float_type,
    full_steps,
    local_bounds,
    settled,
    stochastic_steps,
)
from ethogram.models.arguments import require_integer
from ethogram.models.data.parts import PART, is_large, numbers_of, taken, whole_groups
from ethogram.models.data.trajectories import Trajectories, group_labels
from ethogram.models.numpy_generator import key_words

__all__ = ["StochasticSteps", "plan_steps", "stochastic_search"]


class Reader(NamedTuple):
    """Large data, in memory or on disk, of which a few sequences at a time are arranged in one shape.

    Attributes
    ----------
    data, order : without names and common padding; and sequence numbers in order of the groups.
    num_steps : of the longest sequence.
    """

    data: Trajectories
    order: np.ndarray
    num_steps: int

    def batch(self, problem: Problem, rows: np.ndarray, num_sequences: int) -> Any:
        """Arranged sequences, numbered in order of the groups and ascending, with empty ones up to `num_sequences`."""
        part = in_group_order(taken(self.data, self.order[rows]))
        return pad_batch(arranged(problem.model, problem.prior, part), num_sequences, self.num_steps)

    def bounds(self, problem: Problem, blocks: Any) -> np.ndarray:
        """ELBO (restart,) on all data, part by part."""
        labels = group_labels(self.data)[self.order]
        parts = list(whole_groups(labels, max(PART // numbers_of(self.data), 1)))
        most, total = (
            max(map(len, parts)),
            -np.asarray(divergences(problem.model, blocks, problem.prior), float),
        )
        for rows in parts:
            batch = self.batch(problem, rows, most)
            total += np.asarray(local_bounds(problem.model, blocks, batch), float)
        return total.astype(float_type(blocks))


class StochasticSteps(NamedTuple):
    """Steps of a fit: their sizes, and the batches that they take.

    Attributes
    ----------
    step_size : a number, or a schedule.
    batch_size : groups per step; None for all data.
    layout, everything, empty : groups of the data; all sequences, with an empty one at the end; and its number.
    entropy : of the permutations of the groups.
    calls : steps of a compiled call.
    reader : of large data, which are arranged as they are needed; None where `everything` is all data.
    """

    step_size: Any
    batch_size: int | None
    layout: GroupLayout
    everything: Any
    empty: int
    entropy: list[int]
    calls: int = BLOCK
    reader: Reader | None = None

    @property
    def epoch(self) -> int:
        """Steps that take every group once."""
        return 1 if self.batch_size is None else -(-len(self.layout.members) // self.batch_size)


class StochasticState(NamedTuple):
    """Restarts between two compiled calls."""

    blocks: Any
    elbo: np.ndarray
    active: np.ndarray
    sizes: np.ndarray  # of the first step and of the last one


def plan_steps(
    problem: Problem, data: Trajectories, key: Array, batch_size: int | None, step_size: Any
) -> StochasticSteps:
    """Steps of a fit; a ValueError for a batch of more groups than the data have."""
    bare = data._replace(observations=None, states=None, actions=None, stay=None, times=None)
    layout = group_layout(in_group_order(bare), 0.999 if is_small(problem.model, data) else MAX_WASTE)
    everything, empty, calls, reader = None, data.num_sequences, BLOCK, None
    if batch_size is not None:
        require_integer("batch_size", batch_size, 1)
        if batch_size > len(layout.members):
            raise ValueError(
                f"batch_size is {batch_size}, more than the {len(layout.members)} groups of the data: None takes all"
            )
        if is_large(data):
            reader = Reader(stripped(data).trim(), group_order(data), layout.widths[-1])
            slots = batch_size * layout.members.shape[1]
            calls = BLOCK if BLOCK * slots * numbers_of(reader.data) <= 4 * PART else 1
            empty = min(calls * slots, data.num_sequences)
        else:
            whole = arranged(problem.model, problem.prior, stripped(in_group_order(data)).trim())
            everything = padded(problem.model, whole, spare=1)
            if len(layout.widths) == 1:  # the padded length, whatever the length of the data
                layout = layout._replace(widths=(num_steps_of(everything),))
    return StochasticSteps(step_size, batch_size, layout, everything, empty, key_words(key), calls, reader)


def stochastic_search(
    problem: Problem,
    blocks: Any,
    steps: StochasticSteps,
    journal: Journal,
    *,
    num_steps: int,
    first_step: int,
    evaluate_every: int,
    tol: float,
    bar: Any,
    check: Any,
) -> Found:
    """The best of restarts after `num_steps` steps, and the ELBOs of all.

    A restart has converged where its ELBO changed by at most `tol` between two evaluations; all take all steps.
    """
    restarts = jax.tree.leaves(blocks)[0].shape[0]
    state = journal.pages.running
    if state is None:
        unknown = np.full(restarts, -np.inf, float_type(blocks))
        sizes = step_size_at(steps.step_size, np.full(2, first_step))
        state = StochasticState(blocks, unknown, np.ones(restarts, bool), sizes)
    else:
        _check_sizes(journal, state, steps, first_step)

    def evaluated(state: StochasticState) -> StochasticState:
        if steps.reader is None:
            elbo = np.asarray(bounds(problem.model, state.blocks, problem.prior, problem.batches))
        else:
            elbo = steps.reader.bounds(problem, state.blocks)
        check(problem, state.blocks, elbo)
        with np.errstate(invalid="ignore"):  # ELBOs of -inf have no difference
            return state._replace(elbo=elbo, active=~settled(elbo, state.elbo, tol, problem.frames))

    while (done := journal.pages.steps) < num_steps:
        since, rows = done % evaluate_every, []
        if since == 0:
            state = evaluated(state)
            rows = [state.elbo]
        # Steps do not depend on how they are split into calls, which end where the file is written.
        size = min(
            steps.calls, evaluate_every - since, journal.every - done % journal.every, num_steps - done
        )
        first = first_step + done
        last = step_size_at(steps.step_size, np.array([first + size - 1]))
        state = state._replace(
            blocks=_stepped(problem, state.blocks, steps, first, first + size),
            sizes=np.append(state.sizes[:1], last),
        )
        journal.advance(state, done + size, [first] * len(rows), rows)
        bar.set_postfix_str(f"ELBO {np.max(state.elbo):.1f}", refresh=False)
        bar.update(size)
    final = evaluated(state)
    if num_steps % evaluate_every:  # a shorter interval moves less
        final = final._replace(active=state.active)
    best = int(order_of(final.elbo)[0])
    return Settled(one_of(final.blocks, best), float(final.elbo[best]), bool(final.active[best])), final.elbo


def _check_sizes(journal: Journal, state: StochasticState, steps: StochasticSteps, first_step: int) -> None:
    """Raise ValueError where the run of a checkpoint took other steps: a schedule is a function, and not compared."""
    done = np.array([first_step, first_step + journal.pages.steps - 1])
    now = step_size_at(steps.step_size, done)
    for step, size, before in zip(done, now, state.sizes, strict=True):
        if not np.isclose(size, before, rtol=1e-6, atol=0):
            raise ValueError(
                f"{journal.path} is a checkpoint of a run whose step_size was {before} at step {step}, "
                f"not {size}: {CURE}"
            )


def _stepped(problem: Problem, blocks: Any, steps: StochasticSteps, start: int, stop: int) -> Any:
    """Blocks after steps `start` to `stop`."""
    sizes = np.zeros(steps.calls)
    sizes[: stop - start] = step_size_at(steps.step_size, np.arange(start, stop))
    if steps.batch_size is None:
        return full_steps(problem.model, blocks, problem.prior, problem.batches, sizes)
    plan = plan_batches(steps.layout, steps.batch_size, start, stop, steps.entropy)
    everything, chosen = steps.everything, plan.rows
    if steps.reader is not None:
        used, place = np.unique(plan.rows, return_inverse=True)
        first = np.searchsorted(used, 0)  # empty slots are before
        chosen = place.reshape(plan.rows.shape) - first
        everything = steps.reader.batch(problem, used[first:], steps.empty + 1)
    rows = np.full((steps.calls, chosen.shape[1]), steps.empty)
    rows[: stop - start] = np.where(chosen < 0, steps.empty, chosen)
    width = np.zeros(steps.calls, int)
    width[: stop - start] = plan.width
    batches = everything, rows, width, sizes, plan.scale, steps.layout.widths
    return stochastic_steps(problem.model, blocks, problem.prior, *batches)
