"""The compiled steps of the conjugate engine: bounds, sweeps and natural-gradient steps of all restarts at once.

Model, blocks, prior and data are arguments of every function, never closures: fits of one structure and shape
share their compilations, whatever the numbers in them. `blocks` lead with an axis of restarts.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ethogram.inference.constrained import constrain
from ethogram.models.exponential_family import expected_statistics, natural_step, total_kl

__all__ = ["BLOCK", "ascent_block", "bounds", "float_type", "full_steps", "settled", "stochastic_steps"]

BLOCK = 10
"""Steps in one compiled call: progress, checkpoints and interrupts come between calls."""

LARGEST = 2**24
"""Numbers in the blocks of the restarts that run side by side, at most: a sweep needs several times as many."""


def settled(elbo: Any, latest: Any, tol: Any) -> Any:
    """Whether bounds (restart,) have moved by at most `tol` of their size; never with a `tol` of 0."""
    return (tol > 0) & (abs(elbo - latest) <= tol * abs(elbo))


def restart_slices(blocks: Any) -> list[slice]:
    """Which restarts run side by side: all of them, unless their blocks are too large; slices of one size."""
    leaves = jax.tree.leaves(blocks)
    restarts = leaves[0].shape[0]
    each = sum(leaf.size for leaf in leaves) // restarts
    size = min(max(LARGEST // max(each, 1), 1), restarts)
    while restarts % size:
        size -= 1
    return [slice(start, start + size) for start in range(0, restarts, size)]


def _some(blocks, part):
    return jax.tree.map(lambda x: x[part], blocks)


def _by_slices(function, blocks):
    """Results of `function(blocks of some restarts)`, joined along the restarts."""
    parts = [function(_some(blocks, part)) for part in restart_slices(blocks)]
    return parts[0] if len(parts) == 1 else jax.tree.map(lambda *x: jnp.concatenate(x), *parts)


def bounds(model, blocks, prior, batches):
    """Bound (restart,) on all data, in nats, right after a local step."""
    return _by_slices(lambda some: _bounds(model, some, prior, batches), blocks)


@jax.jit
def _bounds(model, blocks, prior, batches):
    def bound(one):
        return _local_bound(model, expected_statistics(one), batches) - _divergence(model, one, prior)

    return jax.vmap(bound)(blocks)


def ascent_block(model, blocks, prior, batches, active, latest, limit, tol):
    """At most `limit` sweeps of coordinate ascent; a restart that has settled, or has no bound, rests.

    Returns blocks, active, latest bounds, the trace (BLOCK, restart) of bounds before each sweep, and how many
    sweeps were made. A resting restart stays at the blocks whose bound was the last taken.
    """
    parts = [
        _ascent_block(model, _some(blocks, part), prior, batches, active[part], latest[part], limit, tol)
        for part in restart_slices(blocks)
    ]
    if len(parts) == 1:
        return parts[0]
    done = max(int(part[-1]) for part in parts)
    # Restarts that all rested before the others keep the bound that they rest at.
    traces = [jnp.where(jnp.arange(BLOCK)[:, None] < part[-1], part[3], part[2]) for part in parts]
    joined = jax.tree.map(lambda *x: jnp.concatenate(x), *(part[:3] for part in parts))
    return (*joined, jnp.concatenate(traces, axis=1), done)


@jax.jit
def _ascent_block(model, blocks, prior, batches, active, latest, limit, tol):
    sweep = jax.vmap(lambda one: _bound_and_statistics(model, one, prior, batches))
    update = jax.vmap(lambda one, statistics: _moved(model, one, prior, statistics, 1.0, 1.0))

    def go_on(carry):
        done, _, active, _, _ = carry
        return (done < limit) & jnp.any(active)

    def body(carry):
        done, blocks, active, latest, trace = carry
        elbo, statistics = sweep(blocks)
        elbo = elbo.astype(latest.dtype)
        active = active & jnp.isfinite(elbo) & ~settled(elbo, latest, tol)
        blocks = _choose(active, update(blocks, statistics), blocks)
        return done + 1, blocks, active, elbo, trace.at[done].set(elbo)

    trace = jnp.zeros((BLOCK, *latest.shape), latest.dtype)
    done, blocks, active, latest, trace = lax.while_loop(go_on, body, (0, blocks, active, latest, trace))
    return blocks, active, latest, trace, done


def full_steps(model, blocks, prior, batches, step_sizes):
    """A natural-gradient step on all data for each of `step_sizes` (BLOCK,); a size of zero stays."""
    return _by_slices(lambda some: _full_steps(model, some, prior, batches, step_sizes), blocks)


@jax.jit
def _full_steps(model, blocks, prior, batches, step_sizes):
    def step(blocks, step_size):
        def one(block):
            _, statistics = _bound_and_statistics(model, block, prior, batches)
            return _moved(model, block, prior, statistics, 1.0, step_size)

        return _choose(step_size > 0, jax.vmap(one)(blocks), blocks), None

    return lax.scan(step, blocks, jnp.asarray(step_sizes, float_type(blocks)))[0]


def stochastic_steps(model, blocks, prior, everything, rows, width, step_sizes, scale, widths):
    """BLOCK natural-gradient steps on mini-batches of whole groups; a size of zero stays.

    Parameters
    ----------
    everything : all data, with an empty sequence at the end for the empty slots of a batch.
    rows : (BLOCK, slot) sequence numbers.
    width : (BLOCK,) index into `widths`, the padded lengths at which batches may run.
    scale : how many groups of the data a group of a batch stands for.
    """
    rest = (prior, everything, rows, width, step_sizes, scale)
    return _by_slices(lambda some: _stochastic_steps(model, some, *rest, widths), blocks)


@functools.partial(jax.jit, static_argnames="widths")
def _stochastic_steps(model, blocks, prior, everything, rows, width, step_sizes, scale, widths):
    num_steps = max(x.shape[1] for x in jax.tree.leaves(everything) if x.ndim > 1)

    def statistics_at(size):
        def cut(x):
            return x[:, :size] if x.ndim > 1 and x.shape[1] == num_steps else x

        def statistics(rows, blocks):
            batch = jax.tree.map(lambda x: cut(x[rows]), everything)

            def one(block):
                return jax.grad(lambda e: model.log_normalizer(e, batch))(expected_statistics(block))

            return jax.vmap(one)(blocks)

        return statistics

    branches = [statistics_at(size) for size in widths]

    def step(blocks, now):
        rows, width, step_size = now
        statistics = lax.switch(width, branches, rows, blocks)
        move = jax.vmap(lambda block, one: _moved(model, block, prior, one, scale, step_size))
        return _choose(step_size > 0, move(blocks, statistics), blocks), None

    step_sizes = jnp.asarray(step_sizes, float_type(blocks))
    return lax.scan(step, blocks, (rows, width, step_sizes))[0]


def _local_bound(model, expected, batches):
    return functools.reduce(jnp.add, [model.log_normalizer(expected, batch) for batch in batches])


def _bound_and_statistics(model, blocks, prior, batches):
    expected = expected_statistics(blocks)
    local, statistics = jax.value_and_grad(lambda e: _local_bound(model, e, batches))(expected)
    return local - _divergence(model, blocks, prior), statistics


def _divergence(model, blocks, prior):
    """KL(q || prior), or what the model puts in its place: one whose prior moves with q knows better."""
    return model.divergence(blocks) if hasattr(model, "divergence") else total_kl(blocks, prior)


def _moved(model, blocks, prior, statistics, scale, step_size):
    """Blocks after one step: the model's own where its blocks hang together, else a natural-gradient step of each.

    Rows with bounds are projected on them last.
    """
    if hasattr(model, "update"):
        return constrain(model.update(blocks, statistics, scale, step_size))
    return constrain(natural_step(blocks, prior, statistics, scale, step_size))


def _choose(where, new, old):
    """`new` where the mask, a scalar or (restart,), says so, else `old`."""

    def pick(new, old):
        return jnp.where(where.reshape(where.shape + (1,) * (new.ndim - where.ndim)), new, old)

    return jax.tree.map(pick, new, old)


def float_type(blocks: Any) -> Any:
    """The floating type of the numbers in some blocks."""
    return jnp.result_type(*(x for x in jax.tree.leaves(blocks) if jnp.issubdtype(x.dtype, jnp.floating)))
