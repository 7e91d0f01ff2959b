"""Networks in the text format of the UAI inference competitions.

A file starts with BAYES or MARKOV, the number of variables and their numbers of states, then lists the scope of every
table (of a BAYES file, the child last) and the tables themselves, the last variable of a scope changing fastest.
Tokens are separated by any white space, and ``#`` starts a comment. Names of variables and states are in a JSON file.

Two writers list tables in another order. pyAgrum (1.15 to 3.3) is known by its comments. In BAYES files, two further
orders are recognised, if every table of the file sums to one in it and some table does not in that of the standard:

* as pgmpy writes: the child last in the scope, but the whole table backwards, the child's states slowest and the first
  variable of the scope fastest;
* the child first in the scope, its states slowest.

Which end of the scopes has the children follows from their being different variables. A file whose tables sum to one
in the order of the standard is read by the standard; if it has the lines of pgmpy's writer, and other tables that sum
to one the other way, it is refused.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ethogram.models.arguments import warn_user
from ethogram.models.memory_bound import require_room
from ethogram.models.networks.bayes_net import BayesNet
from ethogram.models.networks.tokens import (
    COPIES,
    MAX_TABLE_AXES,
    Tokens,
    parse_json,
    prefix_errors,
    read_text,
    write_text,
)

__all__ = [
    "SUM_TOLERANCE",
    "UAIFile",
    "parse_uai",
    "read_factors",
    "read_names",
    "uai_network",
    "write_network",
]

SUM_TOLERANCE = 2e-4
"""Deviation from one of the sums of a conditional table: files are rounded to four digits."""

PGMPY = re.compile(
    r"BAYES\n\d+\n[\d ]+\n\d+\n(?:\d+(?: \d+)+\n)+\n(?:\d+\n[^\s#]+(?: [^\s#]+)*\n)*\d+\n[^\s#]+(?: [^\s#]+)*"
)
"""A file of pgmpy, which has one line per table, and none that is empty at its end."""

AGRUM_TABLES = re.compile(r"(?:\n\d+[ \t]*\r?\n(?:  \S+(?: \S+)* \r?\n)+\s*)+\Z")
"""The tables of a BAYES file as pyAgrum lays them out: two blanks before each row, and one after it."""


class UAIFile(NamedTuple):
    """Content of a UAI network file.

    Attributes
    ----------
    kind : ``"BAYES"`` or ``"MARKOV"``.
    sizes : number of states of every variable.
    scopes : variables of every table.
    tables : arrays, one axis per variable of the scope.
    """

    kind: str
    sizes: tuple[int, ...]
    scopes: tuple[tuple[int, ...], ...]
    tables: tuple[np.ndarray, ...]

    def __repr__(self) -> str:
        largest = max((table.shape for table in self.tables), key=math.prod, default=())
        return f"UAIFile({self.kind}, {len(self.sizes)} variables; largest table of shape {largest})"


def read_factors(path: str | os.PathLike) -> UAIFile:
    """Scopes and tables of a UAI network file of either kind.

    Tables of a BAYES file of pgmpy, which only their sums betray, are as they stand: :func:`read_network` turns them.

    Raises
    ------
    ValueError : the file is malformed; the message has the line.
    """
    return parse_uai(path, read_text(path))


def parse_uai(path: str | os.PathLike, text: str) -> UAIFile:
    """Scopes and tables of the text of a UAI network file; ``path`` is for messages."""
    tokens = Tokens(path, text)
    kind = tokens.take("BAYES or MARKOV")
    if kind.upper() not in ("BAYES", "MARKOV"):
        raise tokens.error(f"expected BAYES or MARKOV, found {kind!r}")
    count = tokens.integer("the number of variables", 1)
    sizes = tuple(tokens.integer(f"the number of states of variable {i}", 1) for i in range(count))
    try:
        require_room("a state of every variable", (sum(sizes),), float, "declare fewer states", COPIES)
    except ValueError as error:
        raise tokens.error(str(error)) from None
    scopes = []
    for i in range(tokens.integer("the number of tables", 0)):
        length = tokens.integer(f"the size of scope {i}", 0)
        scope = tuple(tokens.integer(f"a variable of scope {i}", 0, count - 1) for _ in range(length))
        if len(set(scope)) < len(scope):
            raise tokens.error(f"scope {i} lists a variable twice: {scope}")
        scopes.append(scope)
    tables, (orders, certain) = [], _agrum_orders(text, kind.upper(), scopes)
    for i, scope in enumerate(scopes):
        shape = tuple(sizes[variable] for variable in scope)
        if len(scope) > MAX_TABLE_AXES:
            raise tokens.error(f"scope {i} has {len(scope)} variables; the limit is {MAX_TABLE_AXES}")
        wanted = math.prod(shape)
        length = tokens.integer(f"the size of table {i}", 0)
        if length != wanted:
            raise tokens.error(f"table {i} has {length} entries, and its scope {scope} needs {wanted}")
        stop = tokens.place + wanted
        if stop > len(tokens.words):
            found, tokens.place = len(tokens.words) - tokens.place, len(tokens.words)
            raise tokens.error(f"table {i} ends after {found} of its {wanted} entries")
        entries, tokens.place = tokens.numbers(range(tokens.place, stop), f"table {i}"), stop
        table = entries.reshape([sizes[variable] for variable in orders[i]])
        table = table.transpose([orders[i].index(variable) for variable in scope])
        if not certain and not np.array_equal(table, entries.reshape(shape)):
            raise tokens.error(
                f"table {i} is in the order of the standard or of pyAgrum, and comments or blanks are pyAgrum's: "
                "remove all comments, and blanks at ends of lines, if it is that of the standard, else write BIF by "
                "pyAgrum"
            )
        tables.append(table)
    tokens.end()
    return UAIFile(kind.upper(), sizes, tuple(scopes), tuple(tables))


def _agrum_orders(
    text: str, kind: str, scopes: Sequence[tuple[int, ...]]
) -> tuple[list[tuple[int, ...]], bool]:
    """Axes of every table, the slowest first, and whether they are certain.

    They are those of the scope, unless pyAgrum wrote the file. Then they are, of a BAYES file, the parents backwards
    and the child, and every scope has the name of its child as a comment after three blanks; of a MARKOV file, the
    numbers in the comment after the table's size, backwards, and the order of the scope means nothing. Tables with the
    blanks of pyAgrum's and other comments, or none, are uncertain.
    """
    if kind == "MARKOV":
        found = re.findall(r"^[ \t]*\d+[ \t]*#[ \t]*\{([\d, \t]+)\}", text, re.M)
        listed = [tuple(map(int, re.findall(r"\d+", each)))[::-1] for each in found]
        if [set(each) for each in listed] == [set(scope) for scope in scopes]:
            return listed, True
        doubtful = listed or "# nbr" in text
        return [scope[::-1] for scope in scopes] if doubtful else list(scopes), not doubtful
    backwards = [(*scope[-2::-1], *scope[-1:]) for scope in scopes]
    written = [f"{len(scope)} {' '.join(map(str, scope))}" for scope in scopes]
    if re.findall(r"^(\d+(?: \d+)*)   # .*$", text, re.M) == written:
        return backwards, True
    beside = {" ".join(line.partition("#")[0].split()) for line in text.split("\n") if "#" in line}
    like_agrum = beside.intersection(written) or AGRUM_TABLES.search(re.sub("#[^\n]*", "", text))
    return (backwards, False) if like_agrum else (list(scopes), True)


def uai_network(
    path: str | os.PathLike, file: UAIFile, text: str, names: str | os.PathLike | None
) -> BayesNet:
    """The network of a BAYES file, its tables in the order of the standard.

    Parameters
    ----------
    path : for messages.
    text : content of the file, of whose writers some are known by it.
    names : JSON file with the names, or None.

    Raises
    ------
    ValueError
        A variable has no table, or two; the order of the tables cannot be decided; or as :func:`read_names` or
        :class:`~ethogram.models.networks.BayesNet`, with the file in front.

    Warns
    -----
    UserWarning : tables are not in the order of the standard.
    """
    given = read_names(names)
    with prefix_errors(path):
        scopes, tables, warning = _reordered(file, text)
        if warning:
            warn_user(
                f"{os.fspath(path)} {warning}: its tables sum to one in this order, and not in that of the standard "
                "(child last and fastest), and are read in it"
            )
        place = {scope[-1]: i for i, scope in enumerate(scopes)}
        order = [place[variable] for variable in range(len(place))]
        return BayesNet(tuple(tables[i] for i in order), tuple(scopes[i][:-1] for i in order), **given)


def _reordered(
    file: UAIFile, text: str
) -> tuple[tuple[tuple[int, ...], ...], tuple[np.ndarray, ...], str | None]:
    """Scopes and tables of a BAYES file in the order of the standard, and the other order that it had."""
    scopes, tables = file.scopes, file.tables
    fault = _fault(file, [scope[-1:] for scope in scopes])
    if fault is None:
        deviation, of_pgmpy = _deviation(tables), PGMPY.fullmatch(text)
        if deviation <= SUM_TOLERANCE and not of_pgmpy:
            return scopes, tables, None
        backwards = tuple(table.reshape(table.shape[::-1]).transpose() for table in tables)
        other = _deviation(backwards)
        if max(deviation, other) <= SUM_TOLERANCE:
            if all(map(np.array_equal, tables, backwards)):
                return scopes, tables, None
            raise ValueError(
                "its tables sum to one in the order of the standard and in that of pgmpy, which differ: end the file "
                "with an empty line if it is the standard's, else write BIF by pgmpy"
            )
        if other <= SUM_TOLERANCE or (of_pgmpy and other < deviation):
            way = "has the child's states slowest and the first variable of a scope fastest, as pgmpy writes"
            return scopes, backwards, way
        return scopes, tables, None
    if _fault(file, [scope[:1] for scope in scopes]) is None:
        moved = tuple(np.moveaxis(table, 0, -1) for table in tables)
        if _deviation(moved) <= SUM_TOLERANCE:
            way = "has the child first in every scope, and its states slowest"
            return tuple((*scope[1:], scope[0]) for scope in scopes), moved, way
    raise ValueError(fault)


def _fault(file: UAIFile, children: Sequence[tuple[int, ...]]) -> str | None:
    """Why these variables, one per scope and none of an empty one, cannot be the children; None if they can."""
    place: dict[int, int] = {}
    for i, child in enumerate(children):
        if not child:
            return f"scope {i} is empty: its last variable must be the child"
        if child[0] in place:
            return f"variable {child[0]} has two tables, {place[child[0]]} and {i}: the child is the last of a scope"
        place[child[0]] = i
    missing = next((variable for variable in range(len(file.sizes)) if variable not in place), None)
    return None if missing is None else f"variable {missing} has no table: the child is the last of a scope"


def _deviation(tables: Sequence[np.ndarray]) -> float:
    """Largest deviation from one of a sum over the last axis."""
    return max(float(np.abs(table.sum(-1) - 1).max()) for table in tables)


def read_names(path: str | os.PathLike | None) -> dict[str, Any]:
    """Arguments ``names`` and ``state_names`` of a network, from a JSON file with ``names`` and ``states``, if any."""
    if path is None:
        return {}
    content = parse_json(path, read_text(path))
    names, states = (content.get(key) if isinstance(content, dict) else None for key in ("names", "states"))
    expected = 'give {"names": [...], "states": [[...], ...]}, or "names" alone'
    if not isinstance(names, list) or not (states is None or isinstance(states, list)):
        raise ValueError(f"{os.fspath(path)}: {expected}")
    for each in (names, *(states or ())):
        if not isinstance(each, list) or not all(isinstance(name, str) for name in each):
            raise ValueError(f"{os.fspath(path)}: {each!r:.60} is no list of strings: {expected}")
        if len(set(each)) < len(each):
            raise ValueError(f"{os.fspath(path)}: a name appears twice in {each!r:.60}")
    return {"names": tuple(names), "state_names": None if states is None else tuple(map(tuple, states))}


def write_network(path: str | os.PathLike, network: BayesNet, names: str | os.PathLike | None = None) -> None:
    """Write a BAYES file, and its names to a JSON file where one is given; numbers round-trip exactly.

    Raises
    ------
    ValueError : the network has a constant factor, which the format cannot hold.
    """
    if network.log_constant != 0:
        raise ValueError(f"network has log_constant {network.log_constant}: a UAI file cannot hold it")
    scopes = ((len(parents) + 1, *parents, number) for number, parents in enumerate(network.parents))
    count = (network.num_variables,)
    lines = ["BAYES", *(" ".join(map(str, each)) for each in (count, network.sizes, count, *scopes)), ""]
    for table in network.tables:
        rows = table.reshape(-1, table.shape[-1]).tolist()
        lines += [str(table.size), *(" " + " ".join(map(repr, row)) for row in rows), ""]
    write_text(path, "\n".join(lines) + "\n")
    if names is not None:
        write_text(names, json.dumps({"names": network.names, "states": network.state_names}))
