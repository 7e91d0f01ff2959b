"""Messages against enumeration in trees, and sweep by sweep against loops over single messages."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ethogram.inference.networks.mixed_product import mixed_product, propagate_beliefs, smoothed_tables
from ethogram.inference.networks.zero_propagation import query_factors
from ethogram.models.networks.bayes_net import BayesNet
from ethogram.models.networks.marginal_map import MarginalMAP


def tree(seed, count=8, states=3):
    random = np.random.default_rng(seed)
    parents = [(), *((int(random.integers(i)),) for i in range(1, count))]
    tables = [random.dirichlet(np.ones(states), (states,) * len(each)) for each in parents]
    network = BayesNet(tuple(tables), tuple(parents))
    return MarginalMAP(network, {count - 1: 0, count - 2: 1}, [0, 1, 2])


@pytest.mark.parametrize("seed", range(5))
def test_trees_have_their_marginals_and_evidence(seed, enumerated):
    query = tree(seed)
    table = enumerated(query.network, query)
    found = propagate_beliefs(query_factors(query), tol=1e-14)
    assert found.converged
    assert found.log_evidence == pytest.approx(math.log(table.sum()), rel=1e-10)
    for axis, variable in enumerate(query.map_variables):
        other = tuple(i for i in range(3) if i != axis)
        np.testing.assert_allclose(found.beliefs[variable], table.sum(other) / table.sum(), atol=1e-10)


def test_thousands_of_messages_to_one_variable():
    """1200 observations for each state, and one more: their products underflow, their quotient does not."""
    near, far = np.array([[0.99, 0.01], [0.01, 0.99]]), np.array([[0.01, 0.99], [0.99, 0.01]])
    tables = (np.array([0.5, 0.5]), *[near] * 1200, *[far] * 1201, np.array([[0.9, 0.1], [0.2, 0.8]]))
    network = BayesNet(tables, ((), *[(0,)] * 2402))
    found = propagate_beliefs(query_factors(MarginalMAP(network, dict.fromkeys(range(1, 2402), 0), [0])))
    np.testing.assert_allclose(found.beliefs[0], [0.01, 0.99], rtol=1e-9)
    np.testing.assert_allclose(found.beliefs[2402], [0.207, 0.793], rtol=1e-9)
    truth = math.log(0.5) + 1200 * (math.log(0.99) + math.log(0.01))
    assert found.log_evidence == pytest.approx(truth, rel=1e-12)


def by_loops(query, argmax_of, sweeps):
    """Beliefs of the MAP variables after some sweeps, one message at a time."""
    factors = [
        factor for factor in query_factors(query, tables=smoothed_tables(query.network)) if factor.scope
    ]
    sizes = {v: n for scope, table in factors for v, n in zip(scope, table.shape, strict=True)}
    to_variable = {
        (i, v): np.full(sizes[v], 1 / sizes[v]) for i, (scope, _) in enumerate(factors) for v in scope
    }
    for _ in range(sweeps):
        to_factor = {}
        for i, v in to_variable:
            sent = np.ones(sizes[v])
            for j, u in to_variable:
                if u == v and j != i:
                    sent = sent * to_variable[j, u]
            if v in query.map_variables:
                judged = sent * to_variable[i, v] if argmax_of == "belief" else sent
                sent = np.where(judged >= judged.max() * (1 - 1e-12), sent, 0)
            to_factor[i, v] = sent / sent.sum()
        for i, (scope, table) in enumerate(factors):
            for axis, v in enumerate(scope):
                made = np.moveaxis(table, axis, -1)
                for u in [u for u in scope if u != v]:
                    made = np.tensordot(to_factor[i, u], made, (0, 0))
                to_variable[i, v] = made / made.sum()
    beliefs = {v: np.ones(sizes[v]) for v in query.map_variables}
    for i, v in to_variable:
        if v in beliefs:
            beliefs[v] = beliefs[v] * to_variable[i, v]
    return {v: belief / belief.sum() for v, belief in beliefs.items()}


@pytest.mark.parametrize("argmax_of", ["belief", "cavity"])
@pytest.mark.parametrize("seed", range(4))
def test_sweep_by_sweep(seed, argmax_of, drawn):
    query = drawn(seed)[1]
    factors = query_factors(query, tables=smoothed_tables(query.network))
    for sweeps in (1, 2, 5):
        found = propagate_beliefs(
            factors, query.map_variables, argmax_of=argmax_of, max_sweeps=sweeps, tol=1e-300
        )
        for variable, belief in by_loops(query, argmax_of, sweeps).items():
            np.testing.assert_allclose(found.beliefs[variable], belief, atol=1e-9)
    answer = mixed_product(
        query, argmax_of=argmax_of, tables=smoothed_tables(query.network), max_sweeps=5, tol=1e-300
    )
    last = by_loops(query, argmax_of, 5)
    assert answer.tolist() == [int(last[v].argmax()) for v in query.map_variables]


def test_the_two_readings_end_in_different_answers(drawn):
    different = 0
    for seed in range(12):
        query = drawn(seed)[1]
        smooth = smoothed_tables(query.network)
        answers = [mixed_product(query, argmax_of=r, tables=smooth).tolist() for r in ("belief", "cavity")]
        different += answers[0] != answers[1]
    assert 0 < different < 12


def test_smoothed_tables_are_the_papers():
    network = BayesNet((np.array([0.0, 1.0]), np.array([[0.3, 0.7], [1.0, 0.0]])), ((), (0,)))
    first, second = smoothed_tables(network)
    np.testing.assert_allclose(first, [1e-4, 1 - 1e-4])
    np.testing.assert_allclose(second, [[0.3, 0.7], [1 - 1e-4, 1e-4]])
    three = BayesNet((np.array([0.0, 0.0, 1.0]),), ((),))
    np.testing.assert_allclose(smoothed_tables(three, 1e-3)[0], [1e-3, 1e-3, 1 - 2e-3])
    with pytest.raises(ValueError, match=r"amount must be in \(0, 1\), not 1\.0"):
        smoothed_tables(three, 1.0)


def test_contradictions_have_no_evidence():
    network = BayesNet((np.array([1.0, 0.0]), np.eye(2)), ((), (0,)))
    found = propagate_beliefs(query_factors(MarginalMAP(network, {1: 1}, [0])))
    assert found.log_evidence == -math.inf


def test_another_argmax_is_refused():
    with pytest.raises(ValueError, match="argmax_of must be 'belief' or 'cavity', not 'message'"):
        mixed_product(tree(0), argmax_of="message")


def test_smoothing_never_goes_below_zero():
    with pytest.warns(UserWarning, match="do not sum to one"):
        network = BayesNet((np.array([0.5, 0.5]), np.array([[1e-5, 0.0], [0.0, 2e-5]])), ((), (0,)))
    table = smoothed_tables(network)[1]
    np.testing.assert_allclose(table, [[1e-5 * (1 - 1e-4), 1e-9], [2e-9, 2e-5 * (1 - 1e-4)]])


def test_hubs_of_many_observations_do_not_underflow():
    rows = np.full((11, 2), 0.4)
    rows[7] = 0.6
    rows[:, 1] = 1 - rows[:, 0]
    network = BayesNet((np.full(11, 1 / 11), *(rows,) * 1500), ((), *((0,) for _ in range(1500))))
    query = MarginalMAP(network, dict.fromkeys(range(1, 1501), 0), [0])
    assert mixed_product(query).tolist() == [7]
    found = propagate_beliefs(query_factors(query))
    others = 10 * math.exp(1500 * math.log(0.4 / 0.6))
    truth = math.log(1 / 11) + 1500 * math.log(0.6) + math.log1p(others)
    assert found.log_evidence == pytest.approx(truth, rel=1e-9)
