"""Tetris in the terminal: a person plays, and every move is recorded at once.

    python examples/play_tetris.py --out mine.csv

The rules are those of `ethogram.domains.tetris`: a piece moves and turns along the top edge, and drops straight. When
time for a move runs out, the piece falls, and the recorded row has no decision. `ethogram play tetris` runs this file.
"""

from __future__ import annotations

import math
import os
import re
import select
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import numpy as np

from ethogram.commands.argument_types import LARGEST_SEED, Parser, integer, seconds
from ethogram.domains.tetris import PIECES, outcomes, placements
from ethogram.domains.tetris.records import COLUMNS, board_text, placement_text, read_table, write_table
from ethogram.models.whole_files import refuse_place

ROWS, COLS, LARGEST = 20, 10, 200
LETTERS = tuple(PIECES)
KEYS = "a, d: left, right   w: turn   s or Enter: drop   q: quit"
ARROWS = {"A": "w", "B": "s", "C": "d", "D": "a"}
ESCAPES = re.compile(r"\x1b[\[O][0-9;]*([A-Za-z~])")
CLOCK_SECONDS = 0.25  # between updates of the time that is left

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


def main(argv: Sequence[str] | None = None, prog: str | None = None) -> int:
    """Exit code 0 after the games; 2, and a message of one line, where the file or the terminal does not fit."""
    parser = Parser(prog=prog, description=__doc__.split("\n")[0])
    size, out = integer(4, LARGEST), "file to append to (tetris.csv)"
    parser.add_argument("--out", default="tetris.csv", metavar="FILE.csv", help=out)
    parser.add_argument("--rows", type=size, metavar="N", help="rows of the board (those of the file, or 20)")
    parser.add_argument(
        "--cols", type=size, metavar="N", help="columns of the board (those of the file, or 10)"
    )
    parser.add_argument("--seconds", type=seconds, metavar="S", help="time limit of a move (no limit)")
    parser.add_argument(
        "--seed", type=integer(0, LARGEST_SEED), metavar="N", help="seed of the pieces (random)"
    )
    parser.add_argument("--moves", type=integer(1), metavar="N", help="stop after so many moves (no limit)")
    try:
        play_tetris(**vars(parser.parse_args(argv)))
    except ValueError as error:
        parser.error(str(error))
    return 0


class Move(NamedTuple):
    """A piece to place, with `legal` (slot,) and `after` (slot, row, column) of `outcomes`."""

    board: np.ndarray
    piece: int
    legal: np.ndarray
    after: np.ndarray


class Answer(NamedTuple):
    """Slot of the placement, None where the player quit first; whether the player decided it; whether play goes on."""

    slot: int | None
    decided: bool = False
    goes_on: bool = True


