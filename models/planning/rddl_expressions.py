"""RDDL expressions as nodes of an expression graph.

Lifted expressions are translated with their parameters bound to objects, and non-fluents are numbers from the start: of
a sum over all pairs of cells, only neighbours leave a node. Boolean fluents are events, fluents of an enumerated type
one event a value.

Sanner (2010), "Relational dynamic influence diagram language (RDDL): language description".
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ethogram.models.planning.expression_graph import ExpressionGraph, Node

__all__ = ["Quantity", "RDDLExpressions", "grounded_name"]

COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    "<=": lambda a, b: a <= b,
    "<": lambda a, b: a < b,
    ">=": lambda a, b: a >= b,
    ">": lambda a, b: a > b,
    "==": lambda a, b: a == b,
    "~=": lambda a, b: a != b,
}
CONSTANT_FUNCTIONS: Mapping[str, Callable[..., float]] = {
    "abs": abs,
    "sgn": lambda x: math.copysign(1.0, x) if x else 0.0,
    "round": round,
    "floor": math.floor,
    "ceil": math.ceil,
    "min": min,
    "max": max,
    "pow": math.pow,
}
NAMES = {"exp": "exp", "ln": "log", "sqrt": "sqrt"}
Bound = Mapping[str, str]


class Quantity(NamedTuple):
    """A translated expression.

    Attributes
    ----------
    node : a number, or the probability of an event; None for a value of an enumerated type.
    event : whether it is true or false.
    values : probabilities of the values of an enumerated type.
    """

    node: Node | None
    event: bool = False
    values: Mapping[str, Node] | None = None


def grounded_name(name: str, objects: Sequence[str]) -> str:
    """Name of a fluent of objects, as pyRDDLGym writes it."""
    return f"{name}___{'__'.join(objects)}" if objects else name


class RDDLExpressions:
    """Translation of expressions to nodes of `graph`.

    Parameters
    ----------
    graph : that takes the nodes.
    objects : names of the objects of every type, those of enumerated types too.
    fluent : quantity of a grounded fluent, by its name and objects.
    """

    def __init__(
        self,
        graph: ExpressionGraph,
        objects: Mapping[str, Sequence[str]],
        fluent: Callable[[str, tuple[str, ...]], Quantity],
    ):
        self.graph, self.objects, self.fluent = graph, objects, fluent
        self.names = {name for names in objects.values() for name in names}

    def translate(self, expression: Any, bound: Bound | None = None) -> Quantity:
        """The quantity of an expression, with parameters bound to objects.

        Raises
        ------
        ValueError : the expression is of a kind that has no forward marginals.
        """
        kind, name = expression.etype
        method = getattr(self, f"_{kind}", None)
        if method is None:
            raise ValueError(f"expressions of kind {kind} ({name}) are not supported")
        return method(name, expression.args, bound or {})

    def probability(self, expression: Any, bound: Bound) -> Node:
        """The node of an expression that is a number or an event."""
        return self.number(self.translate(expression, bound))

    def number(self, quantity: Quantity) -> Node:
        """The node of a quantity that is a number or an event."""
        if quantity.node is None:
            raise ValueError("a value of an enumerated type stands where a number or an event is expected")
        return quantity.node

    def instances(self, arguments: Sequence[Any], bound: Bound) -> Iterator[Bound]:
        """Bindings of the parameters of an aggregation to all objects of their types."""
        parameters = [each[1] for each in arguments[:-1]]
        for name, kind in parameters:
            if kind not in self.objects:
                raise ValueError(f"parameter {name} has type {kind!r}, which has no objects")
        for chosen in itertools.product(*(self.objects[kind] for _, kind in parameters)):
            yield {**bound, **{name: each for (name, _), each in zip(parameters, chosen, strict=True)}}

    # One method a kind of expression; names are those of pyRDDLGym's parser.

    def _constant(self, _: str, value: Any, __: Bound) -> Quantity:
        return Quantity(self.graph.constant(value), isinstance(value, bool))

    def _pvar(self, _: str, arguments: Any, bound: Bound) -> Quantity:
        name, parameters = arguments
        if not parameters:
            if name in bound or name.lstrip("@") in self.names:
                return Quantity(None, False, {bound.get(name, name.lstrip("@")): self.graph.constant(1.0)})
            return self.fluent(name, ())
        places = [self._object(each, bound) for each in parameters]
        if all(len(place) == 1 for place in places):
            return self.fluent(name, tuple(next(iter(place)) for place in places))
        weighted = []
        for chosen in itertools.product(*(place.items() for place in places)):
            weight = self.graph.multiply(chance for _, chance in chosen)
            weighted.append((weight, self.fluent(name, tuple(each for each, _ in chosen))))
        return self._mixed(weighted)

    def _object(self, parameter: Any, bound: Bound) -> Mapping[str, Node]:
        """Probabilities of the objects that an argument of a fluent may be."""
        if isinstance(parameter, str):
            if parameter not in bound and parameter.startswith("?"):
                raise ValueError(f"parameter {parameter} is bound to no object")
            return {bound.get(parameter, parameter.lstrip("@")): self.graph.constant(1.0)}
        quantity = self.translate(parameter, bound)
        if quantity.values is None:
            raise ValueError("an argument of a fluent is neither an object nor of an enumerated type")
        return quantity.values

    def _mixed(self, weighted: Sequence[tuple[Node, Quantity]]) -> Quantity:
        """The mixture of quantities with probabilities."""
        graph = self.graph
        if all(quantity.values is not None for _, quantity in weighted):
            chances: dict[str, list[tuple[float, Node]]] = {}
            for weight, quantity in weighted:
                for value, chance in (quantity.values or {}).items():
                    chances.setdefault(value, []).append((1.0, graph.multiply((weight, chance))))
            return Quantity(None, False, {value: graph.add(parts) for value, parts in chances.items()})
        parts = [(1.0, graph.multiply((weight, self.number(quantity)))) for weight, quantity in weighted]
        return Quantity(graph.add(parts), all(quantity.event for _, quantity in weighted))

    def _control(self, name: str, arguments: Sequence[Any], bound: Bound) -> Quantity:
        if name != "if":
            raise ValueError(f"{name} is not supported: write it with if")
        condition = self.probability(arguments[0], bound)
        known = self.graph.value(condition)
        if known is not None and known in (0.0, 1.0):
            return self.translate(arguments[1 if known else 2], bound)
        both = [self.translate(each, bound) for each in arguments[1:]]
        if both[0].values is None and both[1].values is None:
            node = self.graph.choose(condition, *(self.number(each) for each in both))
            return Quantity(node, both[0].event and both[1].event)
        return self._mixed(list(zip((condition, self.graph.complement(condition)), both, strict=True)))

    def _boolean(self, name: str, arguments: Sequence[Any], bound: Bound) -> Quantity:
        graph = self.graph
        if name == "~":
            return Quantity(graph.complement(self.probability(arguments[0], bound)), True)
        if name in ("^", "&"):
            return Quantity(graph.every(self._until(0.0, arguments, [bound] * len(arguments))), True)
        if name == "|":
            return Quantity(graph.some(self._until(1.0, arguments, [bound] * len(arguments))), True)
        left = self.probability(arguments[0], bound)
        if name == "=>" and graph.value(left) == 0:
            return Quantity(graph.constant(1.0), True)
        right = self.probability(arguments[1], bound)
        if name == "=>":
            return Quantity(graph.some((graph.complement(left), right)), True)
        if name == "<=>":
            return Quantity(graph.same(left, right), True)
        raise ValueError(f"the operator {name} is not supported")

    def _until(self, decisive: float, expressions: Sequence[Any], bindings: Sequence[Bound]) -> list[Node]:
        """Nodes of expressions, up to one that is known to decide."""
        found = []
        for expression, bound in zip(expressions, bindings, strict=True):
            node = self.probability(expression, bound)
            if self.graph.value(node) == decisive:
                return [node]
            found.append(node)
        return found

    def _aggregation(self, name: str, arguments: Sequence[Any], bound: Bound) -> Quantity:
        graph, body = self.graph, arguments[-1]
        bindings = list(self.instances(arguments, bound))
        if name in ("forall", "prod"):
            return Quantity(graph.every(self._until(0.0, [body] * len(bindings), bindings)), name == "forall")
        if name == "exists":
            return Quantity(graph.some(self._until(1.0, [body] * len(bindings), bindings)), True)
        if name in ("sum", "avg"):
            scale = 1.0 / max(len(bindings), 1) if name == "avg" else 1.0
            return Quantity(graph.add([(scale, self.probability(body, each)) for each in bindings]))
        raise ValueError(f"the aggregation {name} is not supported")

    def _arithmetic(self, name: str, arguments: Sequence[Any], bound: Bound) -> Quantity:
        graph = self.graph
        left = self.probability(arguments[0], bound)
        if len(arguments) == 1:
            return Quantity(graph.add([(-1.0 if name == "-" else 1.0, left)]))
        if name == "*" and graph.value(left) == 0:
            return Quantity(left)
        rest = [self.probability(each, bound) for each in arguments[1:]]
        if name == "*":
            return Quantity(graph.multiply([left, *rest]))
        if name == "/":
            return Quantity(graph.multiply([left, *(graph.apply("reciprocal", each) for each in rest)]))
        sign = -1.0 if name == "-" else 1.0
        return Quantity(graph.add([(1.0, left), *((sign, each) for each in rest)]))

    def _relational(self, name: str, arguments: Sequence[Any], bound: Bound) -> Quantity:
        graph = self.graph
        left, right = (self.translate(each, bound) for each in arguments)
        if left.values is not None or right.values is not None:
            if left.values is None or right.values is None or name not in ("==", "~="):
                raise ValueError(f"{name} compares a value of an enumerated type with something else")
            shared = [value for value in left.values if value in right.values]
            node = graph.add(
                [(1.0, graph.multiply((left.values[value], right.values[value]))) for value in shared]
            )
            return Quantity(node if name == "==" else graph.complement(node), True)
        if left.event and right.event and name in ("==", "~="):
            node = graph.same(self.number(left), self.number(right))
            return Quantity(node if name == "==" else graph.complement(node), True)
        apart = graph.add([(1.0, self.number(left)), (-1.0, self.number(right))])
        meets = COMPARISONS[name]
        chances = [(1.0, chance) for value, chance in graph.values_of_sum(apart).items() if meets(value, 0)]
        return Quantity(graph.add(chances), True)

    def _func(self, name: str, arguments: Sequence[Any], bound: Bound) -> Quantity:
        nodes = [self.probability(each, bound) for each in arguments]
        if name in NAMES:
            return Quantity(self.graph.apply(NAMES[name], nodes[0]))
        numbers = [self.graph.value(node) for node in nodes]
        known = [number for number in numbers if number is not None]
        if name in CONSTANT_FUNCTIONS and len(known) == len(numbers):
            return Quantity(self.graph.constant(CONSTANT_FUNCTIONS[name](*known)))
        if name == "pow" and numbers[1] is not None and numbers[1] in range(17):
            return Quantity(self.graph.multiply([nodes[0]] * int(numbers[1])))
        raise ValueError(f"the function {name} of fluents is not supported")

    def _randomvar(self, name: str, arguments: Sequence[Any], bound: Bound) -> Quantity:
        graph = self.graph
        if name == "Bernoulli":
            return Quantity(self.probability(arguments[0], bound), True)
        if name in ("KronDelta", "DiracDelta"):
            return self.translate(arguments[0], bound)
        if name in ("Discrete", "UnnormDiscrete"):
            cases = [each[1] for each in arguments[1:]]
            values = {value.lstrip("@"): self.probability(chance, bound) for value, chance in cases}
            if name == "UnnormDiscrete":
                whole = graph.apply("reciprocal", graph.add([(1.0, chance) for chance in values.values()]))
                values = {value: graph.multiply((chance, whole)) for value, chance in values.items()}
            return Quantity(None, False, values)
        raise ValueError(
            f"the distribution {name} is not supported: fluents must be true or false, or enumerated"
        )
