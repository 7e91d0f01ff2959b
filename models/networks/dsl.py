"""Networks in DSL, the older text format of GeNIe and SMILE, and in the JSON of pyAgrum (``.jgum``).

A table of DSL has the child's states fastest and the first parent slowest, one of the JSON the first parent fastest
after the child. Nodes must be chance nodes with all of their probabilities.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator

from ethogram.models.networks.families import Family
from ethogram.models.networks.tokens import Tokens, decoded, nonnegative_numbers, parse_json, prefix_errors

__all__ = ["dsl_families", "jgum_families"]

WORD = re.compile(r'"(?:[^"\\]|\\.)*"|[{}(),;=]|[^\s{}(),;="]+')
COMMENT = re.compile(r'"(?:[^"\\]|\\.)*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
NODE = re.compile(r"([^{}\[\]]+)(?:\{(.*)\}|\[(?:(-?\d+),)?(-?\d+)\])")
"""A node of the JSON: its name with its states, with the first and the last of a range of integers, or their number."""


def dsl_families(path: str | os.PathLike, content: bytes) -> Iterator[Family]:
    """Declarations of a DSL file; `path` is for messages, which have the line."""
    tokens = _Parser(path, decoded(path, content), WORD, COMMENT)
    tokens.expect("net")
    tokens.take("the name of the network")
    nodes: list[tuple[int, dict[str, list[str]]]] = []
    try:
        tokens.block({}, nodes)
    except RecursionError:
        raise tokens.error("blocks are nested too deeply") from None
    tokens.expect(";")
    tokens.end()
    for place, node in nodes:
        name, kind = ("".join(node.get(key, ())) for key in ("ID", "TYPE"))
        with prefix_errors(tokens.where(place)):
            if kind != "CPT" or "PROBABILITIES" not in node:
                raise ValueError(
                    f"node {name!r} is of type {kind}: only CPT with its probabilities can be read"
                )
            table = nonnegative_numbers(node["PROBABILITIES"], f"the table of {name!r}")
        yield Family(name, node.get("NAMESTATES", []), node.get("PARENTS", []), table, tokens.line(place))


def jgum_families(path: str | os.PathLike, content: bytes) -> Iterator[Family]:
    """Declarations of the JSON of pyAgrum; `path` is for messages."""
    found = parse_json(path, decoded(path, content))
    with prefix_errors(path):
        try:
            parents, tables = found["parents"], found["cpt"]
            for node in found["nodes"]:
                match = NODE.fullmatch(node)
                if match is None:
                    raise ValueError(
                        f"node {node!r:.60} is neither of named states nor of a range of integers"
                    )
                name, states, first, last = match.groups()
                numbers = range(int(first), int(last) + 1) if first else range(int(last or 0))
                if len(numbers) > len(tables[name]):
                    raise ValueError(f"node {node!r:.60} has more states than its table has entries")
                labels = list(map(str, numbers)) if states is None else states.split("|")
                table = nonnegative_numbers(list(map(json.dumps, tables[name])), f"the table of {name!r}")
                above = list(map(str, parents[name]))
                yield Family(name, labels, above, table, axes=(*above[::-1], name))
        except (KeyError, TypeError) as error:
            raise ValueError(f"it is no network of pyAgrum: {type(error).__name__} at {error}") from None


class _Parser(Tokens):
    """Nodes of a DSL file."""

    def block(self, found: dict[str, list[str]], nodes: list[tuple[int, dict[str, list[str]]]]) -> None:
        """Add what a block in braces has to the words found by attribute, those of the blocks inside it among them.

        Its nodes are kept apart, each with its place.
        """
        self.expect("{")
        while (key := self.take("an attribute or '}'")) != "}":
            if key == "node":
                node = {"ID": [self.take("the name of a node")]}
                nodes.append((self.place - 2, node))
                self.block(node, nodes)
            else:
                self.expect("=")
                if self.peek() == "{":
                    self.block(found, nodes)
                else:
                    found.setdefault(key, list(self.listed()))
            self.expect(";")

    def listed(self) -> Iterator[str]:
        """Words up to a semicolon, which stays, without parentheses, commas and quotation marks."""
        while self.peek() != ";":
            if (word := self.take("';'")) not in "(),":
                yield word[1:-1] if word[0] == '"' else word
