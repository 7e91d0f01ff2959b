"""Tetris in the terminal: lines and keys of a player, time limits, and that every move is on disk at once."""

from __future__ import annotations

import csv
import io
import os
import re
import sys
import textwrap
import threading

import numpy as np
import pytest

from ethogram.commands import main as command
from ethogram.domains.tetris.records import load_games, write_games
from examples.play_tetris import main, play_tetris

SIZE = {"rows": 8, "cols": 6}
WIDTH = {"I": 4, "O": 2}


class Player(io.StringIO):
    """Lines of a player who thinks for some seconds before each, and whose end may be an exception.

    `look` is called with the number of each line before it is read.
    """

    def __init__(self, lines, think=0.0, look=None, last=None):
        super().__init__("".join(f"{line}\n" for line in lines))
        self.now, self.think, self.look, self.last, self.asked = 0.0, think, look, last, 0

    def readline(self, *sizes):
        self.now += self.think if np.isscalar(self.think) else self.think[self.asked]
        if self.look is not None:
            self.look(self.asked)
        self.asked += 1
        line = super().readline(*sizes)
        if not line and self.last is not None:
            raise self.last
        return line

    def clock(self):
        return self.now


def played(path, lines, **settings) -> tuple[int, str]:
    """How many moves were recorded, and what was printed."""
    player = lines if isinstance(lines, Player) else Player(lines)
    out = io.StringIO()
    made = play_tetris(path, stdin=player, stdout=out, clock=player.clock, **SIZE | settings)
    return made, out.getvalue()


def rows_of(path) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def random_lines(seed, count):
    random = np.random.default_rng(seed)
    return ["".join(random.choice(list("aaddw"), random.integers(6))) + "s" for _ in range(count)]


def test_games_that_are_played_are_games_that_are_read(tmp_path):
    """Moves are counted by the game, and the code that is printed at the end reads them."""
    made, printed = played(tmp_path / "games.csv", [*random_lines(0, 60), "q"], seed=0)
    games = load_games(tmp_path / "games.csv")
    assert made == games.play.decisions.num_decisions == 60
    assert games.disagreeing == () and games.skipped == 0
    assert games.play.game[-1] >= 3 and (np.diff(games.play.game) >= 0).all()
    assert "Game 0 is over." in printed and "60, without a decision: 0" in printed
    assert len(np.unique(games.play.decisions.choice)) > 10
    titles, count = re.findall(r"Game (\d+), move (\d+)\.", printed), dict[str, int]()
    for title, row in zip(titles, rows_of(tmp_path / "games.csv"), strict=False):
        count[row["game"]] = count.get(row["game"], 0) + 1
        assert title == (row["game"], str(count[row["game"]]))
    code = textwrap.dedent(printed.split("To infer the player's values from them:")[1])
    lines = [line for line in code.splitlines() if not line.startswith(("kernel", "mcmc", "print"))]
    names: dict = {}
    exec("\n".join(lines), names)
    compile(code, "printed", "exec")
    assert names["decisions"].num_decisions == 60 and callable(names["summarize_choices"])


