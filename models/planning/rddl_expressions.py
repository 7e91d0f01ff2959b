"""RDDL expressions as nodes of an expression graph.

Lifted expressions are translated with their parameters bound to objects, and non-fluents are numbers from the start: of
a sum over all pairs of cells, only neighbours leave a node. Boolean fluents are events, fluents of an enumerated type
one event per value.

Sanner (2010), "Relational dynamic influence diagram language (RDDL): language description".
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ethogram.models.memory_bound import require_room
from ethogram.models.planning.expression_graph import ExpressionGraph, Node
from ethogram.models.planning.rddl_numbers import extreme_of, function_of, number_of, sum_of

__all__ = ["Quantity", "RDDLExpressions", "grounded_name"]

COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    "<=": lambda a, b: a <= b,
    "<": lambda a, b: a < b,
    ">=": lambda a, b: a >= b,
    ">": lambda a, b: a > b,
    "==": lambda a, b: a == b,
    "~=": lambda a, b: a != b,
}
NAMES = {"exp": "exp", "ln": "log", "sqrt": "sqrt"}
Bound = Mapping[str, str]

BYTES_OF_TERM = 8192
"""Memory of a term of a sum, product or quantifier, with its nodes."""


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
        self.num_terms = 0
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
        own = math.prod(len(self.objects[kind]) for _, kind in parameters)
        count = self.num_terms + own * (1 + self._least_terms(arguments[-1]))
        fix = "nest fewer quantifiers, or give fewer objects"
        require_room("sums and quantifiers", (count,), np.uint8, fix, BYTES_OF_TERM)
        for chosen in itertools.product(*(self.objects[kind] for _, kind in parameters)):
            self.num_terms += 1
            yield {**bound, **{name: each for (name, _), each in zip(parameters, chosen, strict=True)}}

    def _least_terms(self, expression: Any) -> int:
        """Terms of an expression, counted before it is expanded, without what a known operand may make needless."""
        kind, _ = getattr(expression, "etype", ("", ""))
        if kind == "aggregation":
            sizes = [len(self.objects.get(each[1][1], ())) for each in expression.args[:-1]]
            return math.prod(sizes) * (1 + self._least_terms(expression.args[-1]))
        if kind not in ("arithmetic", "boolean", "control", "func", "relational"):
            return 0
        always = 1 if kind in ("boolean", "control") else len(expression.args)
        return sum(map(self._least_terms, expression.args[:always]))

    def choices(self, arguments: Any, bound: Bound) -> list[tuple[Node, Quantity]]:
        """The quantities that a fluent may be, with probabilities: several where an argument is a fluent itself."""
        certain, (name, parameters) = self.graph.constant(1.0), arguments
        if not parameters:
            if name in bound or name.lstrip("@") in self.names:
                return [(certain, Quantity(None, False, {bound.get(name, name.lstrip("@")): certain}))]
            return [(certain, self.fluent(name, ()))]
        candidates = [self._object(each, bound) for each in parameters]
        found = []
        for chosen in itertools.product(*(objects.items() for objects in candidates)):
            weight = self.graph.multiply(prob for _, prob in chosen)
            found.append((weight, self.fluent(name, tuple(each for each, _ in chosen))))
        return found

    def branches(self, name: str, arguments: Sequence[Any], bound: Bound) -> list[tuple[Node, Any]]:
        """The expressions that ``if`` or ``switch`` may choose, with probabilities."""
        graph = self.graph
        if name == "if":
            condition = self.probability(arguments[0], bound)
            known = graph.value(condition)
            if known is not None and known in (0.0, 1.0):
                return [(condition, arguments[1 if known else 2])]
            return list(zip((condition, graph.complement(condition)), arguments[1:], strict=True))
        probs = dict(self.translate(arguments[0], bound).values or {})
        if not probs:
            raise ValueError("switch needs a value of an enumerated type")
        found = []
        for kind, content in sorted(arguments[1:], key=lambda case: case[0] == "default"):
            if kind == "default":
                weight, expression = graph.add([(1.0, prob) for prob in probs.values()]), content
                probs = {}
            else:
                (value,), expression = self._object(content[0], bound), content[1]
                weight = probs.pop(value, graph.constant(0.0))
            if graph.value(weight) != 0:
                found.append((weight, expression))
        if probs:
            raise ValueError(f"switch has no case of {', '.join(probs)}, and no default")
        return found

    # One method per kind of expression; names are those of pyRDDLGym's parser.

    def _constant(self, _: str, value: Any, __: Bound) -> Quantity:
        return Quantity(self.graph.constant(value), isinstance(value, bool))

    def _pvar(self, _: str, arguments: Any, bound: Bound) -> Quantity:
        weighted = self.choices(arguments, bound)
        return weighted[0][1] if len(weighted) == 1 else self._mixed(weighted)

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
            values = graph.mixture((weight, quantity.values or {}) for weight, quantity in weighted)
            return Quantity(None, False, values)
        parts = [(1.0, graph.multiply((weight, self.number(quantity)))) for weight, quantity in weighted]
        return Quantity(graph.add(parts), all(quantity.event for _, quantity in weighted))

    def _control(self, name: str, arguments: Sequence[Any], bound: Bound) -> Quantity:
        branches = self.branches(name, arguments, bound)
        every = [(weight, self.translate(each, bound)) for weight, each in branches]
        if len(every) == 1:
            return every[0][1]
        if name == "if" and all(quantity.values is None for _, quantity in every):
            (condition, then), (_, otherwise) = every
            node = self.graph.choose(condition, self.number(then), self.number(otherwise))
            return Quantity(node, then.event and otherwise.event)
        return self._mixed(every)

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
        if name in ("minimum", "maximum"):
            return Quantity(extreme_of(self, name, arguments, bound).mean(graph))
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
        graph, meets = self.graph, COMPARISONS[name]
        if not any(each.etype[0] in ("arithmetic", "func") for each in arguments):
            left, right = (self.translate(each, bound) for each in arguments)
            same: Node | None = None
            if left.values is not None and right.values is not None and name in ("==", "~="):
                shared = [value for value in left.values if value in right.values]
                same = graph.add(
                    [(1.0, graph.multiply((left.values[value], right.values[value]))) for value in shared]
                )
            elif left.values is not None or right.values is not None:
                raise ValueError(f"{name} compares a value of an enumerated type with something else")
            elif left.event and right.event and name in ("==", "~="):
                same = graph.same(self.number(left), self.number(right))
            if same is not None:
                return Quantity(same if name == "==" else graph.complement(same), True)
        one, other = (number_of(self, each, bound) for each in arguments)
        values = sum_of((one, other.scaled(-1.0))).values(graph)
        return Quantity(graph.add([(1.0, prob) for value, prob in values.items() if meets(value, 0)]), True)

    def _func(self, name: str, arguments: Sequence[Any], bound: Bound) -> Quantity:
        if name in NAMES:
            return Quantity(self.graph.apply(NAMES[name], self.probability(arguments[0], bound)))
        if name == "pow":
            power = self.graph.value(self.probability(arguments[1], bound))
            if power is not None and power in range(17):
                base = self.probability(arguments[0], bound)
                return Quantity(self.graph.multiply([base] * int(power)))
        return Quantity(function_of(self, name, arguments, bound).mean(self.graph))

    def _randomvar(self, name: str, arguments: Sequence[Any], bound: Bound) -> Quantity:
        graph = self.graph
        if name == "Bernoulli":
            prob = self.probability(arguments[0], bound)
            self._require_probability("Bernoulli", graph.value(prob))
            return Quantity(prob, True)
        if name in ("KronDelta", "DiracDelta"):
            return self.translate(arguments[0], bound)
        base, _, over_objects = name.partition("(")
        if base in ("Discrete", "UnnormDiscrete"):
            if over_objects:
                parameters, ((body,),) = arguments[:-1], arguments[-1:]
                if len(parameters) != 1:
                    raise ValueError(f"{base} over several parameters is not supported")
                ((_, (parameter, _)),) = parameters
                bindings = self.instances(arguments, bound)
                values = {each[parameter]: self.probability(body, each) for each in bindings}
            else:
                cases = [each[1] for each in arguments[1:]]
                values = {value.lstrip("@"): self.probability(prob, bound) for value, prob in cases}
            if base == "UnnormDiscrete":
                whole = graph.apply("reciprocal", graph.add([(1.0, prob) for prob in values.values()]))
                values = {value: graph.multiply((prob, whole)) for value, prob in values.items()}
            for prob in values.values():
                self._require_probability(base, graph.value(prob))
            total = graph.value(graph.add([(1.0, prob) for prob in values.values()]))
            if total is not None and abs(total - 1) > 1e-6:
                raise ValueError(f"{base} has probabilities that sum to {total:g}, not 1")
            return Quantity(None, False, values)
        raise ValueError(
            f"the distribution {name} is not supported: fluents must be true or false, or enumerated"
        )

    @staticmethod
    def _require_probability(name: str, prob: float | None) -> None:
        if prob is not None and not -1e-9 <= prob <= 1 + 1e-9:
            raise ValueError(f"{name} has probability {prob:g}: expected a number from 0 to 1")
