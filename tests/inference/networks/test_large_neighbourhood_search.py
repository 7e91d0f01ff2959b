"""The tree of messages and the search on it, against enumeration of small random networks."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from ethogram.inference.networks.anytime import Answer, Closed
from ethogram.inference.networks.bucket_tree import BucketTree
from ethogram.inference.networks.elimination import (
    eliminate,
    elimination_order,
    exact_log_probability,
    independent_parts,
)
from ethogram.inference.networks.large_neighbourhood_search import (
    ConditionalProblem,
    _Climber,
    climb,
    neighbourhood,
)
from ethogram.inference.networks.zero_propagation import propagate_zeros, query_factors
from ethogram.models.networks.bayes_net import BayesNet
from ethogram.models.networks.marginal_map import MarginalMAP

few = pytest.mark.parametrize("seed", [0, 1, 2, *(pytest.param(i, marks=pytest.mark.slow) for i in (3, 4))])


def climbed(random, problem, places, next_start=None, **limits):
    """Answers of a climb by itself, and whether the last one is proved."""
    found = list(climb(random, problem, (places, "here"), next_start, **limits))
    answers = [event for event in found if isinstance(event, Answer)]
    return answers, isinstance(found[-1], Closed)


def crossed(climber, best, sent=None):
    """Whether a crossover improves the incumbent, and what it ends with."""
    climber.best = best
    before, crossing, turns = climber.problem.value(best), climber.cross(), 0
    try:
        next(crossing)
        while True:
            turns += 1
            crossing.send(sent)
    except StopIteration as end:
        return climber.value > before + 1e-9, end.value, turns


def every(query):
    return itertools.product(*(range(query.network.sizes[v]) for v in query.map_variables))


def same(found, truth):
    assert found == pytest.approx(truth, rel=1e-10) or found == truth


@few
def test_moving_about_the_tree_gives_every_answers_probability(seed, drawn):
    query = drawn(seed, 9)[1]
    tree = BucketTree(query_factors(query), dict(enumerate(query.network.sizes)), query.map_variables)
    random = np.random.default_rng(seed)
    answers = [list(map(int, states)) for states in every(query)]
    random.shuffle(answers)
    places = dict(zip(query.map_variables, answers[0], strict=True))
    same(tree.settle(places), exact_log_probability(query, answers[0]))
    for states in answers[1:10]:
        value = tree.move(dict(zip(query.map_variables, states, strict=True)))
        same(value, exact_log_probability(query, states))


@few
def test_between_holds_all_that_free_variables_depend_on(seed, drawn):
    query = drawn(seed, 9)[1]
    sizes = dict(enumerate(query.network.sizes))
    tree = BucketTree(query_factors(query), sizes, query.map_variables)
    random = np.random.default_rng(seed)
    base, other = ({v: int(random.integers(sizes[v])) for v in query.map_variables} for _ in range(2))
    tree.settle(other)
    for variable in query.map_variables:  # messages of another assignment, which must not stay
        tree.between({variable})
    tree.move(base)
    for count in (1, 2):
        for free in itertools.combinations(query.map_variables, count):
            values = {}
            for states in itertools.product(*(range(sizes[v]) for v in free)):
                answer = base | dict(zip(free, states, strict=True))
                values[states] = exact_log_probability(query, [answer[v] for v in query.map_variables])
            if max(values.values()) == -math.inf:
                continue
            factors = [factor for factor in tree.between(free) if factor.scope]
            found = {}
            for part in independent_parts(factors):
                inside = {v for scope, _ in part for v in scope}
                stages = [sorted(inside - set(free)), sorted(inside & set(free))]
                order = elimination_order([scope for scope, _ in part], sizes, stages)
                found |= eliminate(part, order.variables, set(free))[0]
            chosen = tuple(found.get(v, base[v]) for v in free)
            assert values[chosen] == pytest.approx(max(values.values()), rel=1e-10)


@few
def test_beliefs_are_posteriors(seed, drawn, enumerated):
    network, query = drawn(seed, 8)
    table = enumerated(network, query)
    if not table.any():
        return
    tree = BucketTree(query_factors(query), dict(enumerate(network.sizes)), ())
    tree.settle({})
    for axis, variable in enumerate(query.map_variables):
        belief = tree.belief(variable)
        truth = table.sum(tuple(i for i in range(table.ndim) if i != axis))
        np.testing.assert_allclose(belief / belief.sum(), truth / truth.sum(), atol=1e-12)


@pytest.mark.parametrize("seed", [0, 1, 2, 3, *(pytest.param(i, marks=pytest.mark.slow) for i in (4, 5))])
def test_climbs_end_at_the_best_answer_of_a_small_network(seed, drawn):
    query = drawn(seed, 9)[1]
    best = max(exact_log_probability(query, states) for states in every(query))
    if best == -math.inf:
        return
    problem = ConditionalProblem(query, propagate_zeros(query_factors(query)), query.map_variables)
    start = dict.fromkeys(problem.maximised, 0)
    answers, proved = climbed(np.random.default_rng(seed), problem, start, most_cells=2**20)
    places, value, _ = answers[-1]
    reported = [each.value for each in answers]
    states = problem.possible.whole(places)
    assert value == pytest.approx(best, rel=1e-10)
    assert exact_log_probability(query, [states[v] for v in query.map_variables]) == pytest.approx(
        best, rel=1e-10
    )
    assert proved
    assert reported == sorted(reported)


def test_small_tables_take_smaller_neighbourhoods_and_are_not_called_proofs():
    random, count = np.random.default_rng(0), 8
    parents = [(), (0,), *((i - 2, i - 1) for i in range(2, count))]
    tables = [random.dirichlet(np.ones(2), (2,) * len(each)) for each in parents]
    query = MarginalMAP(BayesNet(tuple(tables), tuple(parents)), {7: 1}, list(range(7)))
    problem = ConditionalProblem(query, propagate_zeros(query_factors(query)), query.map_variables)
    start = dict.fromkeys(problem.maximised, 0)
    answers, proved = climbed(np.random.default_rng(0), problem, start, most_cells=4, max_rounds=50)
    value = answers[-1].value
    best = max(exact_log_probability(query, states) for states in every(query))
    assert -math.inf < value <= best + 1e-9
    assert not proved


@pytest.mark.parametrize(
    "seed", [*range(6), *(pytest.param(i, marks=pytest.mark.slow) for i in range(6, 12))]
)
def test_one_variable_whose_table_is_too_large_is_tried_state_by_state(seed, drawn):
    network, query = drawn(seed, 8)
    query = MarginalMAP(network, dict(query.observed) | dict(query.soft), query.map_variables[:1])
    values = [exact_log_probability(query, states) for states in every(query)]
    if max(values) == -math.inf:
        return
    problem = ConditionalProblem(query, propagate_zeros(query_factors(query)), query.map_variables)
    start = dict.fromkeys(problem.maximised, 0)
    answers, proved = climbed(np.random.default_rng(0), problem, start, most_cells=2, max_rounds=20)
    places, value, _ = answers[-1]
    assert value == pytest.approx(max(values), rel=1e-10)
    assert proved
    assert values[problem.possible.whole(places)[query.map_variables[0]]] == pytest.approx(
        max(values), rel=1e-10
    )


def chain(count, seed, maximised):
    """A network in which every variable has the one before as its parent, and some MAP variables."""
    random = np.random.default_rng(seed)
    parents = [(), *((i - 1,) for i in range(1, count))]
    tables = [random.dirichlet(np.ones(2), (2,) * len(each)) for each in parents]
    return MarginalMAP(BayesNet(tuple(tables), tuple(parents)), {count - 1: 1}, maximised)


def test_a_climber_and_its_tree_hold_the_same_assignment():
    """After a crossover, which takes some clusters and leaves others, and after each variable was tried."""
    query, random = chain(12, 0, list(range(0, 11, 2))), np.random.default_rng(0)
    problem = ConditionalProblem(query, propagate_zeros(query_factors(query)), query.map_variables)
    for _ in range(5):
        here, best = ({v: int(random.integers(2)) for v in problem.maximised} for _ in range(2))
        climber = _Climber(problem, here)
        crossed(climber, best)
        for variable in problem.maximised:
            whole = problem.possible.whole(climber.places)
            same(climber.value, exact_log_probability(query, [whole[v] for v in query.map_variables]))
            same(problem.constant + climber.tree.move({}), climber.value)
            climber.try_each(variable)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_climbs_from_many_starts_end_at_the_best_though_few_variables_are_free_at_once(seed):
    query = chain(12, seed, list(range(0, 11, 2)))
    best = max(exact_log_probability(query, states) for states in every(query))
    problem = ConditionalProblem(query, propagate_zeros(query_factors(query)), query.map_variables)
    random = np.random.default_rng(seed)
    perturbs = []

    def next_start(best):
        perturbs.append(best is not None)
        places = {variable: int(random.integers(2)) for variable in problem.maximised}
        flipped = problem.maximised[int(random.integers(len(places)))]
        return (places if best is None else best | {flipped: 1 - best[flipped]}), "a flip"

    start = next_start(None)[0]
    answers, proved = climbed(random, problem, start, next_start, most_cells=4, max_rounds=60)
    places, value, _ = answers[-1]
    assert not proved
    assert value == pytest.approx(best, rel=1e-10)
    assert problem.value(places) == pytest.approx(best, rel=1e-10)
    for each, claimed, _ in answers:
        assert problem.value(each) == pytest.approx(claimed, rel=1e-10)
    assert any(perturbs), "the incumbent was never perturbed"
    assert not all(perturbs[1:]), "there were no other starts"


def test_neighbourhoods_hang_together_and_clusters_lie_apart():
    query = chain(40, 0, list(range(0, 39, 2)))
    problem = ConditionalProblem(query, propagate_zeros(query_factors(query)), query.map_variables)
    assert problem.within(10, 1) == {10}  # the next is no MAP variable
    assert problem.within(10, 2) == {8, 10, 12}
    assert problem.clusters([0, 2, 4, 12, 14, 38], 2) == [[0, 2, 4], [12, 14], [38]]
    assert problem.clusters([0, 6], 5) == [[0], [6]]
    assert problem.clusters([0, 6], 6) == [[0, 6]]
    random = np.random.default_rng(0)
    for along_path in (False, True):
        for count in (1, 5, 20):
            found = neighbourhood(random, problem, count, around=[20], along_path=along_path)
            assert len(found) == count
            assert 20 in found
            assert found <= set(problem.maximised)
            assert len(problem.clusters(sorted(found), 6)) == 1


def test_a_cluster_that_is_better_elsewhere_is_taken_over():
    fair = np.array([0.5, 0.5])
    copies = np.array([[0.9, 0.1], [0.2, 0.8]])
    network = BayesNet((fair, copies, fair, copies), ((), (0,), (), (2,)))
    query = MarginalMAP(network, {1: 0, 3: 1}, [0, 2])
    problem = ConditionalProblem(query, propagate_zeros(query_factors(query)), query.map_variables)
    here, best = {0: 0, 2: 0}, {0: 1, 2: 1}  # each is right about one of two variables that never meet
    climber = _Climber(problem, here)
    assert crossed(climber, best)[0]
    assert climber.places == {0: 0, 2: 1}
    assert climber.value == pytest.approx(math.log(0.5 * 0.9 * 0.5 * 0.8), rel=1e-12)
    assert not crossed(climber, {0: 0, 2: 1})[0]
    climber.go(here)
    assert crossed(climber, best, sent=here) == (False, here, 1), "it goes on from what is sent"
    assert climber.places == best


def test_hundreds_of_walls_over_one_hidden_variable():
    """One hidden variable with 170 observed children, each possible for half of the answers, parities among them."""
    random, count = np.random.default_rng(0), 170
    tables, parents = [np.array([0.3, 0.3, 0.4])] + [np.array([0.4, 0.6])] * count, [()] * (count + 1)
    child = np.array([[[0.5, 0.5], [1, 0]], [[1, 0], [0.5, 0.5]], [[0.5, 0.5], [0.5, 0.5]]])
    tables += [child] * count
    parents += [(0, 1 + i) for i in range(count)]
    observed = dict.fromkeys(range(1 + count, 1 + 2 * count), 1)
    truth = random.integers(2, size=count + 1)
    even = np.zeros((2, 2, 2, 2))
    for each in np.ndindex(2, 2, 2):
        even[each][sum(each) % 2] = 1
    for _ in range(140):
        three = 1 + random.permutation(count)[:3]
        observed[len(tables)] = int(truth[three].sum() % 2)
        tables.append(even)
        parents.append(tuple(three.tolist()))
    query = MarginalMAP(BayesNet(tuple(tables), tuple(parents)), observed, list(range(1, count + 1)))
    problem = ConditionalProblem(query, propagate_zeros(query_factors(query)), query.map_variables)
    climber = _Climber(problem, dict.fromkeys(problem.maximised, 0))
    assert not climber.possible
    assert math.isfinite(climber.value)
    answers, proved = climbed(random, problem, climber.places, most_cells=2**16, max_rounds=5)
    assert all(each.value == problem.value(each.places) for each in answers)
    assert not proved
