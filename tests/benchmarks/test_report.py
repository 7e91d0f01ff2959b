"""The record and the table of a benchmark, and the exit code they lead to."""

from __future__ import annotations

import argparse
import json
import math

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


def test_table_is_aligned_and_shows_missing_and_failed_cells():
    table = report.format_table(
        [{"name": "a", "value": 1.0, "reached": False}, {"name": "longer", "value": 12.34567, "more": "x"}]
    )
    assert table.splitlines() == [
        "name    value  reached  more",
        "a           1  NO       -",
        "longer  12.35  -        x",
    ]


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
