"""Football plays: counts, frame of reference, line-up, and what unreadable files get."""

from importlib import resources

import numpy as np
import pytest
from matplotlib.figure import Figure

from ethogram.domains import football
from ethogram.models.data.trajectories import check

FOLDER = resources.files("ethogram.domains.data") / "football"


@pytest.fixture(scope="module")
def raw():
    with (FOLDER / "football_5hz.npz").open("rb") as file, np.load(file) as archive:
        return dict(archive)


def frames_by_play(plays):
    """(play, agent, time, 2) positions with NaN where nothing is observed."""
    data = plays.data
    seen = np.where(np.asarray(data.observed)[..., None], np.asarray(data.observations), np.nan)
    return seen.reshape(-1, 10, *seen.shape[1:])


@pytest.mark.parametrize(
    "team, role, num_plays, num_frames",
    [
        ("home", "defence", 14, 399),
        ("away", "defence", 13, 767),
        ("home", "attack", 13, 767),
        ("away", "attack", 14, 399),
    ],
)
def test_counts(team, role, num_plays, num_frames):
    data = check(football.load(team, role=role).data)
    assert data.observations.dtype == np.float32
    assert data.observations.shape == (10 * num_plays, data.lengths.max(), 2)
    np.testing.assert_array_equal(data.group, np.repeat(np.arange(num_plays), 10))
    np.testing.assert_array_equal(data.agent, np.tile(np.arange(10), num_plays))
    lengths = np.asarray(data.lengths).reshape(num_plays, 10)
    assert np.all(lengths == lengths[:, :1]) and lengths[:, 0].sum() == num_frames
    np.testing.assert_array_equal(data.observed, np.arange(data.lengths.max()) < data.lengths[:, None])
    assert data.metadata.feature_names == ("x", "y") and data.metadata.feature_units == ("m", "m")
    assert data.metadata.frame_rate == 5.0
    assert data.metadata.agent_names == tuple(f"{team}_{number}" for number in range(2, 12))


@pytest.mark.parametrize("team", ["home", "away"])
def test_positions_are_relative_to_the_mean_of_the_ten(team):
    frames = frames_by_play(football.load(team))
    middle = frames.mean(axis=1)
    assert np.nanmax(np.abs(middle)) < 1e-5
    assert np.isnan(middle).sum() + 2 * np.sum(football.load(team).data.lengths) // 10 == middle.size


@pytest.mark.parametrize("team, side, sign", [("home", 0, 1), ("away", 1, -1)])
def test_defending_frames_are_those_of_the_file(raw, team, side, sign):
    frames = frames_by_play(football.load(team))
    members = [
        index for index in range(22) if raw["team"][index] == side and raw["formation_place"][index] > 1
    ]
    spells = [(first, end) for first, end, possession in raw["sequences"] if possession != side]
    assert len(spells) == len(frames)
    for play, (first, end) in zip(frames, spells, strict=True):
        for agent, player in enumerate(members):
            expected = sign * (raw["xy"][first:end, player] - raw["xy"][first:end][:, members].mean(axis=1))
            np.testing.assert_allclose(play[agent, : end - first], expected, atol=1e-4)


@pytest.mark.parametrize("role", ["defence", "attack"])
@pytest.mark.parametrize("team", ["home", "away"])
def test_line_up_faces_plus_x_with_its_left_at_plus_y(team, role):
    plays = football.load(team, role=role)
    x, y = np.nanmean(frames_by_play(plays), axis=(0, 2)).T
    place = list(plays.formation_place)
    assert sorted(place) == [2, 3, 4, 5, 6, 7, 8, 9, 10, 11]
    assert plays.position.count("defender") == 4 and plays.position[place.index(9)] == "forward"
    defenders = [agent for agent, word in enumerate(plays.position) if word == "defender"]
    midfielders = [agent for agent, word in enumerate(plays.position) if word == "midfielder"]
    assert x[defenders].max() < x[place.index(9)]
    assert x[defenders].mean() < x[midfielders].mean() < x[place.index(9)]
    for right, left in ((2, 3), (5, 6), (7, 11)):
        assert y[place.index(right)] < y[place.index(left)]


@pytest.mark.parametrize(
    "change, words",
    [
        ({"team": "ajax"}, "team must be 'home' or 'away', not 'ajax'"),
        ({"role": "midfield"}, "role must be 'defence' or 'attack', not 'midfield'"),
    ],
)
def test_unknown_choices_are_named(change, words):
    with pytest.raises(ValueError, match=words):
        football.load(**change)


def test_lines_of_the_pitch_have_their_lengths():
    axes = football.pitch(Figure().subplots())
    sizes = {(round(p.get_width(), 2), round(p.get_height(), 2)) for p in axes.patches if hasattr(p, "get_x")}
    assert sizes == {(104.9, 67.8), (16.5, 40.32), (5.5, 18.32)}
