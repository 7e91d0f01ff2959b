r"""What an observer knows of an agent before any fit: where its intent stays, what it enters, how it acts.

Unhelkar and Shah (2019), eq. 19, give means of entries of the rows over intents, under q. That is right for means
strictly between 0 and 1; "the intent never changes here" is no mean but a structural zero of every other entry, and
is built as one.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

__all__ = ["Bounds", "Constraints", "bounds_of_pairs", "bounds_of_policies", "check_constraints"]


class Bounds(NamedTuple):
    """Bounds of means, for some cells of a table."""

    never: np.ndarray  # (cell,): whether the intent never changes there
    lower: np.ndarray  # (cell, intent, entry)
    upper: np.ndarray


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class _Rule:
    """One statement; numbers are leaves, so that fits under rules of one kind share a compilation."""

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


class _Statement:
    """A method that can be called on the class, too, where it starts from nothing said."""

    def __init__(self, function: Callable[..., Any]):
        self.function = function
        self.__doc__ = function.__doc__

    def __get__(self, instance: Any, owner: Any) -> Callable[..., Any]:
        bound = functools.partial(self.function, owner() if instance is None else instance)
        return functools.wraps(self.function)(bound)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Constraints:
    """Statements about an agent, for :class:`~ethogram.models.agent_markov.AgentMarkov`.

    Regions of states, and sets of actions, are masks or lists of numbers; None means all. Statements without an
    intent hold for every intent alike, and are all that can be said before intents have numbers.

    Parameters
    ----------
    rules : what was said; made by the methods.
    concentration : a row with bounds stands where the bound of the fit is largest, ``"maximise"``, and may then be far
        more certain than its data; with ``"keep"`` it has the mean of that row and the sum of its free posterior. The
        bound of the fit is then lower, and may fall from sweep to sweep.

    Examples
    --------
    >>> known = Constraints.never_switch(states=[1, 2]).stay(states=[3], at_least=0.9)
    >>> [rule.describe() for rule in known.rules]
    ['never_switch', 'stay at least 0.9']
    """

    rules: tuple[_Rule, ...] = ()
    concentration: str = dataclasses.field(default="maximise", metadata={"static": True})

    def __post_init__(self):
        if self.concentration not in ("maximise", "keep"):
            raise ValueError(f'concentration must be "maximise" or "keep", not {self.concentration!r}')

    @_Statement
    def never_switch(self, states: Any = None, actions: Any = None) -> Constraints:
        """With: the intent does not change on steps from these states by these actions. A hard zero."""
        return self._with(_Rule("never_switch", (None, None), states, actions, 1.0, 1.0))

    @_Statement
    def stay(
        self,
        states: Any = None,
        actions: Any = None,
        *,
        equal: float | None = None,
        at_least: float | None = None,
        at_most: float | None = None,
    ) -> Constraints:
        """With: the posterior mean probability, under q, that an intent stays on such steps, for every intent.

        Unhelkar and Shah (2019), eq. 19, is ``equal``, strictly between 0 and 1.
        """
        bounds = _read_bounds("stay", equal, at_least, at_most)
        return self._with(_Rule("stay", (None, None), states, actions, *bounds))

    @_Statement
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
    ) -> Constraints:
        """With: the mean probability, under q, of one intent after another; intents by their numbers in a fit."""
        bounds = _read_bounds("entry", equal, at_least, at_most)
        place = _intent("intent", intent), _intent("next_intent", next_intent)
        return self._with(_Rule("entry", place, states, actions, *bounds))

    @_Statement
    def action(
        self,
        action: int,
        states: Any = None,
        *,
        intent: int | None = None,
        equal: float | None = None,
        at_least: float | None = None,
        at_most: float | None = None,
    ) -> Constraints:
        """With: the mean probability, under q, of an action in these states; ``equal=0`` forbids it there."""
        bounds = _read_bounds("action", equal, at_least, at_most, zero=True)
        place = None if intent is None else _intent("intent", intent), _intent("action", action)
        return self._with(_Rule("action", place, states, None, *bounds))

    def _with(self, rule: _Rule) -> Constraints:
        return dataclasses.replace(self, rules=(*self.rules, rule))

    def __bool__(self) -> bool:
        return bool(self.rules)


def _intent(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 0:
        raise ValueError(f"{name} must be a number from 0 up, not {value!r}")
    return int(value)


def _read_bounds(
    kind: str, equal: Any, at_least: Any, at_most: Any, zero: bool = False
) -> tuple[float, float]:
    """Lower and upper bound, 0 and 1 where nothing is said."""
    given = {"equal": equal, "at_least": at_least, "at_most": at_most}
    said = {name: value for name, value in given.items() if value is not None}
    if not said or ("equal" in said and len(said) > 1):
        raise ValueError(
            f"{kind} needs equal=, or at_least= and at_most=, or one of these; it has {said or 'none'}"
        )
    for name, value in said.items():
        if isinstance(value, bool) or not isinstance(value, int | float | np.floating):
            raise TypeError(f"{kind}: {name} must be a number, not {value!r}")
        if zero and name == "equal" and value == 0:
            continue
        if not 0 < value < 1:
            cure = (
                "never_switch says that nothing changes" if kind == "stay" else "leave it out, or go nearer"
            )
            raise ValueError(f"{kind}: {name} must lie strictly between 0 and 1, not {value!r}: {cure}")
    if equal is not None:
        return float(equal), float(equal)
    lower, upper = float(at_least or 0), float(1 if at_most is None else at_most)
    if lower > upper:
        raise ValueError(f"{kind}: at_least is {lower}, above at_most, {upper}")
    return lower, upper


def check_constraints(constraints: Any, num_states: int, num_actions: int, truncation: int) -> Constraints:
    """Constraints with their regions as masks, which hold for a model of this size.

    Raises
    ------
    TypeError
        For anything but constraints, or regions that are neither masks nor numbers.
    ValueError
        For states, actions or intents that the model does not have, and for statements that contradict each other,
        by the first state and action at which they do.
    """
    if not isinstance(constraints, Constraints):
        raise TypeError(f"constraints must be Constraints, not {type(constraints).__name__}")
    rules = []
    for rule in constraints.rules:
        sizes = {"entry": (truncation, truncation), "action": (truncation, num_actions)}.get(
            rule.kind, (0, 0)
        )
        for number, size in zip(rule.place, sizes, strict=True):
            if number is not None and number >= size:
                raise ValueError(f"constraints: {rule.describe()}: {number} is outside 0..{size - 1}")
        states = _mask(rule, "states", rule.states, num_states)
        actions = _mask(rule, "actions", rule.actions, num_actions)
        rules.append(dataclasses.replace(rule, states=states, actions=actions))
    checked = dataclasses.replace(constraints, rules=tuple(rules))
    _refuse_contradictions(checked, num_states, num_actions, truncation)
    return checked


def _mask(rule: _Rule, name: str, region: Any, size: int) -> np.ndarray:
    if region is None:
        return np.ones(size, bool)
    values = np.asarray(region)
    if values.dtype == bool:
        if values.shape != (size,):
            raise ValueError(
                f"constraints: {rule.describe()}: {name} is a mask of shape {values.shape}, not ({size},)"
            )
        return values
    if values.size and not np.issubdtype(values.dtype, np.integer):
        raise TypeError(f"constraints: {rule.describe()}: {name} must be a mask or numbers, not {region!r}")
    wrong = values[(values < 0) | (values >= size)] if values.size else values
    if wrong.size:
        raise ValueError(f"constraints: {rule.describe()}: {name} has {wrong[0]}, outside 0..{size - 1}")
    mask = np.zeros(size, bool)
    mask[values.astype(int).ravel()] = True
    return mask


def bounds_of_pairs(constraints: Constraints, pairs: np.ndarray, num_actions: int, truncation: int) -> Bounds:
    """Bounds of the rows over intents (cell, intent, next intent) of some pairs, state * (num_actions + 1) + action."""
    rules, holds = _rules_of_pairs(constraints, pairs, num_actions)
    tables, which, _ = _distinct(rules, holds, (truncation, truncation + 1))
    return Bounds(*(part[which] for part in tables))


def bounds_of_policies(
    constraints: Constraints, states: np.ndarray, num_actions: int, truncation: int
) -> Bounds:
    """Bounds of the rows over actions (cell, intent, action) of some states; ``never`` says nothing here."""
    rules, holds = _rules_of_policies(constraints, states)
    tables, which, _ = _distinct(rules, holds, (truncation, num_actions))
    return Bounds(*(part[which] for part in tables))


def _rules_of_pairs(
    constraints: Constraints, pairs: np.ndarray, num_actions: int
) -> tuple[list[_Rule], np.ndarray]:
    """What is said of rows over intents, and where each of it holds (rule, cell).

    A step whose action is missing may be by any: what holds for all actions holds for it.
    """
    rules = [rule for rule in constraints.rules if rule.kind != "action"]
    states, actions = np.divmod(pairs, num_actions + 1)
    holds = [rule.states[states] & np.append(rule.actions, rule.actions.all())[actions] for rule in rules]
    return rules, np.array(holds, bool).reshape(len(rules), len(pairs))


def _rules_of_policies(constraints: Constraints, states: np.ndarray) -> tuple[list[_Rule], np.ndarray]:
    """What is said of rows over actions, and where each of it holds (rule, cell)."""
    rules = [rule for rule in constraints.rules if rule.kind == "action"]
    return rules, np.array([rule.states[states] for rule in rules], bool).reshape(len(rules), len(states))


def _distinct(
    rules: list[_Rule], holds: np.ndarray, shape: tuple[int, int]
) -> tuple[Bounds, np.ndarray, np.ndarray]:
    """Bounds of each distinct set of rules that holds somewhere, which of them each cell has, and a cell that has it.

    Bounds are not yet narrowed by ``never``, and are crossed where rules contradict each other.
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


