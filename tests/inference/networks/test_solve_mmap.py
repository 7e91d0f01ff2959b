"""Every method against enumeration; time limits, interruptions, other names, and what is refused."""

from __future__ import annotations

import itertools
import json
import math
import os
import sys
import threading
import warnings
from pathlib import Path

import jax
import numpy as np
import pytest

import ethogram
from ethogram.inference.export import to_arviz
from ethogram.inference.networks import (
    anytime,
    elimination,
    hybrid,
    methods,
    zero_propagation,
)
from ethogram.inference.networks.ags import Vertices
from ethogram.inference.networks.anytime import Clock, Incumbent, until
from ethogram.inference.networks.certified_answers import CertifiedAnswers
from ethogram.inference.networks.elimination import WidthError, exact_log_probability
from ethogram.inference.networks.exact_queries import best_assignments, single_flips, variable_posteriors
from ethogram.inference.networks.solve_mmap import (
    METHODS,
    ImpossibleEvidenceError,
    MarginalMAPResult,
    solve_mmap,
)
from ethogram.models.networks import named
from ethogram.models.networks.bayes_net import BayesNet
from ethogram.models.networks.marginal_map import MarginalMAP
from ethogram.models.networks.read_network import read_network

STORED = Path(os.environ.get("ETHOGRAM_DATA", "../shared/data")) / "bayes_nets"
stored = pytest.mark.skipif(not STORED.exists(), reason="stored networks are not here: set ETHOGRAM_DATA")


def every(query):
    return itertools.product(*(range(query.network.sizes[v]) for v in query.map_variables))


def wide(side=10, seed=0, share=0.5):
    """A square of variables too wide for a quick constrained elimination, and a query of it."""
    random = np.random.default_rng(seed)
    tables, parents = [], []
    for i in range(side * side):
        above = tuple(j for j, there in ((i - side, i >= side), (i - 1, i % side > 0)) if there)
        tables.append(random.dirichlet(np.full(2, 0.5), (2,) * len(above)))
        parents.append(above)
    maximised = np.sort(random.permutation(side * side - 1)[: int(share * side * side)]).tolist()
    return MarginalMAP(BayesNet(tuple(tables), tuple(parents)), {side * side - 1: 1}, maximised)


@pytest.mark.parametrize("seed", [*range(5), pytest.param(5, marks=pytest.mark.slow)])
def test_methods_on_small_networks(seed, drawn, enumerated):
    network, query = drawn(seed)
    table = enumerated(network, query)
    if not table.any():
        return
    for method in METHODS:
        if method == "ags" and seed != 5:
            continue  # each network compiles its own ascent
        found = solve_mmap(jax.random.key(seed), query, method, time_limit=None, max_steps=20)
        value = table[tuple(found.states)]
        assert found.kind == "exact"
        assert found.method == method
        assert found.log_probability == (pytest.approx(math.log(value), rel=1e-10) if value else -math.inf)
        assert found.upper_bound >= math.log(table.max()) - 1e-9
        assert found.assignment == {
            network.names[v]: s for v, s in zip(query.map_variables, found.states, strict=True)
        }
        if method in ("hybrid", "exact"):
            assert found.proved_optimal
            assert value == pytest.approx(table.max(), rel=1e-10)


def test_hybrid_searches_where_elimination_is_too_wide():
    query = wide(6)
    found = solve_mmap(jax.random.key(0), query, max_steps=30, time_limit=None, most_cells=2**6)
    others = [
        solve_mmap(jax.random.key(0), query, m, time_limit=None, max_steps=20)
        for m in ("mpe", "sequential", "marginal")
    ]
    assert found.log_probability >= max(other.log_probability for other in others) - 1e-9
    assert found.log_probability == pytest.approx(exact_log_probability(query, found.states), rel=1e-10)
    values = [point.log_probability for point in found.trace]
    assert values == sorted(values)
    times = [point.wall_s for point in found.trace]
    assert times == sorted(times)
    assert found.trace[0].source == "an ancestral sample"
    assert found.upper_bound <= 0  # a probability
    assert found.log_probability <= found.upper_bound + 1e-9


