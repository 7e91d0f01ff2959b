"""Exact answers against enumeration of small random networks, and against stored optima; widths that are too large."""

from __future__ import annotations

import itertools
import json
import math
import os
import warnings
from pathlib import Path

import numpy as np
import pytest

from ethogram.inference.networks.elimination import (
    WidthError,
    elimination_order,
    exact_log_probability,
    exact_map,
)
from ethogram.inference.networks.exact_queries import variable_posteriors
from ethogram.inference.networks.products import reduced
from ethogram.inference.networks.zero_propagation import (
    Factor,
    minimal_conflict,
    propagate_zeros,
    query_factors,
    supported,
)
from ethogram.models.networks import named
from ethogram.models.networks.bayes_net import BayesNet
from ethogram.models.networks.marginal_map import MarginalMAP
from ethogram.models.networks.read_network import read_network

STORED = Path(os.environ.get("ETHOGRAM_DATA", "../shared/data")) / "bayes_nets"
stored = pytest.mark.skipif(not STORED.exists(), reason="stored networks are not here: set ETHOGRAM_DATA")


@pytest.mark.parametrize(
    "seed", [*range(8), *(pytest.param(i, marks=pytest.mark.slow) for i in range(8, 12))]
)
def test_small_networks_by_enumeration(seed, drawn, enumerated):
    network, query = drawn(seed)
    table = enumerated(network, query)
    found = exact_map(query)
    with np.errstate(divide="ignore"):
        assert exact_log_probability(query) == pytest.approx(np.log(table.sum()), rel=1e-10, abs=1e-12)
        assert found.log_probability == pytest.approx(np.log(table.max()), rel=1e-10, abs=1e-12)
        if table.max() > 0:
            assert table[tuple(found.states)] == pytest.approx(table.max(), rel=1e-10)
        for states in itertools.product(*map(range, table.shape)):
            assert exact_log_probability(query, states) == pytest.approx(
                np.log(table[states]), rel=1e-10, abs=1e-12
            )


def test_propagation_loses_nothing_that_is_possible(drawn, enumerated):
    """States that go have no joint probability; where all have some, nothing goes."""
    for seed in range(12):
        network, query = drawn(seed)
        possible = propagate_zeros(query_factors(query))
        assert possible.impossible <= (enumerated(network, query).sum() == 0)
        table = enumerated(network, query)
        for place, variable in enumerate(query.map_variables):
            mass = table.sum(tuple(i for i in range(3) if i != place))
            assert set(np.flatnonzero(mass)) <= set(possible.states[variable].tolist())


def test_what_propagation_leaves_has_support_in_every_table(drawn):
    """The same states as by sweeps over whole tables, more than there are states to remove."""
    for seed in range(12):
        factors = query_factors(drawn(seed)[1])
        alive = {
            v: np.ones(n, bool) for scope, table in factors for v, n in zip(scope, table.shape, strict=True)
        }
        for scope, table in factors * sum(len(each) for each in alive.values()):
            here = (table > 0) & np.all(np.meshgrid(*(alive[v] for v in scope), indexing="ij"), axis=0)
            for axis, v in enumerate(scope):
                alive[v] &= here.any(tuple(other for other in range(len(scope)) if other != axis))
        possible = propagate_zeros(factors)
        if not all(each.any() for each in alive.values()):
            assert possible.impossible
            continue
        assert {v: each.tolist() for v, each in possible.states.items()} == {
            v: np.flatnonzero(each).tolist() for v, each in alive.items()
        }


def chain(length, names=None):
    """Copies of a coin: each variable is the one before."""
    tables = (np.array([0.5, 0.5]), *[np.eye(2)] * (length - 1))
    return BayesNet(tables, ((), *[(i,) for i in range(length - 1)]), names=names)


def test_impossible_evidence_is_named():
    network = chain(6, tuple("abcdef"))
    query = MarginalMAP(network, {"b": 0, "d": 1, "f": 1}, ["a"])
    assert exact_log_probability(query) == -np.inf and exact_map(query).log_probability == -np.inf
    assert minimal_conflict(query) == (1, 3)  # without f, which d says too
    assert minimal_conflict(MarginalMAP(network, {"b": 0, "d": 0}, ["a"])) is None
    soft = MarginalMAP(network, {"b": [1.0, 0.0], "f": 1}, ["a"])
    assert minimal_conflict(soft) == (5, 1)


