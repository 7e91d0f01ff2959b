"""Tetris against a slow simulator that knows nothing of it but the rules, and how long players of the paper last."""

from __future__ import annotations

import importlib.util
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ethogram.domains import tetris
from ethogram.domains.tetris import game

SHAPES = ["1111", "11/11", "111/010", "011/110", "110/011", "100/111", "001/111"]


def slowly(board, piece, rotation, column):
    """The board after a placement, row by row; None where it is not legal."""
    shape = [[cell == "1" for cell in row] for row in SHAPES[piece].split("/")]
    for _ in range(rotation):  # a quarter turn counter-clockwise: the last column becomes the first row
        shape = [[row[c] for row in shape] for c in reversed(range(len(shape[0])))]
    cells = [(r, column + c) for r, row in enumerate(shape) for c, cell in enumerate(row) if cell]
    rows, cols = board.shape
    if any(c >= cols or r >= rows or board[r, c] for r, c in cells):
        return None
    while all(r + 1 < rows and not board[r + 1, c] for r, c in cells):
        cells = [(r + 1, c) for r, c in cells]
    board = board.copy()
    for r, c in cells:
        board[r, c] = True
    kept = [row for row in board if not row.all()]
    return np.array([[False] * cols] * (rows - len(kept)) + [list(row) for row in kept])


def slow_features(board):
    rows, cols = board.shape
    heights = [next((rows - r for r in range(rows) if board[r, c]), 0) for c in range(cols)]
    holes = sum(
        not board[r, c] and any(board[above, c] for above in range(r))
        for c in range(cols)
        for r in range(rows)
    )
    return [
        max(heights),
        holes,
        sum((a - b) ** 2 for a, b in itertools.pairwise(heights)),
    ], heights