def test_large_networks_have_an_answer_before_anything_is_planned(monkeypatch):
    query, planned, heard = wide(7), [], []
    plan = hybrid.plan_elimination

    def spy(*arguments):
        planned.append(list(heard))
        return plan(*arguments)

    monkeypatch.setattr(hybrid, "SCHEDULE", hybrid.SCHEDULE._replace(large_network_variables=0))
    monkeypatch.setattr(hybrid, "plan_elimination", spy)
    found = solve_mmap(
        jax.random.key(0), query, max_steps=5, time_limit=None, most_cells=2**7, callback=heard.append
    )
    first = found.trace[0]
    assert planned[0] == [first] and first.kind == "estimate"  # a lower bound
    for point in found.trace:
        truth = exact_log_probability(query, point.states)
        assert truth >= point.log_probability - 1e-9
        assert point.kind == "estimate" or truth == pytest.approx(point.log_probability, rel=1e-10)
    values = [point.log_probability for point in found.trace]
    assert values == sorted(values)
    assert found.kind == "exact"


@pytest.fixture
def ticking(monkeypatch):
    """A clock that goes on by a hundredth of a second whenever it is read."""
    now = [0.0]

    def tick():
        now[0] += 0.01
        return now[0]

    monkeypatch.setattr(anytime.time, "monotonic", tick)
    monkeypatch.setattr(anytime.time, "process_time", tick)
    return now


@pytest.mark.parametrize("clock", ["wall", "cpu"])
def test_a_search_ends_at_its_time_limit(ticking, clock):
    found = solve_mmap(jax.random.key(0), wide(), time_limit=2.0, clock=clock)
    assert 2.0 <= found.seconds < 2.5  # a few dozen readings after the limit, at most
    assert found.log_probability > -math.inf
    assert not found.proved_optimal


def test_an_ascent_is_stopped_at_its_time_limit(ticking, monkeypatch, drawn):
    query, heard = drawn(0)[1], []
    states = np.zeros((1, len(query.map_variables)), int)

    def ascent(key, query, *, stop, **settings):
        for step in range(10, 10_000, 10):
            heard.append(step)
            if stop(Vertices(states, np.zeros(1), step, 0)):
                return

    monkeypatch.setattr(methods, "ascend", ascent)
    found = solve_mmap(jax.random.key(0), query, "ags", time_limit=1.0)
    assert 10 <= len(heard) < 110
    np.testing.assert_array_equal(found.states, states[0])


def test_an_interrupted_ascent_ends_and_leaves_its_answer(monkeypatch, drawn):
    query, begun, threads = drawn(0)[1], threading.Event(), []
    states = np.zeros((1, len(query.map_variables)), int)

    def ascent(key, query, *, stop, **settings):
        while not stop(Vertices(states, np.zeros(1), 10, 0)):
            begun.set()

    def interrupted(work, clock):
        threads.append(threading.Thread(target=work))
        threads[0].start()
        begun.wait(60)
        raise KeyboardInterrupt

    monkeypatch.setattr(methods, "ascend", ascent)
    monkeypatch.setattr(methods, "until", interrupted)
    found = solve_mmap(jax.random.key(0), query, "ags", time_limit=10.0)
    np.testing.assert_array_equal(found.states, states[0])
    threads[0].join(5)
    assert not threads[0].is_alive()


def test_work_that_does_not_end_in_time_is_left_behind(ticking):
    release, ended = threading.Event(), threading.Event()

    def work():
        release.wait(60)
        ended.set()

    until(work, Clock(0.5))
    assert not ended.is_set()
    release.set()
    with pytest.raises(ZeroDivisionError):
        until(lambda: 1 / 0, Clock(1000.0))


def test_callback_hears_of_every_better_answer_in_order():
    heard = []
    settings = {"time_limit": None, "max_steps": 20, "most_cells": 2**7}
    found = solve_mmap(jax.random.key(0), wide(7), callback=heard.append, **settings)
    assert len(heard) > 1
    assert [point.log_probability for point in heard] == [point.log_probability for point in found.trace]
    np.testing.assert_array_equal(heard[-1].states, found.states)


def test_interrupted_it_returns_the_best_so_far():
    first = [math.inf]

    def begin(point):
        first[0] = point.log_probability
        raise KeyboardInterrupt

    found = solve_mmap(jax.random.key(1), wide(), time_limit=60.0, callback=begin)
    assert found.log_probability == first[0]
    assert len(found.trace) == 1


