"""A planning problem written out, and the planner against the best policy."""

import jax
import numpy as np
import pytest

from ethogram.domains.fluent_mdp import enumerate_problem
from ethogram.domains.fluent_team import FluentTeam
from ethogram.domains.fluent_world import FluentWorld
from ethogram.domains.optimal_policy import OptimalPolicy
from ethogram.domains.sysadmin import sysadmin
from ethogram.inference.planning import RandomPolicy, SogbofaPolicy, play_episodes
from ethogram.models.planning import read_rddl


@pytest.fixture(scope="module")
def problem():
    return sysadmin(4, horizon=8)


@pytest.fixture(scope="module")
def written(problem):
    return enumerate_problem(problem)


def test_states_actions_probabilities_and_rewards(problem, written):
    assert written.rewards.shape == (16, 5)
    assert written.mdp.action_names[0] == "nothing" and written.mdp.action_names[-1] == "reboot___c4"
    table = np.asarray(written.mdp.transitions.probabilities)
    for state, action in ((3, 0), (9, 2), (0, 4)):
        chances, reward, _ = problem.program.expectations(
            written.states[state][:, None], written.actions[action][:, None]
        )
        for following in (0, 5, 15):
            on = written.states[following]
            wanted = np.where(on > 0, chances[:, 0], 1 - chances[:, 0]).prod()
            assert table[state, action, following] == pytest.approx(wanted, abs=1e-7)
        assert written.rewards[state, action] == pytest.approx(reward[0], abs=1e-12)


def best_value(written, horizon):
    """Expected return of the best policy, by backward induction in NumPy."""
    table, value = np.asarray(written.mdp.transitions.probabilities, float), np.zeros(len(written.states))
    for _ in range(horizon):
        value = (written.rewards + table @ value).max(1)
    return float(value @ np.asarray(written.mdp.start, float))


@pytest.mark.parametrize("horizon", [1, 2, 8])
def test_the_best_policy_has_the_value_of_backward_induction(written, horizon):
    policy = OptimalPolicy(sysadmin(4, horizon=horizon))
    assert policy.value == pytest.approx(best_value(written, horizon), rel=1e-6)
    assert policy.values.shape == (16,)


def test_the_best_policy_as_an_agent():
    """100 episodes: their mean is within 4 standard errors of the value."""
    problem = sysadmin(3, horizon=6)
    policy = OptimalPolicy(problem)
    played = play_episodes(FluentWorld(problem), policy, 100, progress_bar=False)
    assert abs(played.returns.mean() - policy.value) < 4 * played.returns.std() / np.sqrt(100)


@pytest.mark.slow
def test_the_planner_is_near_the_best_policy(problem, written):
    """10 episodes: the mean return is within 3 % and 4 standard errors of the best policy's expectation."""
    policy = SogbofaPolicy(jax.random.key(0), problem, 100.0, depth=4, num_restarts=8, max_steps=5)
    played = play_episodes(FluentWorld(problem), policy, 10, progress_bar=False)
    best, error = best_value(written, 8), played.returns.std() / np.sqrt(10)
    assert 0.97 * best - 4 * error < played.returns.mean() < best + 4 * error


def test_episodes_are_demonstrations(problem, written):
    played = play_episodes(
        FluentWorld(problem), RandomPolicy(jax.random.key(0), problem), 10, progress_bar=False
    )
    data = written.demonstrations(problem, played)
    assert data.states.shape == (10, 8) and int(data.states[0, 0]) == 15
    total = np.asarray(written.rewards)[np.asarray(data.states), np.asarray(data.actions)].sum(1)
    np.testing.assert_allclose(total, played.returns, atol=1e-9)
    with pytest.raises(ValueError, match="which the problem has not"):
        written.demonstrations(sysadmin(3), played)


@pytest.mark.parametrize("count", [13, 20])
def test_large_problems_are_refused_before_they_are_written(count):
    with pytest.raises(ValueError, match=f"{2**count} states and {count} actions.*: too many to write out"):
        enumerate_problem(sysadmin(count))


def test_problems_that_cannot_be_solved_are_refused():
    with pytest.raises(ValueError, match="problem has 21 fluents: at most 20"):
        OptimalPolicy(sysadmin(21))
    with pytest.raises(TypeError, match="problem is str: expected a PlanningProblem"):
        OptimalPolicy("sysadmin")


def test_a_state_that_is_refused_is_no_step_of_the_episode():
    policy = OptimalPolicy(sysadmin(3, horizon=4))
    with pytest.raises(ValueError, match="state has no fluent running___c1"):
        policy.sample_action({})
    assert policy.step == 0


BUSY = """
domain busy {
  requirements = { reward-deterministic };
  types { thing : {@x, @y, @z}; };
  pvariables {
    COST(thing) : { non-fluent, real, default = 1.0 };
    good(thing) : { state-fluent, bool, default = true };
    act(thing) : { action-fluent, bool, default = false };
  };
  cpfs { good'(?t) = if (act(?t)) then Bernoulli(0.6) else KronDelta(good(?t)); };
  reward = sum_{?t: thing}[good(?t) - COST(?t) * act(?t)];
  action-preconditions { (sum_{?t: thing}[act(?t)]) >= 2; };
}
non-fluents nf { domain = busy; non-fluents { COST(@y) = 3.0; }; }
instance one { domain = busy; non-fluents = nf; max-nondef-actions = 2; horizon = 4; discount = 1.0; }
"""


@pytest.fixture
def busy(tmp_path):
    """All things are good, and every action does harm: the two that cost least are taken."""
    pytest.importorskip("pyRDDLGym")
    domain, instance = BUSY.split("non-fluents nf")
    (tmp_path / "domain.rddl").write_text(domain)
    (tmp_path / "instance.rddl").write_text("non-fluents nf" + instance)
    return read_rddl(tmp_path / "domain.rddl", tmp_path / "instance.rddl")


@pytest.mark.slow
def test_where_two_actions_must_be_taken_the_planner_takes_two(busy):
    planner = SogbofaPolicy(jax.random.key(0), busy, None, depth=4, num_restarts=8, max_steps=5)
    found = planner.sample_action(FluentWorld(busy).reset()[0])
    assert set(found) == {name for name in busy.actions if "y" not in name}


def test_where_two_actions_must_be_taken_all_agents_take_two(busy):
    problem, written = busy, enumerate_problem(busy)
    np.testing.assert_array_equal(written.actions.sum(1), 2)
    best = OptimalPolicy(problem)
    assert best.value == pytest.approx(best_value(written, 4))
    state = FluentWorld(problem).reset()[0]
    cheap = {name for name in problem.actions if "y" not in name}
    assert set(best.sample_action(state)) == cheap
    random = RandomPolicy(jax.random.key(0), problem)
    random.reset(seed=3)
    first = random.sample_action(state)
    random.reset(seed=3)
    assert len(first) == 2 and random.sample_action(state) == first
    team = FluentTeam(problem, 2)
    np.testing.assert_array_equal(team.joint(np.ones((2, 3)), np.array([[0, 0], [2, 0]])).sum(1), 2)
