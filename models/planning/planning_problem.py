"""Factored planning problems: fluents and actions that are true or false, and what follows from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ethogram.models.arguments import read_array
from ethogram.models.planning.action_rules import ActionRules
from ethogram.models.planning.fluent_program import FluentProgram
from ethogram.models.planning.lookahead import Lookahead
from ethogram.models.printing import short_repr

__all__ = ["PlanningProblem"]


@short_repr
@dataclass(frozen=True, eq=False)
class PlanningProblem:
    """A planning problem whose fluents are events.

    Attributes
    ----------
    domain, instance : names.
    fluents : name of each event of the state; ``fluent___object=value`` for a value of an enumerated type.
    actions : name of each boolean action.
    initial : (fluent,) 0 or 1, the state at the start.
    program : next probabilities of the fluents and expected reward.
    rules : which actions are allowed together.
    horizon : number of steps.
    discount : of rewards.
    lookahead : what planners take for steps after the first, where the state decides which actions are allowed; None
        where every state allows the same.
    """

    domain: str
    instance: str
    fluents: tuple[str, ...]
    actions: tuple[str, ...]
    initial: np.ndarray
    program: FluentProgram
    rules: ActionRules
    horizon: int
    discount: float
    lookahead: Lookahead | None = None

    @property
    def enumerated(self) -> dict[str, tuple[int, ...]]:
        """Numbers of the events of each fluent of an enumerated type, of which one is true."""
        found: dict[str, tuple[int, ...]] = {}
        for number, name in enumerate(self.fluents):
            fluent, enumerated, _ = name.partition("=")
            if enumerated:
                found[fluent] = (*found.get(fluent, ()), number)
        return found

    def encode_state(self, state: Mapping[str, Any] | np.ndarray) -> np.ndarray:
        """State (fluent,) of 0 and 1, from values by name as pyRDDLGym's environments give them, or from such an array.

        Raises
        ------
        TypeError, ValueError : it has another form, a fluent is missing, or its value is not one that it can have.
        """
        if isinstance(state, Mapping):
            known = np.array([_as_event(name, state) for name in self.fluents])
        else:
            given, count = read_array("state", state), len(self.fluents)
            if given.shape != (count,):
                raise ValueError(
                    f"state has shape {given.shape}: expected values by name, or ({count},) of 0 and 1"
                )
            for at in np.flatnonzero(~np.isin(given, (0, 1)))[:1]:
                raise ValueError(f"state has {self.fluents[at]} = {given[at]!r}: expected 0 or 1")
            known = given.astype(float)
        for fluent, members in self.enumerated.items():
            if known[list(members)].sum() != 1:
                values = [self.fluents[each].partition("=")[2] for each in members]
                came = repr(state.get(fluent)) if isinstance(state, Mapping) else known[list(members)]
                raise ValueError(f"state[{fluent!r}] is {came}: expected one of {', '.join(values)}")
        return known

    def decode_action(self, action: np.ndarray) -> dict[str, bool]:
        """The actions that are true, by name, as pyRDDLGym's environments take them."""
        return {name: True for name, on in zip(self.actions, np.asarray(action) > 0.5, strict=True) if on}


def _as_event(name: str, state: Mapping[str, Any]) -> float:
    fluent, enumerated, value = name.partition("=")
    if fluent not in state:
        raise ValueError(
            f"state has no fluent {fluent}: give a value by name for each of the problem's fluents"
        )
    given = state[fluent]
    if enumerated:
        return float(str(given).lstrip("@") == value)
    if np.ndim(given) or given not in (True, False):
        raise ValueError(f"state[{fluent!r}] = {given!r}: must be true or false")
    return float(given)
