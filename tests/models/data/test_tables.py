"""Tables against a dictionary built row by row, in pandas, polars and plain columns."""

import datetime

import numpy as np
import pandas
import polars
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ethogram.models.data.trajectories import Metadata, Trajectories

QUICK = settings(max_examples=25, deadline=None, derandomize=True)
MAKERS = {"columns": dict, "pandas": pandas.DataFrame, "polars": polars.DataFrame}
GAMES = {
    "game": ["b", "b", "a", "b", "a"],
    "t": [0.0, 0.1, 5.0, 0.3, 5.1],
    "x": [1.0, 2.0, 3.0, 4.0, 5.0],
    "y": [1, 2, 3, 4, 5],
    "act": ["up", "down", "up", "up", "down"],
    "who": ["p", "p", "q", "p", "q"],
}


@pytest.fixture(params=list(MAKERS))
def make(request):
    return MAKERS[request.param]


def read(table, **options):
    return Trajectories.from_table(
        table, **(dict(sequence="game", time="t", features=["x", "y"], step=0.1) | options)
    )


def test_a_table_by_hand(make):
    batch = read(make(GAMES), actions="act", agent="who", group="game")
    gone = [np.nan, np.nan]
    np.testing.assert_array_equal(
        batch.observations, [[[1, 1], [2, 2], gone, [4, 4]], [[3, 3], [5, 5], [0, 0], [0, 0]]]
    )
    assert batch.lengths.tolist() == [4, 2]
    assert batch.observed.tolist() == [[True, True, False, True], [True, True, False, False]]
    assert batch.actions.tolist() == [[1, 0, -1, 1], [1, 0, -1, -1]]
    assert batch.agent.tolist() == [0, 1] and batch.group.tolist() == [1, 0]
    assert batch.metadata == Metadata(
        feature_names=("x", "y"), frame_rate=10.0, agent_names=("p", "q"), group_names=("a", "b"),
        action_names=("down", "up"),
    )  # fmt: skip


@pytest.mark.filterwarnings("ignore:sequence .* has no observed frame")
@QUICK
@given(st.data())
def test_any_table_comes_back_frame_by_frame(data):
    frames = data.draw(
        st.dictionaries(
            st.tuples(st.sampled_from("abc"), st.integers(0, 1)),
            st.lists(st.integers(0, 12), min_size=1, max_size=6, unique=True).map(sorted),
            min_size=1,
        )
    )
    step = data.draw(st.sampled_from([1, 0.04, 1 / 30]))
    pending = {key: list(times) for key, times in frames.items()}
    rows = []
    while any(pending.values()):
        key = data.draw(st.sampled_from([key for key in pending if pending[key]]))
        value = data.draw(st.sampled_from([float(len(rows)), None]))
        rows.append((*key, pending[key].pop(0), value))
    game, player, frame, value = zip(*rows, strict=True)
    columns = {"game": game, "player": player, "t": [7 + step * t for t in frame], "x": value}
    table = data.draw(
        st.sampled_from([pandas.DataFrame, lambda c: polars.DataFrame(c, schema_overrides={"x": float})])
    )
    batch = Trajectories.from_table(
        table(columns),
        sequence=["game", "player"],
        time="t",
        features="x",
        agent="player",
        step=step,
        missing="nan",
    )
    keys = list(dict.fromkeys(zip(game, player, strict=True)))
    assert batch.agent.tolist() == [player for _, player in keys]
    assert batch.lengths.tolist() == [frames[key][-1] - frames[key][0] + 1 for key in keys]
    seen = {}
    for name, number, t, x in rows:
        if x is not None:
            seen[keys.index((name, number)), t - frames[name, number][0]] = x
    assert {tuple(place) for place in np.argwhere(batch.observed).tolist()} == seen.keys()
    assert all(batch.observations[place][0] == x for place, x in seen.items())


def test_clocks_may_jitter_by_a_tenth_of_a_step_and_start_anywhere(make):
    times = [1000.0, 1000.033, 1000.067, 1000.133]
    batch = Trajectories.from_table(make({"t": times, "x": [1.0] * 4}), time="t", features="x", step=1 / 30)
    assert batch.observed.tolist() == [[True, True, True, False, True]]


def test_large_integer_times_keep_their_digits(make):
    start = 1_700_000_000_000_000_000
    table = make({"t": [start, start + 40, start + 120], "x": [1.0, 2.0, 3.0]})
    assert Trajectories.from_table(table, time="t", features="x", step=40).observed.tolist() == [
        [True, True, False, True]
    ]


