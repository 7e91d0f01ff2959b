"""Tetris in the terminal: a person chooses where pieces go, and every move is recorded as it is made.

The rules are those of `ethogram.domains.tetris`: a piece moves and turns along the top edge, and drops straight. A
terminal is read key by key where that can be; keys come by the line elsewhere, and where ``TERM`` is ``dumb``.
"""

from __future__ import annotations

import math
import os
import re
import select
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ethogram.domains.tetris import PIECES, outcomes, placements
from ethogram.domains.tetris_records import COLUMNS, board_text, placement_text, read_table, write_games

__all__ = ["play_tetris"]

ROWS, COLS = 20, 10
LETTERS = tuple(PIECES)
KEYS = "a, d: left, right   w: turn   s or Enter: drop   q: quit"
ARROWS = {"A": "w", "B": "s", "C": "d", "D": "a"}
ESCAPES = re.compile(r"\x1b[\[O][0-9;]*([A-Za-z~])")
LONGEST_WAIT = 0.25  # Seconds between two looks at the clock that is shown.

HOW_TO_LEARN = """
To learn what they say about the player's values:

    import jax
    from numpyro.infer import MCMC, NUTS
    from ethogram import NoisyMDP
    from ethogram.domains.tetris_records import load_games

    games = load_games({path!r})
    mcmc = MCMC(NUTS(NoisyMDP(2500.0, kind="features")), num_warmup=500, num_samples=1000)
    mcmc.run(jax.random.key(0), games.play.decisions)
    mcmc.print_summary()"""


class _Move(NamedTuple):
    """A piece to be placed; `legal` and `after` are (slot,) and (slot, row, column), as of `outcomes`."""

    board: np.ndarray
    piece: int
    legal: np.ndarray
    after: np.ndarray


class _Answer(NamedTuple):
    """Slot in which a piece came to lie, None where the player quits first; who said so; and whether to go on."""

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
    """How many moves were recorded: game after game, until the player quits or the moves are made; Ctrl-C quits too.

    When time runs out, the piece falls from where it stands, and its row has no action. Where keys come by the line,
    a line that comes too late is not followed, but for its ``q``.

    Parameters
    ----------
    out : CSV file in the format of `ethogram.domains.tetris_records`; games are added to those of one that is there.
    rows, cols : of the board, at least 4 each; those of the file where None, or else 20 and 10.
    seconds : for each move; None for no limit.
    seed : of the pieces; None for other ones each time.
    moves : after how many to stop.
    stdin, stdout : streams of text; the process's own by default.
    clock : seconds since some moment.

    Raises
    ------
    ValueError
        If a number is too small, or the file there is no record of numbered games on boards of this size.
    OSError
        If the file cannot be read or written.
    """
    stdin, stdout = stdin or sys.stdin, stdout or sys.stdout
    least = {"rows": (rows, 4), "cols": (cols, 4), "moves": (moves, 1), "seed": (seed, 0)}
    for name, (number, smallest) in least.items():
        if number is not None and number < smallest:
            raise ValueError(f"{name} is {number}: give at least {smallest}")
    if seconds is not None and not 0 < seconds < math.inf:
        raise ValueError(f"seconds is {seconds}: give a number above 0, or None for no limit")
    path = Path(os.path.realpath(out))
    table, size, game = _open_record(path, rows, cols)
    limit, random = (math.inf if seconds is None else float(seconds)), np.random.default_rng(seed)
    board, made, fallen, news = np.zeros(size, bool), 0, 0, ""
    try:
        with _console(stdin, stdout) as console:
            while moves is None or made < moves:
                move = _look(board, int(random.integers(len(PIECES))))
                if board[0].any() or not move.legal.any():
                    game, news = game + 1, f"{news} Game {game} is over."
                    move = _look(np.zeros(size, bool), move.piece)
                answer = _ask(console, move, f"Game {game}, move {made + 1}.{news}", limit, clock)
                if answer.slot is None:
                    break
                _add(table, game, move, answer)
                write_games(path, table)
                board, made, fallen = move.after[answer.slot], made + 1, fallen + (not answer.decided)
                news = "" if answer.decided else f" Time was over: {LETTERS[move.piece]} fell."
                if not answer.goes_on:
                    break
    except KeyboardInterrupt:
        pass
    print(f"\nMoves recorded in {os.fspath(out)}: {made}, without a decision: {fallen}.", file=stdout)
    if any(text.strip() for text in table["action"]):
        print(HOW_TO_LEARN.format(path=os.fspath(out)), file=stdout)
    return made


