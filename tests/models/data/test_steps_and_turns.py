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
