"""Merges and deletions of one restart, each candidate in the place of a restart, so that nothing more is compiled.

The restarts wait: the compiled iterations that ran them now run as many candidates, each of them the same restart with
two states merged, or with one deleted. The ELBO after some iterations judges, and it is exact, whatever the candidate.
The best candidate is kept if its ELBO is higher than that of the restart; the others are dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ethogram.inference.conjugate.move_rounds import least_kept
from ethogram.inference.conjugate.moves import EMPTY
from ethogram.models.quick_jit import quick_jit

__all__ = ["LONGEST", "Judged", "candidates", "mass_of", "try_candidates"]

ROUNDS = 3
"""Candidates, as a multiple of the restarts, that a few iterations rank before the best of them are judged."""

RANKING = 3
"""Iterations that rank candidates."""

STAGES = (5, 5, 10, 10)
"""Iterations that judge candidates, at most; after each stage those go on that may still reach the bound."""

LONGEST = ROUNDS * RANKING + sum(STAGES)
"""Iterations of `try_candidates`, at most."""

Sweeps = Callable[[Any, np.ndarray, np.ndarray, int, int], tuple[Any, ...]]


class Judged(NamedTuple):
    """What became of the candidates."""

    kept: bool
    blocks: Any  # of all restarts
    active: bool  # whether the restart has not converged
    latest: np.ndarray  # (restart,): ELBOs
    trace: np.ndarray  # (iteration, restart): ELBOs on the way, never below the first


def candidates(mass: Any, most: int) -> np.ndarray:
    """Pairs (candidate, 2) of states to merge, a state to delete twice; those that drop the smallest states first.

    Parameters
    ----------
    mass : (state,) expected steps.
    most : number of candidates.
    """
    mass = np.asarray(mass)
    used = [int(state) for state in np.argsort(mass, kind="stable") if mass[state] > EMPTY]
    pairs = [
        (keep, drop) for at, drop in enumerate(used) for keep in (drop, *used[at + 1 :]) if len(used) > 1
    ]
    return np.array(pairs[:most], int).reshape(-1, 2)


def try_candidates(sweep: Sweeps, model: Any, blocks: Any, latest: Any, moving: int, frames: float) -> Judged:
    """One restart after the best of its merges and deletions, if one raises its ELBO.

    Parameters
    ----------
    sweep : (blocks, active, latest, iterations before, iterations at most) -> as ``ascent_block`` of
        :mod:`ethogram.inference.conjugate.steps`.
    blocks, latest : q(theta) of every restart, on a leading axis, and its ELBO (restart,).
    moving : number of the restart.
    frames : informative steps of the data.
    """
    latest = np.asarray(latest)
    restarts, base = len(latest), latest[moving]
    least = least_kept(base, frames)
    pairs = candidates(mass_of(model, blocks, moving), ROUNDS * restarts)
    nowhere = np.full(restarts, -np.inf, latest.dtype)

    def start(pairs):
        filled = np.concatenate([pairs, np.broadcast_to(pairs[:1], (restarts - len(pairs), 2))])
        return _relabelled(model, blocks, moving, filled), np.arange(restarts) < len(pairs)

    before = 0
    if len(pairs) > restarts:
        values = []
        for at in range(0, len(pairs), restarts):
            new, active = start(pairs[at : at + restarts])
            _, _, _, bound, _, done = sweep(new, active, nowhere, before, RANKING)
            values.append(np.asarray(bound)[active])
            before += int(done)
        ranks = np.concatenate(values)
        order = np.argsort(-np.where(np.isnan(ranks), -np.inf, ranks), kind="stable")
        pairs = pairs[order[:restarts]]
    rows: list[np.ndarray] = []
    kept, winner, new, active, bound = False, 0, blocks, np.zeros(restarts, bool), nowhere
    if len(pairs):
        new, active = start(pairs)
    left = sum(STAGES)
    for limit in STAGES:
        if kept or not active.any():
            break
        tried = active
        new, _, active, bound, trace, done = sweep(new, active, bound, before + len(rows), limit)
        bound, trace, active = np.asarray(bound), np.asarray(trace)[: int(done)], np.array(active)
        rows.extend(trace)
        left -= limit
        reached = np.where(tried & np.isfinite(bound), bound, -np.inf)
        winner = int(np.argmax(reached))
        kept = bool(reached[winner] > least)
        middle = len(trace) // 2
        with np.errstate(invalid="ignore"):  # ELBOs of -inf have no difference
            rate = (trace[-1] - trace[middle]) / max(len(trace) - 1 - middle, 1)
            active &= (least - bound <= 2 * left * rate) | (kept & (np.arange(restarts) == winner))
    trace = np.tile(latest, (before + len(rows), 1))
    if not kept:
        return Judged(False, blocks, False, latest, trace)
    trace[before:, moving] = np.maximum(base, np.array(rows)[:, winner])
    after = latest.copy()
    after[moving] = bound[winner]
    return Judged(True, _placed(blocks, new, moving, winner), bool(active[winner]), after, trace)


@quick_jit
def mass_of(model: Any, blocks: Any, moving: Any) -> Array:
    """Expected steps (state,) in every state of one restart."""
    return model.state_mass(jax.tree.map(lambda x: x[moving], blocks))


@quick_jit
def _relabelled(model, blocks, moving, pairs):
    one = jax.tree.map(lambda x: x[moving], blocks)
    return jax.vmap(lambda pair: model.relabelled(one, pair[0], pair[1]))(pairs)


@quick_jit
def _placed(blocks, new, moving, winner):
    return jax.tree.map(lambda x, y: jnp.asarray(x).at[moving].set(y[winner]), blocks, new)
