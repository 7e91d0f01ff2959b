"""The search of a conjugate fit by moves: what comes next once restarts have settled.

By default the best restarts try merges and deletions; restarts with one state more follow while the best fit uses its
states; then the best one goes on to converge. With ``moves=True`` all restarts try all moves, in rounds.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from ethogram.inference.conjugate.fit_state import FitState
from ethogram.inference.conjugate.move_rounds import DONE, SWEEPS, MoveSearch, after_round, judge, propose
from ethogram.inference.conjugate.moves import EMPTY
from ethogram.inference.conjugate.nested_starts import UNUSED, joined
from ethogram.inference.conjugate.side_by_side_moves import mass_of, try_candidates
from ethogram.inference.conjugate.steps import BLOCK, size_of

__all__ = ["best_restart", "merge", "move", "moves_are_due", "next_stage"]

MOVING = 3
"""Restarts that make moves by default, in order of their ELBOs."""


def moves_are_due(run: Any, state: FitState) -> bool:
    """Whether a round of moves is next: asked at steps that do not depend on where checkpoints are written."""
    search: MoveSearch | None = state.search
    if search is None:
        return False
    if run.moves == "auto":  # in order of their ELBOs, once they have settled
        next_one = _next_to_move(state)
        if next_one is None or state.active[next_one]:
            return False
    elif not search.is_due(state.active):
        return False
    return not state.active.any() or (state.step - search.since) % BLOCK == 0


def next_stage(run: Any, state: FitState) -> FitState | None:
    """Where a search goes on once its restarts have settled; None where it is over.

    Restarts with one state more follow while those before used theirs; at the end the best one converges.
    """
    search: MoveSearch | None = state.search
    best = best_restart(state)
    if run.moves != "auto" or search is None or search.final or not np.isfinite(state.latest[best]):
        return None
    restarts = len(search.tried)
    if 0 < search.number < run.num_labels:
        used = int(np.sum(np.asarray(mass_of(run.model_of(search)[0], state.blocks, best)) > EMPTY))
        if used > search.number - UNUSED:
            return _with_one_state_more(run, state, best)
    active = np.arange(restarts) == best
    return state._replace(active=active, search=search._replace(since=state.step, final=True))


def _with_one_state_more(run: Any, state: FitState, best: int) -> FitState:
    """State in which all restarts but the first, the best so far, start anew."""
    (restarts, room), number = state.search.tried.shape[:2], state.search.number + 1
    incumbent = jax.tree.map(lambda x: np.asarray(x)[best], state.blocks)
    search = run.search_at_start(state.step, restarts, room if number <= room else 2 * room)
    search = search._replace(round=state.search.round, number=number, needs=state.search.needs)
    search.phase[0] = DONE
    model, narrow = (run.model_of(each)[0] for each in (search, state.search))
    incumbent = jax.tree.map(lambda x: np.asarray(x)[None], model.widened(narrow, incumbent))
    first = np.arange(restarts) == 0
    return state._replace(
        blocks=joined(incumbent, run.nested_starts(model, restarts - 1, number)),
        active=~first,
        latest=np.where(first, state.latest[best], -np.inf).astype(state.latest.dtype),
        traces=[np.full_like(row, row[best]) for row in state.traces],
        search=search,
    )


def merge(run: Any, state: FitState) -> FitState:
    """State after merges and deletions of one restart were tried."""
    moving = _next_to_move(state)
    assert moving is not None

    def sweep(blocks, active, latest, done, limit):
        return run.iterate(
            state._replace(blocks=blocks, step=state.step + done, latest=latest), active, limit
        )

    found = try_candidates(
        sweep, run.model_of(state.search)[0], state.blocks, state.latest, moving, run.frames
    )
    phase, active = state.search.phase.copy(), np.array(state.active)
    phase[moving] = phase[moving] if found.kept else DONE
    active[moving] = found.active
    state = run.with_trace(state, found.trace)
    search = state.search._replace(round=state.search.round + 1, since=state.step, phase=phase)
    return state._replace(blocks=found.blocks, active=active, latest=found.latest, search=search)


def move(run: Any, state: FitState) -> FitState:
    """State after one round of moves."""
    search = state.search._replace(ready=state.search.ready_after(state.active))
    fixed = run.model, run.prior, run.buckets, run.key_moves
    search, moves = propose(*fixed, state.blocks, state.latest, search)
    if not moves.chosen.any():
        return state._replace(search=search)

    def sweep(blocks, active, latest, done):
        return run.iterate(
            state._replace(blocks=blocks, step=state.step + done, latest=latest), active, BLOCK
        )

    before = state.blocks, state.active, state.latest
    kept, blocks, active, latest, trace = judge(sweep, moves, *before, run.frames)
    with np.errstate(invalid="ignore"):  # ELBOs of -inf have no difference
        gained = latest - state.latest > SWEEPS * run.tol * size_of(latest, run.frames)
    state = run.with_trace(state, trace)
    search = after_round(search, moves, kept, gained, state.step, run.model.moves_keep_number)
    return state._replace(blocks=blocks, active=active, latest=latest, search=search)


def _next_to_move(state: FitState) -> int | None:
    """The restart of largest ELBO that may try moves; None where the best ones have."""
    order = np.argsort(-np.where(np.isfinite(state.latest), state.latest, -np.inf), kind="stable")[:MOVING]
    left = [int(at) for at in order if np.isfinite(state.latest[at]) and state.search.phase[at] < DONE]
    return left[0] if left else None


def best_restart(state: FitState) -> int:
    """The restart of largest ELBO."""
    return int(np.argmax(np.where(np.isnan(state.latest), -np.inf, state.latest)))