def play_tetris(
    out: str,
    *,
    rows: int | None = None,
    cols: int | None = None,
    seconds: float | None = None,
    seed: int | None = None,
    moves: int | None = None,
    stdin: Any = None,
    stdout: Any = None,
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """Number of recorded moves, until the player quits (also by Ctrl-C) or `moves` are made; arguments as in `main`.

    With line input, a late line is ignored except for its ``q``.
    """
    stdin, stdout = (sys.stdin if stdin is None else stdin), (sys.stdout if stdout is None else stdout)
    if stdin is None or stdout is None:
        raise ValueError("standard input or output is closed: run in a terminal, or pass text streams")
    refuse_place(out)
    table = read_records(out)
    size = board_size(out, table, rows, cols)
    limit, random = (math.inf if seconds is None else seconds), np.random.default_rng(seed)
    board, game, made, fallen, news = np.zeros(size, bool), next_game(out, table), 0, 0, ""
    first = 0  # of the moves of this game
    with suppress(KeyboardInterrupt), open_console(stdin, stdout, size) as console:
        while moves is None or made < moves:
            move = look(board, int(random.integers(len(PIECES))))
            if board[0].any() or not move.legal.any():
                news, first = f"{news} Game {game} is over.", made
                game, move = next_game(out, table), look(np.zeros(size, bool), move.piece)
            answer = ask(console, move, f"Game {game}, move {made - first + 1}.{news}", limit, clock)
            if answer.slot is None:
                break
            table = add_move(out, game, move, answer)
            board, made, fallen = move.after[answer.slot], made + 1, fallen + (not answer.decided)
            news = "" if answer.decided else f" Time is up: {LETTERS[move.piece]} fell."
            if not answer.goes_on:
                break
    print(f"\nMoves recorded in {out}: {made}, without a decision: {fallen}.", file=stdout)
    if any(text.strip() for text in table["action"]):
        print(HOW_TO_LEARN.format(path=str(out)), file=stdout)
    return made


def read_records(out: str) -> dict[str, list[str]]:
    """Columns of text of the file, empty where there is none."""
    if not os.path.exists(out) or not os.path.getsize(out):
        return {name: [] for name in COLUMNS}
    table = read_table(out)
    table.setdefault("drop", [""] * len(table["game"]))
    return table


def board_size(out: str, table: dict[str, list[str]], rows: int | None, cols: int | None) -> tuple[int, int]:
    """Rows and columns of the board; those of the file's games, if it has any."""
    if not table["board"]:
        return rows or ROWS, cols or COLS
    lines = table["board"][0].strip().split("/")
    found = (len(lines), len(lines[0]))
    if (rows or found[0], cols or found[1]) != found or max(found) > LARGEST:
        raise ValueError(
            f"{out} has boards of {found[0]} rows and {found[1]} columns, not {rows or found[0]} and "
            f"{cols or found[1]} (at most {LARGEST}): record to another file, as boards of one file have one size"
        )
    return found


def next_game(out: str, table: dict[str, list[str]]) -> int:
    """Number of a game that is not in the file."""
    try:
        return max(map(int, table["game"]), default=-1) + 1
    except ValueError:
        raise ValueError(f"{out} has named games, not numbered ones: record to another file") from None


def add_move(out: str, game: int, move: Move, answer: Answer) -> dict[str, list[str]]:
    """The records with one more row; they are read again, as another session may have added some."""
    table, where = read_records(out), placements(move.board.shape[1])
    text = placement_text((where.rotation[move.piece, answer.slot], where.column[move.piece, answer.slot]))
    row = {"game": str(game), "board": board_text(move.board), "piece": LETTERS[move.piece]}
    row["action" if answer.decided else "drop"] = text
    for name, column in table.items():
        column.append(row.get(name, ""))
    write_table(out, table)
    return table


def look(board: np.ndarray, piece: int) -> Move:
    """The move that a piece asks for."""
    found = outcomes(board, piece)
    return Move(board, piece, np.asarray(found.legal), np.asarray(found.boards))


def ask(console: Console, move: Move, title: str, limit: float, clock: Callable[[], float]) -> Answer:
    """The player's answer for a piece, or that of the clock."""
    slot, wrong, end = first_slot(move), "", clock() + limit
    console.forget()
    while True:
        left = end - clock()
        shown = "" if limit == math.inf else f" {max(math.ceil(left), 0)} s."
        console.show(f"{title}{shown}\n{draw(move, slot)}\n{wrong or KEYS}")
        keys = console.read(left)
        if clock() >= end:
            return Answer(slot, goes_on="q" not in keys)
        for key in keys:
            if key == "s":
                return Answer(slot, decided=True)
            if key == "q":
                return Answer(None)
            wrong = "" if key in "adw" else f"{key!r} is not a key.   {KEYS}"
            slot = moved(move, slot, key)


def first_slot(move: Move) -> int:
    """The legal slot with the fewest turns, and nearest to the middle."""
    table = placements(move.board.shape[1])
    turns, cells = table.rotation[move.piece], table.cells[move.piece, ..., 1]
    off_middle = np.abs(cells.min(axis=1) + cells.max(axis=1) - (move.board.shape[1] - 1))
    return min(np.flatnonzero(move.legal).tolist(), key=lambda slot: (turns[slot], off_middle[slot]))


def moved(move: Move, slot: int, key: str) -> int:
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


def draw(move: Move, slot: int) -> str:
    """The board, and the piece at its top edge."""
    cells = np.where(move.board, "#", ".")
    where = placements(move.board.shape[1]).cells[move.piece, slot]
    cells[where[:, 0], where[:, 1]] = "@"
    return "\n".join(f"|{' '.join(row)}|" for row in cells)


class Console:
    """A player who types lines, of which an empty one drops the piece; or keys, at a terminal in cbreak mode."""

    def __init__(self, stdin: Any, stdout: Any, *, of_keys: bool) -> None:
        self.stdin, self.stdout, self.of_keys, self.shown = stdin, stdout, of_keys, ""

    def forget(self) -> None:
        """Discard keys that were pressed before the piece was shown; lines that were typed ahead stay."""
        if self.of_keys:
            import termios

            termios.tcflush(self.stdin.fileno(), termios.TCIFLUSH)

    def show(self, frame: str) -> None:
        """Print the frame, at a terminal in place of the last one."""
        if not self.of_keys:
            print(frame, file=self.stdout)
            return
        width = (
            os.get_terminal_size(self.stdout.fileno()).columns or None
        )  # a wrapped line scrolls the first away
        frame = "\n".join(line[:width] for line in frame.split("\n"))
        if frame != self.shown:
            start = "\x1b[H" if self.shown else "\x1b[2J\x1b[H"
            print(start + frame.replace("\n", "\x1b[K\n"), end="\x1b[K\x1b[J", file=self.stdout, flush=True)
            self.shown = frame

    def read(self, seconds: float) -> str:
        """Keys of the next line, or those pressed until the next update of the clock; ``q`` at the end of input."""
        if not self.of_keys:
            print("> ", end="", file=self.stdout, flush=True)
            line = self.stdin.readline()
            return (line.strip().lower() or "s") if line else "q"
        if not select.select([self.stdin], [], [], max(min(seconds, CLOCK_SECONDS), 0))[0]:
            return ""
        with suppress(OSError):  # the terminal is gone
            text = os.read(self.stdin.fileno(), 64).decode(errors="ignore")
            plain = ESCAPES.sub(lambda found: ARROWS.get(found[1], ""), text)
            return re.sub(r"[\r\n ]", "s", plain).lower() if text else "q"
        return "q"


@contextmanager
def open_console(stdin: Any, stdout: Any, size: tuple[int, int]) -> Iterator[Console]:
    """A console on the streams, for a board of this size (rows, columns); a terminal's settings are restored."""
    terminal = stdin.isatty() and stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    if not terminal or os.name == "nt":
        yield Console(stdin, stdout, of_keys=False)
        return
    import termios
    import tty

    lines, characters, room = size[0] + 2, 2 * size[1] + 1, os.get_terminal_size(stdout.fileno())
    if 0 < room.lines < lines or 0 < room.columns < characters:
        raise ValueError(
            f"a board of {size[0]} rows and {size[1]} columns needs {lines} lines of {characters} characters, and "
            f"this terminal has {room.lines} of {room.columns}: enlarge it, or choose other --rows and --cols"
        )
    before = termios.tcgetattr(stdin.fileno())
    try:
        tty.setcbreak(stdin.fileno())
        yield Console(stdin, stdout, of_keys=True)
    finally:
        termios.tcsetattr(stdin.fileno(), termios.TCSADRAIN, before)


if __name__ == "__main__":
    sys.exit(main())
