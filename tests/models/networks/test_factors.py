"""Products of factors and the networks they are read as: the same function, to the last digit."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from ethogram.models.networks.factors import network_of_factors
from ethogram.models.networks.uai import UAIFile


def same_function(factors):
    found = network_of_factors(factors)
    network, extra = found.network, [found.evidence[v] for v in sorted(found.evidence)]
    for states in itertools.product(*(range(size) for size in factors.sizes)):
        entries = [
            table[tuple(states[v] for v in scope)]
            for scope, table in zip(factors.scopes, factors.tables, strict=True)
        ]
        truth = sum(map(math.log, entries)) if min(entries) > 0 else -math.inf
        assert network.log_joint([*states, *extra]) == (
            pytest.approx(truth, abs=1e-12) if truth > -math.inf else truth
        )
    return found


def drawn(seed, count=5):
    random = np.random.default_rng(seed)
    sizes = tuple(random.integers(2, 4, count).tolist())
    scopes, tables = [], []
    for _ in range(6):
        scope = tuple(random.permutation(count)[: random.integers(1, 4)].tolist())
        shape = [sizes[v] for v in scope]
        tables.append(3 * random.random(shape) * (random.random(shape) > 0.15))
        tables[-1].flat[0] = 1.0
        scopes.append(scope)
    return UAIFile("MARKOV", sizes, tuple(scopes), tuple(tables))


@pytest.mark.parametrize("seed", range(8))
def test_any_factors(seed):
    same_function(drawn(seed))


@pytest.mark.parametrize("seed", range(5))
def test_tables_in_any_order_are_found_again(seed):
    # x0 -> x1, (x0, x1) -> x2, x2 -> x3, and what was seen of x3 and of x0
    random = np.random.default_rng(seed)
    parents = ((), (0,), (0, 1), (2,))
    scopes, tables = [], []
    for child, each in enumerate(parents):
        order = random.permutation(len(each) + 1)
        scope, table = (*each, child), random.dirichlet(np.ones(3), (3,) * len(each))
        scopes.append(tuple(scope[i] for i in order))
        tables.append(table.transpose(order))
    scopes += [(3,), (0,)]
    tables += [np.array([0.3, 1.2, 0.0]), np.array([0.5, 2.0, 4.0])]
    shuffled = random.permutation(len(scopes))
    found = same_function(
        UAIFile("MARKOV", (3,) * 4, tuple(scopes[i] for i in shuffled), tuple(tables[i] for i in shuffled))
    )
    assert len(found.evidence) == 2
    assert [set(each) for each in found.network.parents[:4]] == [set(each) for each in parents]
    assert found.network.log_constant == pytest.approx(math.log(1.2) + math.log(4.0))


def test_symmetric_tables_do_not_go_round():
    flip = np.array([[0.9, 0.1], [0.1, 0.9]])
    found = same_function(UAIFile("MARKOV", (2, 2, 2), ((0, 1), (1, 2), (2, 0)), (flip, flip, flip)))
    assert len(found.evidence) == 1


def test_two_tables_of_one_variable():
    found = same_function(UAIFile("MARKOV", (2,), ((0,), (0,)), (np.array([0.3, 0.7]), np.array([0.9, 0.1]))))
    assert found.network.tables[0].tolist() == [0.3, 0.7] and len(found.evidence) == 1


def test_roots_are_variables_that_no_factor_sums_to_one_over():
    table = np.array([[0.3, 0.6], [0.7, 0.4]])  # p(x0 | x1)
    assert same_function(UAIFile("MARKOV", (2, 2), ((0, 1),), (table,))).evidence == {}


def test_names_and_constants():
    factors = UAIFile("MARKOV", (2,), ((0,), ()), (np.array([2.0, 6.0]), np.array(3.0)))
    found = network_of_factors(factors, names=["factor0"], state_names=[["a", "b"]])
    assert found.network.names == ("factor0", "factor0_")
    assert found.network.log_joint([1, 1]) == pytest.approx(math.log(18))


def test_a_factor_of_zeros_is_refused():
    with pytest.raises(ValueError, match="factor 0, of variables"):
        network_of_factors(UAIFile("MARKOV", (2,), ((0,),), (np.zeros(2),)))
