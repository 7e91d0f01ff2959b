r"""Steps after the first, whose states are known by their probabilities alone: what actions are worth by then.

An action that is planned for such a step is taken where its preconditions hold, and is not taken elsewhere. Of a
formula f, an action a and the event q that it is allowed,

.. math:: E[f] = E[f_{a = 0}] + p(a)\, E[q\, (f_{a = 1} - f_{a = 0})]

where q is a product of events: fluents that it names are true or false in the difference, which makes the expectation
exact given independent fluents; its other factors count as independent of the difference. Without this, a plan may
count on actions that no state on its way allows.

Where at least one of k actions must be taken in an event r, each of them is, with equal probability, where none is
planned, which makes its probability

.. math:: p(a_i) + \frac{E[r]}{k} \prod_{j \le k} (1 - p(a_j))

Forward marginals: Cui, Khardon (2016), "Online symbolic gradient-based optimization for factored action MDPs", section
3, where preconditions are part of the formulas of the fluents.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ethogram.models.planning.action_rules import Conditions
from ethogram.models.planning.expression_graph import ExpressionGraph, Input, Node, Polynomial
from ethogram.models.planning.fluent_program import FluentProgram, compile_program

__all__ = ["Lookahead", "look_ahead"]

MOST_NODES, MOST_NEW = 60, 10
"""Nodes that a term may have, or grow by; an action of a longer one counts as independent of the rest of it."""


class Lookahead(NamedTuple):
    """What holds in steps after the first.

    Attributes
    ----------
    program : next probabilities and reward, where actions count by the probability that they are allowed.
    low, high : (action,) least and largest value of each action in any state.
    bounds : (sum,) the loosest bounds of the sums of `ActionRules.sums` in any state, with their signs.
    weights : (sum, action) coefficients of the sums from above whose bounds depend on the state.
    members : (group, action) 1 for the actions of which at least one must be taken where a state requires it.
    limits : program whose next values are the bounds of `weights`, then the probability that each group is required;
        None without sums and groups.
    """

    program: FluentProgram
    low: np.ndarray
    high: np.ndarray
    bounds: np.ndarray
    weights: np.ndarray
    members: np.ndarray
    limits: FluentProgram | None


class _Permission(NamedTuple):
    """When an action may be taken, and when it must be."""

    allowed: set[Node]  # events that must all happen
    forced: Node


def look_ahead(
    graph: ExpressionGraph,
    fluents: Sequence[str],
    actions: Sequence[str],
    conditions: Conditions,
    nexts: Sequence[Node],
    reward: Node,
    end: Node,
) -> Lookahead | None:
    """What holds in steps after the first; None where every state allows the same actions."""
    permissions = _permissions(graph, actions, conditions.checks)
    groups = _required_groups(graph, actions, conditions.checks)
    varying = [each for each in conditions.sums if graph.value(each[1]) is None]
    if (
        not permissions
        and not groups
        and all(graph.value(bound) is not None for _, bound in (*conditions.sums, *conditions.least))
    ):
        return None
    made = [_allowed_alone(graph, node, permissions, fluents) for node in (*nexts, reward)]
    nothing = graph.constant(0.0)
    limits = None
    if varying or groups:
        wanted = [node for _, node in (*varying, *groups)]
        limits = compile_program(graph, fluents, actions, wanted, nothing, nothing)
    never = [any(graph.value(each) == 0 for each in one.allowed) for one in permissions.values()]
    always = [graph.value(one.forced) == 1 for one in permissions.values()]
    positions = [actions.index(graph.nodes[node].name) for node in permissions]  # type: ignore[union-attr]
    low, high = np.zeros(len(actions)), np.ones(len(actions))
    high[positions] = 1.0 - np.array(never, float)
    low[positions] = np.array(always, float) * high[positions]
    loosest = []
    for side, sign in ((conditions.sums, 1.0), (conditions.least, -1.0)):
        for weights, bound in side:
            most = sign * graph.interval(bound)[int(sign > 0)]
            loosest.append(most if math.isfinite(most) else max(sign * weights.sum(), 0.0))
    weights, members = (
        np.array([row for row, _ in each]).reshape(len(each), len(actions)) for each in (varying, groups)
    )
    program = compile_program(graph, fluents, actions, made[:-1], made[-1], end)
    return Lookahead(program, low, high, np.array(loosest), weights, members, limits)


def _permissions(
    graph: ExpressionGraph, actions: Sequence[str], checks: Sequence[Node]
) -> dict[Node, _Permission]:
    """Permissions of the actions, by their nodes, that some check may forbid or force.

    A check on several actions forbids each where the others, as they are, do not allow it.
    """
    one, nothing = graph.constant(1.0), graph.constant(0.0)
    found: dict[Node, _Permission] = {}
    for check in checks:
        used = graph.inputs([check])
        about = [graph.input(name) for name in actions if name in used]
        for action in about:
            on, off = (graph.substitute(check, {action: value}) for value in (one, nothing))
            allowed, forced = found.get(action, _Permission(set(), nothing))
            if graph.value(on) != 1:
                allowed = allowed | _factors(graph, on)
            if len(about) == 1:
                forced = graph.some((forced, graph.complement(off)))
            if allowed or graph.value(forced) != 0:
                found[action] = _Permission(allowed, forced)
    return found


def _required_groups(
    graph: ExpressionGraph, actions: Sequence[str], checks: Sequence[Node]
) -> list[tuple[np.ndarray, Node]]:
    """Groups of several actions, of which any one meets a check, and the event that one must be taken."""
    one, nothing = graph.constant(1.0), graph.constant(0.0)
    found = []
    for check in checks:
        used = graph.inputs([check])
        about = [graph.input(name) for name in actions if name in used]
        if len(about) > 1 and all(graph.value(graph.substitute(check, {each: one})) == 1 for each in about):
            without = graph.substitute(check, dict.fromkeys(about, nothing))
            found.append((np.array([float(name in used) for name in actions]), graph.complement(without)))
    return found


def _factors(graph: ExpressionGraph, node: Node) -> set[Node]:
    """Events that all happen where an event does."""
    made = graph.nodes[node]
    if isinstance(made, Polynomial) and made.constant == 0 and len(made.terms) == 1 and made.terms[0][0] == 1:
        return set(made.terms[0][1])
    return {node}


def _allowed_alone(
    graph: ExpressionGraph, node: Node, permissions: dict[Node, _Permission], fluents: Sequence[str]
) -> Node:
    """The expectation of a formula, in which actions are taken where they are allowed; term by term of a sum."""
    made = graph.nodes[node]
    if isinstance(made, Polynomial) and len(made.terms) > 1:
        terms = [
            (weight, _allowed_alone(graph, graph.multiply(factors), permissions, fluents))
            for weight, factors in made.terms
        ]
        return graph.add(terms, made.constant)
    used, most = graph.inputs([node]), max(len(graph.reachable([node])) + MOST_NEW, MOST_NODES)
    for action, permission in permissions.items():
        if graph.nodes[action].name in used:  # type: ignore[union-attr]
            node = _taken(graph, node, action, permission, fluents, most)
    return node


def _taken(
    graph: ExpressionGraph,
    node: Node,
    action: Node,
    permission: _Permission,
    fluents: Sequence[str],
    most: int,
) -> Node:
    """The expectation of a formula, in which one action is taken where it is allowed, and where it must be.

    In a formula of more than `most` nodes, that it is taken counts as an event of its own.
    """
    allowed, forced = permission
    if len(graph.reachable([node])) <= most:
        with contextlib.suppress(ValueError):  # a function has no value in a state that the action needs
            on, off = (graph.substitute(node, {action: graph.constant(value)}) for value in (1.0, 0.0))
            parts = [(1.0, off), (1.0, graph.multiply((action, _gain(graph, on, off, allowed, fluents))))]
            if graph.value(forced) != 0:
                gain = _gain(graph, on, off, allowed | _factors(graph, forced), fluents)
                parts.append((1.0, graph.multiply((graph.complement(action), gain))))
            return graph.add(parts, short=1)
    wanted = graph.some((action, forced))
    return graph.substitute(node, {action: graph.every((wanted, *sorted(allowed)))})


def _gain(graph: ExpressionGraph, on: Node, off: Node, events: set[Node], fluents: Sequence[str]) -> Node:
    """The expectation of the difference of two formulas where all of some events happen, and of 0 elsewhere."""
    held: dict[Node, Node] = {}
    for event in sorted(events):
        fluent, value = _literal(graph, event)
        if fluent is None:
            continue
        known = {fluent: graph.constant(value)}
        name, enumerated, _ = graph.nodes[fluent].name.partition("=")  # type: ignore[union-attr]
        if enumerated and value:
            others = [each for each in fluents if each.startswith(f"{name}=")]
            known = {**{graph.input(each): graph.constant(0.0) for each in others}, **known}
        if any(held.get(each, number) != number for each, number in known.items()):
            return graph.constant(0.0)  # events that exclude each other
        held.update(known)
    difference = graph.add(
        [(1.0, graph.substitute(on, held)), (-1.0, graph.substitute(off, held))], short=10**6
    )
    return graph.multiply((*sorted(events), difference))


def _literal(graph: ExpressionGraph, event: Node) -> tuple[Node | None, float]:
    """The input, and its value, that an event says; None for another event."""
    made = graph.nodes[event]
    if isinstance(made, Input):
        return event, 1.0
    if isinstance(made, Polynomial) and made.constant == 1 and len(made.terms) == 1:
        weight, factors = made.terms[0]
        if weight == -1 and len(factors) == 1 and isinstance(graph.nodes[factors[0]], Input):
            return factors[0], 0.0
    return None, 0.0
