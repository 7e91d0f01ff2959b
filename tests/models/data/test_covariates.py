"""Covariates: read from messy tables and lists against pandas, carried along by every function of the data, refused."""

import warnings

import jax
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ethogram.models.data import Metadata, Trajectories, padded_rows, step_and_turn
from ethogram.models.tracking import read_movebank

pytestmark = pytest.mark.filterwarnings("ignore:sequence .* has no observed frame:UserWarning")
COLUMNS = ["temperature", "sex", "lit"]


def messy():
    """Rows of two animals that interleave, of a shared clock, with gaps and nulls; C comes two frames later."""
    return pd.DataFrame(
        {
            "animal": ["A", "B", "A", "C", "B", "A", "C"],
            "day": [1, 1, 1, 1, 1, 1, 1],
            "minute": [0, 0, 10, 20, 30, 40, 30],
            "x": [0.0, 1.0, 2.0, np.nan, 4.0, 5.0, 6.0],
            "temperature": [20.5, 9.0, np.nan, np.nan, 8.0, 21.0, 15.0],
            "sex": ["f", "m", None, "m", "m", "f", "m"],
            "lit": [False, True, True, True, False, False, True],
        }
    )


def read(table, **options):
    how = {"sequence": "animal", "group": "day", "time": "minute", "features": "x", "step": 10}
    return Trajectories.from_table(table, **{**how, "missing": "nan", "covariates": COLUMNS} | options)


def whole():
    units = Metadata(
        covariate_names=COLUMNS, covariate_units=["°C", "", ""], covariate_levels=[None, ["m", "f"], None]
    )
    return read(messy(), missing_covariates="carry", metadata=units)


def assert_same(one, other):
    assert one.metadata == other.metadata and jax.tree.structure(one) == jax.tree.structure(other)
    for first, second in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert first.dtype == second.dtype
        np.testing.assert_array_equal(first, second)


def test_a_messy_table_is_carried_forward_and_at_its_begin_backward():
    data = read(messy(), missing_covariates="carry")
    assert data.lengths.tolist() == [5, 4, 4] and data.covariates.dtype == float
    assert data.metadata.covariate_names == tuple(COLUMNS)
    assert data.metadata.covariate_levels == (None, ("f", "m"), ("False", "True"))
    temperature, sex, lit = np.moveaxis(data.covariates, -1, 0).tolist()
    assert temperature == [[20.5, 20.5, 20.5, 20.5, 21], [9, 9, 9, 8, 0], [15, 15, 15, 15, 0]]
    assert sex == [[0, 0, 0, 0, 0], [1, 1, 1, 1, 0], [1, 1, 1, 1, 0]]
    assert lit == [[0, 1, 1, 1, 0], [1, 1, 1, 0, 0], [1, 1, 1, 1, 0]]
    assert not data.observed[2, 2]  # its features are null, its covariates are known


