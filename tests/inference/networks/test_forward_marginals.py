"""Forward marginals and the surrogate against enumeration apart from the code, and where the surrogate misleads."""

from __future__ import annotations

import functools
import itertools
import math

import jax
import numpy as np
import pytest

from ethogram.inference.networks.elimination import exact_log_probability
from ethogram.inference.networks.forward_layout import lay_out
from ethogram.inference.networks.forward_value import forward_value
from ethogram.inference.networks.mixed_product import propagate_beliefs
from ethogram.inference.networks.zero_propagation import query_factors
from ethogram.models.networks.bayes_net import BayesNet
from ethogram.models.networks.marginal_map import MarginalMAP

COIN = np.array([0.5, 0.5])


def log_value(query, weights):
    with jax.enable_x64(True):
        return np.asarray(forward_value(query)(weights))


@functools.cache
def compiled(query):
    """Value and gradients by weights and tables, one program a query."""
    return jax.jit(jax.value_and_grad(forward_value(query), (0, 1)))


def value_and_gradients(query, weights, tables=None):
    with jax.enable_x64(True):
        found = compiled(query)(weights, list(query.network.tables) if tables is None else tables)
    return jax.tree.map(np.asarray, found)


def forward(network, known, weights):
    """Marginals of every variable by nested loops: parents as if independent, those in `known` or `weights` given."""
    marginals = {}
    for variable in network.order:
        parents = network.parents[variable]
        total = np.zeros(network.sizes[variable])
        for states in itertools.product(*(range(network.sizes[p]) for p in parents)):
            chance = 1.0
            for parent, state in zip(parents, states, strict=True):
                if parent in known:
                    chance *= float(known[parent] == state)
                else:
                    chance *= weights.get(parent, marginals[parent])[state]
            total += chance * network.tables[variable][states]
        marginals[variable] = total
    return marginals


def reference(query, weights):
    known, given = dict(query.observed), dict(zip(query.map_variables, weights, strict=True))
    marginals = forward(query.network, known, given)
    terms = [marginals[v][s] for v, s in query.observed] + [marginals[v] @ w for v, w in given.items()]
    terms += [marginals[v] @ np.array(likelihoods) for v, likelihoods in query.soft]
    return sum(map(math.log, terms)) if min(terms) > 0 else -math.inf


def drawn_weights(query, seed):
    random = np.random.default_rng(seed)
    return [random.dirichlet(np.ones(query.network.sizes[v])) for v in query.map_variables]


SEEDS = [3, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (0, 1, 4))]


@pytest.fixture(scope="module")
def asked(drawn):
    """Networks and queries by seed."""
    return functools.cache(drawn)


