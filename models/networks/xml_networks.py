"""Networks in XML: XMLBIF of JavaBayes and others, XDSL of GeNIe and SMILE, and XBN of MSBNx.

All list a table with the child's states fastest and the first parent slowest, XBN row by row. pyAgrum (1.15 to 3.3)
reads and writes XDSL with the first parent fastest; files that say they are from it are read so. Document types,
properties and all that is drawn are skipped. Nodes must be chance nodes, or deterministic ones in XDSL.
"""

from __future__ import annotations

import itertools
import math
import os
import re
from collections.abc import Iterator
from typing import NamedTuple
from xml.etree import ElementTree

import numpy as np

from ethogram.models.networks.bayes_net import BayesNet, network_by_name
from ethogram.models.networks.tokens import MOST_AXES, MOST_CELLS, errors_of, is_number

__all__ = ["Family", "is_xml", "network_of_families", "parse_xml"]

XML = re.compile(rb"(?:\xef\xbb\xbf)?\s*<")
AGRUM = re.compile(r"\s*(?:<\?xml.*?\?>\s*)?<!-- This network was created by pyAgrum", re.DOTALL)
"""How a file of the program begins that writes the first parent fastest, beside the name in its extensions."""


class Family(NamedTuple):
    """A variable of a file, its states, its parents, and the words of its table."""

    name: str
    states: list[str]
    parents: list[str]
    words: list[str]


def is_xml(content: bytes) -> bool:
    """Whether a file begins as XML does."""
    return XML.match(content) is not None


def parse_xml(path: str | os.PathLike, content: bytes) -> BayesNet:
    """Network of the content of an XMLBIF, XDSL or XBN file, its variables in the order of their declaration.

    Parameters
    ----------
    path : for messages.

    Raises
    ------
    ValueError : the file is malformed (with the line or the variable), or has nodes of other kinds; or as
        :class:`~ethogram.models.networks.BayesNet`.
    """
    bare = content.removeprefix(b"\xef\xbb\xbf").lstrip()  # blanks before the declaration are no XML
    try:
        root = ElementTree.fromstring(bare)
    except (ElementTree.ParseError, LookupError, ValueError) as error:
        before = content[: len(content) - len(bare)].count(b"\n")
        line = f", line {before + error.position[0]}" if isinstance(error, ElementTree.ParseError) else ""
        raise ValueError(f"{os.fspath(path)}{line}: not whole XML: {error}") from None
    with errors_of(path):
        if root.tag == "BIF":
            return network_of_families(list(_xmlbif(root)))
        if root.tag == "ANALYSISNOTEBOOK":
            return network_of_families(list(_xbn(root)))
        if root.tag == "smile":
            genie = root.find("extensions/genie")
            named = genie is not None and genie.get("app", "").startswith("aGrUM")
            return network_of_families(
                list(_xdsl(root)), named or bool(AGRUM.match(bare[:500].decode("latin-1")))
            )
        raise ValueError(
            f"expected the XML of XMLBIF (BIF), XDSL (smile) or XBN (ANALYSISNOTEBOOK), found {root.tag!r}"
        )


def _xmlbif(root: ElementTree.Element) -> Iterator[Family]:
    definitions: dict[str, tuple[list[str], list[str]]] = {}
    for definition in root.iterfind("NETWORK/DEFINITION"):
        name = _text(definition.find("FOR"))
        if name in definitions:
            raise ValueError(f"variable {name!r} has two definitions")
        given = [_text(parent) for parent in definition.iterfind("GIVEN")]
        definitions[name] = given, _text(definition.find("TABLE")).split()
    for variable in root.iterfind("NETWORK/VARIABLE"):
        name = _text(variable.find("NAME"))
        if (kind := variable.get("TYPE", "nature")) != "nature":
            raise ValueError(f"variable {name!r} is of type {kind}: only nature can be read")
        if name not in definitions:
            raise ValueError(f"variable {name!r} has no definition, or is declared twice")
        yield Family(name, [_text(each) for each in variable.iterfind("OUTCOME")], *definitions.pop(name))
    for name in definitions:
        raise ValueError(f"variable {name!r} has a definition, and has not been declared")


