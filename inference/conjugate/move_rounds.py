"""Rounds of moves: which move every restart tries next, and whether it is kept.

A restart that has settled tries merges until none raises its bound, then deletions of small states, then splits while
a label is free, and begins again after each move that is kept. Where the number of states is fixed, a state that is
merged away is where another is split. In a round every restart tries one move: sweeps from the proposed blocks judge
it, and if its bound does not rise, the blocks from before are kept. The bound never falls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array

from ethogram.inference.conjugate.moves import (
    EMPTY,
    NUM_KINDS,
    PROPOSALS,
    best_deletion,
    best_merge,
    best_split,
    chosen_blocks,
    posteriors,
)
from ethogram.inference.conjugate.steps import BLOCK, size_of

__all__ = [
    "DONE",
    "SWEEPS",
    "MoveSearch",
    "Moves",
    "after_round",
    "check_search",
    "first_search",
    "judge",
    "least_kept",
    "propose",
]

SWEEPS = 3 * BLOCK
"""Iterations that judge a move, at most."""

LEAST_GAIN = 1e-9
"""Relative rise of the bound from which a move is kept, where rounding is smaller."""

MERGE, DELETE, SPLIT, DONE = range(4)

FLOOR = {MERGE: 50.0, DELETE: 200.0, SPLIT: np.inf}
"""Nats that proposed blocks may lie below the bound: sweeps rarely make up for more."""

TRIES = {MERGE: 3, DELETE: 2, SPLIT: NUM_KINDS}
"""Moves of a kind that may fail in turn; of splits into a label that a merge frees, for each merge."""

Sweeps = Callable[[Any, np.ndarray, np.ndarray, int], tuple[Any, ...]]


class MoveSearch(NamedTuple):
    """Where the search of every restart stands; part of the state of a fit."""

    round: int
    since: int  # step at which the last round ended
    ready: np.ndarray  # (restart,): has settled once
    phase: np.ndarray  # (restart,): the kind of move it tries
    failures: np.ndarray  # (restart,): moves of the kind that failed in turn
    tried: np.ndarray  # (restart, state, state): merges, on the diagonal deletions, not to try again
    number: int = 0  # states that restarts may use; 0: all, from the start
    final: bool = False  # whether the best one goes on to converge
    needs: int = 0  # steps of a fit, at least, that has room for the rounds so far

    def ready_after(self, active: Any) -> np.ndarray:
        """Restarts (restart,) that have settled, now or before."""
        return self.ready | ~np.asarray(active)

    def is_due(self, active: Any) -> bool:
        """Whether half of the restarts have settled, and one of them has moves left to try."""
        ready = self.ready_after(active)
        return bool(np.mean(ready) >= 0.5 and (ready & (self.phase < DONE)).any())


class Moves(NamedTuple):
    """The move of every restart in a round."""

    chosen: np.ndarray  # (restart,): whether it makes one
    states: np.ndarray  # (restart, 2)
    blocks: Any


def first_search(step: int, restarts: int, count: int, keeps_number: bool) -> MoveSearch:
    """The search before the first round, of models with `count` states."""
    phase = DONE if count < 2 else SPLIT if keeps_number else MERGE
    nothing = np.zeros(restarts, int)
    tried = np.zeros((restarts, count, count), bool)
    return MoveSearch(0, step, nothing.astype(bool), nothing + phase, nothing, tried)


def check_search(search: Any, first: MoveSearch | None) -> None:
    """Raise ValueError unless the search of a file is None where `first` is, and has the shapes of `first`."""
    if type(search) is not type(first):
        raise ValueError(f"state.search is {type(search).__name__}, expected {type(first).__name__}")
    for name in () if first is None else MoveSearch._fields:
        found, expected = (np.asarray(getattr(one, name)) for one in (search, first))
        if found.shape != expected.shape or found.dtype.kind not in "iub":
            raise ValueError(f"state.search.{name} is {found!r}, expected shape {expected.shape}")


def propose(
    model: Any, prior: Any, batches: list[Any], key: Array, blocks: Any, latest: Any, search: MoveSearch
) -> tuple[MoveSearch, Moves]:
    """The next move of every restart that is ready, and the search with the kinds of move it has come to.

    Parameters
    ----------
    blocks, latest : q(theta) of every restart, on a leading axis, and its bound (restart,).
    """
    phase, failures = search.phase.copy(), search.failures.copy()
    phase[~np.isfinite(latest)] = DONE
    chosen = np.zeros(len(phase), bool)
    states = np.full((len(phase), 2), -1)
    new = blocks

    def take(kind, candidate, trying, tries):
        nonlocal new
        possible = trying & (candidate.gain > -FLOOR[kind]) & (failures < tries)
        new = chosen_blocks(possible, candidate.blocks, new)
        states[possible] = candidate.states[possible]
        chosen[possible] = True
        phase[trying & ~possible] = kind + 1
        failures[trying & ~possible] = 0

    keeps = model.moves_keep_number
    now = posteriors(model, blocks, prior, batches, np.zeros(search.tried.shape[:2], bool))
    arguments = model, blocks, prior, batches, now
    for kind, best in ((MERGE, best_merge), (DELETE, best_deletion)):
        trying = search.ready & ~chosen & (phase == kind)
        if trying.any():
            take(kind, best(*arguments, search.tried), trying, TRIES[kind])
    trying = search.ready & ~chosen & (phase == SPLIT)
    if trying.any():
        pair, tries = np.full_like(states, -1), TRIES[SPLIT]
        if keeps:
            merge = best_merge(*arguments, search.tried)
            full = np.min(np.asarray(now.mass), axis=1) > EMPTY
            pair = np.where(full[:, None], merge.states, -1)
            tries *= TRIES[MERGE]
            failures[trying & full & ~np.isfinite(merge.gain)] = tries
        keys = jax.random.split(jax.random.fold_in(key, search.round), (len(phase), PROPOSALS))
        take(SPLIT, best_split(*arguments, keys, failures % NUM_KINDS, pair), trying, tries)
        if keeps:
            of_pair = chosen & (phase == SPLIT) & (pair[:, 0] >= 0)
            states[of_pair] = pair[of_pair]
    return search._replace(phase=phase, failures=failures), Moves(chosen, states, new)


def least_kept(bound: Any, frames: float) -> Any:
    """Bounds above which a move of restarts with these bounds is kept."""
    return bound + max(LEAST_GAIN, 16 * np.finfo(bound.dtype).eps) * size_of(bound, frames)


def judge(
    sweep: Sweeps, moves: Moves, blocks: Any, active: Any, latest: Any, frames: float
) -> tuple[np.ndarray, Any, np.ndarray, np.ndarray, np.ndarray]:
    """Which moves are kept; blocks, active restarts and bounds after sweeps; bounds (sweep, restart) on the way.

    While a move is judged, the bound is that of its restart before, or its own once it is larger.

    Parameters
    ----------
    sweep : (blocks, active, latest, number of sweeps before) -> as ``ascent_block`` of
        :mod:`ethogram.inference.conjugate.steps`.
    """
    chosen, before, base = moves.chosen, np.asarray(active), np.asarray(latest)
    least = least_kept(base, frames)
    new, now = moves.blocks, before | chosen
    bound = np.where(chosen, -np.inf, base).astype(base.dtype)
    rows: list[np.ndarray] = []
    for left in range(SWEEPS // BLOCK - 1, -1, -1):
        new, _, now, bound, trace, done = sweep(new, now, bound, len(rows))
        now, bound, trace = np.array(now), np.asarray(bound), np.asarray(trace)[: int(done)]
        rows.extend(trace)
        gained = bound > least
        rise = trace[-1] - trace[0]
        far = (least - bound > 2 * left * rise) if left < SWEEPS // BLOCK - 1 else ~np.isfinite(bound)
        pending = chosen & ~gained & now & ~far
        now &= ~chosen | gained | pending
        if not pending.any():
            break
    kept = chosen & gained
    stays = chosen & ~kept
    new = chosen_blocks(stays, blocks, new)
    traces = np.where(stays, base, np.where(chosen, np.maximum(rows, base), rows))
    return kept, new, np.where(stays, before, now), np.where(stays, base, bound), traces


def after_round(
    search: MoveSearch, moves: Moves, kept: np.ndarray, gained: np.ndarray, step: int, keeps_number: bool
) -> MoveSearch:
    """The search after moves were judged; a pair that was split is not merged at once.

    A split counts as failed unless the bound rose by more than sweeps alone would raise it, where it `gained`
    (restart,): the search does not begin again.
    """
    phase, failures, tried = search.phase.copy(), search.failures.copy(), search.tried.copy()
    kept = kept & (gained | (phase != SPLIT))
    failed = moves.chosen & ~kept
    failures[failed] += 1
    for at in np.flatnonzero(failed):
        i, j = moves.states[at]
        if phase[at] != SPLIT or (i >= 0 and keeps_number and failures[at] % NUM_KINDS == 0):
            tried[at, [i, j], [j, i]] = True
    for at in np.flatnonzero(kept):
        i, j = moves.states[at]
        tried[at] = False
        if phase[at] == SPLIT and not keeps_number:
            tried[at, [i, j], [j, i]] = True
        phase[at] = SPLIT if keeps_number else MERGE
        failures[at] = 0
    return search._replace(round=search.round + 1, since=step, phase=phase, failures=failures, tried=tried)
