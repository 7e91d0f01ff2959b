"""Weighted mini-buckets: never below the answer, exact where nothing is shared out, gradients, and shifts."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ethogram.inference.networks import weighted_mini_buckets
from ethogram.inference.networks.mini_bucket_plan import bounded_order, plan_mini_buckets
from ethogram.inference.networks.weighted_mini_buckets import WeightedMiniBuckets
from ethogram.inference.networks.zero_propagation import Factor, ReducedFactors


def order_of(factors, sizes, maximised):
    """Bounded order of all parts."""
    possible = ReducedFactors(factors, {v: np.arange(size) for v, size in sizes.items()})
    return [v for i in range(len(possible.parts)) for v in bounded_order(possible, i, maximised)]


def drawn_factors(seed):
    """Six to ten variables of two or three states, factors of up to three of them, half of the time with zeros."""
    random = np.random.default_rng(seed)
    count = int(random.integers(6, 11))
    sizes = {v: int(size) for v, size in enumerate(random.integers(2, 4, count))}
    factors = [Factor((v,), random.random(sizes[v])) for v in sizes]
    for _ in range(int(1.6 * count)):
        scope = tuple(random.permutation(count)[: int(random.integers(2, 4))].tolist())
        table = random.gamma(0.4, size=[sizes[v] for v in scope])
        if seed % 2:
            table = table * (random.random(table.shape) > 0.3)
        factors.append(Factor(scope, table))
    maximised = random.permutation(count)[: int(random.integers(1, count + 1))].tolist()
    return factors, sizes, maximised


def joint(factors, sizes):
    letters = "abcdefghijkl"
    words = ["".join(letters[v] for v in scope) for scope, _ in factors]
    return np.einsum(",".join(words) + "->" + letters[: len(sizes)], *(table for _, table in factors))


def log_answer(factors, sizes, maximised):
    with np.errstate(divide="ignore"):
        return float(np.log(joint(factors, sizes).sum(tuple(v for v in sizes if v not in maximised)).max()))


def bounds_of(factors, sizes, maximised, order, cells, passes):
    plan = plan_mini_buckets([scope for scope, _ in factors], sizes, order, cells)
    found = WeightedMiniBuckets(factors, sizes, maximised, order, plan)
    values = []
    for _ in range(passes):
        found.tighten()
        values.append(found.bound)
    return found, values


@pytest.mark.parametrize("first", [0, *(pytest.param(i, marks=pytest.mark.slow) for i in (16,))])
def test_bounds_are_never_below_the_answer(first):
    for seed in range(first, first + 16):
        assert_bounds_hold(seed, (6, 9, 18, 40)[seed // 2 % 4])


def assert_bounds_hold(seed, cells):
    factors, sizes, maximised = drawn_factors(seed)
    truth = log_answer(factors, sizes, maximised)
    order = order_of(factors, sizes, maximised)
    found, values = bounds_of(factors, sizes, maximised, order, cells, 12)
    assert min(values) >= truth - 1e-9
    assert values == sorted(values, reverse=True)
    if found.plan.exact:
        assert values[-1] == (truth if np.isinf(truth) else pytest.approx(truth, abs=1e-10))
    assert found.settle()
    mixed = np.random.default_rng(seed).permutation(len(sizes)).tolist()  # maxima before sums: above as well
    assert min(bounds_of(factors, sizes, maximised, mixed, cells, 8)[1]) >= truth - 1e-9


@pytest.mark.parametrize("seed", [0, 2, 4, *(pytest.param(i, marks=pytest.mark.slow) for i in (6, 8))])
def test_passes_tighten_the_plain_bound(seed):
    factors, sizes, maximised = drawn_factors(seed)
    order = order_of(factors, sizes, maximised)
    truth = log_answer(factors, sizes, maximised)
    found, values = bounds_of(factors, sizes, maximised, order, 9, 22)
    assert values[-1] - truth <= max(0.5 * (values[0] - truth), 0.2)
    before = found.bound
    assert found.settle()
    roots = sum(node.message[0] for node in found.nodes if node.root)
    assert roots == pytest.approx(before, abs=1e-9)


@pytest.mark.parametrize("seed", [0, 4, 8])
def test_beliefs_and_entropies_are_gradients(seed):
    factors, sizes, maximised = drawn_factors(seed)
    maximised = maximised[:2]
    order = order_of(factors, sizes, maximised)
    found, _ = bounds_of(factors, sizes, maximised, order, 9, 6)
    assert found.settle()
    random, stop = np.random.default_rng(seed), lambda: False
    seen = {}
    step_weights = weighted_mini_buckets._step_weights
    weighted_mini_buckets._step_weights = lambda bucket, entropies: seen.update(
        {id(node): (node, each) for node, each in zip(bucket, entropies, strict=True)}
    )
    try:
        found._backward(1e-9, stop)
    finally:
        weighted_mini_buckets._step_weights = step_weights
    backs = {id(node): node.back.copy() for node in found.nodes}
    soft = [node for node in found.nodes if not node.hard]
    assert seen

    def central(change, step=1e-5):
        values = []
        for sign in (1, -1):
            change(sign * step)
            values.append(found._forward(stop))
            change(-sign * step)
        return (values[0] - values[1]) / (2 * step)

    found._forward(stop)
    for node in random.permutation(np.array(soft, object))[:6]:
        found._forward(stop)
        cond, _ = weighted_mini_buckets._conditional(node, node.weight)
        belief = cond * backs[id(node)] / cond.sum(0)
        place = tuple(int(random.integers(n)) for n in belief.shape)

        def change(by, node=node, place=place):
            node.base[place] += by

        assert central(change) == pytest.approx(belief[place], abs=1e-7)
    for node, entropy in seen.values():

        def change(by, node=node):
            node.weight += by

        assert central(change) == pytest.approx(entropy, rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("seed", [0, 1, 2, *(pytest.param(i, marks=pytest.mark.slow) for i in (3,))])
def test_shifts_sum_to_zero_and_leave_the_product_as_it_is(seed):
    factors, sizes, maximised = drawn_factors(seed)
    order = order_of(factors, sizes, maximised)
    found, _ = bounds_of(factors, sizes, maximised, order, 9, 15)
    found.settle()
    for bucket in found.buckets:
        np.testing.assert_allclose(sum(node.shift for node in bucket), 0, atol=1e-12)
        if not bucket[0].hard:
            assert sum(node.weight for node in bucket) == pytest.approx(1, abs=1e-12)
    random = np.random.default_rng(seed)
    for _ in range(50):
        places = {v: int(random.integers(size)) for v, size in sizes.items()}
        with np.errstate(divide="ignore"):
            before = sum(np.log(table[tuple(places[v] for v in scope)]) for scope, table in factors)
        after = 0.0
        for node, mini in zip(found.nodes, found.plan.mini_buckets, strict=True):
            table = node.base.reshape(node.shape)
            after += table[tuple(places[v] for v in mini.scope)] + node.shift[places[mini.scope[0]]]
        assert after == (before if np.isinf(before) else pytest.approx(before, abs=1e-9))


def test_whole_buckets_give_the_answer():
    for seed in range(6):
        factors, sizes, maximised = drawn_factors(seed)
        order = order_of(factors, sizes, maximised)
        found, values = bounds_of(factors, sizes, maximised, order, 10**9, 3)
        assert found.finished
        truth = log_answer(factors, sizes, maximised)
        assert values[-1] == (truth if np.isinf(truth) else pytest.approx(truth, rel=1e-10))


def test_partition_is_made_from_scopes_and_counts_its_cells():
    scopes, sizes = [(0, 1), (0, 2), (0, 3), (1, 2, 3)], dict.fromkeys(range(4), 2)
    plan = plan_mini_buckets(scopes, sizes, [0, 1, 2, 3], 8)
    assert [each.scope for each in plan.mini_buckets[:2]] == [(0, 1, 2), (0, 3)]
    assert plan.cells == sum(math.prod(sizes[v] for v in each.scope) for each in plan.mini_buckets)
    assert not plan.exact
    assert plan_mini_buckets(scopes, sizes, [0, 1, 2, 3], 16).exact
    parents = [kid for each in plan.mini_buckets for kid in each.kids]
    assert len(parents) == len(set(parents))


def test_a_stopped_pass_leaves_the_bound_as_it_is():
    factors, sizes, maximised = drawn_factors(2)
    order = order_of(factors, sizes, maximised)
    found, values = bounds_of(factors, sizes, maximised, order, 9, 5)
    for calls in range(1, 2 * len(found.buckets), 3):
        left = iter([False] * calls + [True] * 1000)
        assert found.tighten(stop=lambda left=left: next(left))
        assert found.bound == values[-1]
    truth = log_answer(factors, sizes, maximised)
    for _ in range(10):
        found.tighten()
    assert truth - 1e-9 <= found.bound <= values[-1]


def test_impossible_factors_are_proved_so():
    differ = np.array([[0.0, 1.0], [1.0, 0.0]])
    factors = [Factor((0, 1), differ), Factor((1, 2), differ), Factor((0, 2), differ)]
    found, _ = bounds_of(factors, dict.fromkeys(range(3), 2), [0], [2, 1, 0], 8, 0)
    found.tighten()
    assert found.bound == -math.inf
    assert found.finished
