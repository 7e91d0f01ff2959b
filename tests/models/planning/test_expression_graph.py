"""Nodes of an expression graph, against enumeration of independent events."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ethogram.models.planning import ExpressionGraph, compile_program
from ethogram.models.planning.local_expectation import local_expectation

NAMES = ("a", "b", "c", "d")


def value(graph, node, chances):
    """Value of a node at the probabilities of its inputs, by the program in NumPy."""
    program = compile_program(
        graph, NAMES[: len(chances)], (), [node], graph.constant(0.0), graph.constant(0.0)
    )
    columns = np.asarray(chances, float).reshape(len(chances), -1)
    return program.expectations(columns, np.zeros((0, columns.shape[1])))[0][0]


formulas = st.recursive(
    st.sampled_from(NAMES),
    lambda part: st.one_of(
        st.tuples(st.just("not"), part),
        st.tuples(st.sampled_from(("and", "or", "same")), part, part),
        st.tuples(st.just("if"), part, part, part),
    ),
    max_leaves=8,
)


def node_of(graph, formula):
    if isinstance(formula, str):
        return graph.input(formula)
    name, *parts = formula
    nodes = [node_of(graph, part) for part in parts]
    if name == "not":
        return graph.complement(nodes[0])
    if name == "and":
        return graph.every(nodes)
    if name == "or":
        return graph.some(nodes)
    return graph.same(*nodes) if name == "same" else graph.choose(*nodes)


def truth(formula, world):
    if isinstance(formula, str):
        return world[formula]
    name, *parts = formula
    if name == "not":
        return not truth(parts[0], world)
    if name == "and":
        return truth(parts[0], world) and truth(parts[1], world)
    if name == "or":
        return truth(parts[0], world) or truth(parts[1], world)
    if name == "same":
        return truth(parts[0], world) == truth(parts[1], world)
    return truth(parts[1], world) if truth(parts[0], world) else truth(parts[2], world)


def leaves(formula):
    return [formula] if isinstance(formula, str) else [leaf for part in formula[1:] for leaf in leaves(part)]


@settings(max_examples=60, deadline=None)
@given(formulas, st.lists(st.floats(0, 1), min_size=4, max_size=4))
def test_a_formula_is_its_truth_at_vertices_and_locally_its_expectation_inside(formula, chances):
    graph = ExpressionGraph()
    node = node_of(graph, formula)
    local = local_expectation(graph, node)
    worlds = np.array(list(itertools.product((0, 1), repeat=4)))
    met = np.array(
        [truth(formula, dict(zip(NAMES, map(bool, world), strict=True))) for world in worlds], float
    )
    np.testing.assert_allclose(value(graph, node, worlds.T), met, atol=1e-12)
    np.testing.assert_allclose(value(graph, local, worlds.T), met, atol=1e-12)
    weights = np.where(worlds, chances, 1 - np.array(chances)).prod(1)
    np.testing.assert_allclose(value(graph, local, chances), met @ weights, atol=1e-12)
    if len(set(leaves(formula))) == len(leaves(formula)) and "same" not in str(formula):
        np.testing.assert_allclose(value(graph, node, chances), met @ weights, atol=1e-12)


def test_expressions_are_read_operator_by_operator_as_in_the_authors_program():
    graph = ExpressionGraph()
    a, b, c = (graph.input(name) for name in "abc")
    twice = graph.some((graph.every((a, b)), graph.every((a, c))))
    never = graph.every((a, graph.complement(a)))
    assert value(graph, twice, [0.5] * 3) == pytest.approx(0.4375, abs=1e-12)
    assert value(graph, local_expectation(graph, twice), [0.5] * 3) == pytest.approx(0.375, abs=1e-12)
    assert value(graph, never, [0.3]) == pytest.approx(0.21, abs=1e-12)
    assert graph.value(local_expectation(graph, never)) == 0


@pytest.mark.parametrize("count", [1, 3, 4])
def test_counts_are_poisson_binomial(count):
    graph = ExpressionGraph()
    weights = (1.0, 1.0, 2.0, -0.5)[:count]
    chances = np.array([0.2, 0.7, 0.5, 0.9])[:count]
    events = [graph.input(name) for name in NAMES[:count]]
    parts = [{0.0: graph.complement(x), w: x} for w, x in zip(weights, events, strict=True)]
    found = graph.values_of_sum(parts, 3.0)
    wanted = {}
    for world in itertools.product((0, 1), repeat=count):
        at = round(3.0 + float(np.dot(weights, world)), 9)
        wanted[at] = wanted.get(at, 0.0) + np.where(world, chances, 1 - chances).prod()
    assert found.keys() == wanted.keys()
    for at, chance in wanted.items():
        assert value(graph, found[at], chances) == pytest.approx(chance, abs=1e-12)


def test_equal_expressions_are_one_node():
    graph = ExpressionGraph()
    a, b = graph.input("a"), graph.input("b")
    assert graph.every((a, b)) == graph.every((b, a))
    assert graph.complement(graph.complement(a)) == a
    assert graph.choose(a, b, b) == b
    assert graph.value(graph.every((a, graph.constant(0.0)))) == 0
    assert graph.value(graph.some((a, graph.constant(1.0)))) == 1


def test_sums_of_too_many_values_and_functions_without_a_value_are_refused():
    graph = ExpressionGraph()
    events = [graph.input(f"x{i}") for i in range(13)]
    many = [{0.0: graph.complement(x), 2.0**i: x} for i, x in enumerate(events)]
    with pytest.raises(ValueError, match="more than 4096 values"):
        graph.values_of_sum(many)
    with pytest.raises(ValueError, match="a function of 1, 0 has no value"):
        graph.combined(lambda x, y: x / y, {1.0: events[0]}, {0.0: events[1]})
    with pytest.raises(ValueError, match="reciprocal of 0 has no finite value"):
        graph.apply("reciprocal", graph.constant(0.0))