def test_keys_move_and_turn_along_the_top_edge(tmp_path):
    """On six columns a piece of three lies on 1 to 3; it does not leave the board, and four turns are none.

    An empty line drops, and a wrong key does nothing.
    """
    lines = ["s", "as", "aaaaas", "ddddddds", "aad", "s", "wwwws", "x", "A", ""]
    _, printed = played(tmp_path / "games.csv", lines, seed=3, rows=30)
    rows, column = rows_of(tmp_path / "games.csv"), []
    for row in rows:
        rotation, left = map(int, row["action"].split(","))
        assert rotation == 0
        column.append(left - (6 - WIDTH.get(row["piece"], 3)) // 2)
    widest = [6 - WIDTH.get(row["piece"], 3) for row in rows]
    start = [free // 2 for free in widest]
    assert column == [0, -1, -start[2], widest[3] - start[3], max(-2, -start[4]) + 1, 0, max(-1, -start[6])]
    assert "'x' is not a key" in printed
    played(tmp_path / "turned.csv", [f"{'w' * turns}s" for turns in range(8)] * 3, seed=1, rows=40)
    turns = {"I": 2, "O": 1, "S": 2, "Z": 2}
    rows = rows_of(tmp_path / "turned.csv")[:12]
    assert [int(row["action"][0]) for row in rows] == [
        number % 8 % turns.get(row["piece"], 4) for number, row in enumerate(rows)
    ]


def test_pieces_are_those_of_the_seed(tmp_path):
    for name, seed in (("one", 5), ("same", 5), ("other", 6)):
        played(tmp_path / name, random_lines(seed, 20), seed=seed)
    one, same, other = (
        "".join(row["piece"] for row in rows_of(tmp_path / name)) for name in ("one", "same", "other")
    )
    assert one == same != other and len(set(one)) >= 5


def test_moves_for_which_time_runs_out_have_no_decision(tmp_path):
    """The second line of each piece comes too late: the piece falls from where the first has put it."""
    player = Player(["a", "s"] * 12, [1.0, 1.0, 1.0, 5.0] * 6)
    made, printed = played(tmp_path / "games.csv", player, seconds=4.0, seed=2, rows=40, moves=12)
    rows = rows_of(tmp_path / "games.csv")
    assert made == 12 and "12, without a decision: 6" in printed and "Time is up" in printed
    assert [bool(row["action"]) for row in rows] == [True, False] * 6
    assert all(bool(row["action"]) != bool(row["drop"]) for row in rows)
    for row in rows:
        rotation, left = map(int, (row["action"] or row["drop"]).split(","))
        assert rotation == 0 and left == (6 - WIDTH.get(row["piece"], 3)) // 2 - 1
    games = load_games(tmp_path / "games.csv")
    assert games.skipped == 6 and games.disagreeing == ()
    made, _ = played(tmp_path / "late.csv", Player(["s", "q", "s"], [0.0, 9.0, 0.0]), seconds=4)
    assert made == 2 and [bool(row["action"]) for row in rows_of(tmp_path / "late.csv")] == [True, False]


def test_every_move_is_on_disk_before_the_next(tmp_path):
    path, seen = tmp_path / "games.csv", []

    def look(asked):
        seen.append(len(rows_of(path)) if path.exists() else 0)

    player = Player(["s"] * 5, look=look, last=KeyboardInterrupt())
    made, printed = played(path, player, seed=0)
    assert seen == [0, 1, 2, 3, 4, 5] and made == 5
    assert "games.csv: 5" in printed and load_games(path).disagreeing == ()
    assert list(tmp_path.iterdir()) == [path]


def test_games_are_added_to_a_file(tmp_path):
    """Also to an empty one, with columns of one's own, or while another session plays."""
    path = tmp_path / "games.csv"
    played(path, ["s"] * 3, seed=0)
    played(path, ["s"] * 2, seed=1, rows=None, cols=None)

    def look(asked):
        if asked == 1:
            played(path, ["s"] * 3, seed=1)

    played(path, Player(["s"] * 2, look=look), seed=2)
    assert [row["game"] for row in rows_of(path)] == [*"000112", *"333", "2"]
    games = load_games(path)
    assert games.disagreeing == () and games.play.boards.shape[1:] == (8, 6)
    path, empty = tmp_path / "own.csv", "/".join(["......"] * 8)
    write_games(path, {"mood": ["glad"], "piece": ["T"], "board": [empty], "game": ["4"], "action": ["0 2"]})
    played(path, ["s"], seed=0)
    first, second = rows_of(path)
    assert (first["mood"], first["action"], second["mood"], second["game"]) == ("glad", "0 2", "", "5")
    (tmp_path / "empty.csv").write_text("game,board,piece,action,drop\n")
    assert played(tmp_path / "empty.csv", ["s"])[0] == 1


def test_without_a_move_no_file_is_written(tmp_path):
    for lines in (["q"], []):
        made, printed = played(tmp_path / "games.csv", lines)
        assert made == 0 and "load_games" not in printed and not list(tmp_path.iterdir())


HEADER, BOARD = "game,board,piece,action\n", "..../..../..../...."
FAULTS = {
    "no record": ("not a record", [], "no column 'game'"),
    "cut": (f'{HEADER}0,{BOARD},T,"0,9', [], "is truncated"),
    "one number": (f"{HEADER}0,{BOARD},T,9\n", [], "row 0: action is '9'"),
    "another size": (f"{HEADER}0,{BOARD},T,0 0\n", ["--rows", "5"], "4 rows and 4 columns, not 5 and 4"),
    "a name": (f"{HEADER}first,{BOARD},T,0 0\n", [], "named games"),
    "semicolons": (HEADER.replace(",", ";"), [], "separate cells by commas, not by ';'"),
    "twice": (f"{HEADER[:-1]},mood,mood\n0,{BOARD},T,0 0,glad,sad\n", [], "'mood' appears twice"),
    "off the board": (f"{HEADER}0,{BOARD},T,0 3\n", [], "row 0: action '0,3' of piece T is not on"),
    "not legal": (f"{HEADER}0,#.../#.../#.../#...,T,0 0\n", [], "row 0: action '0,0' of piece T is not leg"),
    "few rows": ("", ["--rows", "3"], "--rows: 3 is not between 4 and 200"),
    "many columns": ("", ["--cols", "99999999999"], "--cols: 99999999999 is not between 4 and 200"),
    "half a row": ("", ["--rows", "8.5"], "--rows: '8.5' is not an integer"),
    "no moves": ("", ["--moves", "0"], "--moves: 0 is below 1"),
    "no time": ("", ["--seconds", "0"], "--seconds: '0' is not a positive number of seconds"),
    "no number": ("", ["--seconds", "nan"], "--seconds: 'nan' is not a positive number of seconds"),
    "a seed": ("", ["--seed", "-1"], "--seed: -1 is not between 0"),
}


@pytest.mark.parametrize(("text", "words", "message"), FAULTS.values(), ids=FAULTS)
def test_bad_input_gets_one_line_and_the_file_stays(tmp_path, monkeypatch, capsys, text, words, message):
    monkeypatch.setattr("sys.stdin", Player(["s"]))
    path = tmp_path / "games.csv"
    path.write_text(text)
    with pytest.raises(SystemExit) as stop:
        main(["--out", str(path), *words], prog="play")
    printed = capsys.readouterr().err
    assert stop.value.code == 2 and printed.startswith("play: ") and message in printed
    assert printed.count("\n") == 1 and printed.count("games.csv") <= 1 and path.read_text() == text


def test_a_place_for_no_file_and_closed_streams_are_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "cache"))
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "mine.csv").write_text("mine")
    (tmp_path / "mine.csv").chmod(0o444)
    for name, reason in (
        (".", "cannot be written: it is a folder"),
        ("none/games.csv", "cannot be written: the folder"),
        ("pipe", "cannot be written: it is a device or a pipe"),
        ("mine.csv", "cannot be written: it is read-only"),
    ):
        assert command(["play", "tetris", "--out", str(tmp_path / name)]) == 2
        printed = capsys.readouterr().err
        assert reason in printed and printed.count("\n") == 1
    assert (tmp_path / "pipe").is_fifo() and (tmp_path / "mine.csv").read_text() == "mine"
    for name in ("stdin", "stdout"):
        with monkeypatch.context() as patched:
            patched.setattr(sys, name, None)
            with pytest.raises(ValueError, match="standard input or output is closed"):
                play_tetris(tmp_path / "games.csv")


