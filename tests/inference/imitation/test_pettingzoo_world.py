"""Parallel environments as worlds: entered at any step, exact against the environment played straight on."""

from __future__ import annotations

import warnings

import jax
import numpy as np
import pytest

from ethogram.inference.imitation import PettingZooState, PettingZooWorld, imitate, role_trajectories
from ethogram.inference.imitation.world import check_world, take

SEEDS = np.arange(30)
ROLES = np.random.default_rng(5).permuted(np.tile([0, 1], (len(SEEDS), 1)), axis=1)
NOTHING = np.random.default_rng(0)


@pytest.fixture
def world(line):
    return PettingZooWorld(line.Line, 12, agents=["left", "right"], others=line.moving)


def straight(line, seed, actions):
    """Observations of the two agents, by the environment alone."""
    environment = line.Line()
    observations, _ = environment.reset(seed=seed)
    found = [observations]
    for time, (one, two) in enumerate(actions.tolist()):
        prey = line.moving(np.random.default_rng([seed, time]), observations)
        observations, *_ = environment.step({"left": one, "right": two} | prey)
        found.append(observations)
    return np.array([[each["left"], each["right"]] for each in found])


def test_games_are_those_of_the_environment_from_any_step_on(line, world):
    """Entered in the middle, in another order, and twice at once."""
    check_world(world)
    state = world.reset(np.random.default_rng(3), 4)
    rng, states, actions = np.random.default_rng(4), [state], []
    for _ in range(3):
        actions.append(rng.integers(3, size=(4, 2)))
        state, _ = world.step(NOTHING, state, actions[-1])
        states.append(state)
    goes_on = np.flatnonzero(~state.ended)
    assert len(goes_on) >= 2
    for game in goes_on:
        truth = straight(line, int(state.seed[game]), np.array(actions)[:, game])
        np.testing.assert_array_equal([s.observations[game] for s in states], truth)
    again = np.repeat(goes_on[::-1], 2)
    other = 2 - np.array(actions)
    entered = take(states[1], again)
    for time in (1, 2):
        entered, _ = world.step(NOTHING, entered, other[time][again])
    for row, game in enumerate(again):
        path = np.concatenate([np.array(actions)[:1, game], other[1:, game]])
        if not entered.ended[row]:
            truth = straight(line, int(state.seed[game]), path)
            np.testing.assert_array_equal(entered.observations[row], truth[-1])
    np.testing.assert_array_equal(states[1].time, 1)  # a step changes no state that it was given


def test_one_environment_a_game_and_one_step_a_step(line, monkeypatch):
    steps = []
    whole = line.Line.step
    monkeypatch.setattr(line.Line, "step", lambda self, joint: steps.append(1) or whole(self, joint))
    line.Line.made = 0
    world = PettingZooWorld(line.Line, 12, agents=["left", "right"], others=line.still)
    for _ in range(2):
        state = world.reset(np.random.default_rng(1), 5)
        for _ in range(4):
            state, _ = world.step(NOTHING, state, np.ones((5, 2), int))
    assert line.Line.made == 5 and len(steps) == 2 * state.time.sum() >= 32


def test_demonstrations_are_replayed_exactly_and_end_at_the_goal(line, world):
    data = world.demonstrate(SEEDS, line.Experts(ROLES), 12)
    assert data.metadata.agent_names == ("left", "right")
    np.testing.assert_array_equal(data.group, np.repeat(SEEDS, 2))
    assert data.lengths.min() < 12
    replay = world.demonstrations(data)
    for game, length in enumerate(replay.lengths):
        path = straight(line, int(SEEDS[game]), replay.actions[game, :length])
        np.testing.assert_array_equal(replay.states.observations[game, :length], path[:-1])
        left, right, prey = path[-1][0, [0, 1, 2]]
        assert length == 12 or {left, right} == {prey - 1, prey + 1}
    fresh = PettingZooWorld(line.Line, 12, agents=["left", "right"], others=line.moving)
    again = role_trajectories(fresh, replay, data.metadata)
    for one, two in zip(
        jax.tree.leaves(again._replace(group=data.group)), jax.tree.leaves(data), strict=True
    ):
        np.testing.assert_array_equal(one, two)


