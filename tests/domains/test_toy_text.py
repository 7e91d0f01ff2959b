"""Boards of toy text: moves against the rules by loops and against stored tables, and what ends are worth."""

from __future__ import annotations

import itertools

import jax
import numpy as np
import pytest

from ethogram.domains import toy_text

STEPS = {"left": (0, -1), "down": (1, 0), "right": (0, 1), "up": (-1, 0)}
STORED = {"frozen_lake": "gp_irl/frozenlake_4x4.npz", "cliff_walking": "gp_irl/cliffwalking.npz"}


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


@pytest.fixture(params=sorted(STORED))
def files(request, stored_file):
    """Name of an environment, and the arrays that are stored of it."""
    return request.param, dict(np.load(stored_file(STORED[request.param])))


def table_of(mdp):
    """Probabilities (state, action, next state)."""
    return np.moveaxis(np.asarray(mdp.expect(np.eye(mdp.num_states))), 0, -1)


def moved(board, state, name):
    """The neighbouring cell, or the same at the edge."""
    width = len(board[0])
    row, column = state // width + STEPS[name][0], state % width + STEPS[name][1]
    inside = 0 <= row < len(board) and 0 <= column < width
    return row * width + column if inside else state


@pytest.mark.parametrize("slippery", [True, False])
def test_the_lake_follows_its_rules(slippery):
    board, names = toy_text.LAKE, toy_text.LAKE_ACTIONS
    table, reward = np.zeros((16, 4, 16)), np.zeros((16, 4))
    for state, action in itertools.product(range(16), range(4)):
        letter = board[state // 4][state % 4]
        if letter in "HG":
            table[state, action, state] = 1
            continue
        for turn in (-1, 0, 1) if slippery else (0,):
            after = moved(board, state, names[(action + turn) % 4])
            table[state, action, after] += 1 / 3 if slippery else 1
            reward[state, action] += (board[after // 4][after % 4] == "G") / (3 if slippery else 1)
    world = toy_text.frozen_lake(slippery=slippery, discount=0.8)
    np.testing.assert_allclose(table_of(world.mdp), table, atol=1e-15)
    np.testing.assert_allclose(world.reward, reward, atol=1e-15)
    np.testing.assert_array_equal(world.mdp.start, np.arange(16) == 0)
    assert world.mdp.discount == 0.8 and world.mdp.action_names == names
    # Neighbours in the list of actions are at right angles, so that nobody slips backwards.
    for first, second in itertools.pairwise((*names, names[0])):
        assert np.dot(STEPS[first], STEPS[second]) == 0


def test_the_cliff_follows_its_rules():
    board, names = toy_text.CLIFF, toy_text.CLIFF_ACTIONS
    world = toy_text.cliff_walking()
    after_all = np.asarray(world.mdp.transitions.next_state)
    for state, action in itertools.product(range(48), range(4)):
        after, paid = moved(board, state, names[action]), -1
        if state == 47:
            after, paid = 47, 0
        elif board[after // 12][after % 12] == "C":
            after, paid = 36, -100
        assert after_all[state, action] == after and world.reward[state, action] == paid
    np.testing.assert_array_equal(world.mdp.start, np.arange(48) == 36)
    assert np.flatnonzero(world.terminal).tolist() == [47] and world.mdp.action_names == names


def test_tables_and_rewards_are_the_stored_ones(files):
    name, file = files
    world = getattr(toy_text, name)()
    table = np.zeros((len(world.terminal), 4, len(world.terminal)))
    np.add.at(table, tuple(file["T_idx"].T), file["T_prob"])
    np.testing.assert_allclose(table_of(world.mdp), table, atol=1e-15)
    np.testing.assert_allclose(world.reward, file["r_sa"], atol=1e-15)
    np.testing.assert_array_equal(world.terminal, file["terminal"])
    np.testing.assert_array_equal(np.sum(world.mdp.action_mask, 1), np.where(file["terminal"], 1, 4))
    assert np.flatnonzero(world.mdp.start).tolist() == file["start_states"].tolist()
    assert world.mdp.discount == float(file["gamma"])
    if name == "frozen_lake":
        assert [row.decode() for row in file["desc"]] == list(toy_text.LAKE)


@pytest.mark.parametrize("make", [toy_text.frozen_lake, toy_text.cliff_walking])
def test_a_discount_above_one_is_named(make):
    with pytest.raises(ValueError, match=r"discount must be a number in \[0, 1\], not 1.2"):
        make(discount=1.2)
