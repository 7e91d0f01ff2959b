"""Recorded games of Tetris, against a simulator that knows nothing but the rules, and texts written by hand."""

from __future__ import annotations

import itertools
import os

import jax
import numpy as np
import pandas
import polars
import pytest

from ethogram.domains import tetris
from ethogram.domains.tetris import records as tetris_records
from ethogram.domains.tetris.records import board_text, load_games, read_table, write_games, write_table

SHAPES = {
    "I": ["1111"], "O": ["11", "11"], "T": ["111", "010"], "S": ["011", "110"], "Z": ["110", "011"],
    "J": ["100", "111"], "L": ["001", "111"],
}  # fmt: skip
EMPTY = "....../....../....../......"


def after(board: str, piece: str, rotation: int, column: int) -> str | None:
    """The board that a placement leads to, all as text; None where it is not legal."""
    shape, rows = [list(row) for row in SHAPES[piece]], [list(row) for row in board.split("/")]
    for _ in range(rotation):  # a quarter turn counter-clockwise: the last column becomes the first row
        shape = [[row[c] for row in shape] for c in reversed(range(len(shape[0])))]
    cells = [(r, column + c) for r, row in enumerate(shape) for c, cell in enumerate(row) if cell == "1"]
    if any(r >= len(rows) or c >= len(rows[0]) or rows[r][c] == "#" for r, c in cells):
        return None
    while all(r + 1 < len(rows) and rows[r + 1][c] == "." for r, c in cells):
        cells = [(r + 1, c) for r, c in cells]
    for r, c in cells:
        rows[r][c] = "#"
    kept = [row for row in rows if "." in row]
    return "/".join("".join(row) for row in [["."] * len(rows[0])] * (len(rows) - len(kept)) + kept)


def basic_features(board: str) -> list[int]:
    rows = board.split("/")
    columns = ["".join(column) for column in zip(*rows, strict=True)]
    heights = [len(column.lstrip(".")) for column in columns]
    holes = sum(column.lstrip(".").count(".") for column in columns)
    return [max(heights), holes, sum((a - b) ** 2 for a, b in itertools.pairwise(heights))]


def random_games(seed: int, num_rows: int, rows: int, cols: int, timed_out: float) -> dict[str, list]:
    """Games of somebody who does anything that is legal, and often runs out of time."""
    random, empty = np.random.default_rng(seed), "/".join(["." * cols] * rows)
    table: dict[str, list] = {name: [] for name in tetris_records.COLUMNS}
    board, game = empty, 0
    while len(table["game"]) < num_rows:
        piece = str(random.choice(list(SHAPES)))
        every = {(r, c): after(board, piece, r, c) for r in range(4) for c in range(cols)}
        legal = [where for where, leads_to in every.items() if leads_to is not None]
        if "#" in board.split("/")[0] or not legal:
            board, game = empty, game + 1
            continue
        where = legal[random.integers(len(legal))]
        late = random.random() < timed_out
        text = f"{where[0]},{where[1]}"
        row = (game, board, piece, None if late else text, text if late else None)
        for name, value in zip(table, row, strict=True):
            table[name].append(value)
        board = every[where]
    return table


def test_two_moves_written_by_hand():
    """A T lies on its long side, and a square goes to the right edge, two columns from it."""
    boards = [EMPTY, "....../....../.#..../###...", "....../....../.#..../######"]
    games = load_games(
        {"game": ["a"] * 2, "board": boards[:2], "piece": ["T", "O"], "action": ["2,0", "0, 4"]}
    )
    assert games.skipped == 0 and games.disagreeing == ()
    play, where = games.play, tetris.placements(6)
    assert play.boards.shape == (2, 4, 6) and play.game.tolist() == [0, 0]
    assert "".join(list(SHAPES)[piece] for piece in play.pieces) == "TO"
    slots = play.decisions.choice
    assert [where.rotation[p, s] for p, s in zip(play.pieces, slots, strict=True)] == [2, 0]
    assert [where.column[p, s] for p, s in zip(play.pieces, slots, strict=True)] == [0, 4]
    assert play.decisions.features[[0, 1], slots].tolist() == [[2, 0, 1 + 1 + 1], [2, 0, 1 + 1 + 1 + 4]]
    assert play.decisions.metadata.feature_names == ("height", "holes", "bumpiness")
    assert load_games({**games.table, "board": [boards[0], boards[2]]}).disagreeing == (1,)


