"""Steps after the first: expectations where actions are taken if they are allowed, against enumeration."""

import itertools

import jax
import numpy as np
import pytest

from ethogram.inference.planning.action_limits import project
from ethogram.inference.planning.rollout_marginals import _limited, rollout
from ethogram.models.planning import read_rddl

pytest.importorskip("pyRDDLGym")

DOMAIN = """
domain hunt {
  requirements = { reward-deterministic };
  types { place : {@x, @y}; phase : {@day, @night}; };
  pvariables {
    ready : { state-fluent, bool, default = false };
    at(place) : { state-fluent, bool, default = false };
    now : { state-fluent, phase, default = @day };
    prepare : { action-fluent, bool, default = false };
    shoot : { action-fluent, bool, default = false };
    leave(place) : { action-fluent, bool, default = false };
  };
  cpfs {
    ready' = ready | prepare;
    at'(?p) = at(?p) ^ ~leave(?p);
    now' = if (shoot) then @night else now;
  };
  reward = 10 * (shoot ^ ready) - prepare - 2 * shoot;
  action-preconditions { %s };
}
"""
INSTANCE = """
non-fluents nf { domain = hunt; }
instance one { domain = hunt; non-fluents = nf; init-state { ready = false; }; max-nondef-actions = %s; horizon = 10;
  discount = 1.0; }
"""
ACTIONS = ("prepare", "shoot", "leave___x", "leave___y")
LEAVING = "forall_{?p: place} [leave(?p) => at(?p)];"
NIGHT = "shoot => (now == @day);"


def written(folder, preconditions, limit="pos-inf", semantics="expression"):
    (folder / "domain.rddl").write_text(DOMAIN % preconditions)
    (folder / "instance.rddl").write_text(INSTANCE % limit)
    return read_rddl(folder / "domain.rddl", folder / "instance.rddl", semantics=semantics)


def taken(problem, state, action):
    """Actions of 0 and 1 without those that are forbidden alone, and with those that must be taken."""
    low, high = problem.rules.range(state)
    each = np.maximum(np.eye(4), low[:, None])
    return np.clip(action, low, high * (problem.rules.unmet(state, each) == 0))


def expectation(problem, chances, actions):
    """Next probabilities and reward, by enumeration of independent fluents, the phases one event, and of actions."""
    wanted = np.zeros(6)
    night = problem.fluents.index("now=night")
    day = problem.fluents.index("now=day")
    for values in itertools.product((0, 1), repeat=4):
        state = np.zeros(5)
        state[[0, 1, 2, night]] = values
        state[day] = 1 - state[night]
        weight = np.prod(np.where(state == 1, chances, 1 - chances)[[0, 1, 2, night]])
        for chosen in itertools.product((0.0, 1.0), repeat=4):
            probability = weight * np.prod(np.where(chosen, actions, 1 - actions))
            made = taken(problem, state, np.array(chosen))
            nexts, reward, _ = problem.program.expectations(state[:, None], made[:, None])
            wanted += probability * np.append(nexts[:, 0], reward)
    return wanted


@pytest.mark.parametrize(
    "preconditions",
    [
        f"shoot => ready; {LEAVING} {NIGHT}",
        "~(shoot ^ ~ready);",
        "~ready => ~shoot;",
        "shoot <= ready;",
        "(shoot | prepare) => at(@x);",
        "ready => prepare; shoot => (at(@x) ^ ready);",
        f"{LEAVING} forall_{{?p: place}} [at(?p) => ~shoot];",
        "~leave(@x);",
    ],
)
def test_actions_are_taken_where_they_are_allowed(tmp_path, preconditions):
    """Formulas use the fluents of the preconditions too: who has left is not there with a probability of its own."""
    problem, rng = written(tmp_path, preconditions), np.random.default_rng(0)
    assert problem.actions == ACTIONS
    chances, actions = rng.random(5), rng.random(4)
    chances[3] = 1 - chances[4]  # the phases
    following, reward, _ = problem.lookahead.program.expectations(chances[:, None], actions[:, None])
    wanted = expectation(problem, chances, actions)
    np.testing.assert_allclose(np.append(following[:, 0], reward), wanted, atol=1e-12)


def test_a_plan_believes_in_no_shot_without_preparation(tmp_path):
    """From the initial state: nothing by shooting, 10 - 2 - 1 a step after preparing; it was 8 a step by shooting."""
    problem = written(tmp_path, "shoot => ready;")
    state, total = problem.initial[:, None], []
    for first in ((0, 0, 0, 0), (1, 0, 0, 0)):
        state, value = problem.initial[:, None], 0.0
        for action in (first, *[(0, 1, 0, 0)] * 3):
            state, reward, _ = problem.lookahead.program.expectations(state, np.array(action, float)[:, None])
            value += reward[0]
        total.append(value)
    np.testing.assert_allclose(total, [0, 3 * 8 - 1])


def test_where_every_state_allows_the_same_there_is_one_program(tmp_path):
    assert written(tmp_path, "prepare + shoot <= 1;", 2).lookahead is None


