"""Shared parts of the tours: progress messages, atomic writes of figure and file, and the table."""

from __future__ import annotations

import io
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Guide", "TourReport", "format_table", "whole_file"]

WIDEST = 10_000
"""Characters of a line that no terminal folds."""


class TourReport(NamedTuple):
    """Result of one system's tour."""

    rows: Sequence[Mapping[str, Any]]  # of the table, one a fit: flat dicts with the columns in order
    notes: Sequence[str]  # lines below the table
    files: Sequence[Path]  # that were written


class Guide:
    """Settings of one system's tour, and the one way to announce steps and to write its files.

    Parameters
    ----------
    name : of the system; its files are ``NAME.png``, ``NAME.pdf`` and ``NAME.nc``.
    out : existing folder for them.
    say : takes a line of progress.
    full : whether the long form runs, not the one of a minute.
    seed : of every random draw.
    progress_bar : whether fits show theirs.
    dpi : dots per inch of ``NAME.png``, and of images in ``NAME.pdf``.
    """

    def __init__(
        self,
        name: str,
        out: Path,
        say: Callable[[str], None],
        *,
        full: bool = False,
        seed: int = 0,
        progress_bar: bool = False,
        dpi: int = 200,
    ) -> None:
        self.name, self.out, self.say = name, out, say
        self.full, self.seed, self.progress_bar, self.dpi = full, seed, progress_bar, dpi
        self.files: list[Path] = []

    def step(self, about: str, *, quick: int | float, full: int | float) -> Callable[[], str]:
        """A stopwatch that gives the seconds since this call, once the step is announced.

        Parameters
        ----------
        about : what the step does.
        quick, full : expected seconds in either form, on one core, if nothing is compiled yet.
        """
        self.say(f"{about} (about {full if self.full else quick:g} s)")
        start = time.perf_counter()
        return lambda: f"{time.perf_counter() - start:.1f}"

    @contextmanager
    def figure(self, width: int | float, height: int | float, title: str = "") -> Iterator[Figure]:
        """A figure to draw into, which is written at the end; sizes in inches."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(width, height), layout="constrained")
        if title:
            figure.suptitle(title, fontsize=15)
        yield figure
        for suffix in (".png", ".pdf"):
            self._write(suffix, lambda path: figure.savefig(path, dpi=self.dpi))

    def save(self, tree: Any) -> None:
        """Writes what `to_arviz` gives, for ``arviz.from_netcdf``."""
        self._write(".nc", lambda path: tree.to_netcdf(str(path), engine="h5netcdf"))

    def report(self, rows: Sequence[Mapping[str, Any]], notes: Sequence[str]) -> TourReport:
        """The report, with all files that were written."""
        return TourReport(rows, notes, self.files)

    def _write(self, suffix: str, write: Callable[[Path], Any]) -> None:
        path = self.out / f"{self.name}{suffix}"
        with whole_file(path) as draft:
            write(draft)
        self.files.append(path)
        self.say(f"wrote {path}")


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A temporary path to write to, which replaces `path` at the end; after an error `path` is as it was."""
    with tempfile.TemporaryDirectory(prefix=".tour-", dir=path.parent) as folder:
        draft = Path(folder) / path.name
        yield draft
        os.replace(draft, path)


def format_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as text under a header: words left-aligned, numbers right-aligned, a dash for a missing cell.

    In a terminal long cells are folded to its width.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    columns = list(dict.fromkeys(column for row in rows for column in row))
    letters = (sys.stdout.encoding or "").lower()
    table = Table(box=box.SIMPLE_HEAD if "utf" in letters else None, show_edge=False, pad_edge=False)
    cells = {column: [str(row.get(column, "-")) for row in rows] for column in columns}
    for column, lines in cells.items():
        table.add_column(Text(column), justify="right" if any(map(_is_number, lines)) else "left")
    for line in zip(*cells.values(), strict=True):
        table.add_row(*map(Text, line))
    page = io.StringIO()
    Console(file=page, width=None if sys.stdout.isatty() else WIDEST).print(table)
    return "\n".join(line.rstrip() for line in page.getvalue().rstrip().split("\n"))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
