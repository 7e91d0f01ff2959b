"""Records of games of Tetris that somebody played: a table with a row a move, read as decisions.

- ``game``: which game it is, a number or a name; rows of a game stand in the order in which they were played.
- ``board``: the board before the placement, rows from the top joined by ``/``; ``#`` is a cell that is taken, ``.`` one
  that is free.
- ``piece``: a letter of `PIECES`.
- ``action``: ``rotation,column``, quarter turns counter-clockwise (0 to 3) and the leftmost column that the piece then
  takes, counted from 0. In a CSV file it stands in quotes, or has a blank in place of the comma. It is empty where time
  ran out: such a piece fell straight from where it was, and nobody decided that it should.
- ``drop``: where a piece without an action fell, written in the same way, if that is known; the column may be absent.

Two moves on a small board, the second of which was not decided::

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
import secrets
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from ethogram.domains.tetris import FEATURES, PIECES, Play, outcomes, placements
from ethogram.models.decisions import Decisions
from ethogram.models.ragged.columns import Columns, number_groups
from ethogram.models.trajectories import Metadata

__all__ = ["COLUMNS", "Games", "board_text", "load_games", "placement_text", "read_table", "write_games"]

COLUMNS = ("game", "board", "piece", "action", "drop")
"""Columns of the table, in the order in which they are written; the last may be absent."""

PLACEMENT = re.compile(r"([0-9]{1,4})\s*[,\s]\s*([0-9]{1,4})")
ROWS_AT_ONCE = 128


class Games(NamedTuple):
    """Games as decisions, and where the record is not what the rules say.

    Attributes
    ----------
    play : rows with an action, in their order; games are numbered from 0 in the order of their first rows.
    skipped : how many rows had no action.
    disagreeing : numbers of rows, from 0, whose board is not what the row before in its game leads to, or on which
        the game was over already. Where the record does not say how the piece before fell, the board is compared with
        all that it could lead to; the first row of a game is not compared.
    table : columns of text, of all rows, for :func:`write_games`.
    """

    play: Play
    skipped: int
    disagreeing: tuple[int, ...]
    table: dict[str, list[str]]


class _Rows(NamedTuple):
    """The table as arrays: `placement` is a player's where `decided`, that of a fall elsewhere, or (-1, -1)."""

    boards: np.ndarray
    pieces: np.ndarray
    decided: np.ndarray
    placement: np.ndarray


def load_games(table: Any, *, features: str = "basic", dedupe: bool = True) -> Games:
    """Decisions of recorded games; each board is compared with what the rules make of the one before.

    Parameters
    ----------
    table : pandas or polars DataFrame, a mapping from names to columns, or the path of a CSV file.
    features : ``"basic"`` or ``"bertsekas"``.
    dedupe : as in `tetris.placements`; an action whose rotation equals an earlier one in shape is that one.

    Raises
    ------
    TypeError, ValueError
        If a column is absent or of the wrong kind, no row has an action, boards differ in size, or a board, piece or
        placement is not one, or not legal. The message names the row.
    FileNotFoundError
        If there is no such file.

    Examples
    --------
    >>> boards = ["....../....../....../......", "....../....../.#..../###..."]
    >>> games = load_games({"game": [0, 0], "board": boards, "piece": ["T", "I"], "action": ["2,0", None]})
    >>> games.play.decisions.num_decisions, games.skipped, games.disagreeing
    (1, 1, ())
    """
    if features not in FEATURES:
        raise ValueError(f"features must be one of {tuple(FEATURES)}, not {features!r}")
    if isinstance(table, str | os.PathLike):
        texts = read_table(table)
        try:
            return load_games(texts, features=features, dedupe=dedupe)
        except ValueError as wrong:
            raise ValueError(f"{os.fspath(table)}: {wrong}") from wrong
    columns = Columns(table)
    rows = _read_rows(columns)
    if not rows.decided.any():
        raise ValueError(f"none of {columns.num_rows} rows has an action: there is nothing to learn from")
    game, _ = number_groups({"game": columns.complete("game")}, columns.num_rows)
    slot, after = _find_slots(rows, dedupe), _next_rows(game)
    legal, values, same = _replay(rows, after, features, dedupe)
    known, every = slot >= 0, np.arange(len(slot))
    illegal = known & ~legal[every, slot]
    if illegal.any():
        row = int(illegal.argmax())
        raise ValueError(f"row {row}: {_name(rows, row)} is not legal: its cells at the top edge are taken")
    agrees = np.where(known, same[every, slot], same.any(axis=1))
    disagrees = np.any(rows.boards[:, 0], axis=1)
    disagrees[after[after >= 0]] |= ~agrees[after >= 0]
    decided = rows.decided
    metadata = Metadata(name="Tetris", feature_names=FEATURES[features](rows.boards.shape[2]))
    decisions = Decisions(values[decided], legal[decided], slot[decided], metadata=metadata)
    play = Play(rows.boards[decided], rows.pieces[decided], game[decided], decisions)
    texts = {name: _texts(columns, name).tolist() for name in COLUMNS if name in columns.names}
    return Games(play, int(np.sum(~decided)), tuple(np.flatnonzero(disagrees).tolist()), texts)


