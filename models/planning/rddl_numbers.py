"""Numbers in RDDL expressions, with the probabilities of the values that they may have.

Comparisons, and functions that are no polynomials, need more than the mean of a number. Sums stay sums of events until
then, so that an event that is added here and subtracted there is gone.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ethogram.models.planning.expression_graph import ExpressionGraph, Input, Node

if TYPE_CHECKING:
    from ethogram.models.planning.rddl_expressions import RDDLExpressions

__all__ = ["FUNCTIONS_OF_NUMBERS", "Number", "extreme_of", "function_of", "number_of", "sum_of"]

FUNCTIONS_OF_NUMBERS: Mapping[str, Callable[..., float]] = {
    "abs": abs,
    "sgn": lambda x: math.copysign(1.0, x) if x else 0.0,
    "round": round,
    "floor": math.floor,
    "ceil": math.ceil,
    "exp": math.exp,
    "ln": math.log,
    "sqrt": math.sqrt,
    "min": min,
    "max": max,
    "pow": math.pow,
    "div": lambda x, y: x // y,
    "mod": lambda x, y: x % y,
    "fmod": lambda x, y: x % y,
    "log": math.log,
    "hypot": math.hypot,
}
EXTREMES: Mapping[str, Callable[..., float]] = {"minimum": min, "maximum": max}
Values = Mapping[float, Node]


class Number(NamedTuple):
    """A number that depends on events.

    Attributes
    ----------
    constant : what is added to the rest.
    events : weight of each input that is added.
    others : probabilities of the values of further terms, which are independent.
    """

    constant: float = 0.0
    events: Mapping[Node, float] = {}
    others: tuple[Values, ...] = ()

    @property
    def known(self) -> bool:
        """Whether it is a constant."""
        return not self.events and not self.others

    def scaled(self, weight: float) -> Number:
        """The number times a constant."""
        if weight == 0:
            return Number()
        return Number(
            weight * self.constant,
            {event: weight * each for event, each in self.events.items()},
            tuple({weight * value: prob for value, prob in each.items()} for each in self.others),
        )

    def values(self, graph: ExpressionGraph) -> dict[float, Node]:
        """Probabilities of its values, its events being independent."""
        events = [{0.0: graph.complement(event), weight: event} for event, weight in self.events.items()]
        return graph.values_of_sum([*events, *self.others], self.constant)

    def mean(self, graph: ExpressionGraph) -> Node:
        """Its expectation by its values."""
        return graph.add([(value, prob) for value, prob in self.values(graph).items()])


def sum_of(numbers: Iterable[Number]) -> Number:
    """The sum of numbers."""
    constant, events, others = 0.0, dict[Node, float](), list[Values]()
    for number in numbers:
        constant += number.constant
        others.extend(number.others)
        for event, weight in number.events.items():
            events[event] = events.get(event, 0.0) + weight
    return Number(constant, {event: weight for event, weight in events.items() if weight}, tuple(others))


def number_of(expressions: RDDLExpressions, expression: Any, bound: Mapping[str, str]) -> Number:
    """The number of an expression, with parameters bound to objects; events count 0 and 1.

    Raises
    ------
    ValueError : it is a value of an enumerated type, or takes too many different values.
    """
    (kind, name), arguments, graph = expression.etype, expression.args, expressions.graph
    if kind == "arithmetic":
        return _arithmetic(expressions, name, arguments, bound)
    if kind == "aggregation" and name in ("sum", "avg"):
        parts = [
            number_of(expressions, arguments[-1], each) for each in expressions.instances(arguments, bound)
        ]
        return sum_of(parts).scaled(1 / max(len(parts), 1) if name == "avg" else 1.0)
    if kind == "aggregation" and name == "prod":
        bindings = expressions.instances(arguments, bound)
        return functools.reduce(
            functools.partial(_combined, graph, lambda x, y: x * y),
            (number_of(expressions, arguments[-1], each) for each in bindings),
            Number(1.0),
        )
    if kind == "aggregation" and name in EXTREMES:
        return extreme_of(expressions, name, arguments, bound)
    if kind == "func":
        return function_of(expressions, name, arguments, bound)
    if kind == "randomvar" and name in ("KronDelta", "DiracDelta"):
        return number_of(expressions, arguments[0], bound)
    if kind == "control":
        branches = expressions.branches(name, arguments, bound)
        return _mixture(graph, [(prob, number_of(expressions, each, bound)) for prob, each in branches])
    if kind == "pvar":
        choices = expressions.choices(arguments, bound)
        return _mixture(graph, [(prob, _of_quantity(expressions, each)) for prob, each in choices])
    return _of_quantity(expressions, expressions.translate(expression, bound))


def function_of(
    expressions: RDDLExpressions, name: str, arguments: Sequence[Any], bound: Mapping[str, str]
) -> Number:
    """A function of :data:`FUNCTIONS_OF_NUMBERS` of expressions."""
    if name not in FUNCTIONS_OF_NUMBERS:
        raise ValueError(f"the function {name} is not supported")
    numbers = [number_of(expressions, each, bound) for each in arguments]
    return _combined(expressions.graph, FUNCTIONS_OF_NUMBERS[name], *numbers)


def extreme_of(
    expressions: RDDLExpressions, name: str, arguments: Sequence[Any], bound: Mapping[str, str]
) -> Number:
    """The ``minimum`` or ``maximum`` of an expression over objects."""
    parts = [number_of(expressions, arguments[-1], each) for each in expressions.instances(arguments, bound)]
    if not parts:
        raise ValueError(f"the {name} of no objects has no value")
    return functools.reduce(functools.partial(_combined, expressions.graph, EXTREMES[name]), parts)


def _of_quantity(expressions: RDDLExpressions, quantity: Any) -> Number:
    graph, node = expressions.graph, expressions.number(quantity)
    known = graph.value(node)
    if known is not None and (not quantity.event or known in (0.0, 1.0)):
        return Number(known)
    if not quantity.event:
        raise ValueError("a number whose values are not known stands in a comparison or a function")
    if isinstance(graph.nodes[node], Input):
        return Number(0.0, {node: 1.0})
    # Random intermediate fluents of equal probability are one node, and different events.
    return Number(0.0, {}, ({0.0: graph.complement(node), 1.0: node},))


def _arithmetic(
    expressions: RDDLExpressions, name: str, arguments: Sequence[Any], bound: Mapping[str, str]
) -> Number:
    left = number_of(expressions, arguments[0], bound)
    if len(arguments) == 1:
        return left.scaled(-1.0 if name == "-" else 1.0)
    if name == "*" and left == Number():
        return left
    right = number_of(expressions, arguments[1], bound)
    if name in ("+", "-"):
        return sum_of((left, right if name == "+" else right.scaled(-1.0)))
    if name == "*" and left.known:
        return right.scaled(left.constant)
    if right.known and (name == "*" or right.constant):
        return left.scaled(right.constant if name == "*" else 1 / right.constant)
    return _combined(
        expressions.graph, (lambda x, y: x * y) if name == "*" else (lambda x, y: x / y), left, right
    )


def _combined(graph: ExpressionGraph, function: Callable[..., float], *numbers: Number) -> Number:
    """A function of independent numbers."""
    return _from_distribution(graph, graph.combined(function, *(each.values(graph) for each in numbers)))


def _mixture(graph: ExpressionGraph, weighted: Sequence[tuple[Node, Number]]) -> Number:
    """One of several numbers, by the probability of each."""
    if len(weighted) == 1:
        return weighted[0][1]
    values = graph.mixture((weight, number.values(graph)) for weight, number in weighted)
    return _from_distribution(graph, values)


def _from_distribution(graph: ExpressionGraph, values: Values) -> Number:
    """The number of values with probabilities; those that never happen are left out."""
    values = {value: prob for value, prob in values.items() if graph.value(prob) != 0}
    return Number(next(iter(values))) if len(values) == 1 else Number(0.0, {}, (values,))
