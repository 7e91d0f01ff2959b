"""Plans: against the best action by enumeration, their keys, limits and arguments, and episodes."""

import json
import os
from dataclasses import replace
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from ethogram.domains.fluent_world import FluentWorld
from ethogram.domains.sysadmin import sysadmin
from ethogram.inference.planning import RandomPolicy, SogbofaPolicy, plan, play_episodes, rollout, sogbofa
from ethogram.models.planning import (
    ActionRules,
    ExpressionGraph,
    PlanningProblem,
    compile_program,
    limited_actions,
    read_rddl,
)

KEY = jax.random.key(0)
PLENTY = 100.0
SETTINGS = {"depth": 4, "num_restarts": 8, "max_steps": 10, "time_limit": PLENTY}
ORIGINAL = {**SETTINGS, "mode": "original", "precision": "float64"}


@pytest.fixture(scope="module")
def problem():
    return sysadmin(4)


def test_the_first_action_is_the_best_of_all_by_value(problem):
    """Of the mode "original" only the first action is free, so that all five may be tried."""
    state = np.array([1, 0, 1, 0.0])
    found = plan(KEY, problem, state, **ORIGINAL)
    policy = np.full(4, 1 / 5)
    first = np.concatenate((np.zeros((4, 1)), np.eye(4)), 1)
    actions = np.concatenate((first[None], np.broadcast_to(policy[:, None], (3, 4, 5))))
    values = np.asarray(rollout(problem.program, state, actions))
    assert found.value == pytest.approx(values.max(), rel=1e-12)
    np.testing.assert_array_equal(found.vector, first[:, values.argmax()])
    assert list(found.action) == [problem.actions[i] for i in np.flatnonzero(found.vector)]


@pytest.mark.slow
def test_planned_later_actions_are_worth_no_less_than_random_ones(problem):
    state = {f"running___c{i + 1}": i < 2 for i in range(4)}
    planned = plan(KEY, problem, state, **SETTINGS)
    assert planned.marginals.shape == (4, 4)
    assert planned.value >= plan(KEY, problem, state, **ORIGINAL).value * (1 - 1e-5)
    assert planned.marginals.sum(1).max() <= 1 + 1e-6 and planned.finished


def test_the_same_key_gives_the_same_plan_and_a_start_is_kept_if_it_is_best(problem):
    first, second = (plan(KEY, problem, problem.initial * 0, **SETTINGS) for _ in range(2))
    np.testing.assert_array_equal(first.marginals, second.marginals)
    assert first.value == second.value
    third = plan(KEY, problem, problem.initial * 0, start=first.marginals, **SETTINGS)
    assert third.value >= first.value - 1e-4


@pytest.fixture
def ticking(monkeypatch):
    """A clock that goes on by a hundredth of a second whenever it is read, and no shape that has run before."""
    clock = SimpleNamespace(
        now=0.0, perf_counter=lambda: clock.__dict__.update(now=clock.now + 0.01) or clock.now
    )
    monkeypatch.setattr(sogbofa, "time", clock)
    monkeypatch.setattr(sogbofa, "_TIMERS", {})
    return clock


def test_a_deadline_is_kept_and_said(problem, ticking):
    found = plan(KEY, problem, **{**SETTINGS, "max_steps": 10**6, "time_limit": 1.0})
    assert not found.finished and 0 < found.num_steps < 10**6
    assert 0.5 < found.seconds < 1.05


def test_rewards_beyond_the_episode_do_not_count(problem):
    one = plan(KEY, problem, steps_left=1, **SETTINGS)
    assert one.action == {} and one.value == pytest.approx(4.0, rel=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"key": 0}, "key"),
        ({"problem": 3}, "expected a PlanningProblem"),
        ({"state": {"running___c1": True}}, "state has no fluent running___c2"),
        ({"state": np.full(4, 0.5)}, "state has running___c1 = np.float64.0.5.: expected 0 or 1"),
        ({"state": np.ones(2)}, "state has shape"),
        ({"time_limit": 0}, "time_limit must be greater than 0, not 0"),
        ({"time_limit": True}, "time_limit must be a real number, not True"),
        ({"time_limit": np.nan}, "time_limit must be greater than 0, not nan"),
        ({"mode": "both"}, "mode"),
        ({"depth": 33}, "depth must be at most 32"),
        ({"num_restarts": 0}, "num_restarts"),
        ({"max_steps": 1.5}, "max_steps"),
        ({"start": np.zeros((2, 3))}, "start has shape"),
        ({"start": np.full((1, 4), 2.0)}, "start has numbers that are no probabilities"),
        ({"steps_left": 0}, "steps_left"),
    ],
)
def test_bad_arguments_are_named(problem, change, message):
    arguments = {"key": KEY, "problem": problem, "state": None, **SETTINGS, **change}
    with pytest.raises((TypeError, ValueError), match=message):
        plan(**arguments)


