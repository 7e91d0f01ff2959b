"""Centred and standardised observations, against sums written out."""

import numpy as np
import pytest

from ethogram.models.data.trajectories import Metadata, Trajectories


@pytest.fixture
def goats():
    """Two groups; the second agent of the first comes a step later."""
    rows = [("a", "x", 0, 1.0), ("a", "x", 1, 3.0), ("a", "y", 1, 7.0), ("b", "z", 0, -4.0)]
    table = {name: [row[i] for row in rows] for i, name in enumerate(("herd", "goat", "minute", "east"))}
    return Trajectories.from_table(
        table,
        sequence=["herd", "goat"],
        group="herd",
        agent="goat",
        time="minute",
        features=["east"],
        metadata=Metadata(feature_units=("km",)),
        step=1,
    )


def test_centre_of_a_group_is_that_of_the_agents_present(goats):
    found = goats.centred()
    np.testing.assert_allclose(found.observations[:, :, 0][found.observed], [0.0, -2.0, 2.0, 0.0])
    np.testing.assert_array_equal(found.observed, goats.observed)
    assert found.metadata.feature_names == ("east relative to the group mean",)
    assert found.metadata.feature_units == ("km",)
    medians = goats.centred("all", "median")
    np.testing.assert_allclose(medians.observations[:, :, 0][found.observed], [-1.0, 1.0, 5.0, -6.0])
    sequences = goats.centred("sequence")
    np.testing.assert_allclose(sequences.observations[:, :, 0][found.observed], [-1.0, 1.0, 0.0, 0.0])


def test_standardised_features_say_how_to_go_back(goats):
    found = goats.standardised()
    values = found.observations[:, :, 0][found.observed]
    np.testing.assert_allclose([values.mean(), values.std()], [0, 1], atol=1e-12)
    mean, spread = np.mean([1, 3, 7, -4]), np.std([1, 3, 7, -4])
    assert found.metadata.feature_names == (f"east less {mean:.6g} km",)
    assert found.metadata.feature_units == (f"SD of {spread:.6g} km",)
    again = Trajectories.from_xarray(found.to_xarray())
    assert again.metadata.feature_units == found.metadata.feature_units


def test_float32_far_from_zero_loses_nothing_that_it_had():
    east = (5e6 + np.arange(6)).astype(np.float32)
    data = Trajectories.from_list([east[:, None]])
    np.testing.assert_array_equal(data.centred("all").observations[0, :, 0], np.float32(np.arange(6) - 2.5))


def test_integers_have_a_centre_and_a_spread():
    whole = Trajectories.from_list([[1, 2, 6]])._replace(observations=np.array([[[1], [2], [6]]]))
    np.testing.assert_array_equal(whole.centred("all").observations[0, :, 0], [-2, -1, 3])
    np.testing.assert_allclose(whole.standardised().observations.std(), 1)
    with pytest.raises(ValueError, match="by"):
        Trajectories.from_list([np.ones((2, 1))]).centred("team")


def test_a_constant_feature_is_only_centred():
    data = Trajectories.from_list([np.full((10, 1), 0.1)]).standardised()
    np.testing.assert_allclose(data.observations, 0, atol=1e-15)
    assert data.metadata.feature_units == ("SD of 1",)


@pytest.mark.parametrize("unit", ["rad", "degrees"])
def test_angles_are_neither_centred_nor_scaled(unit):
    turns = Trajectories.from_list([[[3.1], [-3.1]]], metadata=Metadata(("turn",), (unit,)))
    for change in (turns.standardised, turns.centred):
        with pytest.raises(
            ValueError, match=f"feature 'turn' is in '{unit}', and angles have no linear mean"
        ):
            change()
