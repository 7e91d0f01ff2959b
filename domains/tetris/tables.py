"""Tables of Tetris moves as arrays, and the checks of their rows.

The columns are those of `ethogram.domains.tetris.records`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from ethogram.domains.tetris.pieces import PIECES, placements
from ethogram.models.data.columns import Columns

__all__ = ["COLUMNS", "Rows", "column_text", "find_slots", "placement_text", "read_rows"]

COLUMNS = ("game", "board", "piece", "action", "drop")
"""Columns of the table, in the order of writing; the last is optional."""

PLACEMENT = re.compile(r"([0-9]{1,4})\s*[,\s]\s*([0-9]{1,4})")


class Rows(NamedTuple):
    """The table as arrays.

    Attributes
    ----------
    boards : (row, row of the board, column) booleans.
    pieces : (row,) numbers.
    decided : (row,) whether there is an action.
    placement : (row, 2) rotation and column of the action where `decided`, else of the drop, or (-1, -1).
    """

    boards: np.ndarray
    pieces: np.ndarray
    decided: np.ndarray
    placement: np.ndarray


def placement_text(placement: Iterable[Any]) -> str:
    """A rotation and a column as text, such as ``"1,3"``."""
    return ",".join(str(int(number)) for number in placement)


def column_text(columns: Columns, name: str) -> np.ndarray:
    """A column as text, empty where it is null."""
    values, null = columns[name]
    return np.where(null, "", np.char.strip(values.astype(str)))


def read_rows(columns: Columns) -> Rows:
    """A table as arrays."""
    for name in COLUMNS[:3]:
        columns.complete(name)
        nothing = column_text(columns, name) == ""
        if nothing.any():
            raise ValueError(f"row {int(nothing.argmax())}: {name} is empty: fill in the {name} of every row")
    boards = np.stack(list(_boards(column_text(columns, "board"))))
    letters = list(PIECES)
    pieces = np.zeros(columns.num_rows, np.int32)
    for row, letter in enumerate(column_text(columns, "piece").tolist()):
        if letter not in letters:
            raise ValueError(f"row {row}: piece is {letter[:20]!r}, not one of {', '.join(letters)}")
        pieces[row] = letters.index(letter)
    placement = _read_placements(columns, "action")
    decided = placement[:, 0] >= 0
    if "drop" in columns.names:
        placement = np.where(decided[:, None], placement, _read_placements(columns, "drop"))
    return Rows(boards, pieces, decided, placement)


def find_slots(rows: Rows, dedupe: bool) -> np.ndarray:
    """Slot (row,) of each placement, by action or drop; -1 where unknown."""
    cols = rows.boards.shape[2]
    slots, table = _slots(cols, dedupe), placements(cols, dedupe)
    found = np.full(len(rows.placement), -1)
    for row, (rotation, column) in enumerate(rows.placement.tolist()):
        if rotation >= 0:
            inside = rotation < slots.shape[1] and column < slots.shape[2]
            found[row] = slots[rows.pieces[row], rotation, column] if inside else -1
            if found[row] < 0:
                raise ValueError(
                    f"row {row}: {_name(rows, row)} is not on the board: rotations are 0 to 3, and pieces lie "
                    f"within {cols} columns"
                )
    known = np.flatnonzero(found >= 0)
    cells = table.cells[rows.pieces[known], found[known]]
    taken = rows.boards[known[:, None], cells[..., 0], cells[..., 1]].any(axis=1)
    if taken.any():
        row = int(known[taken.argmax()])
        raise ValueError(
            f"row {row}: {_name(rows, row)} is not legal: its cells at the top edge are occupied"
        )
    return found


def _boards(texts: np.ndarray) -> Iterator[np.ndarray]:
    size: tuple[int, int] | None = None
    for row, text in enumerate(texts.tolist()):
        lines = text.split("/")
        found = (len(lines), len(lines[0]))
        if {*map(len, lines)} != {found[1]} or not {*text} <= {*".#/"} or min(found) < 4:
            raise ValueError(
                f"row {row}: board is {text[:60]!r}: write rows of '.' and '#' of equal length, from the top, joined "
                "by '/', at least 4 by 4"
            )
        size = size or found
        if found != size:
            raise ValueError(
                f"row {row}: board has {found[0]} rows and {found[1]} columns, that of row 0 {size[0]} and {size[1]}: "
                "boards of one table must have one size"
            )
        yield np.array([[cell == "#" for cell in line] for line in lines])


def _read_placements(columns: Columns, name: str) -> np.ndarray:
    """Rotation and column (row, 2), -1 where there is none."""
    values, null = columns[name]
    if values.dtype.kind != "U" and not null.all():
        raise TypeError(f"column {name!r} has dtype {values.dtype}: pass text, 'rotation,column'")
    found = np.full((len(values), 2), -1)
    for row, text in enumerate(column_text(columns, name).tolist()):
        match = PLACEMENT.fullmatch(text)
        if match is not None:
            found[row] = int(match[1]), int(match[2])
        elif text:
            raise ValueError(f"row {row}: {name} is {text[:20]!r}, not 'rotation,column' as in '1,3'")
    return found


@functools.lru_cache(maxsize=16)
def _slots(cols: int, dedupe: bool) -> np.ndarray:
    """Slot of each (piece, rotation, column); -1 outside the board."""
    literal, table = placements(cols, False), placements(cols, dedupe)
    found = np.full((len(PIECES), 4, cols), -1)
    for piece, slot in np.argwhere(literal.exists):
        rotation, column = literal.rotation[piece, slot], literal.column[piece, slot]
        same = (table.cells[piece] == literal.cells[piece, slot]).all(axis=(1, 2)) & table.exists[piece]
        found[piece, rotation, column] = same.argmax() if dedupe else slot
    return found


def _name(rows: Rows, row: int) -> str:
    what, letter = "action" if rows.decided[row] else "drop", list(PIECES)[rows.pieces[row]]
    return f"{what} {placement_text(rows.placement[row])!r} of piece {letter}"
