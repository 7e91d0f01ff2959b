"""A planning problem as a world of `imitate`: draws, joint actions, and a learner between planner and doing nothing."""

import jax
import numpy as np
import pytest

import ethogram
from ethogram.domains.fluent_team import FluentTeam, LearnedTeam, PlannerExpert
from ethogram.domains.fluent_world import FluentWorld
from ethogram.domains.sysadmin import sysadmin
from ethogram.inference.imitation.world import check_world
from ethogram.inference.planning import play_episodes


class Table:
    """The most frequent action at each state; at others that of the nearest."""

    def fit(self, X, y, sample_weight):
        self.X, where = np.unique(X, axis=0, return_inverse=True)
        votes = np.zeros((len(self.X), int(y.max()) + 1))
        np.add.at(votes, (where.ravel(), y), sample_weight)
        self.y = votes.argmax(1)

    def predict(self, X):
        return self.y[[np.abs(self.X - row).sum(1).argmin() for row in X]]


class Idle:
    def sample_action(self, state):
        return {}


class Repairs:
    """A planner for the twelve steps of an episode: the first machine that is down is rebooted."""

    problem = sysadmin(4, horizon=12)
    left = 0

    def reset(self, seed=None):
        self.left = 12

    def sample_action(self, state):
        self.left -= 1
        down = np.flatnonzero(self.problem.encode_state(state) == 0)
        return {self.problem.actions[down[0]]: True} if len(down) and self.left >= 0 else {}


@pytest.fixture(scope="module")
def planner():
    return Repairs()


def test_a_policy_that_learned_from_a_planner_plays_almost_as_well(planner):
    """DAgger: the planner is asked at the learner's own states, after two episodes of its own."""
    problem = planner.problem
    team, world = FluentTeam(problem), FluentWorld(problem)
    check_world(team)
    shown = play_episodes(world, planner, 2, progress_bar=False)
    data, expert = team.demonstrations(shown), PlannerExpert(team, planner)
    result = ethogram.imitate(
        jax.random.key(1),
        np.zeros(2, int),
        Table(),
        team,
        data,
        expert=expert,
        rounds=4,
        horizon=12,
        evaluation_games=4,
        progress_bar=False,
    )
    assert result.loss[-1] < 0.05 and result.steps[-1] == 12

    class Asked:  # the planner, once a state
        def predict(self, X):
            return expert(X, np.zeros(len(X), int))[:, 0]

    learner, asked = LearnedTeam(team, result.policies), LearnedTeam(team, [Asked()])
    agents = {"planner": asked, "learner": learner, "nothing": Idle()}
    returns = {
        name: play_episodes(world, agent, 40, seed=9, progress_bar=False).returns
        for name, agent in agents.items()
    }
    mean = {name: each.mean() for name, each in returns.items()}
    error = max(each.std() for each in returns.values()) / np.sqrt(40)
    assert mean["learner"] > mean["nothing"] + 5 * error
    assert abs(mean["learner"] - mean["planner"]) < 3 * error


def test_the_expert_answers_as_the_planner_and_by_the_state_alone(planner):
    team = FluentTeam(planner.problem)
    states = np.array(
        [
            [1, 0, 1, 1],
            [0, 0, 0, 0],
            [1, 0, 1, 1],
            [1, 1, 1, 1.0],
            *np.random.default_rng(0).integers(0, 2, (20, 4)),
        ]
    )
    answers = PlannerExpert(team, planner)(states, np.zeros(len(states), int))
    for state, answer in zip(states, answers, strict=True):
        planner.reset(seed=0)
        (name,) = planner.sample_action(state) or ("",)
        assert [*("", *planner.problem.actions)].index(name) == answer[0]
    assert answers[0] == answers[2] == 2 and answers[3] == 0


def test_demonstrations_are_the_episodes(planner):
    team = FluentTeam(planner.problem)
    shown = play_episodes(FluentWorld(planner.problem), planner, 2, progress_bar=False)
    states, actions, lengths = team.demonstrations(shown)
    np.testing.assert_array_equal(lengths, [12, 12])
    for game in range(2):
        for time in range(12):
            named = dict(zip(planner.problem.fluents, states[game, time], strict=True))
            assert {name for name, on in named.items() if on} == set(shown.states[game][time])
            taken = actions[game, time, 0]
            assert shown.actions[game][time] == ((planner.problem.actions[taken - 1],) if taken else ())


def test_agents_act_together_and_states_are_drawn_from_the_program():
    """2000 games of one step: each share within 4.5 standard errors of its probability."""
    problem = sysadmin(4, limit=2)
    team = FluentTeam(problem, 2)
    state = np.repeat([[1, 0, 0, 1.0]], 2000, 0)
    actions = np.repeat([[3, 2]], 2000, 0)
    following, ended = team.step(np.random.default_rng(0), state, actions)
    chances = problem.program.expectations(state[:1].T, np.array([[0, 1, 1, 0.0]]).T)[0][:, 0]
    error = np.sqrt(np.maximum(chances * (1 - chances), 1e-9) / 2000)
    assert (np.abs(following.mean(0) - chances) <= 4.5 * error).all() and not ended.any()
    assert team.deal(["reboot___c4", "reboot___c2"]) == [2, 4] and team.deal([]) == [0, 0]
    with pytest.raises(ValueError, match=r"2 actions at a time, .* and num_agents = 1"):
        FluentTeam(problem).deal(["reboot___c4", "reboot___c2"])
    with pytest.raises(ValueError, match="policies has 1 entries: expected num_agents = 2"):
        LearnedTeam(team, [Table()])


def test_of_actions_that_are_not_allowed_together_some_are_carried_out():
    team = FluentTeam(sysadmin(3, limit=1), 2)
    state = np.ones((3, 3))
    made = team.joint(state, np.array([[1, 2], [0, 3], [2, 2]]))
    np.testing.assert_array_equal(made, [[1, 0, 0], [0, 0, 1], [0, 1, 0]])


LAMPS = """
domain lamps {
  requirements = { reward-deterministic };
  types { place : {@x, @y}; colour : {@red, @green, @blue}; };
  pvariables {
    lamp(place) : { state-fluent, colour, default = @red };
    act : { action-fluent, bool, default = false };
  };
  cpfs { lamp'(?p) = Discrete(colour, @red : 0.2, @green : 0.3, @blue : 0.5); };
  reward = 0;
}
"""
NIGHT = """
non-fluents nf { domain = lamps; }
instance night { domain = lamps; non-fluents = nf; max-nondef-actions = 1; horizon = 5; discount = 1.0; }
"""


def test_enumerated_fluents_keep_one_value(tmp_path):
    pytest.importorskip("pyRDDLGym")
    (tmp_path / "domain.rddl").write_text(LAMPS)
    (tmp_path / "instance.rddl").write_text(NIGHT)
    problem = ethogram.read_rddl(tmp_path / "domain.rddl", tmp_path / "instance.rddl")
    assert len(problem.enumerated) == 2
    team, rng = FluentTeam(problem), np.random.default_rng(0)
    state = team.reset(rng, 5)
    for _ in range(3):
        state, _ = team.step(rng, state, np.zeros((5, 1), int))
        for members in problem.enumerated.values():
            np.testing.assert_array_equal(state[:, list(members)].sum(1), 1)