@pytest.mark.parametrize("seed", SEEDS)
def test_value_and_gradient_of_small_networks(seed, asked):
    query = asked(seed)[1]
    weights = drawn_weights(query, seed)
    (found, (gradient, _)), truth = value_and_gradients(query, weights), reference(query, weights)
    assert found == pytest.approx(truth, rel=1e-12)
    if truth == -math.inf:
        return
    for i, own in enumerate(weights):
        assert gradient[i][0] == 0
        for state in range(1, len(own)):
            move = np.zeros(len(own))
            move[[0, state]] = -1, 1
            steps = [w if j != i else None for j, w in enumerate(weights)]
            step = 1e-4 * min(own[0], own[state])
            up, down, up2, down2 = (
                reference(query, [own + t * step * move if w is None else w for w in steps])
                for t in (1, -1, 2, -2)
            )
            slope = (8 * (up - down) - (up2 - down2)) / (12 * step)
            assert gradient[i][state] == pytest.approx(slope, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("seed", SEEDS)
def test_gradient_of_the_tables(seed, asked):
    network, query = asked(seed)
    weights, random = drawn_weights(query, seed), np.random.default_rng(seed)
    tables = [random.dirichlet(np.ones(table.shape[-1]), table.shape[:-1]) for table in network.tables]

    def truth(changed):
        evidence = dict(query.observed) | dict(query.soft)
        return reference(
            MarginalMAP(BayesNet(tuple(changed), network.parents), evidence, query.map_variables), weights
        )

    value, (_, gradient) = value_and_gradients(query, weights, tables)
    assert value == pytest.approx(truth(tables), rel=1e-12)
    for number, table in enumerate(tables):
        if table.shape[-1] > 1:
            row = tuple(random.integers(size) for size in table.shape[:-1])
            move = np.zeros(table.shape)
            move[row][[0, -1]] = -1, 1
            step = 1e-3 * min(table[row][0], table[row][-1])
            up, down = (
                truth([each + t * move if i == number else each for i, each in enumerate(tables)])
                for t in (step, -step)
            )
            assert (gradient[number] * move).sum() == pytest.approx(
                (up - down) / (2 * step), rel=1e-5, abs=1e-7
            )


@pytest.fixture(scope="module")
def small():
    """A query of four variables, the last of which is seen."""
    return MarginalMAP(grid(2), {3: 1}, [0, 1])


def test_of_many_weights_and_tables_by_vmap_and_jit(small):
    each = [drawn_weights(small, seed) for seed in range(4)]
    scaled = [
        [(table + i) / (table + i).sum(-1, keepdims=True) for table in small.network.tables] for i in range(4)
    ]
    many = jax.tree.map(lambda *leaves: np.stack(leaves), *zip(each, scaled, strict=True))
    with jax.enable_x64(True):
        together = jax.vmap(compiled(small))(*many)
    for i in range(4):
        alone = value_and_gradients(small, each[i], scaled[i])
        for one, other in zip(jax.tree.leaves(alone), jax.tree.leaves(together), strict=True):
            np.testing.assert_allclose(other[i], one, rtol=1e-12, atol=1e-12)


def test_single_precision_is_that_of_the_weights(small):
    weights = drawn_weights(small, 0)
    short = [each.astype(np.float32) for each in weights]
    double, single = log_value(small, weights), log_value(small, short)
    with jax.enable_x64(False):
        again, slope = jax.jit(jax.value_and_grad(forward_value(small)))(short)
    assert (double.dtype, single.dtype, again.dtype) == (np.float64, np.float32, np.float32)
    assert slope[0].dtype == np.float32
    np.testing.assert_allclose([single, again], double, rtol=1e-5)


def test_copies_side_by_side_are_copies_alone(small):
    many = [drawn_weights(small, seed) for seed in range(5)]
    together = log_value(small, [np.stack(each, -1) for each in zip(*many, strict=True)])
    for place, weights in enumerate(many):
        assert together[place] == pytest.approx(float(log_value(small, weights)), rel=1e-14)


@pytest.mark.parametrize("seed", [1, 3])
def test_without_evidence_marginals_are_those_of_belief_propagation(seed, drawn):
    # Messages up a network without evidence are constant, so that loopy beliefs are forward marginals (Proposition 3).
    network = drawn(seed)[0]
    factors = query_factors(MarginalMAP(network, {}, [0]))
    beliefs = propagate_beliefs(factors, max_sweeps=100, tol=1e-15).beliefs
    truth = forward(network, {}, {})
    for variable in range(network.num_variables):
        np.testing.assert_allclose(beliefs[variable], truth[variable], rtol=1e-12, atol=1e-12)
    whole = BayesNet((*network.tables, COIN), (*network.parents, ()))
    seen = {v: np.random.default_rng(v).random(size) for v, size in enumerate(network.sizes)}
    value = log_value(MarginalMAP(whole, seen, [network.num_variables]), [np.array([0.0, 1.0])])
    wanted = sum(math.log(truth[v] @ likelihoods) for v, likelihoods in seen.items())
    assert value == pytest.approx(wanted - math.log(2), rel=1e-12)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 4))])
def test_planning_network_has_the_probability_at_every_vertex(seed, drawn):
    # Every MAP variable is split into one that has its table and one that its children read; a third says they agree.
    network, query = drawn(seed)
    count = network.num_variables
    place = {variable: count + i for i, variable in enumerate(query.map_variables)}
    tables, parents = list(network.tables), []
    for each in network.parents:
        parents.append(tuple(place.get(parent, parent) for parent in each))
    for variable in query.map_variables:
        tables.append(np.full(network.sizes[variable], 1 / network.sizes[variable]))
        parents.append(())
    for variable in query.map_variables:
        same = np.eye(network.sizes[variable])
        tables.append(np.stack((1 - same, same), -1))
        parents.append((variable, place[variable]))
    split = BayesNet(tuple(tables), tuple(parents))
    agree = {count + len(place) + i: 1 for i in range(len(place))}
    evidence = dict(query.observed) | dict(query.soft) | agree
    uniform = sum(math.log(network.sizes[v]) for v in query.map_variables)
    for states in itertools.product(*(range(network.sizes[v]) for v in query.map_variables)):
        value = exact_log_probability(MarginalMAP(split, evidence, list(place.values())), states) + uniform
        assert value == pytest.approx(exact_log_probability(query, states), rel=1e-10)


def test_exact_at_vertices_where_nothing_is_summed_out(drawn):
    network = drawn(5, 6)[0]
    query = MarginalMAP(network, {5: 0}, [0, 1, 2, 3, 4])
    vertices = np.random.default_rng(0).integers(0, network.sizes[:5], (40, 5)).tolist()
    weights = [np.eye(network.sizes[v])[[states[v] for states in vertices]].T for v in range(5)]
    values = log_value(query, weights)
    for states, value in zip(vertices, values, strict=True):
        assert value == pytest.approx(network.log_joint([*states, 0]), rel=1e-12)


def test_two_leaves_of_a_tree_mislead_it():
    # s -> d, s -> e1, s -> e2: evidence does not reach s, so that only the prior of d is left, and d = 0 looks best.
    near = np.array([[0.9, 0.1], [0.2, 0.8]])
    network = BayesNet((np.array([0.6, 0.4]), near, near, near), ((), (0,), (0,), (0,)))
    query = MarginalMAP(network, {2: 1, 3: 1}, [1])
    surrogate = log_value(query, [np.eye(2)])
    exact = [exact_log_probability(query, [state]) for state in (0, 1)]
    assert np.argmax(surrogate) == 0
    assert np.argmax(exact) == 1


