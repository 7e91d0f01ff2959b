"""The warning of values, and of steps, that no device should have recorded."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from ethogram.models.data import Metadata, Trajectories


def walk(count=400, step=1.0, seed=0):
    """A walk of steps of `step` metres or so, (time, 2), over some kilometres."""
    rng = np.random.default_rng(seed)
    return np.cumsum(rng.normal((20 * step, 5 * step), step, (count, 2)), axis=0)


def said(*tracks, **settings):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        Trajectories.from_list(list(tracks), missing="nan", **settings)
    return [str(each.message) for each in seen]


@pytest.mark.parametrize("at", [(0,), (200,), (399,), (200, 201, 202)])
def test_a_spike_of_15_km_in_a_second_is_named(at):
    """Within the interquartile ranges of the positions, at either end of the track, and of several frames."""
    track = walk()
    track[list(at), 0] += 15000
    for names, hint in ((("east", "north"), True), (("UTM_E", "UTM_N"), True), (("depth",), False)):
        tracks = (each[:, : len(names)] for each in (walk(seed=1), track))
        (line,) = said(*tracks, metadata=Metadata(feature_names=names))
        assert f"feature {names[0]!r} of sequence 1 is" in line and "a usual one" in line
        assert ("max_speed=" in line) == hint


def test_a_spike_beside_a_gap_and_a_value_far_outside():
    track = walk()
    track[50:60], track[60, 1] = np.nan, track[60, 1] + 30000
    (line,) = said(track)
    assert "feature 1 of sequence 0" in line and "at step 60," in line
    track[60, 1] = 1e9
    (line,) = said(track)
    assert "interquartile ranges from the median" in line and "(1 values are that far)" in line


def test_a_spike_towards_another_animal_is_that_which_is_named():
    """Nearer to the median of all animals than the frames around it."""
    spiky = walk(seed=2) - 1e6
    spiky[200] = 5e5
    (line,) = said(walk(), walk(seed=1) + 1e6, spiky)
    assert "of sequence 2 is 500000 at step 200," in line


def test_what_is_no_error_is_not_warned_of():
    rng = np.random.default_rng(0)
    heading = (np.cumsum(rng.normal(0.02, 0.01, 2000)) + np.pi) % (2 * np.pi) - np.pi
    rest = np.cumsum(rng.normal(0, 0.001, (2000, 1)), axis=0)
    travel = np.where(rng.random((2000, 1)) < 0.06, rng.normal(0, 5, (2000, 1)), 0)
    longitude = (179 + np.cumsum(rng.normal(0.01, 0.001, (300, 1)), axis=0) + 180) % 360 - 180
    hours = np.arange(3000)[:, None] / 60 % 24
    assert said(heading[:, None]) == []
    assert said(rest + np.cumsum(travel, axis=0)) == []
    assert said(hours) == []
    about_north = 5 + np.cumsum(rng.normal(0, 0.05, (3000, 1)), axis=0)
    about_north[:10] -= 6
    assert said(about_north % 360, metadata=Metadata(feature_units=("deg",))) == []
    assert said(walk(), walk() + 1e6) == []  # sequences in different places
    assert said(longitude, metadata=Metadata(feature_names=("longitude",))) == []
    assert said(np.arange(20.0)[:, None] // 10) == []  # one step, which is a usual one