def test_what_is_constant_in_a_sequence_fills_gaps_without_being_asked():
    data = read(messy(), covariates="sex")
    assert data.covariates[..., 0].tolist() == [[0] * 5, [1] * 4 + [0], [1] * 4 + [0]]
    with pytest.raises(
        ValueError,
        match=r"'temperature' of sequence 0 \(A\) has no value at time 10.*missing_covariates=\"carry\"",
    ):
        read(messy())
    with pytest.raises(
        ValueError, match=r"'lit' of sequence 0 \(A\) has no value in frames without a row beside time 10"
    ):
        read(messy(), covariates=["lit"])
    late = messy().assign(temperature=[1, 1, 1, 3, 1, 1, 2])  # of C, two frames after the clock began
    with pytest.raises(
        ValueError, match=r"sequence 2 \(C\) has no value in frames without a row beside time 20"
    ):
        read(late, covariates="temperature")


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.data())
def test_carried_values_are_those_of_pandas(data):
    cells = data.draw(
        st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), min_size=1, max_size=20, unique=True)
    )
    values = data.draw(
        st.lists(st.sampled_from([None, -1.5, 0.0, 2.0]), min_size=len(cells), max_size=len(cells))
    )
    table = pd.DataFrame(cells, columns=["animal", "minute"]).assign(x=1.0, value=np.array(values, float))
    table = table.sort_values("minute", kind="stable")  # animals interleave
    level = table["value"].map({-1.5: "a", 0.0: "b", 2.0: "c"})
    expected = {}
    for animal, own in table.groupby("animal"):
        frames = own["minute"] - own["minute"].min()
        grid = pd.Series(own["value"].to_numpy(), frames).reindex(range(frames.max() + 1))
        expected[animal] = grid.ffill().bfill().tolist()
    call = {"sequence": "animal", "time": "minute", "features": "x", "step": 1, "missing_covariates": "carry"}
    call["covariates"] = ["value", "level"]
    with warnings.catch_warnings(action="ignore"):
        if any(np.isnan(own).any() for own in expected.values()):
            with pytest.raises(
                ValueError, match=r"covariate 'value' of sequence \d \(\d\) has no value at all: fill"
            ):
                Trajectories.from_table(table.assign(level=level), **call)
            return
        found = Trajectories.from_table(table.assign(level=level), **call)
    for row, animal in enumerate(table["animal"].unique()):
        length = found.lengths[row]
        assert found.covariates[row, :length, 0].tolist() == expected[animal]
        assert not found.covariates[row, length:].any()
    frame = found.covariate_frame()
    level = frame["level"].map({"a": -1.5, "b": 0.0, "c": 2.0}).astype(float)
    assert level.tolist() == frame["value"].tolist()


def test_levels_are_in_the_order_of_a_categorical_or_of_the_metadata():
    table = messy().assign(sex=pd.Categorical(["m", "f"] * 3 + ["m"], ["x", "m", "f"]))
    data = read(table, covariates="sex", missing_covariates="carry")
    assert data.metadata.covariate_levels == (("x", "m", "f"),)
    assert data.covariates[0, :, 0].tolist() == [1, 1, 1, 1, 2]
    frame = data.covariate_frame()
    assert list(frame["sex"].cat.categories) == ["x", "m", "f"] and len(frame) == data.lengths.sum()
    fixed = Metadata(covariate_names=["sex"], covariate_levels=[["f", "m", "x"]])
    assert read(table, covariates="sex", missing_covariates="carry", metadata=fixed).covariates[0, 0, 0] == 1
    narrow = Metadata(covariate_names=["sex"], covariate_levels=[["f"]])
    with pytest.raises(
        ValueError, match=r"covariate 'sex' contains 'm', which is not in its levels \('f',\)"
    ):
        read(table, covariates="sex", metadata=narrow)
    binned = messy().assign(warm=pd.cut([1.0, 2.0, 1.0, 1.0, 2.0, 1.0, 1.0], [0, 1.5, 3]))
    levels = read(binned, covariates="warm", missing_covariates="carry").metadata.covariate_levels
    assert levels == (("(0.0, 1.5]", "(1.5, 3.0]"),)


def test_a_column_may_be_a_feature_or_the_time_too(tmp_path):
    table = messy()[messy()["animal"] == "A"].assign(temperature=1.0)
    data = read(
        table, features=["x", "temperature"], covariates=["minute", "temperature"], missing_covariates="carry"
    )
    assert data.covariates[0].tolist() == [[0, 1], [10, 1], [10, 1], [10, 1], [40, 1]]
    assert [*data.to_table()][-4:] == ["x", "temperature", "minute", "covariate_temperature"]
    dates = table.assign(minute=pd.to_datetime(table["minute"], unit="m").astype(str))
    with pytest.raises(
        TypeError, match=r"column 'minute' has dates or durations.* make a column of the hour"
    ):
        read(dates, covariates="minute", step="10min")
    path = tmp_path / "table.csv"
    table.assign(food=["None", "None", "corn"]).to_csv(path, index=False)
    named = Metadata(covariate_names=["food"], covariate_levels=[["None", "corn"]])
    data = read(path, covariates="food", missing_covariates="carry", metadata=named)
    assert data.covariates[0, :, 0].tolist() == [0, 0, 0, 0, 1]


