"""The toy worlds: who leads where, and what is demonstrated."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from scipy import stats

from ethogram.domains import toy_mdps
from ethogram.models.data.trajectories import check

# Chance is tested at fixed keys, each assertion failing a right program for one key in a thousand.
ERROR_RATE = 1e-3


def pairs(data):
    """States and actions of sequences of one step each."""
    check(data)
    assert data.observations is None and data.states.shape[1] == 1 and data.observed.all()
    return np.asarray(data.states)[:, 0], np.asarray(data.actions)[:, 0]


def test_the_three_states_lead_to_each_other():
    """By the corrected table: (s1, a1, s2), (s1, a2, s3), (s2, a1, s1), (s2, a2, s3), (s3, a1, s1), (s3, a2, s2)."""
    world = toy_mdps.three_state()
    table = {(0, 0): 1, (0, 1): 2, (1, 0): 0, (1, 1): 2, (2, 0): 0, (2, 1): 1}
    assert (world.num_states, world.num_actions) == (3, 2) and world.discount == 0.9
    assert {at: int(world.transitions.next_state[at]) for at in table} == table
    np.testing.assert_array_equal(toy_mdps.three_state_features(), [[1.0], [2.0], [3.0]])
    np.testing.assert_array_equal(world.features, [[1.0], [2.0], [3.0]])
    assert world.state_names == ("s1", "s2", "s3")
    assert toy_mdps.three_state(0.5).discount == 0.5


@pytest.mark.parametrize("num_states", [2, 3, 10])
def test_an_action_of_a_clique_leads_to_that_of_the_others(num_states):
    world = toy_mdps.clique(num_states)
    assert world.num_actions == num_states - 1 and world.discount == 0.9
    for state in range(num_states):
        others = [other for other in range(num_states) if other != state]
        assert world.transitions.next_state[state].tolist() == others
    np.testing.assert_array_equal(toy_mdps.clique_features(num_states)[:, 0], range(num_states))
    np.testing.assert_array_equal(world.features, toy_mdps.clique_features(num_states))


@pytest.mark.parametrize(("first", "second"), [(1, 1), (3, 2), (0, 1), (4, 0)])
def test_demonstrations_lead_to_the_middle_state(first, second):
    data = toy_mdps.three_state_demonstrations(first, second)
    states, actions = pairs(data)
    assert states.tolist() == [0] * first + [2] * second
    assert np.asarray(toy_mdps.three_state().transitions.next_state)[states, actions].tolist() == [1] * len(
        states
    )
    assert data.metadata.state_names == ("s1", "s2", "s3")


def test_decisions_of_a_clique_are_random_or_lead_to_the_first_state():
    key = jax.random.key(0)
    states, actions = pairs(toy_mdps.clique_demonstrations(key, "random", 9000))
    counts = np.zeros((10, 9), int)
    np.add.at(counts, (states, actions), 1)
    assert stats.chisquare(counts.ravel()).pvalue > ERROR_RATE
    states, actions = pairs(toy_mdps.clique_demonstrations(key, "to_first", 9000))
    assert set(np.asarray(toy_mdps.clique().transitions.next_state)[states, actions].tolist()) == {0}
    assert stats.chisquare(np.bincount(states, minlength=10)[1:]).pvalue > ERROR_RATE and states.min() == 1
    few = toy_mdps.clique_demonstrations(key, num_states=3)
    assert few.num_sequences == 100 and set(pairs(few)[0].tolist()) == {0, 1, 2}
    again = toy_mdps.clique_demonstrations(key, num_states=3)
    np.testing.assert_array_equal(few.states, again.states)
    np.testing.assert_array_equal(few.actions, again.actions)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: toy_mdps.clique(1), ValueError, "num_states must be at least 2, not 1"),
        (lambda: toy_mdps.clique(10, 1.5), ValueError, r"discount must be a number in \[0, 1\], not 1.5"),
        (lambda: toy_mdps.clique_features(0), ValueError, "num_states must be at least 2, not 0"),
        (lambda: toy_mdps.three_state_demonstrations(-1, 2), ValueError, "first must be at least 0, not -1"),
        (lambda: toy_mdps.three_state_demonstrations(0, 0), ValueError, "first and second are both 0"),
        (lambda: toy_mdps.three_state_demonstrations(True, 1), TypeError, "first must be an integer, not True"),
        (
            lambda: toy_mdps.clique_demonstrations(jax.random.key(0), "to_last"),
            ValueError,
            "kind must be 'random' or 'to_first', not 'to_last'",
        ),
        (lambda: toy_mdps.clique_demonstrations(jax.random.key(0), num=0), ValueError, "num must be at least 1, not 0"),
    ],
)  # fmt: skip
def test_bad_input_is_named(make, error, message):
    with pytest.raises(error, match=message):
        make()
