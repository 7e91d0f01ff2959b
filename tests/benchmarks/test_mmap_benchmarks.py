"""Benchmarks of marginal MAP: stored peers and queries, relative scores, and the reference against the kernel."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import jax
import numpy as np
import pytest

from benchmarks.one_core import one_core
from benchmarks.papers import mmap_anytime
from benchmarks.papers import network_files as files
from benchmarks.speed import forward_marginals, forward_marginals_reference
from ethogram.inference.networks.forward_layout import lay_out
from ethogram.models.networks.bayes_net import BayesNet
from ethogram.models.networks.marginal_map import MarginalMAP

STORED = Path(os.environ.get("ETHOGRAM_DATA", "../shared/data"))
stored = pytest.mark.skipif(not (STORED / "bayes_nets").exists(), reason="stored networks are not here")


def settings(**changes):
    given = {"quick": True, "seed": 0, "json": None, "exact_only": False, "limit": None, "only": None, "size": None,
             "dtype": None, "rounds": 2}  # fmt: skip
    return argparse.Namespace(**(given | changes))


@pytest.fixture
def data(monkeypatch):
    """The stored networks, where they are."""
    monkeypatch.setenv("ETHOGRAM_DATA", str(STORED.resolve()))


def test_without_data_rows_say_so(monkeypatch):
    monkeypatch.delenv("ETHOGRAM_DATA", raising=False)
    assert "skipped" in mmap_anytime.measure(settings())[0]["note"]
    assert "skipped" in forward_marginals.measure(settings())[0]["note"]


@stored
def test_relative_scores_and_their_pool(data):
    place = {"instance": "50-12-5", "fraction": "0.5", "set": 0, "kind": "exact"}
    rows = [place | {"method": "a", "log_probability": value} for value in (-10.0, -12.5, None)]
    rows.append(place | {"method": "b", "log_probability": -5.0, "raw": False})
    mmap_anytime.relate(rows)
    assert [row["relative_score"] for row in rows[:3]] == [0.0, pytest.approx(0.2), 1.0]
    assert [row["nats_to_best"] for row in rows[:3]] == [0.0, 2.5, None]
    assert "raw" in rows[0]["pool"]


@stored
def test_peers_and_queries_are_read(data):
    assert len(files.queries()) == 102
    assert len(files.peers()) == 21
    assert (len(files.optima()), len(files.proofs())) == (356, 17)
    assert len(files.restricted_mpe()) == 102
    rows = files.peers()[files.StoredQuery("50-12-5", "0.5", 0)]
    java = [row for row in rows if row["method"] == "authors-ags" and row["seconds"] == 10]
    assert java[0]["log_probability"] == pytest.approx(-17.225, abs=1e-3)


@pytest.mark.slow
def test_the_reference_has_the_kernels_values():
    random, side = np.random.default_rng(0), 5
    tables, parents = [], []
    for i in range(side * side):
        above = tuple(j for j, there in ((i - side, i >= side), (i - 1, i % side > 0)) if there)
        tables.append(random.dirichlet(np.ones(2), (2,) * len(above)))
        parents.append(above)
    network = BayesNet(tuple(tables), tuple(parents))
    query = MarginalMAP(network, {side * side - 1: 1}, list(range(0, side * side - 1, 2)))
    layout, shapes = lay_out(query)
    assert len(shapes) == 1
    with jax.enable_x64(True):
        weights = random.random((*layout.prior_rows.shape, 7)) * layout.valid_states[..., None]
        levels = forward_marginals_reference.by_levels(layout)
        value, gradient = forward_marginals.kernel(layout, shapes, weights)
        other, slope = jax.jit(forward_marginals_reference.value_and_gradient)(levels, weights[:, 0])
        np.testing.assert_allclose(value, other, rtol=1e-12)
        valid = np.asarray(layout.valid_variables)
        np.testing.assert_allclose(np.asarray(gradient)[valid, 0], np.asarray(slope)[valid], rtol=1e-10)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="no such call on this system")
def test_on_one_core_and_back():
    before = os.sched_getaffinity(0)
    with one_core():
        assert os.sched_getaffinity(0) == {max(before)}
    assert os.sched_getaffinity(0) == before
