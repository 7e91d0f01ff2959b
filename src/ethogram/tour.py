"""The tour: every system that is built, fitted on its embedded data, with one table of what was learned.

A system is one line in `SYSTEMS`: a function that takes a `TourSettings` and returns a `TourReport`.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

__all__ = [
    "SYSTEMS",
    "TourReport",
    "TourSettings",
    "format_table",
    "take_tour",
    "unknown_systems",
    "whole_file",
]

SYSTEMS = {
    "role-hmm": "ethogram.tour_roles:tour",
    "agent-markov": "ethogram.tour_agents:tour",
    "noisy-mdp": "ethogram.tour_choices:tour",
    "gp-irl": "ethogram.tour_rewards:tour",
    "marginal-map": "ethogram.tour_mmap:tour",
}
"""Name of each system, and where its tour is; imported when it is taken."""


class TourSettings(NamedTuple):
    """What a system's tour is asked for.

    Attributes
    ----------
    out : folder for the figure and the ``.nc`` file; it exists.
    quick : whether the small form is wanted.
    seed : of every random draw.
    progress_bar : whether fits show theirs.
    say : prints a line at once.
    """

    out: Path
    quick: bool
    seed: int
    progress_bar: bool
    say: Callable[[str], None]


class TourReport(NamedTuple):
    """What a system's tour gives back.

    Attributes
    ----------
    rows : of the table, one a fit: flat dicts with the columns in order; the first says what was learned.
    notes : lines below the table.
    files : that were written.
    """

    rows: Sequence[Mapping[str, Any]]
    notes: Sequence[str]
    files: Sequence[Path]


def unknown_systems(names: Iterable[str]) -> list[str]:
    """Those of the names that no system has."""
    return [name for name in names if name not in SYSTEMS]


def take_tour(
    systems: Sequence[str] = (),
    out: str | os.PathLike[str] = "tour",
    *,
    quick: bool = False,
    seed: int = 0,
    say: Callable[[str], None] | None = None,
) -> dict[str, TourReport]:
    """The report of every system, after printing them as one table a system.

    Parameters
    ----------
    systems : names from `SYSTEMS`; all of them where none is given.
    out : folder for a figure and a ``.nc`` file a system; made if it is not there.
    quick : fits of fewer restarts and sweeps.
    seed : of every random draw; two seeds give two answers.
    say : prints a line; standard output, flushed, by default.

    Raises
    ------
    ValueError
        If a system is not known.
    OSError
        If `out` cannot be made or written to.
    """
    wrong = unknown_systems(systems)
    if wrong:
        raise ValueError(f"systems has {wrong[0]!r}: choose from {', '.join(SYSTEMS)}")
    speak = _say if say is None else say
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    settings = TourSettings(folder, quick, seed, sys.stderr.isatty(), speak)
    start = time.perf_counter()
    reports = {}
    for name in dict.fromkeys(systems or SYSTEMS):
        module, function = SYSTEMS[name].split(":")
        reports[name] = getattr(import_module(module), function)(settings)
    for name, report in reports.items():
        speak(f"\n{name}\n{format_table(report.rows)}")
        for note in report.notes:
            speak(note)
        for path in report.files:
            speak(f"wrote {path}")
    speak(f"{time.perf_counter() - start:.1f} s in all, compilation included")
    return reports


def format_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as text under a header line: words to the left, numbers to the right, a dash where there is none."""
    columns = list(dict.fromkeys(column for row in rows for column in row))
    cells = [[str(row.get(column, "-")) for column in columns] for row in rows]
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    words = [not any(_is_number(line[i]) for line in cells) for i in range(len(columns))]

    def join(line: Sequence[str]) -> str:
        parts = [
            text.ljust(width) if left else text.rjust(width)
            for text, width, left in zip(line, widths, words, strict=True)
        ]
        return "  ".join(parts).rstrip()

    return "\n".join([join(columns), "  ".join("-" * width for width in widths), *map(join, cells)])


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A path to write to in place of `path`; what was written takes its name at the end, whole or not at all."""
    with tempfile.TemporaryDirectory(prefix=".tour-", dir=path.parent) as folder:
        draft = Path(folder) / path.name
        yield draft
        os.replace(draft, path)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _say(line: str) -> None:
    print(line, flush=True)