def test_states_without_support_go():
    factors = [Factor((0,), np.array([1.0, 0.0, 1.0])), Factor((0, 1), np.eye(3)[:, :2])]
    possible = propagate_zeros(factors)  # the third state of the first has no support in the second table
    assert {variable: states.tolist() for variable, states in possible.states.items()} == {0: [0], 1: [0]}
    assert supported((3, 2), (np.eye(3)[:, :2] > 0).tobytes(), (0b110, 0b11)) == (0b010, 0b10)
    assert supported((3, 2), (np.eye(3)[:, :2] > 0).tobytes(), (0b100, 0b11)) == (0, 0)


def test_what_is_certain_takes_no_table():
    """A thousand copies of a coin that is seen: nothing is left to eliminate."""
    network = chain(1000)
    query = MarginalMAP(network, {999: 1}, list(range(50)))
    found = exact_map(query, most_cells=1)
    assert (found.states == 1).all() and found.log_probability == pytest.approx(np.log(0.5))


def test_small_probabilities_do_not_underflow():
    network = BayesNet(
        (np.array([0.5, 0.5]), *[np.array([[1e-3, 0.999], [2e-3, 0.998]])] * 400), ((), *[(0,)] * 400)
    )
    query = MarginalMAP(network, dict.fromkeys(range(1, 401), 0), [0])
    found = exact_map(query)
    assert found.states == [1] and found.log_probability == pytest.approx(
        np.log(0.5) + 400 * np.log(2e-3), rel=1e-12
    )


