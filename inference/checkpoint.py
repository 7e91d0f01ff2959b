"""Checkpoints of conjugate fits: all that a run needs to go on, and what says whose run it was."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import numpy as np

from ethogram.inference import storage

__all__ = ["FitState", "check_path", "read_checkpoint", "write_checkpoint"]


class FitState(NamedTuple):
    """Where a fit stands.

    Attributes
    ----------
    blocks : q(theta) of every restart, on a leading axis.
    step, first_step : steps done, and those done before this run (by the result it started from).
    active : (restart,) not converged.
    latest : (restart,) latest bounds, in nats.
    evaluated : steps at which `traces` were taken.
    traces : bounds (restart,) at each of them.
    """

    blocks: Any
    step: int
    first_step: int
    active: Any
    latest: Any
    evaluated: list[int]
    traces: list[np.ndarray]


def check_path(path: str | os.PathLike) -> None:
    """Raise ValueError where no checkpoint could be written: better now than after an hour."""
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise ValueError(
            f"checkpoint is {os.fspath(path)!r}, but there is no folder {folder!r}: make it first"
        )
    if os.path.isdir(path):
        raise ValueError(f"checkpoint is {os.fspath(path)!r}, which is a folder: name a file")


def write_checkpoint(
    path: str | os.PathLike, signature: str, state: FitState, step_sizes: dict[int, float]
) -> None:
    """Write a state, whole or not at all.

    Parameters
    ----------
    signature : of model, data, key and settings (`storage.fingerprint`).
    step_sizes : by step, some of those used so far.
    """
    steps, sizes = np.array(list(step_sizes), dtype=int), np.array(list(step_sizes.values()), dtype=float)
    traces = np.stack(state.traces) if state.traces else np.zeros((0, *np.shape(state.latest)))
    content = {
        "signature": signature,
        "steps": steps,
        "step_sizes": sizes,
        "traces": traces,
        "evaluated": np.array(state.evaluated, dtype=int),
        "state": state._replace(evaluated=[], traces=[]),
    }
    storage.write(path, content)


def read_checkpoint(path: str | os.PathLike, signature: str, step_size_at: Any) -> FitState | None:
    """The state of a file, or None where there is none.

    Step sizes are compared at the steps that were done, since a schedule is a function and has no other identity.

    Parameters
    ----------
    signature : of the present run.
    step_size_at : from steps (step,) to the present run's step sizes (step,).

    Raises
    ------
    ValueError
        If the file is truncated, is no checkpoint, or is one of another run.
    """
    if not os.path.exists(path):
        return None
    content = storage.read(path)
    if not isinstance(content, dict) or not isinstance(content.get("state"), FitState):
        raise ValueError(f"{os.fspath(path)} is not a checkpoint of a fit: choose another file")
    cure = "remove it, or choose another file"
    if content["signature"] != signature:
        raise ValueError(f"{os.fspath(path)} is a checkpoint of another model, data, key or settings: {cure}")
    steps, before = content["steps"], content["step_sizes"]
    now = step_size_at(steps)
    differs = np.flatnonzero(~np.isclose(now, before, rtol=1e-6, atol=0))
    if differs.size:
        at = differs[0]
        raise ValueError(
            f"{os.fspath(path)} is a checkpoint of a run whose step_size was {before[at]} at step {steps[at]}, "
            f"not {now[at]}: {cure}"
        )
    return content["state"]._replace(evaluated=content["evaluated"].tolist(), traces=list(content["traces"]))