@pytest.mark.parametrize("time_limit", [0, np.nan])
def test_a_policy_checks_its_time_before_it_measures_depths(problem, time_limit):
    with pytest.raises((TypeError, ValueError), match="time_limit must be"):
        SogbofaPolicy(KEY, problem, time_limit)


def test_another_precision_is_compiled_outside_the_time_limit(problem, ticking, monkeypatch):
    """The first climb of each precision takes three seconds, where the plan has one."""
    advanced, seen = sogbofa._Decision.advanced, set()

    def slowly(self, climbs, steps):
        if self.search.low.dtype not in seen:
            seen.add(self.search.low.dtype)
            ticking.now += 3
        return advanced(self, climbs, steps)

    monkeypatch.setattr(sogbofa._Decision, "advanced", slowly)
    for settings in (SETTINGS, ORIGINAL):
        found = plan(KEY, problem, **{**settings, "time_limit": 1.0})
        assert found.seconds < 1.05 and found.finished
    assert len(seen) == 2 and ticking.now > 6


def test_where_no_step_fits_the_best_start_is_returned(problem):
    found = plan(KEY, problem, problem.initial * 0, **{**SETTINGS, "time_limit": 1e-6})
    assert found.num_steps == 0 and not found.finished
    assert len(found.action) <= 1 and np.isfinite(found.value)


def test_a_plan_looks_no_further_than_its_depth_and_the_episode(problem):
    for change, depth in (({"depth": 1}, 1), ({"depth": 3}, 3), ({"steps_left": 2}, 2)):
        found = plan(KEY, problem, **{**SETTINGS, **change})
        assert found.depth == depth and found.marginals.shape == (depth, 4)


def any_problem(num_fluents, num_actions):
    """Fluents that never change, each worth 1; actions worth -0.5, 0.5, 1.5, ... each."""
    graph = ExpressionGraph()
    fluents, actions = (
        [f"{name}{i}" for i in range(n)] for name, n in (("f", num_fluents), ("a", num_actions))
    )
    nodes = [graph.input(name) for name in fluents]
    terms = [(1.0, node) for node in nodes]
    terms += [(i - 0.5, graph.input(name)) for i, name in enumerate(actions)]
    program = compile_program(graph, fluents, actions, nodes, graph.add(terms), graph.constant(0.0))
    rules = limited_actions(fluents, actions, num_actions)
    return PlanningProblem(
        "any", "one", tuple(fluents), tuple(actions), np.ones(num_fluents), program, rules, 5, 0.5
    )


@pytest.mark.parametrize(("num_fluents", "num_actions"), [(0, 3), pytest.param(2, 0, marks=pytest.mark.slow)])
def test_problems_without_fluents_or_actions(num_fluents, num_actions):
    """The best actions are those of positive worth; rewards of four steps count 1.875 at discount one half."""
    found = plan(KEY, any_problem(num_fluents, num_actions), **SETTINGS)
    np.testing.assert_array_equal(found.vector, [0, 1, 1][:num_actions])
    if not num_actions:
        assert found.value == pytest.approx(2 * 1.875)


def test_a_value_that_is_not_finite_is_said(problem):
    """All numbers of the program are NaN."""
    broken = jax.tree.map(lambda leaf: leaf * np.nan if leaf.dtype.kind == "f" else leaf, problem.program)
    with pytest.raises(ValueError, match="no plan has a finite value in this state"):
        plan(KEY, replace(problem, program=broken), **SETTINGS)


def test_rules_of_the_state_bound_the_first_action_alone():
    """The first of three actions must be taken where the fluent is on, the second must not, and two are too few."""
    graph = ExpressionGraph()
    fluent, first, second = (graph.input(name) for name in ("f0", "a0", "a1"))
    single = [graph.add([(1.0, first), (-1.0, fluent)], 1.0), graph.add([(-1.0, second)], 1.0)]
    checks = [graph.constant(2.5), graph.constant(2.0), *single]
    actions, nothing = ("a0", "a1", "a2"), graph.constant(0.0)
    program = compile_program(graph, ["f0"], actions, checks, nothing, nothing)
    rules = ActionRules(np.ones((1, 3)), np.ones((1, 3)), np.array([0, 1]), program)
    problem, state = replace(any_problem(1, 3), rules=rules), np.ones(1)
    for mode, later in (("conformant", 3), ("original", 0)):
        search = sogbofa._search(problem, state, mode, 4, 3, "float64")
        np.testing.assert_array_equal(search.low, [[1, 0, 0], *[[0, 0, 0]] * later])
        np.testing.assert_array_equal(search.high, [[1, 0, 1], *[[1, 1, 1]] * later])
        np.testing.assert_array_equal(search.weights, [[1, 1, 1], [-1, -1, -1]])
        np.testing.assert_array_equal(search.bounds, [2.5, -2])
        np.testing.assert_allclose(search.policy.sum(), 2, atol=1e-6)  # what the random policy lacks is added
        assert (int(search.steps_left), float(search.discount), float(search.state[0])) == (3, 0.5, 1)


