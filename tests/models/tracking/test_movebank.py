"""Tables of Movebank: animals, marks, gaps and the projection, against another formula of distances."""

from __future__ import annotations

import numpy as np
import pytest

from ethogram import tracking
from ethogram.models.tracking.movebank import project

EARTH = 6371008.8
HEADER = "event-id,visible,timestamp,location-long,location-lat,sensor-type,individual-local-identifier\n"
ROWS = """1,true,2010-05-01 12:00:00.000,24.10,-1.50,gps,Ngele
3,true,2010-05-01 14:01:00.000,24.12,-1.52,gps,Ngele
2,false,2010-05-01 13:00:00.000,99.0,-1.51,gps,Ngele
4,true,2010-05-01 16:00:00.000,,,gps,Ngele
5,true,2010-05-01 17:00:00.000,24.15,-1.55,gps,Ngele
6,true,2010-06-02 00:00:00.000,25.00,-1.00,gps,Olga
7,true,2010-06-02 01:00:00.000,25.01,-1.01,gps,Olga
8,true,2010-06-03 01:00:00.000,25.01,-1.01,gps,
"""


@pytest.fixture
def path(tmp_path):
    (tmp_path / "study.csv").write_text(HEADER + ROWS)
    return tmp_path / "study.csv"


def read(path, **settings):
    with pytest.warns(UserWarning) as seen:
        data = tracking.read_movebank(path, step="1h", snap=0.1, **settings)
    return data, [str(each.message) for each in seen]


def test_outliers_gaps_and_rows_without_positions_are_missing(path):
    data, said = read(path)
    assert data.metadata.agent_names == ("Ngele", "Olga") and data.lengths.tolist() == [6, 2]
    assert data.observed[0].tolist() == [True, False, True, False, False, True]
    np.testing.assert_allclose(data.observations[1, :2], [[25.0, -1.0], [25.01, -1.01]])
    assert data.metadata.feature_units == ("degrees", "degrees")
    assert data.metadata.frame_rate == pytest.approx(1 / 3600)
    assert any("1 rows without an animal" in line for line in said)
    assert any("1 rows that are marked as outliers" in line for line in said)
    only, _ = read(path, individuals=["Olga"])
    assert only.metadata.agent_names == ("Olga",)


def test_dates_are_in_utc_or_in_the_zone_that_is_asked_for(path):
    assert read(path)[0].to_table()["time"].dt.hour.tolist()[:2] == [12, 14]
    data, _ = read(path, time_zone="Africa/Nairobi")
    assert data.to_table()["time"].dt.hour.tolist()[:2] == [15, 17]
    with pytest.raises(ValueError, match="time_zone is 'Nairobi': give a name such as 'Africa/Nairobi'"):
        tracking.read_movebank(path, step="1h", time_zone="Nairobi")


def test_marks_of_older_tables(tmp_path):
    """Names with dots, as R writes them, and marks without the summary of them."""
    table = {
        "timestamp": [f"2010-05-01 {hour:02}:00:00" for hour in range(3)],
        "location.long": [1.0, 2.0, 3.0],
        "location.lat": [0.0, 0.0, 0.0],
        "tag.local.identifier": ["7", "7", "7"],
        "algorithm.marked.outlier": ["true", "", "true"],
        "manually.marked.valid": ["true", "", ""],
    }
    with pytest.warns(UserWarning, match="1 rows that are marked"):
        data = tracking.read_movebank(table, step="1h")
    assert data.observed.tolist() == [[True, True]]


@pytest.mark.filterwarnings("ignore:1 rows without an animal")
def test_animals_of_files_are_text(tmp_path):
    rows = "".join(
        f"2010-05-01 {hour:02}:00:00,{hour},0,{name}\n" for hour, name in enumerate(["007", "7", "NA", ""])
    )
    path = tmp_path / "animals.csv"
    path.write_text(f"timestamp,location.long,location.lat,individual.local.identifier\n{rows}")
    data = tracking.read_movebank(path, step="1h")
    assert data.metadata.agent_names == ("007", "7", "NA") and data.num_sequences == 3
    path.write_text(path.read_text().replace("007", "9"))  # now all but NA are whole numbers
    assert tracking.read_movebank(path, step="1h").metadata.agent_names == ("7", "9", "NA")


