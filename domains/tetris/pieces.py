"""The seven pieces of Tetris and their placements on a board of a given width."""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from ethogram.models.arguments import require_integer

__all__ = ["PIECES", "Placements", "placements"]

PIECES = {
    "I": ("1111",), "O": ("11", "11"), "T": ("111", "010"), "S": ("011", "110"), "Z": ("110", "011"),
    "J": ("100", "111"), "L": ("001", "111"),
}  # fmt: skip
"""Rows of each piece from the top; the next piece is uniform."""


class Placements(NamedTuple):
    """Placements of each piece, one slot per rotation and column, padded to the longest list.

    Attributes
    ----------
    rotation, column : (piece, slot) quarter turns counter-clockwise, and the leftmost column.
    exists : (piece, slot) booleans.
    cells : (piece, slot, 4, 2) rows and columns of the piece's cells at the top edge.
    """

    rotation: Int[np.ndarray, "piece slot"]
    column: Int[np.ndarray, "piece slot"]
    exists: Bool[np.ndarray, "piece slot"]
    cells: Int[np.ndarray, "piece slot 4 2"]


@functools.lru_cache(maxsize=16)
def placements(cols: int = 10, dedupe: bool = True) -> Placements:
    """All placements of all pieces on boards with `cols` columns.

    Parameters
    ----------
    cols : number of columns, at least 4.
    dedupe : whether rotations of equal shape are one option; False lists all four rotations of every piece.

    Examples
    --------
    >>> dict(zip(PIECES, placements().exists.sum(1).tolist()))
    {'I': 17, 'O': 9, 'T': 34, 'S': 17, 'Z': 17, 'J': 34, 'L': 34}
    """
    require_integer("cols", cols, 4)
    lists: list[list[tuple[int, int, np.ndarray]]] = []
    for rows in PIECES.values():
        shape = np.array([[int(cell) for cell in row] for row in rows])
        seen: list[np.ndarray] = []
        slots: list[tuple[int, int, np.ndarray]] = []
        for turns in range(4):
            turned = np.rot90(shape, turns)
            if not dedupe or not any(np.array_equal(turned, other) for other in seen):
                cells = np.argwhere(turned)
                slots += [
                    (turns, left, cells + np.array([0, left])) for left in range(cols - turned.shape[1] + 1)
                ]
            seen.append(turned)
        lists.append(slots)
    size = (len(lists), max(map(len, lists)))
    found = Placements(
        np.zeros(size, np.int32),
        np.zeros(size, np.int32),
        np.zeros(size, bool),
        np.zeros((*size, 4, 2), np.int32),
    )
    for piece, slots in enumerate(lists):
        for slot, placement in enumerate(slots):
            found.rotation[piece, slot], found.column[piece, slot], found.cells[piece, slot] = placement
            found.exists[piece, slot] = True
    return found