def test_a_table_that_is_too_large_is_refused_before_it_is_made():
    count = 40
    tables = (*[np.array([0.5, 0.5])] * count, *[np.full((2, 2, 2), 0.5)] * (count * (count - 1) // 2))
    pairs = list(itertools.combinations(range(count), 2))
    network = BayesNet(tables, (*[()] * count, *pairs))
    query = MarginalMAP(network, dict.fromkeys(range(count, network.num_variables), 0), [0])
    with pytest.raises(WidthError, match=r"2\*\*40\.0 cells .* bytes.*hybrid"):
        exact_map(query)


def test_order_takes_summed_variables_first():
    scopes = [(0, 1), (1, 2), (2, 3), (3, 4)]
    order = elimination_order(scopes, dict.fromkeys(range(5), 2), [[0, 2, 4], [1, 3]])
    assert set(order.variables[:3]) == {0, 2, 4} and order.cells == 8


def stored_query(name, fraction, number):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*do not sum to one")
        network = read_network(STORED / "uai" / f"{name}.uai")
    stored = json.loads((STORED / "queries.json").read_text())["instances"][name]
    maximised = stored["given_map"] if fraction == "given" else stored["sets"][fraction][int(number)]
    return MarginalMAP(network, named.read_evidence(STORED / "evid" / f"{name}.evid", network), maximised)


@stored
@pytest.mark.parametrize(("most", "every"), [(10, 40), pytest.param(16, 25, marks=pytest.mark.slow)])
def test_stored_optima_of_small_width(most, every):
    """Values to 1e-9, and the stored assignment as probable as ours; networks of every kind."""
    optima = json.loads((STORED / "reference_optima.json").read_text())
    checked = 0
    keys = [key for key, optimum in optima["optima"].items() if optimum["constrained_width"] <= most]
    for key in keys[::every]:  # a few of every network
        optimum = optima["optima"][key]
        query = stored_query(*key.split("|"))
        found = exact_map(query)
        assert found.log_probability == pytest.approx(optimum["log_value"], abs=1e-9), key
        assert exact_log_probability(query, found.states) == pytest.approx(optimum["log_value"], abs=1e-9), (
            key
        )
        checked += 1
    assert checked > 5


@pytest.mark.parametrize("half", [160, 200, pytest.param(900, marks=pytest.mark.slow)])
def test_hundreds_of_observations_that_contradict_each_other(half):
    near, far = np.array([[0.99, 0.01], [0.01, 0.99]]), np.array([[0.01, 0.99], [0.99, 0.01]])
    tables = (np.array([0.5, 0.5]), *(near,) * half, *(far,) * (half + 1), np.array([[0.9, 0.1], [0.1, 0.9]]))
    count = 2 * half + 1
    network = BayesNet(tables, ((), *((0,) for _ in range(count + 1))))
    seen = dict.fromkeys(range(1, count + 1), 0)
    log = [
        math.log(0.5) + half * math.log(a) + (half + 1) * math.log(b) for a, b in ((0.99, 0.01), (0.01, 0.99))
    ]
    found = exact_map(MarginalMAP(network, seen, [0]))
    assert found.states.tolist() == [1]
    assert found.log_probability == pytest.approx(log[1], rel=1e-12)
    child = MarginalMAP(network, seen, [count + 1])
    for state, shares in enumerate(((0.9, 0.1), (0.1, 0.9))):
        truth = np.logaddexp(log[0] + math.log(shares[0]), log[1] + math.log(shares[1]))
        assert exact_log_probability(child, [state]) == pytest.approx(truth, rel=1e-12)


@pytest.mark.parametrize("count", [140, 2400])
def test_near_certain_observations_of_one_hidden_variable(count):
    """More nats than any float spans, against sums of logarithms."""
    near, far = np.array([[1 - 1e-9, 1e-9], [1e-9, 1 - 1e-9]]), np.array([[1e-9, 1 - 1e-9], [1 - 1e-9, 1e-9]])
    copy, loose = np.array([[1 - 1e-12, 1e-12], [1e-12, 1 - 1e-12]]), np.array([[0.7, 0.3], [0.2, 0.8]])
    tables = (np.array([0.5, 0.5]), copy, loose, *[near] * count, *[far] * count, near)
    network = BayesNet(tables, ((), (0,), (1,), *[(0,)] * count, *[(1,)] * count, (0,)))
    seen = dict.fromkeys(range(3, 2 * count + 4), 0)
    with np.errstate(divide="ignore"):
        first = np.log(0.5) + count * np.log(near[:, 0]) + np.log(near[:, 0])
        joint = (first[:, None] + np.log(copy) + count * np.log(far[:, 0]))[..., None] + np.log(loose)
    query = MarginalMAP(network, seen, [2])
    truth = np.logaddexp.reduce(joint, (0, 1))
    found = exact_map(query)
    assert found.states.tolist() == [int(truth.argmax())]
    for state in (0, 1)[: 2 if count == 140 else 1]:
        assert exact_log_probability(query, [state]) == pytest.approx(truth[state], rel=1e-13)
    if count > 140:
        return
    shares = variable_posteriors(MarginalMAP(network, seen, [0, 1, 2])).probabilities
    for axis, variable in enumerate(("x0", "x1", "x2")):
        sums = np.logaddexp.reduce(joint, tuple(i for i in range(3) if i != axis))
        np.testing.assert_allclose(shares[variable], np.exp(sums - np.logaddexp.reduce(sums)), rtol=1e-9)
    explained = exact_map(MarginalMAP(network, seen, [0, 1, 2]))
    assert explained.log_probability == pytest.approx(joint.max(), rel=1e-13)
    assert tuple(explained.states) == np.unravel_index(joint.argmax(), joint.shape)


def test_contradictions_are_named_without_what_is_not_needed():
    copy, coin = np.eye(2), np.array([0.5, 0.5])
    count = 400
    network = BayesNet((coin, *(copy,) * count, coin), ((), *((0,) for _ in range(count)), ()))
    states = dict.fromkeys(range(1, count), 0) | {count: 1, count + 1: 1}
    found = minimal_conflict(MarginalMAP(network, states, [0]))
    assert found is not None and len(found) == 2 and count in found
    assert minimal_conflict(MarginalMAP(network, dict.fromkeys(range(1, count), 0), [0])) is None


@pytest.mark.parametrize("exponents", [(-99, -1), (300, 300), (-200, 150, -200), (250, -250, 250)])
def test_products_keep_what_is_small_and_what_is_large(exponents):
    """Entries that neither become zero nor infinite on the way, though their product is no double."""
    tables = [np.array([10.0**at, 10.0 ** (at - 100 / len(exponents))]) for at in exponents]
    ((scope, table),), log_scale, _ = reduced([Factor((0,), each) for each in tables], ())
    assert scope == (0,)
    truth = np.sum([np.log(each) for each in tables], 0)
    np.testing.assert_allclose(np.log(table) + log_scale, truth, rtol=1e-12)
    steep = [Factor((0,), np.array([1e-99, 1e-99])), Factor((0,), np.array([1e-1, 1e-260]))]
    ((_, table),), log_scale, _ = reduced(steep, ())
    np.testing.assert_allclose(
        np.log(table) + log_scale, np.log([1e-99, 1e-99]) + np.log([1e-1, 1e-260]), rtol=1e-12
    )
