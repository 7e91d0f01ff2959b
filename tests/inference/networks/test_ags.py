"""Gradient ascent on forward marginals: the authors' step beside one written apart, vertices, restarts, repetition."""

from __future__ import annotations

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ethogram.inference.networks import ags
from ethogram.inference.networks.ags_step import ags_step
from ethogram.inference.networks.forward_layout import lay_out
from ethogram.inference.networks.forward_value import forward_value
from ethogram.inference.networks.mixed_product import smoothed_tables
from ethogram.models.networks.bayes_net import BayesNet
from ethogram.models.networks.marginal_map import MarginalMAP


def chain(count=8, seed=0, states=2):
    """A chain of variables, every second of which is a MAP variable."""
    random = np.random.default_rng(seed)
    tables = [random.dirichlet(np.ones(states)), *random.dirichlet(np.ones(states), (count - 1, states))]
    network = BayesNet(tuple(tables), ((), *((i,) for i in range(count - 1))))
    return MarginalMAP(network, {count - 1: 1}, list(range(0, count - 1, 2)))


def vertex(query, states):
    sizes = [query.network.sizes[v] for v in query.map_variables]
    with jax.enable_x64(True):
        return float(forward_value(query)([np.eye(n)[s] for n, s in zip(sizes, states, strict=True)]))


def two(query, q):
    """The surrogate and its gradient at probabilities of the second states."""
    with jax.enable_x64(True):
        value, gradient = jax.value_and_grad(forward_value(query))([np.array([1 - each, each]) for each in q])
    return float(value), np.array([each[1] for each in gradient])


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


@pytest.mark.parametrize("seed", range(3))
def test_authors_steps_one_by_one(seed):
    query = chain(seed=seed)
    layout, kinds = lay_out(query)
    q = np.random.default_rng(seed).random(len(query.map_variables))
    step = jax.jit(lambda layout, weights: ags_step(layout, kinds, weights))
    for _ in range(6):
        with jax.enable_x64(True):
            weights = np.zeros((*layout.prior.shape, 1))
            weights[: len(q), 0, 0] = q
            found = np.asarray(step(layout, weights))[: len(q), 0, 0]
        q = authors_step(query, q)
        np.testing.assert_allclose(found, q, atol=1e-9)


@pytest.mark.parametrize(
    ("optimizer", "states"), [("adam", 2), ("paper", 2), ("adam", 3), ("expgrad", 3), ("paper", 3)]
)
def test_finds_the_best_vertex_of_the_surrogate(optimizer, states):
    query = chain(7, seed=1, states=states)
    every = list(itertools.product(range(states), repeat=len(query.map_variables)))
    values = {each: vertex(query, each) for each in every}
    found = ags.ascend(jax.random.key(0), query, optimizer=optimizer, num_restarts=16, max_steps=60)
    best = max(values, key=values.__getitem__)
    assert tuple(found.states[0]) == best
    assert found.log_values[0] == pytest.approx(values[best], rel=1e-12)
    assert (np.diff(found.log_values) <= 1e-9).all()
    assert len({tuple(each) for each in found.states}) == len(found.states)
    for states_found, value in zip(found.states, found.log_values, strict=True):
        assert value == pytest.approx(values[tuple(states_found)], rel=1e-9)


def test_same_key_same_answers_and_another_key_others():
    query = chain(20)
    first, again, other = (
        ags.ascend(jax.random.key(key), query, num_restarts=4, max_steps=10) for key in (1, 1, 2)
    )
    np.testing.assert_array_equal(first.states, again.states)
    np.testing.assert_array_equal(first.log_values, again.log_values)
    assert first.states.shape != other.states.shape or (first.states != other.states).any()