SLOW = [(12, 6, False), (7, 5, True), (20, 10, True), (20, 10, False)]


@pytest.mark.parametrize(
    ("rows", "cols", "dedupe"),
    [(12, 6, True), (7, 5, False), *(pytest.param(*size, marks=pytest.mark.slow) for size in SLOW)],
)
def test_games_of_a_simulator_of_the_rules_are_read_as_they_were_played(rows, cols, dedupe):
    table = random_games(rows, 140, rows, cols, timed_out=0.2)
    games = load_games(table, dedupe=dedupe)
    decided = [row for row in range(140) if table["action"][row] is not None]
    assert games.disagreeing == () and games.skipped == 140 - len(decided) > 10
    assert games.play.game.tolist() == [table["game"][row] for row in decided]
    decisions, where = games.play.decisions, tetris.placements(cols, dedupe)
    for number, row in enumerate(decided):
        board, piece = table["board"][row], table["piece"][row]
        assert board_text(games.play.boards[number]) == board
        letter = list(SHAPES).index(piece)
        assert games.play.pieces[number] == letter
        every = [
            after(board, piece, where.rotation[letter, slot], where.column[letter, slot]) if there else None
            for slot, there in enumerate(where.exists[letter])
        ]
        assert decisions.legal[number].tolist() == [leads_to is not None for leads_to in every]
        rotation, column = map(int, table["action"][row].split(","))
        slot = decisions.choice[number]
        assert every[slot] == after(board, piece, rotation, column)
        assert decisions.features[number, slot].tolist() == basic_features(every[slot])
        if not dedupe:
            assert (where.rotation[letter, slot], where.column[letter, slot]) == (rotation, column)


def test_rows_that_the_rules_do_not_lead_to_are_listed():
    table = random_games(3, 300, 12, 6, timed_out=0.3)
    same_game = [row for row in range(1, 300) if table["game"][row] == table["game"][row - 1]]
    random, wrong = np.random.default_rng(0), set()
    for row in random.choice(same_game, 12, replace=False):
        cells = list(table["board"][row])
        cells[-1] = (
            "#" if cells[-1] == "." else "."
        )  # the lowest cell on the right: every placement stays legal
        table["board"][row] = "".join(cells)
        wrong |= {int(row), int(row) + 1} & set(same_game)
    assert load_games(table).disagreeing == tuple(sorted(wrong))


def test_a_fall_that_was_not_recorded_may_have_been_any():
    table = random_games(4, 200, 12, 6, timed_out=0.3)
    del table["drop"]
    assert load_games(table).disagreeing == ()
    late = [
        row
        for row in range(199)
        if table["action"][row] is None and table["game"][row] == table["game"][row + 1]
    ]
    table["board"][late[0] + 1] = table["board"][late[0]]
    assert late[0] + 1 in load_games(table).disagreeing


def test_a_row_after_a_skipped_tuck_agrees():
    """An I under an overhang, where no straight fall ends; with a hole filled, the row is cleared."""
    empty = "....../....../....../"
    for boards, disagreeing in (
        (("####../......", "####../####.."), ()),
        (("####../....##", "....../####.."), ()),
        (("..####/......", "######/......"), (1,)),  # two cells more
    ):
        table = {"game": [0, 0], "board": [empty + each for each in boards]}
        table |= {"piece": ["I", "T"], "action": [None, "1,0"]}
        games = load_games(table)
        assert games.disagreeing == disagreeing and games.skipped == 1
    table["board"] = [empty + "####../......", "....../####../....../####../......"]  # in the air
    assert load_games({**table, "action": [None, "0,4"], "piece": ["I", "O"]}).disagreeing == (1,)
    table["board"] = [empty + "####../......", empty + "####../####.."]
    assert load_games({**table, "action": ["0,0", "1,0"]}).disagreeing == (1,)  # it falls straight


