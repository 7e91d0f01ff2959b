"""The record and the table of a benchmark, and the exit code they lead to."""

from __future__ import annotations

import argparse
import json
import math
import re

import numpy as np
import pytest

from benchmarks import report

ABOUT = "A table of two rows.\n\nMore is said below."


def rows_of(settings: argparse.Namespace) -> list[report.Row]:
    """Two rows with everything that JSON cannot hold by itself."""
    return [
        {"size": "small", "ours_ms": np.float32(0.5), "error": math.nan, "timings": {"cpu": np.arange(2.0)}},
        {"size": "large", "ours_ms": np.float64(12.25), "reached": np.bool_(False), "seed": settings.seed},
    ]


def test_record_holds_settings_versions_rows_and_raw_timings(tmp_path, capsys):
    path = tmp_path / "out.json"
    code = report.run("example", ABOUT, rows_of, argv=["--quick", "--seed", "3", "--json", str(path)])
    record = json.loads(path.read_text())
    assert code == 0
    assert record["name"] == "example"
    assert record["settings"] == {"quick": True, "seed": 3}
    assert record["seconds"] >= 0
    assert record["versions"]["jax"].count(".") >= 2
    assert record["rows"] == [
        {"size": "small", "ours_ms": 0.5, "error": None},
        {"size": "large", "ours_ms": 12.25, "reached": False, "seed": 3},
    ]
    assert record["raw"] == [{"timings": {"cpu": [0.0, 1.0]}}, {}]
    assert [entry.name for entry in tmp_path.iterdir()] == ["out.json"]
    printed = capsys.readouterr().out
    assert printed.startswith("A table of two rows.\n")
    assert "timings" not in printed


@pytest.mark.parametrize(
    ("rows", "code"), [([], 1), ([{"correct": False}], 1), ([{"correct": True}, {"reached": False}], 0)]
)
def test_only_a_wrong_answer_or_no_answer_fails(rows, code, capsys):
    assert report.run("example", ABOUT, lambda settings: rows, argv=[]) == code


def test_missing_folder_is_told_before_measuring(tmp_path, capsys):
    def measure(settings):
        raise AssertionError("measured although the record has no place to go")

    assert report.run("example", ABOUT, measure, argv=["--json", str(tmp_path / "absent" / "x.json")]) == 2
    assert "does not exist" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--figure", "absent/x.png"], "--figure: the folder .*absent does not exist: make it first"),
        (["--figure", "."], "--figure: .* is a folder: name a file in it"),
        (["--figure", "x.picture"], "--figure: '.picture' is not a figure format: use one of .*pdf, .*png"),
        (["--json", "."], "--json: .* is a folder: name a file in it"),
    ],
)
def test_a_place_for_no_file_is_told_before_measuring(tmp_path, monkeypatch, capsys, arguments, message):
    def measure(settings):
        raise AssertionError("measured although what is found has no place to go")

    monkeypatch.chdir(tmp_path)
    assert report.run("example", ABOUT, measure, figure=True, argv=arguments) == 2
    assert re.fullmatch(f"{message}.*\n", capsys.readouterr().err)
    assert not list(tmp_path.iterdir())


def test_a_figure_is_a_setting_that_the_record_leaves_out(tmp_path, capsys):
    seen = []
    picture, path = tmp_path / "x.png", tmp_path / "x.json"

    def measure(settings):
        seen.append(settings.figure)
        return rows_of(settings)

    arguments = ["--figure", str(picture), "--json", str(path)]
    assert report.run("example", ABOUT, measure, figure=True, argv=arguments) == 0
    assert seen == [picture] and "figure" not in json.loads(path.read_text())["settings"]
    for name, wanted in (("example", True), ("other", False)):
        with pytest.raises(SystemExit):
            report.run(name, ABOUT, measure, figure=wanted, argv=["--help"])
        assert ("--figure FILE" in capsys.readouterr().out) == wanted


@pytest.mark.parametrize(
    ("seed", "message"),
    [
        ("-1", "-1 is not between 0 and 2147483647"),
        ("2147483648", "2147483648 is not between 0"),
        ("one", "argument --seed: 'one' is not an integer"),
    ],
)
def test_a_seed_that_no_key_takes_is_refused(capsys, seed, message):
    with pytest.raises(SystemExit) as stop:
        report.run("example", ABOUT, rows_of, argv=["--seed", seed])
    assert stop.value.code == 2 and message in capsys.readouterr().err


def test_sizes_that_a_script_does_not_have_are_refused_with_the_list(capsys):
    with pytest.raises(SystemExit) as stop:
        report.run("example", ABOUT, rows_of, speed=True, sizes=("toy", "middle"), argv=["--size", "foo"])
    shown = capsys.readouterr().err
    assert stop.value.code == 2 and "'foo'" in shown and "toy" in shown and "middle" in shown


def test_failed_write_leaves_the_old_record(tmp_path):
    path = tmp_path / "out.json"
    path.write_text("old")
    with pytest.raises(ValueError):
        report.write_record(path, {"rows": [math.inf]})
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["out.json"]


def test_speed_arguments():
    arguments = ["--size", "small", "--dtype", "float32", "--rounds", "3"]
    settings = report.parse_settings("chain", "title", speed=True, argv=arguments)
    assert (settings.size, settings.dtype, settings.rounds) == ("small", "float32", 3)
    with pytest.raises(SystemExit):
        report.parse_settings("chain", "title", speed=True, argv=["--rounds", "0"])
    with pytest.raises(SystemExit):
        report.parse_settings("chain", "title", argv=["--rounds", "1"])


def test_a_package_that_is_absent_is_said_to_be():
    assert report.versions(["no-such-peer"])["no-such-peer"] == "not installed"
