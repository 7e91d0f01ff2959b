"""Round trips through xarray and netCDF, exact to the bit, and foreign datasets."""

import dataclasses
import warnings

import jax
import numpy as np
import pytest
import xarray
from hypothesis import given, settings
from hypothesis import strategies as st

from ethogram.models.data import step_and_turn
from ethogram.models.data.trajectories import Metadata, Trajectories
from ethogram.models.data.xarray_dataset import metadata_variables, read_metadata

pytestmark = pytest.mark.filterwarnings("ignore:sequence .* has no observed frame:UserWarning")
QUICK = settings(max_examples=5, deadline=None, derandomize=True)
NAMES = st.one_of(
    st.none(),
    st.lists(
        st.text(st.sampled_from(list("aZ0 _-/.,:'\"\\\n\tß\x7f\u0301\u200b漢🐬")), max_size=8),
        min_size=1,
        unique=True,
    ),
)


def whole(dtype=np.float32):
    """Every part present, with missing frames and an empty sequence."""
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=(n, 2)).astype(dtype) for n in (3, 1, 0, 4)]
    arrays[3][1] = np.nan if np.dtype(dtype).kind == "f" else -1
    metadata = Metadata(
        feature_names=("x", "größe"), feature_units=("m", "m/s"), time_unit="s", frame_rate=1 / 3,
        group_names=("", "final"), action_names=("left", "right"), name="four sequences",
    )  # fmt: skip
    with warnings.catch_warnings(action="ignore"):  # of the empty sequence
        return Trajectories.from_list(
            arrays,
            states=[np.arange(n) for n in (3, 1, 0, 4)],
            actions=[["left"] * n for n in (3, 1, 0, 4)],
            stay=[[1] * n for n in (3, 1, 0, 4)],
            agent=["b", None, "a", "b"],
            group=["final", "final", "", ""],
            subject=[7, 3, -1, 0],
            missing="nan",
            metadata=metadata,
        )


def assert_same(first, second):
    assert first.metadata == second.metadata
    assert jax.tree.structure(first) == jax.tree.structure(second)
    for one, other in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


PARTS = {
    "everything": lambda: whole(),
    "double": lambda: whole(np.float64),
    "integers": lambda: whole(np.int32),
    "bare": lambda: Trajectories.from_list([[[0.5]]]),
    "actions only": lambda: Trajectories.from_list(actions=[["go", "stop"], ["go"]]),
}


@pytest.mark.parametrize("data", [pytest.param(make(), id=name) for name, make in PARTS.items()])
def test_round_trips_are_exact(data, tmp_path):
    dataset = data.to_xarray()
    assert_same(Trajectories.from_xarray(dataset), data)
    path = tmp_path / "data.nc"
    dataset.to_netcdf(path, engine="h5netcdf")
    with xarray.open_dataset(path, engine="h5netcdf") as stored:
        assert_same(Trajectories.from_xarray(stored), data)
    assert_same(Trajectories.from_xarray(jax.tree.map(jax.numpy.asarray, data).to_xarray()), jax.device_get(
        jax.tree.map(jax.numpy.asarray, data)))  # fmt: skip


@QUICK
@given(st.data())
def test_metadata_survive_whatever_their_names(tmp_path_factory, data):
    vocabularies = ("agent_names", "group_names", "subject_names", "state_names", "action_names")
    drawn = {field: data.draw(NAMES) for field in vocabularies}
    units = data.draw(st.one_of(st.none(), st.just(["m", "m"])))
    text = st.one_of(st.none(), st.sampled_from(["", "s", "Löwe"]))
    rate = st.one_of(st.none(), st.floats(1e-6, 1e6))
    metadata = Metadata(
        **drawn,
        feature_units=units,
        time_unit=data.draw(text),
        name=data.draw(text),
        frame_rate=data.draw(rate),
    )
    batch = Trajectories.from_list([np.zeros((2, 2))], metadata=metadata)
    path = tmp_path_factory.mktemp("metadata") / "data.nc"
    batch.to_xarray().to_netcdf(path, engine="h5netcdf")
    with xarray.open_dataset(path, engine="h5netcdf") as stored:
        assert Trajectories.from_xarray(stored).metadata == metadata


def test_metadata_alone_go_into_any_dataset():
    metadata = dataclasses.replace(whole().metadata, state_names=("s", "t"))
    coords, attributes = metadata_variables(metadata)
    assert read_metadata(xarray.Dataset(coords=coords, attrs=attributes)) == metadata


def test_names_can_be_edited_in_xarray():
    dataset = whole().to_xarray().assign_coords(feature=["east", "north"]).assign_attrs(frame_rate=50)
    metadata = Trajectories.from_xarray(dataset).metadata
    assert metadata.feature_names == ("east", "north") and metadata.frame_rate == 50.0


def test_the_frame_rate_is_that_of_the_times():
    """As after taking every other time of a Dataset, which keeps its attributes."""
    values = np.arange(6.0).reshape(1, 6, 1)
    for times, rate in ((np.arange(6) / 30, 15), (np.arange(6) * np.timedelta64(20, "ms"), 25)):
        whole = xarray.Dataset(
            {"observations": (("sequence", "time", "feature"), values)},
            coords={"time": times},
            attrs={"frame_rate": 2.0 * rate, "time_unit": "s"},
        )
        assert Trajectories.from_xarray(whole).metadata.frame_rate == 2 * rate
        with pytest.warns(UserWarning, match=f"frame_rate of dataset is {2 * rate}, but times are"):
            found = Trajectories.from_xarray(whole.isel(time=slice(None, None, 2)))
        assert found.metadata.frame_rate == pytest.approx(rate)


