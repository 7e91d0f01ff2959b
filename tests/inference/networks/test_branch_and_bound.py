"""Branch and bound against enumeration, apart from the hybrid: no false proof, no wrong answer, bounds on the way."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from ethogram.inference.networks import branch_and_bound
from ethogram.inference.networks.anytime import Clock
from ethogram.inference.networks.branch_and_bound import BranchAndBound, component_sums
from ethogram.inference.networks.elimination import independent_parts
from ethogram.inference.networks.mini_bucket_plan import bounded_order, plan_mini_buckets
from ethogram.inference.networks.staged_search import StagedSearch
from ethogram.inference.networks.weighted_mini_buckets import WeightedMiniBuckets
from ethogram.inference.networks.zero_propagation import Factor, ReducedFactors, propagate_zeros


def order_of(factors, sizes, maximised):
    """Bounded order of all parts."""
    possible = ReducedFactors(factors, {v: np.arange(size) for v, size in sizes.items()})
    return [v for i in range(len(possible.parts)) for v in bounded_order(possible, i, maximised)]


def drawn(seed):
    """Connected factors over seven to eleven variables, half of the time with zeros, and maximised variables."""
    random = np.random.default_rng(seed)
    count = int(random.integers(7, 12))
    sizes = {v: int(size) for v, size in enumerate(random.integers(2, 4, count))}
    scopes = [(v, int(random.integers(v))) for v in range(1, count)]
    scopes += [tuple(random.permutation(count)[:3].tolist()) for _ in range(count)]
    factors = []
    for scope in scopes:
        table = random.gamma(0.4, size=[sizes[v] for v in scope])
        factors.append(Factor(scope, table * (random.random(table.shape) > 0.3) if seed % 2 else table))
    many = (
        count if seed % 5 == 0 else int(random.integers(1, count + 1))
    )  # a fifth are most probable explanations
    return factors, sizes, random.permutation(count)[:many].tolist()


def enumerated(factors, sizes, maximised):
    """Log of p(d, e), with one axis for every maximised variable in order."""
    letters = "abcdefghijkl"
    words = ["".join(letters[v] for v in scope) for scope, _ in factors]
    asked = "".join(letters[v] for v in maximised)
    with np.errstate(divide="ignore"):
        return np.log(np.einsum(",".join(words) + "->" + asked, *(table for _, table in factors)))


def searched(factors, sizes, maximised, cells, passes):
    order = order_of(factors, sizes, maximised)
    plan = plan_mini_buckets([scope for scope, _ in factors], sizes, order, cells)
    bound = WeightedMiniBuckets(factors, sizes, maximised, order, plan)
    for _ in range(passes):
        bound.tighten()
    assert bound.settle()
    return BranchAndBound(bound, sizes, maximised, component_sums(factors, sizes, maximised))


@pytest.mark.parametrize("first", [0, *(pytest.param(i, marks=pytest.mark.slow) for i in (30,))])
def test_answers_proofs_and_bounds_of_small_networks(first):
    for seed in range(first, first + 30):
        factors, sizes, maximised = drawn(seed)
        table = enumerated(factors, sizes, maximised)
        truth = float(table.max())
        search = searched(factors, sizes, maximised, (6, 9, 18)[seed % 3], (1, 3, 8)[seed // 3 % 3])
        if seed % 4 == 0 and truth > -np.inf:
            worse = np.unravel_index(np.argsort(table, axis=None)[table.size // 2], table.shape)
            search.offer({v: int(i) for v, i in zip(maximised, worse, strict=True)}, float(table[worse]))
        bounds = [search.upper_bound]
        while not search.closed:
            search.advance(lambda: False)
            bounds.append(search.upper_bound)
        assert min(bounds) >= truth - 1e-9
        assert bounds == sorted(bounds, reverse=True)
        if truth == -np.inf:
            assert search.best is None
            continue
        assert search.value == pytest.approx(truth, abs=1e-9)
        assert table[tuple(search.best[v] for v in maximised)] == pytest.approx(truth, abs=1e-9)


@pytest.mark.parametrize("seed", [1, 2, 3, 4, *(pytest.param(i, marks=pytest.mark.slow) for i in (5, 6))])
def test_values_never_rise_on_the_way_and_end_in_the_exact_one(seed):
    factors, sizes, maximised = drawn(seed)
    table = enumerated(factors, sizes, maximised)
    search = searched(factors, sizes, maximised, 9, 5)
    random = np.random.default_rng(seed)
    for _ in range(20):
        places = {v: int(random.integers(sizes[v])) for v in maximised}
        column = np.array([[places[v]] for v in search.variables])
        f = np.array([search.upper_bound])
        for depth in range(len(search.variables) + 1):
            if f[0] == -np.inf:
                break  # such assignments are cut
            for closing in search.closing[depth]:
                after = search._summed(closing, f, column, lambda: False)
                assert after[0] <= f[0]
                f = after
            if depth < len(search.variables):
                after = f.copy()
                for step in search.steps[depth]:
                    after += step.at(column)[places[search.variables[depth]]]
                assert after[0] <= f[0] + 1e-9
                f = after
        truth = table[tuple(places[v] for v in maximised)]
        assert f[0] == (truth if np.isinf(truth) else pytest.approx(truth, abs=1e-9))


def test_tolerances_of_many_parts_do_not_add_up():
    chance = np.array([0.5 - 2e-10, 0.5 + 2e-10])  # 8e-10 nats apart
    factors = [Factor((coin,), chance) for coin in range(40)]
    search = StagedSearch(propagate_zeros(factors), range(40), Clock(None), 2**10)
    search.offer(dict.fromkeys(range(40), 0))
    while not search.closed:
        search.step()
    assert search.value == pytest.approx(40 * np.log(chance[1]), abs=1e-9)
    assert search.news() == dict.fromkeys(range(40), 1)


@pytest.mark.parametrize("seed", [46, 99, 162])  # of which some depth has the sums of two components
def test_a_search_stopped_between_two_sums_goes_on(seed):
    factors, sizes, maximised = drawn(seed)
    truth = float(enumerated(factors, sizes, maximised).max())
    search = searched(factors, sizes, maximised, 6, 1 + 2 * (seed % 2))
    assert any(len(closing) > 1 for closing in search.closing)
    stops = itertools.cycle([False, True])
    while not search.closed:
        search.advance(stops.__next__)
        assert search.upper_bound >= truth - 1e-9
    assert search.value == pytest.approx(truth, abs=1e-9)


def test_with_little_memory_the_deepest_go_first(monkeypatch):
    monkeypatch.setattr(branch_and_bound, "OPEN_BYTES", 100)
    monkeypatch.setattr(branch_and_bound, "MOST_ROWS", 8)
    for seed in range(20, 32):
        factors, sizes, maximised = drawn(seed)
        truth = float(enumerated(factors, sizes, maximised).max())
        search = searched(factors, sizes, maximised, 6, 1)
        most = 0
        while not search.closed:
            search.advance(lambda: False)
            most = max(most, search._bytes)
        assert most < 5000
        assert search.value == (truth if np.isinf(truth) else pytest.approx(truth, abs=1e-9))


def test_components_and_their_contexts():
    # 0 - 1 - 2 - 3 - 4 in a row, with 2 held: two components, both beside it
    tables = [np.random.default_rng(i).random((2, 2)) for i in range(4)]
    factors = [Factor((i, i + 1), table) for i, table in enumerate(tables)]
    assert len(independent_parts(factors)) == 1
    sums = component_sums(factors, dict.fromkeys(range(5), 2), [2])
    assert sorted((each.hidden, each.context) for each in sums) == [((0, 1), (2,)), ((3, 4), (2,))]
    for each in sums:
        left = each.hidden == (0, 1)
        whole = (tables[0] @ tables[1]).sum(0) if left else (tables[2] @ tables[3]).sum(1)
        for place in (0, 1):
            assert each.cache.get((place,)) is None
            assert each.compute((place,)) == pytest.approx(np.log(whole[place]), rel=1e-12)
            assert each.cache.get((place,)) == pytest.approx(np.log(whole[place]), rel=1e-12)
