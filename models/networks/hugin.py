"""Networks in NET, the format of Hugin: nodes with their states, and potentials with nested lists of numbers.

A potential has the child's states fastest and the first parent slowest. Attributes other than states and data, and
comments after ``%``, are skipped; nodes must be discrete chance nodes. One class may enclose them, without instances.
"""

from __future__ import annotations

import math
import os
import re

import numpy as np

from ethogram.models.networks.bayes_net import BayesNet, network_by_name
from ethogram.models.networks.tokens import Tokens, errors_of

__all__ = ["is_net", "parse_net"]

NET = re.compile(r"(?:\s|%[^\n]*)*(?:net|class|node)\b")
WORD = re.compile(r'"[^"]*"|["{}()|;=]|[^\s{}()|;="]+')
COMMENT = re.compile(r'"[^"]*"|%[^\n]*')
MARKS = '"{}()|;='


def is_net(text: str) -> bool:
    """Whether a text begins as a NET file does."""
    return NET.match(text) is not None


def parse_net(path: str | os.PathLike, text: str) -> BayesNet:
    """Network of the text of a NET file, its variables in the order of their declaration.

    Parameters
    ----------
    path : for messages.

    Raises
    ------
    ValueError : the file is malformed (with the line), or has nodes of other kinds; or as
        :class:`~ethogram.models.networks.BayesNet`.
    """
    tokens = _Parser(path, text, WORD, COMMENT)
    states: dict[str, tuple[str, ...]] = {}
    tables: dict[str, tuple[tuple[str, ...], np.ndarray]] = {}
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
            tokens.node(states)
        elif word == "potential":
            tokens.potential(states, tables)
        elif enclosed and word == "}":
            tokens.take("'}'")
            tokens.end()
            enclosed = False
        elif enclosed and tokens.is_attribute():
            tokens.attribute()
        else:
            raise tokens.error(
                f"expected net, node (of discrete chance) or potential, found {word!r}", ahead=True
            )
    if enclosed:
        raise tokens.error("expected '}' of the class, found the end of the file")
    if not states:
        raise ValueError(f"{os.fspath(path)} declares no node")
    for name in states:
        if name not in tables:
            raise ValueError(f"{os.fspath(path)}: node {name!r} has no potential")
    with errors_of(path):
        return network_by_name(states, tables)


class _Parser(Tokens):
    """Declarations of a NET file."""

    def name(self, what: str) -> str:
        word = self.take(what)
        if word in MARKS:
            raise self.error(f"expected {what}, found {word!r}")
        return word[1:-1] if word[0] == '"' else word

    def is_attribute(self) -> bool:
        return self.words[self.place + 1 : self.place + 2] == ["="]

    def attribute(self) -> tuple[str, int]:
        """Name of an attribute, which is taken, and where its value begins."""
        name = self.name("an attribute or '}'")
        self.expect("=")
        first = self.place
        while self.take("';'") != ";":
            pass
        return name, first

    def attributes(self) -> dict[str, int]:
        """Where the value of every attribute of a block begins; the block is taken up to its end."""
        found: dict[str, int] = {}
        while self.peek() != "}":
            name, first = self.attribute()
            if name in found:
                raise self.error(f"{name!r} appears twice")
            found[name] = first
        self.expect("}")
        return found

    def node(self, states: dict[str, tuple[str, ...]]) -> None:
        """A node and its states."""
        if self.peek() == "discrete":
            self.expect("discrete")
        self.expect("node")
        name = self.name("the name of a node")
        if name in states:
            raise self.error(f"node {name!r} is declared twice")
        self.expect("{")
        found = self.attributes()
        end, self.place = self.place, found.get("states", self.place)
        if "states" not in found:
            raise self.error(f"node {name!r} has no states")
        self.expect("(")
        listed = []
        while self.peek() != ")":
            listed.append(self.name("a state or ')'"))
        if len(set(listed)) < len(listed) or not listed:
            raise self.error(f"node {name!r} has {'two states of one name' if listed else 'no states'}")
        states[name], self.place = tuple(listed), end

    def potential(
        self, states: dict[str, tuple[str, ...]], tables: dict[str, tuple[tuple[str, ...], np.ndarray]]
    ) -> None:
        """A potential: its child, parents and table."""
        self.expect("potential", "(")
        name, parents = self._known(states), []
        if self.peek() == "|":
            self.expect("|")
            while self.peek() != ")":
                parents.append(self._known(states))
        self.expect(")")
        if name in tables:
            raise self.error(f"node {name!r} has two potentials")
        if len({name, *parents}) <= len(parents):
            raise self.error(f"a parent of {name!r} is repeated, or is its own")
        shape = tuple(len(states[each]) for each in (*parents, name))
        self.guard_table(name, shape)
        self.expect("{")
        found = self.attributes()
        end, self.place = self.place, found.get("data", self.place)
        if "data" not in found:
            raise self.error(f"the potential of {name!r} has no data")
        numbers = []
        while self.peek() != ";":
            if self.peek() in ("(", ")"):
                self.take("a number")
            else:
                numbers.append(self.real("a number"))
        if len(numbers) != math.prod(shape):
            raise self.error(
                f"the table of {name!r} has {len(numbers)} entries, and needs {math.prod(shape)}"
            )
        tables[name], self.place = (tuple(parents), np.array(numbers).reshape(shape)), end

    def _known(self, states: dict[str, tuple[str, ...]]) -> str:
        name = self.name("the name of a node")
        if name not in states:
            raise self.error(f"node {name!r} has not been declared")
        return name
