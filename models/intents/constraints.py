r"""Constraints of an agent Markov model: partial specification of intent transitions and policies.

Unhelkar and Shah (2019), eq. 19, constrain posterior means of entries of the rows over intents. This is right for means
strictly between 0 and 1; "the intent never changes here" is infeasible for a Dirichlet row, and is a structural zero of
every other entry.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from ethogram.models.arguments import require_integer, require_number, require_one_of
from ethogram.models.printing import short_repr

__all__ = ["Bounds", "IntentConstraints", "bounds_of", "check_constraints"]


class Bounds(NamedTuple):
    """Bounds on the means of some cells of a table."""

    never: np.ndarray  # (cell,): whether the intent never changes
    lower: np.ndarray  # (cell, intent, entry)
    upper: np.ndarray


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Rule:
    """One constraint; numbers are leaves, so that fits under rules of one kind share a compilation."""

    kind: str = dataclasses.field(metadata={"static": True})
    place: tuple[int | None, int | None] = dataclasses.field(metadata={"static": True})
    states: Any
    actions: Any
    lower: Any
    upper: Any

    def describe(self) -> str:
        one, other = self.place
        what = {
            "never_switch": "never_switch",
            "stay": "stay",
            "entry": f"entry from intent {one} to {other}",
            "action": f"action {other}" + ("" if one is None else f" of intent {one}"),
        }[self.kind]
        if self.kind == "never_switch":
            return what
        low, high = float(self.lower), float(self.upper)
        parts = [f"at least {low:g}"] * (low > 0) + [f"at most {high:g}"] * (high < 1)
        return f"{what} " + (f"equal to {low:g}" if low == high else " and ".join(parts))


class _Builder:
    """A method that can also be called on the class, where it starts without constraints."""

    def __init__(self, function: Callable[..., Any]):
        self.function = function
        self.__doc__ = function.__doc__

    def __get__(self, instance: Any, owner: Any) -> Callable[..., Any]:
        bound = functools.partial(self.function, owner() if instance is None else instance)
        return functools.wraps(self.function)(bound)


@jax.tree_util.register_dataclass
@short_repr
@dataclasses.dataclass(frozen=True, eq=False)
class IntentConstraints:
    """Constraints on an agent, for :class:`~ethogram.models.intents.AgentMarkov`.

    Regions of states, and sets of actions, are masks or lists of indices; None means all. Constraints without an
    intent hold for every intent, and are the only ones with a meaning before a fit has labelled the intents.

    Parameters
    ----------
    rules : the constraints; made by the methods.
    concentration : ``"maximise"`` puts a constrained row where the ELBO is largest, where it may be far more
        concentrated than its data; ``"keep"`` takes the mean of that row and the concentration of the unconstrained
        posterior. The ELBO is then lower, and may fall between iterations.

    Examples
    --------
    >>> known = IntentConstraints.never_switch(states=[1, 2]).stay(states=[3], at_least=0.9)
    >>> [rule.describe() for rule in known.rules]
    ['never_switch', 'stay at least 0.9']
    """

    rules: tuple[Rule, ...] = ()
    concentration: str = dataclasses.field(default="maximise", metadata={"static": True})

    def __post_init__(self):
        require_one_of("concentration", self.concentration, ("maximise", "keep"))

    @_Builder
    def never_switch(self, states: Any = None, actions: Any = None) -> IntentConstraints:
        """Constraints with one more: the intent never changes at these states and actions (a structural zero)."""
        return self._with(Rule("never_switch", (None, None), states, actions, 1.0, 1.0))

    @_Builder
    def stay(
        self,
        states: Any = None,
        actions: Any = None,
        *,
        equal: float | None = None,
        at_least: float | None = None,
        at_most: float | None = None,
    ) -> IntentConstraints:
        """Constraints with one more: the mean under q of the probability that the intent stays, for every intent.

        ``equal``, strictly between 0 and 1, is eq. 19 of Unhelkar and Shah (2019).
        """
        bounds = _read_bounds("stay", equal, at_least, at_most)
        return self._with(Rule("stay", (None, None), states, actions, *bounds))

    @_Builder
    def entry(
        self,
        intent: int,
        next_intent: int,
        states: Any = None,
        actions: Any = None,
        *,
        equal: float | None = None,
        at_least: float | None = None,
        at_most: float | None = None,
    ) -> IntentConstraints:
        """Constraints with one more: the mean under q of the probability of `next_intent` after `intent`."""
        bounds = _read_bounds("entry", equal, at_least, at_most)
        place = require_integer("intent", intent, 0), require_integer("next_intent", next_intent, 0)
        return self._with(Rule("entry", place, states, actions, *bounds))

    @_Builder
    def action(
        self,
        action: int,
        states: Any = None,
        *,
        intent: int | None = None,
        equal: float | None = None,
        at_least: float | None = None,
        at_most: float | None = None,
    ) -> IntentConstraints:
        """Constraints with one more: the mean under q of the probability of an action; ``equal=0`` forbids it."""
        bounds = _read_bounds("action", equal, at_least, at_most, zero=True)
        one = None if intent is None else require_integer("intent", intent, 0)
        place = one, require_integer("action", action, 0)
        return self._with(Rule("action", place, states, None, *bounds))

    def _with(self, rule: Rule) -> IntentConstraints:
        return dataclasses.replace(self, rules=(*self.rules, rule))

    def __bool__(self) -> bool:
        return bool(self.rules)


def _read_bounds(
    kind: str, equal: Any, at_least: Any, at_most: Any, zero: bool = False
) -> tuple[float, float]:
    """Lower and upper bound of a mean; 0 and 1 where not given."""
    arguments = {"equal": equal, "at_least": at_least, "at_most": at_most}
    given = {name: value for name, value in arguments.items() if value is not None}
    if not given or ("equal" in given and len(given) > 1):
        raise ValueError(
            f"{kind} needs equal=, or at_least= or at_most= or both, not {given or 'none of them'}"
        )
    for name, value in given.items():
        value = given[name] = require_number(f"{name} of {kind}", value, 0, 1)
        if 0 < value < 1 or (zero and name == "equal" and value == 0):
            continue
        fix = "for certainty use never_switch" if kind == "stay" else "leave it out, or give a value inside"
        raise ValueError(f"{name} of {kind} must lie strictly between 0 and 1, not {value:g}: {fix}")
    lower = given.get("equal", given.get("at_least", 0.0))
    upper = given.get("equal", given.get("at_most", 1.0))
    if lower > upper:
        raise ValueError(f"at_least of {kind}, {lower:g}, is above at_most, {upper:g}")
    return lower, upper


def check_constraints(
    constraints: Any, num_states: int, num_actions: int, truncation: int
) -> IntentConstraints:
    """Constraints with their regions as masks, checked for a model of this size and for contradictions."""
    if not isinstance(constraints, IntentConstraints):
        raise TypeError(f"constraints must be an IntentConstraints, not {type(constraints).__name__}")
    rules = []
    for rule in constraints.rules:
        sizes = truncation, num_actions if rule.kind == "action" else truncation
        for number, size in zip(rule.place, sizes, strict=True):
            if number is not None and number >= size:
                raise ValueError(f"constraints: {rule.describe()}: {number} is outside 0..{size - 1}")
        states = _mask(rule, "states", rule.states, num_states)
        actions = _mask(rule, "actions", rule.actions, num_actions)
        rules.append(dataclasses.replace(rule, states=states, actions=actions))
    checked = dataclasses.replace(constraints, rules=tuple(rules))
    _refuse_contradictions(checked, num_states, num_actions, truncation)
    return checked


def _mask(rule: Rule, name: str, region: Any, size: int) -> np.ndarray:
    if region is None:
        return np.ones(size, bool)
    values, place = np.asarray(region), f"constraints: {rule.describe()}: {name}"
    if values.dtype == bool:
        if values.shape != (size,):
            raise ValueError(f"{place} is a mask of shape {values.shape}, not ({size},)")
        return values
    if values.size and not np.issubdtype(values.dtype, np.integer):
        raise TypeError(f"{place} must be a mask or indices, not {region!r}")
    wrong = values[(values < 0) | (values >= size)]
    if wrong.size:
        raise ValueError(f"{place} has {wrong[0]}, outside 0..{size - 1}")
    mask = np.zeros(size, bool)
    mask[values.astype(int).ravel()] = True
    return mask


def bounds_of(
    constraints: IntentConstraints, over: str, cells: np.ndarray, num_actions: int, truncation: int
) -> Bounds:
    """Bounds (cell, intent, entry) of rows over ``"intents"`` or ``"actions"``.

    Cells are pairs, state * (num_actions + 1) + action, or states; ``never`` has no meaning for rows over actions.
    """
    rules, holds = _rules(constraints, over, cells, num_actions)
    tables, which, _ = _distinct(rules, holds, _shape(over, num_actions, truncation))
    return Bounds(*(part[which] for part in tables))


def _shape(over: str, num_actions: int, truncation: int) -> tuple[int, int]:
    return truncation, truncation + 1 if over == "intents" else num_actions


def _rules(
    constraints: IntentConstraints, over: str, cells: np.ndarray, num_actions: int
) -> tuple[list[Rule], np.ndarray]:
    """Rules on rows over intents or actions, and where each holds (rule, cell).

    A missing action may be any: only rules for all actions hold for it.
    """
    rules = [rule for rule in constraints.rules if (rule.kind == "action") == (over == "actions")]
    if over == "actions":
        holds = [rule.states[cells] for rule in rules]
    else:
        states, actions = np.divmod(cells, num_actions + 1)
        holds = [rule.states[states] & np.append(rule.actions, rule.actions.all())[actions] for rule in rules]
    return rules, np.array(holds, bool).reshape(len(rules), len(cells))


def _distinct(
    rules: list[Rule], holds: np.ndarray, shape: tuple[int, int]
) -> tuple[Bounds, np.ndarray, np.ndarray]:
    """Bounds of each distinct set of rules, the set of each cell, and the first cell of each set.

    Bounds are not yet narrowed by ``never``; lower ones exceed upper ones where rules contradict each other.
    """
    signature, first, which = np.unique(holds, axis=1, return_index=True, return_inverse=True)
    count = signature.shape[1]
    never = np.zeros(count, bool)
    lower, upper = np.zeros((count, *shape)), np.ones((count, *shape))
    for number, rule in enumerate(rules):
        here = signature[number]
        if rule.kind == "never_switch":
            never |= here
            continue
        rows, entries = _place(rule, shape)
        at = np.ix_(np.flatnonzero(here), np.arange(len(rows)))
        for bounds, value, narrower in ((lower, rule.lower, np.maximum), (upper, rule.upper, np.minimum)):
            part = bounds[:, rows, entries]
            part[at] = narrower(part[at], float(value))
            bounds[:, rows, entries] = part
    return Bounds(never, lower, upper), which.reshape(-1), first


def _place(rule: Rule, shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Rows and entries of a table (intent, entry) that a rule constrains."""
    one, other = rule.place
    everyone = np.arange(shape[0])
    if rule.kind == "stay":
        return everyone, everyone
    rows = everyone if one is None else np.array([one])
    return rows, np.full(len(rows), other)


