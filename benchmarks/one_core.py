"""Pin a process to one core, so that its CPU seconds are those of one thread.

XLA starts a thread for each core it may run on, whatever the flags, and CPU time adds up over threads.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

__all__ = ["one_core"]


@contextlib.contextmanager
def one_core() -> Iterator[None]:
    """Runs existing threads, and those that they start, on the last available core; does nothing on other systems."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    _move({max(before)})
    try:
        yield
    finally:
        _move(before)


def _move(cores: set[int]) -> None:
    for thread in Path("/proc/self/task").iterdir():
        with contextlib.suppress(ProcessLookupError):  # it has ended in the meantime
            os.sched_setaffinity(int(thread.name), cores)