def test_optimum_between_answers_that_are_all_impossible():
    # Two copies of d must differ: every answer has probability zero, and q = 1/2 looks possible.
    copy = np.eye(2)
    differ = np.array([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]]])
    network = BayesNet((COIN, copy, copy, differ), ((), (0,), (0,), (1, 2)))
    query = MarginalMAP(network, {3: 1}, [0])
    values = log_value(query, [np.column_stack((COIN, np.eye(2)))])
    assert math.exp(values[0]) == pytest.approx(0.25)  # 2 q (1 - q) / 2
    for state in (0, 1):
        assert values[1 + state] == -math.inf
        assert exact_log_probability(query, [state]) == -math.inf


def test_at_equal_weights_nothing_flows_through_a_variables_own_table():
    table = np.array([[0.9, 0.1], [0.3, 0.7]])
    network = BayesNet((COIN, table), ((), (0,)))
    _, (gradient, _) = value_and_gradients(MarginalMAP(network, {}, [0, 1]), [COIN, COIN])
    assert gradient[0][1] == pytest.approx(0, abs=1e-15)
    assert abs(gradient[1][1]) > 0.1


def test_two_hundred_observations_do_not_underflow():
    rare = np.array([[0.99, 0.01], [0.98, 0.02]])
    network = BayesNet((COIN, *(rare for _ in range(200))), ((), *((0,) for _ in range(200))))
    query = MarginalMAP(network, dict.fromkeys(range(1, 201), 1), [0])
    value = log_value(query, [np.array([1.0, 0.0])])
    assert value == pytest.approx(200 * math.log(0.01) + math.log(0.5), rel=1e-12)


def test_impossible_terms_give_minus_infinity_and_a_finite_gradient():
    network = BayesNet((COIN, np.array([[1.0, 0.0], [0.5, 0.5]])), ((), (0,)))
    value, (gradient, _) = value_and_gradients(MarginalMAP(network, {1: 1}, [0]), [np.array([1.0, 0.0])])
    assert value == -math.inf
    assert np.isfinite(gradient[0]).all()
    assert gradient[0][1] > 0


def test_rows_that_do_not_sum_to_one_count_as_they_are():
    network = BayesNet((COIN, np.array([[0.5, 0.5], [0.5, 0.5]])), ((), (0,)))
    with pytest.warns(UserWarning, match="do not sum to one"):
        heavy = BayesNet((np.array([1.0, 1.0]), np.array([[2.0, 0.0], [0.5, 0.25]])), ((), (0,)))
    query = MarginalMAP(heavy, {1: 0}, [0])
    for state, value in enumerate(log_value(query, [np.eye(2)])):
        assert value == pytest.approx(exact_log_probability(query, [state]), rel=1e-12)
    assert network.num_variables == heavy.num_variables


def grid(side, seed=0):
    """A square of variables with two states, each a child of those above and to the left."""
    random = np.random.default_rng(seed)
    tables, parents = [], []
    for i in range(side * side):
        above = tuple(j for j, there in ((i - side, i >= side), (i - 1, i % side > 0)) if there)
        tables.append(random.dirichlet(np.ones(2), (2,) * len(above)))
        parents.append(above)
    return BayesNet(tuple(tables), tuple(parents))


def test_two_shapes_at_most_for_twelve_queries_of_a_network():
    network, random, shapes = grid(12), np.random.default_rng(1), set()
    for share in (0.5, 0.3, 0.2):
        for _ in range(4):
            maximised = random.permutation(143)[: int(143 * share)].tolist()
            layout, shapes_of_blocks = lay_out(MarginalMAP(network, {143: 1}, maximised))
            shapes.add((shapes_of_blocks, tuple(np.shape(leaf) for leaf in jax.tree.leaves(layout))))
    assert len(shapes) <= 2


@pytest.mark.parametrize(
    ("weights", "change", "message"),
    [
        ([], list, "weights has 0 arrays for 1 MAP variables"),
        ([np.ones(7)], list, "have shape"),
        ([np.array([0.7, 0.7])], list, "must be nonnegative and sum to one"),
        ([np.array([1.5, -0.5])], list, "must be nonnegative and sum to one"),
        ([COIN], lambda tables: tables[1:], "tables has 3 arrays for 4 variables"),
        ([COIN], lambda tables: [tables[0][:1], *tables[1:]], r"shape \(1,\): expected \(2,\)"),
    ],
)
def test_weights_and_tables_that_do_not_fit(weights, change, message):
    network = grid(2)
    with pytest.raises(ValueError, match=message):
        forward_value(MarginalMAP(network, {}, [0]))(weights, change(network.tables))


def test_a_network_is_no_query():
    with pytest.raises(TypeError, match="query"):
        forward_value(grid(2))
