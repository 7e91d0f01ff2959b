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

import contextlib
import csv
import functools
import os
import secrets
import shutil
import stat
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from ethogram.domains.tetris import FEATURES, PIECES, Play, outcomes, placements
from ethogram.domains.tetris_tables import (
    COLUMNS,
    Rows,
    column_text,
    find_slots,
    placement_text,
    read_rows,
)
from ethogram.models.decisions import Decisions
from ethogram.models.ragged.columns import Columns, number_groups
from ethogram.models.trajectories import Metadata

__all__ = [
    "COLUMNS",
    "Games",
    "board_text",
    "load_games",
    "placement_text",
    "read_table",
    "refuse_place",
    "write_games",
    "write_table",
]

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
    if not isinstance(features, str) or features not in FEATURES:
        raise ValueError(f"features must be one of {tuple(FEATURES)}, not {features!r}")
    if isinstance(table, str | os.PathLike):
        texts = read_table(table)
        try:
            return load_games(texts, features=features, dedupe=dedupe)
        except ValueError as wrong:
            raise ValueError(f"{os.fspath(table)}: {wrong}") from wrong
    columns = Columns(table)
    rows = read_rows(columns)
    if not rows.decided.any():
        raise ValueError(f"none of {columns.num_rows} rows has an action: there is nothing to learn from")
    game, _ = number_groups({"game": columns.complete("game")}, columns.num_rows)
    slot, after = find_slots(rows, dedupe), _next_rows(game)
    legal, values, same = _replay(rows, after, features, dedupe)
    agrees = np.where(slot >= 0, same[np.arange(len(slot)), slot], same.any(axis=1))
    disagrees = np.any(rows.boards[:, 0], axis=1)
    disagrees[after[after >= 0]] |= ~agrees[after >= 0]
    decided = rows.decided
    metadata = Metadata(name="Tetris", feature_names=FEATURES[features](rows.boards.shape[2]))
    decisions = Decisions(values[decided], legal[decided], slot[decided], metadata=metadata)
    play = Play(rows.boards[decided], rows.pieces[decided], game[decided], decisions)
    texts = {name: column_text(columns, name).tolist() for name in COLUMNS if name in columns.names}
    return Games(play, int(np.sum(~decided)), tuple(np.flatnonzero(disagrees).tolist()), texts)


def read_table(path: str | os.PathLike[str]) -> dict[str, list[str]]:
    """Columns of a CSV file as text, once its boards, pieces and placements have been found in order, and legal.

    Columns may be empty.

    Raises
    ------
    ValueError
        As for :func:`load_games`, or if the file cannot be read as rows of one length under different names.
    """
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            lines = [line for line in csv.reader(file, strict=True) if line]
        if not lines:
            raise ValueError(f"it is empty: a first line names the columns {', '.join(COLUMNS)}")
        names, *rows = lines
        _check_names(names)
        for number, row in enumerate(rows):
            if len(row) != len(names):
                raise ValueError(
                    f'row {number} has {len(row)} cells, not {len(names)}: an action stands in quotes, as in "1,3"'
                )
        table = {name: [row[at] for row in rows] for at, name in enumerate(names)}
        if rows:
            find_slots(read_rows(Columns(table)), True)
    except (csv.Error, UnicodeDecodeError) as cause:
        raise ValueError(f"{os.fspath(path)} is no CSV file, or was cut short ({cause})") from cause
    except ValueError as wrong:
        raise ValueError(f"{os.fspath(path)}: {wrong}") from wrong
    return table


def _check_names(names: list[str]) -> None:
    other = next((mark for mark in ";\t|" if len(names) == 1 and mark in names[0]), None)
    if other is not None:
        raise ValueError(f"its first line is {names[0][:60]!r}: separate cells by commas, not by {other!r}")
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise ValueError(f"its first line has {twice[0]!r} twice: every column needs a name of its own")
    absent = [name for name in COLUMNS[:4] if name not in names]
    if absent:
        raise ValueError(f"no column {absent[0]!r}: its columns are {names}")


def write_games(path: str | os.PathLike[str], games: Any) -> None:
    """Write games to a CSV file that `load_games` reads; what cannot be read by it is refused.

    Parameters
    ----------
    games : what `load_games` gave, with its rows without an action; or decisions of a player, such as those of
        `tetris.simulate`, where a choice of -1 becomes a row without an action; or a DataFrame, or a mapping from
        names to columns.

    Raises
    ------
    TypeError, ValueError
        If games are none of these, or not in order; see :func:`load_games`.
    OSError
        As for :func:`write_table`.
    """
    if isinstance(games, Play):
        write_table(path, _table_of_play(games))
        return
    table = games.table if isinstance(games, Games) else games
    if not isinstance(table, Mapping) and not hasattr(table, "columns"):
        raise TypeError(
            f"games is {type(games).__name__}: give Games, a Play, a DataFrame or a mapping of columns"
        )
    columns = Columns(table)
    _check_names(columns.names)
    find_slots(read_rows(columns), True)
    write_table(path, {name: column_text(columns, name).tolist() for name in columns.names})


def write_table(path: str | os.PathLike[str], table: Mapping[str, list[str]]) -> None:
    """Write columns of text to a CSV file: to a temporary one, which then takes the name, and the mode of an old one.

    Raises
    ------
    OSError
        If the path is no place for a file, or cannot be written to; an old file stays as it was.
    """
    place = os.path.realpath(path)
    refuse_place(path)
    temporary = f"{place}.{os.getpid()}.{secrets.token_hex(4)}.part"
    try:
        with open(temporary, "x", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(table)
            writer.writerows(zip(*table.values(), strict=True))
            file.flush()
            os.fsync(file.fileno())
        if os.path.exists(place):
            shutil.copymode(place, temporary)
        os.replace(temporary, place)
    except OSError as wrong:
        raise OSError(wrong.errno, wrong.strerror, os.fspath(path)) from wrong
    finally:
        with contextlib.suppress(OSError):
            os.unlink(temporary)


def refuse_place(path: str | os.PathLike[str]) -> None:
    """Raise OSError where no file can be written, or one that is there may not be replaced; the message says why."""
    place, name = os.path.realpath(path), os.fspath(path)
    folder = os.path.dirname(place)
    if not os.path.isdir(folder):
        raise OSError(f"{name} is no place for a file: there is no folder {folder}")
    if os.path.exists(place):
        mode = os.stat(place).st_mode
        if not stat.S_ISREG(mode):
            kind = "a folder" if stat.S_ISDIR(mode) else "a device or a pipe"
            raise OSError(f"{name} is no place for a file: it is {kind}")
        if not mode & 0o222 or not os.access(place, os.W_OK):
            raise OSError(f"{name} may not be written to: it is read-only")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise OSError(f"{name} is no place for a file: no file can be made in {folder}")


def board_text(board: Any) -> str:
    """A board (row, column) of booleans as text, such as ``"..../..../..../##.#"``."""
    return "/".join("".join(".#"[bool(cell)] for cell in row) for row in np.asarray(board))


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


def _next_rows(game: np.ndarray) -> np.ndarray:
    """The next row of the same game; -1 after its last."""
    order = np.argsort(game, kind="stable")
    goes_on = np.flatnonzero(game[order[1:]] == game[order[:-1]])
    after = np.full(len(game), -1)
    after[order[goes_on]] = order[goes_on + 1]
    return after


def _replay(rows: Rows, after: np.ndarray, features: str, dedupe: bool) -> list[np.ndarray]:
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
