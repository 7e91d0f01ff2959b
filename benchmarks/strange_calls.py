"""How a strange call of an entry point ends.

A call may succeed, or raise an error of the package's own that names an argument or a file. Anything else is a leak: an
exception from NumPy, JAX or Python that the package let through, a warning of theirs, more than two CPU seconds, or
more than a GiB.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import linecache
import re
import resource
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jaxtyping

__all__ = ["Call", "Outcome", "outcome"]

MOST_SECONDS, MOST_BYTES = 2.0, 2**30
"""CPU time and growth of the process that a call may take."""


class Call(NamedTuple):
    """A call of an entry point; its messages have an argument, or one of the `words`; anything where that is empty."""

    function: Callable[..., Any]
    values: tuple[Any, ...] = ()
    options: dict[str, Any] = {}
    words: tuple[str, ...] = ()


class Outcome(NamedTuple):
    """How a call ended: accepted, named or leak; of a leak the exception, its place in the package and its message."""

    kind: str
    error: str = ""
    place: str = ""
    message: str = ""


class TooSlow(BaseException):
    """A call took more than its time; nothing in the package catches it."""


def outcome(call: Call) -> Outcome:
    """How a call ends, within its time and memory; one that takes longer has three times as much, after it compiled."""
    found = _outcome(call, MOST_SECONDS)
    return _outcome(call, 3 * MOST_SECONDS) if found.error == "TooSlow" else found


def _outcome(call: Call, seconds: float) -> Outcome:
    try:
        with _limits(seconds), warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", UserWarning)
            before = _resident()
            call.function(*call.values, **call.options)
            grown = _resident() - before
    except jaxtyping.TypeCheckError:  # types of annotations, where tests check them
        return Outcome("named")
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return _of_error(call, error)
    return Outcome("leak", "memory", "", f"{grown} bytes") if grown > MOST_BYTES else Outcome("accepted")


def _of_error(call: Call, error: BaseException) -> Outcome:
    place, own, trace = "", False, error.__traceback__
    while trace is not None:
        own = False
        if trace.tb_frame.f_globals.get("__name__", "").startswith("ethogram."):
            path = trace.tb_frame.f_code.co_filename
            own = linecache.getline(path, trace.tb_lineno).strip().startswith("raise")
            place = f"{Path(path).name}:{trace.tb_lineno}"
        trace = trace.tb_next
    message = str(error)
    if isinstance(error, OSError) and error.filename is not None:
        return Outcome("named")
    words = [name.lstrip("*") for name in inspect.signature(call.function).parameters] + list(call.words)
    named = not call.words or any(re.search(rf"(?<!\w){re.escape(word)}(?!\w)", message) for word in words)
    own = own or " distribution got invalid " in message  # numpyro's own words for a parameter
    if own and named and isinstance(error, ValueError | TypeError | OSError | ImportError):
        return Outcome("named")
    return Outcome("leak", type(error).__name__, place, message[:160])


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@contextlib.contextmanager
def _limits(seconds: float) -> Iterator[None]:
    """An alarm after the CPU time that a call may take, and no more memory than twice what it may."""

    def stop(*_: object) -> None:
        raise TooSlow("it has not ended")

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    bound, hard = resource.getrlimit(resource.RLIMIT_AS)
    handlers = [(each, signal.signal(each, stop)) for each in (signal.SIGPROF, signal.SIGALRM)]
    resource.setrlimit(resource.RLIMIT_AS, (size + 2 * MOST_BYTES, hard))
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, 10 * seconds)  # of what only waits, on a machine that may be busy
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        resource.setrlimit(resource.RLIMIT_AS, (bound, hard))
        for each, handler in handlers:
            signal.signal(each, handler)
