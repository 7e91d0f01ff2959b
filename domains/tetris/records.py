"""Recorded games of Tetris: a table with one row per move, read as decisions.

- ``game``: number or name of the game; rows of a game are in the order of play.
- ``board``: the board before the placement, rows from the top joined by ``/``; ``#`` is an occupied cell, ``.`` a free
  one.
- ``piece``: a letter of `PIECES`.
- ``action``: ``rotation,column``, quarter turns counter-clockwise (0 to 3) and the leftmost column of the turned piece,
  from 0. In a CSV file it is quoted, or has a blank in place of the comma. It is empty where time ran out: the piece
  then fell straight, without a decision; or the piece came to rest where no straight fall ends.
- ``drop``: placement of a piece without an action, in the same format, if known; the column is optional.

Two moves on a small board, the second without a decision::

    game,board,piece,action,drop
    0,....../....../....../......,T,"2,0",
    0,....../....../.#..../###...,I,,"0,2"

Singh, Chopin and Whiteley, "Bayesian learning of noisy Markov decision processes", section 5.2 (the third experiment).
"""

from __future__ import annotations

import csv
import functools
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from ethogram.domains.tetris.game import FEATURES, Play, outcomes
from ethogram.domains.tetris.pieces import PIECES, placements
from ethogram.models.arguments import require_one_of
from ethogram.models.choices.decisions import Decisions
from ethogram.models.data.columns import Columns, number_groups
from ethogram.models.data.trajectories import Metadata
from ethogram.models.whole_files import refuse_place, replacing

__all__ = [
    "COLUMNS", "Games", "board_text", "load_games", "placement_text", "read_table", "write_games", "write_table",
]  # fmt: skip

COLUMNS = ("game", "board", "piece", "action", "drop")
"""Columns of the table, in the order of writing; the last is optional."""
PLACEMENT = re.compile(r"([0-9]{1,4})\s*[,\s]\s*([0-9]{1,4})")
LETTERS = tuple(PIECES)
ROWS_AT_ONCE = 128


class Games(NamedTuple):
    """Recorded games as decisions, and the rows that disagree with the rules.

    Attributes
    ----------
    play : rows with an action, in order; games are numbered from 0 in the order of their first rows.
    skipped : number of rows without an action.
    disagreeing : indices of rows whose board does not follow from the previous row of the game, or on which the game
        was already over. Where the previous placement is unknown, the board is compared with all places that the piece
        can rest in, those under an overhang (a tuck) too; the first row of a game is not compared.
    table : columns of text, of all rows, for :func:`write_games`.
    """

    play: Play
    skipped: int
    disagreeing: tuple[int, ...]
    table: dict[str, list[str]]


def load_games(table: Any, *, features: str = "basic", dedupe: bool = True) -> Games:
    """Decisions from recorded games; each board is checked against the previous one by the rules.

    Parameters
    ----------
    table : pandas or polars DataFrame, a mapping from names to columns, or the path of a CSV file.
    features : ``"basic"`` or ``"bertsekas"``.
    dedupe : as in `tetris.placements`; an action is mapped to the first rotation of equal shape.

    Examples
    --------
    >>> boards = ["....../....../....../......", "....../....../.#..../###..."]
    >>> games = load_games({"game": [0, 0], "board": boards, "piece": ["T", "I"], "action": ["2,0", None]})
    >>> games.play.decisions.num_decisions, games.skipped, games.disagreeing
    (1, 1, ())
    """
    require_one_of("features", features, FEATURES)
    if isinstance(table, str | os.PathLike):
        texts = read_table(table)
        try:
            return load_games(texts, features=features, dedupe=dedupe)
        except ValueError as wrong:
            raise ValueError(f"{os.fspath(table)}: {wrong}") from wrong
    columns = Columns(table)
    boards, pieces, decided, slots = _read_moves(columns, dedupe)
    if not decided.any():
        raise ValueError(f"action is empty in all {columns.num_rows} rows: pass at least one decision")
    game, _ = number_groups({"game": columns.complete("game")}, columns.num_rows)
    after = _next_rows(game)
    legal, values, same = _replay(boards, pieces, after, features, dedupe)
    agrees = np.where(slots >= 0, same[np.arange(len(slots)), slots], same.any(axis=1))
    for row in np.flatnonzero(~agrees & (slots < 0) & (after >= 0)):
        agrees[row] = _rests(boards[row], pieces[row], boards[after[row]])
    disagrees = np.any(boards[:, 0], axis=1)
    disagrees[after[after >= 0]] |= ~agrees[after >= 0]
    metadata = Metadata(name="Tetris", feature_names=FEATURES[features](boards.shape[2]))
    decisions = Decisions(values[decided], legal[decided], slots[decided], metadata=metadata)
    play = Play(boards[decided], pieces[decided], game[decided], decisions)
    texts = {name: _texts(columns, name) for name in COLUMNS if name in columns.names}
    return Games(play, int(np.sum(~decided)), tuple(np.flatnonzero(disagrees).tolist()), texts)


