"""Warnings of this package that one thread keeps back.

`warnings.catch_warnings` changes the filters of all threads, and two of them that overlap leave these changed for good.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import threading
import warnings
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

__all__ = ["FILTERS", "held_warnings", "hold", "import_quietly"]

_HELD: ContextVar[list[str] | None] = ContextVar("_HELD", default=None)
FILTERS = threading.RLock()
"""To be held where a call of another package changes the filters of warnings for a moment."""


@contextlib.contextmanager
def held_warnings() -> Iterator[list[str]]:
    """Messages of `arguments.warn_user` in the block, in this thread, which are not shown."""
    found: list[str] = []
    token = _HELD.set(found)
    try:
        yield found
    finally:
        _HELD.reset(token)


def hold(message: str) -> bool:
    """Whether a warning is kept back here; its message then is among those that are held."""
    held = _HELD.get()
    if held is not None:
        held.append(message)
    return held is not None


def import_quietly(name: str, category: type[Warning]) -> Any:
    """A module whose import warns of nothing that its caller could change; the first import alone touches filters."""
    if name not in sys.modules:
        with FILTERS, warnings.catch_warnings():
            warnings.simplefilter("ignore", category)
            importlib.import_module(name)
    return importlib.import_module(name)