def random_board(random, rows, cols):
    """Columns of random heights with holes, and rows that lack one cell: near to full ones."""
    board = np.zeros((rows, cols), bool)
    for c in range(cols):
        height = random.integers(rows - 3)
        board[rows - height :, c] = random.random(height) < 0.8
    for r in random.integers(rows // 2, rows, size=2):
        board[r] = True
        board[r, random.integers(cols)] = False
    return board


@pytest.mark.parametrize(
    ("rows", "cols", "dedupe"),
    [(12, 10, True), (8, 5, False), *(pytest.param(n, 10, n < 30, marks=pytest.mark.slow) for n in (20, 30))],
)
def test_outcomes_are_those_of_the_slow_simulator(rows, cols, dedupe):
    random, table = np.random.default_rng(0), tetris.placements(cols, dedupe)
    boards = np.stack([random_board(random, rows, cols) for _ in range(28)])
    pieces = np.arange(28) % 7
    sets = ("basic", "bertsekas") if dedupe else ("basic",)
    several = jax.vmap(lambda *one: [tetris.outcomes(*one, features=name, dedupe=dedupe) for name in sets])
    found, wide = (jax.tree.map(np.asarray, jax.jit(several)(boards, pieces)) * 2)[:2]
    for number, (board, piece) in enumerate(zip(boards, pieces, strict=True)):
        for slot in range(table.exists.shape[1]):
            after = None
            if table.exists[piece, slot]:
                after = slowly(board, piece, table.rotation[piece, slot], table.column[piece, slot])
            assert bool(found.legal[number, slot]) == (after is not None)
            if after is not None:
                np.testing.assert_array_equal(found.boards[number, slot], after)
                features, heights = slow_features(after)
                assert found.features[number, slot].tolist() == features
                if dedupe:
                    steps = np.abs(np.diff(heights)).tolist()
                    assert wide.features[number, slot].tolist() == [*features[:2], *heights, *steps]
                gone = (board.sum() + 4 - after.sum()) / cols
                assert gone == int(gone) and not after.all(1).any()


def test_numbers_of_placements():
    assert tetris.placements().exists.sum(1).tolist() == [17, 9, 34, 17, 17, 34, 34]
    assert tetris.placements(dedupe=False).exists.sum(1).tolist() == [34, 36, 34, 34, 34, 34, 34]
    with pytest.raises(ValueError, match="cols must be at least 4, not 3"):
        tetris.placements(3)


def simulated(seed, values, **settings):
    """Plays of one length on boards of one size share a program."""
    return tetris.simulate(jax.random.key(seed), values, 120, rows=10, **settings)


def test_games_go_on_where_they_were_left():
    """Each board is what the slot chosen before led to, until a game ends: its top row is occupied, or nothing fits."""
    play = simulated(0, (0.0, 5.0, 0.0))
    table, ends = tetris.placements(), 0
    for t in range(119):
        piece, slot = play.pieces[t], play.decisions.choice[t]
        after = slowly(play.boards[t], piece, table.rotation[piece, slot], table.column[piece, slot])
        following = play.pieces[t + 1]
        stuck = all(
            slowly(after, following, table.rotation[following, s], table.column[following, s]) is None
            for s in np.flatnonzero(table.exists[following])
        )
        over = bool(after[0].any() or stuck)
        assert (play.game[t + 1] != play.game[t]) == over
        np.testing.assert_array_equal(play.boards[t + 1], np.zeros_like(after) if over else after)
        ends += over
    assert ends >= 5
    found = tetris.outcomes(jnp.asarray(play.boards[60]), play.pieces[60])
    np.testing.assert_array_equal(play.decisions.features[60], found.features)
    assert play.decisions.metadata.feature_names == ("height", "holes", "bumpiness")


def test_choices_are_the_best_of_noisy_utilities():
    """With values far apart the choice is the best placement; with none it is any, and 1 in 22 would be the best."""
    for scale, least, most in ((1e3, 0.97, 1.0), (0.0, 0.0, 0.2)):
        play = simulated(1, scale * np.array([-0.51, -0.357, -0.184]))
        utilities = play.decisions.features @ [-0.51, -0.357, -0.184]
        utilities[~play.decisions.legal] = -np.inf
        chosen = np.take_along_axis(utilities, play.decisions.choice[:, None], 1)[:, 0]
        assert least <= np.mean(chosen > utilities.max(1) - 1e-6) <= most


@pytest.mark.optimised
def test_bad_players_last_as_long_as_they_should():
    """The mean of 150 games, whose standard error is half a move; good ones do not lose."""
    values = np.repeat([(0.0, 5.0, 0.0), (-3.0, -15.0, -1.0)], (150, 5), axis=0)
    moves = tetris.play(jax.random.key(2), values, 155, 120)
    assert abs(moves[:150].mean() - 15) < 2, moves[:150].mean()
    assert np.median(moves[150:]) == 120


def unchecked(module):
    """A module as users have it: its types are not checked when it is called."""
    spec = importlib.util.spec_from_file_location(
        f"unchecked_{module.__name__.split('.')[-1]}", module.__file__
    )
    fresh = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(fresh)
    return fresh


PLAIN = unchecked(game)
VALUES = (-3.0, -15.0, -1.0)
EMPTY = np.zeros((6, 5), bool)


def test_a_player_without_noise_takes_what_is_worth_most():
    """The first of those that are worth as much, with the pieces of the player that has noise."""
    values = (0.1, -0.2, 0.1)  # beside which noise is large
    noisy, sure = (simulated(4, values, noise=noise) for noise in (True, False))
    utilities = np.where(sure.decisions.legal, sure.decisions.features @ np.float32(values), -np.inf)
    chosen = np.take_along_axis(utilities, sure.decisions.choice[:, None], 1)[:, 0]
    np.testing.assert_allclose(chosen, utilities.max(1), rtol=1e-5)
    np.testing.assert_array_equal(noisy.pieces, sure.pieces)
    assert np.mean(noisy.decisions.choice[:20] != sure.decisions.choice[:20]) > 0.5


def test_games_without_noise_are_those_of_the_simulator():
    key = jax.random.key(5)
    moves = tetris.play(key, (0.0, 5.0, 0.0), 3, 119, rows=10, noise=False)
    for one, played in zip(jax.random.split(key, 3), moves, strict=True):
        number = tetris.simulate(one, (0.0, 5.0, 0.0), 120, rows=10, noise=False).game
        assert played == np.argmax(number > 0) < 119
    assert len(set(moves.tolist())) > 1


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda at, key: at.simulate(jax.random.PRNGKey(0), VALUES), TypeError, "key must be one typed key"),
        (lambda at, key: at.play(3, VALUES), TypeError, "key must be one typed key, not int"),
        (lambda at, key: at.simulate(key, (1.0, 2.0)), ValueError, r"values has shape \(2,\), not \(3,\)"),
        (lambda at, key: at.simulate(key, (np.nan, 0, 0), 3), ValueError, "values is .*nan.*: pass finite numbers"),
        (lambda at, key: at.play(key, (0, np.inf, 0), 3), ValueError, "values is .*inf.*: pass finite numbers"),
        (lambda at, key: at.simulate(key, "high"), TypeError, "values is 'high': pass numbers"),
        (lambda at, key: at.simulate(key, VALUES, features="wide"), ValueError, "features must be 'basic' or"),
        (lambda at, key: at.simulate(key, VALUES, features=["basic"]), ValueError, r"not \['basic'\]"),
        (lambda at, key: at.simulate(key, VALUES, rows=3), ValueError, "rows must be at least 4, not 3"),
        (lambda at, key: at.simulate(key, VALUES, rows="20"), TypeError, "rows must be an integer, not '20'"),
        (lambda at, key: at.simulate(key, VALUES, 2.5), TypeError, "num_decisions must be an integer, not 2.5"),
        (lambda at, key: at.simulate(key, VALUES, 0), ValueError, "num_decisions must be at least 1, not 0"),
        (lambda at, key: at.simulate(key, VALUES, dedupe=1), TypeError, "dedupe must be True or False, not 1"),
        (lambda at, key: at.simulate(key, VALUES, noise=0.5), TypeError, "noise must be True or False, not 0.5"),
        (lambda at, key: at.play(key, np.ones((3, 3)), 4), ValueError, r"values has shape \(3, 3\)"),
        (lambda at, key: at.play(key, VALUES, 0), ValueError, "num_games must be at least 1, not 0"),
        (lambda at, key: at.play(key, VALUES, max_moves=0), ValueError, "max_moves must be at least 1, not 0"),
        (lambda at, key: at.outcomes(EMPTY, 0, features="x"), ValueError, "features must be 'basic' or .*, not 'x'"),
        (lambda at, key: at.outcomes(EMPTY, 7), ValueError, "piece is 7: pass a number from 0 to 6"),
        (lambda at, key: at.outcomes(EMPTY, -1), ValueError, "piece is -1: pass a number from 0 to 6"),
        (lambda at, key: at.outcomes(EMPTY, 1.0), TypeError, "piece must be an integer, not 1.0"),
        (lambda at, key: at.outcomes(EMPTY, [1]), TypeError, r"piece must be an integer, not \[1\]"),
        (lambda at, key: at.outcomes(EMPTY[0], 1), ValueError, r"board has shape \(5,\): pass \(row, column\)"),
        (lambda at, key: at.outcomes(EMPTY[:3], 1), ValueError, r"board has shape \(3, 5\)"),
        (lambda at, key: at.outcomes(EMPTY * 1.0, 1), TypeError, "board has dtype float64: pass booleans"),
        (lambda at, key: at.draw_placement(EMPTY, 0, 99), ValueError, "slot is 99: pass a number from 0 to "),
        (lambda at, key: at.draw_placement(~EMPTY, 0, 1), ValueError, "slot 1 is not legal for piece I"),
        (lambda at, key: at.draw_board(EMPTY[0]), ValueError, r"board has shape \(5,\)"),
    ],
)  # fmt: skip
def test_bad_input_is_named(call, error, message):
    with pytest.raises(error, match=message):
        call(PLAIN, jax.random.key(0))


