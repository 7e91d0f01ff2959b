"""Line World: its tables against the rules, its traces step by step, its regions by enumeration."""

import itertools

import jax
import numpy as np
import pytest
from scipy import stats

from ethogram.domains import line_world
from ethogram.models.data.trajectories import check

LEFT, RIGHT, WAIT = range(3)
GOAL = {0: 0, 1: 4}
# Chance is tested at fixed keys, each test failing a right program for one key in a thousand.
ERROR_RATE = 1e-3


@pytest.fixture(scope="module")
def rollout():
    return line_world.simulate(jax.random.key(0), num_traces=2000)


def test_the_environment_is_a_row_of_cells_with_walls():
    for cell, (action, shift) in itertools.product(range(5), {LEFT: -1, RIGHT: 1, WAIT: 0}.items()):
        assert line_world.NEXT_STATE[cell, action] == min(max(cell + shift, 0), 4)
    assert line_world.NEXT_STATE.shape == (line_world.NUM_CELLS, line_world.NUM_ACTIONS)
    assert line_world.ACTION_NAMES == ("left", "right", "wait")


def test_the_agent_goes_to_its_goal_waits_there_and_changes_its_mind():
    agent = line_world.true_agent()
    np.testing.assert_array_equal(agent.initial, [0.5, 0.5])
    assert agent.policy.shape == (2, 5, 3) and agent.transition.shape == (2, 5, 3, 2)
    for intent, cell in itertools.product(range(2), range(5)):
        action = WAIT if cell == GOAL[intent] else LEFT if cell > GOAL[intent] else RIGHT
        following = 1 - intent if cell == GOAL[intent] else intent
        np.testing.assert_array_equal(agent.policy[intent, cell], np.eye(3)[action])
        np.testing.assert_array_equal(agent.transition[intent, cell], np.eye(2)[[following] * 3])


def test_every_trace_follows_the_rules(rollout):
    data = check(rollout.data)
    assert data.states.shape == data.actions.shape == rollout.intents.shape == (2000, 20)
    assert data.observations is None and data.observed.all() and set(data.lengths.tolist()) == {20}
    assert data.metadata.action_names == line_world.ACTION_NAMES
    for cells, actions, intents in zip(data.states, data.actions, rollout.intents, strict=True):
        cell, intent = cells[0], intents[0]
        for step in range(20):
            assert (cells[step], intents[step]) == (cell, intent)
            there = cell == GOAL[intent]
            assert actions[step] == (WAIT if there else intent)
            cell += 0 if there else 1 if intent else -1
            intent = 1 - intent if there else intent


def test_first_cell_and_first_intent_are_uniform(rollout):
    first = np.bincount(2 * rollout.data.states[:, 0] + rollout.intents[:, 0], minlength=10)
    assert stats.chisquare(first).pvalue > ERROR_RATE


def test_a_key_decides_all():
    one, same = (line_world.simulate(jax.random.key(3), 2, 7) for _ in range(2))
    np.testing.assert_array_equal(one.data.states, same.data.states)
    np.testing.assert_array_equal(one.intents, same.intents)
    assert one.data.states.shape == (2, 7) and isinstance(one.data.states, np.ndarray)


def test_regions_are_the_runs_between_two_draws():
    regions = [line_world.random_region(key) for key in jax.random.split(jax.random.key(1), 450)]
    expected = {}
    for pair in itertools.product((1, 2, 3), repeat=2):
        run = tuple(min(pair) <= cell <= max(pair) for cell in range(5))
        expected[run] = expected.get(run, 0) + 450 / 9
    count = {run: 0 for run in expected}
    for region in regions:
        assert region.dtype == bool and region.shape == (5,)
        count[tuple(region.tolist())] += 1
    assert stats.chisquare(list(count.values()), list(expected.values())).pvalue > ERROR_RATE
    changes = 1 - np.einsum("xsax->xsa", line_world.true_agent().transition)
    assert not any(changes[:, region].any() for region in regions)
    assert changes.any(axis=(0, 2)).tolist() == [True, False, False, False, True]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"num_traces": 0}, "num_traces must be at least 1, not 0"),
        ({"length": -1}, "length must be at least 1, not -1"),
    ],
)
def test_settings_out_of_range_are_named(change, words):
    with pytest.raises(ValueError, match=words):
        line_world.simulate(jax.random.key(0), **change)


@pytest.mark.parametrize("draw", [line_world.simulate, line_world.random_region])
def test_a_number_is_no_key(draw):
    with pytest.raises(TypeError, match="key must be one typed key, not int"):
        draw(0)
