"""Compiled steps of the conjugate engine: ELBOs, CAVI iterations and natural-gradient steps of all restarts.

Model, blocks, prior and data are arguments, never closures, so that fits of one structure and shape share compilations;
`blocks` lead with an axis of restarts. Hoffman, Blei, Wang, Paisley (2013), eq. 15 and 31; Le, Yue, Carr, Lucey (2017),
supplement, eq. 16-18, in natural parameters.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ethogram.inference.conjugate.padded_shapes import num_steps_of
from ethogram.inference.conjugate.spread import local_step
from ethogram.models.conjugate_model import group_size
from ethogram.models.families.exponential_family import ConjugateBlock, expected_statistics
from ethogram.models.families.projection import choose, constrain
from ethogram.models.quick_jit import quick_jit

__all__ = [
    "BLOCK",
    "ascent_block",
    "bounds",
    "divergences",
    "float_type",
    "full_steps",
    "impossible_sequences",
    "iterations_of",
    "iterations_side_by_side",
    "local_bounds",
    "settled",
    "size_of",
    "stochastic_steps",
]

BLOCK = 10
"""Steps per compiled call; progress, checkpoints and interrupts are handled between calls."""

CALLS, RESTARTS = 2**9, 8
"""Iterations of a short fit by coordinate ascent, over all its restarts, and how many these are."""

SIDE_BY_SIDE = 2**7
"""Iterations of a short fit among several, half of whose numbers are those of its restarts."""

MANY = 2**12
"""Steps of a fit by stochastic or damped steps, over all its restarts."""

PLACES, SMALL_STEPS, SMALL_BLOCKS = 8, 2**10, 2**8
"""Restarts that a CPU handles together where data have at most so many padded steps, and the blocks of a restart so
many numbers: calls of operations then take longer than their work. Always as many, so that any number of restarts
shares a program."""

LARGEST = 2**24
"""Maximum size of the blocks of restarts that an accelerator handles together; an iteration needs several times it."""


def settled(elbo: Any, latest: Any, tol: Any, frames: Any) -> Any:
    """Whether ELBOs (restart,) changed by at most `tol`, relative to `size_of`; never with a `tol` of 0."""
    return (tol > 0) & (abs(elbo - latest) <= tol * size_of(elbo, frames))


def size_of(elbo: Any, frames: Any) -> Any:
    """Nats that changes of ELBOs are relative to: at least one per frame.

    The unit of a feature adds a constant to the ELBO, which may be near zero in one unit and far from it in another.
    """
    return abs(elbo).clip(frames)


def restart_slices(blocks: Any, places: int = 1) -> list[slice]:
    """Slices, of one size, of the restarts that are vectorised together: on an accelerator as many as fit.

    On a CPU `places`; one by one in all but small data: its caches hold one restart, and those that have converged cost
    nothing.
    """
    leaves = jax.tree.leaves(blocks)
    restarts = leaves[0].shape[0]
    if jax.default_backend() == "cpu":
        return [slice(start, start + places) for start in range(0, restarts, places)]
    each = sum(leaf.size for leaf in leaves) // restarts
    size = min(max(LARGEST // max(each, 1), 1), restarts)
    while restarts % size:
        size -= 1
    return [slice(start, start + size) for start in range(0, restarts, size)]


def _some(blocks, part):
    return jax.tree.map(lambda x: np.asarray(x)[part], blocks)


def _joined(parts):
    return jax.tree.map(lambda *x: np.concatenate(x), *parts)


def _by_slices(function):
    """A function of (model, blocks, ...) that calls `function` on slices of the restarts and joins its results."""

    @functools.wraps(function)
    def of_all(model, blocks, *rest):
        slices = restart_slices(blocks)
        if len(slices) == 1:
            return function(model, blocks, *rest)
        return _joined([function(model, _some(blocks, part), *rest) for part in slices])

    return of_all


@_by_slices
@quick_jit(calls=2**5)
def bounds(model, blocks, prior, batches):
    """ELBO (restart,) on all data, in nats, right after a local step."""

    def bound(one):
        return _local_bound(model, expected_statistics(one), batches) - model.divergence(one, prior)

    return jax.vmap(bound)(blocks)


@_by_slices
@quick_jit(calls=MANY)
def local_bounds(model, blocks, batch):
    """What a part of the data adds to the ELBO (restart,), in nats."""
    return jax.vmap(lambda one: model.log_normalizer(expected_statistics(one), batch))(blocks)


@_by_slices
@quick_jit
def divergences(model, blocks, prior):
    """What is subtracted from the ELBO (restart,), in nats."""
    return jax.vmap(lambda one: model.divergence(one, prior))(blocks)


def ascent_block(
    model,
    blocks,
    prior,
    batches,
    carried,
    active,
    latest,
    first,
    limit,
    tol,
    frames,
    horizon=np.inf,
    aim=-np.inf,
):
    """At most `limit` CAVI iterations; a restart that has converged, or has no finite ELBO, is not updated.

    `carried` is what local steps hand on, by batch, with a leading axis of restarts; `first` is the number of the first
    iteration; `tol` (restart,) is of each restart, and `frames` of all data. A restart also stops where `horizon` times
    the gain of its last iteration does not take it to the largest ELBO so far, or to `aim`. Returns blocks, carried,
    active, latest ELBOs, the trace (BLOCK, restart) of ELBOs before each iteration, and the number of iterations. An
    inactive restart keeps the blocks of its last ELBO.
    """
    each = blocks, carried, active, latest, tol
    best = np.max(latest, where=np.isfinite(latest), initial=aim)
    settings = first, limit, frames, horizon
    count, places = len(latest), 1
    if _is_small(blocks, batches):
        places = PLACES
        if count % places:
            each = _some(each, np.arange(-(-count // places) * places) % count)
            each[2][count:] = False
    slices = restart_slices(each[0], places)
    if len(slices) == 1:
        found = iterations_of(model, prior, batches, *each, best, *settings)
        return found if places == 1 else _first(found, count)
    parts = []
    for part in slices:
        some = _some(each, part)
        if some[2].any():
            found = iterations_of(model, prior, batches, *some, best, *settings)
            parts.append(jax.tree.map(np.asarray, found))
            best = np.fmax(best, np.max(parts[-1][3]))
        else:
            parts.append((*some[:4], np.zeros((BLOCK, *some[3].shape), some[3].dtype), 0))
    done = max(int(part[-1]) for part in parts)
    # Slices that converged before the others repeat their final ELBO.
    traces = [np.where(np.arange(BLOCK)[:, None] < part[-1], part[4], part[3]) for part in parts]
    return _first((*_joined([part[:4] for part in parts]), np.concatenate(traces, axis=1), done), count)


def _first(found, count):
    """The first `count` restarts of what an ascent found, on the host."""
    *by_restart, trace, done = jax.tree.map(np.asarray, found)
    return (*jax.tree.map(lambda x: x[:count], by_restart), trace[:, :count], done)


def _is_small(blocks, batches):
    """Whether a CPU handles several restarts together."""
    numbers = sum(leaf.size // len(leaf) for leaf in jax.tree.leaves(blocks))
    steps = sum(len(jax.tree.leaves(batch)[0]) * num_steps_of(batch) for batch in batches)
    return jax.default_backend() == "cpu" and numbers <= SMALL_BLOCKS and steps <= SMALL_STEPS


def _iterations(*arguments):
    """Iterations of a short fit over its restarts, and more once as many were done: long fits are worth compiling."""
    return CALLS + RESTARTS * int(arguments[9])


def _iterations_of(
    model, prior, batches, blocks, carried, active, latest, tol, best, first, limit, frames, horizon
):
    def local_step(blocks, carried, step):
        return jax.vmap(lambda *one: _elbo_and_statistics(model, *one, prior, batches, step))(blocks, carried)

    update = jax.vmap(lambda one, statistics: _moved(model, one, prior, statistics, 1.0, 1.0))

    def go_on(carry):
        done, active = carry[0], carry[3]
        return (done < limit) & jnp.any(active)

    def body(carry):
        done, blocks, carried, active, latest, trace = carry
        step = first + done
        elbo, statistics, carried = local_step(blocks, carried, step)
        elbo = elbo.astype(latest.dtype)
        gain = jnp.maximum(elbo - latest, 0)
        highest = jnp.maximum(best, jnp.max(jnp.where(jnp.isfinite(elbo), elbo, -jnp.inf)))
        hopeless = highest - elbo > horizon * gain
        finished = (settled(elbo, latest, tol, frames) | hopeless) & (step % model.e_step.period == 0)
        active = active & jnp.isfinite(elbo) & ~finished
        blocks = choose(active, update(blocks, statistics), blocks)
        return done + 1, blocks, carried, active, elbo, trace.at[done].set(elbo)

    trace = jnp.zeros((BLOCK, *latest.shape), latest.dtype)
    start = (0, blocks, carried, active, latest, trace)
    done, blocks, carried, active, latest, trace = lax.while_loop(go_on, body, start)
    return blocks, carried, active, latest, trace, done


iterations_of = quick_jit(_iterations_of, calls=_iterations)
iterations_side_by_side = quick_jit(
    jax.vmap(_iterations_of, in_axes=(0, 0, 0, 0, 0, 0, 0, None, None, 0, 0, 0, None)), calls=SIDE_BY_SIDE
)
"""Those of several fits, whose arguments lead with an axis of fits, but for `tol`, `best` and `horizon`."""


@_by_slices
@quick_jit(calls=MANY)
def full_steps(model, blocks, prior, batches, step_sizes):
    """A natural-gradient step on all data for each of `step_sizes` (BLOCK,); a size of zero is no step."""

    def step(blocks, step_size):
        def one(block):
            carried = [model.e_step.init(batch) for batch in batches]
            statistics = _elbo_and_statistics(model, block, carried, prior, batches, 0)[1]
            return _moved(model, block, prior, statistics, 1.0, step_size)

        return choose(step_size > 0, jax.vmap(one)(blocks), blocks), None

    return lax.scan(step, blocks, jnp.asarray(step_sizes, float_type(blocks)))[0]


@_by_slices
@quick_jit(calls=MANY, static_argnames="widths")
def stochastic_steps(model, blocks, prior, everything, rows, width, step_sizes, scale, widths):
    """BLOCK natural-gradient steps on mini-batches of whole groups; a size of zero is no step.

    All data have an empty sequence at the end, for the empty slots of a batch. A step has its rows (BLOCK, slot), which
    are sequence numbers, and its width (BLOCK,), an index into `widths`, the padded lengths at which batches may run;
    the scale is groups of the data per group of a batch.
    """

    def statistics_at(size):
        def cut(x):
            return x[:, :size] if x.ndim > 1 else x

        def statistics(rows, blocks):
            batch = jax.tree.map(lambda x: cut(x[rows]), everything)

            def one(block):
                local = model.e_step.init(batch)
                return model.e_step.step(expected_statistics(block), batch, local, 0)[1]

            return jax.vmap(one)(blocks)

        return statistics

    branches = [statistics_at(size) for size in widths]

    def step(blocks, now):
        rows, width, step_size = now
        statistics = lax.switch(width, branches, rows, blocks)
        move = jax.vmap(lambda block, one: _moved(model, block, prior, one, scale, step_size))
        return choose(step_size > 0, move(blocks, statistics), blocks), None

    step_sizes = jnp.asarray(step_sizes, float_type(blocks))
    return lax.scan(step, blocks, (rows, width, step_sizes))[0]


def _local_bound(model, expected, batches):
    return functools.reduce(jnp.add, [model.log_normalizer(expected, batch) for batch in batches])


def _elbo_and_statistics(model, blocks, carried, prior, batches, step):
    """ELBO of one restart, its statistics, and what its local steps carry on, by batch."""
    expected = expected_statistics(blocks)
    parts = [local_step(model, expected, *each, step) for each in zip(batches, carried, strict=True)]
    local, statistics = functools.reduce(
        lambda x, y: jax.tree.map(jnp.add, x, y), [part[:2] for part in parts]
    )
    return local - model.divergence(blocks, prior), statistics, [part[2] for part in parts]


def _moved(model, blocks, prior, statistics, scale, step_size):
    """Blocks after one global step of the model, projected onto the bounds of their rows."""
    return constrain(model.update(blocks, prior, statistics, scale, step_size))


def float_type(blocks: Any) -> Any:
    """Floating type of the blocks."""
    found = {x.dtype for x in jax.tree.leaves(blocks) if jnp.issubdtype(x.dtype, jnp.floating)}
    return jax.dtypes.canonicalize_dtype(found.pop()) if len(found) == 1 else jnp.result_type(*found)


def impossible_sequences(model: Any, blocks: dict[str, ConjugateBlock], batch: Any) -> np.ndarray:
    """Numbers of the sequences whose own log normaliser is ``-inf``; of all agents of a group scored jointly.

    The blocks are of one restart, the batch is all data, as the model arranges them, in order of their groups.
    """
    size = group_size(batch)
    units = jax.tree.map(lambda x: jnp.reshape(x, (-1, size, *x.shape[1:])), batch)
    values = np.asarray(_log_normalizers(model, expected_statistics(blocks), units))
    return np.flatnonzero(np.repeat(np.isneginf(values), size))


@quick_jit
def _log_normalizers(model, expected, units):
    return lax.map(lambda one: model.log_normalizer(expected, one), units)