def test_repeated_rows_are_merged_with_their_covariates():
    table = messy().iloc[[0, 2, 2, 5]].assign(temperature=[1.0, np.nan, 3.0, 4.0], sex=["f", "f", "f", "f"])
    with pytest.warns(UserWarning, match="duplicates"):
        first = read(table, duplicates="first", covariates=["temperature", "sex"], missing_covariates="carry")
    assert first.covariates[0, :, 0].tolist() == [1, 3, 3, 3, 4]
    with pytest.warns(UserWarning, match="duplicates"):
        mean = read(
            table.assign(temperature=[1.0, 2.0, 3.0, 4.0]),
            duplicates="mean",
            covariates=["temperature", "sex"],
            missing_covariates="carry",
        )
    assert mean.covariates[0, :, 0].tolist() == [1, 2.5, 2.5, 2.5, 4]
    table["sex"] = ["f", "f", "m", "f"]
    with pytest.raises(ValueError, match=r"covariate 'sex' of sequence 0 \(A\) are f and m at once"):
        read(table, duplicates="mean", covariates="sex", missing_covariates="carry")


def test_lists_hold_arrays_constants_or_names():
    x = [[0.0, 1.0, 2.0], [3.0, 4.0]]
    named = {"hour": [[1, None, 3], 7], "sex": ["f", ["m", "f"]]}
    data = Trajectories.from_list(x, covariates=named, missing_covariates="carry")
    assert data.covariates.tolist() == [[[1, 0], [1, 0], [3, 0]], [[7, 1], [7, 0], [0, 0]]]
    names = Metadata(covariate_names=["hour", "sex"], covariate_levels=[None, ["f", "m"]])
    arrays = [np.array([[1, 0], [1, 0], [3, 0]]), [7, 1]]
    coded = Trajectories.from_list(x, covariates=arrays, metadata=names, codes="covariates")
    assert coded.covariates[1].tolist() == [[7, 1], [7, 1], [0, 0]]
    assert Trajectories.from_list(x, covariates=[np.ones((3, 1)), [2]]).metadata.covariate_names == (
        "covariate_0",
    )
    episode = {"observations": [[0.0], [0.1], [0.3]], "actions": [1, 0]}
    acted = Trajectories.from_episodes([episode], last="drop", covariates={"hour": [[4, 5]]})
    assert acted.covariates[0, :, 0].tolist() == [4, 5]


@pytest.mark.parametrize(
    ("covariates", "message"),
    [
        (
            {"hour": [[1, 2], [1, 2]]},
            r"covariates\['hour'\]\[0\] has shape \(2,\), and the sequence 3 frames: .* end before",
        ),
        ({"hour": [[1, 2, 3]]}, "has 1 entries: give one list, for 2 sequences"),
        ([np.ones((3, 2)), np.ones((2, 3))], r"covariates\[1\] has shape \(2, 3\): give \(time, 2\)"),
        ([np.ones((2, 1)), np.ones((2, 1))], "and the sequence 3 frames"),
        ([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]], "one number per frame or constant"),
        ({}, "covariates is empty: name at least one"),
        ({"hour": [[1, np.inf, 2], 1]}, "covariate 'hour' is inf in sequence 0, frame 1: pass finite"),
        ({"hour": [np.inf, 1]}, "covariate 'hour' is inf in sequence 0, frame 0: pass finite"),
        ({"hour": [["1", "2", "-"], "1"]}, "covariate 'hour' has '-' among numbers"),
        ({"hour": [["1,5", "2,5", "3,5"], "1,5"]}, "covariate 'hour' has '1,5': pass decimal"),
        ({"hour": [[1, 2, 3], None]}, "covariate 'hour' of sequence 1 has no value at all: fill it in$"),
        ({"hour": [[1, None, 3], 1]}, "covariate 'hour' of sequence 0 has no value at step 1"),
    ],
)
def test_lists_that_do_not_fit_are_refused(covariates, message):
    with pytest.raises(ValueError, match=message):
        Trajectories.from_list([[0.0, 1.0, 2.0], [3.0, 4.0]], covariates=covariates)


