"""The systems of a tour in a terminal while they run: a bar each, with what it does at the moment."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

__all__ = ["Board", "live_board"]


class Board:
    """Where lines of progress go; without a terminal, they are printed and nothing else.

    Parameters
    ----------
    bars : rich's progress bars, by which lines are printed above them; None where there is no terminal.
    tasks : numbers of the bars by system.
    """

    def __init__(self, bars: Any = None, tasks: Mapping[str, Any] | None = None) -> None:
        self._bars, self._tasks = bars, tasks or {}

    def write(self, line: str) -> None:
        """Print a line."""
        if self._bars is None:
            print(line, flush=True)
        else:
            self._bars.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def update(self, name: str, line: str) -> None:
        """Show what a system does."""
        if name in self._tasks:
            self._bars.start_task(self._tasks[name])
            self._bars.update(self._tasks[name], doing=line.partition(" (")[0])

    def done(self, name: str) -> None:
        """Show that a system is done."""
        if name in self._tasks:
            self._bars.stop_task(self._tasks[name])
            self._bars.update(self._tasks[name], doing="done", total=1, completed=1)


@contextmanager
def live_board(systems: Mapping[str, int | float], live: bool) -> Iterator[Board]:
    """A board of systems, with their expected seconds; bars are drawn where `live`, and output is a terminal."""
    if not (live and sys.stdout.isatty()):
        yield Board()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(20),
        TimeElapsedColumn(),
        TextColumn("of about {task.fields[expected]:.0f} s"),
        TextColumn("{task.fields[doing]}", markup=False),
    )
    with Progress(*columns, console=Console(file=sys.stdout)) as bars:
        add = partial(bars.add_task, start=False, total=None, doing="waiting")
        yield Board(bars, {name: add(name, expected=seconds) for name, seconds in systems.items()})
