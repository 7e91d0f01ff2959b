"""Tables of behaviour against counts by hand, and by pandas, of given paths."""

from __future__ import annotations

import numpy as np
import pandas
import pytest

from ethogram.fits import behaviour
from ethogram.fits.states import HiddenStates, names_of_states, renamed, warn_of_rare
from ethogram.inference.roles import InferredRoles
from ethogram.models.data import Metadata, Trajectories

NAMES = ("rest", "walk")
PATHS = np.array(  # (draw, sequence, time); the fourth frame of the first animal is missing
    [
        [[0, 0, 1, 1, 1, 0], [1, 1, 0, 0, -1, -1]],
        [[0, 1, 1, 0, 1, 1], [1, 0, 0, 0, -1, -1]],
    ],
    np.int8,
)


@pytest.fixture
def data():
    """Two animals, one frame every half hour from 22:30 on, in Paris."""
    rows = []
    for animal, frames in (("ada", 6), ("bo", 4)):
        times = pandas.date_range("2024-05-01 22:30", periods=frames, freq="30min", tz="Europe/Paris")
        rows += [{"animal": animal, "time": time, "x": float(at)} for at, time in enumerate(times)]
    table = pandas.DataFrame(rows).drop(index=3)
    return Trajectories.from_table(
        table, sequence="animal", agent="animal", time="time", features="x", step="30min"
    )


def counted(data, **options):
    return behaviour.count(PATHS, data, NAMES, **options)


def test_shares_are_those_of_recorded_frames(data):
    found = behaviour.time_budget(counted(data), data, 0.9, None)
    rest = np.array([3 + 2, 1 + 3]) / 9
    assert found.loc["rest", "mean"] == pytest.approx(rest.mean())
    assert found.loc["walk", "time"] == pandas.Timedelta(minutes=30 * 4.5)
    by = behaviour.time_budget(counted(data, by="agent"), data, 0.5, None)
    assert by.loc[("ada", "rest"), "mean"] == pytest.approx(np.mean([3 / 5, 1 / 5]))
    assert by.loc[("ada", "rest"), ["lower", "upper"]].tolist() == pytest.approx([0.3, 0.5])


def test_levels_are_hours_in_the_zone_and_ones_own(data):
    hours = behaviour.time_budget(counted(data, by=["hour"]), data, 0.9, None)
    assert sorted(set(hours.index.get_level_values("hour"))) == [0, 1, 22, 23]
    assert hours.loc[(22, "rest"), "mean"] == pytest.approx(0.5)
    own = {"sex": {"ada": "f", "bo": "m"}}
    two = behaviour.time_budget(counted(data, by=own), data, 0.9, ("f", "m"))
    expected = np.mean([3 / 5 - 2 / 4, 1 / 5 - 3 / 4])
    assert two.loc[("f - m", "rest"), "mean"] == pytest.approx(expected)
    each = behaviour.time_budget(counted(data, by=[{"sex": ["f", "m"]}, "day"]), data, 0.9, None)
    assert each.index.names == ["sex", "day", "state"]


def test_dwell_times_and_transitions_end_at_gaps_and_usage_does_not(data):
    used = behaviour.usage(counted(data), data, 0.9, None)
    # A walk of the first draw outlasts the gap.
    starts = np.array([[2 + 1, 1 + 1], [1 + 1, 2 + 1]])  # (draw, state)
    assert used["mean"].to_numpy() == pytest.approx((starts / starts.sum(1, keepdims=True)).mean(0))
    pairs = np.array([[[2, 1], [2, 1]], [[2, 1], [1, 2]]])  # of neighbours that are both recorded
    every = behaviour.transitions(counted(data), data, 0.9, None, "frame")
    assert every["number"].to_numpy() == pytest.approx(pairs.mean(0).ravel())
    shares = (pairs / pairs.sum(-1, keepdims=True)).mean(0)
    assert every["mean"].to_numpy() == pytest.approx(shares.ravel())
    changes = behaviour.transitions(counted(data), data, 0.9, None)
    assert changes.index.tolist() == [("rest", "walk"), ("walk", "rest")] and (changes["mean"] == 1).all()
    dwell = behaviour.dwell_times(counted(data), data, 0.9, None)
    frames = (pairs.sum(-1) / (pairs.sum(-1) - np.diagonal(pairs, axis1=1, axis2=2))).mean(0)
    assert [each / pandas.Timedelta(minutes=30) for each in dwell["mean"]] == pytest.approx(frames.tolist())
    sex = {"sex": {"ada": "f", "bo": "m"}}
    less = behaviour.dwell_times(counted(data, by=sex), data, 0.9, ("f", "m"))
    assert less["mean"]["f - m", "walk"] == pytest.approx(
        -1800
    )  # 1 - 2 frames; of the second draw no end was seen
    assert less.attrs["unit"] == "s"