def read_table(path: str | os.PathLike[str]) -> dict[str, list[str]]:
    """Columns of a CSV file as text, after a check of its boards, pieces and placements; the table may be empty."""
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            lines = [line for line in csv.reader(file, strict=True) if line]
        if not lines:
            raise ValueError(f"it is empty: write a header with the columns {', '.join(COLUMNS)}")
        names, *rows = lines
        _check_names(names)
        for number, row in enumerate(rows):
            if len(row) != len(names):
                raise ValueError(
                    f'row {number} has {len(row)} cells, not {len(names)}: quote actions, as in "1,3"'
                )
        table = {name: [row[at] for row in rows] for at, name in enumerate(names)}
        if rows:
            _read_moves(Columns(table), True)
    except (csv.Error, UnicodeDecodeError) as cause:
        raise ValueError(f"{os.fspath(path)} is not a CSV file, or is truncated ({cause})") from cause
    except ValueError as wrong:
        raise ValueError(f"{os.fspath(path)}: {wrong}") from wrong
    return table


def write_games(path: str | os.PathLike[str], games: Any) -> None:
    """Write games to a CSV file that `load_games` reads; invalid games are refused.

    Parameters
    ----------
    games : a result of `load_games`, with its rows without an action; or a `Play`, such as that of
        `tetris.simulate`, where a choice of -1 becomes a row without an action; or a DataFrame, or a mapping from
        names to columns.
    """
    if isinstance(games, Play):
        write_table(path, _table_of_play(games))
        return
    table = games.table if isinstance(games, Games) else games
    if not isinstance(table, Mapping) and not hasattr(table, "columns"):
        raise TypeError(
            f"games is {type(games).__name__}: pass Games, a Play, a DataFrame or a mapping of columns"
        )
    columns = Columns(table)
    _check_names(columns.names)
    _read_moves(columns, True)
    write_table(path, {name: _texts(columns, name) for name in columns.names})


