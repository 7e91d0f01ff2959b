"""Readers of several files, gaps filled in, and motion beside postures, against values by hand."""

from __future__ import annotations

import numpy as np
import pytest

from ethogram import tracking
from ethogram.models.data import Metadata, Trajectories

NAN = np.nan


def pose_file(path, num_frames=2, parts=("nose", "tail")):
    rows = [
        "scorer" + ",net" * 3 * len(parts),
        "bodyparts," + ",".join(part for part in parts for _ in range(3)),
    ]
    rows += ["coords" + ",x,y,likelihood" * len(parts)]
    rows += [f"{frame}" + ",1.0,2.0,0.99" * len(parts) for frame in range(num_frames)]
    path.write_text("\n".join(rows))


def test_mice_of_several_files_have_their_names_from_these(tmp_path):
    for count, name in enumerate(["m1_wtDLC", "m2_koDLC", "m3_koDLC"]):
        pose_file(tmp_path / f"{name}.csv", 2 + count)
    pattern = str(tmp_path / "m*.csv")
    data = tracking.read_deeplabcut(pattern, frame_rate=30)
    assert data.metadata.agent_names == data.metadata.group_names == ("m1_wtDLC", "m2_koDLC", "m3_koDLC")
    assert data.lengths.tolist() == [2, 3, 4] and data.metadata.frame_rate == 30
    data = tracking.read_deeplabcut(
        pattern, agent=r"(m\d)_", subject=r"_(..)DLC", group=lambda path: path.parent.name
    )
    assert data.metadata.agent_names == ("m1", "m2", "m3") and data.metadata.subject_names == ("wt", "ko")
    assert data.metadata.group_names == (tmp_path.name,)
    assert tracking.read_deeplabcut(tmp_path / "m1_wtDLC.csv").metadata.agent_names == ("individual",)
    (tmp_path / "day2").mkdir()
    pose_file(tmp_path / "day2" / "m1_wtDLC.csv")
    pose_file(tmp_path / "other.csv", parts=("nose",))
    both = tracking.read_deeplabcut([tmp_path / "m1_wtDLC.csv", tmp_path / "day2" / "m1_wtDLC.csv"])
    assert both.agent.tolist() == [0, 0] and both.group.tolist() == [
        0,
        1,
    ]  # the same mouse, another recording
    for paths, settings, message in (
        (
            ["m1_wtDLC.csv", "other.csv"],
            {},
            r"other.csv.observations.shape.2. is 2, that of .*m1_wtDLC.csv is 4",
        ),
        (["m1_wtDLC.csv"], {"agent": "x"}, "agent is 'x', which is not in the name 'm1_wtDLC'"),
    ):
        with pytest.raises(ValueError, match=message):
            tracking.read_deeplabcut([tmp_path / path for path in paths], **settings)


def test_movebank_is_in_utc_and_keeps_what_is_asked_for(tmp_path):
    """The first row has no position: it sets no clock, and is in no frame of the next."""
    head = "timestamp,location-long,location-lat,external-temperature,individual-local-identifier,sex\n"
    rows = [
        "2021-05-01 11:58:47,,,3,A,f",
        "2021-05-01 12:00:00,10,50,4,A,f",
        "2021-05-01 13:00:00,10.1,50,,A,f",
    ]
    (tmp_path / "a.csv").write_text(head + "\n".join(rows))
    (tmp_path / "b.csv").write_text(
        head + "2021-06-01 12:00:00,10,50,4,B,m\n2021-06-01 12:00:00,10,50,4,B,m\n"
    )
    settings = {"step": "1h", "features": "external.temperature", "subject": "sex"}
    with pytest.raises(
        ValueError, match=r"row 1 of b.csv, and so it is in row 0 of b.csv \(1 such row in 1 seq"
    ):
        tracking.read_movebank(tmp_path / "*.csv", **settings)
    with pytest.warns(UserWarning, match="1 rows in 1 sequences were left out"):
        data = tracking.read_movebank(tmp_path / "*.csv", **settings, group="file", duplicates="first")
    assert data.metadata.feature_names == ("longitude", "latitude", "external-temperature")
    np.testing.assert_array_equal(data.observations[0], [[10, 50, 4], [10.1, 50, NAN]])
    assert data.metadata.time_zone == "UTC" and data.metadata.subject_names == ("f", "m")
    assert data.metadata.agent_names == ("A", "B") and data.metadata.group_names == ("a", "b")
    assert str(data.to_table()["time"][0]) == "2021-05-01 12:00:00+00:00"