def test_of_equal_answers_the_first_that_is_met():
    even = np.array([0.5, 0.5])
    network = BayesNet((even, even, even, np.array([0.3, 0.7])), ((), (), (), ()))
    query = MarginalMAP(network, {3: 1}, [0, 1, 2])
    found = ags.ascend(jax.random.key(0), query, optimizer="paper", num_restarts=8, max_steps=20)
    assert len(found.states) > 1
    np.testing.assert_allclose(found.log_values, math.log(0.7 / 8), rtol=1e-12)
    assert tuple(found.states[0]) == (1, 1, 1)  # where the authors' first climb begins


def test_adam_steps_are_those_of_the_paper():
    """Three steps of algorithm 1, number by number; the gradient by logits is that of weights times their deviation."""
    layout, _ = lay_out(chain())
    random, shape = np.random.default_rng(0), (*layout.prior.shape, 2)
    position, first, second = random.normal(size=shape), np.zeros(shape), np.zeros(shape)
    climbers = ags.Climbers(
        jnp.asarray(position), ags._no_moments(jnp.asarray(position), "adam"), *[None] * 7
    )
    for t in (1, 2, 3):
        weights, gradient = random.random(shape), random.normal(size=shape)
        now, moments = ags._stepped(layout, climbers, jnp.asarray(weights), jnp.asarray(gradient), "adam")
        climbers = climbers._replace(position=now, moments=moments)
        slope = np.where(layout.states[..., None], weights * (gradient - weights * gradient), 0)
        first, second = 0.9 * first + 0.1 * slope, 0.999 * second + 0.001 * slope**2
        position = position + 0.3 * (first / (1 - 0.9**t)) / (np.sqrt(second / (1 - 0.999**t)) + 1e-8)
        np.testing.assert_allclose(now, position, rtol=1e-10)


def test_starts_again_and_counts_it():
    found = ags.ascend(jax.random.key(0), chain(), optimizer="paper", num_restarts=8, max_steps=50)
    assert found.num_climbs > 8
    assert found.num_steps == 50


def test_stops_when_the_callback_says_so():
    seen = []

    def enough(vertices):
        seen.append(vertices.num_steps)
        return len(seen) == 2

    found = ags.ascend(jax.random.key(0), chain(20), num_restarts=4, max_steps=1000, stop=enough)
    assert seen == [10, 20]
    assert found.num_steps == 20


def test_walls_are_climbed_over_on_smoothed_tables():
    copy = np.eye(2)
    network = BayesNet((np.array([0.5, 0.5]), copy, copy), ((), (0,), (1,)))
    query = MarginalMAP(network, {2: 1}, [0, 1])
    found = ags.ascend(
        jax.random.key(0), query, num_restarts=4, max_steps=40, tables=smoothed_tables(network)
    )
    assert tuple(found.states[0]) == (1, 1)


def test_no_program_twice_for_two_queries_of_one_shape():
    network = chain(20).network
    ags.ascend(jax.random.key(0), MarginalMAP(network, {19: 1}, [1, 4, 6]), num_restarts=4, max_steps=10)
    before = ags._advance._cache_size()
    ags.ascend(jax.random.key(0), MarginalMAP(network, {19: 1}, [1, 3, 6]), num_restarts=4, max_steps=10)
    assert ags._advance._cache_size() == before


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"optimizer": "newton"}, "optimizer must be 'adam', 'expgrad' or 'paper', not 'newton'"),
        ({"num_restarts": 0}, "num_restarts must be at least 1"),
        ({"max_steps": 0}, "max_steps must be at least 1"),
    ],
)
def test_settings_that_do_not_fit(settings, message):
    with pytest.raises(ValueError, match=message):
        ags.ascend(jax.random.key(0), chain(), **settings)


@pytest.mark.parametrize("optimizer", ["adam", "paper"])
def test_nothing_possible_is_an_answer_all_the_same(optimizer):
    network = BayesNet((np.array([0.5, 0.5]), np.array([1.0, 0.0])), ((), ()))
    query = MarginalMAP(network, {1: 1}, [0])
    found = ags.ascend(jax.random.key(0), query, optimizer=optimizer, num_restarts=2, max_steps=10)
    assert found.states.shape == (1, 1) and found.log_values[0] == -math.inf