def write_table(path: str | os.PathLike[str], table: Mapping[str, list[str]]) -> None:
    """Write columns of text to a CSV file, whole or not at all: where that fails, an existing file is unchanged."""
    refuse_place(path)
    with replacing(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(table)
        writer.writerows(zip(*table.values(), strict=True))


def board_text(board: Any) -> str:
    """A board (row, column) of booleans as text, such as ``"..../..../..../##.#"``."""
    return "/".join("".join(".#"[bool(cell)] for cell in row) for row in np.asarray(board))


def placement_text(placement: Iterable[Any]) -> str:
    """A rotation and a column as text, such as ``"1,3"``."""
    return ",".join(str(int(number)) for number in placement)


def _check_names(names: list[str]) -> None:
    other = next((mark for mark in ";\t|" if len(names) == 1 and mark in names[0]), None)
    if other is not None:
        raise ValueError(f"its header is {names[0][:60]!r}: separate cells by commas, not by {other!r}")
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise ValueError(f"column names must be unique; {twice[0]!r} appears twice")
    absent = [name for name in COLUMNS[:4] if name not in names]
    if absent:
        raise ValueError(f"no column {absent[0]!r}: its columns are {names}")


def _table_of_play(play: Play) -> dict[str, list[str]]:
    cols, width = play.boards.shape[2], play.decisions.legal.shape[1]
    settings = (placements(cols, dedupe) for dedupe in (True, False))
    table = next((each for each in settings if each.exists.shape[1] == width), None)
    if table is None:
        raise ValueError(
            f"games have {width} options per decision, not those of any piece on {cols} columns: pass play of this game"
        )
    moves = list(zip(play.pieces.tolist(), np.asarray(play.decisions.choice).tolist(), strict=True))
    where = [(table.rotation[piece, slot], table.column[piece, slot]) for piece, slot in moves]
    return {
        "game": [str(game) for game in play.game],
        "board": [board_text(board) for board in play.boards],
        "piece": [LETTERS[piece] for piece, _ in moves],
        "action": [
            placement_text(at) if slot >= 0 else "" for at, (_, slot) in zip(where, moves, strict=True)
        ],
    }


def _next_rows(game: np.ndarray) -> np.ndarray:
    """The next row of the same game; -1 after its last."""
    order = np.argsort(game, kind="stable")
    goes_on = np.flatnonzero(game[order[1:]] == game[order[:-1]])
    after = np.full(len(game), -1)
    after[order[goes_on]] = order[goes_on + 1]
    return after


def _texts(columns: Columns, name: str) -> list[str]:
    """A column as text, empty where it is null."""
    values, null = columns[name]
    return np.where(null, "", np.char.strip(values.astype(str))).tolist()


class _Moves(NamedTuple):
    """A table as arrays."""

    boards: np.ndarray  # (row, row of the board, column) booleans
    pieces: np.ndarray  # (row,) numbers
    decided: np.ndarray  # (row,) whether there is an action
    slots: np.ndarray  # (row,) placement by the action, or else by the drop; -1 where unknown


def _read_moves(columns: Columns, dedupe: bool) -> _Moves:
    for name in COLUMNS[:3]:
        columns.complete(name)
    texts = {name: _texts(columns, name) for name in COLUMNS[:4]}
    texts["drop"] = _texts(columns, "drop") if "drop" in columns.names else [""] * columns.num_rows
    for name in [name for name in COLUMNS[3:] if name in columns.names]:
        values, null = columns[name]
        if values.dtype.kind != "U" and not null.all():
            raise TypeError(f"column {name!r} has dtype {values.dtype}: pass text, 'rotation,column'")
    boards, pieces, slots = [], [], []
    for row, (_, board, piece, action, drop) in enumerate(zip(*texts.values(), strict=True)):
        for name in COLUMNS[:3]:
            if not texts[name][row]:
                raise ValueError(f"row {row}: {name} is empty: fill in the {name} of every row")
        boards.append(_read_board(board, row))
        if boards[-1].shape != boards[0].shape:
            raise ValueError(
                f"row {row}: board has {boards[-1].shape[0]} rows and {boards[-1].shape[1]} columns, that of row 0 "
                f"{boards[0].shape[0]} and {boards[0].shape[1]}: boards of one table must have one size"
            )
        if piece not in LETTERS:
            raise ValueError(f"row {row}: piece is {piece[:20]!r}, not one of {', '.join(LETTERS)}")
        pieces.append(LETTERS.index(piece))
        name = f"row {row}: {'action' if action else 'drop'}"
        slots.append(_read_slot(boards[-1], pieces[-1], action or drop, name, dedupe))
    decided = np.array([bool(action) for action in texts["action"]])
    return _Moves(np.stack(boards), np.array(pieces, np.int32), decided, np.array(slots))


def _read_board(text: str, row: int) -> np.ndarray:
    lines = text.split("/")
    if len({*map(len, lines)}) != 1 or not {*text} <= {*".#/"} or min(len(lines), len(lines[0])) < 4:
        raise ValueError(
            f"row {row}: board is {text[:60]!r}: write rows of '.' and '#' of equal length, from the top, joined by "
            "'/', at least 4 by 4"
        )
    return np.array([[cell == "#" for cell in line] for line in lines])


def _read_slot(board: np.ndarray, piece: int, text: str, name: str, dedupe: bool) -> int:
    """Slot of a placement as text; -1 where it is empty."""
    if not text:
        return -1
    match = PLACEMENT.fullmatch(text)
    if match is None:
        raise ValueError(f"{name} is {text[:20]!r}, not 'rotation,column' as in '1,3'")
    rotation, column = int(match[1]), int(match[2])
    place = f"{name} '{rotation},{column}' of piece {LETTERS[piece]}"
    slot = _slots(board.shape[1], dedupe).get((piece, rotation, column))
    if slot is None:
        raise ValueError(
            f"{place} is not on the board: rotations are 0 to 3, and pieces lie within {board.shape[1]} columns"
        )
    if board[tuple(placements(board.shape[1], dedupe).cells[piece, slot].T)].any():
        raise ValueError(f"{place} is not legal: its cells at the top edge are occupied")
    return slot


@functools.lru_cache(maxsize=16)
def _slots(cols: int, dedupe: bool) -> dict[tuple[int, int, int], int]:
    """Slot by piece, rotation and column, where there is one."""
    literal, table = placements(cols, False), placements(cols, dedupe)
    found = {}
    for piece, slot in np.argwhere(literal.exists).tolist():
        same = (table.cells[piece] == literal.cells[piece, slot]).all(axis=(1, 2)) & table.exists[piece]
        at = piece, int(literal.rotation[piece, slot]), int(literal.column[piece, slot])
        found[at] = int(same.argmax()) if dedupe else slot
    return found


def _replay(
    boards: np.ndarray, pieces: np.ndarray, after: np.ndarray, features: str, dedupe: bool
) -> list[np.ndarray]:
    """Legal placements, their features, and whether they lead to the board of the next row; (row, slot, ...)."""
    parts = []
    for first in range(0, len(after), ROWS_AT_ONCE):
        # The last part repeats the last row: all parts have one shape, and compile once.
        at = np.minimum(np.arange(first, first + ROWS_AT_ONCE), len(after) - 1)
        following = boards[after[at]]
        found = _compare(boards[at], pieces[at], following, features=features, dedupe=dedupe)
        parts.append([np.asarray(each)[: len(after) - first] for each in found])
    return [np.concatenate(each) for each in zip(*parts, strict=True)]


def _rests(board: np.ndarray, piece: int, following: np.ndarray) -> bool:
    """Whether the piece can rest somewhere on the board, at any height, with this board to follow."""
    table, rows = placements(board.shape[1]), len(board)
    below = np.concatenate([board, np.ones_like(board[:1])])  # the floor
    for cells in table.cells[piece][table.exists[piece]]:
        for drop in range(rows - cells[:, 0].max()):
            at, column = cells[:, 0] + drop, cells[:, 1]
            if board[at, column].any() or not below[at + 1, column].any():
                continue
            placed = board.copy()
            placed[at, column] = True
            kept = placed[~placed.all(axis=1)]
            if np.array_equal(np.pad(kept, ((rows - len(kept), 0), (0, 0))), following):
                return True
    return False


@functools.partial(jax.jit, static_argnames=("features", "dedupe"))
def _compare(
    boards: Array, pieces: Array, following: Array, *, features: str, dedupe: bool
) -> tuple[Bool[Array, "row slot"], Array, Bool[Array, "row slot"]]:
    found = jax.vmap(functools.partial(outcomes, features=features, dedupe=dedupe))(boards, pieces)
    same = jnp.all(found.boards == following[:, None], axis=(-2, -1))
    return found.legal, found.features, found.legal & same