def _refuse_contradictions(
    constraints: IntentConstraints, num_states: int, num_actions: int, truncation: int
) -> None:
    for over, count in (("intents", num_states * (num_actions + 1)), ("actions", num_states)):
        rules, holds = _rules(constraints, over, np.arange(count), num_actions)
        shape = _shape(over, num_actions, truncation)
        tables, _, first = _distinct(rules, holds, shape)
        for number, cell in enumerate(first):
            here = [rule for rule, held in zip(rules, holds[:, cell], strict=True) if held]
            fault = _fault(Bounds(*(part[number] for part in tables)), shape)
            if fault:
                state, action = divmod(cell, num_actions + 1) if over == "intents" else (cell, num_actions)
                where = f"state {state}" + (f", action {action}" if action < num_actions else "")
                listed = "; ".join(rule.describe() for rule in here)
                raise ValueError(f"constraints contradict each other at {where} ({listed}): {fault}")


def _fault(bounds: Bounds, shape: tuple[int, int]) -> str:
    """Why the bounds of one cell are infeasible; empty if they are feasible."""
    never, lower, upper = bounds
    if (lower > upper).any():
        at = tuple(np.argwhere(lower > upper)[0].tolist())
        return f"entry {list(at)} must be at least {lower[at]:g} and at most {upper[at]:g}"
    if never:
        own = np.eye(*shape, dtype=bool)
        if (upper[own] < 1).any():
            return "where the intent never changes it stays with probability 1"
        if (lower[~own] > 0).any():
            return "where the intent never changes no other can follow"
        return ""
    least, most = lower.sum(-1), upper.sum(-1)
    open_ended = ((lower == 0) & (upper > 0)).any(-1)
    crowded = (least > 1 + 1e-9) | ((least >= 1 - 1e-9) & open_ended)
    if crowded.any():
        row = int(np.argmax(crowded))
        return f"the lower bounds of the row of intent {row} sum to {least[row]:g} and leave nothing to other entries"
    if (most < 1 - 1e-9).any():
        row = int(np.argmax(most < 1 - 1e-9))
        return f"the upper bounds of the row of intent {row} sum to {most[row]:g}, less than 1"
    return ""
