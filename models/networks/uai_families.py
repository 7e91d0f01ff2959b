"""Networks from UAI files of the kind BAYES: which variable of a table is the child, and in which order the table is.

The standard has the child last in a scope, and the last variable of a scope changing fastest. Two other orders are
recognised, if every table of the file sums to one in it and some table does not in that of the standard:

* as pgmpy writes: the child last in the scope, but the whole table backwards, the child's states slowest and the first
  variable of the scope fastest;
* the child first in the scope, its states slowest.

Which end of the scopes has the children follows from their being different variables. A file whose tables sum to one
in the order of the standard is read by the standard; if it has the lines of pgmpy's writer, and other tables that sum
to one the other way, it is refused. Files of pyAgrum are known by their comments (``uai.agrum_orders``).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ethogram.models.arguments import warn_user
from ethogram.models.networks.bayes_net import BayesNet
from ethogram.models.networks.tokens import errors_of
from ethogram.models.networks.uai import Factors

__all__ = ["ROUNDING", "bayes_net_of"]

ROUNDING = 2e-4
"""Deviation from one of the sums of a conditional table: files are rounded to four digits."""


PGMPY = re.compile(
    r"BAYES\n\d+\n[\d ]+\n\d+\n(?:\d+(?: \d+)+\n)+\n(?:\d+\n[^\s#]+(?: [^\s#]+)*\n)*\d+\n[^\s#]+(?: [^\s#]+)*"
)
"""A file of pgmpy, which has one line a table, and none that is empty at its end."""


def bayes_net_of(path: str | os.PathLike, factors: Factors, names: Mapping[str, Any], text: str) -> BayesNet:
    """The network of a BAYES file; ``path`` is for messages, ``names`` as ``read_names`` gives them.

    Raises
    ------
    ValueError
        A variable has no table, or two; the order of the tables cannot be decided; or as
        :class:`~ethogram.models.networks.BayesNet`, with the file in front.

    Warns
    -----
    UserWarning : tables are not in the order of the standard.
    """
    scopes, tables = factors.scopes, factors.tables
    fault = _fault(factors, [scope[-1:] for scope in scopes])
    off, lines = _off(tables) if fault is None else 0.0, fault is None and PGMPY.fullmatch(text)
    if off > ROUNDING or lines:
        backwards = tuple(map(_backwards, tables))
        other = _off(backwards)
        if max(off, other) <= ROUNDING:
            if not all(map(np.array_equal, tables, backwards)):
                fault = "its tables sum to one in the order of the standard and in that of pgmpy, which differ: end "
                fault += "the file with an empty line if it is the standard's, else write BIF by pgmpy"
        elif other <= ROUNDING or (lines and other < off):
            way = "has the child's states slowest and the first variable of a scope fastest, as pgmpy writes"
            _warn(path, way)
            tables = backwards
    elif fault is not None and _fault(factors, [scope[:1] for scope in scopes]) is None:
        moved = tuple(np.moveaxis(table, 0, -1) for table in tables)
        if _off(moved) <= ROUNDING:
            _warn(path, "has the child first in every scope, and its states slowest")
            scopes, tables, fault = tuple((*scope[1:], scope[0]) for scope in scopes), moved, None
    if fault is not None:
        raise ValueError(f"{os.fspath(path)}: {fault}")
    place = {scope[-1]: i for i, scope in enumerate(scopes)}
    order = [place[variable] for variable in range(len(place))]
    with errors_of(path):
        return BayesNet(tuple(tables[i] for i in order), tuple(scopes[i][:-1] for i in order), **names)


def _fault(factors: Factors, children: Sequence[tuple[int, ...]]) -> str | None:
    """What speaks against these variables, one a scope and none of an empty one, as the children."""
    place: dict[int, int] = {}
    for i, child in enumerate(children):
        if not child:
            return f"scope {i} is empty: its last variable must be the child"
        if child[0] in place:
            return f"variable {child[0]} has two tables, {place[child[0]]} and {i}: the child is the last of a scope"
        place[child[0]] = i
    missing = next((variable for variable in range(len(factors.sizes)) if variable not in place), None)
    return None if missing is None else f"variable {missing} has no table: the child is the last of a scope"


def _off(tables: Sequence[np.ndarray]) -> float:
    """Largest deviation from one of a sum over the last axis."""
    return max(float(np.abs(table.sum(-1) - 1).max()) for table in tables)


def _backwards(table: np.ndarray) -> np.ndarray:
    """The table whose entries were listed with the first axis fastest."""
    return table.reshape(table.shape[::-1]).transpose()


def _warn(path: str | os.PathLike, order: str) -> None:
    warn_user(
        f"{os.fspath(path)} {order}: its tables sum to one in this order, and not in that of the standard (child last "
        "and fastest), and are read in it"
    )
