"""Small MDPs: who leads where, by their rules in loops and by stored tables; what is demonstrated and chosen."""

from __future__ import annotations

import importlib.util
import itertools

import jax
import numpy as np
import pytest
from scipy import stats

from ethogram.domains import small_mdps
from ethogram.models.data.trajectories import check

# Chance is tested at fixed keys, each assertion failing a right program for one key in a thousand.
ERROR_RATE = 1e-3
STEPS = {"left": (0, -1), "down": (1, 0), "right": (0, 1), "up": (-1, 0)}


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def table_of(mdp):
    """Probabilities (state, action, next state)."""
    return np.moveaxis(np.asarray(mdp.expect(np.eye(mdp.num_states))), 0, -1)


def pairs(data):
    """States and actions of sequences of one step each."""
    check(data)
    assert data.observations is None and data.states.shape[1] == 1 and data.observed.all()
    return np.asarray(data.states)[:, 0], np.asarray(data.actions)[:, 0]


def test_the_three_states_lead_to_each_other():
    """By the corrected table: (s1, a1, s2), (s1, a2, s3), (s2, a1, s1), (s2, a2, s3), (s3, a1, s1), (s3, a2, s2)."""
    world = small_mdps.three_state()
    leads = {(0, 0): 1, (0, 1): 2, (1, 0): 0, (1, 1): 2, (2, 0): 0, (2, 1): 1}
    assert (world.num_states, world.num_actions) == (3, 2) and world.discount == 0.9
    assert all(table_of(world)[at].tolist() == np.eye(3)[after].tolist() for at, after in leads.items())
    np.testing.assert_array_equal(world.features, [[1.0], [2.0], [3.0]])
    assert world.state_names == ("s1", "s2", "s3")
    assert small_mdps.three_state(0.5).discount == 0.5


@pytest.mark.parametrize("num_states", [2, 3, 10])
def test_an_action_of_a_clique_leads_to_that_of_the_others(num_states):
    world = small_mdps.clique(num_states)
    assert world.num_actions == num_states - 1 and world.discount == 0.9
    for state, rows in enumerate(table_of(world)):
        others = [other for other in range(num_states) if other != state]
        np.testing.assert_array_equal(rows, np.eye(num_states)[others])
    np.testing.assert_array_equal(world.features[:, 0], range(num_states))


@pytest.mark.parametrize(("first", "second"), [(1, 1), (3, 2), (0, 1), (4, 0)])
def test_demonstrations_lead_to_the_middle_state(first, second):
    data = small_mdps.three_state_demonstrations(first, second)
    states, actions = pairs(data)
    assert states.tolist() == [0] * first + [2] * second
    assert (table_of(small_mdps.three_state())[states, actions, 1] == 1).all()
    assert data.metadata.state_names == ("s1", "s2", "s3")


def test_decisions_of_a_clique_are_random_or_lead_to_the_first_state():
    key = jax.random.key(0)
    states, actions = pairs(small_mdps.clique_demonstrations(key, "random", 9000))
    counts = np.zeros((10, 9), int)
    np.add.at(counts, (states, actions), 1)
    assert stats.chisquare(counts.ravel()).pvalue > ERROR_RATE
    states, actions = pairs(small_mdps.clique_demonstrations(key, "to_first", 9000))
    assert (table_of(small_mdps.clique())[states, actions, 0] == 1).all()
    assert stats.chisquare(np.bincount(states, minlength=10)[1:]).pvalue > ERROR_RATE and states.min() == 1
    few = small_mdps.clique_demonstrations(key, num_states=3)
    assert few.num_sequences == 100 and set(pairs(few)[0].tolist()) == {0, 1, 2}
    again = small_mdps.clique_demonstrations(key, num_states=3)
    np.testing.assert_array_equal(few.states, again.states)
    np.testing.assert_array_equal(few.actions, again.actions)


@pytest.fixture(scope="module")
def toy():
    return small_mdps.toy_chain(jax.random.key(1), 3000, kappa=4.0)


def test_a_trajectory_follows_its_choices(toy):
    table = table_of(toy.mdp)
    np.testing.assert_allclose(toy.decisions.features, table[toy.states], atol=1e-6)
    assert toy.values.sum() == pytest.approx(0, abs=1e-4)
    taken = table[toy.states[:-1], toy.decisions.choice[:-1], toy.states[1:]]
    assert (taken > 0).all() and taken.mean() > table.mean() * 2


def test_choices_have_the_probabilities_of_the_probit(toy):
    """The best action is taken as often as it is the best beside noise of variance 1, within three standard errors."""
    utility = np.asarray(toy.decisions.features) @ np.asarray(toy.values)
    noise, best = np.random.default_rng(0).normal(size=(100, *utility.shape)), utility.argmax(-1)
    chance = ((utility + noise).argmax(-1) == best).mean(0)
    gap = (np.asarray(toy.decisions.choice) == best) - chance
    assert 0.4 < chance.mean() < 0.9 and abs(gap.mean()) < 3 * gap.std() / np.sqrt(len(gap))


def moved(board, state, name):
    """The neighbouring cell, or the same at the edge."""
    width = len(board[0])
    row, column = state // width + STEPS[name][0], state % width + STEPS[name][1]
    inside = 0 <= row < len(board) and 0 <= column < width
    return row * width + column if inside else state