def lines_of(record):
    """The settings and the episodes of a record."""
    settings, *episodes = map(json.loads, record.read_text().splitlines())
    return settings["settings"], episodes


def test_one_slow_check_does_not_stop_the_search_for_good():
    """A check that once took a second is measured again at each decision, so that steps fit some decisions later."""
    timer = sogbofa.StepTimer(step=0.001, check=1.0)
    assert timer.steps_within(0.0475) == 0
    for _ in range(40):
        timer = timer.updated(None, 0.002)
    assert timer.steps_within(0.0475) > 0


class Interrupted(FluentWorld):
    """Ctrl-C in the second episode."""

    episodes = 0

    def step(self, actions):
        if self.time == 2 and self.episodes == 2:
            raise KeyboardInterrupt
        return super().step(actions)

    def reset(self, seed=None):
        self.episodes += 1
        return super().reset(seed=seed)


@pytest.mark.parametrize(
    "torn", [b"", b'{"seconds": 0.1, "rew', b'{"seconds": 0.1, "rewards": [9.0]}', b"\xff"]
)
def test_an_interrupted_record_goes_on_as_if_it_had_not_been(tmp_path, torn):
    """Three episodes, of which the second is interrupted; a kill leaves a part of a line too."""
    short = sysadmin(4, horizon=4)
    whole = play_episodes(FluentWorld(short), RandomPolicy(KEY, short), 3, progress_bar=False)
    record = tmp_path / "record.jsonl"
    settings = {"progress_bar": False, "record": record, "settings": {"policy": "random"}}
    with pytest.raises(KeyboardInterrupt):
        play_episodes(Interrupted(short), RandomPolicy(KEY, short), 3, **settings)
    assert len(lines_of(record)[1]) == 1
    record.write_bytes(record.read_bytes() + torn)
    resumed = play_episodes(FluentWorld(short), RandomPolicy(KEY, short), 3, **settings)
    assert resumed.actions == whole.actions and resumed.states == whole.states
    assert [each["rewards"] for each in lines_of(record)[1]] == [each.tolist() for each in whole.rewards]


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content[1].pop("rewards"),
        lambda content: content[1]["rewards"].append(1.0),
        lambda content: content[1].update(seconds=float("nan")),
        lambda content: content.insert(1, 3),
        lambda content: content[0].update(settings=3),
        lambda content: content.pop(0),
        lambda content: content.clear(),
    ],
)
def test_a_damaged_record_is_refused_before_anything_is_played(tmp_path, change):
    record = tmp_path / "record.jsonl"
    episode = {"seconds": 0.1, "rewards": [1.0], "actions": [[]], "states": [["running___c1"]]}
    content = [{"settings": {"seed": 0}}, episode]
    change(content)
    record.write_text("".join(json.dumps(each) + "\n" for each in content))
    before = record.read_bytes()
    with pytest.raises(ValueError, match="is not a record of episodes: remove it"):
        play_episodes(FluentWorld(sysadmin(2)), Idle(), 2, record=record)
    assert record.read_bytes() == before


def test_what_cannot_be_played_or_written_is_said_first(tmp_path):
    world = FluentWorld(sysadmin(2))
    with pytest.raises(ValueError, match=r"record is .*there is no folder"):
        play_episodes(world, Idle(), 1, record=tmp_path / "nothing" / "record.jsonl")
    with pytest.raises(TypeError, match=r"policy is int, which has no sample_action"):
        play_episodes(world, 3, 1)
    with pytest.raises(TypeError, match=r"settings is list: expected values by name"):
        play_episodes(world, Idle(), 1, settings=[1])
    with pytest.raises(TypeError, match=r"environment is PlanningProblem, which has no reset"):
        play_episodes(world.problem, Idle(), 1)