def test_a_game_that_goes_on_after_its_end_disagrees():
    over = "..#.../..#.../..#.../..#..."
    table = {"game": [7, 7, 8], "board": [EMPTY, over, over], "piece": ["I", "O", "O"]}
    assert load_games({**table, "action": ["1,2", "0,4", "0,0"]}).disagreeing == (1, 2)


def test_games_may_be_interleaved():
    table = random_games(5, 60, 12, 6, timed_out=0.0)
    twice = {name: [value for value in column for _ in range(2)] for name, column in table.items()}
    twice["game"] = [f"{game} {'ab'[row % 2]}" for row, game in enumerate(twice["game"])]
    games = load_games(twice)
    assert games.disagreeing == () and games.play.game[:4].tolist() == [0, 1, 0, 1]


@pytest.mark.parametrize(
    ("features", "dedupe"),
    [
        ("bertsekas", False), *(pytest.param("basic", dedupe, marks=pytest.mark.slow) for dedupe in (False, True)),
    ],
)  # fmt: skip
def test_decisions_of_the_simulator_come_back(tmp_path, dedupe, features):
    play = tetris.simulate(
        jax.random.key(0), 0.1 * np.ones(3 if features == "basic" else 2 + 6 + 5), 120, rows=12, cols=6,
        features=features, dedupe=dedupe,
    )  # fmt: skip
    write_games(tmp_path / "games.csv", play)
    games = load_games(tmp_path / "games.csv", features=features, dedupe=dedupe)
    assert games.skipped == 0 and games.disagreeing == () and len(set(play.game)) > 2
    again, (options, legal, choice, *_) = games.play, games.play.decisions
    np.testing.assert_array_equal(again.boards, play.boards)
    np.testing.assert_array_equal(again.pieces, play.pieces)
    np.testing.assert_array_equal(np.diff(again.game), np.diff(play.game))
    np.testing.assert_array_equal(options, play.decisions.features)
    np.testing.assert_array_equal(legal, play.decisions.legal)
    np.testing.assert_array_equal(choice, play.decisions.choice)
    assert again.decisions.metadata == play.decisions.metadata


def test_rows_without_a_decision_come_back(tmp_path):
    table = random_games(6, 80, 12, 6, timed_out=0.3)
    games = load_games(table)
    write_games(tmp_path / "games.csv", games)
    again = load_games(tmp_path / "games.csv")
    assert again.skipped == games.skipped > 0 and again.disagreeing == () and again.table == games.table
    np.testing.assert_array_equal(again.play.decisions.choice, games.play.decisions.choice)
    unknown = games.play.decisions._replace(choice=np.where(np.arange(80 - games.skipped) % 2, -1, 0))
    write_games(tmp_path / "half.csv", games.play._replace(decisions=unknown))
    assert load_games(tmp_path / "half.csv").skipped == (80 - games.skipped) // 2


@pytest.mark.parametrize("kind", [pandas.DataFrame, polars.DataFrame, "path", str])
def test_tables_of_all_kinds_are_one(tmp_path, kind):
    table = random_games(7, 40, 12, 6, timed_out=0.3)
    path = tmp_path / "games.csv"
    pandas.DataFrame(table).to_csv(path, index=False)
    given = {"path": path, str: str(path)}.get(kind) or kind(table)
    expected, games = load_games(table), load_games(given)
    assert games.skipped == expected.skipped and games.disagreeing == ()
    jax.tree.map(np.testing.assert_array_equal, games.play, expected.play)
    if kind in (pandas.DataFrame, polars.DataFrame):
        module = pandas if kind is pandas.DataFrame else polars
        jax.tree.map(np.testing.assert_array_equal, load_games(module.read_csv(path)).play, expected.play)


