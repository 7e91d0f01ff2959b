"""SysAdmin, against its formulas and against the first instance of the competition of 2011."""

import numpy as np
import pytest

from ethogram.domains.fluent_world import FluentWorld
from ethogram.domains.sysadmin import sysadmin
from ethogram.models.planning import read_rddl


def test_probabilities_and_reward_are_those_of_the_formulas():
    problem = sysadmin(3, [(0, 1), (2, 1)], reboot=0.1, penalty=0.75)
    following, reward, end = problem.program.expectations([[1.0], [1.0], [0.0]], [[0.0], [0.0], [1.0]])
    np.testing.assert_allclose(following[:, 0], [0.45 + 0.5, 0.45 + 0.5 * 2 / 3, 1.0], atol=1e-12)
    np.testing.assert_allclose(reward, 2 - 0.75)
    assert end[0] == 0


def test_it_is_the_competitions_problem_where_the_network_is_the_same():
    pytest.importorskip("pyRDDLGym")
    pytest.importorskip("rddlrepository")
    theirs = read_rddl("SysAdmin_MDP_ippc2011", 1)
    rng = np.random.default_rng(0)
    count = len(theirs.fluents)
    pairs = []
    for j in range(count):  # a computer that is down shows in the probabilities of those it is connected to
        state = np.ones((count, 1))
        state[j] = 0
        lower = theirs.program.expectations(state, np.zeros((count, 1)))[0][:, 0]
        pairs += [(j, i) for i in range(count) if i != j and lower[i] < 0.95 - 1e-9]
    ours = sysadmin(count, pairs)
    states, actions = rng.integers(0, 2, (count, 50)), rng.integers(0, 2, (count, 50))
    for mine, wanted in zip(
        ours.program.expectations(states, actions), theirs.program.expectations(states, actions), strict=True
    ):
        np.testing.assert_allclose(mine, wanted, atol=1e-12)


def test_the_world_draws_from_the_program():
    """400 first steps with one reboot: each share within 4.5 standard errors of its probability."""
    problem = sysadmin(4)
    world, seen = FluentWorld(problem), np.zeros(4)
    problem.initial[:] = [1, 0, 0, 1]
    chances = problem.program.expectations(problem.initial[:, None], np.eye(4)[:, 1:2])[0][:, 0]
    for seed in range(400):
        world.reset(seed=seed)
        state, reward, ended, cut, _ = world.step({"reboot___c2": True})
        seen += problem.encode_state(state)
        assert reward == 2 - 0.75 and not ended and not cut
    error = np.sqrt(np.maximum(chances * (1 - chances), 1e-9) / 400)
    assert (np.abs(seen / 400 - chances) <= 4.5 * error).all()
    with pytest.raises(ValueError, match="there is no such action"):
        world.step({"reboot": True})
    with pytest.raises(ValueError, match="are not allowed in this state"):
        world.step({"reboot___c1": True, "reboot___c2": True})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_computers": 0}, "num_computers"),
        ({"reboot": 1.5}, "reboot must be at least 0 and at most 1, not 1.5"),
        ({"connections": [(0, 10)]}, "connections has"),
        ({"connections": [(1, 1)]}, "connections has"),
        ({"connections": [np.eye(2)]}, "connections has"),
        ({"connections": ["01"]}, "connections has"),
        ({"penalty": np.inf}, "penalty must be finite"),
    ],
)
def test_bad_numbers_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        sysadmin(**settings)
