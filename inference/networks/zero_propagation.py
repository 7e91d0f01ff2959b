"""Propagation of zeros: states without support in some table are removed until nothing changes (arc consistency).

A state of a variable has support in a table if some entry with that state, and with possible states of the other
variables, is positive. Deterministic networks often have little left to search once this is done, and where a variable
has no state left, the evidence is impossible.

Mackworth (1977), "Consistency in networks of relations": generalised arc consistency, as in its procedure AC-3.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ethogram.models.networks.bayes_net import BayesNet
from ethogram.models.networks.marginal_map import MarginalMAP

__all__ = [
    "Factor",
    "Possible",
    "Supports",
    "bit_places",
    "minimal_conflict",
    "propagate_zeros",
    "query_factors",
]

SMALL = 64
"""Entries of the largest table whose supports are cached."""


class Factor(NamedTuple):
    """A nonnegative table and its scope: variables, one an axis."""

    scope: tuple[int, ...]
    table: np.ndarray


class Possible(NamedTuple):
    """Factors over possible states, variables with one such state sliced out, and the possible states by variable."""

    factors: list[Factor]
    states: dict[int, np.ndarray]

    @property
    def impossible(self) -> bool:
        """Whether some variable has no state left, or some factor is zero everywhere."""
        return any(not len(each) for each in self.states.values()) or any(
            not scope and not table for scope, table in self.factors
        )

    @property
    def log_constant(self) -> float:
        """Log of the factors without variables, where none is zero."""
        return math.fsum(math.log(float(table)) for scope, table in self.factors if not scope)


def query_factors(
    query: MarginalMAP, assignment: Any = None, tables: tuple[np.ndarray, ...] | None = None
) -> list[Factor]:
    """Tables (the network's unless given) with evidence and MAP states sliced in, and soft evidence's likelihoods."""
    known = dict(query.observed)
    if assignment is not None:
        known |= dict(zip(query.map_variables, map(operator.index, assignment), strict=True))
    return _factors(query.network, tables or query.network.tables, known, dict(query.soft))


def _factors(
    network: BayesNet, tables: Sequence[np.ndarray], known: Mapping[int, int], soft: Mapping[int, Any]
) -> list[Factor]:
    factors = []
    for number, (table, parents) in enumerate(zip(tables, network.parents, strict=True)):
        scope = (*parents, number)
        left = tuple(variable for variable in scope if variable not in known)
        factors.append(Factor(left, table[tuple(known.get(variable, slice(None)) for variable in scope)]))
    return factors + [Factor((number,), np.array(likelihoods)) for number, likelihoods in soft.items()]


class Supports:
    """Possible states given some factors, and given further assumptions; sets of states are bits of an integer."""

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
        """Possible states once a variable has this state, among those alive; None if some variable has none left."""
        left = dict(alive)
        left[variable] &= 1 << state
        return left if left[variable] and self._narrow(left, list(self.touching[variable])) else None

    def _narrow(self, alive: dict[int, int], waiting: list[int]) -> bool:
        """Remove states without support until nothing changes; whether every variable has a state left."""
        queued = set(waiting)
        while waiting:
            place = waiting.pop()
            queued.discard(place)
            scope, (shape, positive) = self.scopes[place], self.patterns[place]
            before = tuple([alive[variable] for variable in scope])
            supported = _supported if len(positive) <= SMALL else _supported.__wrapped__
            after = supported(shape, positive, before)
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
    """Possible states by axis, given those alive: those with a positive entry among the states alive."""
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
    """Positions of the bits set in an integer, the lowest first."""
    found = []
    while bits:
        low = bits & -bits
        found.append(low.bit_length() - 1)
        bits ^= low
    return found


def propagate_zeros(factors: Sequence[Factor]) -> Possible:
    """Possible states, and the factors restricted to them."""
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


def minimal_conflict(query: MarginalMAP) -> tuple[int, ...] | None:
    """Variables of a minimal set of contradictory evidence; None if propagation of zeros finds no contradiction.

    Evidence may be impossible in ways that propagation does not find. Junker (2004), "QuickXplain: preferred
    explanations and relaxations for over-constrained problems".
    """
    hard, soft = dict(query.observed), dict(query.soft)

    def impossible(known: Sequence[int]) -> bool:
        given = {variable: hard[variable] for variable in known if variable in hard}
        likely = {variable: soft[variable] for variable in known if variable in soft}
        return propagate_zeros(_factors(query.network, query.network.tables, given, likely)).impossible

    known = [*hard, *soft]
    if not impossible(known):
        return None
    return tuple(_needed(impossible, [], False, known)) if not impossible([]) else ()


def _needed(
    impossible: Callable[[Sequence[int]], bool], kept: list[int], grown: bool, known: list[int]
) -> list[int]:
    """A minimal part of the known that is impossible together with those kept."""
    if grown and impossible(kept):
        return []
    if len(known) == 1:
        return known
    first, second = known[: len(known) // 2], known[len(known) // 2 :]
    of_second = _needed(impossible, kept + first, True, second)
    of_first = _needed(impossible, kept + of_second, bool(of_second), first)
    return of_first + of_second