def test_a_rotation_that_looks_like_an_earlier_one_is_that_one():
    def choice(piece, action, dedupe=True):
        table = {"game": [0], "board": [EMPTY], "piece": [piece], "action": [action]}
        return int(load_games(table, dedupe=dedupe).play.decisions.choice[0])

    assert choice("S", "2,1") == choice("S", "0 1") and choice("S", "3,1") == choice("S", "1,1")
    assert len({choice("O", f"{turns},4") for turns in range(4)}) == 1
    assert len({choice("O", f"{turns},4", dedupe=False) for turns in range(4)}) == 4
    assert len({choice("T", f"{turns},1") for turns in range(4)}) == 4


def test_a_file_may_be_written_by_a_spreadsheet(tmp_path):
    """A byte order mark, lines that end as elsewhere, an empty line at the end, and a column of one's own."""
    lines = ["game,board,piece,action,mood", f"1,{EMPTY},T,2 0,glad", "1,....../....../.#..../###...,I,,", ""]
    (tmp_path / "games.csv").write_bytes(b"\xef\xbb\xbf" + "\r\n".join(lines).encode())
    games = load_games(tmp_path / "games.csv")
    assert games.play.decisions.num_decisions == 1 and games.skipped == 1 and games.disagreeing == ()
    assert read_table(tmp_path / "games.csv")["mood"] == ["glad", ""]


HAND = {
    "game": [0, 0],
    "board": [EMPTY, "....../....../.#..../###..."],
    "piece": ["T", "I"],
    "action": ["2,0", "0,0"],
}


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("piece", "X", "row 1: piece is 'X', not one of I, O, T"),
        ("piece", "", "row 1: piece is empty"),
        ("piece", None, "column 'piece' is null in row 1"),
        ("board", "....../....../.o..../###...", "row 1: board is '....../....../.o"),
        ("board", "....../....../.#.../###...", "row 1: board is .*of equal length"),
        ("board", ".../.../...", "row 1: board is .*at least 4 by 4"),
        ("board", "...../...../...../.....", "row 1: board has 4 rows and 5 columns, that of row 0 4 and 6"),
        ("board", "...#../.#..../.#..../###...", "row 1: action '0,0' of piece I is not legal"),
        ("action", "left", "row 1: action is 'left', not 'rotation,column'"),
        ("action", "-1,0", "row 1: action is '-1,0', not"),
        ("action", "4,0", "row 1: action '4,0' of piece I is not on the board: rotations are 0 to 3"),
        ("action", "0,3", "row 1: action '0,3' of piece I is not on the board: .* within 6 columns"),
        ("action", "0,9", "row 1: action '0,9' of piece I is not on the board"),
        ("game", None, "column 'game' is null in row 1"),
    ],
)
def test_bad_rows_are_named(column, value, message):
    table = {name: list(values) for name, values in HAND.items()}
    table[column][1] = value
    with pytest.raises(ValueError, match=message):
        load_games(table)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"action": [None, ""]}, ValueError, "action is empty in all 2 rows"),
        ({"action": [1.3, 2.0]}, TypeError, "column 'action' has dtype float64: pass text"),
        ({"action": ["2,0", None], "drop": [None, "0,5"]}, ValueError, "row 1: drop '0,5' of piece I is not on"),
        ({"piece": ["T"]}, ValueError, r"column 'piece' has shape \(1,\)"),
    ],
)  # fmt: skip
def test_bad_tables_are_named(change, error, message):
    with pytest.raises(error, match=message):
        load_games(HAND | change)


def test_other_bad_input_is_named():
    with pytest.raises(ValueError, match="features must be 'basic' or 'bertsekas'"):
        load_games(HAND, features="wide")
    with pytest.raises(ValueError, match="no column 'action'"):
        load_games({name: HAND[name] for name in ("game", "board", "piece")})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "it is empty: write a header with the columns"),
        (b"game,board,piece\n", "no column 'action'"),
        (b"game,board,piece,action\n", "no rows"),
        (b"game,board,piece,action\n0,....,T,1,3\n", 'row 0 has 5 cells, not 4: quote actions, as in "1,3"'),
        (b'game,board,piece,action\n0,....,T,"1,', "not a CSV file, or is truncated"),
        (b"\xff\xfe\x00", "not a CSV file"),
        (b"game,board,piece,action\n0,..../..../..../....,T,9 9\n", "row 0: action '9,9' of piece T is not on"),
        (
            b"game;board;piece;action\n0;..../..../..../....;T;0 0\n",
            "its header is 'game;board;piece;action': separate cells by commas, not by ';'",
        ),
        (
            b"game,board,piece,action,mood,mood\n0,..../..../..../....,T,0 0,glad,sad\n",
            "column names must be unique; 'mood' appears twice",
        ),
    ],
)  # fmt: skip
def test_bad_files_are_named(tmp_path, text, message):
    path = tmp_path / "games.csv"
    path.write_bytes(text)
    with pytest.raises(ValueError, match=f"games.csv.*{message}") as caught:
        load_games(path)
    assert str(caught.value).count("games.csv") == 1
    with pytest.raises(FileNotFoundError):
        load_games(tmp_path / "none.csv")


