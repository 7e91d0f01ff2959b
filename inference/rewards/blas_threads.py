"""One thread of BLAS for the small matrices of a fit, with as many fits at a time as there are threads of Python."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from threadpoolctl import threadpool_limits

__all__ = ["one_blas_thread"]

_LOCK = threading.Lock()
_RUNNING: list[object] = []
_BEFORE: list[threadpool_limits] = []


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """BLAS has one thread until the last of the blocks that overlap has ended; then as many as before the first.

    The number is one of the process: blocks that restored what each had found would leave it at one.
    """
    this = object()
    with _LOCK:
        if not _RUNNING:
            _BEFORE.append(threadpool_limits(1, user_api="blas"))
        _RUNNING.append(this)
    try:
        yield
    finally:
        with _LOCK:
            _RUNNING.remove(this)
            if not _RUNNING:
                _BEFORE.pop().restore_original_limits()