def test_team_mates_are_seen_in_order_of_their_roles():
    class Three:
        possible_agents = ["a", "b", "c"]

        def action_space(self, agent):
            return type("Space", (), {"n": 2})()

        def reset(self, seed=None):
            return {name: [10.0 * i, seed] for i, name in enumerate(self.possible_agents)}, {}

        def step(self, joint):
            raise AssertionError

    world = PettingZooWorld(Three, 1)
    state = world.reset(np.random.default_rng(0), 1)
    found = world.observe(np.array([[2, 0, 1]]), state)
    seed = float(state.seed[0])
    np.testing.assert_array_equal(found[0, 0], [0, seed, 10, seed, 20, seed])
    np.testing.assert_array_equal(found[0, 1], [10, seed, 20, seed, 0, seed])
    np.testing.assert_array_equal(found[0, 2], [20, seed, 10, seed, 0, seed])


def test_real_valued_actions_are_clipped_and_recorded_last(line):
    world = PettingZooWorld(
        lambda: line.Line(continuous=True),
        6,
        agents=["left", "right"],
        others=lambda rng, seen: {"prey": np.zeros(1)},
        goal=lambda observations, rewards: bool(rewards.sum() > 0),
    )
    assert world.num_actions is None
    data = world.demonstrate([3, 1], lambda state, game: np.full((len(game), 2, 1), 4.0), 5)
    assert data.actions is None and data.observations.shape[2] == 4
    assert (data.observations[:, 0, 3] == 4).all()
    replay = world.demonstrations(data)
    assert replay.states.actions[:, -1, 0].max() == 1 and replay.actions.shape[2:] == (2, 1)
    with pytest.raises(ValueError, match=r"actions have shape \(2, 2\) for each game"):
        world.step(NOTHING, world.reset(NOTHING, 1), np.zeros((1, 2, 2)))


def test_discrete_actions_may_begin_elsewhere(line):
    shifted = PettingZooWorld(
        lambda: line.Line(start=5), 4, agents=["left", "right"], others=lambda rng, seen: {"prey": 6}
    )
    plain = PettingZooWorld(line.Line, 4, agents=["left", "right"], others=line.still)
    found = [each.step(NOTHING, each._begin(SEEDS), ROLES)[0].observations for each in (plain, shifted)]
    np.testing.assert_array_equal(*found)


class Nearest:
    def fit(self, X, y, sample_weight):
        self.table = {}
        for x, move, weight in zip(X[:, [0, 2]], y, sample_weight, strict=True):
            self.table.setdefault(float(x[0] - x[1]), np.zeros(3))[move] += weight

    def predict(self, X):
        nothing = np.array([0.0, 1, 0])
        return np.array([self.table.get(float(x[0] - x[2]), nothing).argmax() for x in X])


def test_imitation_in_a_parallel_environment(line):
    """Known roles reach the goal, shuffled ones differ from the expert more often; segments enter games mid-play."""
    world = PettingZooWorld(line.Line, 12, agents=["left", "right"], others=line.still)
    expert = line.Experts(ROLES)
    data = world.demonstrate(SEEDS, expert, 12)
    settings = {"rounds": 2, "horizon": 12, "evaluation_games": 30, "progress_bar": False}
    results = {
        name: imitate(jax.random.key(0), None, Nearest, world, data, roles=roles, expert=expert, **settings)
        for name, roles in {"known": ROLES.ravel(), "shuffled": "shuffled"}.items()
    }
    assert results["known"].loss[-1] < 0.5 * results["shuffled"].loss[-1]
    assert results["known"].failure[-1] <= results["shuffled"].failure[-1] < 0.5
    segments = imitate(jax.random.key(0), ROLES.ravel(), Nearest, world, data, **settings)
    assert segments.loss[0] <= 0.05


