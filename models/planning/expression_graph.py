r"""Arithmetic expressions of probabilities, in which equal expressions are one node.

A node is an input, a polynomial

.. math:: x = c + \sum_i k_i \prod_j y_{ij}

of other nodes, or exp, log, square root or reciprocal of one. A formula of independent events is translated to such
nodes by and = product, not x = 1 - x, or = 1 - product of (1 - x), if(x, y, z) = x y + (1 - x) z. Constants are folded,
products are sorted and shared, so that a graph is far smaller than the tree of the formula.

Section 3 of Cui, Khardon (2016), "Online symbolic gradient-based optimization for factored action MDPs"; structural
hashing as in the lifted variant of Cui, Keller, Khardon (2019), "Stochastic planning with lifted symbolic trajectory
optimization".
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeVar

__all__ = ["FUNCTIONS", "ExpressionGraph", "Node", "Polynomial"]

FUNCTIONS = {"exp": math.exp, "log": math.log, "sqrt": math.sqrt, "reciprocal": lambda x: 1 / x}
"""Functions of one node, by name."""
SHORT = 8
"""Terms of a sum up to which it is written into the sums that it is part of."""
MOST_VALUES = 4096
"""Maximum support size of a sum of weighted Bernoulli variables."""

Node = int
"""Number of a node in its graph; nodes come after the nodes that they are made of."""
Term = tuple[float, tuple[Node, ...]]
Value = TypeVar("Value", float, str)


class Polynomial(NamedTuple):
    """A constant plus terms: coefficients and the nodes they multiply."""

    constant: float
    terms: tuple[Term, ...] = ()


class Function(NamedTuple):
    """A function of :data:`FUNCTIONS` of a node."""

    name: str
    argument: Node


class Variable(NamedTuple):
    """An event of its own, as probable as a node says; two of them are not the same event if both are as probable."""

    name: str
    argument: Node


class Input(NamedTuple):
    """A value that is given from outside."""

    name: str


Made = Polynomial | Function | Variable | Input


class ExpressionGraph:
    """Nodes by number; every method that makes one returns the number of the node, new or known."""

    def __init__(self) -> None:
        self.nodes: list[Made] = []
        self._known: dict[Made, Node] = {}

    def _node(self, made: Made) -> Node:
        if made not in self._known:
            self._known[made] = len(self.nodes)
            self.nodes.append(made)
        return self._known[made]

    def input(self, name: str) -> Node:
        """The value called `name`."""
        return self._node(Input(name))

    def variable(self, name: str, node: Node) -> Node:
        """The event called `name`, whose probability is a node; the node itself if that is certain."""
        return node if self.value(node) in (0.0, 1.0) else self._node(Variable(name, node))

    def constant(self, value: float | int) -> Node:
        """A number."""
        return self._node(Polynomial(float(value)))

    def value(self, node: Node) -> float | None:
        """The number that a node is, None if it depends on inputs."""
        made = self.nodes[node]
        return made.constant if isinstance(made, Polynomial) and not made.terms else None

    def reachable(self, nodes: Iterable[Node], leaves: type | tuple[type, ...] = Input) -> list[Node]:
        """Nodes and all that they are made of, each after what it is made of; `leaves` are not taken apart."""
        found, waiting = set[Node](), list(nodes)
        while waiting:
            node = waiting.pop()
            if node in found:
                continue
            found.add(node)
            made = self.nodes[node]
            if isinstance(made, leaves):
                continue
            if isinstance(made, Polynomial):
                waiting.extend(factor for _, factors in made.terms for factor in factors)
            elif not isinstance(made, Input):
                waiting.append(made.argument)
        return sorted(found)

    def inputs(self, nodes: Iterable[Node]) -> set[str]:
        """Names of the inputs that nodes depend on."""
        return {made.name for node in self.reachable(nodes) if isinstance(made := self.nodes[node], Input)}

    def substitute(self, node: Node, given: Mapping[Node, Node]) -> Node:
        """A node, with other nodes in place of some of those that it is made of."""
        found: dict[Node, Node] = {}
        for each in self.reachable([node]):
            made, found[each] = self.nodes[each], given.get(each, each)
            if each in given or isinstance(made, Input):
                continue
            if isinstance(made, Polynomial):
                if any(found[factor] != factor for _, factors in made.terms for factor in factors):
                    terms = [
                        (weight, self.multiply(found[x] for x in factors)) for weight, factors in made.terms
                    ]
                    found[each] = self.add(terms, made.constant)
            elif found[made.argument] != made.argument:
                make = self.apply if isinstance(made, Function) else self.variable
                found[each] = make(made.name, found[made.argument])
        return found[node]

    def interval(self, node: Node) -> tuple[float, float]:
        """Bounds of a node whose inputs are from 0 to 1; infinite where it has functions."""
        found: dict[Node, tuple[float, float]] = {}
        for each in self.reachable([node]):
            made = self.nodes[each]
            if isinstance(made, Polynomial):
                low = high = made.constant
                for weight, factors in made.terms:
                    ends = [weight]
                    for factor in factors:
                        corners = [x * y for x in ends for y in found[factor]]
                        ends = [min(corners), max(corners)]
                    low, high = low + min(ends), high + max(ends)
                found[each] = low, high
            else:
                found[each] = (-math.inf, math.inf) if isinstance(made, Function) else (0.0, 1.0)
        return found[node]

    def add(self, parts: Iterable[tuple[float, Node]], constant: float = 0.0, short: int = SHORT) -> Node:
        """The sum of weighted nodes and a constant; sums of up to `short` terms are written into it."""
        gathered: dict[tuple[Node, ...], float] = {}
        for weight, node in parts:
            made = self.nodes[node]
            if isinstance(made, Polynomial) and len(made.terms) <= short:
                constant += weight * made.constant
                terms: Iterable[Term] = made.terms
            else:
                terms = ((1.0, (node,)),)
            for coefficient, factors in terms:
                gathered[factors] = gathered.get(factors, 0.0) + weight * coefficient
        left = tuple((weight, factors) for factors, weight in sorted(gathered.items()) if weight != 0)
        if constant == 0 and len(left) == 1 and left[0][0] == 1 and len(left[0][1]) == 1:
            return left[0][1][0]
        return self._node(Polynomial(constant, left))

    def multiply(self, nodes: Iterable[Node]) -> Node:
        """The product of nodes."""
        weight, factors = 1.0, list[Node]()
        for node in nodes:
            made = self.nodes[node]
            if isinstance(made, Polynomial) and not made.terms:
                weight *= made.constant
            elif isinstance(made, Polynomial) and made.constant == 0 and len(made.terms) == 1:
                weight *= made.terms[0][0]
                factors.extend(made.terms[0][1])
            else:
                factors.append(node)
        if weight == 0 or not factors:
            return self.constant(weight)
        if weight == 1 and len(factors) == 1:
            return factors[0]
        return self._node(Polynomial(0.0, ((weight, tuple(sorted(factors))),)))

    def apply(self, name: str, node: Node) -> Node:
        """A function of :data:`FUNCTIONS` of a node.

        Raises
        ------
        ValueError : the function has no value at a constant.
        """
        number = self.value(node)
        if number is None:
            return self._node(Function(name, node))
        try:
            return self.constant(FUNCTIONS[name](number))
        except (ZeroDivisionError, ValueError, OverflowError) as error:
            raise ValueError(f"{name} of {number:g} has no finite value") from error

    def complement(self, node: Node) -> Node:
        """The probability that an event does not happen."""
        return self.add([(-1.0, node)], 1.0)

    def every(self, nodes: Iterable[Node]) -> Node:
        """The probability that all of some independent events happen."""
        return self.multiply(nodes)

    def some(self, nodes: Iterable[Node]) -> Node:
        """The probability that one at least of some independent events happens."""
        return self.complement(self.multiply(self.complement(node) for node in nodes))

    def choose(self, condition: Node, then: Node, otherwise: Node) -> Node:
        """The mean of two values, the first with the probability of the condition."""
        if then == otherwise:
            return then
        return self.add(
            [
                (1.0, self.multiply((condition, then))),
                (1.0, self.multiply((self.complement(condition), otherwise))),
            ]
        )

    def same(self, left: Node, right: Node) -> Node:
        """The probability that two independent events both happen or both do not."""
        return self.choose(left, right, self.complement(right))

    def mixture(self, weighted: Iterable[tuple[Node, Mapping[Value, Node]]]) -> dict[Value, Node]:
        """Probabilities of the values of one of several quantities, given its probability and those of its values."""
        parts_of: dict[Value, list[tuple[float, Node]]] = {}
        for weight, values in weighted:
            for value, prob in values.items():
                parts_of.setdefault(value, []).append((1.0, self.multiply((weight, prob))))
        return {value: self.add(terms) for value, terms in parts_of.items()}

    def values_of_sum(
        self, parts: Iterable[Mapping[float, Node]], constant: float = 0.0
    ) -> dict[float, Node]:
        """Probabilities of the values of a constant plus independent numbers, given those of each.

        Of weighted events this is a Poisson binomial distribution. Halves are convolved, so that n equal weights take
        about n^2 / 2 products.

        Raises
        ------
        ValueError : there are more than :data:`MOST_VALUES` values.
        """
        left = [*parts, {constant: self.constant(1.0)}]
        while len(left) > 1:
            pairs = itertools.zip_longest(left[::2], left[1::2])
            left = [one if other is None else self.combined(operator.add, one, other) for one, other in pairs]
        return dict(left[0])

    def combined(self, function: Callable[..., float], *parts: Mapping[float, Node]) -> dict[float, Node]:
        """Probabilities of the values of a function of independent numbers, given those of each.

        Raises
        ------
        ValueError : there are more than :data:`MOST_VALUES` values, or the function has none at some.
        """
        parts_of: dict[float, list[tuple[float, Node]]] = {}
        for chosen in itertools.product(*(part.items() for part in parts)):
            given = [value for value, _ in chosen]
            try:
                value = round(float(function(*given)), 9)
            except (ArithmeticError, ValueError) as error:
                raise ValueError(
                    f"a function of {', '.join(f'{x:g}' for x in given)} has no value"
                ) from error
            parts_of.setdefault(value, []).append((1.0, self.multiply(prob for _, prob in chosen)))
            if len(parts_of) > MOST_VALUES:
                raise ValueError(f"a sum of events has more than {MOST_VALUES} values")
        return {value: self.add(terms, short=1) for value, terms in parts_of.items()}