def test_a_file_whose_moves_could_not_be_made_is_not_read(tmp_path):
    """What `load_games` refuses, `read_table` refuses: a placement outside, and one whose cells are taken."""
    taken = "...#../.#..../.#..../###..."
    for action, board in (("0 3", EMPTY), ("0 0", taken)):
        path = tmp_path / "games.csv"
        path.write_text(f"game,board,piece,action\n0,{board},I,{action}\n")
        for read in (load_games, read_table):
            with pytest.raises(ValueError, match=r"games.csv: row 0: action '0,\d' of piece I is not"):
                read(path)


@pytest.mark.parametrize(
    ("games", "error", "message"),
    [
        (5, TypeError, "games is int: pass Games, a Play, a DataFrame or a mapping of columns"),
        ({"foo": [0]}, ValueError, r"no column 'game': its columns are \['foo'\]"),
        (HAND | {"piece": ["T", "X"]}, ValueError, "row 1: piece is 'X'"),
        (HAND | {"action": ["2,0", "0,3"]}, ValueError, "row 1: action '0,3' of piece I is not on the board"),
        (HAND | {"piece": ["T"]}, ValueError, r"column 'piece' has shape \(1,\)"),
    ],
)
def test_what_is_no_record_is_not_written(tmp_path, games, error, message):
    with pytest.raises(error, match=message):
        write_games(tmp_path / "games.csv", games)
    assert not list(tmp_path.iterdir())


def test_tables_are_written_as_they_are_read(tmp_path):
    path, same = tmp_path / "games.csv", tmp_path / "same.csv"
    write_games(path, HAND)
    write_games(same, pandas.DataFrame(HAND))
    assert load_games(path).disagreeing == () and path.read_text() == same.read_text()


def test_an_interrupted_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "games.csv"
    path.write_text("old")
    with pytest.raises(ValueError):
        write_table(path, {"game": ["0", "1"], "board": [EMPTY]})

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match=r"No space left on device: '.*games.csv'"):
        write_table(path, {"game": ["0"]})
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_a_file_keeps_its_mode_and_a_link_stays_a_link(tmp_path):
    path, link = tmp_path / "games.csv", tmp_path / "link.csv"
    path.write_text("old")
    path.chmod(0o640)
    link.symlink_to(path)
    write_games(link, HAND)
    assert path.stat().st_mode & 0o777 == 0o640 and link.is_symlink()
    assert read_table(path)["piece"] == ["T", "I"]


def test_what_is_no_file_of_ones_own_is_not_replaced(tmp_path):
    path = tmp_path / "games.csv"
    path.write_text("old")
    path.chmod(0o444)
    os.mkfifo(tmp_path / "pipe")
    places = {
        path: "games.csv cannot be written: it is read-only",
        tmp_path / "pipe": "pipe cannot be written: it is a device or a pipe",
        tmp_path: "cannot be written: it is a folder",
        tmp_path / "none" / "games.csv": "cannot be written: the folder .*none does not exist",
        "/dev/null": "/dev/null cannot be written: it is a device",
    }
    for place, message in places.items():
        with pytest.raises(OSError, match=message):
            write_games(place, HAND)
    assert path.read_text() == "old" and (tmp_path / "pipe").is_fifo() and os.path.exists("/dev/null")