def test_what_is_no_such_environment_is_named(line):
    class Turns(line.Line):
        def agent_iter(self):
            return iter(())

    class Uneven(line.Line):
        def action_space(self, agent):
            return line.Discrete(2 + self.possible_agents.index(agent))

    class Odd(line.Line):
        def action_space(self, agent):
            return object()

    class Boxes(line.Line):
        def action_space(self, agent):
            return line.Box(0, 1, (1 + self.possible_agents.index(agent),))

    class Old(line.Line):
        def reset(self, seed=None):
            return super().reset(seed)[0]

    pair = {"agents": ["left", "right"], "others": line.still}
    cases = [
        (TypeError, "agents take turns", Turns, pair),
        (TypeError, "object without reset, step, action_space, possible_agents", object, {}),
        (ValueError, r"action numbers \{'left': 2, 'right': 3\}", Uneven, pair),
        (TypeError, "give Discrete or Box for all agents", Odd, pair),
        (ValueError, r"actions of sizes \{'left': 1, 'right': 2\}", Boxes, pair),
        (ValueError, "nobody acts for", line.Line, {"agents": ["left"]}),
        (ValueError, "distinct names out of", line.Line, {"agents": ["left", "nobody"]}),
    ]
    for error, message, make, settings in cases:
        with pytest.raises(error, match=message):
            PettingZooWorld(make, 5, **settings)
    with pytest.raises(TypeError, match="reset of Old returns no pair"):
        PettingZooWorld(Old, 5, **pair).reset(NOTHING, 1)


def test_games_that_cannot_go_on_are_named(line):
    pair = {"agents": ["left", "right"]}
    world = PettingZooWorld(lambda: line.Line(slip=1.0), 30, others=line.still, **pair)
    state = world.reset(np.random.default_rng(2), 1)
    assert not state.ended[0]
    for _ in range(20):
        state, _ = world.step(NOTHING, state, np.ones((1, 2), int))
    with pytest.raises(ValueError, match=r"left has left the environment of seed .* after 20 joint actions"):
        world.step(NOTHING, state, np.ones((1, 2), int))
    short = PettingZooWorld(line.Line, 1, others=line.still, **pair)
    state, _ = short.step(NOTHING, short._begin(np.array([1])), np.ones((1, 2), int))
    with pytest.raises(ValueError, match="has 1 joint actions: give a larger max_steps"):
        short.step(NOTHING, state._replace(ended=np.array([False])), np.ones((1, 2), int))
    silent = PettingZooWorld(line.Line, 3, others=lambda rng, seen: {}, **pair)
    with pytest.raises(ValueError, match="others returned no action of 'prey'"):
        silent.step(NOTHING, silent._begin(np.array([1])), np.ones((1, 2), int))


def test_environments_that_their_seed_does_not_determine_are_refused(line, world):
    loose = PettingZooWorld(lambda: line.Line(seeded=False), 12, agents=["left", "right"], others=line.still)
    state = loose.reset(np.random.default_rng(0), 6)
    loose.step(NOTHING, state, np.ones((6, 2), int))
    with pytest.raises(ValueError, match="observes something else after the same 0 joint actions"):
        loose.step(NOTHING, state, np.ones((6, 2), int))  # its environments have gone on
    data = world.demonstrate(SEEDS, line.Experts(ROLES), 12)
    with pytest.raises(ValueError, match=r"data\.group must be the seed"):
        world.demonstrations(data._replace(group=data.group + 1))
    with pytest.raises(ValueError, match=r"data\.agent has another order"):
        world.demonstrations(data._replace(agent=1 - data.agent))
    actions = np.array(data.actions)
    actions[np.arange(len(actions)), data.lengths - 1] = -1
    with pytest.raises(ValueError, match="last='drop'"):
        world.demonstrations(data._replace(actions=actions))
    for seeds in ([1, 1], [-1], [0.5], []):
        with pytest.raises(ValueError, match="seeds is"):
            world.demonstrate(seeds, line.Experts(ROLES), 5)