def test_values_that_single_precision_cannot_hold_are_refused():
    with jax.enable_x64(False), pytest.raises(ValueError, match=r"values is .*: pass finite numbers"):
        tetris.simulate(jax.random.key(0), (1e39, 0.0, 0.0), 3)


def test_boards_are_drawn():
    board = EMPTY.copy()
    board[4:, 1:3] = True
    assert np.asarray(tetris.draw_board(board).images[0].get_array()).tolist() == board.astype(int).tolist()


def test_a_placement_is_drawn_where_it_fills_rows():
    """A square closes both rows: they still stand in the picture, with the cells that were there before."""
    before = np.zeros((9, 5), bool)
    before[7:, :3] = True
    slot = int(np.flatnonzero(tetris.placements(5).column[1] == 3)[0])
    assert not np.asarray(tetris.outcomes(before, 1).boards[slot]).any()
    axes = tetris.draw_placement(before, 1, slot)
    assert np.asarray(axes.images[0].get_array()).tolist() == [[0] * 5] * 7 + [[1, 1, 1, 2, 2]] * 2


def test_placements_are_drawn_where_they_come_to_lie():
    random, table = np.random.default_rng(2), tetris.placements(5)
    for _ in range(10):
        board, piece = random_board(random, 9, 5), int(random.integers(7))
        legal = np.flatnonzero(tetris.outcomes(board, piece).legal)
        slot = legal[random.integers(len(legal))]
        drawn = np.asarray(tetris.draw_placement(board, piece, slot).images[0].get_array())
        after = slowly(board, piece, table.rotation[piece, slot], table.column[piece, slot])
        assert (drawn == 2).sum() == 4 and ((drawn == 1) == board).all()
        kept = (drawn > 0)[~(drawn > 0).all(1)]
        assert (np.concatenate([np.zeros((9 - len(kept), 5), bool), kept]) == after).all()
