"""Benchmark of first possible answers: rows of its quick form, answers that are possible."""

from __future__ import annotations

import argparse
import math

import pytest

from benchmarks.papers import mmap_feasible


def settings(**changes):
    return argparse.Namespace(**({"quick": True, "seed": 0, "json": None, "only": None} | changes))


@pytest.fixture
def small(monkeypatch):
    """Sizes below those of the quick form, without stored networks."""
    monkeypatch.delenv("ETHOGRAM_DATA", raising=False)
    recipes = [
        mmap_feasible.Recipe("grid", 5, None, 0.9, 0.2),
        mmap_feasible.Recipe("k-tree", 20, 3, 0.5, 0.2),
    ]
    monkeypatch.setattr(mmap_feasible, "SMALL", recipes)
    monkeypatch.setattr(mmap_feasible.gc, "collect", lambda: 0)  # of all that other tests have left


def test_rows_of_generated_networks_and_deadlines(small):
    rows = mmap_feasible.measure(settings())
    assert rows[0]["note"].startswith("skipped")
    generated = [row for row in rows if row["section"] == "generated"]
    assert [row["fraction"] for row in generated[:-1]] == ["0.5", "0.2"] * 2
    assert generated[0]["instance"] == "grid 5, 0.9 deterministic, 0.2 observed"
    assert all(row["target"] == 0.2 and -math.inf < row["log_probability"] <= 0 for row in generated[:-1])
    assert generated[-1]["first_s"] == max(row["first_s"] for row in generated[:-1])
    late = [row for row in rows if row["section"] == "deadlines"]
    assert [row["limit"] for row in late[:-1]] == [0.1, 0.1]
    assert all(row["reached"] == (row["late_s"] <= row["target"]) for row in late[:-1])


def test_networks_differ_by_seed_and_not_by_fraction(small):
    recipe = mmap_feasible.SMALL[0]
    half, fifth = (
        mmap_feasible._generated_query(recipe, fraction, 0) for fraction in mmap_feasible.FRACTIONS
    )
    assert half.network is fifth.network and half.observed == fifth.observed
    assert len(half.map_variables) > len(fifth.map_variables)
    other = mmap_feasible._network(recipe, 1)
    assert any((a != b).any() for a, b in zip(half.network.tables, other.tables, strict=True))
