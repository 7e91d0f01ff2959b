"""State of a conjugate fit between compiled calls, and the checkpoint that holds it."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from ethogram.inference.checkpoint import CURE, check_path, read_checkpoint, write_checkpoint
from ethogram.inference.conjugate.move_rounds import MoveSearch, check_search
from ethogram.inference.conjugate.posterior import check_blocks
from ethogram.inference.conjugate.step_sizes import step_size_at
from ethogram.models.arguments import require_integer
from ethogram.models.conjugate_model import ConjugateModel

__all__ = ["FitState", "resume_state", "save_state"]

MAX_PROBES = 100
"""Step sizes recorded in a checkpoint at most, to recognise the schedule."""


class FitState(NamedTuple):
    """State of a fit between compiled calls; what a checkpoint holds."""

    blocks: Any  # q(theta) of every restart, on a leading axis
    step: int  # steps done, those of earlier runs included
    first_step: int  # steps done before this run (by the result it started from)
    active: Any  # (restart,) not converged
    latest: Any  # (restart,) latest ELBOs, in nats
    evaluated: list[int]  # steps at which `traces` were taken
    traces: list[np.ndarray]  # ELBOs (restart,) at each of them
    carried: Any = ()  # what local steps hand on, by batch, of every restart
    search: Any = None  # where the search by moves stands; None without moves


def save_state(path: str | os.PathLike, signature: str, state: FitState, step_size: Any) -> None:
    """Write the checkpoint of a state, with the step sizes at some of the steps done; without, where they are None."""
    count = 0 if step_size is None else min(state.step - state.first_step, MAX_PROBES)
    steps = np.unique(np.linspace(state.first_step, state.step - 1, count).astype(int))
    write_checkpoint(
        path,
        signature,
        state._replace(evaluated=[], traces=[]),
        steps=steps,
        step_sizes=step_size_at(1.0 if step_size is None else step_size, steps),
        traces=np.stack(state.traces) if state.traces else np.zeros((0, *np.shape(state.latest))),
        evaluated=np.array(state.evaluated, dtype=int),
    )


def resume_state(
    path: str | os.PathLike,
    signature: str,
    model_of: Callable[[MoveSearch | None], tuple[ConjugateModel, Any]],
    step_size: Any,
    first_search: Callable[[int, int, int], MoveSearch | None],
) -> FitState | None:
    """State in a checkpoint, None where there is none.

    A schedule is a function and cannot be compared: its step sizes at the steps done are.

    Parameters
    ----------
    model_of : the model, and its prior, that the blocks of a search are of.
    first_search : (step, restarts, states) -> the search of a fit at its start, in a model with room for these states.

    Raises
    ------
    ValueError
        For a checkpoint of another run, or a damaged one.
    """
    check_path(path)
    content = read_checkpoint(path, signature, FitState, "steps", "step_sizes", "traces", "evaluated")
    if content is None:
        return None
    _check_saved(os.fspath(path), content, model_of, first_search)
    steps, before = content["steps"], content["step_sizes"]
    now = step_size_at(step_size, steps)
    differs = np.flatnonzero(~np.isclose(now, before, rtol=1e-6, atol=0))
    if differs.size:
        at = differs[0]
        raise ValueError(
            f"{os.fspath(path)} is a checkpoint of a run whose step_size was {before[at]} at step {steps[at]}, "
            f"not {now[at]}: {CURE}"
        )
    return content["state"]._replace(evaluated=content["evaluated"].tolist(), traces=list(content["traces"]))


def _check_saved(path: str, content: dict[str, Any], model_of: Any, first_search: Any) -> None:
    """Raise ValueError, which names the file, where the numbers of a checkpoint are damaged."""
    state = content["state"]
    try:
        require_integer("state.step", state.step, 0)
        require_integer("state.first_step", state.first_step, 0, state.step)
        restarts = np.size(state.latest)
        counts = np.size(content["steps"]), np.size(content["evaluated"])
        for name, array, shape, kinds in (
            ("state.latest", state.latest, (restarts,), "f"),
            ("state.active", state.active, (restarts,), "b"),
            ("steps", content["steps"], counts[:1], "iu"),
            ("step_sizes", content["step_sizes"], counts[:1], "f"),
            ("evaluated", content["evaluated"], counts[1:], "iu"),
            ("traces", content["traces"], (counts[1], restarts), "f"),
        ):
            array = np.asarray(array)
            if array.shape != shape or array.dtype.kind not in kinds:
                raise ValueError(f"{name} is {array.dtype} of shape {array.shape}, expected shape {shape}")
        room = np.shape(state.search.tried)[1:2] if isinstance(state.search, MoveSearch) else ()
        check_search(state.search, first_search(0, restarts, *room))
        model, _ = model_of(state.search)
        if np.isnan(content["step_sizes"]).any():
            raise ValueError("step_sizes has NaN, expected numbers")
        possible = np.asarray(state.latest) > -np.inf  # blocks of an impossible start may be anything
        if np.isnan(state.latest).any():
            raise ValueError("state.latest has NaN, expected ELBOs in nats")
        for at in np.flatnonzero(possible):
            one = jax.tree.map(lambda x, at=at: x[at], state.blocks)
            check_blocks(model, one, f"state.blocks, restart {at},")
    except (TypeError, ValueError, IndexError, AttributeError) as error:
        raise ValueError(f"{path} is damaged: {error}; {CURE}") from error
