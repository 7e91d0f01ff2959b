r"""Linear equations between binary variables, from the zeros of tables, and their solutions by elimination over GF(2).

The positive entries of a table span an affine subspace of the vectors of zeros and ones; its equations

.. math:: x_{v_1} + \dots + x_{v_k} = b \pmod 2

hold in every possible assignment. Those of exclusive or, of copies and of negations are all that their tables say.
Where every zero is of such an equation, a solution is a possible assignment, and one of them is found without a search.
Substituting a variable of every equation by the others leaves sums over what is free: few variables, where there are
nearly as many checks as bits.

Gallager (1962), "Low-density parity-check codes", for networks of checks; Fossorier, Lin (1995), "Soft-decision
decoding of linear block codes based on ordered statistics", for solutions in which the least certain bits depend on the
others.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

__all__ = ["CACHED_ENTRIES", "LEAST_TIED_SHARE", "Parities", "Substituted", "substituted"]

CACHED_ENTRIES = 64
"""Entries of the largest table for which results are cached."""
MOST_ENTRIES, MOST_AXES = 2**12, 30
"""Entries of the largest table that is looked at, and variables of one after substitution at most."""
LEAST_TIED_SHARE = 0.25
"""Share of the variables that equations must determine to be worth their time."""

Table = tuple[tuple[int, ...], np.ndarray]
"""A scope and a table of nonnegative numbers."""


class Parities:
    """The equations of some factors.

    Attributes
    ----------
    variables : that are in an equation.
    impossible : whether the equations contradict each other.
    """

    def __init__(self, factors: Iterable[Table]):
        self.rows = [
            (tuple(scope[axis] for axis in axes), right)
            for scope, table in factors
            for axes, right in _equations_of(table).equations
        ]
        self.variables = list(dict.fromkeys(itertools.chain.from_iterable(row for row, _ in self.rows)))
        self.impossible = bool(self.rows) and self.solved(self.variables) is None

    def solved(self, order: Iterable[int]) -> dict[int, tuple[tuple[int, ...], int]] | None:
        """Of every pivot, the other variables whose sum it is and the constant; None if there is no solution.

        Pivots are as early in the order as equations allow; they depend on variables that are none.
        """
        names = list(order)[::-1]
        bit = {variable: 1 << i + 1 for i, variable in enumerate(names)}  # the lowest is for the right sides
        reduced: dict[int, int] = {}  # by the places of their highest bits
        for variables, right in self.rows:
            row = right + sum(bit[variable] for variable in variables)
            while row > 1 and (other := reduced.get(row.bit_length())) is not None:
                row ^= other
            if row == 1:
                return None
            if row:
                reduced[row.bit_length()] = row
        found = {}
        for place in sorted(reduced):
            row = reduced[place]
            left, free = row ^ 1 << place - 1, []
            while left > 1:
                top = left.bit_length()
                if top in reduced:  # which has no pivot but its own by now
                    row ^= reduced[top]
                    left ^= reduced[top]
                else:
                    left ^= 1 << top - 1
                    free.append(names[top - 2])
            reduced[place] = row
            found[names[place - 2]] = tuple(free), row & 1
        return found

    def near(self, wanted: Mapping[int, int]) -> dict[int, int]:
        """A solution; of the wanted places of all variables, the first ones come true where equations allow."""
        tied = self.solved(reversed(list(wanted))) or {}
        return dict(wanted) | {
            pivot: (sum(wanted[variable] for variable in free) + right) % 2
            for pivot, (free, right) in tied.items()
        }


class Substituted(NamedTuple):
    """Factors without the variables that others determine.

    Attributes
    ----------
    scopes : of the factors.
    tables : makes their tables.
    tied : of every variable that is gone, those whose sum it is modulo 2, and a constant.
    log_constant : log of a constant that belongs to the factors; -inf where the equations contradict each other.
    """

    scopes: list[tuple[int, ...]]
    tables: Callable[[], list[np.ndarray]]
    tied: dict[int, tuple[tuple[int, ...], int]]
    log_constant: float


def substituted(
    factors: Sequence[Table], maximised: Iterable[int], most_cells: int | float = math.inf
) -> Substituted | None:
    """Factors with a variable of every equation substituted, a summed one where there is one.

    Maximised variables depend on maximised ones alone. None where there are few equations, or a table would be large.
    """
    parities, last = Parities(factors), set(maximised)
    if not parities.rows:
        return None
    tied = parities.solved(sorted(parities.variables, key=last.__contains__))
    if tied is None:
        return Substituted([], list, {}, -math.inf)
    if len(tied) < LEAST_TIED_SHARE * len({variable for scope, _ in factors for variable in scope}):
        return None
    values = [_equations_of(table).value for _, table in factors]
    left = [factor for factor, value in zip(factors, values, strict=True) if not value]
    kept, scopes = [], []
    for scope, table in left:
        size = dict(zip(scope, table.shape, strict=True))
        parts = [tied[variable][0] if variable in tied else (variable,) for variable in scope]
        after = tuple(dict.fromkeys(itertools.chain.from_iterable(parts)))
        if not after:
            values.append(float(table[tuple(tied[variable][1] for variable in scope)]))
            if not values[-1]:
                return Substituted([], list, {}, -math.inf)
            continue
        if len(after) > MOST_AXES or math.prod(size.get(variable, 2) for variable in after) > most_cells:
            return None
        kept.append((scope, table))
        scopes.append(after)
    alone = sorted(set(parities.variables).difference(tied, *scopes))

    def tables() -> list[np.ndarray]:
        found = []
        for (scope, table), after in zip(kept, scopes, strict=True):
            size = dict(zip(scope, table.shape, strict=True))
            shape = [size.get(variable, 2) for variable in after]
            at: dict[int, Any] = dict(zip(after, np.indices(shape, sparse=True), strict=True))
            for variable in set(scope).intersection(tied):
                free, right = tied[variable]
                at[variable] = sum((at[other] for other in free), np.intp(right)) % 2
            index = tuple(at[variable] for variable in scope)
            found.append(np.broadcast_to(table[index], shape))
        return found + [np.ones(2)] * len(alone)

    log_constant = math.fsum(math.log(value) for value in values if value)
    return Substituted([*scopes, *((variable,) for variable in alone)], tables, tied, log_constant)


class _Equations(NamedTuple):
    """Equations of a table as axes and right sides; and its one positive entry where these are all it says, else 0."""

    equations: tuple[tuple[tuple[int, ...], int], ...]
    value: float


def _equations_of(table: np.ndarray) -> _Equations:
    binary = [axis for axis, size in enumerate(table.shape) if size == 2]
    if len(binary) < 2 or table.size > MOST_ENTRIES:
        return _Equations((), 0.0)
    positive = (table > 0).tobytes()
    if 0 not in positive or 1 not in positive:
        return _Equations((), 0.0)
    find = _equations if len(positive) <= CACHED_ENTRIES else _equations.__wrapped__
    equations, exact = find(table.shape, positive)
    largest = float(table.max())
    pure = exact and bool(((table == largest) | (table == 0)).all())
    return _Equations(equations, largest if pure else 0.0)


@functools.lru_cache(2**12)
def _equations(
    shape: tuple[int, ...], positive: bytes
) -> tuple[tuple[tuple[tuple[int, ...], int], ...], bool]:
    """Equations of the binary axes in which all positive entries are, and whether no other entry fulfils them."""
    binary = [axis for axis, size in enumerate(shape) if size == 2]
    entries = np.argwhere(np.frombuffer(positive, bool).reshape(shape))[:, binary]
    points = np.unique(entries @ (1 << np.arange(len(binary))))
    first, basis, left = int(points[0]), dict[int, int](), points ^ points[0]
    while left.any():
        vector = int(left[left > 0][0])
        pivot = vector.bit_length() - 1
        left = np.where(left >> pivot & 1, left ^ vector, left)
        basis = {p: b ^ vector if b >> pivot & 1 else b for p, b in basis.items()} | {pivot: vector}
    found = []
    for free in range(len(binary)):
        if free not in basis:
            mask = 1 << free | sum(1 << pivot for pivot, vector in basis.items() if vector >> free & 1)
            axes = tuple(axis for i, axis in enumerate(binary) if mask >> i & 1)
            found.append((axes, (mask & first).bit_count() & 1))
    return tuple(found), len(binary) == len(shape) and len(points) == 1 << len(basis)
