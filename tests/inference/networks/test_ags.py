"""Gradient ascent on forward marginals: the authors' step beside one written apart, vertices, restarts, repetition."""

from __future__ import annotations

import itertools
import math

import jax
import numpy as np
import pytest

from ethogram.inference.networks import ags
from ethogram.inference.networks.forward_layout import lay_out
from ethogram.inference.networks.mixed_product import smoothed_tables
from ethogram.models.networks.bayes_net import BayesNet
from ethogram.models.networks.marginal_map import MarginalMAP

MIXED = (2, 3, 3, 2, 3, 2, 3)
"""Numbers of states that differ along a chain."""
FEW = {"num_restarts": 8}
"""One shape of all ascents, so that few programs compile."""


def chain(sizes=(2,) * 8, seed=0):
    """A chain of variables, every second of which is a MAP variable."""
    random, count = np.random.default_rng(seed), len(sizes)
    tables = [random.dirichlet(np.ones(sizes[0]))]
    tables += [random.dirichlet(np.ones(own), above) for above, own in itertools.pairwise(sizes)]
    return chained(tables, range(0, count - 1, 2))


def chained(tables, maximised):
    """A query of a chain with some tables, whose last variable is in its second state."""
    network = BayesNet(tuple(tables), ((), *((i,) for i in range(len(tables) - 1))))
    return MarginalMAP(network, {len(tables) - 1: 1}, list(maximised))


def log_surrogate(query, weights):
    """Ln V of a chain, one variable after the other, at weights (state,) of its MAP variables."""
    known = dict(query.observed)
    given, total, before = dict(zip(query.map_variables, weights, strict=True)), 0, None
    for variable, table in enumerate(query.network.tables):
        own = table if before is None else before @ table
        if variable in known:
            total += np.log(own[known[variable]])
            before = np.eye(len(own))[known[variable]]
        else:
            total += np.log(own @ given[variable]) if variable in given else 0
            before = given.get(variable, own)
    return total


def two(query, q):
    """The surrogate and its gradient at probabilities of the second states, by steps along the imaginary axis."""
    value = log_surrogate(query, np.stack((1 - q, q), 1))
    moved = (q + 1e-30j * row for row in np.eye(len(q)))
    return value, np.array([log_surrogate(query, np.stack((1 - z, z), 1)).imag / 1e-30 for z in moved])


def authors_step(query, q):
    """Their step, one number at a time: tenths of the largest, and tenths of tenths where the smallest is best."""
    gradient = two(query, q)[1]
    top = q.max() + 1
    room = [(top - x) / g if g > 0 else (x + 1) / -g for x, g in zip(q, gradient, strict=True) if g]
    largest, best, best_value = min(room), None, -np.inf
    for _ in range(6):
        for j in range(1, 11):
            step = j * largest / 10
            value = two(query, np.clip(q + step * gradient, 0, 1))[0]
            if value > best_value:
                best, best_value = step, value
        if best != largest / 10:
            break
        largest /= 10
    return np.clip(q + best * gradient, 0, 1)


one_step = jax.jit(ags._step, static_argnames="shapes")


@pytest.mark.parametrize("seed", range(3))
def test_authors_steps_one_by_one(seed):
    query = chain(seed=seed)
    layout, shapes = lay_out(query)
    q = np.random.default_rng(seed).random(len(query.map_variables))
    for _ in range(6):
        with jax.enable_x64(True):
            weights = np.zeros((*layout.prior_rows.shape, 1))
            weights[: len(q), 0, 0] = q
            found = np.asarray(one_step(layout, shapes, weights))[: len(q), 0, 0]
        q = authors_step(query, q)
        np.testing.assert_allclose(found, q, atol=1e-9)


@pytest.mark.parametrize("sizes", [(2,) * 8, MIXED])
def test_finds_the_best_vertex_of_the_surrogate(sizes):
    query = chain(sizes, seed=1)
    values = {
        each: log_surrogate(query, [np.eye(n)[state] for n, state in zip(sizes[::2], each, strict=False)])
        for each in itertools.product(*map(range, sizes[:-1:2]))
    }
    found = ags.ascend(jax.random.key(0), query, max_steps=60, **FEW)
    best = max(values, key=values.__getitem__)
    assert tuple(found.states[0]) == best
    assert found.log_values[0] == pytest.approx(values[best], rel=1e-12)
    assert (np.diff(found.log_values) <= 1e-9).all()
    assert len({tuple(each) for each in found.states}) == len(found.states)
    for states_found, value in zip(found.states, found.log_values, strict=True):
        assert value == pytest.approx(values[tuple(states_found)], rel=1e-9)