def test_the_command_plays(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.StringIO("s\nas\n"))
    path = tmp_path / "games.csv"
    words = "--rows 8 --cols 6 --seconds 1e9 --seed 3 --moves 2".split()
    assert command(["play", "tetris", "--out", str(path), *words]) == 0
    assert "load_games" in capsys.readouterr().out
    played(tmp_path / "same.csv", ["s", "as"], seed=3)
    assert path.read_text() == (tmp_path / "same.csv").read_text()

    class Gone(io.StringIO):
        def write(self, text):
            if len(self.getvalue()) > 300:
                raise BrokenPipeError(32, "Broken pipe")
            return super().write(text)

    monkeypatch.setattr("sys.stdin", io.StringIO("s\n" * 9))
    monkeypatch.setattr("sys.stdout", Gone())
    assert command(["play", "tetris", "--out", str(path), "--seed", "3"]) == 1
    assert capsys.readouterr().err == "ethogram: standard output is closed\n"


def at_a_terminal(path, answers, lines_and_width=(0, 0), **settings) -> str:
    """What a terminal showed to a player who answers the first sight of each move with some keys."""
    pty, termios = pytest.importorskip("pty"), pytest.importorskip("termios")
    main, side = pty.openpty()
    termios.tcsetwinsize(side, lines_and_width)
    shown = bytearray()

    def sit():
        waiting = list(enumerate(answers, 1))
        while True:
            try:
                shown.extend(os.read(main, 4096))
            except OSError:
                return
            if waiting and f"move {waiting[0][0]}." in shown.decode(errors="ignore"):
                os.write(main, waiting.pop(0)[1])

    before = termios.tcgetattr(side)
    person = threading.Thread(target=sit)
    person.start()
    try:
        with os.fdopen(os.dup(side), "r") as stdin, os.fdopen(os.dup(side), "w") as stdout:
            play_tetris(path, stdin=stdin, stdout=stdout, **SIZE | settings)
            assert termios.tcgetattr(side) == before
    finally:
        os.close(side)
        person.join()
        os.close(main)
    return shown.decode()


