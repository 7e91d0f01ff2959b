"""What the parts of a search share: elimination orders, and the schedule."""

from __future__ import annotations

import jax
import numpy as np

from ethogram.inference.networks import anytime, bucket_tree, elimination
from ethogram.inference.networks.solve_mmap import solve_mmap
from ethogram.models.networks.bayes_net import BayesNet
from ethogram.models.networks.marginal_map import MarginalMAP


def test_a_query_is_ordered_at_most_three_times(monkeypatch):
    """With sums before maxima, all alike, and hidden variables alone: all parts of the search share them."""
    random, side = np.random.default_rng(0), 20
    families = [
        tuple(j for j, there in ((i - side, i >= side), (i - 1, i % side > 0)) if there)
        for i in range(side * side)
    ]
    tables = [random.dirichlet(np.full(2, 0.3), (2,) * len(parents)) for parents in families]
    query = MarginalMAP(BayesNet(tuple(tables), tuple(families)), {399: 1}, list(range(0, 399, 2)))
    whole, order = [], elimination.elimination_order

    def counted(scopes, sizes, stages, *limits):
        scopes = list(scopes)
        if len({v for scope in scopes for v in scope}) > 150:  # not the part of a neighbourhood
            whole.append(stages)
        return order(scopes, sizes, stages, *limits)

    for module in (elimination, bucket_tree):
        monkeypatch.setattr(module, "elimination_order", counted)
    found = solve_mmap(jax.random.key(0), query, time_limit=None, max_steps=20)
    assert found.kind == "exact" and found.upper_bound < 0 and not found.proved_optimal
    assert 1 <= len(whole) <= 3


def test_tuned_numbers_have_units_or_are_shares():
    """A share is in (0, 1); all others say what they count."""
    units = (
        "seconds",
        "cells",
        "variables",
        "nats",
        "conflicts",
        "rounds",
        "passes",
        "bytes",
        "per_second",
        "per_cell",
    )
    for name, value in anytime.SCHEDULE._asdict().items():
        if name.endswith("share"):
            assert 0 < value < 1, name
        else:
            assert any(unit in name for unit in units) and np.all(np.array(value) > 0), name
