"""What zeros in the tables of a network leave possible: states without support go, until none is left to go.

A state of a variable has no support in a table where every entry with it, and with what is still possible of the other
variables, is zero. Deterministic networks often have nothing left to search once this is done; and where a variable has
no state left, the evidence is impossible.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ethogram.models.bayes_net import BayesNet, MarginalMAP

__all__ = ["Factor", "Possible", "Supports", "contradiction", "propagate_zeros", "query_factors"]


class Factor(NamedTuple):
    """A table of some variables.

    Attributes
    ----------
    scope : variables, one an axis.
    table : of numbers of at least zero.
    """

    scope: tuple[int, ...]
    table: np.ndarray


class Possible(NamedTuple):
    """What is left of factors.

    Attributes
    ----------
    factors : over states that are possible; variables with one such state are gone.
    states : by variable, numbers of the states that are possible; empty where the variable has none, which makes all
        impossible.
    """

    factors: list[Factor]
    states: dict[int, np.ndarray]

    @property
    def impossible(self) -> bool:
        """Whether some variable has no state left."""
        return any(not len(each) for each in self.states.values())


def query_factors(
    query: MarginalMAP, assignment: Any = None, tables: tuple[np.ndarray, ...] | None = None
) -> list[Factor]:
    """Tables of the network with the evidence in them, and the likelihoods of soft evidence.

    Parameters
    ----------
    assignment : states of the MAP variables, which are then known too.
    tables : others than the network's own.
    """
    known = dict(query.observed)
    if assignment is not None:
        known |= dict(zip(query.map_variables, map(operator.index, assignment), strict=True))
    return _network_factors(query.network, known, dict(query.soft), tables)


def _network_factors(
    network: BayesNet,
    known: Mapping[int, int],
    soft: Mapping[int, Any],
    tables: tuple[np.ndarray, ...] | None = None,
) -> list[Factor]:
    factors = []
    for number, (table, parents) in enumerate(zip(tables or network.tables, network.parents, strict=True)):
        scope = (*parents, number)
        left = tuple(variable for variable in scope if variable not in known)
        factors.append(Factor(left, table[tuple(known.get(variable, slice(None)) for variable in scope)]))
    for number, likelihoods in soft.items():
        factors.append(Factor((number,), np.array(likelihoods)))
    return factors


class Supports:
    """Which states have support in every factor, and what is left of them once more is assumed.

    Parameters
    ----------
    factors : tables of variables; what is zero in them supports nothing.
    """

    def __init__(self, factors: Sequence[Factor]):
        self.scopes = [factor.scope for factor in factors]
        self.positive = [factor.table > 0 for factor in factors]
        self.first: dict[int, np.ndarray] = {}
        self.touching: dict[int, list[int]] = {}
        for place, (scope, table) in enumerate(factors):
            for variable, size in zip(scope, table.shape, strict=True):
                self.first.setdefault(variable, np.ones(size, bool))
                self.touching.setdefault(variable, []).append(place)
        self._narrow(self.first, [place for place, each in enumerate(self.positive) if not each.all()])

    def assume(
        self, alive: Mapping[int, np.ndarray], variable: int, state: int
    ) -> dict[int, np.ndarray] | None:
        """By variable, whether each state has support once one variable's is known; None where some has none left."""
        left = dict(alive)
        left[variable] = np.arange(len(alive[variable])) == state
        return left if self._narrow(left, list(self.touching[variable])) else None

    def _narrow(self, alive: dict[int, np.ndarray], waiting: list[int]) -> bool:
        """Take away states without support until none is left to go; whether every variable has one."""
        queued, possible = set(waiting), True
        while waiting and possible:
            place = waiting.pop()
            queued.discard(place)
            scope, here = self.scopes[place], self.positive[place]
            for axis, variable in enumerate(scope):
                if not alive[variable].all():
                    here = here & alive[variable].reshape(
                        [-1 if other == axis else 1 for other in range(len(scope))]
                    )
            for axis, variable in enumerate(scope):
                support = here.any(axis=tuple(other for other in range(len(scope)) if other != axis))
                if (alive[variable] & ~support).any():
                    alive[variable] = alive[variable] & support
                    again = [other for other in self.touching[variable] if other not in queued]
                    waiting += again
                    queued.update(again)
                    possible = possible and bool(alive[variable].any())
        return possible


def propagate_zeros(factors: Sequence[Factor]) -> Possible:
    """States that have support in every factor, and the factors over these alone."""
    states = {variable: np.flatnonzero(each) for variable, each in Supports(factors).first.items()}
    left = []
    for scope, table in factors:
        kept = table[np.ix_(*(states[variable] for variable in scope))] if scope else table
        many = tuple(len(states[variable]) != 1 for variable in scope)
        sizes = tuple(size for size, several in zip(kept.shape, many, strict=True) if several)
        narrowed = tuple(variable for variable, several in zip(scope, many, strict=True) if several)
        left.append(Factor(narrowed, kept.reshape(sizes)))
    return Possible(left, states)


def contradiction(query: MarginalMAP) -> tuple[int, ...] | None:
    """Evidence, by variable, that cannot be together, none of which could be left out; None for none.

    Only what propagation of zeros finds: evidence may be impossible without it.

    References
    ----------
    Junker (2004), "QuickXplain: preferred explanations and relaxations for over-constrained problems".
    """
    hard, soft = dict(query.observed), dict(query.soft)

    def impossible(known: Sequence[int]) -> bool:
        given = {variable: hard[variable] for variable in known if variable in hard}
        likely = {variable: soft[variable] for variable in known if variable in soft}
        found = propagate_zeros(_network_factors(query.network, given, likely))
        return found.impossible or any(not factor.table.any() for factor in found.factors)

    known = [*hard, *soft]
    if not impossible(known):
        return None
    return tuple(_needed(impossible, [], False, known)) if not impossible([]) else ()


def _needed(
    impossible: Callable[[Sequence[int]], bool], kept: list[int], grown: bool, known: list[int]
) -> list[int]:
    """As few of the known as are impossible with those that are kept."""
    if grown and impossible(kept):
        return []
    if len(known) == 1:
        return known
    first, second = known[: len(known) // 2], known[len(known) // 2 :]
    of_second = _needed(impossible, kept + first, True, second)
    of_first = _needed(impossible, kept + of_second, bool(of_second), first)
    return of_first + of_second