def test_keys_at_a_terminal(tmp_path, monkeypatch):
    """As lines play; a dumb terminal is read by the line, and time runs out without a key."""
    monkeypatch.setenv("TERM", "xterm")
    path = tmp_path / "games.csv"
    answers = [b"\n", b"\x1b[D\n", b"\x1bOA ", b"D\x1b[B", b"\x1b[5~s", b"q"]
    shown = at_a_terminal(path, answers, seed=3)
    played(tmp_path / "lines.csv", ["s", "as", "ws", "ds", "s", "q"], seed=3)
    assert path.read_text() == (tmp_path / "lines.csv").read_text()
    assert "load_games" in shown and "\x1b[H" in shown
    shown = at_a_terminal(tmp_path / "late.csv", [], seed=3, seconds=0.05, moves=3)
    rows = rows_of(tmp_path / "late.csv")
    assert len(rows) == 3 and not any(row["action"] for row in rows) and all(row["drop"] for row in rows)
    assert "Time is up" in shown and "load_games" not in shown
    monkeypatch.setenv("TERM", "dumb")
    shown = at_a_terminal(tmp_path / "dumb.csv", [b"as\n", b"q\n"], seed=3)
    assert len(rows_of(tmp_path / "dumb.csv")) == 1 and "\x1b" not in shown


def test_a_board_that_the_terminal_cannot_hold_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    for room, settings, message in (
        ((24, 80), {"rows": 30}, "30 rows and 6 columns needs 32 lines of 13 characters, .* has 24 of 80"),
        ((24, 80), {"rows": 8, "cols": 40}, "8 rows and 40 columns needs 10 lines of 81 characters"),
    ):
        with pytest.raises(ValueError, match=message):
            at_a_terminal(tmp_path / "games.csv", [b"q"], room, **settings)
    assert not list(tmp_path.iterdir())
    shown = at_a_terminal(tmp_path / "games.csv", [b"s", b"q"], (24, 20), rows=22, seed=3)
    lines = re.split(r"\x1b\[H|\r\n", shown.split("Moves recorded")[0])
    assert len(rows_of(tmp_path / "games.csv")) == 1
    assert max(len(re.sub(r"\x1b\[[0-9]*[A-Z]", "", line)) for line in lines) == 20


@pytest.mark.slow
def test_what_is_printed_at_the_end_learns_from_the_games(tmp_path):
    _, printed = played(tmp_path / "games.csv", random_lines(1, 10), seed=0)
    code = re.search(r"\n\n((?: {4}.*\n|\n)+)", printed)[1]
    code = code.replace("500", "5").replace("=1000", "=5, progress_bar=False").replace("    ", "")
    names: dict = {}
    with pytest.warns(UserWarning, match="the draws have not converged"):  # five of them
        exec(code, names)
    assert names["mcmc"].get_samples()["v"].shape == (10, 3)  # two chains
