"""What commands and benchmarks print: a table of rows; and the cores that they may use."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["available_cores", "format_table"]

WIDEST = 10_000
"""Characters of a line that no terminal folds."""


def available_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def format_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as text under a header: words left-aligned, numbers right-aligned, a dash for a missing cell.

    Columns come in the order of their first appearance. Floats have four digits, and booleans are "yes" and "NO". In a
    terminal long cells are folded to its width.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    columns = list(dict.fromkeys(column for row in rows for column in row))
    if not columns:
        return "no rows"
    out = sys.stdout  # None where it is closed
    letters = (getattr(out, "encoding", None) or "").lower()
    table = Table(box=box.SIMPLE_HEAD if "utf" in letters else None, show_edge=False, pad_edge=False)
    cells = {column: [_cell(row.get(column)) for row in rows] for column in columns}
    for column, lines in cells.items():
        table.add_column(Text(column), justify="right" if any(map(_is_number, lines)) else "left")
    for line in zip(*cells.values(), strict=True):
        table.add_row(*map(Text, line))
    page = io.StringIO()
    Console(file=page, width=None if out is not None and out.isatty() else WIDEST).print(table)
    return "\n".join(line.rstrip() for line in page.getvalue().rstrip().split("\n"))


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "NO"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
