"""Parity checks: equations and substitutions against enumeration, codes that no search satisfies, contradictions."""

from __future__ import annotations

import itertools
import math

import jax
import numpy as np
import pytest

from ethogram.inference.networks import elimination, parity_checks
from ethogram.inference.networks.conflict_search import ConflictSearch
from ethogram.inference.networks.elimination import exact_log_probability, exact_map, plan_elimination
from ethogram.inference.networks.exact_queries import variable_posteriors
from ethogram.inference.networks.parity_checks import Parities, substituted
from ethogram.inference.networks.samples import draw_possible, log_joint
from ethogram.inference.networks.solve_mmap import ImpossibleEvidenceError, solve_mmap
from ethogram.inference.networks.zero_propagation import minimal_conflict, propagate_zeros, query_factors
from ethogram.models.networks.bayes_net import BayesNet
from ethogram.models.networks.marginal_map import MarginalMAP


def code(bits, checks, each, seed, maximised=1.0, contradiction=False):
    """Bits with priors, and observed parities of some of them, of a hidden truth."""
    random = np.random.default_rng(seed)
    tables = [np.array([1 - p, p]) for p in random.uniform(0.05, 0.95, bits)]
    parents, truth, observed = [()] * bits, random.integers(2, size=bits), {}
    even = (np.indices((2,) * (each + 1)).sum(0) % 2 == 0).astype(float)
    for i in range(checks + contradiction):
        scope = parents[bits] if i == checks else tuple(random.permutation(bits)[:each].tolist())
        observed[len(tables)] = int(truth[list(scope)].sum() + (i == checks)) % 2
        tables.append(even)
        parents.append(scope)
    network = BayesNet(tuple(tables), tuple(parents))
    return MarginalMAP(network, observed, list(range(int(maximised * bits))))


def solutions(query):
    """All solutions of the checks of a code, by elimination of a dense matrix: integers (solution, bit)."""
    checks, bits = query.observed, query.observed[0][0]
    rows = np.zeros((len(checks), bits + 1), int)
    for row, (check, state) in zip(rows, checks, strict=True):
        row[list(query.network.parents[check])], row[-1] = 1, state
    pivots: list[int] = []
    for column in range(bits):
        place = next((i for i in range(len(pivots), len(rows)) if rows[i, column]), None)
        if place is not None:
            rows[[len(pivots), place]] = rows[[place, len(pivots)]]
            others = rows[:, column].astype(bool)
            others[len(pivots)] = False
            rows[others] ^= rows[len(pivots)]
            pivots.append(column)
    free = [column for column in range(bits) if column not in pivots]
    found = np.zeros((1 << len(free), bits), int)
    found[:, free] = np.arange(1 << len(free))[:, None] >> np.arange(len(free)) & 1
    found[:, pivots] = (found[:, free] @ rows[: len(pivots), free].T + rows[: len(pivots), -1]) % 2
    return found


def parity(axes, right):
    return np.where(np.indices((2,) * axes).sum(0) % 2 == right, 0.7, 0.0)


@pytest.mark.parametrize("seed", range(40))
def test_substitution_against_enumeration(seed, monkeypatch):
    """Sums over the other variables for every place of the maximised ones, which depend on each other alone."""
    monkeypatch.setattr(parity_checks, "LEAST_TIED_SHARE", 0.0)
    random, count = np.random.default_rng(seed), 6
    factors = [((i,), random.random(2)) for i in range(5)] + [((5,), random.random(3))]
    for _ in range(random.integers(2, 7)):
        scope = tuple(random.permutation(count)[: random.integers(2, 4)].tolist())
        shape = tuple(3 if v == 5 else 2 for v in scope)
        table = random.random(shape) * (random.random(shape) < 0.5)
        factors.append(
            (scope, parity(len(scope), seed % 2) if 5 not in scope and random.random() < 0.7 else table)
        )
    maximised = random.permutation(count)[:3].tolist()
    found = substituted(factors, maximised)
    truth, sums = np.zeros((3,) * 3), np.zeros((3,) * 3)
    for values in itertools.product(*([(0, 1)] * 5), range(3)):
        truth[tuple(values[v] for v in maximised)] += math.prod(
            float(t[tuple(values[v] for v in s)]) for s, t in factors
        )
    if found is None:
        assert not Parities(factors).rows, "no equations"
        return
    if found.log_constant == -math.inf:
        assert not truth.any()
        return
    free, tables = (
        [v for v in range(count) if v not in found.tied],
        list(zip(found.scopes, found.tables(), strict=True)),
    )
    assert all(set(found.tied[v][0]) <= set(maximised) for v in maximised if v in found.tied)
    for values in itertools.product(*(range(3 if v == 5 else 2) for v in free)):
        places = dict(zip(free, values, strict=True))
        whole = places | {v: (sum(places[u] for u in each) + b) % 2 for v, (each, b) in found.tied.items()}
        share = math.prod(float(t[tuple(places[v] for v in s)]) for s, t in tables)
        sums[tuple(whole[v] for v in maximised)] += share * math.exp(found.log_constant)
    np.testing.assert_allclose(sums, truth, atol=1e-12)


