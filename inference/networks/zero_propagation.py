"""Propagation of zeros: states without support in some table are removed until nothing changes (arc consistency).

A state of a variable has support in a table if some entry with that state, and with possible states of the other
variables, is positive. Deterministic networks often have little left to search once this is done, and where a variable
has no state left, the evidence is impossible.

Mackworth (1977), "Consistency in networks of relations": generalised arc consistency, as in its procedure AC-3.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ethogram.inference.networks.parity_checks import CACHED_ENTRIES, Parities
from ethogram.models.networks.bayes_net import BayesNet
from ethogram.models.networks.marginal_map import MarginalMAP

__all__ = [
    "Factor",
    "ReducedFactors",
    "bit_places",
    "explanation",
    "independent_parts",
    "minimal_conflict",
    "propagate_zeros",
    "query_factors",
    "supported",
]


class Factor(NamedTuple):
    """A nonnegative table and its scope: variables, one per axis."""

    scope: tuple[int, ...]
    table: np.ndarray

    def __repr__(self) -> str:
        return f"Factor({self.scope}, table of shape {self.table.shape})"


@dataclasses.dataclass(frozen=True, eq=False)
class ReducedFactors:
    """Factors over possible states, variables with one such state sliced out.

    Attributes
    ----------
    factors : over the variables that are left.
    states : possible states of every variable.
    orders : elimination orders that have been found; :mod:`elimination` keeps them here.
    """

    factors: list[Factor]
    states: dict[int, np.ndarray]
    orders: dict[Any, Any] = dataclasses.field(default_factory=dict, repr=False)

    @functools.cached_property
    def impossible(self) -> bool:
        """Whether some variable has no state left, or some factor is zero everywhere."""
        return any(not len(each) for each in self.states.values()) or any(
            not scope and not table for scope, table in self.factors
        )

    @functools.cached_property
    def log_constant(self) -> float:
        """Log of the factors without variables, where none is zero."""
        return math.fsum(math.log(float(table)) for scope, table in self.factors if not scope)

    @functools.cached_property
    def live(self) -> list[Factor]:
        """The other factors."""
        return [factor for factor in self.factors if factor.scope]

    @functools.cached_property
    def parts(self) -> list[list[Factor]]:
        """Connected components of the factors with variables."""
        return independent_parts(self.live)

    @functools.cached_property
    def sizes(self) -> dict[int, int]:
        """Number of possible states by variable."""
        return {variable: len(each) for variable, each in self.states.items()}

    def place(self, variable: int, state: int | None) -> int | None:
        """Place of a state among the possible ones; None where it is not one of them."""
        at = np.flatnonzero(self.states[variable] == state)
        return int(at[0]) if len(at) else None

    def whole(self, places: Mapping[int, int]) -> dict[int, int]:
        """States by variable, given places; variables with one possible state are added."""
        fixed = {variable: int(each[0]) for variable, each in self.states.items() if len(each) == 1}
        return fixed | {variable: int(self.states[variable][place]) for variable, place in places.items()}


def independent_parts(factors: list[Factor]) -> list[list[Factor]]:
    """Connected components of the factors."""
    home: dict[int, int] = {}

    def root(variable: int) -> int:
        while home.setdefault(variable, variable) != variable:
            home[variable] = home[home[variable]]
            variable = home[variable]
        return variable

    for scope, _ in factors:
        for variable in scope[1:]:
            home[root(variable)] = root(scope[0])
    parts: dict[int, list[Factor]] = {}
    for factor in factors:
        parts.setdefault(root(factor.scope[0]), []).append(factor)
    return list(parts.values())


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


def supported(shape: tuple[int, ...], positive: bytes, alive: tuple[int, ...]) -> tuple[int, ...]:
    """States with a positive entry among those alive, by axis of a table; sets of states are bits of an integer."""
    find = _supported if len(positive) <= CACHED_ENTRIES else _supported.__wrapped__
    return find(shape, positive, alive)


@functools.lru_cache(2**14)
def _supported(shape: tuple[int, ...], positive: bytes, alive: tuple[int, ...]) -> tuple[int, ...]:
    left: list[int | slice] = [bits.bit_length() - 1 if _single(bits) else slice(None) for bits in alive]
    here = np.frombuffer(positive, bool).reshape(shape)[tuple(left)]
    loose = [axis for axis, bits in enumerate(alive) if not _single(bits)]
    for i, axis in enumerate(loose):
        if alive[axis] != (1 << shape[axis]) - 1:
            here = here.take(bit_places(alive[axis]), i)
    if not here.any():
        return (0,) * len(shape)
    after = list(alive)
    for i, axis in enumerate(loose):
        found = np.asarray(here.any(axis=tuple(other for other in range(len(loose)) if other != i))).tolist()
        after[axis] = sum(
            1 << state for state, has in zip(bit_places(alive[axis]), found, strict=True) if has
        )
    return tuple(after)


def explanation(
    shape: tuple[int, ...], positive: bytes, alive: tuple[int, ...], ruled_out: tuple[int, int] | None
) -> tuple[tuple[int, int], ...]:
    """Pairs of axis and lacking state, no more than needed, that leave no positive entry (of a state of an axis)."""
    explain = _explanation if len(positive) <= CACHED_ENTRIES else _explanation.__wrapped__
    return explain(shape, positive, alive, ruled_out)


@functools.lru_cache(2**14)
def _explanation(
    shape: tuple[int, ...], positive: bytes, alive: tuple[int, ...], ruled_out: tuple[int, int] | None
) -> tuple[tuple[int, int], ...]:
    entries = np.argwhere(np.frombuffer(positive, bool).reshape(shape))
    own = None
    if ruled_out is not None:
        own, state = ruled_out
        entries = entries[entries[:, own] == state]
    lacking = [
        (axis, state)
        for axis, (size, bits) in enumerate(zip(shape, alive, strict=True))
        if axis != own
        for state in bit_places(~bits & (1 << size) - 1)
    ]
    covered = {pair: entries[:, pair[0]] == pair[1] for pair in lacking}
    times = np.zeros(len(entries), int)
    for each in covered.values():
        times += each
    for pair in sorted(lacking, key=lambda pair: int(covered[pair].sum())):
        fewer = times - covered[pair]
        if fewer.all():
            times = fewer
            del covered[pair]
    return tuple(covered)


def _single(bits: int) -> bool:
    return bits > 0 and not bits & (bits - 1)


def bit_places(bits: int) -> list[int]:
    """Positions of the bits set in an integer, the lowest first."""
    found = []
    while bits:
        low = bits & -bits
        found.append(low.bit_length() - 1)
        bits ^= low
    return found


def _alive(factors: Sequence[Factor]) -> tuple[dict[int, int], dict[int, int]]:
    """Possible states by variable, as bits, and the number of all; one variable has none where all is impossible."""
    sizes: dict[int, int] = {}
    touching: dict[int, list[int]] = {}
    patterns: list[bytes] = []
    waiting: list[int] = []
    for place, (scope, table) in enumerate(factors):
        sizes |= zip(scope, table.shape, strict=True)
        patterns.append((table > 0).tobytes())
        if 0 in patterns[-1]:  # others rule nothing out
            waiting.append(place)
            for variable in scope:
                touching.setdefault(variable, []).append(place)
    alive = {variable: (1 << size) - 1 for variable, size in sizes.items()}
    queued = set(waiting)
    while waiting:
        place = waiting.pop()
        queued.discard(place)
        scope, table = factors[place]
        before = tuple([alive[variable] for variable in scope])
        after = supported(table.shape, patterns[place], before)
        if after == before:
            continue
        for variable, had, has in zip(scope, before, after, strict=True):
            if had != has:
                alive[variable] = has
                again = [other for other in touching[variable] if other not in queued]
                waiting += again
                queued.update(again)
        if not all(after):
            break
    return alive, sizes


def propagate_zeros(factors: Sequence[Factor]) -> ReducedFactors:
    """Possible states, and the factors restricted to them."""
    alive, sizes = _alive(factors)
    states = {variable: _numbers(bits) for variable, bits in alive.items()}
    single = {variable: int(each[0]) for variable, each in states.items() if len(each) == 1}
    fewer = {variable for variable, each in states.items() if len(each) not in (1, sizes[variable])}
    left = []
    for scope, table in factors:
        if not fewer.isdisjoint(scope):
            for axis, variable in enumerate(scope):
                table = table.take(states[variable], axis) if variable in fewer else table
        if not single.keys().isdisjoint(scope):
            table = np.asarray(table[tuple([single.get(variable, slice(None)) for variable in scope])])
            scope = tuple([variable for variable in scope if variable not in single])
        left.append(Factor(scope, table))
    return ReducedFactors(left, states)


@functools.lru_cache(2**12)
def _numbers(bits: int) -> np.ndarray:
    found = np.array(bit_places(bits), int)
    found.flags.writeable = False
    return found


def minimal_conflict(query: MarginalMAP) -> tuple[int, ...] | None:
    """Variables of a minimal set of contradictory evidence; None if propagation of zeros and parity checks find none.

    Evidence may be impossible in other ways. Junker (2004), "QuickXplain: preferred
    explanations and relaxations for over-constrained problems".
    """
    hard, soft = dict(query.observed), dict(query.soft)

    def impossible(known: Sequence[int]) -> bool:
        given = {variable: hard[variable] for variable in known if variable in hard}
        likely = {variable: soft[variable] for variable in known if variable in soft}
        possible = propagate_zeros(_factors(query.network, query.network.tables, given, likely))
        return possible.impossible or Parities(possible.live).impossible

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
