"""What the parts of a search share: elimination orders, the schedule, and what is impossible."""

from __future__ import annotations

import signal
import threading

import jax
import numpy as np
import pytest

from ethogram.inference.networks import anytime, bucket_tree, elimination, explanations, hybrid
from ethogram.inference.networks.solve_mmap import solve_mmap
from ethogram.inference.networks.zero_propagation import propagate_zeros, query_factors
from ethogram.models.networks.bayes_net import BayesNet
from ethogram.models.networks.marginal_map import MarginalMAP


def square(side, step=2, constant=0.0):
    """A query of a square of variables, of which every so many are maximised."""
    random = np.random.default_rng(0)
    families = [
        tuple(j for j, there in ((i - side, i >= side), (i - 1, i % side > 0)) if there)
        for i in range(side * side)
    ]
    tables = [random.dirichlet(np.full(2, 0.3), (2,) * len(parents)) for parents in families]
    network = BayesNet(tuple(tables), tuple(families), log_constant=constant)
    return MarginalMAP(network, {side * side - 1: 1}, list(range(0, side * side - 1, step)))


def test_a_query_is_ordered_at_most_three_times(monkeypatch):
    """With sums before maxima, all alike, and hidden variables alone: all parts of the search share them."""
    whole, order = [], elimination.elimination_order

    def counted(scopes, sizes, stages, *limits):
        scopes = list(scopes)
        if len({v for scope in scopes for v in scope}) > 150:  # not the part of a neighbourhood
            whole.append(stages)
        return order(scopes, sizes, stages, *limits)

    for module in (elimination, bucket_tree):
        monkeypatch.setattr(module, "elimination_order", counted)
    found = solve_mmap(jax.random.key(0), square(20), time_limit=None, max_steps=20)
    assert found.kind == "exact" and found.upper_bound < 0 and not found.proved_optimal
    assert 1 <= len(whole) <= 3


def test_what_an_interrupt_leaves_behind_is_waited_for():
    """A compilation goes on in its thread, and a process that does not wait for it crashes at its end."""
    release, before = threading.Event(), signal.signal(signal.SIGINT, signal.default_int_handler)

    def compile_long():
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        release.wait(60)

    known = set(threading.enumerate())
    try:
        with pytest.raises(KeyboardInterrupt):
            anytime.until(compile_long, anytime.Clock(60.0))
        (left,) = set(threading.enumerate()) - known
        assert left.is_alive() and not left.daemon
    finally:
        release.set()
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(
    ("method", "side", "step", "schedule", "source"),
    [
        ("hybrid", 6, 2, {}, "elimination"),
        ("hybrid", 8, 2, {"cells_per_second": 2e4, "immediate_cells": 1}, "neighbourhood search"),
        pytest.param(
            *("hybrid", 5, 3, {"cells_per_second": 1.0, "immediate_cells": 1}, ""), marks=pytest.mark.slow
        ),
        ("mpe", 6, 1, {"mpe_cells_per_second": 1e-9, "negligible_cells": 1}, "MPE"),
    ],
    ids=["elimination", "search", "estimates", "explanation"],
)
def test_the_constant_of_a_network_moves_every_value_and_bound(
    method, side, step, schedule, source, monkeypatch
):
    """A bound that lacks a positive constant is below the optimum, and proves what is not optimal."""
    for module in (hybrid, explanations):
        monkeypatch.setattr(module, "SCHEDULE", module.SCHEDULE._replace(**schedule))
    plain, moved = (
        solve_mmap(jax.random.key(0), square(side, step, constant), method, time_limit=None, max_steps=1)
        for constant in (0.0, 30.0)
    )
    assert plain.trace[-1].source.startswith(source) and np.isfinite(plain.upper_bound)
    for name in ("log_probability", "lower_bound", "upper_bound"):
        assert getattr(moved, name) - 30 == pytest.approx(getattr(plain, name), abs=1e-9), name
    values = [point.log_probability - 30 for point in moved.trace]
    assert values == pytest.approx([point.log_probability for point in plain.trace], abs=1e-9)
    assert (moved.kind, moved.proved_optimal) == (plain.kind, plain.proved_optimal)


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


def test_an_answer_that_only_elimination_shows_to_be_impossible_has_no_completion():
    """Two bits that differ from a third, and from each other where a switch, the answer, says so."""
    coin, differ = np.array([0.5, 0.5]), np.array([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]]])
    switched = np.stack([np.broadcast_to([0.0, 1.0], (2, 2, 2)), differ], -2)  # (bit, bit, switch, seen)
    network = BayesNet((coin,) * 4 + (differ, differ, switched), ((),) * 4 + ((0, 1), (1, 2), (0, 2, 3)))
    query = MarginalMAP(network, {4: 1, 5: 1, 6: 1}, [3])
    possible = propagate_zeros(query_factors(query))
    task = anytime.Task(
        jax.random.key(0), query, possible, anytime.Incumbent(query, anytime.Clock(None)), None, 2**25
    )
    off, on = (
        explanations.complete(np.random.default_rng(0), task, [state], lambda: False) for state in (0, 1)
    )
    assert set(off) == {0, 1, 2, 3} and off[0] == off[2] != off[1]
    assert on is None
