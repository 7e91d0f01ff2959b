"""Step lengths and turning angles against paths that are laid out by them."""

from __future__ import annotations

import numpy as np
import pytest

from ethogram.models.data import Metadata, Trajectories, step_and_turn

NAN = float("nan")


def test_a_path_gives_back_its_steps_and_turns():
    rng = np.random.default_rng(0)
    steps, turns = rng.gamma(2.0, 1.0, 30), rng.vonmises(0, 1, 30)
    heading = np.cumsum(turns)
    path = np.cumsum(steps[:, None] * np.stack([np.cos(heading), np.sin(heading)], -1), axis=0)
    data = Trajectories.from_list(
        [np.concatenate([np.zeros((1, 2)), path]), path[:5]],
        agent=["elk", "zebra"],
        metadata=Metadata(feature_units=("m", "m")),
    )
    found = step_and_turn(data)
    np.testing.assert_allclose(found.observations[0, :, 0], steps)
    np.testing.assert_allclose(found.observations[0, 1:, 1], turns[1:])
    assert np.isnan(found.observations[:, 0, 1]).all() and found.lengths.tolist() == [30, 4]
    assert found.observed.sum(1).tolist() == [30, 4]
    assert found.metadata.feature_names == ("step", "turn") and found.metadata.feature_units == ("m", "rad")
    assert found.metadata.agent_names == ("elk", "zebra")


def test_small_steps_on_the_sphere_are_those_of_the_plane():
    """Near 60 degrees north a degree of longitude is half of one of latitude; far steps follow great circles."""
    metres = np.array([[0.0, 0.0], [300.0, 0.0], [300.0, 400.0], [0.0, 400.0], [-100.0, 300.0]])
    degree = 6371008.8 * np.pi / 180
    lonlat = np.array([20.0, 60.0]) + metres / (degree * np.array([np.cos(np.pi / 3), 1.0]))
    plane, sphere = (
        step_and_turn(Trajectories.from_list([x]), coordinates=kind).observations[0]
        for x, kind in ((metres / 1000, "planar"), (lonlat, "lonlat"))
    )
    np.testing.assert_allclose(sphere, plane, rtol=1e-3)
    corner = Trajectories.from_list([[[0.0, 0.0], [90.0, 0.0], [0.0, 90.0]]])
    step, turn = step_and_turn(corner, coordinates="lonlat").observations[0].T
    np.testing.assert_allclose(step, 6371.0088 * np.pi / 2)
    assert turn[1] == pytest.approx(np.pi / 2)


def test_whole_positions_that_are_missing_have_no_step(tmp_path):
    (tmp_path / "track.csv").write_text("x,y\n0,0\n3,4\nNA,NA\nNA,NA\n-1,-1\n2,3\n")
    data = Trajectories.from_table(tmp_path / "track.csv", features=["x", "y"], missing="nan")
    found = step_and_turn(data)
    np.testing.assert_array_equal(found.observations[0, :, 0], [5, NAN, NAN, NAN, 5])
    assert found.observed[0].tolist() == [True, False, False, False, True]
    integers = data.take([0])._replace(
        observations=np.array([[[-1, -1], [2, 3]]]), observed=np.ones((1, 2), bool)
    )
    assert step_and_turn(integers._replace(lengths=np.array([2]))).observations[0, 0, 0] == 5


def test_steps_of_zero_and_gaps():
    path = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 0.0], [1.0, 1.0], [NAN, NAN], [2.0, 2.0], [3.0, 3.0]])
    data = Trajectories.from_list([path], missing="nan")
    with pytest.raises(ValueError, match=r"positions\[0, 1\] and the one after are equal, one of 1 steps"):
        step_and_turn(data)
    kept = step_and_turn(data, zero_steps="keep")
    root = np.sqrt(2)
    np.testing.assert_allclose(
        kept.observations[0], [[1, NAN], [0, NAN], [1, NAN], [NAN, NAN], [NAN, NAN], [root, NAN]]
    )
    assert kept.observed[0].tolist() == [True, True, True, False, False, True]
    moved = step_and_turn(data, zero_steps="offset", smallest=0.01)
    assert moved.observations[0, 1, 0] == 0.01 and np.isnan(moved.observations[0, 1, 1])
    assert step_and_turn(data, zero_steps="missing").observed[0].tolist() == [
        True,
        False,
        True,
        False,
        False,
        True,
    ]
    with pytest.raises(ValueError, match="smallest is the length"):
        step_and_turn(data, zero_steps="offset")
    with pytest.raises(ValueError, match="longitude first"):
        step_and_turn(Trajectories.from_list([[[0.0, 100.0], [1.0, 0.0]]]), coordinates="lonlat")
    with pytest.raises(
        ValueError, match='longitudes beyond 360 degrees: give degrees, or coordinates="planar"'
    ):
        step_and_turn(Trajectories.from_list([[[5e5, 50.0], [5e5, 51.0]]]), coordinates="lonlat")
    with pytest.warns(UserWarning, match="sequence 1 has no observed frame"):
        step_and_turn(Trajectories.from_list([GLOBE, GLOBE[:1]]))


