"""Episodes of single agents to teams and back."""

from __future__ import annotations

import sys
import types
from dataclasses import make_dataclass

import numpy as np
import pytest

from ethogram.inference.imitation import Episode, PettingZooWorld, team_from_episodes, team_to_episodes

FIELDS = ("obs", "acts", "infos", "terminal")


def games(real=False, lengths=(3, 5), agents=("wing", "back")):
    rng = np.random.default_rng(0)
    return [
        {
            name: Episode(
                rng.normal(size=(length + 1, 2)),
                rng.normal(size=(length, 2)) if real else rng.integers(4, size=length),
                None,
                True,
            )
            for name in agents
        }
        for length in lengths
    ]


def test_what_is_kept_comes_back():
    made = games()
    data = team_from_episodes(made, last="keep", group=[7, 4])
    assert data.group.tolist() == [7, 7, 4, 4] and data.agent.tolist() == [0, 1, 0, 1]
    assert data.metadata.agent_names == ("wing", "back") and data.lengths.tolist() == [4, 4, 6, 6]
    back = team_to_episodes(data, terminal=True)
    for episode, truth in zip(back, [e for game in made for e in game.values()], strict=True):
        assert isinstance(episode, Episode) and episode.terminal and episode.infos is None
        np.testing.assert_allclose(episode.obs, truth.obs)
        np.testing.assert_array_equal(episode.acts, truth.acts)


def test_a_dropped_last_observation_costs_the_last_action():
    made = games()
    data = team_from_episodes([list(game.values()) for game in made])
    assert data.lengths.tolist() == [3, 3, 5, 5] and data.metadata.agent_names is None
    rewards = np.arange(20.0).reshape(4, 5)
    back = team_to_episodes(data, terminal=True, rewards=rewards, last="drop")
    truth = made[1]["back"]
    np.testing.assert_allclose(back[3].obs, truth.obs[:5])
    np.testing.assert_array_equal(back[3].acts, truth.acts[:4])
    np.testing.assert_array_equal(back[3].rews, rewards[3, :4])
    assert not back[3].terminal  # its end is not in it
    with pytest.raises(ValueError, match="sequence 0 has no observation after its last action"):
        team_to_episodes(data)


def test_real_valued_actions_are_the_last_features():
    made = games(real=True)
    data = team_from_episodes(made)
    assert data.actions is None
    np.testing.assert_allclose(data.observations[0, :3, 2:], made[0]["wing"].acts)
    back = team_to_episodes(data, action_dim=2, last="drop")
    np.testing.assert_allclose(back[0].obs, made[0]["wing"].obs[:3])
    np.testing.assert_allclose(back[0].acts, made[0]["wing"].acts[:2])


def test_recordings_of_a_parallel_environment_can_be_imitated(line):
    """Episodes with the seeds of their resets are demonstrations."""
    world = PettingZooWorld(line.Line, 6, agents=["left", "right"], others=line.still)
    data = world.demonstrate([2, 9], lambda state, game: np.ones((len(game), 2), int), 6)
    kept = data._replace(lengths=data.lengths - 1)
    recorded = [
        {
            n: Episode(data.observations[g + a, : k + 1], data.actions[g + a, :k], None, False)
            for a, n in enumerate("lr")
        }
        for g, k in zip((0, 2), kept.lengths[[0, 2]], strict=True)
    ]
    again = team_from_episodes(recorded, group=[2, 9])
    replay = world.demonstrations(again)
    np.testing.assert_array_equal(replay.lengths, kept.lengths[::2])


def test_the_classes_of_the_library_come_back_where_it_is_installed(monkeypatch):
    plain, rewarded = (
        make_dataclass("Trajectory", FIELDS),
        make_dataclass("TrajectoryWithRew", (*FIELDS, "rews")),
    )
    library = types.ModuleType("imitation")
    library.data = types.ModuleType("imitation.data")
    library.data.types = types.SimpleNamespace(Trajectory=plain, TrajectoryWithRew=rewarded)
    for name, module in {"imitation": library, "imitation.data": library.data}.items():
        monkeypatch.setitem(sys.modules, name, module)
    data = team_from_episodes(games(), last="keep")
    assert type(team_to_episodes(data)[0]) is plain
    assert type(team_to_episodes(data, rewards=np.zeros((4, 6)))[0]) is rewarded