@pytest.mark.parametrize(
    ("observed", "message"),
    [
        (lambda time: np.full(3, np.nan), "the observation of 'left' is .*nan"),
        (lambda time: "far", "the observation of 'left' is .*far"),
        (lambda time: [0, 0, 0] if time == 0 else [0.5, 0, 0], "observations are float64 .* int64"),
        (lambda time: np.zeros(3 + time), r"shape \(2, 4\) after a joint action, and float64 \(2, 3\) before"),
    ],
)  # fmt: skip
def test_observations_are_finite_and_of_one_kind(line, observed, message):
    class Odd(line.Line):
        def observations(self):
            return {name: observed(getattr(self, "time", 0)) for name in self.possible_agents}

    world = PettingZooWorld(Odd, 5, agents=["left", "right"], others=line.still)
    with pytest.raises(ValueError, match=message):
        world.demonstrate([1], lambda state, game: np.ones((len(game), 2), int), 2)


def test_answers_of_functions_are_checked(line, unchecked):
    def answers(message, **functions):
        given = {"agents": ["left", "right"], "others": line.still} | functions
        world = PettingZooWorld(line.Line, 5, **given)
        with pytest.raises((ValueError, TypeError), match=message):
            world.demonstrate([1], lambda state, game: np.ones((len(game), 2), int), 2)

    answers("others returned NoneType: give actions by name", others=lambda rng, seen: None)
    answers(r"goal returned bool of shape \(2,\): give True or False", goal=lambda seen, rewards: rewards > 0)
    answers("goal returned float64", goal=lambda seen, rewards: np.nan)
    answers(
        r"role_features returned nan for game 0, agent 0, feature 0",
        role_features=lambda seen, acted: seen * np.nan,
    )
    world = unchecked("pettingzoo_world").PettingZooWorld(line.Line, 5, others=line.still)
    with pytest.raises(TypeError, match="expert is NoneType: give a function"):
        world.demonstrate([1], None, 5)
    with pytest.raises(ValueError, match=r"seeds is int64 of shape \(\)"):
        world.demonstrate(3, line.Experts(ROLES), 5)


def test_experts_answer_as_many_numbers_as_the_demonstrations_have(line):
    world = PettingZooWorld(
        lambda: line.Line(continuous=True),
        5,
        agents=["left", "right"],
        others=lambda rng, seen: {"prey": [0.0]},
    )
    data = world.demonstrate([1, 2], lambda state, game: np.ones((len(game), 2, 1)), 3)

    class Still:
        def fit(self, X, y, sample_weight): ...

        def predict(self, X):
            return np.zeros((len(X), 1))

    call = {"rounds": 1, "horizon": 3, "evaluation_games": 2, "progress_bar": False, "roles": "shuffled"}
    with pytest.raises(ValueError, match=r"expert gave actions of \(3,\) numbers, .* have \(1,\)"):
        imitate(
            jax.random.key(0),
            None,
            Still,
            world,
            data,
            expert=lambda s, game: np.zeros((len(game), 2, 3)),
            **call,
        )


def mpe(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip(f"mpe2.{name}")


def toward(away):
    """The move of simple_spread and simple_tag that goes along (..., 2): stay, left, right, down, up."""
    sideways = np.abs(away[..., 0]) > np.abs(away[..., 1])
    moves = np.where(sideways, np.where(away[..., 0] > 0, 2, 1), np.where(away[..., 1] > 0, 4, 3))
    return np.where(np.abs(away).max(-1) < 0.05, 0, moves)


def test_predators_of_simple_tag_chase_an_agent_with_a_policy_of_its_own():
    tag = mpe("simple_tag_v3")
    chosen = ["adversary_0", "adversary_1", "adversary_2"]

    def chase(state, game):
        return toward(state.observations[:, :, 12:14])

    world = PettingZooWorld(
        lambda: tag.parallel_env(max_cycles=25),
        20,
        agents=chosen,
        others=lambda rng, seen: {"agent_0": int(rng.integers(5))},
        goal=lambda seen, rewards: bool(rewards.max() > 0),
    )
    data = world.demonstrate(np.arange(4), chase, 20)
    assert (data.lengths < 20).any()
    assert isinstance(world.demonstrations(data).states, PettingZooState)  # compared with what was observed
    with pytest.raises(ValueError, match="observations of sizes"):
        PettingZooWorld(lambda: tag.parallel_env(), 5).reset(NOTHING, 1)
