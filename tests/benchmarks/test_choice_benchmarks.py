"""Benchmarks of the noisy MDP: a hurried player piece by piece."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import log_ndtr

from benchmarks.papers import choice_published
from benchmarks.papers import tetris as paper
from benchmarks.speed import choice_samplers, px_da
from ethogram.domains import tetris
from ethogram.models.choices.decisions import Decisions
from ethogram.models.choices.noisy_mdp import NoisyMDP

TRUTH = (-3.0, -15.0, -1.0)


def features_of(board: np.ndarray) -> list[int]:
    rows = len(board)
    heights = [int(rows - column.argmax()) if column.any() else 0 for column in board.T]
    holes = sum(
        int(not board[r, c] and board[:r, c].any()) for r in range(rows) for c in range(board.shape[1])
    )
    return [max(heights), holes, int(np.sum(np.diff(heights) ** 2))]


def fall(board: np.ndarray, piece: int) -> np.ndarray:
    """The board after an unturned piece came down in the middle, a row at a time."""
    shape = np.array([[int(cell) for cell in row] for row in list(tetris.PIECES.values())[piece]], bool)
    tall, wide = shape.shape
    left, top = (board.shape[1] - wide) // 2, 0

    def free(at: int) -> bool:
        return at + tall <= len(board) and not (board[at : at + tall, left : left + wide] & shape).any()

    if not free(0) or board[0].any():
        board = np.zeros_like(board)
    while free(top + 1):
        top += 1
    board = board.copy()
    board[top : top + tall, left : left + wide] |= shape
    left_over = board[~board.all(1)]
    return np.concatenate([np.zeros((len(board) - len(left_over), board.shape[1]), bool), left_over])


@pytest.mark.slow
def test_pieces_that_nobody_decides_on_fall_straight():
    pieces = np.random.default_rng(3).integers(7, size=60)
    played = paper.hurried_play(
        jax.random.key(0), jnp.asarray(TRUTH), jnp.asarray(pieces), jnp.zeros(60, bool), 12
    )
    features, legal, slot = (np.asarray(x) for x in played)
    board = np.zeros((12, 10), bool)
    for t, piece in enumerate(pieces):
        board = fall(board, piece)
        assert legal[t, slot[t]]
        assert features[t, slot[t]].tolist() == features_of(board)


@pytest.mark.slow
def test_a_player_with_time_takes_what_is_worth_most():
    pieces = jax.random.randint(jax.random.key(1), (40,), 0, 7)
    values = 1e4 * np.array(TRUTH)  # beside which noise is nothing
    played = paper.hurried_play(jax.random.key(2), jnp.asarray(values), pieces, jnp.ones(40, bool), 20)
    features, legal, slot = (np.asarray(x) for x in played)
    utilities = np.where(legal, features @ values, -np.inf)
    assert (utilities[np.arange(40), slot] == utilities.max(1)).all()
    assert legal.sum(1).tolist() == [tetris.placements().exists[p].sum() for p in np.asarray(pieces)]


@pytest.mark.slow
def test_log_probability_is_that_of_the_mean_over_draws():
    random = np.random.default_rng(5)
    features = random.normal(size=(4, 3, 3))
    legal = np.array([[True, True, True]] * 3 + [[True, False, True]])
    data = Decisions(features, legal, np.array([0, 2, 1, 0]))
    theta = random.normal(size=(6, 3))
    x = np.linspace(-9, 9, 2001)
    each = []
    for one in theta:
        utilities, row = features @ one, []
        for t, a in enumerate(data.choice):
            others = [j for j in range(3) if legal[t, j] and j != a]
            tails = sum(log_ndtr(x + utilities[t, a] - utilities[t, j]) for j in others)
            row.append(np.sum(np.exp(tails - x**2 / 2)) * (x[1] - x[0]) / np.sqrt(2 * np.pi))
        each.append(row)
    expected = np.mean(np.log(np.mean(each, axis=0)))
    with jax.enable_x64(True):
        found = paper.mean_log_probability(jnp.asarray(theta), paper.bare(data))
    assert float(found) == pytest.approx(expected, abs=1e-7)


def test_effective_samples_are_those_of_all_chains():
    random = np.random.default_rng(0)
    draws = np.empty((4, 4000, 2))
    draws[:, 0] = random.normal(size=(4, 2))
    for t in range(1, 4000):  # the second is autoregressive: (1 - .8) / (1 + .8) of its draws count
        draws[:, t] = np.array([0, 0.8]) * draws[:, t - 1] + np.array([1, 0.6]) * random.normal(size=(4, 2))
    independent, slow = px_da.bulk_ess(draws)
    assert independent == pytest.approx(16_000, rel=0.15) and slow == pytest.approx(16_000 / 9, rel=0.2)


def test_selection_of_swissmetro(tmp_path):
    """Of five answers, one of another purpose and one unknown; season tickets are free, cars only where stated."""
    names = "PURPOSE CHOICE GA SP TRAIN_AV CAR_AV SM_AV TRAIN_TT TRAIN_CO SM_TT SM_CO CAR_TT CAR_CO".split()
    rows = ["1 2 0 1 1 1 1 112 48 63 52 117 65", "3 3 1 1 1 1 1 100 40 60 50 90 30", "2 1 0 1 1 1 1 1 1 1 1 1 1",
            "1 0 0 1 1 1 1 1 1 1 1 1 1", "1 1 0 1 1 0 1 200 70 80 90 0 0"]  # fmt: skip
    path = tmp_path / "swissmetro.csv"
    path.write_text("\n".join(",".join(row) for row in [names, *map(str.split, rows)]))
    data = choice_published.swissmetro(path)
    assert data.metadata.feature_names == ("cost", "time", "train", "car") and data.choice.tolist() == [
        1,
        2,
        0,
    ]
    assert data.legal.tolist() == [[True] * 3, [True] * 3, [True, True, False]]
    np.testing.assert_allclose(data.features[0, :, :2], [[0.48, 1.12], [0.52, 0.63], [0.65, 1.17]])
    assert data.features[1, :, 0].tolist() == [0, 0, 0.3]


def test_absent_files_are_rows():
    assert choice_published.file_of("no_such_package", "data.csv") is None
    assert choice_published.file_of("numpy", "no_such_file.csv") is None
    for row in (*choice_published.rows_of_travellers(None), *choice_published.rows_of_swissmetro(None, 1)):
        assert row["what"].startswith("skipped: ") and "pip install" in row["what"]


def test_regret_is_over_the_least_cost_of_what_is_usable():
    rows = [{"cost_s": 3.0}, {"cost_s": None}, {"cost_s": 2.0}, {"skipped": "refused"}]
    assert choice_samplers.regret(rows) == 1.5
    assert choice_samplers.regret([{"skipped": "refused"}, {"cost_s": 2.0}]) == float("inf")


def test_costs_are_those_of_the_second_fit():
    data = choice_samplers._simulated(0, 40, 3, 2)
    numbers = []
    row = choice_samplers.cost_of(
        NoisyMDP(kappa=4.0, kind="features"), "laplace", lambda number: numbers.append(number) or data, 0
    )
    assert numbers == [0, 1] and row["took"] == "laplace" and row["pareto_k"] < 0.7
    assert row["cost_s"] == row["seconds"] * max(1.0, 400 / row["ess"])
