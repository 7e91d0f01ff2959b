"""Tetris in the terminal: a person plays, and every move is recorded at once.

The rules are those of `ethogram.domains.tetris`: a piece moves and turns along the top edge, and drops straight.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ethogram.commands.player_console import open_console
from ethogram.domains.tetris import PIECES, outcomes, placements
from ethogram.domains.tetris.records import (
    COLUMNS,
    board_text,
    placement_text,
    read_table,
    write_table,
)
from ethogram.models.arguments import require_integer
from ethogram.models.whole_files import refuse_place

__all__ = ["play_tetris"]

ROWS, COLS, LARGEST = 20, 10, 200
LETTERS = tuple(PIECES)
KEYS = "a, d: left, right   w: turn   s or Enter: drop   q: quit"

HOW_TO_LEARN = """
To infer the player's values from them:

    import jax
    from numpyro.infer import MCMC, NUTS
    from ethogram import NoisyMDP, summarize_choices
    from ethogram.domains.tetris import load_games

    decisions = load_games({path!r}).play.decisions
    model = NoisyMDP(2500.0, kind="features")
    kernel = NUTS(model, dense_mass=True)
    mcmc = MCMC(kernel, num_warmup=500, num_samples=1000, num_chains=2, chain_method="vectorized")
    mcmc.run(jax.random.key(0), decisions)
    print(summarize_choices(model, mcmc, decisions))  # warns where the draws have not converged"""


class _Move(NamedTuple):
    """A piece to place, with `legal` (slot,) and `after` (slot, row, column) of `outcomes`."""

    board: np.ndarray
    piece: int
    legal: np.ndarray
    after: np.ndarray


class _Answer(NamedTuple):
    """Slot of the placement, None where the player quit first; whether the player decided it; whether play goes on."""

    slot: int | None
    decided: bool = False
    goes_on: bool = True


