"""Checkpoint files of resumable fits: the state of a fit, with a signature of the run that it belongs to."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any, TypeVar

from ethogram.inference import storage
from ethogram.models.arguments import warn_user
from ethogram.models.whole_files import refuse_place

__all__ = ["CURE", "check_path", "read_checkpoint", "refuse_longer", "resumed", "write_checkpoint"]

State = TypeVar("State")

CURE = "remove it, or choose another file"


def check_path(path: str | os.PathLike, name: str = "checkpoint") -> None:
    """Raise ValueError or TypeError where no checkpoint could be written, before the fit starts."""
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"{name} is {type(path).__name__}: give a path")
    shown = os.fspath(path)
    if not isinstance(shown, str):
        raise TypeError(f"{name} is a path of bytes: give a string")
    folder = os.path.dirname(os.path.abspath(shown))
    if shown and not os.path.isdir(folder):
        raise ValueError(f"{name} is {shown!r}, but there is no folder {folder!r}: create it first")
    if os.path.isdir(shown):
        raise ValueError(f"{name} is {shown!r}, which is a folder: name a file")
    try:
        refuse_place(shown)
    except OSError as error:
        raise ValueError(f"{name} is {shown!r}: {error}") from error


def write_checkpoint(path: str | os.PathLike, signature: str, state: Any, **details: Any) -> None:
    """Write a state (of a class in `saved_classes`) and further details of a fit atomically.

    The signature is `storage.fingerprint` of model, data, key and settings. Where the file cannot be written,
    such as to a full disk, a UserWarning says so, and the last checkpoint stays: the fit, which is in memory, goes on.
    """
    try:
        storage.write(path, {"signature": signature, "state": state, **details})
    except OSError as error:
        warn_user(f"the checkpoint was not written, and the fit goes on: {error}")


def read_checkpoint(
    path: str | os.PathLike, signature: str, kind: type, *details: str
) -> dict[str, Any] | None:
    """State, of class `kind`, and details of a checkpoint, by name; None where there is no file.

    `details` are the names that it must have. A ValueError if one is missing, or the file is truncated, is not a
    checkpoint of such a fit, or has another signature.
    """
    if not os.path.exists(path):
        return None
    try:
        content = storage.read(path)
    except ValueError as error:
        raise ValueError(f"{error}; it is damaged, or of another version of ethogram: {CURE}") from error
    if not isinstance(content, dict) or not isinstance(content.get("state"), kind):
        raise ValueError(f"{os.fspath(path)} is not a checkpoint of this kind of fit: choose another file")
    for name in ("signature", *details):
        if name not in content:
            raise ValueError(
                f"{os.fspath(path)} is a checkpoint without {name!r}, which was expected: {CURE}"
            )
    if content["signature"] != signature:
        raise ValueError(f"{os.fspath(path)} is a checkpoint of another model, data, key or settings: {CURE}")
    return content


def refuse_longer(done: int, num_steps: int) -> None:
    """Raise ValueError where a checkpoint has more steps than are asked for: it does not have the result of fewer."""
    if done > num_steps:
        raise ValueError(
            f"the checkpoint is of {done} steps, more than num_steps={num_steps}: pass num_steps={done} or more for "
            "its result, or choose another file"
        )


def resumed(
    path: str | os.PathLike | None,
    signature: Callable[[], str],
    kind: type[State],
    check: Callable[[str, State], None],
    first: Callable[[], State],
) -> tuple[State, Callable[[State], None]]:
    """State of a checkpoint, or the first one where there is no file, and the function that writes the next states.

    Without a path nothing is read or written. ``check(name, state)`` raises ValueError where a state does not fit.
    """
    if path is None:
        return first(), lambda state: None
    check_path(path)
    digest = signature()
    content = read_checkpoint(path, digest, kind)
    if content is not None:
        check(os.fspath(path), content["state"])
    state = first() if content is None else content["state"]
    return state, functools.partial(write_checkpoint, path, digest)
