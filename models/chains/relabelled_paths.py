r"""Posterior state paths after a relabelling of their states: entropies and evidence, without another local step.

q(z) of a chain is a Markov chain, given by its state and pair marginals. Where state j is renamed i, the marginals of i
and j add up, and the Markov chain with the new pair marginals has the entropy

.. math:: H = -\sum_k q_1(k) \ln q_1(k) - \sum_t \sum_{kl} q_t(k, l) \ln \frac{q_t(k, l)}{q_t(k)},

of which only the rows and columns of i and j change. Where the steps of i are divided between i and a free state f by
the time of the step, paths are renamed one to one, and the entropy stays.

Source: the merge and split moves of Hughes, Stephenson, Sudderth (2015), "Scalable adaptation of state complexity for
nonparametric hidden Markov models", whose merged q keeps no pair marginals; here they are exact.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array, lax
from jax.scipy.special import xlogy

from ethogram.models.chains.markov_chain import e_step

__all__ = [
    "PathPotentials",
    "Paths",
    "changes_of_merges",
    "divided",
    "merged",
    "path_entropy",
    "path_marginals",
    "stay_change",
]


class PathPotentials(NamedTuple):
    """Expected log potentials of every step of a batch of sequences."""

    initial: Array  # (state,)
    transition: Array  # (sequence, time - 1, state, state)
    step: Array  # (sequence, time, state)
    lengths: Array  # (sequence,)
    stay_evidence: Array | None = (
        None  # (sequence, time - 1): log evidence that the state stayed, part of `transition`
    )


class Paths(NamedTuple):
    """q(z) of a batch of sequences; zero beyond each length."""

    state: Array  # (sequence, time, state)
    pair: Array  # (sequence, time - 1, state, state)


def path_marginals(potentials: PathPotentials, without: Array | None = None) -> tuple[Array, Paths]:
    """Summed log normaliser of a batch and its posterior paths, without the states where `without` (state,) is True."""
    initial, transition, step = potentials[:3]
    if without is not None:
        initial = jnp.where(without, -jnp.inf, initial)
        transition = jnp.where(without, -jnp.inf, transition)
    dtype = jnp.result_type(initial, transition, step)
    initial, transition, step = (x.astype(dtype)[None] for x in (initial, transition, step))
    result = e_step(initial, transition, step, potentials.lengths[None])
    return jnp.sum(result.log_normalizer), Paths(result.state[0], result.pair[0])


def path_entropy(paths: Paths) -> Array:
    """Summed entropy of the paths, in nats."""
    return _surprise(paths.state[:, 0]) + _surprise(paths.pair) - _surprise(jnp.sum(paths.pair, axis=-1))


def merged(paths: Paths, keep: Any, drop: Any) -> Paths:
    """Paths whose state `drop` is renamed `keep`."""
    state = paths.state.at[..., keep].add(paths.state[..., drop]).at[..., drop].set(0)
    pair = paths.pair.at[..., keep, :].add(paths.pair[..., drop, :]).at[..., drop, :].set(0)
    pair = pair.at[..., keep].add(pair[..., drop]).at[..., drop].set(0)
    return Paths(state, pair)


def divided(paths: Paths, state: Any, free: Any, segments: Array) -> Paths:
    """Paths whose steps in `state` are renamed `free` where `segments` (sequence, time) is True."""
    count = paths.state.shape[-1]
    here = segments[..., None] & (jnp.arange(count) == state)  # (sequence, time, state)
    moved = jnp.where(here, paths.state, 0)
    by_state = (paths.state - moved).at[..., free].add(moved[..., state])
    leaving, entering = here[:, :-1, :, None], here[:, 1:, None, :]
    moved = jnp.where(leaving, paths.pair, 0)
    pair = (paths.pair - moved).at[..., free, :].add(moved[..., state, :])
    moved = jnp.where(entering, pair, 0)
    pair = (pair - moved).at[..., free].add(moved[..., state])
    return Paths(by_state, pair)


def changes_of_merges(paths: Paths, stay_evidence: Array | None, keep: Any, drop: Any) -> Array:
    """Change (merge,) of the entropy of the paths, and of their stay evidence, by each of the merges (merge,).

    A few numbers per step, state and merge: only the rows and columns of the two states change.
    """
    state, pair = paths
    leaving = jnp.sum(pair, axis=-1)
    label = jnp.arange(state.shape[-1])

    def change(both):
        i, j = both
        other = (label != i) & (label != j)
        first = _merging(state[:, 0, i], state[:, 0, j])
        rows = jnp.sum(jnp.where(other, _terms_merging(pair[..., i, :], pair[..., j, :]), 0))
        columns = jnp.sum(jnp.where(other, _terms_merging(pair[..., i], pair[..., j]), 0))
        block = jnp.stack([pair[..., i, i], pair[..., i, j], pair[..., j, i], pair[..., j, j]])
        corner = _surprise(jnp.sum(block, axis=0)) - _surprise(block)
        out = _merging(leaving[..., i], leaving[..., j])
        change = first + rows + columns + corner - out
        if stay_evidence is not None:
            change += jnp.sum(jnp.where(block[1] + block[2] > 0, (block[1] + block[2]) * stay_evidence, 0))
        return change

    return lax.map(change, (jnp.asarray(keep), jnp.asarray(drop)))


def stay_change(before: Paths, after: Paths, stay_evidence: Array | None) -> Array:
    """Change of the stay evidence from paths to others."""
    if stay_evidence is None:
        return jnp.zeros((), before.state.dtype)
    stays = (jnp.trace(paths.pair, axis1=-2, axis2=-1) for paths in (after, before))
    later, earlier = stays
    change = later - earlier
    real = jnp.abs(change) > 64 * jnp.finfo(change.dtype).eps  # evidence of certain labels is infinite
    return jnp.sum(jnp.where(real, change * stay_evidence, 0))


def _surprise(x: Array) -> Array:
    return -jnp.sum(xlogy(x, x))


def _terms_merging(x: Array, y: Array) -> Array:
    return xlogy(x, x) + xlogy(y, y) - xlogy(x + y, x + y)


def _merging(x: Array, y: Array) -> Array:
    return jnp.sum(_terms_merging(x, y))