def test_a_record_resumes_whatever_its_settings_are_made_of(tmp_path):
    """A NumPy number was an error after the first episode, and a tuple, or NaN, another setting than its own."""
    record, world = tmp_path / "record.jsonl", FluentWorld(sysadmin(2, horizon=2))
    settings = {
        "rate": np.float32(0.5),
        "sizes": (4, 8),
        "none": np.nan,
        "by": {1: np.arange(2)},
        3: tmp_path,
    }
    for count in (1, 2):
        played = play_episodes(
            world, Idle(), count, seed=np.int64(1), record=record, settings=settings, progress_bar=False
        )
        assert len(lines_of(record)[1]) == len(played.returns) == count
    with pytest.raises(ValueError, match=r"sizes \[4, 8\] in place of \[4, 9\]"):
        play_episodes(world, Idle(), 2, seed=1, record=record, settings=settings | {"sizes": (4, 9)})
    with pytest.raises(TypeError, match=r"settings\['policy'\] is .*which no record can hold"):
        play_episodes(world, Idle(), 2, record=tmp_path / "other.jsonl", settings={"policy": Idle()})
    assert not (tmp_path / "other.jsonl").exists()


def test_a_full_disk_costs_no_episode(tmp_path, monkeypatch):
    """The second of three episodes is not written at once; a part of it was, and it is written with the third."""
    record, fsync, calls = tmp_path / "record.jsonl", os.fsync, []

    def full(number):
        calls.append(number)
        if len(calls) == 3:  # of the settings, of the first episode, of the second one
            os.ftruncate(number, os.fstat(number).st_size - 5)
            raise OSError(28, "No space left on device")
        fsync(number)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.warns(UserWarning, match="record was not written, and the episodes go on: .*No space left"):
        played = play_episodes(FluentWorld(sysadmin(2, horizon=2)), Idle(), 3, record=record)
    assert [each["rewards"] for each in lines_of(record)[1]] == [each.tolist() for each in played.rewards]


class Idle:
    """Does nothing."""

    def sample_action(self, state):
        return {}


def test_a_policy_beats_doing_nothing(problem):
    """Mean returns of three episodes of 12 steps: with reboots far above those without, which differ by 8 errors."""
    short = sysadmin(4, horizon=12)
    played = play_episodes(FluentWorld(short), SogbofaPolicy(KEY, short, **SETTINGS), 3, progress_bar=False)
    idle = play_episodes(FluentWorld(short), Idle(), 10, progress_bar=False)
    assert len(played.actions[0]) == 12
    assert played.returns.mean() > idle.returns.mean() + 4 * idle.returns.std() / np.sqrt(10)


def test_episodes_of_a_policy_do_not_depend_on_those_before(problem):
    short = sysadmin(4, horizon=4)
    policy = SogbofaPolicy(KEY, short, **SETTINGS)
    first, second = (
        play_episodes(FluentWorld(short), policy, number, seed=seed, progress_bar=False)
        for number, seed in ((2, 0), (1, 1))
    )
    assert second.actions[0] == first.actions[1] and second.states[0] == first.states[1]


def test_more_steps_never_lead_to_a_worse_plan(problem):
    """The same climbs, looked at once more: the best plan so far is kept."""
    state = np.array([1, 0, 1, 0.0])
    values = [plan(KEY, problem, state, **SETTINGS | {"max_steps": steps}).value for steps in range(5, 31, 5)]
    assert np.diff(values).min() >= 0


READY = """
domain shooting {
  requirements = { reward-deterministic };
  pvariables {
    ready : { state-fluent, bool, default = false };
    prepare : { action-fluent, bool, default = false };
    shoot : { action-fluent, bool, default = false };
  };
  cpfs { ready' = ready | prepare; };
  reward = 10 * shoot - prepare;
  action-preconditions { shoot => ready; };
}
"""


def test_a_plan_is_worth_no_more_than_what_its_preconditions_allow(tmp_path):
    """Prepare once, then shoot: 29 in four steps and 49 in an episode of six; shots unprepared were worth 30 and 0."""
    pytest.importorskip("pyRDDLGym")
    instance = "non-fluents nf { domain = shooting; } instance one { domain = shooting; non-fluents = nf; "
    instance += "init-state { ready = false; }; max-nondef-actions = pos-inf; horizon = 6; discount = 1.0; }"
    for name, text in (("domain", READY), ("instance", instance)):
        (tmp_path / f"{name}.rddl").write_text(text)
    ready = read_rddl(tmp_path / "domain.rddl", tmp_path / "instance.rddl")
    found = plan(KEY, ready, **SETTINGS)
    assert found.action == {"prepare": True} and 28 < found.value <= 29 + 1e-4
    policy = SogbofaPolicy(KEY, ready, **SETTINGS)
    assert play_episodes(FluentWorld(ready), policy, 1, progress_bar=False).returns == 49
