"""Exact expectation of a formula given independent parents, as a decision diagram."""

from __future__ import annotations

import numpy as np

from ethogram.models.planning.expression_graph import (
    FUNCTIONS,
    ExpressionGraph,
    Function,
    Input,
    Node,
    Polynomial,
    Variable,
)

__all__ = ["MOST_PARENTS", "local_expectation"]

MOST_PARENTS = 12
"""Parents of an expression up to which its values are tabulated."""


def local_expectation(graph: ExpressionGraph, node: Node) -> Node:
    """A node that is multilinear in its parents: the expectation of `node` where they are independent events.

    Parents are inputs and variables. Of a sum, each term is taken apart; a term of more than
    :data:`MOST_PARENTS` parents is left as it is. Products of one parent with itself, which make "a and not a" possible
    where an expression is read operator by operator, are gone.
    """
    made = graph.nodes[node]
    if isinstance(made, Polynomial) and len(made.terms) > 1:
        needed = _parents_of(graph, node)
        if len(needed) > MOST_PARENTS:
            terms = [
                (weight, local_expectation(graph, graph.multiply(factors))) for weight, factors in made.terms
            ]
            return graph.add(terms, made.constant)
    needed = _parents_of(graph, node)
    if len(needed) > MOST_PARENTS:
        return node
    known: dict[tuple[int, bytes], Node] = {}

    def diagram(first: int, table: np.ndarray) -> Node:
        """The expectation over parents `first` and later of a table of their values."""
        if (table == table[0]).all():
            return graph.constant(float(table[0]))
        key = first, table.tobytes()
        if key not in known:
            low, high = np.split(table, 2)
            known[key] = graph.choose(needed[first], diagram(first + 1, high), diagram(first + 1, low))
        return known[key]

    return diagram(0, _table(graph, node, needed))


def _parents_of(graph: ExpressionGraph, node: Node) -> list[Node]:
    """The parents that a node depends on."""
    reachable = graph.reachable([node], (Input, Variable))
    return [each for each in reachable if isinstance(graph.nodes[each], Input | Variable)]


def _table(graph: ExpressionGraph, node: Node, needed: list[Node]) -> np.ndarray:
    """Values of a node for all values of its parents, the first parent changing slowest."""
    count = len(needed)
    states = (np.arange(2**count) >> np.arange(count)[::-1, None]) & 1
    values: dict[Node, np.ndarray] = dict(zip(needed, states.astype(float), strict=True))

    def value(each: Node) -> np.ndarray:
        if each not in values:
            made = graph.nodes[each]
            if isinstance(made, Function):
                values[each] = np.vectorize(FUNCTIONS[made.name], otypes=[float])(value(made.argument))
            else:
                assert isinstance(made, Polynomial)
                total = np.full(2**count, made.constant)
                for weight, factors in made.terms:
                    total = total + weight * np.prod([value(factor) for factor in factors], axis=0)
                values[each] = total
        return values[each]

    return value(node)
