"""Benchmarks of the noisy MDP: a hurried player piece by piece, and targets of made-up rows."""

from __future__ import annotations

import argparse

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import log_ndtr

from benchmarks.papers import tetris as paper
from benchmarks.speed import px_da
from ethogram.domains import tetris, toy_chain
from ethogram.models.choices.decisions import Decisions

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


def test_targets_are_those_of_a_hundred_decisions():
    rows = []
    for player in paper.PLAYERS:
        for count, error in ((10, 0.2), (100, 0.1)):
            row = {"player": paper.named(player), "observations": count, "sampler": "NUTS"}
            rows.append(row | {"action_error": error, "noise_floor": 0.08, "survived": 65})
    checks = {row["check"]: row for row in paper.checks_of_learning(paper.FULL, rows, 20)}
    assert checks["action error less floor"]["value"] == pytest.approx(0.02)
    assert checks["action error less floor"]["reached"] and checks["action error"]["reached"]
    assert not checks["survives 250 moves, of 100"]["reached"]
    assert checks["action error, at 100 less at 10"]["value"] == pytest.approx(-0.1)
    few = paper.QUICK._replace(lengths={10: (1, 1)}, games=100)
    assert all("reached" not in row for row in paper.checks_of_learning(few, rows[:1], 20))


def test_the_first_seed_has_a_row_by_data_augmentation_whatever_it_is(monkeypatch):
    """On the least of the heights, for every player."""
    asked = []

    def learned(sizes, player, height, seed, with_pxda):
        asked.append((player, height, seed, with_pxda))
        return []

    monkeypatch.setattr(paper, "rows_of_learning", learned)
    for name in ("rows_of_simulator", "rows_of_truth", "checks_of_learning", "rows_of_hurry"):
        monkeypatch.setattr(paper, name, lambda *_: [])
    sizes = paper.FULL._replace(seeds={20: 2, 30: 1}, players=paper.PLAYERS[:2])
    monkeypatch.setattr(paper, "FULL", sizes)
    paper.measure(argparse.Namespace(quick=False, seed=7))
    assert [each for each in asked if each[3]] == [(player, 20, 7, True) for player in sizes.players]
    assert len(asked) == 2 * 2 + 2


def test_names_of_cases_are_those_that_can_be_asked_for(monkeypatch):
    for world in (toy_chain, tetris):
        monkeypatch.setattr(world, "simulate", lambda *_, **__: argparse.Namespace(decisions=None))
    made = px_da.cases(argparse.Namespace(quick=False, seed=0, size=None))
    assert tuple(made) == px_da.SIZES


def test_effective_samples_are_those_of_all_chains():
    random = np.random.default_rng(0)
    draws = np.empty((4, 4000, 2))
    draws[:, 0] = random.normal(size=(4, 2))
    for t in range(1, 4000):  # the second is autoregressive: (1 - .8) / (1 + .8) of its draws count
        draws[:, t] = np.array([0, 0.8]) * draws[:, t - 1] + np.array([1, 0.6]) * random.normal(size=(4, 2))
    independent, slow = px_da.bulk_ess(draws)
    assert independent == pytest.approx(16_000, rel=0.15) and slow == pytest.approx(16_000 / 9, rel=0.2)


def test_medians_over_worlds_are_held_against_the_targets():
    rows = []
    for world, factor in enumerate((1.0, 2.0, 9.0)):
        for sampler, rate in (("da", 10.0), ("scale+translate", 20.0), ("local+scale", 25.0)):
            row = {"sampler": sampler, "collapse_scale": None, "dtype": "float64", "seed": world}
            row |= {"ratio_to_nuts": rate * factor, "mean_ess_per_s": rate, "min_ess_per_s": rate / factor}
            rows.append(row)
    checks = {row["check"]: row for row in px_da.checks("middle", rows)}
    against_nuts = checks["min ESS/s, local+scale over NUTS"]
    assert against_nuts["value"] == 50 and against_nuts["target"] == 24 and against_nuts["reached"]
    assert checks["mean ESS/s, local+scale over da"]["value"] == 2.5
    assert checks["min ESS/s, local+scale over scale+translate"]["value"] == 1.25
