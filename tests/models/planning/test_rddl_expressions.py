"""Sizes of expressions, which are counted before they are expanded."""

import types

import pytest

from ethogram.models.memory_bound import memory_bound
from ethogram.models.planning.expression_graph import ExpressionGraph
from ethogram.models.planning.rddl_expressions import BYTES_OF_TERM, Quantity, RDDLExpressions


def made(kind, name, *args):
    return types.SimpleNamespace(etype=(kind, name), args=list(args))


def nested(depth, body):
    for level in range(depth):
        body = made("aggregation", "forall", ("typed_var", (f"?x{level}", "thing")), body)
    return body


def test_nested_quantifiers_are_refused_before_they_are_expanded():
    graph, calls = ExpressionGraph(), []

    def fluent(name, objects):
        calls.append(name)
        return Quantity(graph.constant(1.0), True)

    body = types.SimpleNamespace(etype=("pvar", "p"), args=("p", None))
    expressions = RDDLExpressions(graph, {"thing": [f"t{at}" for at in range(100)]}, fluent)
    for wide in (nested(3, body), nested(1, made("boolean", "^", nested(2, body), body))):
        with pytest.raises(ValueError, match=r"sums and quantifiers would have shape \(1010100,\)"):
            expressions.translate(wide)
    assert not calls
    few = 10_100 * BYTES_OF_TERM
    with memory_bound(few):
        assert graph.value(expressions.translate(nested(2, body)).node) == 1.0
    assert len(calls) == 10_000
    with memory_bound(few), pytest.raises(ValueError, match="nest fewer quantifiers"):
        expressions.translate(nested(2, body))  # after the terms that are there
