r"""Moves of a conjugate fit: merges, deletions and splits of states, proposed from statistics.

For any q(z) with statistics t the best q(theta) is one global step away, and the bound is

.. math:: L = c + \langle E_q[\eta], t \rangle - KL(q \,\|\, p),

where c is the entropy of q(z) and evidence that no parameter enters. A merge adds the statistics of two states, and
changes c by what :func:`~ethogram.models.chains.relabelled_paths.changes_of_merges` counts: its bound is exact without
another local step. A split divides the steps of a state by time, so that c stays but for stay evidence. A deletion is a
local step without the state. Sweeps then judge: a move is kept only if the bound rises.

Source: Hughes, Stephenson, Sudderth (2015), "Scalable adaptation of state complexity for nonparametric hidden Markov
models"; Bryant and Sudderth (2012), "Truly nonparametric online variational inference for hierarchical Dirichlet
processes". Their bounds of merges and splits leave out, or approximate, the change of the entropy.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ethogram.models.chains.relabelled_paths import (
    Paths,
    changes_of_merges,
    divided,
    merged,
    path_entropy,
    path_marginals,
    stay_change,
)
from ethogram.models.families.exponential_family import expected_statistics
from ethogram.models.families.projection import choose, constrain
from ethogram.models.quick_jit import quick_jit

__all__ = [
    "EMPTY",
    "NUM_KINDS",
    "PROPOSALS",
    "Candidate",
    "Posteriors",
    "best_deletion",
    "best_merge",
    "best_split",
    "chosen_blocks",
    "merged_statistics",
    "num_labels",
    "posteriors",
    "profiled",
]

EMPTY = 0.5
"""Expected steps below which a state counts as unused."""

NUM_KINDS = 4
"""Ways to divide the steps of a state: random runs, unlikely windows, whole sequences, one short window."""

PROPOSALS = 6
"""Divisions of one kind of which the best by its bound is judged."""


class Candidate(NamedTuple):
    """The best move of one kind, one for each restart."""

    gain: np.ndarray  # (restart,): its bound, over that of the blocks; -inf where there is none
    states: np.ndarray  # (restart, 2): the states merged or divided; a deleted one twice
    blocks: Any


class Posteriors(NamedTuple):
    """q(z) of every restart, on a leading axis, with what its bound is made of."""

    bound: Array
    constant: Array  # the entropy of q(z), and evidence that no parameter enters
    statistics: Any
    paths: list[Paths]  # by batch
    mass: Array  # (restart, state): expected steps


def num_labels(model: Any, prior: Any) -> int:
    """How many states a model labels; 0 where it makes no moves."""
    axes = model.label_axes()
    entries = {name: jax.tree.leaves(prior[name].natural) for name in axes}
    return min((x.shape[axis] for name in axes for x in entries[name] for axis in axes[name]), default=0)


@quick_jit
def posteriors(model: Any, blocks: Any, prior: Any, batches: list[Any], without: Array) -> Posteriors:
    """q(z) of every restart after a local step without the states where `without` (restart, state) is True."""

    def one(each):
        blocks, without = each
        expected = expected_statistics(blocks)
        potentials = [model.chain_of_steps(expected, batch) for batch in batches]
        parts = [path_marginals(of_batch, without) for of_batch in potentials]
        local = functools.reduce(jnp.add, [part[0] for part in parts])
        paths = [part[1] for part in parts]
        statistics = _statistics(model, expected, batches, paths)
        bound = local - model.divergence(blocks, prior)
        return Posteriors(bound, local - _product(expected, statistics), statistics, paths, _mass(paths))

    # One after another: the messages of a restart are freed before those of the next.
    return lax.map(one, (blocks, without))


@quick_jit
def profiled(model: Any, blocks: Any, prior: Any, statistics: Any, constant: Array, pair: Array) -> Any:
    """Bound and blocks of every restart after global steps on given statistics, where `pair` (restart, 2) is merged.

    Two steps, since the weights converge to theirs. Equal states are not merged.
    """

    def one(blocks, statistics, constant, pair):
        statistics = merged_statistics(model, statistics, *pair)

        def step(_, blocks):
            return constrain(model.update(blocks, prior, statistics, 1.0, 1.0))

        after = lax.fori_loop(0, 2, step, blocks)
        local = constant + _product(expected_statistics(after), statistics)
        return local - model.divergence(after, prior), after

    return jax.vmap(one)(blocks, statistics, constant, pair)


def best_merge(
    model: Any, blocks: Any, prior: Any, batches: list[Any], now: Posteriors, tried: Any
) -> Candidate:
    """For each restart, the merge with the highest bound among pairs of states that `tried` does not exclude."""
    used = np.asarray(now.mass) > EMPTY
    first, second = np.triu_indices(used.shape[1], 1)
    allowed = used[:, first] & used[:, second] & ~tried[:, first, second]
    change = np.asarray(_changes(model, blocks, batches, now.paths, first, second))
    constant, bound = np.asarray(now.constant), np.asarray(now.bound)
    gains = np.full(allowed.shape, -np.inf)
    fixed = model, blocks, prior, now.statistics
    for at in np.flatnonzero(allowed.any(axis=0)):
        pair = np.broadcast_to([first[at], second[at]], (len(used), 2))
        value = np.asarray(profiled(*fixed, constant + change[:, at], pair)[0]) - bound
        gains[:, at] = np.where(allowed[:, at] & ~np.isnan(value), value, -np.inf)
    best = np.argmax(gains, axis=1)
    pair = np.stack([first[best], second[best]], axis=1)
    constant = constant + np.take_along_axis(change, best[:, None], axis=1)[:, 0]
    return Candidate(np.max(gains, axis=1), pair, profiled(*fixed, constant, pair)[1])


def best_deletion(
    model: Any, blocks: Any, prior: Any, batches: list[Any], now: Posteriors, tried: Any
) -> Candidate:
    """For each restart, the deletion of the smallest used state that the diagonal of `tried` does not exclude."""
    mass = np.asarray(now.mass)
    allowed = (mass > EMPTY) & ~np.diagonal(tried, axis1=1, axis2=2)
    state = np.argmin(np.where(allowed, mass, np.inf), axis=1)
    pair = np.stack([state, state], axis=1)
    after = posteriors(model, blocks, prior, batches, np.arange(mass.shape[1]) == state[:, None])
    value, moved = profiled(model, blocks, prior, after.statistics, after.constant, pair)
    possible = allowed.any(axis=1) & np.isfinite(np.asarray(after.bound))
    gain = np.where(possible, np.asarray(value) - np.asarray(now.bound), -np.inf)
    return Candidate(gain, pair, moved)


def best_split(
    model: Any,
    blocks: Any,
    prior: Any,
    batches: list[Any],
    now: Posteriors,
    keys: Array,
    kinds: Any,
    pair: Any,
) -> Candidate:
    """For each restart, the best of several proposed splits; the new state takes an unused label.

    Parameters
    ----------
    keys : (restart, proposal) PRNG keys.
    kinds : (restart,) number of the way to divide the steps of a state.
    pair : (restart, 2) states that are merged first, which frees the second; -1: the label of least use is free.
    """
    mass, constant, bound = (np.asarray(x) for x in (now.mass, now.constant, now.bound))
    free = np.where(pair[:, 0] >= 0, pair[:, 1], np.argmin(mass, axis=1))
    gain = np.full(len(free), -np.inf)
    states, moved = np.stack([free, free], axis=1), blocks
    possible = (pair[:, 0] >= 0) | (np.min(mass, axis=1) <= EMPTY)
    for number in range(keys.shape[1]):
        state, statistics, change = _divisions(
            model,
            blocks,
            batches,
            now.paths,
            keys[:, number],
            kinds,
            pair,
            free,
        )
        same = np.stack([free, free], axis=1)
        value, after = profiled(model, blocks, prior, statistics, constant + np.asarray(change), same)
        value = np.asarray(value) - bound
        better = possible & np.isfinite(value) & (value > gain)
        gain = np.where(better, value, gain)
        states = np.where(better[:, None], np.stack([np.asarray(state), free], axis=1), states)
        moved = chosen_blocks(better, after, moved)
    return Candidate(gain, states, moved)


chosen_blocks = quick_jit(choose)


@quick_jit
def _changes(model, blocks, batches, paths, first, second):
    """Change (restart, merge) of the constant part of the bound by each merge."""

    def one(each):
        blocks, paths = each
        expected = expected_statistics(blocks)
        stay = [model.chain_of_steps(expected, batch).stay_evidence for batch in batches]
        parts = [changes_of_merges(*part, first, second) for part in zip(paths, stay, strict=True)]
        return functools.reduce(jnp.add, parts)

    return lax.map(one, (blocks, paths))


@quick_jit
def _divisions(model, blocks, batches, paths, keys, kinds, pairs, free):
    """A division of every restart: its state, statistics, and the change of the constant part of the bound."""

    def one(each):
        blocks, before, key, kind, pair, free = each
        merging = pair[0] >= 0
        expected = expected_statistics(blocks)
        potentials = [model.chain_of_steps(expected, batch) for batch in batches]
        paths = [
            jax.tree.map(lambda x, y: jnp.where(merging, x, y), merged(part, pair[0], pair[1]), part)
            for part in before
        ]
        mass = _mass(paths)
        key_state, key_segments = jax.random.split(key)
        state = jax.random.categorical(key_state, jnp.log(jnp.where(jnp.arange(len(mass)) == free, 0, mass)))
        after, change = [], jnp.zeros_like(mass[0])
        for part, old, chain in zip(paths, before, potentials, strict=True):
            segments = _segments(
                key_segments, kind, part.state[..., state], chain.step[..., state], chain.lengths
            )
            new = divided(part, state, free, segments)
            change += path_entropy(new) - path_entropy(old) + stay_change(old, new, chain.stay_evidence)
            after.append(new)
        return state, _statistics(model, expected, batches, after), change

    return lax.map(one, (blocks, paths, keys, kinds, pairs, free))


def merged_statistics(model: Any, statistics: Any, keep: Any, drop: Any) -> Any:
    """Statistics after the state `drop` was renamed `keep`: those of the two are added; one state, no change."""

    def along(x, axis):
        x = jnp.moveaxis(x, axis, 0)
        added = x.at[keep].add(x[drop]).at[drop].set(0)
        return jnp.moveaxis(jnp.where(keep == drop, x, added), 0, axis)

    result = dict(statistics)
    for name, axes in model.label_axes().items():
        for axis in axes:
            result[name] = jax.tree.map(functools.partial(along, axis=axis), result[name])
    return result


def _mass(paths: list[Paths]) -> Array:
    """Expected steps (state,) of every state."""
    return functools.reduce(jnp.add, [jnp.sum(part.state, (0, 1)) for part in paths])


def _statistics(model, expected, batches, paths) -> Any:
    """Expected statistics under q(z): the gradient of the expected log potentials."""

    def weight(expected):
        total = jnp.zeros(())
        for batch, (state, pair) in zip(batches, paths, strict=True):
            initial, transition, step = model.chain_of_steps(expected, batch)[:3]
            total += jnp.sum(initial * jnp.sum(state[:, 0], 0)) + jnp.sum(step * state)
            total += jnp.sum(transition * pair)
        return total

    return jax.grad(weight)(expected)


def _product(expected, statistics) -> Array:
    parts = jax.tree.map(lambda e, t: jnp.sum(jnp.where(t == 0, 0, e * t)), expected, statistics)
    return jax.tree.reduce(jnp.add, parts)


def _segments(key: Array, kind: Array, weight: Array, likelihood: Array, lengths: Array) -> Array:
    """Steps (sequence, time) of a state that a new state takes.

    Parameters
    ----------
    weight, likelihood : (sequence, time), posterior probability of the state, and expected log likelihood in it.
    """
    num_sequences, num_steps = weight.shape
    key_length, key_draw, key_place = jax.random.split(key, 3)
    longest = jnp.maximum(jnp.max(lengths), 8).astype(weight.dtype)
    length = 4 * (longest / 8) ** jax.random.uniform(key_length, dtype=weight.dtype)

    def runs():
        flips = jax.random.bernoulli(key_draw, 1 / length, weight.shape)
        first = jax.random.bernoulli(key_place, 0.5, (num_sequences, 1))
        return (jnp.cumsum(flips, axis=1) + first) % 2 == 1

    def windows():
        surprise = _surprise(likelihood, weight, length)
        share = jax.random.uniform(key_draw, minval=0.5, maxval=0.9)
        return surprise > _weighted_quantile(surprise, weight, share)

    def sequences():
        return jnp.broadcast_to(jax.random.bernoulli(key_draw, 0.5, (num_sequences, 1)), weight.shape)

    def window():
        at = jax.random.categorical(key_draw, jnp.log(weight.ravel()))
        sequence, step = jnp.divmod(at, num_steps)
        near = jnp.abs(jnp.arange(num_steps) - step) <= length
        return (jnp.arange(num_sequences) == sequence)[:, None] & near

    return lax.switch(kind, (runs, windows, sequences, window))


def _surprise(likelihood: Array, weight: Array, length: Array) -> Array:
    """How unlikely the steps about each step are in a state, (sequence, time): an average over `length` steps."""
    each = jnp.where(weight > 0, -weight * jnp.where(jnp.isfinite(likelihood), likelihood, -1e3), 0)
    totals = (jnp.cumsum(x, axis=1) for x in (each, weight))
    half = jnp.maximum(length / 2, 1).astype(int)
    steps = jnp.arange(weight.shape[1])
    late = jnp.minimum(steps + half, weight.shape[1] - 1)
    early = jnp.maximum(steps - half, 0)
    surprise, mass = (total[:, late] - total[:, early] for total in totals)
    return surprise / jnp.maximum(mass, 1e-6)


def _weighted_quantile(value: Array, weight: Array, share: Array) -> Array:
    order = jnp.argsort(value.ravel())
    below = jnp.cumsum(weight.ravel()[order])
    return value.ravel()[order][jnp.searchsorted(below, share * below[-1])]