def test_units_and_outliers_of_variables():
    """Degrees by the CF conventions are those of a globe, and radians those of an angle."""
    track = np.cumsum(np.full((1, 60), 1e-5), axis=1)
    dims, east, north = ("sequence", "time"), {"units": "degrees_east"}, {"units": "degrees_north"}
    dataset = xarray.Dataset(
        {"a": (dims, track, east), "b": (dims, track, north), "c": (dims, track, {"units": "rad"})}
    )
    found = Trajectories.from_xarray(dataset, features=["a", "b"])
    assert found.metadata.feature_units == ("degrees_east", "degrees_north")
    assert step_and_turn(found).metadata.feature_units == ("km", "rad")
    with pytest.raises(ValueError, match="feature 'c' is in 'rad', and angles have no linear mean"):
        Trajectories.from_xarray(dataset, features=["a", "c"]).standardised()
    track[0, 30] += 0.135
    with pytest.warns(UserWarning, match=r"feature 'a' of sequence 0 is 0\.13531 at step 30,"):
        Trajectories.from_xarray(dataset, features=["a", "b"])


def test_foreign_datasets_need_the_dims_only():
    values = np.array([[[0.0, np.nan], [1.0, 2.0]]])
    dataset = xarray.Dataset(
        {"observations": (("time", "feature", "sequence"), np.moveaxis(values, 0, -1)), "other": 3.0},
        coords={"feature": [10, 20]},
    )
    batch = Trajectories.from_xarray(dataset, missing="nan")
    np.testing.assert_array_equal(batch.observations, values)
    assert batch.observed.tolist() == [[True, True]] and batch.lengths.tolist() == [2]
    assert batch.metadata == Metadata()
    with pytest.raises(ValueError, match=r"observations\[0, 0, 1\] is nan"):
        Trajectories.from_xarray(dataset)
    labels = xarray.Dataset({"actions": (("sequence", "time"), np.array([[1, -1]]))})
    assert Trajectories.from_xarray(labels).observed.tolist() == [[True, False]]


@pytest.mark.parametrize(
    ("dataset", "options", "error", "message"),
    [
        (xarray.Dataset({"x": 1}), {}, ValueError, r"dataset has no observations.*\['x'\]"),
        (xarray.DataArray([1.0]), {}, TypeError, "dataset is DataArray"),
        (xarray.Dataset({"states": (("trial", "time"), [[1]])}), {}, ValueError, "rename or expand them"),
        *(
            (xarray.Dataset({"states": (("sequence", "time"), [words])}), {}, TypeError, message)
            for words, message in (
                (["a", "b"], "states has dtype <U1: make them numbers of names in a coordinate state_names"),
                ([0.0, np.nan], "states has dtype float64: make them .*, with -1 for what is missing"),
            )
        ),
        *(
            (whole().to_xarray().assign(lengths=("sequence", lengths)), {}, TypeError, "lengths has dtype")
            for lengths in (np.full(4, None), np.ones(4))
        ),
        (whole().to_xarray(), dict(missing="no"), ValueError, "missing must be 'error' or 'nan'"),
        (
            whole().to_xarray().drop_vars("observed").isel(time=slice(2)),
            {},
            ValueError,
            "exceeds the padding",
        ),
    ],
)
def test_bad_datasets_are_named(dataset, options, error, message):
    with pytest.raises(error, match=message):
        Trajectories.from_xarray(dataset, **options)


def test_a_dataset_with_other_names_says_which_argument_names_them():
    values = np.arange(12.0).reshape(2, 3, 2)
    dataset = xarray.Dataset(
        {"observations": (("trial", "frame", "space"), values)}, coords={"space": ["x", "y"]}
    )
    with pytest.raises(ValueError, match="pass sequence='trial', time='frame', features='space'"):
        Trajectories.from_xarray(dataset)
    data = Trajectories.from_xarray(dataset, sequence="trial", time="frame", features="space")
    np.testing.assert_array_equal(data.observations, values)
    assert data.metadata.feature_names == ("x", "y")
    with pytest.raises(ValueError, match=r"sequence is 'bout', but the dataset has dims \['trial'"):
        Trajectories.from_xarray(dataset, sequence="bout")


def test_agents_of_a_dim_become_sequences_of_a_group():
    values = np.arange(12.0).reshape(3, 2, 2)  # frame, animal, space
    dataset = xarray.Dataset(
        {"position": (("frame", "animal", "space"), values)},
        coords={"space": ["x", "y"], "animal": ["b", "a"], "frame": [0.5, 1.0, 1.5]},
    )
    data = Trajectories.from_xarray(dataset, agent="animal", time="frame", features="position")
    np.testing.assert_array_equal(data.observations, np.moveaxis(values, 1, 0))
    assert data.agent.tolist() == [1, 0] and data.metadata.agent_names == ("a", "b")
    mixed = dataset.assign_coords(animal=np.array(["b", 7], object))
    mixed = Trajectories.from_xarray(mixed, agent="animal", time="frame", features="position")
    assert mixed.agent.tolist() == [1, 0] and mixed.metadata.agent_names == ("7", "b")
    assert data.group.tolist() == [0, 0] and data.times[1].tolist() == [0.5, 1.0, 1.5]
    parts = xarray.Dataset({name: (("trial", "time"), values[..., 0].T) for name in ("u", "v")})
    both = Trajectories.from_xarray(parts, sequence="trial", features=["u", "v"])
    np.testing.assert_array_equal(both.observations, np.stack([values[..., 0].T] * 2, axis=-1))
    assert both.metadata.feature_names == ("u", "v")