def test_resampling_animals_widens_intervals_and_keeps_single_ones(data):
    paths = np.repeat(PATHS[:1], 400, axis=0)
    alone = behaviour.count(paths, data, NAMES)
    among = behaviour.count(paths, data, NAMES, resample="agent")
    exact, spread = (behaviour.time_budget(each, data, 0.9, None) for each in (alone, among))
    assert (exact["lower"] == exact["upper"]).all()
    # The share of one of two animals is uniform in the Bayesian bootstrap, in units of its frames.
    weight = np.linspace(0, 1, 20_001)[1:-1]
    share = (weight * 3 + (1 - weight) * 2) / (weight * 5 + (1 - weight) * 4)
    ends = np.quantile(share, [0.05, 0.95])
    assert spread.loc["rest", ["lower", "upper"]].tolist() == pytest.approx(ends.tolist(), abs=0.01)
    one = behaviour.count(paths, data, NAMES, by="agent", resample="agent")
    table = behaviour.time_budget(one, data, 0.9, None)
    assert table["lower"].to_numpy() == pytest.approx(table["upper"].to_numpy())


def test_a_table_of_states_has_the_datas_own_times_and_labels(data):
    probability = np.where(PATHS[0][..., None] == np.arange(2), 0.8, 0.2) * (PATHS[0] >= 0)[..., None]
    states = HiddenStates(InferredRoles(PATHS[0], probability), NAMES, data)
    table = states.to_table()
    assert (
        len(table) == 9 and table["state"].tolist() == "rest rest walk walk rest walk walk rest rest".split()
    )
    assert str(table["time"][0]) == "2024-05-01 22:30:00+02:00" and (table["probability"] == 0.8).all()
    path, again = states
    assert path is states.path and again is states.probability and "rest 56 %" in repr(states)
    bouts = behaviour.bouts(states)
    assert bouts["cut"].tolist() == ["start", "end", "start", "end", "start", "end"]
    assert bouts["frames"].tolist() == [2, 1, 1, 1, 2, 2]
    assert bouts["duration"][0] == pandas.Timedelta(hours=1) and bouts["state"].tolist()[1] == "walk"
    videos = data._replace(times=None, metadata=Metadata(frame_rate=30))
    bouts = behaviour.bouts(HiddenStates(InferredRoles(PATHS[0], probability), NAMES, videos))
    assert bouts["first_frame"].tolist() == [0, 2, 4, 5, 0, 2]
    assert bouts["start"].tolist() == pytest.approx(
        (bouts["first_frame"] / 30).tolist()
    )  # seconds, as duration


def test_states_of_few_frames_are_warned_of(recwarn):
    for count, rare in ((1990, 10), (1900, 100), (2000, 0), (500, 2)):
        path = np.repeat([0, 1], [count, rare])[None]
        data = Trajectories.from_list(np.zeros((1, count + rare, 1)))
        warn_of_rare(HiddenStates(InferredRoles(path, np.eye(2)[path]), NAMES, data))
    (line,) = recwarn.list
    assert "less than 1 % of the 2000 frames (walk 10)" in str(line.message)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"by": "group"}, "by has 'group', and the data have no group"),
        ({"by": "week"}, "by must be"),
        ({"by": {"sex": ["f"]}}, "give one level per sequence, 2"),
        ({"by": {"sex": {"ada": "f"}}}, "no level of the agent bo"),
        ({"by": {"sex": {"x": "f"}}}, "labels x, which no agent"),
        ({"resample": "subject"}, "resample is 'subject'"),
    ],
)
def test_levels_that_are_not_there_are_named(data, options, message):
    with pytest.raises(ValueError, match=message):
        counted(data, **options)


def test_differences_need_two_levels(data):
    for by, difference, message in (
        (None, ("a", "b"), "by, which is None"),
        ("agent", ("ada", "cy"), "difference has 'cy': the levels of agent are ada, bo"),
        ("agent", "ada", "give two levels"),
    ):
        with pytest.raises(ValueError, match=message):
            behaviour.time_budget(counted(data, by=by), data, 0.9, difference)


def test_names_are_checked():
    assert names_of_states(3, renamed(3, {1: "walk", "0": "rest"}, {})) == ("rest", "walk", "2")
    assert renamed(2, {"rest": "sleep"}, {0: "rest"}) == {0: "sleep"}
    for names, error, message in (
        (["rest"], TypeError, "names is list"),
        ({4: "x"}, ValueError, "at most 1"),
        ({"run": "x"}, ValueError, "names has the state 'run'"),
        ({0: ""}, TypeError, "a string that is not empty"),
        ({0: "1"}, ValueError, "two states '1'"),
    ):
        with pytest.raises(error, match=message):
            renamed(2, names, {})