GLOBE = [[0.0, 60.0], [1.0, 60.0], [2.0, 60.5]]


def turn_on_the_sphere(lonlat):
    """At the second of three points, between the tangents of the great circles to and from it."""
    lon, lat = np.radians(lonlat).T
    first, here, last = np.stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)], -1)
    arriving, leaving = -(first - here * (first @ here)), last - here * (last @ here)
    return np.arctan2(here @ np.cross(arriving, leaving), arriving @ leaving)


@pytest.mark.parametrize(
    ("names", "units"),
    [
        (None, ("degrees", "degrees")),
        (None, ("degrees_east", "degrees_north")),
        (("x", "y"), ("deg", "\N{DEGREE SIGN}")),
        (None, ("\N{DEGREE SIGN}E", "[Degrees] ")),
        (("x", "y"), ("Decimal degrees", "\N{MASCULINE ORDINAL INDICATOR}")),
        (("X", "Y"), ("DecDeg", "arc_degree")),
        (("location-long", "location_lat"), None),
        (("lon", "lat"), ("", "")),
    ],
)
def test_coordinates_follow_the_units_else_the_names(names, units):
    data = Trajectories.from_list([GLOBE], metadata=Metadata(feature_names=names, feature_units=units))
    found = step_and_turn(data)
    assert found.metadata.feature_units == ("km", "rad")
    assert (
        found.observations[0, 1, 1]
        == pytest.approx(turn_on_the_sphere(GLOBE))
        == pytest.approx(0.804, abs=1e-3)
    )
    if names != ("lon", "lat") and units is not None:
        with pytest.raises(ValueError, match='coordinates is "planar", but positions are in'):
            step_and_turn(data, coordinates="planar")


def test_coordinates_that_contradict_the_units_are_refused():
    def of(units=None, names=None, **settings):
        metadata = Metadata(feature_names=names, feature_units=units)
        return step_and_turn(Trajectories.from_list([GLOBE], metadata=metadata), **settings)

    assert of(names=("lon", "lat"), units=("m", "m")).observations[0, 1, 1] == pytest.approx(
        np.arctan2(0.5, 1)
    )
    assert of(names=("lon", "lat"), coordinates="planar").observations[0, 1, 1] == pytest.approx(
        0.464, abs=1e-3
    )
    for settings, message in (
        (
            {"units": ("m", "m"), "coordinates": "lonlat"},
            "coordinates is \"lonlat\", but positions are in 'm'",
        ),
        ({"units": ("m", "km")}, "positions are in km and m: give all coordinates in one unit"),
        ({"units": ("degrees", "m")}, "one unit"),
        ({"units": ("rad", "rad")}, "np.rad2deg"),
        ({"names": ("lat", "lon")}, "latitude first"),
        ({"units": ("degrees_north", "degrees_east")}, "latitude first"),
    ):
        with pytest.raises(ValueError, match=message):
            of(**settings)
    with pytest.raises(ValueError, match="positions are degrees relative to a centre"):
        metadata = Metadata(("longitude", "latitude"), ("degrees", "degrees"))
        step_and_turn(Trajectories.from_list([GLOBE], metadata=metadata).centred())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_steps_within_rounding_are_steps_of_zero(dtype):
    """0.1 + 0.2 is 0.3 + 5.6e-17: no movement, and no direction."""
    third = np.array([0.1, 0.3, 0.3, 0.5], dtype)
    third[1] = np.nextafter(third[2], dtype(1))
    data = Trajectories.from_list([np.stack([third, np.zeros(4, dtype)], -1)])
    with pytest.raises(
        ValueError, match=r"positions\[0, 1\] .* equal, one of 1 steps of length zero or within rounding"
    ):
        step_and_turn(data)
    assert step_and_turn(data, zero_steps="keep").observations[0, 1, 0] == 0
    found = step_and_turn(data, zero_steps="missing")
    assert found.observed.tolist() == [[True, False, True]] and np.isnan(found.observations[0, :, 1]).all()
    degrees = step_and_turn(data, coordinates="lonlat", zero_steps="missing")
    assert degrees.observed.tolist() == [[True, False, True]]


def test_what_are_no_trajectories_is_refused():
    with pytest.raises(TypeError, match="positions is int: give Trajectories"):
        step_and_turn(2)
    with pytest.raises(TypeError, match="smallest must be a real number"):
        step_and_turn(Trajectories.from_list([GLOBE]), zero_steps="offset", smallest="a")