def test_dates_take_a_duration_and_count_in_seconds(make):
    table = make(GAMES | {"t": [datetime.datetime(2020, 1, 1, 0, 0, s) for s in (0, 2, 9, 6, 11)]})
    batch = read(table, step=datetime.timedelta(seconds=2))
    assert batch.observed.tolist() == [[True, True, False, True], [True, True, False, False]]
    assert batch.metadata.time_unit == "s" and batch.metadata.frame_rate == 0.5
    with pytest.raises(TypeError, match=r"give a datetime\.timedelta"):
        read(table, step=2)
    spaced = read(table, step=np.timedelta64(2, "s"), metadata=Metadata(time_unit="min"))
    assert spaced.metadata.frame_rate is None


def test_without_a_step_times_must_be_equally_spaced(make):
    even = make(GAMES | {"t": [0.0, 0.5, 3.0, 1.0, 3.5]})
    batch = read(even, step=None)
    assert batch.lengths.tolist() == [3, 2] and batch.metadata.frame_rate is None
    with pytest.raises(ValueError, match=r"t advances by 0\.1 to 0\.2 from row to row: pass step="):
        read(make(GAMES), step=None)
    assert read(make(GAMES), time=None, step=None).lengths.tolist() == [3, 2]


def test_integers_become_floats_that_are_nan_in_gaps_and_nulls():
    columns = {"t": [0, 1, 3], "n": [4, None, 6]}
    tables = [polars.DataFrame(columns), pandas.DataFrame(columns).astype({"n": "Int64"})]
    for table in tables:
        batch = Trajectories.from_table(table, time="t", features="n", step=1, missing="nan")
        np.testing.assert_array_equal(batch.observations[..., 0], [[4, np.nan, np.nan, 6]])
        assert batch.observed.tolist() == [[True, False, False, True]]


def test_nulls_in_labels(make):
    table = make(
        GAMES
        | {"who": ["p", "p", None, "p", None], "act": [1.0, None, 0.0, 1.0, 0.0], "c": [1, 0, -1, None, 1]}
    )
    batch = read(table, agent="who", actions="act", stay="c", missing="nan")
    assert batch.agent.tolist() == [0, -1] and batch.metadata.agent_names == ("p",)
    assert batch.actions.tolist() == [[1, -1, -1, 1], [0, 0, -1, -1]]
    assert batch.stay.tolist() == [[1, 0, -1, -1], [-1, 1, -1, -1]]
    with pytest.raises(ValueError, match=r"actions of sequence 0 \(b\), step 1 is missing"):
        read(table, actions="act")


def test_names_of_metadata_come_before_those_of_columns(make):
    metadata = Metadata(feature_names=("east", "north"), frame_rate=10, agent_names=("q", "p"))
    batch = read(make(GAMES), agent="who", metadata=metadata)
    assert batch.metadata == metadata and batch.agent.tolist() == [1, 0]


@pytest.mark.parametrize("step", [None, 0.1])
def test_a_frame_rate_that_contradicts_the_times_is_refused(step):
    table = {"t": [0.0, 0.1, 0.2, 0.0, 0.1], "g": [0, 0, 0, 1, 1], "x": [1.0, 2.0, 3.0, 4.0, 5.0]}
    for wrong in (
        lambda rate: Trajectories.from_table(
            table, sequence="g", time="t", features="x", step=step, metadata=Metadata(frame_rate=rate)
        ),
        lambda rate: Trajectories.from_list(
            [[1.0, 2.0]], time=[[0.0, 0.1]], step=step, metadata=Metadata(frame_rate=rate)
        ),
    ):
        with pytest.raises(
            ValueError, match=r"metadata.frame_rate is 30, but times are 0.1 apart, which is 10"
        ):
            wrong(30)
        assert wrong(10).metadata.frame_rate == 10
    dates = table | {"t": pandas.to_datetime(table["t"], unit="s")}
    with pytest.raises(ValueError, match=r"frame_rate is 30, but times are 0.1 s apart"):
        Trajectories.from_table(dates, sequence="g", time="t", features="x", metadata=Metadata(frame_rate=30))
    counted = table | {"t": [0, 1, 2, 0, 1]}  # numbers of frames
    read = Trajectories.from_table(
        counted, sequence="g", time="t", features="x", metadata=Metadata(frame_rate=30)
    )
    assert read.metadata.frame_rate == 30


