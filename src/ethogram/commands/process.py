"""The process of a command: its exit codes, messages of one line, and Ctrl-C during imports."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import NoReturn

from ethogram.compilation_cache import use_compilation_cache

__all__ = [
    "BAD_INPUT",
    "IMPOSSIBLE",
    "INTERRUPTED",
    "NOTHING_FOUND",
    "OUTPUT_CLOSED",
    "importing",
    "prepare",
    "refuse",
]

OUTPUT_CLOSED, BAD_INPUT, IMPOSSIBLE, NOTHING_FOUND, INTERRUPTED = 1, 2, 3, 4, 130


def refuse(message: object, code: int = BAD_INPUT) -> int:
    """The exit code, after a message of one line on standard error."""
    print(f"ethogram: {' '.join(str(message).split())}", file=sys.stderr)
    return code


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """Block of a command's imports, after which the process is prepared.

    Ctrl-C ends the process at once: raised during imports, it may surface as another error, or as a crash.
    """

    def end(*_: object) -> NoReturn:
        os.write(2, b"ethogram: interrupted\n")
        os._exit(INTERRUPTED)

    in_main_thread = threading.current_thread() is threading.main_thread()
    replaced = in_main_thread and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if replaced:
        signal.signal(signal.SIGINT, end)
    try:
        yield
        prepare()
    finally:
        if replaced:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def prepare() -> None:
    """Use the compilation cache, and ignore ArviZ's announcement of its refactoring."""
    use_compilation_cache()
    warnings.filterwarnings("ignore", r"\s*ArviZ is undergoing", FutureWarning)