def test_what_is_no_team_is_named(unchecked):
    made = games()
    wing = made[0]["wing"]
    cases = [
        (ValueError, r"games is \[\]: give one game at least", []),
        (TypeError, "game 0 is Episode", [wing]),
        (TypeError, "game 0, agent 'a' is int without obs", [{"a": 3}]),
        (ValueError, r"game 1 has the agents \['a'\], game 0 \['wing', 'back'\]", [made[0], {"a": wing}]),
        (ValueError, r"game 0 has episodes of \[3, 5\] actions", [[wing, made[1]["wing"]]]),
        (ValueError, "give one observation more than actions", [[wing._replace(obs=wing.obs[:-1])]]),
        (TypeError, "obs of game 0, agent 0 is a dictionary", [[wing._replace(obs={"x": 1})]]),
        (ValueError, "game 0, agent 0 has action -1", [[wing._replace(acts=-np.ones(3, int))]]),
        (TypeError, "some episodes have integer actions", [[wing, games(real=True)[0]["wing"]]]),
    ]
    back, broken = made[0]["back"], wing.obs.copy()
    broken[2, 1] = np.nan
    cases += [
        (ValueError, "with an episode of each agent", [{}]),
        (ValueError, "obs of game 0, agent 1 are not finite at step 2", [[wing, back._replace(obs=broken)]]),
        (ValueError, "acts of game 0, agent 0 are not finite", [[wing._replace(acts=np.full(3, np.nan))]]),
        (ValueError, r"observations\[1\] has 1 features", [[wing], [wing._replace(obs=wing.obs[:, :1])]]),
    ]  # fmt: skip
    for error, message, given in cases:
        with pytest.raises(error, match=message):
            team_from_episodes(given)
    broken[:] = wing.obs
    broken[-1] = np.nan
    team_from_episodes([[wing._replace(obs=broken)]])  # the last observation is dropped
    with pytest.raises(TypeError, match="metadata is "):
        unchecked("episodes").team_from_episodes(made, metadata={"name": "games"})
    with pytest.raises(ValueError, match="group has -1: give integers from 0"):
        team_from_episodes(made, group=[-1, 3])
    with pytest.raises(ValueError, match="one number for each of 2 games"):
        team_from_episodes(made, group=[1, 1])
    with pytest.raises(ValueError, match="use last='drop'"):
        team_from_episodes(games(real=True), last="keep")
    data = team_from_episodes(made, last="keep")
    missing = np.array(data.observed)
    missing[1, 2] = False
    with pytest.raises(ValueError, match="sequence 1 has no observation at step 2"):
        team_to_episodes(data._replace(observed=missing))
    with pytest.raises(ValueError, match="give action_dim"):
        team_to_episodes(data._replace(actions=None))
    with pytest.raises(ValueError, match=r"rewards is float64 of shape \(4, 5\)"):
        team_to_episodes(data, rewards=np.zeros((4, 5)))
    with pytest.raises(ValueError, match="rewards is <U1 of shape"):
        team_to_episodes(data, rewards=np.full((4, 6), "x"))
    with pytest.raises(ValueError, match="rewards of sequence 0 is nan at step 0"):
        team_to_episodes(data, rewards=np.full((4, 6), np.nan))
    with pytest.raises(ValueError, match="data has actions, and action_dim is 1"):
        team_to_episodes(data, action_dim=1)
    with pytest.raises(ValueError, match="terminal is int64"):
        team_to_episodes(data, terminal=1)
    with pytest.raises(ValueError, match=r"terminal is bool of shape \(2,\): give one boolean, or \(4,\)"):
        team_to_episodes(data, terminal=[True, False])
