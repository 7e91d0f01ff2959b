"""Benchmark of bounds and proofs: its random queries against enumeration, and rows of small sections."""

from __future__ import annotations

import argparse
import json

import pytest

from benchmarks.papers import mmap_bounds, mmap_fuzz


def settings(**changes):
    return argparse.Namespace(**({"quick": True, "seed": 0, "json": None, "only": None} | changes))


@pytest.mark.parametrize("first", range(0, 300, 100))
def test_random_queries_have_no_false_bound_or_proof(first):
    verdicts = [mmap_fuzz.judge(seed) for seed in range(first, first + 100)]
    assert not [verdict for verdict in verdicts if verdict.faults]
    assert all(verdict.closed for verdict in verdicts)
    assert sum(verdict.steps > 0 for verdict in verdicts) > 80


def test_false_proofs_would_be_seen(monkeypatch):
    log_table = mmap_fuzz.log_table
    monkeypatch.setattr(mmap_fuzz, "log_table", lambda query: log_table(query) + 1e-3)
    assert any(mmap_fuzz.judge(seed).faults for seed in range(3))


def test_sections_of_a_record_stay_in_it(tmp_path, monkeypatch):
    monkeypatch.setattr(mmap_bounds, "QUICK_QUESTIONS", 5)
    monkeypatch.delenv("ETHOGRAM_DATA", raising=False)
    path = tmp_path / "record.json"
    path.write_text(json.dumps({"rows": [{"section": "fuzz", "value": 9}, {"section": "mpe", "value": 1}]}))
    rows = mmap_bounds.measure(settings(only="fuzz,gaps", json=path))
    assert [row["section"] for row in rows] == ["mpe", "fuzz", "gaps"]
    assert rows[1]["reached"] and rows[1]["correct"]
    assert rows[2]["note"].startswith("skipped")
