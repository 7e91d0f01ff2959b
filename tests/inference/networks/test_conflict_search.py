"""Search with learned conflicts against enumeration, on puzzles without a solution, and across calls."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from ethogram.inference.networks import conflict_search
from ethogram.inference.networks.conflict_search import ConflictSearch, luby
from ethogram.inference.networks.samples import draw_possible, log_joint
from ethogram.inference.networks.zero_propagation import Factor, bit_places, propagate_zeros, query_factors
from ethogram.models.networks.bayes_net import BayesNet
from ethogram.models.networks.marginal_map import MarginalMAP


def tables(seed):
    """Tables of three of 6 to 8 variables with 2 to 4 states, so many zeros that about half have no solution."""
    random = np.random.default_rng(seed)
    sizes = random.integers(2, 5, int(random.integers(6, 9)))
    scopes = [tuple(random.permutation(len(sizes))[:3].tolist()) for _ in range(2 * len(sizes))]
    share = random.uniform(0.4, 0.7)
    return [Factor(scope, (random.random(sizes[list(scope)]) < share).astype(float)) for scope in scopes]


def solutions(factors):
    """Possible assignments, a row each, and the variables in the order of the columns."""
    names = sorted({variable for scope, _ in factors for variable in scope})
    size = {v: n for scope, table in factors for v, n in zip(scope, table.shape, strict=True)}
    everything = np.array(list(itertools.product(*(range(size[v]) for v in names))))
    good = np.ones(len(everything), bool)
    for scope, table in factors:
        good &= table[tuple(everything[:, [names.index(v) for v in scope]].T)] > 0
    return everything[good], names


def drawn_from(random):
    def pick(variable, left):
        return int(random.choice(bit_places(left)))

    return pick


def solve(search, random, **settings):
    order = random.permutation(list(search.number)).tolist()
    return search.solve(order, drawn_from(random), **settings)


@pytest.mark.parametrize("first", [0, *(pytest.param(i, marks=pytest.mark.slow) for i in (30,))])
def test_a_solution_is_found_or_its_absence_is_proved(first, monkeypatch):
    monkeypatch.setattr(conflict_search, "RUN", 2)  # small puzzles restart and forget too
    monkeypatch.setattr(conflict_search, "SHORT", 1)
    monkeypatch.setattr(conflict_search, "MOST", 3)
    impossible = 0
    for seed in range(first, first + 30):
        factors, random = tables(seed), np.random.default_rng(seed)
        truth, names = solutions(factors)
        search = ConflictSearch(factors)
        for _ in range(4):
            found = solve(search, random)
            assert search.impossible == (len(truth) == 0) == (found is None), seed
            if found is not None:
                assert (truth == [found[v] for v in names]).all(1).any(), seed
        impossible += search.impossible
    assert 5 < impossible < 25


@pytest.mark.parametrize("first", [0, *(pytest.param(i, marks=pytest.mark.slow) for i in (40,))])
def test_what_is_wanted_is_kept_where_it_can_be(first):
    kept = 0
    for seed in range(first, first + 40):
        factors, random = tables(seed), np.random.default_rng(seed)
        truth, names = solutions(factors)
        if not len(truth):
            continue
        search = ConflictSearch(factors)
        for _ in range(3):
            states = [int(random.integers(size)) for size in search.sizes]
            wanted = list(zip(search.number, states, strict=True))
            left = truth
            for variable, state in wanted:  # each where it agrees with all before that were kept
                with_it = left[left[:, names.index(variable)] == state]
                left, kept = (with_it, kept + 1) if len(with_it) else (left, kept)
            found = solve(search, random, wanted=wanted)
            assert (left == [found[v] for v in names]).all(1).any(), seed
    assert kept > 40


def pigeons(count, holes):
    """Pigeons, a variable each, no two of which may share a hole."""
    return [Factor(pair, 1.0 - np.eye(holes)) for pair in itertools.combinations(range(count), 2)]


def test_pigeons_without_a_hole_each_are_proved_impossible():
    search = ConflictSearch(pigeons(6, 5))
    assert solve(search, np.random.default_rng(0)) is None
    assert search.impossible and search.conflicts > 10
    search = ConflictSearch(pigeons(6, 6))
    found = solve(search, np.random.default_rng(0))
    assert sorted(found.values()) == list(range(6))


def parities(seed, count):
    """Random equations modulo 2 in three of as many variables, with a solution."""
    random = np.random.default_rng(seed)
    truth, factors = random.integers(0, 2, count), []
    odd = np.indices((2, 2, 2)).sum(0) % 2
    for _ in range(count):
        scope = tuple(random.permutation(count)[:3].tolist())
        factors.append(Factor(scope, (odd == truth[list(scope)].sum() % 2).astype(float)))
    return factors


def test_what_is_learned_serves_later_calls():
    factors = parities(3, 60)
    search, random = ConflictSearch(factors), np.random.default_rng(0)
    assert solve(search, random, most_conflicts=3) is None
    assert search.conflicts == 3 and not search.impossible
    assert solve(search, random, stop=lambda: True) is None
    counts = []
    for _ in range(5):
        before = search.conflicts
        found = solve(search, random)
        assert all(table[tuple(found[v] for v in scope)] for scope, table in factors)
        counts.append(search.conflicts - before)
    assert counts[0] > 10 * (counts[-1] + 1)


def test_samples_have_the_probabilities_of_their_rows():
    """Without evidence below there is no dead end, and the samples are those of the network."""
    random = np.random.default_rng(0)
    first, second = np.array([0.7, 0.3]), np.array([[0.5, 0.5, 0.0], [0.0, 0.1, 0.9]])
    network = BayesNet((first, second), ((), (0,)))
    query = MarginalMAP(network, None, [0])
    possible = propagate_zeros(query_factors(query))
    search = ConflictSearch(possible.factors)
    draws = [draw_possible(random, query, possible, search, {}) for _ in range(200)]
    share = np.zeros((2, 3))
    for states in draws:
        share[states[0], states[1]] += 1 / len(draws)
    truth = first[:, None] * second
    assert (np.abs(share - truth) <= 4.5 * np.sqrt(truth * (1 - truth) / len(draws))).all()


@pytest.mark.parametrize("seed", range(12))
def test_samples_agree_with_the_evidence(seed, drawn, enumerated):
    network, query = drawn(seed)
    possible = propagate_zeros(query_factors(query))
    if possible.impossible:
        return
    search, random = ConflictSearch(possible.factors), np.random.default_rng(seed)
    states = draw_possible(random, query, possible, search, {})
    assert (states is None) == search.impossible == (enumerated(network, query).max() == -np.inf)
    if states is not None:
        assert log_joint(query, states) > -np.inf
        assert all(states[variable] == state for variable, state in query.observed)


def test_the_sequence_of_restarts():
    assert [luby(number) for number in range(1, 16)] == [1, 1, 2, 1, 1, 2, 4, 1, 1, 2, 1, 1, 2, 4, 8]
