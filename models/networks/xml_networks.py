"""Networks in XML: XMLBIF of JavaBayes and others, XDSL of GeNIe and SMILE, and XBN of MSBNx.

All list a table with the child's states fastest and the first parent slowest, XBN row by row. pyAgrum (1.15 to 3.3)
reads and writes XDSL with the first parent fastest; files that say they are from it are read so. Document types,
properties and all that is drawn are skipped. Nodes must be chance nodes, or deterministic ones in XDSL.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from xml.etree import ElementTree

import numpy as np

from ethogram.models.networks.families import Family, Rows
from ethogram.models.networks.tokens import nonnegative_numbers, prefix_errors

__all__ = ["xml_families"]

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
AGRUM = re.compile(r"\s*(?:<\?xml.*?\?>\s*)?<!-- This network was created by pyAgrum", re.DOTALL)
"""How a file of the program begins that writes the first parent fastest, beside the name in its extensions."""


def xml_families(path: str | os.PathLike, content: bytes) -> Iterator[Family]:
    """Declarations of an XMLBIF, XDSL or XBN file; `path` is for messages, which have the line where it is no XML."""
    bare = content.removeprefix(BYTE_ORDER_MARK).lstrip()  # blanks before the declaration are no XML
    try:
        root = ElementTree.fromstring(bare)
    except (ElementTree.ParseError, LookupError, ValueError) as error:
        before = content[: len(content) - len(bare)].count(b"\n")
        line = f", line {before + error.position[0]}" if isinstance(error, ElementTree.ParseError) else ""
        raise ValueError(f"{os.fspath(path)}{line}: not whole XML: {error}") from None
    with prefix_errors(path):
        if root.tag == "BIF":
            yield from _xmlbif(root)
        elif root.tag == "ANALYSISNOTEBOOK":
            yield from _xbn(root)
        elif root.tag == "smile":
            genie = root.find("extensions/genie")
            of_agrum = genie is not None and genie.get("app", "").startswith("aGrUM")
            yield from _xdsl(root, of_agrum or AGRUM.match(bare[:500].decode("latin-1")) is not None)
        else:
            expected = "the XML of XMLBIF (BIF), XDSL (smile) or XBN (ANALYSISNOTEBOOK)"
            raise ValueError(f"expected {expected}, found {root.tag!r}")


def _xmlbif(root: ElementTree.Element) -> Iterator[Family]:
    for variable in root.iterfind("NETWORK/VARIABLE"):
        name = _text(variable.find("NAME"))
        if (kind := variable.get("TYPE", "nature")) != "nature":
            raise ValueError(f"variable {name!r} is of type {kind}: only nature can be read")
        yield Family(name, list(map(_text, variable.iterfind("OUTCOME"))))
    for definition in root.iterfind("NETWORK/DEFINITION"):
        name = _text(definition.find("FOR"))
        table = _numbers(name, definition.find("TABLE"))
        yield Family(name, None, list(map(_text, definition.iterfind("GIVEN"))), table)


def _xdsl(root: ElementTree.Element, first_parent_fastest: bool) -> Iterator[Family]:
    for node in root.iterfind("nodes/*"):
        name = node.get("id", "")
        states = [state.get("id", "") for state in node.iterfind("state")]
        parents = _text(node.find("parents")).split()
        if node.tag == "cpt":
            table = _numbers(name, node.find("probabilities"))
        elif node.tag == "deterministic":
            chosen = _text(node.find("resultingstates")).split()
            wrong = next((state for state in chosen if state not in states), None)
            if wrong is not None:
                raise ValueError(f"{name!r} has no state {wrong!r}: its states are {', '.join(states)}")
            table = np.array([state == each for each in chosen for state in states], np.float64)
        else:
            raise ValueError(f"node {name!r} is of type {node.tag}: only cpt and deterministic can be read")
        axes = (*reversed(parents), name) if first_parent_fastest else None
        yield Family(name, states, parents, table, axes=axes)


def _xbn(root: ElementTree.Element) -> Iterator[Family]:
    for variable in root.iter("VAR"):
        yield Family(variable.get("NAME", ""), list(map(_text, variable.iterfind("STATENAME"))))
    for each in root.iter("DIST"):
        private = each.find("PRIVATE")
        name = "" if private is None else private.get("NAME", "")
        parents = [given.get("NAME", "") for given in each.iterfind("CONDSET/CONDELEM")]
        rows = [(row.get("INDEXES", "").split(), _numbers(name, row)) for row in each.iterfind("DPIS/DPI")]
        yield Family(name, None, parents, Rows(rows, by_number=True))


def _text(element: ElementTree.Element | None) -> str:
    """What stands in an element, without the blanks around it; nothing for an element that is not there."""
    return "" if element is None else "".join(element.itertext()).strip()


def _numbers(name: str, element: ElementTree.Element | None) -> np.ndarray:
    return nonnegative_numbers(_text(element).split(), f"the table of {name!r}")