@pytest.mark.parametrize("maximised", [1.0, 0.6])
def test_codes_with_few_free_bits_are_exact(maximised, monkeypatch):
    """46 bits and 35 checks: at most a few thousand solutions, and tables no larger than their number."""
    query = code(46, 35, 5, 0, maximised)
    found, many = solutions(query), len(query.map_variables)
    logs = np.log(np.stack([query.network.tables[i] for i in range(46)]))
    joint = logs[np.arange(46), found].sum(1)
    _, which = np.unique(found[:, :many], axis=0, return_inverse=True)
    sums = np.full(which.max() + 1, -np.inf)
    np.logaddexp.at(sums, which.ravel(), joint)
    answer = exact_map(query, most_cells=len(found))
    assert answer.log_probability == pytest.approx(sums.max(), rel=1e-12)
    assert exact_log_probability(query, answer.states, most_cells=len(found)) == pytest.approx(
        sums.max(), rel=1e-12
    )
    assert exact_log_probability(query, most_cells=len(found)) == pytest.approx(
        np.logaddexp.reduce(joint), rel=1e-12
    )
    solved = solve_mmap(jax.random.key(0), query, most_cells=len(found))
    assert solved.proved_optimal and solved.log_probability == pytest.approx(sums.max(), rel=1e-12)
    monkeypatch.setattr(elimination, "substituted", lambda *arguments: None)
    possible = propagate_zeros(query_factors(query))
    assert plan_elimination(possible, query.map_variables).cells > len(found), (
        "the test needs the substitution"
    )


def test_a_sample_of_a_code_that_no_search_satisfies():
    """240 bits, 180 checks of six: solutions near the wanted states, of which the first come true."""
    query = code(240, 180, 6, 0)
    possible = propagate_zeros(query_factors(query))
    search, random = ConflictSearch(possible.factors), np.random.default_rng(0)
    drawn = draw_possible(random, query, possible, search, {}, most_conflicts=20)
    assert drawn is not None and log_joint(query, drawn) > -math.inf
    for _ in range(3):
        wanted = {int(v): 1 - drawn[int(v)] for v in random.permutation(240)[:20]}
        near = draw_possible(random, query, possible, search, wanted, most_conflicts=20)
        assert log_joint(query, near) > -math.inf
        assert {v: near[v] for v in wanted} == wanted, "twenty of sixty free bits"


def test_posteriors_of_a_code_keep_to_the_cells_although_its_checks_could_be_substituted():
    query = code(60, 50, 6, 0)
    possible = propagate_zeros(query_factors(query))
    assert plan_elimination(possible, (), 2**12).cells <= 2**12
    found = variable_posteriors(query, most_cells=2**12)  # the tree over all bits has 2**39 cells
    assert found.kind == "estimate"
    assert all(np.isclose(each.sum(), 1) for each in found.probabilities.values())


@pytest.mark.slow
def test_a_code_of_400_bits_has_an_answer():
    query = code(400, 300, 6, 0)
    found = solve_mmap(jax.random.key(0), query, time_limit=None, max_steps=2)
    assert found.log_probability > -math.inf
    assert found.log_probability == pytest.approx(exact_log_probability(query, found.states), rel=1e-12)


def test_checks_that_contradict_each_other_are_named():
    """Beyond propagation of zeros, which sees no more than one table at a time."""
    query = code(40, 20, 4, 0, 0.5, contradiction=True)
    assert not propagate_zeros(query_factors(query)).impossible
    assert minimal_conflict(query) in ((40, 60), (60, 40))
    with pytest.raises(ImpossibleEvidenceError, match=r"evidence has probability zero: x40 = ., x60 = ."):
        solve_mmap(jax.random.key(0), query)
    wide = code(240, 180, 6, 0, contradiction=True)
    possible = propagate_zeros(query_factors(wide))
    search = ConflictSearch(possible.factors)
    assert draw_possible(np.random.default_rng(0), wide, possible, search, {}, most_conflicts=20) is None
    assert search.impossible
