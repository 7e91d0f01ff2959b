"""What zeros in the tables of a network leave possible: states without support go, until none is left to go.

A state of a variable has no support in a table where every entry with it, and with what is still possible of the other
variables, is zero. Deterministic networks often have nothing left to search once this is done; and where a variable has
no state left, the evidence is impossible.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ethogram.models.bayes_net import BayesNet, MarginalMAP

__all__ = [
    "Factor",
    "Possible",
    "Supports",
    "bit_places",
    "contradiction",
    "propagate_zeros",
    "query_factors",
]

SMALL = 64
"""Entries of a table whose supports are remembered."""


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

    Sets of states are the bits of whole numbers.

    Parameters
    ----------
    factors : tables of variables; what is zero in them supports nothing.
    """

    def __init__(self, factors: Sequence[Factor]):
        self.scopes = [factor.scope for factor in factors]
        self.patterns: list[tuple[tuple[int, ...], bytes]] = []
        self.sizes: dict[int, int] = {}
        self.touching: dict[int, list[int]] = {}
        waiting = []
        for place, (scope, table) in enumerate(factors):
            positive = (table > 0).tobytes()
            self.patterns.append((table.shape, positive))
            if 0 in positive:
                waiting.append(place)
            for variable, size in zip(scope, table.shape, strict=True):
                self.sizes[variable] = size
                self.touching.setdefault(variable, []).append(place)
        self.first = {variable: (1 << size) - 1 for variable, size in self.sizes.items()}
        self._narrow(self.first, waiting)

    def assume(self, alive: Mapping[int, int], variable: int, state: int) -> dict[int, int] | None:
        """By variable, the states that have support once one variable's is known; None where some has none left."""
        left = dict(alive)
        left[variable] &= 1 << state
        return left if left[variable] and self._narrow(left, list(self.touching[variable])) else None

    def _narrow(self, alive: dict[int, int], waiting: list[int]) -> bool:
        """Take away states without support until none is left to go; whether every variable has one."""
        queued = set(waiting)
        while waiting:
            place = waiting.pop()
            queued.discard(place)
            scope, (shape, positive) = self.scopes[place], self.patterns[place]
            before = tuple([alive[variable] for variable in scope])
            after = (_supported if len(positive) <= SMALL else _supported.__wrapped__)(
                shape, positive, before
            )
            if after == before:
                continue
            for variable, had, has in zip(scope, before, after, strict=True):
                if had != has:
                    alive[variable] = has
                    again = [other for other in self.touching[variable] if other not in queued]
                    waiting += again
                    queued.update(again)
            if not all(after):
                return False
        return True


@functools.lru_cache(2**14)
def _supported(shape: tuple[int, ...], positive: bytes, alive: tuple[int, ...]) -> tuple[int, ...]:
    """Of states that are alive, by axis, those with an entry that is positive where all are alive."""
    here = np.frombuffer(positive, bool).reshape(shape)
    for axis, (size, bits) in enumerate(zip(shape, alive, strict=True)):
        if bits != (1 << size) - 1:
            there = np.zeros(size, bool)
            there[bit_places(bits)] = True
            here = here & there.reshape([-1 if other == axis else 1 for other in range(len(shape))])
    axes = range(len(shape))
    found = [np.flatnonzero(here.any(axis=tuple(other for other in axes if other != axis))) for axis in axes]
    return tuple(sum(1 << int(state) for state in states) for states in found)


def bit_places(bits: int) -> list[int]:
    """Places of the bits of a number, the lowest first."""
    found = []
    while bits:
        low = bits & -bits
        found.append(low.bit_length() - 1)
        bits ^= low
    return found


def propagate_zeros(factors: Sequence[Factor]) -> Possible:
    """States that have support in every factor, and the factors over these alone."""
    supports = Supports(factors)
    states = {variable: _numbers(bits) for variable, bits in supports.first.items()}
    single = {variable: int(each[0]) for variable, each in states.items() if len(each) == 1}
    fewer = {variable for variable, each in states.items() if len(each) not in (1, supports.sizes[variable])}
    left = []
    for scope, table in factors:
        if not fewer.isdisjoint(scope):
            for axis, variable in enumerate(scope):
                table = table.take(states[variable], axis) if variable in fewer else table
        if not single.keys().isdisjoint(scope):
            table = np.asarray(table[tuple([single.get(variable, slice(None)) for variable in scope])])
            scope = tuple([variable for variable in scope if variable not in single])
        left.append(Factor(scope, table))
    return Possible(left, states)


@functools.lru_cache(2**12)
def _numbers(bits: int) -> np.ndarray:
    found = np.array(bit_places(bits), int)
    found.flags.writeable = False
    return found


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