def test_same_key_and_number_of_steps_give_the_same_answer():
    query = wide(7)
    runs = [
        solve_mmap(jax.random.key(5), query, time_limit=None, max_steps=10, most_cells=2**7) for _ in range(2)
    ]
    np.testing.assert_array_equal(runs[0].states, runs[1].states)
    assert runs[0].log_probability == runs[1].log_probability


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_other_names_and_another_order_change_no_score(seed):
    query = wide(6, seed)
    network, random = query.network, np.random.default_rng(seed)
    order = random.permutation(network.num_variables)
    place = np.argsort(order)
    tables = tuple(network.tables[i] for i in order)
    parents = tuple(tuple(int(place[p]) for p in network.parents[i]) for i in order)
    names = tuple(f"someone{i}" for i in random.permutation(network.num_variables))
    other = BayesNet(tables, parents, names)
    evidence = {int(place[v]): s for v, s in query.observed}
    maximised = [int(place[v]) for v in query.map_variables]
    first, second = (
        solve_mmap(jax.random.key(0), q, time_limit=20.0, max_steps=400)
        for q in (query, MarginalMAP(other, evidence, maximised))
    )
    assert first.log_probability == pytest.approx(second.log_probability, rel=1e-9)


def test_soft_evidence_and_posteriors(drawn, enumerated):
    network, query = drawn(5)
    table = enumerated(network, query)
    found = variable_posteriors(query)
    assert found.kind == "exact"
    for axis, variable in enumerate(query.map_variables):
        truth = table.sum(tuple(i for i in range(3) if i != axis)) / table.sum()
        np.testing.assert_allclose(found.probabilities[network.names[variable]], truth, atol=1e-12)
    assert variable_posteriors(query, most_cells=1).kind == "estimate"


@pytest.mark.parametrize("seed", range(5))
def test_best_answers_in_order(seed, drawn, enumerated):
    network, query = drawn(seed)
    table = enumerated(network, query)
    wanted = np.sort(table[table > 0])[::-1][:7]
    found = best_assignments(query, 7)
    np.testing.assert_allclose([math.exp(each.log_probability) for each in found], wanted, rtol=1e-10)
    assert len({tuple(each.states) for each in found}) == len(wanted)
    for each in found:
        assert table[tuple(each.states)] == pytest.approx(math.exp(each.log_probability), rel=1e-10)
        assert each.gap == pytest.approx(found[0].log_probability - each.log_probability)


def test_single_flips_are_answers_probabilities(drawn):
    query = drawn(8)[1]
    states = [int(s) for s in solve_mmap(jax.random.key(0), query).states]
    for axis, (name, values) in enumerate(single_flips(query, states).items()):
        assert name == query.network.names[query.map_variables[axis]]
        for state, value in enumerate(values):
            flipped = [state if i == axis else s for i, s in enumerate(states)]
            truth = exact_log_probability(query, flipped)
            assert value == (truth if truth == -math.inf else pytest.approx(truth, rel=1e-10))


def test_impossible_evidence_names_what_cannot_be_together():
    names = ("switch", "lamp", "day", "noise")
    tables = (np.array([0.5, 0.5]), np.eye(2), np.array([0.5, 0.5]), np.array([0.2, 0.8]))
    network = BayesNet(tables, ((), (0,), (), ()), names=names, state_names=(("off", "on"),) * 4)
    query = MarginalMAP(network, {"switch": "off", "lamp": "on", "noise": "on"}, ["day"])
    with pytest.raises(ImpossibleEvidenceError, match="switch = off, lamp = on contradict each other"):
        solve_mmap(jax.random.key(0), query)


def test_too_wide_for_the_exact_method_is_an_error_before_any_table_is_made(monkeypatch):
    monkeypatch.setattr(elimination, "reduced", None)
    with pytest.raises(WidthError, match="bytes"):
        solve_mmap(jax.random.key(0), wide(20), "exact", most_cells=2**16)


def test_estimates_are_called_so_where_not_even_an_answer_can_be_scored():
    query = wide(6, share=0.05)
    found = solve_mmap(jax.random.key(0), query, time_limit=None, max_steps=1, most_cells=2**4)
    assert found.kind == "estimate"
    assert not found.proved_optimal
    truth = exact_log_probability(query, found.states)
    assert found.log_probability == pytest.approx(truth, abs=1.5)
    assert found.lower_bound <= truth + 1e-9
    assert found.lower_bound <= found.log_probability <= found.upper_bound
    assert truth <= found.upper_bound + 1e-9