def _place(rule: _Rule, shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Rows and entries of a table (intent, entry) that a rule speaks of."""
    one, other = rule.place
    everyone = np.arange(shape[0])
    if rule.kind == "stay":
        return everyone, everyone
    rows = everyone if one is None else np.array([one])
    return rows, np.full(len(rows), other)


def _refuse_contradictions(
    constraints: Constraints, num_states: int, num_actions: int, truncation: int
) -> None:
    states, pairs = np.arange(num_states), np.arange(num_states * (num_actions + 1))
    for over, (rules, holds) in {
        "intents": _rules_of_pairs(constraints, pairs, num_actions),
        "actions": _rules_of_policies(constraints, states),
    }.items():
        shape = (truncation, truncation + 1 if over == "intents" else num_actions)
        tables, _, first = _distinct(rules, holds, shape)
        for number, cell in enumerate(first):
            here = [rule for rule, held in zip(rules, holds[:, cell], strict=True) if held]
            fault = _fault(Bounds(*(part[number] for part in tables)), here, shape)
            if fault:
                state, action = divmod(cell, num_actions + 1) if over == "intents" else (cell, num_actions)
                where = f"state {state}" + (f", action {action}" if action < num_actions else "")
                said = "; ".join(rule.describe() for rule in here)
                raise ValueError(f"constraints contradict each other at {where} ({said}): {fault}")


def _fault(bounds: Bounds, rules: list[_Rule], shape: tuple[int, int]) -> str:
    """What is wrong with the bounds of one cell; empty where nothing is."""
    never, lower, upper = bounds
    fixed = np.zeros(shape, int)
    for rule in rules:
        if rule.kind != "never_switch" and rule.lower == rule.upper:
            np.add.at(fixed, _place(rule, shape), 1)
    if (fixed > 1).any():
        return f"the mean of entry {np.argwhere(fixed > 1)[0].tolist()} is given twice"
    if (lower > upper).any():
        at = tuple(np.argwhere(lower > upper)[0].tolist())
        return f"entry {list(at)} is at least {lower[at]:g} and at most {upper[at]:g}"
    if never:
        own = np.eye(*shape, dtype=bool)
        if (upper[own] < 1).any():
            return "an intent that never changes stays with probability 1"
        if (lower[~own] > 0).any():
            return "an intent that never changes enters no other"
        return ""
    least, most = lower.sum(-1), upper.sum(-1)
    open_ended = ((lower == 0) & (upper > 0)).any(-1)
    crowded = (least > 1 + 1e-9) | ((least >= 1 - 1e-9) & open_ended)
    if crowded.any():
        row = int(np.argmax(crowded))
        return f"the least means of the row of intent {row} sum to {least[row]:g}, and leave nothing to the others"
    if (most < 1 - 1e-9).any():
        row = int(np.argmax(most < 1 - 1e-9))
        return f"the largest means of the row of intent {row} sum to {most[row]:g}, less than 1"
    return ""