def test_empty_lines_of_a_file_of_one_column_are_missing_values(tmp_path):
    path = tmp_path / "one.csv"
    for text, found in (("x\n1\n\n3\n", [1, None, 3]), ("x\n1\n2\n\n\n", [1, 2])):
        path.write_text(text)
        data = Trajectories.from_table(path, features="x", missing="nan")
        np.testing.assert_array_equal(data.observations[0, :, 0], np.array(found, float))
    path.write_text("x\n1\n.\n")
    with pytest.raises(TypeError, match=r"features must be numbers, and row 1 is '\.'"):
        Trajectories.from_table(path, features="x", missing="nan")


def test_the_longest_floats_are_doubles():
    longest = Trajectories.from_list([np.ones((2, 1), np.longdouble)])
    assert longest.observations.dtype == np.float64


def test_numbered_columns():
    batch = Trajectories.from_table(pandas.DataFrame(np.arange(6.0).reshape(3, 2)), features=[0, 1])
    assert batch.observations[0].tolist() == [[0, 1], [2, 3], [4, 5]]
    assert batch.metadata.feature_names == ("0", "1")


NAN = float("nan")


@pytest.mark.parametrize(
    ("columns", "options", "error", "message"),
    [
        ({}, dict(sequence="match"), ValueError, "table has no column 'match': its columns are"),
        ({}, dict(features=None), ValueError, "features, states and actions are all None"),
        ({}, dict(features="act"), TypeError, "column 'act' has dtype <U4: features must be numbers"),
        ({}, dict(features=["x", "x"]), ValueError, "feature_names must be unique; 'x' appears twice"),
        ({}, dict(time=None), ValueError, "step is 0.1 without time"),
        ({}, dict(step=0), ValueError, "step is 0: "),
        ({}, dict(step=NAN), ValueError, "step is nan: "),
        ({}, dict(step="0.1"), TypeError, "step is '0.1', but times are numbers"),
        ({}, dict(step=0.07), ValueError, r"t of sequence 0 \(b\) is 0.1 in row 1, 1.42857 steps of 0.07"),
        ({}, dict(step=1e-12), ValueError, "pass step= in the units of the times"),
        ({}, dict(agent="act"), ValueError, r"column 'act' changes in row 1, within sequence 0 \(b\)"),
        (
            dict(t=[0.0, 0.0, 5.0, 0.3, 5.1]),
            {},
            ValueError,
            "is 0.0 in row 1, and so it is in row 0 .1 such row in 1 seq",
        ),
        (dict(t=[0.1, 0.0, 5.0, 0.3, 5.1]), {}, ValueError, "is 0.0 in row 1, before 0.1 in row 0: sort"),
        (dict(t=[0.0, 1e-3, 5.0, 0.3, 5.1]), {}, ValueError, "in row 1, in the same frame as row 0"),
        (dict(t=[0.0, NAN, 5.0, 0.3, 5.1]), {}, ValueError, "column 't' is null in row 1"),
        (dict(t=[0.0, float("inf"), 5.0, 0.3, 5.1]), {}, ValueError, "is inf in row 1: times are finite"),
        (dict(t=list("abcde")), {}, TypeError, "column 't' holds text: times are numbers"),
        (dict(game=["b", None, "a", "b", "a"]), {}, ValueError, "column 'game' is null in row 1"),
        (dict(x=[1.0, 2.0, 3.0, NAN, 5.0]), {}, ValueError, r"sequence 0 \(b\), step 3, feature 'x' is NaN"),
        ({}, dict(missing="zero"), ValueError, "missing must be 'error' or 'nan'"),
    ],
)
def test_bad_tables_are_named(make, columns, options, error, message):
    with pytest.raises(error, match=message):
        read(make(GAMES | columns), **options)


def test_interleaved_agents_ask_for_their_column():
    table = {"t": [0, 0, 1, 1], "who": ["p", "q", "p", "q"], "x": [0.0, 1.0, 2.0, 3.0]}
    with pytest.raises(ValueError, match="name more columns in sequence="):
        Trajectories.from_table(table, time="t", features="x", step=1)
    batch = Trajectories.from_table(table, sequence="who", time="t", features="x", agent="who", step=1)
    assert batch.observations[..., 0].tolist() == [[0, 2], [1, 3]]
