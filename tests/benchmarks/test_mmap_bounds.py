"""Benchmark of bounds and proofs: its random queries against enumeration, and rows of small sections."""

from __future__ import annotations

import argparse
import json

import jax
import pytest

from benchmarks.papers import mmap_bounds, mmap_fuzz
from ethogram.inference.networks.solve_mmap import solve_mmap


def settings(**changes):
    return argparse.Namespace(**({"quick": True, "seed": 0, "json": None, "only": None} | changes))


@pytest.mark.parametrize("first", [0, *(pytest.param(i, marks=pytest.mark.slow) for i in (75,))])
def test_random_queries_have_no_false_bound_or_proof(first):
    verdicts = [mmap_fuzz.judge(seed) for seed in range(first, first + 15)]
    assert not [verdict for verdict in verdicts if verdict.faults]
    assert all(verdict.closed for verdict in verdicts)
    assert sum(verdict.steps > 0 for verdict in verdicts) > 9


@pytest.mark.parametrize("seed", [9, *(pytest.param(i, marks=pytest.mark.slow) for i in (12, 269))])
def test_estimates_lie_between_certified_bounds(seed):
    query = mmap_fuzz.draw_query(seed)
    table = mmap_fuzz.log_table(query)
    found = solve_mmap(
        jax.random.key(seed), query, time_limit=60.0, max_steps=4, most_cells=(1, 2, 4)[seed % 4]
    )
    own = table[tuple(found.states)]
    assert found.kind == "estimate"
    assert found.lower_bound <= found.log_probability <= found.upper_bound
    assert found.lower_bound <= own + 1e-9 and table.max() <= found.upper_bound + 1e-9
    assert not found.proved_optimal or own >= table.max() - 1e-9


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
