"""Networks in NET, the format of Hugin: nodes with their states, and potentials with nested lists of numbers.

A potential has the child's states fastest and the first parent slowest. Attributes other than states and data, and
comments after ``%``, are skipped; nodes must be discrete chance nodes. One class may enclose them, without instances.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from ethogram.models.networks.families import Family
from ethogram.models.networks.tokens import Tokens, decoded

__all__ = ["net_families"]

WORD = re.compile(r'"[^"]*"|["{}()|;=]|[^\s{}()|;="]+')
COMMENT = re.compile(r'"[^"]*"|%[^\n]*')


def net_families(path: str | os.PathLike, content: bytes) -> Iterator[Family]:
    """Declarations of a NET file; `path` is for messages, which have the line."""
    tokens = _Parser(path, decoded(path, content), WORD, COMMENT)
    enclosed = False
    while (word := tokens.peek()) is not None:
        if word == "net":
            tokens.expect("net", "{")
            tokens.attributes()
        elif word == "class" and not enclosed:
            enclosed = True
            tokens.take("class")
            tokens.name("the name of a class")
            tokens.expect("{")
        elif word in ("node", "discrete"):
            yield tokens.node()
        elif word == "potential":
            yield tokens.potential()
        elif enclosed and word == "}":
            tokens.take("'}'")
            tokens.end()
            enclosed = False
        elif enclosed and tokens.words[tokens.place + 1 : tokens.place + 2] == ["="]:
            tokens.attribute()
        else:
            expected = "net, node (of discrete chance) or potential"
            raise tokens.error(f"expected {expected}, found {word!r}", ahead=True)
    if enclosed:
        raise tokens.error("expected '}' of the class, found the end of the file")


class _Parser(Tokens):
    """Declarations of a NET file."""

    def attribute(self) -> tuple[str, range]:
        """Name of an attribute, which is taken, and the places of its value."""
        name = self.name("an attribute or '}'")
        self.expect("=")
        return name, self.skip_until(";")

    def attributes(self) -> dict[str, range]:
        """Places of the value of every attribute of a block; the block is taken up to its end."""
        found: dict[str, range] = {}
        while self.peek() != "}":
            name, places = self.attribute()
            if name in found:
                raise self.error(f"{name!r} appears twice")
            found[name] = places
        self.expect("}")
        return found

    def node(self) -> Family:
        """A node and its states."""
        first = self.place
        if self.peek() == "discrete":
            self.expect("discrete")
        self.expect("node")
        name, states = self.name("the name of a node"), tuple[str, ...]()
        self.expect("{")
        found = self.attributes()
        if "states" in found:
            end, self.place = self.place, found["states"].start
            self.expect("(")
            states, self.place = self.names_until(")"), end
        return Family(name, states, line=self.line(first))

    def potential(self) -> Family:
        """A potential: its child, parents and table."""
        first = self.place
        self.expect("potential", "(")
        name, parents = self.name("the name of a node"), tuple[str, ...]()
        if self.peek() == "|":
            self.expect("|")
            parents = self.names_until(")")
        else:
            self.expect(")")
        self.expect("{")
        found = self.attributes()
        if "data" not in found:
            raise self.error(f"the potential of {name!r} has no data")
        places = [place for place in found["data"] if self.words[place] not in ("(", ")")]
        return Family(name, None, parents, self.numbers(places, f"the table of {name!r}"), self.line(first))