def test_short_gaps_are_interpolated_angles_on_the_circle():
    rows = [[0.0, 3.0], [NAN, NAN], [2.0, -3.0], [NAN, -2.0], [NAN, NAN], [5.0, -1.0], [NAN, NAN]]
    names = Metadata(feature_names=["x", "heading"], feature_units=["m", "rad"], frame_rate=2, time_unit="s")
    data = Trajectories.from_list([rows, [[NAN, 1.0], [1.0, 1.5]]], missing="nan", metadata=names)
    for gap in (1, "500ms"):
        found = tracking.interpolate(data, max_gap=gap)
        np.testing.assert_allclose(found.observations[0, :, 0], [0, 1, 2, NAN, NAN, 5, NAN])
        np.testing.assert_allclose(np.cos(found.observations[0, 1, 1]), -1)
        np.testing.assert_allclose(found.observations[0, 3:, 1], [-2, -1.5, -1, NAN])
        assert found.observed[0].tolist() == [True] * 6 + [False]
        np.testing.assert_array_equal(found.observations[1, :2], [[NAN, 1], [1, 1.5]])  # no value before
    assert tracking.interpolate(data, max_gap=2).observations[0, 3:6, 0].tolist() == [3, 4, 5]
    table = {"t": ["2024-01-01T00:00:00.1", "2024-01-01T03:00:00.1"], "x": [0.0, 3.0]}
    hours = Trajectories.from_table(table, time="t", features="x", step="1h")
    assert tracking.interpolate(hours, max_gap="90min").observed.sum() == 2
    filled = tracking.interpolate(hours, max_gap="2h").to_table()
    assert filled["x"].tolist() == [0, 1, 2, 3] and str(filled["time"][2]) == "2024-01-01 02:00:00.100000"
    for gap, error, message in (
        (-1, ValueError, "max_gap must be at least 0"),
        (1.5, TypeError, "max_gap is 1.5"),
        ("soon", TypeError, "max_gap is 'soon'"),
    ):
        with pytest.raises(error, match=message):
            tracking.interpolate(data, max_gap=gap)


def test_motion_on_a_circle_is_its_chord_and_its_angle():
    angle = np.linspace(0, 4 * np.pi, 101)
    tail = 10 * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    nose = tail + np.stack([-np.sin(angle), np.cos(angle)], axis=1)
    names = Metadata(
        feature_names=["tail.x", "tail.y", "nose.x", "nose.y"],
        feature_units=["mm"] * 4,
        frame_rate=30,
        time_unit="s",
    )
    data = Trajectories.from_list([np.hstack([tail, nose])], metadata=names)
    body = tracking.egocentric(data, centre="tail", heading="nose", keep_motion=True)
    assert body.metadata.feature_names == ("nose.x", "forward_speed", "turning_speed")
    assert body.metadata.feature_units == ("mm", "mm/s", "rad/s")
    np.testing.assert_allclose(body.observations[0, 1:, 1], 30 * 20 * np.sin(angle[1] / 2))
    np.testing.assert_allclose(body.observations[0, 1:, 2], 30 * angle[1])
    assert np.isnan(body.observations[0, 0, 1:]).all() and body.observed.all()
    backwards = data._replace(observations=data.observations[:, ::-1])
    back = tracking.egocentric(backwards, centre="tail", heading="nose", keep_motion=True)
    np.testing.assert_allclose(back.observations[0, 1:, 1:], -body.observations[0, 1:, 1:])