def test_metres_are_distances_on_the_sphere_from_the_mean():
    """Against the haversine formula, across the date line and near a pole."""
    rng = np.random.default_rng(1)
    for longitude, latitude in ((179.9, -18.0), (10.0, 52.0), (-60.0, 89.0)):
        degrees = np.array([longitude, latitude]) + rng.normal(0, 0.2, (20, 2))
        degrees[:, 0] = (degrees[:, 0] + 180) % 360 - 180
        degrees[3] = np.nan
        metres = project(degrees)
        assert np.isnan(metres[3]).all()
        kept = np.delete(np.arange(20), 3)
        apart = np.linalg.norm(metres[kept][:, None] - metres[kept], axis=-1)
        a, b = np.radians(degrees[kept]).T
        half = np.sin((b[:, None] - b) / 2) ** 2
        half = half + np.cos(b[:, None]) * np.cos(b) * np.sin((a[:, None] - a) / 2) ** 2
        np.testing.assert_allclose(apart, 2 * EARTH * np.arcsin(np.sqrt(half)), rtol=1e-3, atol=1e-3)


def test_positions_in_metres_have_names_and_units(path):
    data, _ = read(path, metres=True, individuals=["Olga"])
    assert data.metadata.feature_names == ("east", "north") and data.metadata.feature_units == ("m", "m")
    step = data.observations[0, 1] - data.observations[0, 0]
    np.testing.assert_allclose(
        step, np.radians(0.01) * EARTH * np.array([np.cos(np.radians(1.005)), -1]), rtol=1e-4
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text.replace("location-lat", "lat"), "no column 'location-lat'"),
        (
            lambda text: text.replace("individual-local", "who"),
            "none of the columns individual-local-identifier",
        ),
        (lambda text: text.replace("24.12", "424.12"), "expected degrees"),
        (
            lambda text: text.replace("14:01:00", "12:00:00"),
            "timestamp of .*12:00.* in row 1, and so it is in row 0",
        ),
        (
            lambda text: text.replace("14:01:00", "17:10:00"),
            "timestamp of .* in row 1, in the same frame as row 4",
        ),
        (lambda text: HEADER + ROWS.splitlines()[-1], "none of the columns"),
    ],
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_wrong_tables_are_refused(tmp_path, change, message):
    (tmp_path / "study.csv").write_text(change(HEADER + ROWS))
    with pytest.raises(ValueError, match=message):
        tracking.read_movebank(tmp_path / "study.csv", step="1h", snap=True)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_animals_that_are_not_there_are_named(path):
    with pytest.raises(ValueError, match="'Ada': the table has Ngele, Olga"):
        tracking.read_movebank(path, step="1h", individuals=["Ada"])


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_marks_and_animals_may_be_numbers():
    table = {
        "timestamp": [f"2010-05-01 {hour:02}:00:00" for hour in range(4)],
        "location-long": [1.0, 2.0, 3.0, 4.0],
        "location-lat": [0.0, 0.0, 0.0, 0.0],
        "tag-id": [7.0, 7.0, 7.0, np.nan],
        "visible": [1.0, 0.0, 1.0, 1.0],
    }
    data = tracking.read_movebank(table, step="1h", individuals=[7])
    assert data.metadata.agent_names == ("7",) and data.observed.tolist() == [[True, False, True]]


def test_rows_without_a_position_neither_set_the_clock_nor_clash():
    """An accelerometer that starts before the GPS and ends after it, at times of its own; and an animal without GPS."""
    rows = [
        ("11:42:10", None),
        ("12:00", 1.0),
        ("12:00", None),
        ("12:20", None),
        ("13:00", 2.0),
        ("15:00", 3.0),
    ]
    rows += [("15:00:01", None), ("19:31", None)]
    table = {
        "timestamp": [f"2010-05-01 {time}" for time, _ in rows] + ["2010-05-01 09:00", "2010-05-01 09:10"],
        "location-long": [longitude for _, longitude in rows] + [None, 7.0],
        "location-lat": [0.0] * len(rows) + [None, 700.0],
        "visible": [True] * (len(rows) + 1) + [False],
        "individual-id": [5] * len(rows) + [6, 6],
    }
    with pytest.warns(UserWarning) as seen:
        data = tracking.read_movebank(table, step="1h")
    assert [str(each.message) for each in seen] == [
        "1 rows that are marked as outliers were taken as missing",
        "animals without a position were left out: 6",
    ]
    assert data.observed.tolist() == [[True, True, False, True]] and data.metadata.agent_names == ("5",)
    assert data.observations[0, [0, 1, 3], 0].tolist() == [1.0, 2.0, 3.0]
    with pytest.raises(ValueError, match="no row of an animal with a position"), pytest.warns(UserWarning):
        tracking.read_movebank(table, step="1h", individuals=[6])