def test_tables_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="no column 'temp'"):
        read(messy(), covariates="temp")
    with pytest.raises(ValueError, match="names 'sex' twice"):
        read(messy(), covariates=["sex", "sex"])
    with pytest.raises(
        ValueError, match=r"'temperature' of sequence 0 \(A\) has no value at all: fill it in$"
    ):
        read(messy().assign(temperature=np.nan), missing_covariates="carry")
    with pytest.raises(ValueError, match="'temperature' is inf in row 3"):
        read(messy().assign(temperature=[1, 2, 3, np.inf, 1, 1, 1]))
    with pytest.raises(ValueError, match="missing_covariates must be 'error' or 'carry'"):
        read(messy(), missing_covariates="zero")
    with pytest.raises(ValueError, match="name them alike"):
        read(messy(), metadata=Metadata(covariate_names=["sex"]))
    with pytest.raises(ValueError, match="covariate_names has 1 entries for 0 covariates"):
        read(messy(), covariates=None, metadata=Metadata(covariate_names=["sex"]))


def test_arrays_and_metadata_that_do_not_fit_are_refused():
    data = whole()
    for step, value in ((2, np.nan), (0, np.inf)):
        wrong = data.covariates.copy()
        wrong[1, step, 0] = value
        with pytest.raises(
            ValueError, match=f"covariate 'temperature' of sequence 1, frame {step} is {value}: give finite"
        ):
            data._replace(covariates=wrong).covariate_frame()
    for value in (2, 0.5, -1):
        wrong = data.covariates.copy()
        wrong[0, 3, 1] = value
        with pytest.raises(
            ValueError, match=r"covariate 'sex' of sequence 0, frame 3 is .*: number its levels \('m', 'f'\)"
        ):
            data._replace(covariates=wrong).to_table()
    wrong = data.covariates.copy()
    wrong[2, 4] = np.nan  # in padding
    data._replace(covariates=wrong).to_xarray()
    with pytest.raises(ValueError, match="entries for 2 covariates"):
        data._replace(covariates=data.covariates[..., :2]).to_table()
    with pytest.raises(ValueError, match=r"covariates has shape \(3, 4, 3\), not \(3, 5, covariate\)"):
        data._replace(covariates=data.covariates[:, :4]).to_table()
    with pytest.raises(TypeError, match="covariates has dtype int64"):
        data._replace(covariates=data.covariates.astype(int)).to_table()
    with pytest.raises(ValueError, match="covariate_levels has 1 entries for the names None"):
        Metadata(covariate_levels=[["a"]])
    with pytest.raises(ValueError, match=r"covariate_levels\[0\] must be unique; 'a' appears twice"):
        Metadata(covariate_names=["sex"], covariate_levels=[["a", "a"]])
    with pytest.raises(ValueError, match=r"covariates is None: name them"):
        data._replace(covariates=None, metadata=Metadata()).covariate_frame()


def test_datasets_folders_and_parts_give_back_every_bit(tmp_path):
    data = whole()
    assert_same(Trajectories.from_xarray(data.to_xarray()), data)
    data.to_xarray().to_netcdf(tmp_path / "data.nc")
    import xarray

    assert_same(Trajectories.from_xarray(xarray.open_dataset(tmp_path / "data.nc")), data)
    data.save(tmp_path / "folder")
    opened = Trajectories.open(tmp_path / "folder")
    assert isinstance(opened.covariates, np.memmap)
    assert_same(opened, data)
    parts = [data.take([0]), data.take([1, 2])]
    assert_same(Trajectories.save_parts(tmp_path / "parts", parts), data)
    other = parts[1].metadata.__class__(covariate_names=COLUMNS, covariate_levels=[None, ["f", "m"], None])
    with pytest.raises(ValueError, match="parts"):
        Trajectories.save_parts(tmp_path / "others", [parts[0], parts[1]._replace(metadata=other)])


def test_tables_are_read_back():
    data = whole()
    table = data.to_table()
    assert (
        table["sex"].tolist() == ["f", "f", "f", "m", "m", "m"] and table["temperature"].tolist()[0] == 20.5
    )
    back = read(
        table,
        sequence="sequence",
        group="group",
        time="time",
        missing_covariates="carry",
        metadata=data.metadata,
    )
    np.testing.assert_array_equal(back.covariates[:2], data.covariates[:2])


