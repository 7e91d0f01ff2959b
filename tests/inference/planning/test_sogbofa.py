"""Plans: against the best action by enumeration, their keys, limits and arguments, and episodes."""

import json
import time

import jax
import numpy as np
import pytest

from ethogram.domains.fluent_world import FluentWorld
from ethogram.domains.sysadmin import sysadmin
from ethogram.inference.planning import SogbofaPolicy, plan, play_episodes, rollout

KEY = jax.random.key(0)
PLENTY = 100.0
SETTINGS = {"depth": 4, "num_restarts": 8, "max_steps": 10, "time_limit": PLENTY}


@pytest.fixture(scope="module")
def problem():
    return sysadmin(5)


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_the_first_action_is_the_best_of_all_by_value(problem, precision):
    """Of the mode "original" only the first action is free, so that all six may be tried."""
    state = np.array([1, 0, 1, 1, 0.0])
    found = plan(KEY, problem, state, mode="original", precision=precision, **SETTINGS)
    policy = np.full(5, 1 / 6)
    first = np.concatenate((np.zeros((5, 1)), np.eye(5)), 1)
    actions = np.concatenate((first[None], np.broadcast_to(policy[:, None], (3, 5, 6))))
    values = np.asarray(rollout(problem.program, state, actions))
    assert found.value == pytest.approx(values.max(), rel=1e-5 if precision == "float32" else 1e-12)
    np.testing.assert_array_equal(found.vector, first[:, values.argmax()])
    assert list(found.action) == [problem.actions[i] for i in np.flatnonzero(found.vector)]


def test_planned_later_actions_are_worth_no_less_than_random_ones(problem):
    state = {f"running___c{i + 1}": i < 2 for i in range(5)}
    planned = plan(KEY, problem, state, **SETTINGS)
    assert planned.marginals.shape == (4, 5)
    assert planned.value >= plan(KEY, problem, state, mode="original", **SETTINGS).value
    assert planned.marginals.sum(1).max() <= 1 + 1e-6 and planned.finished


def test_the_same_key_gives_the_same_plan_and_a_start_is_kept_if_it_is_best(problem):
    first, second = (plan(KEY, problem, problem.initial * 0, **SETTINGS) for _ in range(2))
    np.testing.assert_array_equal(first.marginals, second.marginals)
    assert first.value == second.value
    third = plan(KEY, problem, problem.initial * 0, start=first.marginals, **SETTINGS)
    assert third.value >= first.value - 1e-4


def test_a_deadline_is_kept_and_said(problem):
    settings = {**SETTINGS, "max_steps": 10**6, "time_limit": 0.2}
    plan(KEY, problem, **settings)
    begin = time.perf_counter()
    found = plan(KEY, problem, **settings)
    assert not found.finished and 0 < found.num_steps < 10**6
    assert time.perf_counter() - begin < 10  # speed is measured in benchmarks; this is a hang


def test_rewards_beyond_the_episode_do_not_count(problem):
    one = plan(KEY, problem, steps_left=1, **SETTINGS)
    assert one.action == {} and one.value == pytest.approx(5.0, rel=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"key": 0}, "key"),
        ({"problem": 3}, "expected a PlanningProblem"),
        ({"state": {"running___c1": True}}, "state has no fluent running___c2"),
        ({"state": np.full(5, 0.5)}, "state has shape"),
        ({"time_limit": 0}, "time_limit = 0"),
        ({"mode": "both"}, "mode"),
        ({"depth": 33}, "depth = 33"),
        ({"num_restarts": 0}, "num_restarts"),
        ({"max_steps": 1.5}, "max_steps"),
        ({"start": np.zeros((2, 3))}, "start has shape"),
        ({"steps_left": 0}, "steps_left"),
    ],
)
def test_bad_arguments_are_named(problem, change, message):
    arguments = {"key": KEY, "problem": problem, "state": None, **SETTINGS, **change}
    with pytest.raises((TypeError, ValueError), match=message):
        plan(**arguments)


def test_a_policy_beats_doing_nothing_and_its_record_goes_on(problem, tmp_path):
    """Mean returns of three episodes of 12 steps: with reboots far above those without, which differ by 8 errors."""
    short = sysadmin(5, horizon=12)
    policy = SogbofaPolicy(KEY, short, **SETTINGS)
    record = tmp_path / "episodes.json"
    once = play_episodes(
        FluentWorld(short), policy, 2, record=record, settings={"depth": 4}, progress_bar=False
    )
    both = play_episodes(
        FluentWorld(short), policy, 3, record=record, settings={"depth": 4}, progress_bar=False
    )
    np.testing.assert_array_equal(both.returns[:2], once.returns)
    assert len(json.loads(record.read_text())["episodes"]) == 3 and len(both.actions[0]) == 12
    with pytest.raises(ValueError, match="depth 4 in place of 5"):
        play_episodes(FluentWorld(short), policy, 3, record=record, settings={"depth": 5}, progress_bar=False)

    class Nothing:
        def sample_action(self, state):
            return {}

    idle = play_episodes(FluentWorld(short), Nothing(), 20, progress_bar=False)
    assert both.returns.mean() > idle.returns.mean() + 4 * idle.returns.std() / np.sqrt(20)