def read_table(path: str | os.PathLike[str]) -> dict[str, list[str]]:
    """Columns of a CSV file as text, once its boards, pieces and placements have been found in order.

    Columns may be empty.

    Raises
    ------
    ValueError
        As for :func:`load_games`, or if the file cannot be read as rows of one length.
    """
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            lines = [line for line in csv.reader(file, strict=True) if line]
        if not lines:
            raise ValueError(f"it is empty: a first line names the columns {', '.join(COLUMNS)}")
        names, *rows = lines
        for number, row in enumerate(rows):
            if len(row) != len(names):
                raise ValueError(
                    f'row {number} has {len(row)} cells, not {len(names)}: an action stands in quotes, as in "1,3"'
                )
        absent = [name for name in COLUMNS[:4] if name not in names]
        if absent:
            raise ValueError(f"no column {absent[0]!r}: its columns are {names}")
        table = {name: [row[at] for row in rows] for at, name in enumerate(names)}
        if rows:
            _read_rows(Columns(table))
    except (csv.Error, UnicodeDecodeError) as cause:
        raise ValueError(f"{os.fspath(path)} is no CSV file, or was cut short ({cause})") from cause
    except ValueError as wrong:
        raise ValueError(f"{os.fspath(path)}: {wrong}") from wrong
    return table


def write_games(path: str | os.PathLike[str], games: Games | Play | Mapping[str, Any]) -> None:
    """Write games to a CSV file that `load_games` reads: to a temporary one, which then takes the name.

    Parameters
    ----------
    games : what `load_games` gave, with its rows without an action; or decisions of a player, such as those of
        `tetris.simulate`, where a choice of -1 becomes a row without an action; or columns of text.
    """
    table = games.table if isinstance(games, Games) else games
    table = _table_of_play(table) if isinstance(table, Play) else table
    temporary = f"{os.fspath(path)}.{os.getpid()}.{secrets.token_hex(4)}.part"
    file = open(temporary, "x", newline="", encoding="utf-8")
    try:
        with file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(table)
            writer.writerows(zip(*table.values(), strict=True))
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def board_text(board: Any) -> str:
    """A board (row, column) of booleans as text, such as ``"..../..../..../##.#"``."""
    return "/".join("".join(".#"[bool(cell)] for cell in row) for row in np.asarray(board))


def placement_text(placement: Iterable[Any]) -> str:
    """A rotation and a column as text, such as ``"1,3"``."""
    return ",".join(str(int(number)) for number in placement)


def _table_of_play(play: Play) -> dict[str, list[str]]:
    cols, width = play.boards.shape[2], play.decisions.legal.shape[1]
    settings = (placements(cols, dedupe) for dedupe in (True, False))
    table = next((each for each in settings if each.exists.shape[1] == width), None)
    if table is None:
        raise ValueError(f"games have {width} options a decision: no piece has so many on {cols} columns")
    moves = list(zip(play.pieces.tolist(), np.asarray(play.decisions.choice).tolist(), strict=True))
    where = [(table.rotation[piece, slot], table.column[piece, slot]) for piece, slot in moves]
    return {
        "game": [str(game) for game in play.game],
        "board": [board_text(board) for board in play.boards],
        "piece": [list(PIECES)[piece] for piece, _ in moves],
        "action": [
            placement_text(at) if slot >= 0 else "" for at, (_, slot) in zip(where, moves, strict=True)
        ],
    }


def _texts(columns: Columns, name: str) -> np.ndarray:
    """A column as text, empty where it is null."""
    values, null = columns[name]
    return np.where(null, "", np.char.strip(values.astype(str)))


def _read_rows(columns: Columns) -> _Rows:
    for name in COLUMNS[:3]:
        columns.complete(name)
        nothing = _texts(columns, name) == ""
        if nothing.any():
            raise ValueError(f"row {int(nothing.argmax())}: {name} is empty: every row needs its {name}")
    boards = np.stack(list(_boards(_texts(columns, "board"))))
    letters = list(PIECES)
    pieces = np.zeros(columns.num_rows, np.int32)
    for row, letter in enumerate(_texts(columns, "piece").tolist()):
        if letter not in letters:
            raise ValueError(f"row {row}: piece is {letter[:20]!r}, not one of {', '.join(letters)}")
        pieces[row] = letters.index(letter)
    placement = _read_placements(columns, "action")
    decided = placement[:, 0] >= 0
    if "drop" in columns.names:
        placement = np.where(decided[:, None], placement, _read_placements(columns, "drop"))
    return _Rows(boards, pieces, decided, placement)