def test_ranges_and_bounds_hold_in_any_state(tmp_path):
    """An action that is never allowed, one that always must be taken, and a sum whose bound is at most two."""
    rules = "~leave(@y); prepare; shoot + leave(@x) + leave(@y) <= at(@x) + at(@y);"
    problem = written(tmp_path, rules, 3)
    lookahead = problem.lookahead
    np.testing.assert_array_equal(lookahead.low, [1, 0, 0, 0])
    np.testing.assert_array_equal(lookahead.high, [1, 1, 1, 0])
    np.testing.assert_array_equal(lookahead.bounds, [3, 2])
    np.testing.assert_array_equal(lookahead.weights, [[0, 1, 1, 1]])
    state = np.array([0, 0.2, 0.6, 1, 0])[:, None]
    np.testing.assert_allclose(lookahead.limits.expectations(state, np.zeros((4, 1)))[0], [[0.8]])
    np.testing.assert_array_equal(problem.rules.sums(np.array([0, 1, 0, 1, 0]))[1], [3, 1])


@pytest.mark.slow
def test_actions_of_later_steps_share_an_expected_capacity(tmp_path):
    """Two leave at the first step, as given; of two more at the next, where one place is left, each counts a half."""
    rules = "leave(@x) + leave(@y) <= at(@x) + at(@y);"
    problem = written(tmp_path, rules)
    lookahead, state = problem.lookahead, np.array([1, 1, 1, 1, 0.0])
    actions = np.zeros((3, 4, 1))
    actions[0, 2], actions[1, 2:], actions[1:, 1] = 1, 1, 1
    limits = lookahead.weights, lookahead.members, lookahead.limits
    value = rollout(lookahead.program, state, actions, limits=limits)
    assert float(value[0]) == pytest.approx(16)
    state, totals = state[:, None], []
    for action in actions:
        bound = lookahead.limits.expectations(state, action)[0][0]
        action[2:] *= np.minimum(1, bound / max(action[2:].sum(), 1e-9)) if totals else 1
        totals.append(action[2:].sum())
        state = lookahead.program.expectations(state, action)[0]
    np.testing.assert_allclose(totals, [1, 1, 0])


@pytest.mark.parametrize(
    ("preconditions", "groups"),
    [
        ("ready => (prepare | exists_{?p: place} [leave(?p)]);", [("prepare", "leave___x", "leave___y")]),
        ("shoot => ready; now == @night => (leave(@y) | leave(@x));", [("leave___x", "leave___y")]),
        (
            "prepare | shoot; ready => (prepare | leave(@x));",
            [("prepare", "shoot"), ("prepare", "leave___x")],
        ),
    ],
)
def test_one_of_several_actions_is_taken_where_one_is_required(tmp_path, preconditions, groups):
    """Against enumeration of states and drawn actions: where a group is required and none is drawn, one is, evenly."""
    problem, rng = written(tmp_path, preconditions), np.random.default_rng(0)
    lookahead = problem.lookahead
    members = [np.isin(problem.actions, group) for group in groups]
    np.testing.assert_array_equal(lookahead.members, members)
    chances, actions = rng.random(5), rng.random(4)
    chances[3] = 1 - chances[4]
    wanted = np.zeros(4)  # probabilities that actions are taken
    for state in itertools.product((0.0, 1.0), repeat=5):
        weight = np.prod(np.where(state, chances, 1 - chances)[[0, 1, 2, 4]]) * (state[3] != state[4])
        for chosen in itertools.product((0.0, 1.0), repeat=4):
            drawn = [(weight * np.prod(np.where(chosen, actions, 1 - actions)), np.array(chosen))]
            for group in members:
                completed, single = [], np.eye(4)[group]
                for chance, each in drawn:
                    none, one = problem.rules.unmet(np.array(state), np.stack((each, each + single[0]), 1))
                    if none > one and not each[group].any():
                        completed += [(chance / len(single), each + member) for member in single]
                    else:
                        completed.append((chance, each))
                drawn = completed
            wanted += sum(chance * each for chance, each in drawn)
    limits = lookahead.weights, lookahead.members, lookahead.limits
    found = np.asarray(jax.jit(_limited)(*limits, chances[:, None], actions[:, None]))[:, 0]
    np.testing.assert_allclose(found, wanted, atol=1e-12)


def test_a_bound_from_below_that_depends_on_the_state_is_of_the_first_step_alone(tmp_path):
    lookahead = written(tmp_path, "leave(@x) + leave(@y) >= at(@x) + at(@y);").lookahead
    np.testing.assert_array_equal(lookahead.bounds, [0])


@pytest.mark.slow
def test_bounds_may_differ_between_steps():
    position = np.random.default_rng(0).random((3, 4, 2))
    low, high, weights, bounds = (
        np.zeros((1, 4)),
        np.ones((1, 4)),
        np.ones((1, 4)),
        np.array([[0.5], [1], [2]]),
    )
    found = np.asarray(project(position, low, high, weights, bounds))
    for step, bound in enumerate(bounds):
        alone = np.asarray(project(position[step : step + 1], low, high, weights, bound))
        np.testing.assert_allclose(found[step], alone[0], atol=1e-6)