def _open_record(
    path: Path, rows: int | None, cols: int | None
) -> tuple[dict[str, list[str]], tuple[int, int], int]:
    """Columns of the file, the size of its boards, and the number of the next game."""
    if path.is_dir() or not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise OSError(f"{path} is no place for a file: choose another one")
    size = (rows or ROWS, cols or COLS)
    if not path.exists() or not path.stat().st_size:
        return {name: [] for name in COLUMNS}, size, 0
    table = read_table(path)
    count = len(table["game"])
    table.setdefault("drop", [""] * count)
    if not count:
        return table, size, 0
    lines = table["board"][0].strip().split("/")
    found = (len(lines), len(lines[0]))
    size = (rows or found[0], cols or found[1])
    if size != found:
        raise ValueError(
            f"{path} has boards of {found[0]} rows and {found[1]} columns, not {size[0]} and {size[1]}: boards of one "
            "file have one size; record to another file"
        )
    try:
        return table, size, max(map(int, table["game"])) + 1
    except ValueError:
        raise ValueError(f"{path} has games with names, not numbers: record to another file") from None


def _add(table: dict[str, list[str]], game: int, move: _Move, answer: _Answer) -> None:
    """One row more."""
    where = placements(move.board.shape[1])
    text = placement_text((where.rotation[move.piece, answer.slot], where.column[move.piece, answer.slot]))
    filled = {"game": str(game), "board": board_text(move.board), "piece": LETTERS[move.piece]}
    filled["action" if answer.decided else "drop"] = text
    for name, column in table.items():
        column.append(filled.get(name, ""))


def _look(board: np.ndarray, piece: int) -> _Move:
    found = outcomes(board, piece)
    return _Move(board, piece, np.asarray(found.legal), np.asarray(found.boards))


def _ask(console: Any, move: _Move, title: str, limit: float, clock: Callable[[], float]) -> _Answer:
    """What the player does with a piece, or time."""
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
            wrong = "" if key in "adw" else f"{key!r} is no key.   {KEYS}"
            slot = _moved(move, slot, key)


def _first_slot(move: _Move) -> int:
    """The legal slot that is the least turned, and nearest to the middle."""
    table = placements(move.board.shape[1])
    turns, cells = table.rotation[move.piece], table.cells[move.piece, ..., 1]
    off_middle = np.abs(cells.min(axis=1) + cells.max(axis=1) - (move.board.shape[1] - 1))
    return min(np.flatnonzero(move.legal).tolist(), key=lambda slot: (turns[slot], off_middle[slot]))


def _moved(move: _Move, slot: int, key: str) -> int:
    """The slot that a key leads to: the next legal one on its side, or the nearest of the next rotation."""
    table = placements(move.board.shape[1])
    turns, column = table.rotation[move.piece], table.column[move.piece]
    legal = np.flatnonzero(move.legal)
    same = legal[turns[legal] == turns[slot]]
    if key == "a":
        return int(same[max(np.searchsorted(same, slot) - 1, 0)])
    if key == "d":
        return int(same[min(np.searchsorted(same, slot) + 1, len(same) - 1)])
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


class _Lines:
    """A player who types lines; an empty one drops the piece."""

    def __init__(self, stdin: Any, stdout: Any) -> None:
        self.stdin, self.stdout = stdin, stdout

    def forget(self) -> None:
        """Lines that were typed ahead stay."""

    def show(self, frame: str) -> None:
        print(frame, file=self.stdout)

    def read(self, seconds: float) -> str:
        """Keys of the next line, whenever it comes; ``q`` after the last one."""
        print("> ", end="", file=self.stdout, flush=True)
        line = self.stdin.readline()
        return (line.strip().lower() or "s") if line else "q"


class _Keys:
    """A player at a terminal that gives every key at once."""

    def __init__(self, stdin: Any, stdout: Any) -> None:
        self.number, self.stdout, self.shown = stdin.fileno(), stdout, ""

    def forget(self) -> None:
        """Keys that were pressed before a piece was seen are not about it."""
        import termios

        termios.tcflush(self.number, termios.TCIFLUSH)

    def show(self, frame: str) -> None:
        if frame != self.shown:
            start = "\x1b[H" if self.shown else "\x1b[2J\x1b[H"
            print(start + frame.replace("\n", "\x1b[K\n"), end="\x1b[K\x1b[J", file=self.stdout, flush=True)
            self.shown = frame

    def read(self, seconds: float) -> str:
        """Keys that come within so many seconds, or within a moment; ``q`` where the terminal is gone."""
        if not select.select([self.number], [], [], max(min(seconds, LONGEST_WAIT), 0))[0]:
            return ""
        try:
            text = os.read(self.number, 64).decode(errors="ignore")
        except OSError:
            return "q"
        plain = ESCAPES.sub(lambda found: ARROWS.get(found[1], ""), text)
        return re.sub(r"[\r\n ]", "s", plain).lower() if text else "q"


@contextmanager
def _console(stdin: Any, stdout: Any) -> Iterator[_Lines | _Keys]:
    """Whatever the streams can be; a terminal is left as it was."""
    try:
        import termios
        import tty
    except ImportError:
        termios = None  # type: ignore[assignment]
    terminal = stdin.isatty() and stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    if termios is None or not terminal:
        yield _Lines(stdin, stdout)
        return
    before = termios.tcgetattr(stdin.fileno())
    try:
        tty.setcbreak(stdin.fileno())
        yield _Keys(stdin, stdout)
    finally:
        termios.tcsetattr(stdin.fileno(), termios.TCSADRAIN, before)