def test_concatenation_merges_levels():
    one = Trajectories.from_list([[0.0, 1.0]], covariates={"food": [["corn", "nuts"]], "hour": [3]})
    other = Trajectories.from_list([[0.0]], covariates={"food": ["apple"], "hour": [4]})
    both = Trajectories.concatenate([one, other])
    assert both.metadata.covariate_levels == (("corn", "nuts", "apple"), None)
    assert both.covariates.tolist() == [[[0, 3], [1, 3]], [[2, 4], [0, 0]]]
    renamed = Trajectories.from_list([[0.0]], covariates={"meal": ["apple"], "hour": [4]})
    numbers = Trajectories.from_list([[0.0]], covariates={"food": [1], "hour": [4]})
    for wrong, what in (
        (renamed, "covariate_names"),
        (numbers, "levels"),
        (one._replace(covariates=None), "entries"),
    ):
        with pytest.raises(ValueError, match=what):
            Trajectories.concatenate([one, wrong])


def test_covariates_follow_their_sequences_and_frames():
    data = whole()
    np.testing.assert_array_equal(data.take([2, 0]).covariates, data.covariates[[2, 0]])
    for part in data.buckets(0):
        assert part.covariates.shape == (*part.observed.shape, 3)
    assert data.take([1]).trim().covariates.tolist() == [data.covariates[1, :4].tolist()]
    train, test = data.split(jax.random.key(0))
    assert len(train.covariates) + len(test.covariates) == 3
    for changed in (data.standardised(), data.centred(by="all"), data.complete_frames()):
        np.testing.assert_array_equal(changed.covariates, data.covariates)
        assert changed.metadata.covariate_units == ("°C", "", "")
    plane = Trajectories.from_list(
        [[[0.0, 0.0], [1.0, 0.0], [1.0, 2.0]], [[0.0, 0.0], [1.0, 0.0]]],
        covariates={"hour": [[5, 6, 7], [8, 9]]},
    )
    assert step_and_turn(plane).covariates[..., 0].tolist() == [[5, 6], [8, 0]]
    assert "covariates temperature (°C), sex, lit" in " ".join(repr(data).split())


@settings(max_examples=20, deadline=None, derandomize=True)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=4), st.integers(1, 3))
def test_rows_of_the_frame_go_back_to_their_steps(lengths, width):
    rng = np.random.default_rng(sum(lengths))
    columns = {f"c{place}": [rng.normal(size=length) for length in lengths] for place in range(width)}
    with warnings.catch_warnings(action="ignore"):
        data = Trajectories.from_list([np.zeros(length) for length in lengths], covariates=columns)
    frame = data.covariate_frame()
    np.testing.assert_array_equal(padded_rows(data, frame.to_numpy()), data.covariates)
    assert frame.shape == (sum(lengths), width)
    with pytest.raises(ValueError, match=r"rows has shape .*, and the data \d+ steps"):
        padded_rows(data, np.zeros((sum(lengths) + 1, 2)))


def test_tables_of_movebank_have_covariates():
    table = {
        "individual-local-identifier": ["elk"] * 3,
        "timestamp": ["2024-05-01 00:00", "2024-05-01 01:00", "2024-05-01 03:00"],
        "location-long": [10.0, 10.1, 10.2],
        "location-lat": [50.0, 50.1, 50.2],
        "external-temperature": [5.0, None, 7.0],
        "habitat": ["forest", "field", "field"],
    }
    data = read_movebank(
        table, step="1h", covariates=["external_temperature", "habitat"], missing_covariates="carry"
    )
    assert data.covariates[0].tolist() == [[5, 1], [5, 0], [5, 0], [7, 0]]
    assert data.metadata.covariate_names == ("external-temperature", "habitat")
    with pytest.raises(
        ValueError, match=r"'external-temperature' of sequence 0 \(elk\) has no value at time"
    ):
        read_movebank(table, step="1h", covariates="external-temperature")
