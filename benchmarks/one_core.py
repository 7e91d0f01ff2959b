"""All of a process on one core, so that its CPU seconds are those of one thread.

XLA makes as many threads as there are cores it may run on, flags or not, and what two of them take counts twice on the
CPU's clock.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

__all__ = ["one_core"]


@contextlib.contextmanager
def one_core() -> Iterator[None]:
    """Threads that are there, and those that they start, on the last core they may run on; nothing on other systems."""
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
