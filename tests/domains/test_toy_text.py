"""Boards of toy text: moves against the rules by loops and against stored tables, and what ends are worth."""

from __future__ import annotations

import dataclasses
import itertools

import jax
import numpy as np
import pytest

from ethogram.domains import toy_text
from ethogram.models.mdps.soft_values import soft_values

STEPS = {"left": (0, -1), "down": (1, 0), "right": (0, 1), "up": (-1, 0)}
STORED = {"frozen_lake": "gp_irl/frozenlake_4x4.npz", "cliff_walking": "gp_irl/cliffwalking.npz"}
LOG_LIKELIHOODS = {"frozen_lake": -522.75694, "cliff_walking": -1311.06139}


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
    assert np.flatnonzero(world.mdp.start).tolist() == file["start_states"].tolist()
    assert world.mdp.discount == float(file["gamma"])
    if name == "frozen_lake":
        assert [row.decode() for row in file["desc"]] == list(toy_text.LAKE)


@pytest.mark.slow
def test_stored_demonstrations_are_as_probable_as_they_were_without_the_mask(files):
    name, file = files
    world = getattr(toy_text, name)()
    everywhere = dataclasses.replace(world.mdp, action_mask=None)
    found = soft_values(everywhere, float(file["beta"]) * world.reward)
    states, actions = file["demos"][:, 2], file["demos"][:, 3]
    assert found.converged
    assert float(found.log_policy[states, actions].sum()) == pytest.approx(LOG_LIKELIHOODS[name], abs=6e-6)
    np.testing.assert_allclose(np.asarray(found.values)[world.terminal], np.log(4) / 0.05, rtol=1e-10)


@pytest.mark.parametrize("name", ["frozen_lake", pytest.param("cliff_walking", marks=pytest.mark.slow)])
def test_with_one_action_an_end_is_worth_nothing(name):
    """And a hole is something to avoid; with four it is about as good as walking on for ever."""
    world = getattr(toy_text, name)()
    mask = np.asarray(world.mdp.action_mask)
    np.testing.assert_array_equal(mask.sum(1), np.where(world.terminal, 1, 4))
    found = soft_values(world.mdp, 20 * world.reward)
    everywhere = soft_values(dataclasses.replace(world.mdp, action_mask=None), 20 * world.reward)
    ends = np.asarray(found.values)[world.terminal]
    np.testing.assert_allclose(ends, 0, atol=1e-9)
    np.testing.assert_allclose(
        np.asarray(everywhere.values)[world.terminal] - ends, 27.7258872224, rtol=1e-10
    )
    if name == "frozen_lake":
        holes = np.array([letter == "H" for letter in "".join(toy_text.LAKE)])
        margins = [
            np.asarray(each.values)[~world.terminal].min() - np.asarray(each.values)[holes].max()
            for each in (found, everywhere)
        ]
        assert margins[0] > 5 and margins[1] < 0.5
        # From cell 4 a slip may lead into a hole.
        into = np.asarray(world.mdp.probability(4, np.arange(4), 5))
        falls = [float(np.asarray(each.policy)[4] @ into) for each in (found, everywhere)]
        assert falls[0] < 0.1 and falls[1] > 0.2


@pytest.mark.parametrize("make", [toy_text.frozen_lake, toy_text.cliff_walking])
def test_a_discount_above_one_is_named(make):
    with pytest.raises(ValueError, match=r"discount must be a number in \[0, 1\], not 1.2"):
        make(discount=1.2)
