"""Which actions of a planning problem are allowed together, as sums, masks and conditions.

`max-nondef-actions` and every precondition "sum of actions <= expression of the state", or >= or ==, are linear; a
precondition on one action alone forbids or forces it in a state. Whatever is left is checked on the action itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ethogram.models.planning.expression_graph import ExpressionGraph, Node, Polynomial
from ethogram.models.planning.fluent_program import FluentProgram, compile_program
from ethogram.models.planning.rddl_expressions import RDDLExpressions
from ethogram.models.printing import short_repr

__all__ = ["ActionRules", "Conditions", "action_rules", "limited_actions", "read_conditions"]

STRICT = 1e-4
"""How far sums with whole coefficients are from a bound that they must not meet."""
_Sum = tuple[np.ndarray, Node]
"""Coefficients of actions, and the bound of their sum."""


class Conditions(NamedTuple):
    """What actions must meet, as nodes.

    Attributes
    ----------
    sums, least : coefficients of actions, with the upper, and the lower, bound of their sum.
    checks : events that must happen.
    """

    sums: list[_Sum]
    least: list[_Sum]
    checks: list[Node]


@short_repr
class ActionRules(NamedTuple):
    """Rules of a problem with named actions.

    Attributes
    ----------
    weights : (sum, action) nonnegative coefficients of sums of actions that are bounded from above.
    least : (sum, action) the same of sums of several actions that are bounded from below.
    single : (check,) the action that a check is about alone, -1 if about several or none.
    checks : program whose next values are the bounds of `weights`, then those of `least`, then the checks (check,): 1
        where met.
    """

    weights: np.ndarray
    least: np.ndarray
    single: np.ndarray
    checks: FluentProgram

    def bounds(self, state: np.ndarray) -> np.ndarray:
        """Upper bounds (sum,) of the sums of actions in a state (fluent,)."""
        return self._values(state, np.zeros((self.weights.shape[1], 1)))[: len(self.weights), 0]

    def sums(self, state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Coefficients (sum, action) and upper bounds (sum,) of all sums; from below, both have their signs changed."""
        count = len(self.weights) + len(self.least)
        bounds = self._values(state, np.zeros((self.weights.shape[1], 1)))[:count, 0]
        signs = np.repeat([1.0, -1.0], [len(self.weights), len(self.least)])
        return signs[:, None] * np.concatenate((self.weights, self.least)), signs * bounds

    def unmet(self, state: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """How far (restart,) actions (action, restart) of 0 and 1 are from the rules of a state, or of one per restart.

        It counts the rules that are broken; what a sum lacks to its lower bound counts as many.
        """
        count = len(self.weights)
        bounds, least, checks = np.split(self._values(state, actions), (count, count + len(self.least)))
        over = self.weights @ actions > bounds + 1e-6
        lacking = np.ceil(np.maximum(least - self.least @ actions, 0) - 1e-6)
        return over.sum(0) + lacking.sum(0).astype(int) + (checks < 0.5).sum(0)

    def range(self, state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Least and largest value (action,) of every action in a state, by the rules on one action alone."""
        count = self.weights.shape[1]
        values = self._values(state, np.stack((np.zeros(count), np.ones(count)), 1))
        values = values[len(self.weights) + len(self.least) :]
        low, high = np.zeros(count), np.ones(count)
        for action, (off, on) in zip(self.single, values, strict=True):
            if action >= 0:
                low[action] = max(low[action], float(off < 0.5))
                high[action] = min(high[action], float(on >= 0.5))
        return np.minimum(low, high), high

    def _values(self, state: np.ndarray, actions: np.ndarray) -> np.ndarray:
        states = state if state.ndim == 2 else np.repeat(state[:, None], actions.shape[1], 1)
        return self.checks.expectations(states, actions)[0]


def read_conditions(
    expressions: RDDLExpressions,
    preconditions: Sequence[Any],
    constraints: Sequence[Any],
    actions: Sequence[str],
    limit: int,
) -> Conditions:
    """What preconditions say of actions, and at most `limit` actions at a time.

    State-action constraints are preconditions as far as they are about actions; the others, which check the instance,
    are left out.

    Raises
    ------
    ValueError : a precondition has an expression that is not supported.
    """
    graph = expressions.graph
    sums, least, checks = found = _limited(graph, actions, limit)
    every = [("precondition", *each) for each in enumerate(preconditions, 1)]
    every += [("state-action constraint", *each) for each in enumerate(constraints, 1)]
    for what, number, expression in every:
        try:
            for condition in _conjuncts(expressions, _Condition(expression, {})):
                bounded = _as_sums(expressions, condition, actions)
                if bounded is not None:
                    sums.extend(bounded[0])
                    least.extend(bounded[1])
                    continue
                node = condition.node(expressions)
                about = not graph.inputs([node]).isdisjoint(actions)
                if graph.value(node) != 1 and (about or what == "precondition"):
                    checks.append(node)
        except ValueError as error:
            raise ValueError(f"in {what} {number}: {error}") from error
    return found


def _limited(graph: ExpressionGraph, actions: Sequence[str], limit: int) -> Conditions:
    """At most `limit` actions at a time."""
    sums = [(np.ones(len(actions)), graph.constant(limit))] if limit < len(actions) else []
    return Conditions(sums, [], [])


def action_rules(
    graph: ExpressionGraph, fluents: Sequence[str], actions: Sequence[str], conditions: Conditions
) -> ActionRules:
    """Rules of what actions must meet."""
    sums, least, checks = conditions
    nodes = [bound for _, bound in (*sums, *least)] + checks
    program = compile_program(graph, fluents, actions, nodes, graph.constant(0.0), graph.constant(0.0))
    single = []
    for node in checks:
        used = graph.inputs([node])
        about = [i for i, name in enumerate(actions) if name in used]
        single.append(about[0] if len(about) == 1 else -1)
    upper, lower = (
        np.array([row for row, _ in each]).reshape(len(each), len(actions)) for each in (sums, least)
    )
    return ActionRules(upper, lower, np.array(single, int), program)


class _Condition(NamedTuple):
    """An expression that must hold where all premises do, with the objects that parameters are bound to."""

    expression: Any
    bound: Any
    premises: tuple[tuple[Any, Any], ...] = ()

    def node(self, expressions: RDDLExpressions) -> Node:
        graph = expressions.graph
        failed = [graph.complement(expressions.probability(each, bound)) for each, bound in self.premises]
        return graph.some([*failed, expressions.probability(self.expression, self.bound)])


def _conjuncts(expressions: RDDLExpressions, condition: _Condition) -> list[_Condition]:
    """Parts of a precondition that must all hold; consequences of an implication are taken apart too."""
    expression, bound, premises = condition
    kind, name = expression.etype
    if (kind, name) == ("aggregation", "forall"):
        body = expression.args[-1]
        parts = [_Condition(body, each, premises) for each in expressions.instances(expression.args, bound)]
    elif kind == "boolean" and name in ("^", "&"):
        parts = [_Condition(each, bound, premises) for each in expression.args]
    elif kind == "boolean" and name == "=>":
        premise, consequence = expression.args
        parts = [_Condition(consequence, bound, (*premises, (premise, bound)))]
    else:
        return [condition]
    return [conjunct for part in parts for conjunct in _conjuncts(expressions, part)]


def _as_sums(
    expressions: RDDLExpressions, condition: _Condition, actions: Sequence[str]
) -> tuple[list[_Sum], list[_Sum]] | None:
    """Sums of actions with upper and with lower bounds, if a comparison says that and nothing else."""
    expression, bound, premises = condition
    kind, name = expression.etype
    if premises or kind != "relational" or name == "~=":
        return None
    graph = expressions.graph
    left, right = (expressions.translate(each, bound).node for each in expression.args)
    if left is None or right is None:
        return None
    made: Any = Polynomial(0.0, ((1.0, (left,)), (-1.0, (right,))))
    while isinstance(made, Polynomial) and any(_is_sum(graph, factors) for _, factors in made.terms):
        terms = [(weight, graph.multiply(factors)) for weight, factors in made.terms]
        made = graph.nodes[graph.add(terms, made.constant, 10**6)]
    if not isinstance(made, Polynomial):
        return None
    position = {graph.input(name): i for i, name in enumerate(actions)}
    weights, rest = np.zeros(len(actions)), list[tuple[float, Node]]()
    for weight, factors in made.terms:
        if len(factors) == 1 and factors[0] in position:
            weights[position[factors[0]]] += weight
        elif not graph.inputs(factors).isdisjoint(actions):
            return None
        else:
            rest.append((-weight, graph.multiply(factors)))
    sign = 1.0 if weights.sum() > 0 else -1.0
    upper, lower = name in ("<=", "<", "=="), name in (">=", ">", "==")
    if sign < 0:
        upper, lower = lower, upper
    strict = name in ("<", ">")
    if (sign * weights < 0).any() or (strict and (weights != np.round(weights)).any()):
        return None
    if np.count_nonzero(weights) < 2:  # of one action alone, a check allows or forces it
        return None
    rest = [(sign * weight, node) for weight, node in rest]

    def bounded(by: float) -> list[_Sum]:
        return [(sign * weights, graph.add(rest, -sign * made.constant + (by if strict else 0.0)))]

    return bounded(-STRICT) if upper else [], bounded(STRICT) if lower else []


def _is_sum(graph: ExpressionGraph, factors: Sequence[Node]) -> bool:
    return len(factors) == 1 and isinstance(graph.nodes[factors[0]], Polynomial)


def limited_actions(fluents: Sequence[str], actions: Sequence[str], limit: int) -> ActionRules:
    """Rules of a problem in which any actions are allowed, at most `limit` at a time."""
    graph = ExpressionGraph()
    return action_rules(graph, fluents, actions, _limited(graph, actions, limit))
