"""Console of a player: a terminal that is read key by key, or lines of text.

Lines are used where the streams are not a terminal, or ``TERM`` is ``dumb``.
"""

from __future__ import annotations

import os
import re
import select
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["Keys", "Lines", "open_console"]

ARROWS = {"A": "w", "B": "s", "C": "d", "D": "a"}
ESCAPES = re.compile(r"\x1b[\[O][0-9;]*([A-Za-z~])")
LONGEST_WAIT = 0.25  # Seconds between updates of the clock that is shown.


class Lines:
    """A player who types lines; an empty one drops the piece."""

    def __init__(self, stdin: Any, stdout: Any) -> None:
        self.stdin, self.stdout = stdin, stdout

    def forget(self) -> None:
        """Keep lines that were typed ahead."""

    def show(self, frame: str) -> None:
        print(frame, file=self.stdout)

    def read(self, seconds: float) -> str:
        """Keys of the next line, whenever it comes; ``q`` after the last one."""
        print("> ", end="", file=self.stdout, flush=True)
        line = self.stdin.readline()
        return (line.strip().lower() or "s") if line else "q"


class Keys:
    """A player at a terminal in cbreak mode."""

    def __init__(self, stdin: Any, stdout: Any) -> None:
        self.number, self.stdout, self.shown = stdin.fileno(), stdout, ""

    def forget(self) -> None:
        """Discard keys that were pressed before the piece was shown."""
        import termios

        termios.tcflush(self.number, termios.TCIFLUSH)

    def show(self, frame: str) -> None:
        width = _room(self.stdout)[0]  # a wrapped line would scroll the first one away
        frame = "\n".join(line[:width] for line in frame.split("\n"))
        if frame != self.shown:
            start = "\x1b[H" if self.shown else "\x1b[2J\x1b[H"
            print(start + frame.replace("\n", "\x1b[K\n"), end="\x1b[K\x1b[J", file=self.stdout, flush=True)
            self.shown = frame

    def read(self, seconds: float) -> str:
        """Keys pressed within `seconds`, or a shorter wait; ``q`` where the terminal is gone."""
        if not select.select([self.number], [], [], max(min(seconds, LONGEST_WAIT), 0))[0]:
            return ""
        try:
            text = os.read(self.number, 64).decode(errors="ignore")
        except OSError:
            return "q"
        plain = ESCAPES.sub(lambda found: ARROWS.get(found[1], ""), text)
        return re.sub(r"[\r\n ]", "s", plain).lower() if text else "q"


def _room(stdout: Any) -> tuple[int | None, int | None]:
    """Columns and lines of a terminal; None where unknown."""
    try:
        width, height = os.get_terminal_size(stdout.fileno())
    except OSError:
        return None, None
    return width or None, height or None


def _refuse_size(stdout: Any, rows: int, cols: int) -> None:
    width, height = _room(stdout)
    lines, characters = rows + 2, 2 * cols + 1
    if (height is not None and height < lines) or (width is not None and width < characters):
        raise ValueError(
            f"a board of {rows} rows and {cols} columns needs {lines} lines of {characters} characters, and this "
            f"terminal has {height} of {width}: enlarge it, or choose other rows and cols"
        )


@contextmanager
def open_console(stdin: Any, stdout: Any, size: tuple[int, int]) -> Iterator[Lines | Keys]:
    """A console on the streams, for a board of this size (rows, columns); a terminal's settings are restored."""
    try:
        import termios
        import tty
    except ImportError:
        termios = None  # type: ignore[assignment]
    terminal = stdin.isatty() and stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    if termios is None or not terminal:
        yield Lines(stdin, stdout)
        return
    _refuse_size(stdout, *size)
    before = termios.tcgetattr(stdin.fileno())
    try:
        tty.setcbreak(stdin.fileno())
        yield Keys(stdin, stdout)
    finally:
        termios.tcsetattr(stdin.fileno(), termios.TCSADRAIN, before)