def _xdsl(root: ElementTree.Element) -> Iterator[Family]:
    for node in root.iterfind("nodes/*"):
        name = node.get("id", "")
        states = [state.get("id", "") for state in node.iterfind("state")]
        parents = _text(node.find("parents")).split()
        if node.tag == "cpt":
            words = _text(node.find("probabilities")).split()
        elif node.tag == "deterministic":
            chosen = _text(node.find("resultingstates")).split()
            wrong = next((state for state in chosen if state not in states), None)
            if wrong is not None:
                raise ValueError(f"{name!r} has no state {wrong!r}: its states are {', '.join(states)}")
            words = ["1" if state == each else "0" for each in chosen for state in states]
        else:
            raise ValueError(f"node {name!r} is of type {node.tag}: only cpt and deterministic can be read")
        yield Family(name, states, parents, words)


def _xbn(root: ElementTree.Element) -> Iterator[Family]:
    states = {each.get("NAME", ""): list(map(_text, each.iterfind("STATENAME"))) for each in root.iter("VAR")}
    left = set(states)
    for each in root.iter("DIST"):
        private, given = each.find("PRIVATE"), each.iterfind("CONDSET/CONDELEM")
        name, parents = (
            "" if private is None else private.get("NAME", ""),
            [one.get("NAME", "") for one in given],
        )
        if name not in left:
            raise ValueError(f"variable {name!r} has a distribution, and has not been declared, or has two")
        left.remove(name)
        rows = {
            tuple(row.get("INDEXES", "").split()): _text(row).split() for row in each.iterfind("DPIS/DPI")
        }
        sizes = [len(states.get(parent, ())) for parent in parents]
        if len(rows) != math.prod(sizes):
            raise ValueError(f"the table of {name!r} has {len(rows)} rows, and needs {math.prod(sizes)}")
        listed = [tuple(map(str, index)) for index in itertools.product(*map(range, sizes))]
        missing = next((" ".join(index) for index in listed if index not in rows), None)
        if missing is not None:
            raise ValueError(f"row {missing!r} of {name!r} is missing")
        yield Family(name, states[name], parents, [word for index in listed for word in rows[index]])
    if left:
        raise ValueError(f"variable {min(left)!r} has no distribution")


def _text(element: ElementTree.Element | None) -> str:
    """What stands in an element, without the blanks around it; nothing for an element that is not there."""
    return "" if element is None else "".join(element.itertext()).strip()


def network_of_families(families: list[Family], backwards: bool = False) -> BayesNet:
    """The network of the variables of a file, in this order; `backwards` where the first parent is fastest."""
    if not families:
        raise ValueError("no variable is declared")
    states_of = {family.name: family.states for family in families}
    if len(states_of) < len(families):
        raise ValueError("two variables have one name")
    for name, states, parents, _ in families:
        if not name or not states:
            raise ValueError(f"variable {name!r} has no {'states' if name else 'name'}")
        unknown = next((parent for parent in parents if parent not in states_of), None)
        if unknown is not None:
            raise ValueError(f"variable {unknown!r}, a parent of {name!r}, has not been declared")
        if len({name, *parents}) <= len(parents):
            raise ValueError(f"a parent of {name!r} is repeated, or is its own")
    tables = {}
    for name, states, parents, words in families:
        shape = [len(states_of[parent]) for parent in (reversed(parents) if backwards else parents)]
        table = _table(name, words, (*shape, len(states)))
        axes = (*reversed(range(len(parents))), len(parents))
        tables[name] = parents, table.transpose(axes) if backwards else table
    return network_by_name(states_of, tables)


def _table(name: str, words: list[str], shape: tuple[int, ...]) -> np.ndarray:
    wanted = math.prod(shape)
    if len(shape) > MOST_AXES or wanted > MOST_CELLS:
        raise ValueError(
            f"the table of {name!r} would have {wanted} entries of {len(shape)} variables: too many"
        )
    if len(words) != wanted:
        raise ValueError(f"the table of {name!r} has {len(words)} entries, and needs {wanted}")
    for word in words:
        if not is_number(word):
            raise ValueError(f"expected a number in the table of {name!r}, found {word!r}")
        if not 0 <= float(word) < math.inf:
            raise ValueError(f"the table of {name!r} has the entry {word}: it must be finite and nonnegative")
    return np.array(words, np.float64).reshape(shape)
