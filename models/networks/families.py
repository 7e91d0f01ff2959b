"""Networks from the declarations of a file: every format yields them, and one function checks them.

Formats declare states, parents and tables in two places or in one, in any order, and list tables in different orders.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from ethogram.models.memory_bound import require_room
from ethogram.models.networks.bayes_net import BayesNet
from ethogram.models.networks.tokens import COPIES, MAX_TABLE_AXES, prefix_errors

__all__ = ["Family", "Rows", "network_by_name"]


class Rows(NamedTuple):
    """A table that is listed row by row.

    Attributes
    ----------
    rows : states of the parents, and the probabilities there.
    default : probabilities of rows that are not listed.
    by_number : whether states of the parents are given by their numbers, as text.
    """

    rows: Iterable[tuple[Sequence[str], np.ndarray]]
    default: np.ndarray | None = None
    by_number: bool = False


class Family(NamedTuple):
    """A declaration of a variable: its states, its parents and table, or both.

    Attributes
    ----------
    name : of the variable.
    states : their names; None where only parents and table are declared.
    parents : their names.
    table : (entry,), or one axis per variable of `axes`, or rows; None where only states are declared.
    line : where it is in the file.
    axes : order in which the table is listed, names with the slowest first; parents and then the variable if None.
    """

    name: str
    states: Sequence[str] | None = None
    parents: Sequence[str] = ()
    table: np.ndarray | Rows | None = None
    line: int | None = None
    axes: Sequence[str] | None = None


def network_by_name(path: str | os.PathLike, families: Iterable[Family]) -> BayesNet:
    """Network of declared variables, in the order of their states; `path` is for messages.

    Raises
    ------
    ValueError
        No variable is declared; one has no name, no states or two of one name, no table, or a table of another size;
        it is declared twice, or has two tables; a parent is not declared, is repeated, or is the variable itself; or as
        :class:`~ethogram.models.networks.BayesNet`. The message has the file, and the line where it is known.
    """
    states: dict[str, tuple[str, ...]] = {}
    tables: dict[str, Family] = {}
    for family in families:
        name = family.name
        if not name:
            raise _error(path, family, "a variable has no name")
        if family.states is not None:
            if name in states:
                raise _error(path, family, f"variable {name!r} is declared twice")
            if not family.states or len(set(family.states)) < len(family.states):
                fault = "two states of one name" if family.states else "no states"
                raise _error(path, family, f"variable {name!r} has {fault}")
            states[name] = tuple(family.states)
        if family.table is not None:
            if name in tables:
                raise _error(path, family, f"variable {name!r} has two tables")
            tables[name] = family
    number = {name: i for i, name in enumerate(states)}
    arrays: dict[str, np.ndarray] = {}
    cells = 0
    for name, family in tables.items():
        arrays[name] = _table(path, family, states, cells)
        cells += arrays[name].size
    with prefix_errors(path):
        if not states:
            raise ValueError("no variable is declared")
        for name in states:
            if name not in tables:
                raise ValueError(f"variable {name!r} has no table")
        parents = tuple(tuple(number[parent] for parent in tables[name].parents) for name in states)
        return BayesNet(
            tuple(arrays[name] for name in states),
            parents,
            names=tuple(states),
            state_names=tuple(states.values()),
        )


def _table(
    path: str | os.PathLike, family: Family, states: dict[str, tuple[str, ...]], num_before: int
) -> np.ndarray:
    """The table of a declaration, its axes those of the parents and of the variable, after `num_before` entries."""
    name, table = family.name, family.table
    scope = (*family.parents, name)
    with prefix_errors(_place(path, family)):
        for each in scope:
            if each not in states:
                raise ValueError(f"variable {each!r} has not been declared")
        if len(set(scope)) < len(scope):
            raise ValueError(f"a parent of {name!r} is repeated, or is its own")
        axes = scope if family.axes is None else tuple(family.axes)
        shape = tuple(len(states[each]) for each in axes)
        if len(shape) > MAX_TABLE_AXES:
            raise ValueError(
                f"the table of {name!r} has {len(shape)} variables; the limit is {MAX_TABLE_AXES}"
            )
        cells = num_before + math.prod(shape)
        require_room(f"entries up to the table of {name!r}", (cells,), float, "give it fewer parents", COPIES)
        if isinstance(table, Rows):
            return _filled(scope, [states[each] for each in scope], table)
        assert table is not None
        if table.ndim == 1 and table.size != math.prod(shape):
            raise ValueError(f"the table of {name!r} has {table.size} entries, and needs {math.prod(shape)}")
        if table.ndim != 1 and table.shape != shape:
            raise ValueError(f"the table of {name!r} has shape {table.shape}, and needs {shape}")
    return table.reshape(shape).transpose([axes.index(each) for each in scope])


def _filled(scope: tuple[str, ...], states: list[tuple[str, ...]], table: Rows) -> np.ndarray:
    """The table of rows; ValueError where a row is of no state or of a wrong size, is listed twice, or is missing."""
    *parents, name = scope
    *known, own = states
    if table.by_number:
        known = [tuple(map(str, range(len(each)))) for each in known]
    places = [{state: i for i, state in enumerate(each)} for each in known]
    filled = np.zeros(tuple(map(len, known)), bool)
    found = np.zeros((*filled.shape, len(own)))
    for given, row in table.rows:
        if len(given) != len(parents):
            raise ValueError(f"a row of {name!r} has {len(given)} states for its {len(parents)} parents")
        index = tuple(place.get(state) for state, place in zip(given, places, strict=True))
        if None in index:
            i = index.index(None)
            expected = f"its states are {', '.join(known[i])}"
            raise ValueError(f"{parents[i]!r} has no state {given[i]!r}: {expected}")
        if filled[index]:
            raise ValueError(f"row {list(given)} of {name!r} appears twice")
        if len(row) != len(own):
            raise ValueError(f"row {list(given)} of {name!r} has {len(row)} entries, and needs {len(own)}")
        found[index], filled[index] = row, True
    if table.default is not None:
        if len(table.default) != len(own):
            raise ValueError(
                f"the default of {name!r} has {len(table.default)} entries, and needs {len(own)}"
            )
        np.copyto(found, table.default, where=~filled[..., None])
    elif not filled.all():
        missing = [each[i] for each, i in zip(known, np.argwhere(~filled)[0], strict=True)]
        raise ValueError(
            f"row {missing} of {name!r} is missing" if missing else f"variable {name!r} has no table"
        )
    return found


def _place(path: str | os.PathLike, family: Family) -> str:
    return os.fspath(path) if family.line is None else f"{os.fspath(path)}, line {family.line}"


def _error(path: str | os.PathLike, family: Family, fault: str) -> ValueError:
    return ValueError(f"{_place(path, family)}: {fault}")