def _boards(texts: np.ndarray) -> Iterator[np.ndarray]:
    size: tuple[int, int] | None = None
    for row, text in enumerate(texts.tolist()):
        lines = text.split("/")
        found = (len(lines), len(lines[0]))
        if {*map(len, lines)} != {found[1]} or not {*text} <= {*".#/"} or min(found) < 4:
            raise ValueError(
                f"row {row}: board is {text[:60]!r}: give rows of '.' and '#' of one length, from the top, joined by "
                "'/', at least 4 of at least 4"
            )
        size = size or found
        if found != size:
            raise ValueError(
                f"row {row}: board has {found[0]} rows and {found[1]} columns, that of row 0 {size[0]} and {size[1]}: "
                "boards of one table have one size"
            )
        yield np.array([[cell == "#" for cell in line] for line in lines])


def _read_placements(columns: Columns, name: str) -> np.ndarray:
    """Rotation and column (row, 2), -1 where there is none."""
    values, null = columns[name]
    if values.dtype.kind != "U" and not null.all():
        raise TypeError(f"column {name!r} holds {values.dtype}: give text, 'rotation,column'")
    found = np.full((len(values), 2), -1)
    for row, text in enumerate(_texts(columns, name).tolist()):
        match = PLACEMENT.fullmatch(text)
        if match is not None:
            found[row] = int(match[1]), int(match[2])
        elif text:
            raise ValueError(f"row {row}: {name} is {text[:20]!r}, not 'rotation,column' as in '1,3'")
    return found


def _find_slots(rows: _Rows, dedupe: bool) -> np.ndarray:
    """Slot (row,) of each piece's placement, by a player or by its fall; -1 where that is not known."""
    slots = _slots(rows.boards.shape[2], dedupe)
    found = np.full(len(rows.placement), -1)
    for row, (rotation, column) in enumerate(rows.placement.tolist()):
        if rotation >= 0:
            inside = rotation < slots.shape[1] and column < slots.shape[2]
            found[row] = slots[rows.pieces[row], rotation, column] if inside else -1
            if found[row] < 0:
                raise ValueError(
                    f"row {row}: {_name(rows, row)} is not on the board: rotations are 0 to 3, and the piece lies "
                    f"within {slots.shape[2]} columns"
                )
    return found


@functools.lru_cache(maxsize=16)
def _slots(cols: int, dedupe: bool) -> np.ndarray:
    """Slot of each (piece, rotation, column); -1 where the piece would not lie inside."""
    literal, table = placements(cols, False), placements(cols, dedupe)
    found = np.full((len(PIECES), 4, cols), -1)
    for piece, slot in np.argwhere(literal.exists):
        rotation, column = literal.rotation[piece, slot], literal.column[piece, slot]
        same = (table.cells[piece] == literal.cells[piece, slot]).all(axis=(1, 2)) & table.exists[piece]
        found[piece, rotation, column] = same.argmax() if dedupe else slot
    return found


def _name(rows: _Rows, row: int) -> str:
    what, letter = "action" if rows.decided[row] else "drop", list(PIECES)[rows.pieces[row]]
    return f"{what} {placement_text(rows.placement[row])!r} of piece {letter}"


def _next_rows(game: np.ndarray) -> np.ndarray:
    """The next row of the same game; -1 after its last."""
    order = np.argsort(game, kind="stable")
    goes_on = np.flatnonzero(game[order[1:]] == game[order[:-1]])
    after = np.full(len(game), -1)
    after[order[goes_on]] = order[goes_on + 1]
    return after


def _replay(rows: _Rows, after: np.ndarray, features: str, dedupe: bool) -> list[np.ndarray]:
    """What is legal, its features, and which legal placements lead to the next row's board; (row, slot, ...)."""
    parts = []
    for first in range(0, len(after), ROWS_AT_ONCE):
        # The last part repeats the last row, so that all parts have one shape, and are compiled once.
        at = np.minimum(np.arange(first, first + ROWS_AT_ONCE), len(after) - 1)
        following = rows.boards[after[at]]
        found = _compare(rows.boards[at], rows.pieces[at], following, features=features, dedupe=dedupe)
        parts.append([np.asarray(each)[: len(after) - first] for each in found])
    return [np.concatenate(each) for each in zip(*parts, strict=True)]


@functools.partial(jax.jit, static_argnames=("features", "dedupe"))
def _compare(
    boards: Array, pieces: Array, following: Array, *, features: str, dedupe: bool
) -> tuple[Bool[Array, "row slot"], Array, Bool[Array, "row slot"]]:
    found = jax.vmap(functools.partial(outcomes, features=features, dedupe=dedupe))(boards, pieces)
    same = jnp.all(found.boards == following[:, None], axis=(-2, -1))
    return found.legal, found.features, found.legal & same
