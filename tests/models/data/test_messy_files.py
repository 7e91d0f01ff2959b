"""Files as people have them: several, in other notations, with repeated rows, spikes and numbers for missing values."""

from __future__ import annotations

import pathlib
import re
import warnings

import numpy as np
import pytest

from ethogram.models.choices import Decisions
from ethogram.models.data import Metadata, Trajectories

GERMAN = "Tier;Datum;x;y\nä1;01.05.2021 12:00;1.000,5;2\nä1;01.05.2021 13:00;1.500,0;3,5\n"


def read(path, **settings):
    return Trajectories.from_table(
        path, **({"sequence": "Tier", "time": "Datum", "features": ["x", "y"]} | settings)
    )


def said(make):
    """What comes back, and the warnings."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        found = make()
    return found, [str(each.message) for each in seen]


def test_each_message_names_the_next_argument(tmp_path):
    path = tmp_path / "gps.csv"
    path.write_bytes(GERMAN.encode("latin-1"))
    settings = {}
    for message, argument in (
        ("pass sep=';'", {"sep": ";"}),
        ("encoding=", {"encoding": "latin-1"}),
        ("'01.05.2021 12:00' in row 0, .* pass day_first=", {"day_first": True}),
        ("row 0 is '1.000,5': pass decimal=", {"decimal": ",", "thousands": "."}),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            read(path, **settings)
        settings |= argument
    data = read(path, **settings, agent="Tier")
    assert data.observations.tolist() == [[[1000.5, 2.0], [1500.0, 3.5]]] and data.metadata.agent_names == (
        "ä1",
    )
    assert data.to_table()["time"].astype(str).tolist() == ["2021-05-01 12:00:00", "2021-05-01 13:00:00"]
    with pytest.raises(ValueError, match="sep is of files, and table is dict"):
        Trajectories.from_table({"x": [1.0]}, features="x", sep=";")


@pytest.mark.parametrize(
    ("texts", "day_first", "expected"),
    [
        (["01/02/2021", "13/02/2021"], None, "'13/02/2021' in row 1, .* pass day_first=True$"),
        (["01/02/2021", "01/13/2021"], None, "'01/13/2021' in row 1, .* pass day_first=False$"),
        (["1.2.21", "2.2.21"], None, "'1.2.21' in row 0, .* pass day_first=True or False$"),
        (["01/02/2021", "01/13/2021"], True, "'01/13/2021' in row 1, which is no date with day_first=True"),
        (["1.2.21 9:05", "2.2.21 09:05"], True, "2021-02-01T09:05"),
        (["1/2/1999 1:05 PM", "1/3/1999 1:05 PM"], False, "1999-01-02T13:05"),
        (["2021/02/01 9:05", "2021/02/02 9:05"], None, "2021-02-01T09:05"),
        (["2021/02/01 9:05", "2021/13/02 9:05"], None, "row 1 is '2021/13/02 9:05'"),
        (["2021/02/01", "soon"], None, "row 1 is 'soon'"),
        (["0,5", "1,5"], True, "row 0 is '0,5': pass decimal="),
    ],
)
def test_a_date_is_read_as_it_is_meant_or_not_at_all(texts, day_first, expected):
    def make():
        return Trajectories.from_table(
            {"t": texts, "x": [1.0, 2.0]}, time="t", features="x", day_first=day_first
        )

    if expected[0].isdigit():
        assert make().times[0, 0] == np.datetime64(expected, "ns").astype(int)
    else:
        with pytest.raises((TypeError, ValueError), match=expected):
            make()


def test_files_by_a_pattern_are_one_table(tmp_path):
    for name, rows in (("m1_b", "7,2,5\n7,3,6\n"), ("m1_a", "7,0,3\n7,1,4\n"), ("m2_a", "007,0,9\n")):
        (tmp_path / f"{name}.csv").write_text("id,t,x\n" + rows)
    every = {"time": "t", "features": "x"}
    data = Trajectories.from_table(tmp_path / "m*.csv", sequence="id", agent="id", **every)
    assert data.observations[..., 0].tolist() == [[3, 4, 5, 6], [9, 0, 0, 0]]  # in order of time
    assert data.metadata.agent_names == ("007", "7")
    mouse = re.compile(r"(m\d)_")
    data = Trajectories.from_table(
        str(tmp_path / "*.csv"), agent=mouse, group="file", subject=lambda path: path.parent.name, **every
    )
    assert data.metadata.agent_names == ("m1", "m2") and data.metadata.group_names == ("m1_a", "m1_b", "m2_a")
    assert data.lengths.tolist() == [2, 2, 1] and data.metadata.subject_names == (tmp_path.name,)
    both = Trajectories.from_table(tmp_path / "*.csv", sequence=mouse, agent=mouse, **every)
    assert both.lengths.tolist() == [4, 1]
    (tmp_path / "n1.csv").write_text("id,t\n7,0\n")
    (tmp_path / "m3_a.csv").write_text("id,t,x\n8,0,1\n8,0,2\n")
    for table, settings, message in (
        (["n1.csv", "m1_a.csv"], {}, r"no column 'x': those of every file are \['id', 't', 'file'\]"),
        (["m1_a.csv", "m1_a.csv"], {}, "m1_a.csv' twice"),
        (
            ["m1_*.csv", "m3_a.csv"],
            {"sequence": "id"},
            r"row 1 of m3_a.csv, and so it is in row 0 of m3_a.csv",
        ),
        (
            ["m1_a.csv"],
            {"agent": re.compile("x")},
            "agent of the file is 'x', which is not in the name 'm1_a'",
        ),
        (["none*.csv"], {}, "no file has such a name"),
    ):
        with pytest.raises((ValueError, FileNotFoundError), match=message):
            Trajectories.from_table([tmp_path / each for each in table], **every, **settings)


def test_choices_with_semicolons_and_a_mark_of_byte_order(tmp_path):
    path = pathlib.Path(tmp_path / "choices.csv")
    path.write_text("\ufefftrip;mode;hours;taken\n1;bus;0,5;1\n1;car;1,5;0\n", encoding="utf-8")
    settings = {"decision": "trip", "features": "hours", "chosen": "taken", "option": "mode"}
    with pytest.raises(ValueError, match="pass sep=';'"):
        Decisions.from_table(path, **settings)
    data = Decisions.from_table(path, **settings, sep=";", decimal=",")
    assert data.features.ravel().tolist() == [0.5, 1.5] and data.metadata.action_names == ("bus", "car")
    path.write_text("bus;car;taken\n0,5;1,5;0\n")
    wide = Decisions.from_wide(path, features={"hours": ["bus", "car"]}, choice="taken", sep=";", decimal=",")
    assert wide.features.ravel().tolist() == [0.5, 1.5]


def test_rows_of_one_frame():
    """Counted in one message; the first value that is known, or the mean, of angles on the circle."""
    table = {
        "who": ["a", "a", "a", "a", "b", "b"],
        "t": [0.0, 0.0, 1.0, 1.04, 0.0, 0.0],
        "x": [1.0, 3.0, np.nan, 4.0, 5.0, 7.0],
        "turn": [3.0, -3.0, 0.5, 0.5, 0.1, 0.3],
        "act": ["l", "l", "l", "r", "r", "r"],
    }
    metadata = Metadata(feature_units=["m", "rad"])
    settings = dict(
        sequence="who", time="t", features=["x", "turn"], step=1, missing="nan", metadata=metadata
    )
    with pytest.raises(
        ValueError, match=r"row 1, and so it is in row 0 \(2 such rows in 2 sequences\).*duplicates="
    ):
        Trajectories.from_table(table, **settings)
    first, lines = said(lambda: Trajectories.from_table(table, **settings, actions="act", duplicates="first"))
    np.testing.assert_array_equal(first.observations, [[[1, 3], [4, 0.5]], [[5, 0.1], [0, 0]]])
    assert first.actions.tolist() == [[0, 0], [1, -1]] and "3 rows in 2 sequences were left out" in lines[0]
    mean, lines = said(lambda: Trajectories.from_table(table, **settings, duplicates="mean"))
    np.testing.assert_allclose(mean.observations[..., 0], [[2, 4], [6, 0]])
    np.testing.assert_allclose(np.abs(mean.observations[0, 0, 1]), np.pi)
    np.testing.assert_allclose(mean.observations[1, 0, 1], 0.2)
    assert mean.times.tolist()[0] == [0.0, 1.0] and "were averaged" in lines[0]
    with pytest.raises(ValueError, match=r"actions of sequence 0 \(a\) are l and r at once, in frame 1"):
        Trajectories.from_table(table, **settings, actions="act", duplicates="mean")
    regular = {"t": [0, 1, 1, 2], "x": [0.0, 1.0, 9.0, 2.0]}
    again, _ = said(lambda: Trajectories.from_table(regular, time="t", features="x", duplicates="first"))
    assert again.observations.ravel().tolist() == [0, 1, 2]
    north = {"t": [0, 0, 1], "x": [350.0, 10.0, 20.0]}
    degrees = dict(duplicates="mean", metadata=Metadata(feature_units=["deg"]))
    again, _ = said(lambda: Trajectories.from_table(north, time="t", features="x", step=1, **degrees))
    np.testing.assert_allclose(again.observations.ravel(), [0, 20], atol=1e-9)


def track(count=200, seed=0):
    """A walk of about 500 m an hour, in degrees of longitude and latitude."""
    rng = np.random.default_rng(seed)
    return 10 + np.cumsum(rng.normal(0, 0.004, (count, 2)), axis=0)


def fixes(place, names=("longitude", "latitude"), **settings):
    hours = np.datetime64("2021-05-01") + np.arange(len(place)) * np.timedelta64(1, "h")
    table = {"t": hours} | dict(zip(names, place.T, strict=True))
    return said(lambda: Trajectories.from_table(table, time="t", features=list(names), step="1h", **settings))


@pytest.mark.parametrize("at", [[0], [50], [199], [50, 52, 54], [50, 51, 52], [80, 120, 160, 165, 170]])
def test_spikes_are_warned_of_or_missing(at):
    place = track()
    place[at] += (3.5, 0.0)  # 300 km
    _, lines = fixes(place)
    assert (
        len(lines) == 1
        and f"{len(at)} positions, the first in sequence 0" in lines[0]
        and "max_speed=" in lines[0]
    )
    data, lines = fixes(place, max_speed=20)
    assert np.flatnonzero(~data.observed[0]).tolist() == at and f"{len(at)} positions" in lines[0]
    far, lines = fixes(place * 100, names=("x", "y"), max_speed=0.005)  # units of their own
    assert np.flatnonzero(~far.observed[0]).tolist() == at


def test_only_what_is_no_place_of_the_animal_is_a_spike():
    moved = track()
    moved[90:] += 5.0  # carried elsewhere
    visit = track()
    visit[60:70] += 2.0
    for place in (track(), moved, visit):
        data, lines = fixes(place, max_speed=20)
        assert data.observed.all() and not any("positions" in line for line in lines)
    place = np.c_[track(), np.linspace(0, 1, 200)]
    place[50, 0] += 3
    names = ("longitude", "latitude", "temperature")
    data, _ = fixes(place, names=names, max_speed=20)
    assert np.isnan(data.observations[0, 50]).tolist() == [True, True, False] and data.observed.all()
    with pytest.raises(ValueError, match=r"features are \['depth', 'a', 'b'\]: call the coordinates"):
        fixes(place, names=("depth", "a", "b"), max_speed=20)


def test_numbers_that_stand_for_nothing():
    rng = np.random.default_rng(0)
    x = np.c_[rng.normal(20, 5, 300), rng.normal(70, 8, 300), rng.gamma(2, 300, 300)]
    x[10:20, 0], x[30:33, 1], x[50:60, 2] = 999, -1, -9999
    names = Metadata(feature_names=("temperature", "pulse", "step"))
    _, (line,) = said(lambda: Trajectories.from_list([x], metadata=names))
    for part in (
        "999 in 10 rows of feature 'temperature'",
        "-1 in 3 rows of feature 'pulse'",
        "-9999 in 10 rows",
    ):
        assert part in line
    counts = np.c_[
        rng.poisson(2, 300), rng.binomial(1, 0.5, 300), rng.integers(0, 101, 300), rng.integers(-1, 9, 300)
    ]
    zeros = np.where(rng.random((300, 4)) < 0.3, 0, rng.gamma(2, 300, (300, 4)))
    capped = np.minimum(rng.gamma(2, 40, (300, 4)), 99)
    for harmless in (counts, zeros, capped):
        assert said(lambda x=harmless: Trajectories.from_list([x]))[1] == []