BASELINES = ("mpe", "sequential", "marginal", "mpbp", "mpbp-cavity")


@pytest.mark.parametrize("seed", [pytest.param(seed, marks=pytest.mark.slow) for seed in (2, 6)])
def test_estimates_are_no_worse_than_those_of_the_baselines(seed):
    """By exact sums, which none of them could afford."""
    query, limits = wide(9, seed, share=0.1), {"time_limit": None, "most_cells": 2**4}
    found = solve_mmap(jax.random.key(0), query, max_steps=1, **limits)
    truth = exact_log_probability(query, found.states)
    others = [solve_mmap(jax.random.key(0), query, method, max_steps=20, **limits) for method in BASELINES]
    assert found.kind == "estimate"
    assert truth >= max(exact_log_probability(query, each.states) for each in others) - 1e-9
    assert found.lower_bound - 1e-9 <= truth <= found.upper_bound + 1e-9


def test_cheap_candidates_come_first_where_there_are_estimates(monkeypatch):
    sources, offer = [], CertifiedAnswers.offer

    def spy(self, states, source):
        sources.append(source)
        offer(self, states, source)

    monkeypatch.setattr(CertifiedAnswers, "offer", spy)
    solve_mmap(jax.random.key(0), wide(5, share=0.1), time_limit=None, max_steps=1, most_cells=2**3)
    cheap = ("an ancestral sample", "posterior marginals", "sequential modes", "a searched MPE")
    order = [sources.index(each) for each in cheap]
    assert order == sorted(order)
    assert max(order) < sources.index("mixed-product belief propagation")


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"method": "magic"}, ValueError, "method must be 'hybrid', .* not 'magic'"),
        ({"time_limit": 0.0}, ValueError, "time_limit must be greater than 0, not 0"),
        ({"time_limit": math.nan}, ValueError, "time_limit must be greater than 0, not nan"),
        ({"time_limit": "5"}, TypeError, "time_limit must be a real number, not '5'"),
        ({"time_limit": True}, TypeError, "time_limit must be a real number, not True"),
        ({"max_steps": True}, TypeError, "max_steps must be an integer, not True"),
        ({"callback": 3}, TypeError, "callback must be callable, not int"),
        ({"smoothed_score": "yes"}, TypeError, "smoothed_score must be True or False, not 'yes'"),
        ({"time_limit": None}, ValueError, "never ends by itself"),
        ({"max_steps": 0}, ValueError, "max_steps must be at least 1"),
        ({"most_cells": 0}, ValueError, "most_cells must be at least 1"),
        ({"clock": "sun"}, ValueError, "clock must be 'wall' or 'cpu', not 'sun'"),
    ],
)
def test_settings_that_do_not_fit(settings, error, message, drawn):
    with pytest.raises(error, match=message):
        solve_mmap(jax.random.key(0), drawn(0)[1], **settings)


def test_queries_that_do_not_fit(drawn):
    query = drawn(0)[1]
    with pytest.raises(ValueError, match="count must be at least 1"):
        best_assignments(query, 0)
    with pytest.raises(ValueError, match="states has 1 states for 3 MAP variables"):
        single_flips(query, [0])
    with pytest.raises(TypeError, match="key must be one typed key"):
        solve_mmap(jax.random.key_data(jax.random.key(0)), query)
    assert ethogram.solve_mmap is solve_mmap


