"""The benchmark of planning goes on from its record; its rows of returns against NumPy."""

from __future__ import annotations

import argparse
import json
from functools import partial

import numpy as np
import pytest

from benchmarks.papers import planning

pytest.importorskip("pyRDDLGym")
pytest.importorskip("rddlrepository")


def test_rows_of_a_record_are_not_measured_again(tmp_path, monkeypatch):
    measured = []

    def task(name):
        measured.append(name)
        return {"kind": "time", "domain": name, "instance": 1}

    names = ["a", "b"]
    monkeypatch.setattr(
        planning, "_tasks", lambda quick, seed: [(("time", n, 1, None), partial(task, n)) for n in names]
    )
    settings = argparse.Namespace(quick=True, seed=0, json=tmp_path / "record.json")
    assert [row["domain"] for row in planning.measure(settings)] == ["a", "b"]
    names.append("c")
    assert [row["domain"] for row in planning.measure(settings)] == ["a", "b", "c"]
    assert measured == ["a", "b", "c"]
    assert len(json.loads(settings.json.read_text())["rows"]) == 3


def test_returns_have_their_standard_error():
    row = planning._row_of_returns("name", 1, "policy", np.array([1.0, 3.0, 8.0]), 2.0)
    assert row["mean"] == 4 and row["se"] == pytest.approx(np.std([1, 3, 8], ddof=1) / np.sqrt(3))
    assert planning._row_of_returns("name", 1, "policy", np.array([1.0]), 2.0)["se"] is None


def test_every_task_of_the_full_form_has_a_name_of_its_own():
    names = [name for name, _ in planning._tasks(False, 0)]
    assert len(set(names)) == len(names)
    assert ("returns", "SysAdmin_MDP_ippc2011", 10, "SOGBOFA") in names
    assert sum(name[0] == "legal" for name in names) >= 17