@pytest.mark.parametrize("slippery", [True, False])
@pytest.mark.parametrize("board", [small_mdps.LAKE, ("SFG", "HFS")])
def test_a_lake_follows_its_rules(board, slippery):
    names, letters = small_mdps.LAKE_ACTIONS, "".join(board)
    count = len(letters)
    table, reward = np.zeros((count, 4, count)), np.zeros((count, 4))
    for state, action in itertools.product(range(count), range(4)):
        if letters[state] in "HG":
            table[state, action, state] = 1
            continue
        for turn in (-1, 0, 1) if slippery else (0,):
            after = moved(board, state, names[(action + turn) % 4])
            table[state, action, after] += 1 / 3 if slippery else 1
            reward[state, action] += (letters[after] == "G") / (3 if slippery else 1)
    world = small_mdps.frozen_lake(board, slippery=slippery, discount=0.8)
    np.testing.assert_allclose(table_of(world.mdp), table, atol=1e-15)
    np.testing.assert_allclose(world.reward, reward, atol=1e-15)
    starts = np.array([letter == "S" for letter in letters])
    np.testing.assert_array_equal(world.mdp.start, starts / starts.sum())
    assert world.mdp.discount == 0.8 and world.mdp.action_names == names
    # Neighbours in the list of actions are at right angles, so that nobody slips backwards.
    for first, second in itertools.pairwise((*names, names[0])):
        assert np.dot(STEPS[first], STEPS[second]) == 0


def test_the_lake_is_the_stored_one(stored_file):
    file, world = dict(np.load(stored_file("gp_irl/frozenlake_4x4.npz"))), small_mdps.frozen_lake()
    table = np.zeros((16, 4, 16))
    np.add.at(table, tuple(file["T_idx"].T), file["T_prob"])
    np.testing.assert_allclose(table_of(world.mdp), table, atol=1e-15)
    np.testing.assert_allclose(world.reward, file["r_sa"], atol=1e-15)
    np.testing.assert_array_equal(world.terminal, file["terminal"])
    np.testing.assert_array_equal(np.sum(world.mdp.action_mask, 1), np.where(file["terminal"], 1, 4))
    assert np.flatnonzero(world.mdp.start).tolist() == file["start_states"].tolist()
    assert world.mdp.discount == float(file["gamma"])
    assert [row.decode() for row in file["desc"]] == list(small_mdps.LAKE)


def test_rows_of_a_lake_may_be_an_array():
    listed, array = (small_mdps.frozen_lake(rows) for rows in (["SF", "FG"], np.array(["SF", "FG"])))
    np.testing.assert_array_equal(table_of(listed.mdp), table_of(array.mdp))


@pytest.fixture(scope="module")
def unchecked():
    """The module as users have it: its types are not checked when it is called."""
    spec = importlib.util.spec_from_file_location("unchecked_small_mdps", small_mdps.__file__)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


KEY = jax.random.key(0)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda it: it.clique(1), ValueError, "num_states must be at least 2, not 1"),
        (lambda it: it.clique(10, 1.5), ValueError, r"discount must be a number in \[0, 1\], not 1.5"),
        (lambda it: it.three_state_demonstrations(-1, 2), ValueError, "first must be at least 0, not -1"),
        (lambda it: it.three_state_demonstrations(0, 0), ValueError, "first and second are both 0"),
        (lambda it: it.three_state_demonstrations(True, 1), TypeError, "first must be an integer, not True"),
        (lambda it: it.clique_demonstrations(KEY, "to_last"), ValueError, "kind must be 'random' or 'to_first', not "),
        (lambda it: it.clique_demonstrations(KEY, num=0), ValueError, "num must be at least 1, not 0"),
        (lambda it: it.frozen_lake(discount=1.2), ValueError, r"discount must be a number in \[0, 1\], not 1.2"),
        (lambda it: it.frozen_lake(("SF", "FHG")), ValueError, "board is .*give rows of equal length"),
        (lambda it: it.frozen_lake(("FF", "HG")), ValueError, "board is .*with an S"),
        (lambda it: it.frozen_lake(("Sx", "HG")), ValueError, "board is .*of the letters S, F, H and G"),
        (lambda it: it.frozen_lake(()), ValueError, "board is "),
        (lambda it: it.frozen_lake("SFFG"), TypeError, "board is str: give a list, one string per row"),
        (lambda it: it.frozen_lake([["S", "G"]]), ValueError, "board is .*give rows"),
        (lambda it: it.frozen_lake([1, 2]), ValueError, "board is .*give rows"),
        (lambda it: it.frozen_lake(slippery="no"), TypeError, "slippery must be True or False, not 'no'"),
        (lambda it: it.toy_chain(KEY, num_decisions=0), ValueError, "num_decisions must be at least 1, not 0"),
        (lambda it: it.toy_chain(KEY, num_decisions=2.5), TypeError, "num_decisions must be an integer, not 2.5"),
        (lambda it: it.toy_chain(KEY, num_actions=1), ValueError, "num_actions must be at least 2, not 1"),
        (lambda it: it.toy_chain(KEY, num_states="7"), TypeError, "num_states must be an integer, not '7'"),
        (lambda it: it.toy_chain(KEY, kappa=0.0), ValueError, "kappa must be greater than 0, not 0"),
        (lambda it: it.toy_chain(KEY, kappa=-4.0), ValueError, "kappa must be greater than 0, not -4"),
        (lambda it: it.toy_chain(KEY, kappa=np.inf), ValueError, "kappa must be .*greater than 0, not inf"),
        (lambda it: it.toy_chain(KEY, kappa=np.nan), ValueError, "kappa must be .*greater than 0, not nan"),
        (lambda it: it.toy_chain(KEY, kappa="flat"), TypeError, "kappa must be a real number, not 'flat'"),
    ],
)  # fmt: skip
def test_bad_input_is_named(unchecked, make, error, message):
    with pytest.raises(error, match=message):
        make(unchecked)