def test_same_key_same_answers_and_another_key_others():
    query = chain()
    first, again, other = (ags.ascend(jax.random.key(key), query, max_steps=10, **FEW) for key in (1, 1, 2))
    np.testing.assert_array_equal(first.states, again.states)
    np.testing.assert_array_equal(first.log_values, again.log_values)
    assert first.states.shape != other.states.shape or (first.states != other.states).any()


def test_of_equal_answers_the_first_that_is_met():
    even = np.array([0.5, 0.5])
    query = chained([even, *[np.stack((even, even))] * 6, np.array([[0.3, 0.7]] * 2)], (0, 2, 4, 6))
    found = ags.ascend(jax.random.key(0), query, max_steps=20, **FEW)
    assert len(found.states) > 1
    np.testing.assert_allclose(found.log_values, math.log(0.7 / 16), rtol=1e-12)
    assert tuple(found.states[0]) == (1, 1, 1, 1)  # where the authors' first ascent begins


def test_starts_again_and_counts_it():
    found = ags.ascend(jax.random.key(0), chain(), max_steps=50, **FEW)
    assert found.num_climbs > 8
    assert found.num_steps == 50


def test_stops_when_the_callback_says_so():
    seen = []

    def enough(vertices):
        seen.append(vertices.num_steps)
        return len(seen) == 2

    found = ags.ascend(jax.random.key(0), chain(), max_steps=1000, stop=enough, **FEW)
    assert seen == [10, 20]
    assert found.num_steps == 20


def test_walls_are_climbed_over_on_smoothed_tables():
    query = chained([np.array([0.5, 0.5]), *[np.eye(2)] * 7], range(7))
    smooth = smoothed_tables(query.network)
    found = ags.ascend(jax.random.key(0), query, max_steps=40, tables=smooth, **FEW)
    assert tuple(found.states[0]) == (1,) * 7


def test_no_program_twice_for_two_queries_of_one_shape():
    query = chain()
    ags.ascend(jax.random.key(0), query, max_steps=10, **FEW)
    before = ags._advance._cache_size()
    for maximised in ([0, 2, 4, 5], [1, 3, 6, 5]):
        other = chained(query.network.tables, maximised)
        ags.ascend(jax.random.key(0), other, max_steps=10, **FEW)
    assert ags._advance._cache_size() == before


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_restarts": 0}, "num_restarts must be at least 1"),
        ({"max_steps": 0}, "max_steps must be at least 1"),
    ],
)
def test_settings_that_do_not_fit(settings, message):
    with pytest.raises(ValueError, match=message):
        ags.ascend(jax.random.key(0), chain(), **settings)


def test_nothing_possible_is_an_answer_all_the_same():
    network = chain((2,) * 7).network
    never = BayesNet((*network.tables, np.array([1.0, 0.0])), (*network.parents, ()))
    query = MarginalMAP(never, {7: 1}, [0, 2, 4, 6])
    found = ags.ascend(jax.random.key(0), query, max_steps=10, **FEW)
    assert found.states.shape == (1, 4) and found.log_values[0] == -math.inf


def test_of_equal_weights_the_first_state_is_taken():
    query = chain((3,) * 3)
    layout, shapes = lay_out(query)
    with jax.enable_x64(True):
        weights = np.zeros((*layout.prior_rows.shape, 4))
        weights[0] = [[0.5, 0.4, 0.25, 0.0], [0.0, 0.4, 0.375, 0.5]]  # of the second and the third state
        worst, vertex = np.full(4, -np.inf), np.zeros(weights[:, 0].shape, np.uint8)
        climbers = ags.Climbers(weights, worst, vertex, worst, vertex, None, None)
        found = jax.jit(ags._try, static_argnums=1)(layout, shapes, climbers)
    np.testing.assert_array_equal(found.climb_vertex[0], [0, 1, 0, 0])
