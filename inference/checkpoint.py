"""The file of a long run: held by one process, written between blocks and at signals, read where the run goes on."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from ethogram.inference import storage
from ethogram.models.arguments import warn_user
from ethogram.models.whole_files import previous_of, refuse_place

try:
    import fcntl
except ImportError:  # Windows, where nothing is locked
    fcntl = None  # type: ignore[assignment]

__all__ = ["CURE", "Checkpoint", "check_path", "locked", "one_of_several", "refuse_longer"]

State = TypeVar("State")

CURE = "remove it, or choose another file"

SECONDS = 60.0
"""Seconds after which a state is written whatever its steps, and until a write that failed is tried again."""

SHARE = 20.0
"""A write waits for so many times the seconds of the one before: all together take a twentieth of the run at most."""


class Checkpoint:
    """The file of a run, from which the same call goes on; a context manager, and one that does nothing without a path.

    Within its block the file is locked, and SIGINT and SIGTERM wait for the end of a block of the run: the state is
    written, one line says so, and the handler from before is called. A second SIGINT does not wait, but nothing
    interrupts a write. At the end, also by an error, the latest state is written. Where it cannot be, a warning says
    so, and the run goes on and tries again. The file before the newest is kept, and read where that is damaged.

    Parameters
    ----------
    path : of the file.
    name : of the argument, in messages.
    write : writes a state, in place of :func:`storage.write` with the signature.

    Raises
    ------
    ValueError, TypeError : no file can be written there.
    BlockingIOError : another process has it; raised when the block begins.
    """

    def __init__(
        self,
        path: str | os.PathLike | None,
        name: str = "checkpoint",
        write: Callable[[Any], None] | None = None,
    ):
        if path is not None:
            check_path(path, name)
        self.path, self._name, self._write = path, name, write
        self._signature, self._keep = "", True
        self._state, self._done, self._unsaved, self._due = None, 0, False, False
        self._last, self._next = time.monotonic(), 0.0  # when it was written, and may be again
        self._asked, self._writing = 0, False  # the signal that came
        self._before: dict[int, Any] = {}  # handlers
        self._held = contextlib.ExitStack()

    def __enter__(self) -> Checkpoint:
        if self.path is not None:
            self._held.enter_context(locked(self.path))
            in_main_thread = threading.current_thread() is threading.main_thread()
            for number in (signal.SIGINT, signal.SIGTERM) if in_main_thread else ():
                if (handler := signal.getsignal(number)) not in (signal.SIG_IGN, None):
                    self._before[number] = handler
                    self._held.callback(signal.signal, number, handler)
                    signal.signal(number, self._note)
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        if self.path is None:
            return
        self._writing = True
        with self._held:
            self.write(say=kind is KeyboardInterrupt)
        if self._asked and kind is not KeyboardInterrupt:
            signal.raise_signal(self._asked)

    def resumed(
        self,
        signature: Callable[[], str],
        kind: type[State],
        check: Callable[[str, State], None],
        first: Callable[[], State],
    ) -> State:
        """State of the file, or the first one where there is no file.

        Parameters
        ----------
        signature : `storage.fingerprint` of model, data, key and settings.
        kind : class of the state, one of `saved_classes`.
        check : of path and state, raises ValueError where the state does not fit.
        first : the first state.
        """
        if self.path is None:
            return first()
        self._signature, shown = signature(), os.fspath(self.path)
        if not os.path.exists(self.path):
            return first()
        try:
            content = storage.read(shown)
        except (OSError, ValueError) as error:
            try:
                content = storage.read(previous_of(shown))
            except (OSError, ValueError):
                raise ValueError(
                    f"{error}; it is damaged, or of another version of ethogram: {CURE}"
                ) from error
            warn_user(
                f"{error}; it is damaged, and the run goes on from the file before it, {previous_of(shown)}"
            )
            self._keep = False  # the damaged one does not take its place
        if not isinstance(content, dict) or not isinstance(content.get("state"), kind):
            raise ValueError(f"{shown} is not a checkpoint of this kind of fit: choose another file")
        if content.get("signature") != self._signature:
            raise ValueError(f"{shown} is a checkpoint of another model, data, key or settings: {CURE}")
        check(shown, content["state"])
        return content["state"]

    def save(self, state: Any, done: int, due: bool = True) -> None:
        """Write the state after `done` steps where it is due or a minute has passed, or a signal came."""
        if self.path is None:
            return
        self._state, self._done, self._unsaved, self._due = state, done, True, self._due or due
        now = time.monotonic()
        if self._asked:
            self.write(say=True)
            self._hand_on()
        elif now >= self._next and (self._due or now >= self._last + SECONDS):
            self.write()

    def write(self, say: bool = False) -> None:
        """Write the latest state, and say so; a warning where that fails."""
        if self.path is None or not self._unsaved:
            return
        begin, before, self._writing = time.monotonic(), self._writing, True
        try:
            if self._write is not None:
                self._write(self._state)
            else:
                content = {"signature": self._signature, "state": self._state}
                storage.write(self.path, content, keep=self._keep)
                self._keep = True
        except (OSError, MemoryError) as error:
            self._next = time.monotonic() + SECONDS
            runs = "fit goes" if self._name == "checkpoint" else "episodes go"
            place = f"{os.fspath(self.path)}: {error}; it is tried again later"
            warn_user(f"the {self._name} was not written, and the {runs} on: {place}")
            return
        finally:
            self._writing = before
        self._unsaved, self._due, self._last = False, False, time.monotonic()
        self._next = self._last + SHARE * (self._last - begin)
        if say:
            from tqdm.auto import tqdm

            tqdm.write(f"{self.path}: saved at step {self._done}; the same call goes on", file=sys.stderr)

    def _note(self, number: int, frame: Any) -> None:
        """Handler of signals; a second SIGINT is for a block that takes too long, a second SIGTERM is common."""
        again = self._asked == number == signal.SIGINT and not self._writing
        self._asked = number
        if again:
            self._hand_on()

    def _hand_on(self) -> None:
        """Call the handler from before, or end as without one; where it returns the run goes on."""
        number, self._asked = self._asked, 0
        if callable(self._before[number]):
            self._before[number](number, None)
        else:
            self._held.close()
            signal.raise_signal(number)


@contextlib.contextmanager
def locked(path: str | os.PathLike) -> Iterator[None]:
    """Block in which no other process runs on a path.

    A file ``.lock`` beside it names the process. The lock is one of the system, and ends with the process, however it
    ends. File systems without locks, and Windows, have none.

    Raises
    ------
    BlockingIOError : another process has it; names the process, its host and since when.
    """
    lock = f"{os.path.realpath(path)}.lock"
    while True:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            if fcntl is not None:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(descriptor), os.stat(lock)):
                break
        except FileNotFoundError:  # its process ended, and removed it
            pass
        except (BlockingIOError, PermissionError):
            holder = os.read(descriptor, 1000).decode(errors="replace") or "another process"
            os.close(descriptor)
            raise BlockingIOError(
                f"{os.fspath(path)} is in use by {holder}: wait until that ends, or end it, or give another path"
            ) from None
        except OSError:
            break
        os.close(descriptor)
    try:
        with contextlib.suppress(OSError):  # a full disk
            os.ftruncate(descriptor, 0)
            holder = (
                f"process {os.getpid()} on {socket.gethostname()} since {time.strftime('%Y-%m-%d %H:%M:%S')}"
            )
            os.write(descriptor, holder.encode())
        yield
    finally:
        with contextlib.suppress(OSError):
            os.unlink(lock)
        os.close(descriptor)


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


def one_of_several(options: Mapping[str, Any], name: object) -> dict[str, Any]:
    """Options of one of several fits, whose checkpoint has its name behind that of the call."""
    path = options.get("checkpoint")
    return dict(options) if path is None else {**options, "checkpoint": f"{os.fspath(path)}.{name}"}


def refuse_longer(done: int, num_steps: int) -> None:
    """Raise ValueError where a checkpoint has more steps than are asked for: it does not have the result of fewer."""
    if done > num_steps:
        raise ValueError(
            f"the checkpoint is of {done} steps, more than num_steps={num_steps}: pass num_steps={done} or more for "
            "its result, or choose another file"
        )