@stored
@pytest.mark.parametrize(
    ("name", "fraction", "best"),
    [
        ("promedas_or_chain_42", "0.3", -9.65621),
        pytest.param("mastermind_03_08_03-0001", "0.5", -28.9694, marks=pytest.mark.slow),
    ],
)
def test_stored_queries_whose_optima_are_known(name, fraction, best):
    maximised = json.loads((STORED / "queries.json").read_text())["instances"][name]["sets"][fraction][0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        network = read_network(STORED / "uai" / f"{name}.uai")
    query = MarginalMAP(network, named.read_evidence(STORED / "evid" / f"{name}.evid", network), maximised)

    def enough(point):
        if point.log_probability >= best - 2e-5 * abs(best):
            raise KeyboardInterrupt

    found = solve_mmap(jax.random.key(0), query, time_limit=60.0, callback=enough)
    assert found.log_probability == pytest.approx(best, rel=2e-5)


def test_estimates_give_way_to_finite_answers_alone():
    network = BayesNet((np.array([0.5, 0.5]),), ((),))
    best = Incumbent(MarginalMAP(network, {}, [0]), Clock(None))
    assert best.offer([0], -math.inf, "exact")
    assert best.offer([1], -9.0, "estimate")
    assert not best.offer([0], -math.inf, "exact")
    assert (best.kind, best.log_probability) == ("estimate", -9.0)
    assert best.offer([0], -12.0, "exact")
    assert not best.offer([1], -3.0, "estimate")
    assert [point.log_probability for point in best.trace] == [-9.0, -12.0]


def test_a_certificate_does_not_outlive_the_assignment_that_it_is_of():
    def interrupt(point):
        if point.kind == "exact":
            raise KeyboardInterrupt

    network = BayesNet((np.array([0.5, 0.5]),), ((),))
    best = Incumbent(MarginalMAP(network, {}, [0]), Clock(None), interrupt)
    best.replace([0], -9.0, "estimate", "a sample", -9.0)
    with pytest.raises(KeyboardInterrupt):
        best.offer([1], -12.0, "exact")
    assert best.lower_bound == best.log_probability == -12.0


def test_impossible_evidence_that_propagation_misses_is_an_error_too():
    coin, differ = np.array([0.5, 0.5]), np.array([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]]])
    network = BayesNet((coin,) * 3 + (differ,) * 3 + (coin,), ((), (), (), (0, 1), (1, 2), (0, 2), ()))
    query = MarginalMAP(network, {3: 1, 4: 1, 5: 1}, [6])
    for method in ("hybrid", "exact", "mpe"):
        with pytest.raises(ImpossibleEvidenceError, match="evidence has probability zero"):
            solve_mmap(jax.random.key(0), query, method)
    assert not any(each.any() for each in variable_posteriors(query).probabilities.values())
    single = BayesNet((np.array([1.0, 0.0]), coin), ((), ()))
    assert not variable_posteriors(MarginalMAP(single, {0: 1}, [1])).probabilities["x1"].any()


@pytest.mark.parametrize(
    "methods", [{*METHODS} - {"ags"}, pytest.param({"ags"}, marks=pytest.mark.slow)], ids=len
)
def test_variables_of_one_state_and_of_many_beside_each_other(methods):
    random = np.random.default_rng(0)
    tables = (
        np.array([1.0]),
        random.dirichlet(np.ones(5), 1),
        random.dirichlet(np.ones(2), (1, 5)),
        np.array([1.0]),
    )
    network = BayesNet(tables, ((), (0,), (0, 1), ()))
    for query in (
        MarginalMAP(network, {2: 1, 0: [2.0]}, [1, 3]),
        MarginalMAP(network, {2: 1}, [0]),
        MarginalMAP(network, {2: 1, 0: 0}, [3, 1]),
    ):
        values = {each: exact_log_probability(query, each) for each in every(query)}
        first = query.map_variables == (1, 3)
        for method in methods:
            if method == "ags" and not first:
                continue  # each query compiles its own ascent
            found = solve_mmap(jax.random.key(0), query, method, time_limit=None, max_steps=20)
            assert found.log_probability == pytest.approx(values[tuple(found.states)], rel=1e-10)


@pytest.mark.parametrize("method", ["hybrid", "exact", "mpe", "marginal"])
def test_zeros_of_a_query_are_propagated_once(monkeypatch, drawn, method):
    query, seen = drawn(0)[1], []
    factors = zero_propagation.query_factors(query)
    whole = [scope for scope, _ in factors]
    propagate = zero_propagation.propagate_zeros

    def counting(factors):
        seen.append([scope for scope, _ in factors] == whole)
        return propagate(factors)

    for name, module in sys.modules.items():
        if name.startswith("ethogram.inference.networks.") and hasattr(module, "propagate_zeros"):
            monkeypatch.setattr(module, "propagate_zeros", counting)
    solve_mmap(jax.random.key(0), query, method)
    assert sum(seen) == 1


def test_an_answer_has_no_draws_to_export():
    answer = MarginalMAPResult(
        {"x": 0}, np.zeros(1, np.int32), -1.0, "exact", None, -1.0, True, "exact", 0.0, ()
    )
    with pytest.raises(TypeError, match=r"result is a MarginalMAPResult.* read \.assignment"):
        to_arviz(answer)