def play_tetris(
    out: str | os.PathLike[str],
    *,
    rows: int | None = None,
    cols: int | None = None,
    seconds: float | int | None = None,
    seed: int | None = None,
    moves: int | None = None,
    stdin: Any = None,
    stdout: Any = None,
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """Number of recorded moves, over one or more games, until the player quits (also by Ctrl-C) or `moves` are made.

    When time runs out, the piece falls from where it is, and its row has no action. With line input, a late line is
    ignored except for its ``q``.

    Parameters
    ----------
    out : CSV file in the format of `ethogram.domains.tetris.records`; games are appended to an existing file.
    rows, cols : of the board, from 4 to 200 each; None for those of the file, or 20 and 10.
    seconds : time limit of a move; None for no limit.
    seed : of the pieces; None for a random one.
    moves : number of moves after which to stop.
    stdin, stdout : text streams; those of the process by default.
    clock : monotonic clock in seconds.

    Raises
    ------
    TypeError, ValueError
        If a number is invalid or out of bounds; if the file is not a record of numbered games on boards of this size;
        if standard input is closed, or the terminal is too small for the board.
    OSError
        If the file cannot be read or written, or another process has changed it since it was read.
    """
    stdin, stdout = (sys.stdin if stdin is None else stdin), (sys.stdout if stdout is None else stdout)
    if stdin is None or stdout is None:
        raise ValueError("standard input or output is closed: run in a terminal, or pass text streams")
    _check_numbers(seconds, {"rows": (rows, 4), "cols": (cols, 4), "moves": (moves, 1), "seed": (seed, 0)})
    record = _Record(out, rows, cols)
    limit, random = (math.inf if seconds is None else float(seconds)), np.random.default_rng(seed)
    board, game, made, fallen, news = np.zeros(record.size, bool), record.game, 0, 0, ""
    first = 0  # of the moves of this game
    try:
        with open_console(stdin, stdout, record.size) as console:
            while moves is None or made < moves:
                move = _look(board, int(random.integers(len(PIECES))))
                if board[0].any() or not move.legal.any():
                    game, first, news = game + 1, made, f"{news} Game {game} is over."
                    move = _look(np.zeros(record.size, bool), move.piece)
                answer = _ask(console, move, f"Game {game}, move {made - first + 1}.{news}", limit, clock)
                if answer.slot is None:
                    break
                record.add(game, move, answer)
                board, made, fallen = move.after[answer.slot], made + 1, fallen + (not answer.decided)
                news = "" if answer.decided else f" Time is up: {LETTERS[move.piece]} fell."
                if not answer.goes_on:
                    break
    except KeyboardInterrupt:
        pass
    print(f"\nMoves recorded in {os.fspath(out)}: {made}, without a decision: {fallen}.", file=stdout)
    if any(text.strip() for text in record.table["action"]):
        print(HOW_TO_LEARN.format(path=os.fspath(out)), file=stdout)
    return made


def _check_numbers(seconds: Any, whole: dict[str, tuple[Any, int]]) -> None:
    for name, (number, least) in whole.items():
        if number is not None:
            require_integer(name, number, least, LARGEST if name in ("rows", "cols") else None)
    cure = "pass a positive number, or None for no limit"
    if isinstance(seconds, bool) or not isinstance(seconds, int | float | np.number | None):
        raise TypeError(f"seconds is {seconds!r}: {cure}")
    if seconds is not None and not 0 < seconds < math.inf:
        raise ValueError(f"seconds is {seconds}: {cure}")


class _Record:
    """A file of games to which moves are appended, each written at once."""

    def __init__(self, out: str | os.PathLike[str], rows: int | None, cols: int | None) -> None:
        refuse_place(out)
        self.path, self.seen = os.fspath(out), _stamp(out)
        self.table: dict[str, list[str]] = {name: [] for name in COLUMNS}  # columns of text
        self.size, self.game = (rows or ROWS, cols or COLS), 0  # of the boards; number of the next game
        if self.seen is None or not self.seen[0]:
            return
        self.table = read_table(out)
        count = len(self.table["game"])
        self.table.setdefault("drop", [""] * count)
        if not count:
            return
        lines = self.table["board"][0].strip().split("/")
        found = (len(lines), len(lines[0]))
        self.size = (rows or found[0], cols or found[1])
        if self.size != found or max(found) > LARGEST:
            wanted = (
                f"{self.size[0]} and {self.size[1]}" if self.size != found else f"at most {LARGEST} of each"
            )
            raise ValueError(
                f"{self.path} has boards of {found[0]} rows and {found[1]} columns, not {wanted}: record to another "
                "file, as boards of one file must have one size"
            )
        try:
            self.game = max(map(int, self.table["game"])) + 1
        except ValueError:
            raise ValueError(
                f"{self.path} has named games, not numbered ones: record to another file"
            ) from None

    def add(self, game: int, move: _Move, answer: _Answer) -> None:
        """Append a row, unless another process has changed the file, whose changes would be lost."""
        if _stamp(self.path) not in (None, self.seen):
            raise OSError(
                f"{self.path} was changed by another process, and this move is not in it: record to another file"
            )
        where = placements(move.board.shape[1])
        text = placement_text(
            (where.rotation[move.piece, answer.slot], where.column[move.piece, answer.slot])
        )
        filled = {"game": str(game), "board": board_text(move.board), "piece": LETTERS[move.piece]}
        filled["action" if answer.decided else "drop"] = text
        for name, column in self.table.items():
            column.append(filled.get(name, ""))
        write_table(self.path, self.table)
        self.seen = _stamp(self.path)


def _stamp(path: str | os.PathLike[str]) -> tuple[int, int, int] | None:
    """Size, number and time of a version of a file; None where there is none."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_size, found.st_ino, found.st_mtime_ns


def _look(board: np.ndarray, piece: int) -> _Move:
    found = outcomes(board, piece)
    return _Move(board, piece, np.asarray(found.legal), np.asarray(found.boards))


def _ask(console: Any, move: _Move, title: str, limit: float, clock: Callable[[], float]) -> _Answer:
    """The player's answer for a piece, or that of the clock."""
    slot, wrong, end = _first_slot(move), "", clock() + limit
    console.forget()
    while True:
        left = end - clock()
        shown = "" if limit == math.inf else f" {max(math.ceil(left), 0)} s."
        console.show(f"{title}{shown}\n{_draw(move, slot)}\n{wrong or KEYS}")
        keys = console.read(left)
        if clock() >= end:
            return _Answer(slot, goes_on="q" not in keys)
        for key in keys:
            if key == "s":
                return _Answer(slot, decided=True)
            if key == "q":
                return _Answer(None)
            wrong = "" if key in "adw" else f"{key!r} is not a key.   {KEYS}"
            slot = _moved(move, slot, key)


def _first_slot(move: _Move) -> int:
    """The legal slot with the fewest turns, and nearest to the middle."""
    table = placements(move.board.shape[1])
    turns, cells = table.rotation[move.piece], table.cells[move.piece, ..., 1]
    off_middle = np.abs(cells.min(axis=1) + cells.max(axis=1) - (move.board.shape[1] - 1))
    return min(np.flatnonzero(move.legal).tolist(), key=lambda slot: (turns[slot], off_middle[slot]))


def _moved(move: _Move, slot: int, key: str) -> int:
    """The slot that a key leads to: the next legal one on its side, or the nearest of the next rotation."""
    table = placements(move.board.shape[1])
    turns, column = table.rotation[move.piece], table.column[move.piece]
    legal = np.flatnonzero(move.legal)
    if key in "ad":
        same = legal[turns[legal] == turns[slot]]
        beside = np.searchsorted(same, slot) + (1 if key == "d" else -1)
        return int(same[np.clip(beside, 0, len(same) - 1)])
    if key == "w":
        others = np.unique(turns[legal])
        following = others[(np.searchsorted(others, turns[slot]) + 1) % len(others)]
        turned = legal[turns[legal] == following]
        return int(turned[np.abs(column[turned] - column[slot]).argmin()])
    return slot


def _draw(move: _Move, slot: int) -> str:
    """The board, and the piece at its top edge."""
    cells = np.where(move.board, "#", ".")
    where = placements(move.board.shape[1]).cells[move.piece, slot]
    cells[where[:, 0], where[:, 1]] = "@"
    return "\n".join(f"|{' '.join(row)}|" for row in cells)
