"""One thread of BLAS for the small matrices of fits, of which several may run in threads of Python."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from threadpoolctl import ThreadpoolController

__all__ = ["one_blas_thread"]

_LOCK = threading.Lock()
_RUNNING: list[object] = []
_BEFORE: list[tuple[Any, int]] = []
"""Libraries of BLAS, and the numbers of threads that they had before the first of the blocks that run."""


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """BLAS has one thread until the last of the blocks that overlap has ended; then as many as before the first.

    The number is one of the process: blocks that restored what each had found would leave it at one.
    """
    this = object()
    with _LOCK:
        if not _RUNNING:
            libraries = ThreadpoolController().select(user_api="blas").lib_controllers
            _BEFORE[:] = [(library, library.num_threads) for library in libraries]
            for library, _ in _BEFORE:
                library.set_num_threads(1)
        _RUNNING.append(this)
    try:
        yield
    finally:
        with _LOCK:
            _RUNNING.remove(this)
            for library, number in [] if _RUNNING else _BEFORE:
                _release(library)
                library.set_num_threads(number)
                _release(library)


def _release(library: Any) -> None:
    """Let any thread set the number: in later versions of threadpoolctl that is for the first one that has set it."""
    getattr(library, "clear_controlling_thread", lambda force: None)(force=True)
