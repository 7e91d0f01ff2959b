"""Networks in DSL, the older text format of GeNIe and SMILE, and in the JSON of pyAgrum (``.jgum``).

A table of DSL has the child's states fastest and the first parent slowest, one of the JSON the first parent fastest
after the child. Nodes must be chance nodes with all of their probabilities.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from typing import Any

from ethogram.models.networks.bayes_net import BayesNet
from ethogram.models.networks.named_files import parse_json
from ethogram.models.networks.tokens import Tokens, errors_of
from ethogram.models.networks.xml_networks import Family, network_of_families

__all__ = ["is_dsl", "is_jgum", "parse_dsl", "parse_jgum"]

DSL = re.compile(r"(?:\s|//[^\n]*|/\*.*?\*/)*net\s+[^\s{]+\s*\{", re.DOTALL)
JGUM = re.compile(r'\s*\{\s*"type"\s*:\s*"BN"')
WORD = re.compile(r'"(?:[^"\\]|\\.)*"|[{}(),;=]|[^\s{}(),;="]+')
COMMENT = re.compile(r'"(?:[^"\\]|\\.)*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
NODE = re.compile(r"([^{}\[\]]+)(?:\{(.*)\}|\[(?:(-?\d+),)?(-?\d+)\])")
"""A node of the JSON: its name with its states, with the first and the last of a range of integers, or their number."""


def is_dsl(text: str) -> bool:
    """Whether a text begins as a DSL file does."""
    return DSL.match(text) is not None


def is_jgum(text: str) -> bool:
    """Whether a text begins as pyAgrum's JSON of a Bayesian network does."""
    return JGUM.match(text) is not None


def parse_dsl(path: str | os.PathLike, text: str) -> BayesNet:
    """Network of the text of a DSL file, its variables in the order of their declaration; ``path`` is for messages.

    Raises
    ------
    ValueError : the file is malformed (with the line or the variable), or has nodes of other kinds; or as
        :class:`~ethogram.models.networks.BayesNet`.
    """
    tokens = _Parser(path, text, WORD, COMMENT)
    tokens.expect("net")
    tokens.take("the name of the network")
    try:
        tokens.block({})
    except RecursionError:
        raise tokens.error("blocks are nested too deeply") from None
    tokens.expect(";")
    tokens.end()
    families = []
    with errors_of(path):
        for node in tokens.nodes:
            name, kind = ("".join(node.get(key, ())) for key in ("ID", "TYPE"))
            if kind != "CPT" or "PROBABILITIES" not in node:
                raise ValueError(
                    f"node {name!r} is of type {kind}: only CPT with its probabilities can be read"
                )
            families.append(
                Family(name, node.get("NAMESTATES", []), node.get("PARENTS", []), node["PROBABILITIES"])
            )
        return network_of_families(families)


def parse_jgum(path: str | os.PathLike, text: str) -> BayesNet:
    """Network of the text of pyAgrum's JSON, its variables in the order of their declaration; ``path`` is for messages.

    Raises
    ------
    ValueError : as :func:`parse_dsl`.
    """
    content, families = parse_json(path, text), []
    with errors_of(path):
        try:
            parents, tables = content["parents"], content["cpt"]
            for node in content["nodes"]:
                found = NODE.fullmatch(node)
                if found is None:
                    raise ValueError(
                        f"node {node!r:.60} is neither of named states nor of a range of integers"
                    )
                name, states, first, last = found.groups()
                numbers = range(int(first), int(last) + 1) if first else range(int(last or 0))
                if len(numbers) > len(tables[name]):
                    raise ValueError(f"node {node!r:.60} has more states than its table has entries")
                labels = list(map(str, numbers)) if states is None else states.split("|")
                families.append(
                    Family(name, labels, list(parents[name]), list(map(json.dumps, tables[name])))
                )
        except (KeyError, TypeError) as error:
            raise ValueError(f"it is no network of pyAgrum: {type(error).__name__} at {error}") from None
        return network_of_families(families, backwards=True)


class _Parser(Tokens):
    """Nodes of a DSL file, each a dict of words by attribute, those of the blocks inside it among them."""

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        self.nodes: list[dict[str, list[str]]] = []

    def block(self, found: dict[str, list[str]]) -> None:
        """Add what a block in braces has to the words found; its nodes are kept apart."""
        self.expect("{")
        while (key := self.take("an attribute or '}'")) != "}":
            if key == "node":
                node = {"ID": [self.take("the name of a node")]}
                self.nodes.append(node)
                self.block(node)
            else:
                self.expect("=")
                if self.peek() == "{":
                    self.block(found)
                else:
                    found.setdefault(key, list(self.listed()))
            self.expect(";")

    def listed(self) -> Iterator[str]:
        """Words up to a semicolon, which stays, without parentheses, commas and quotation marks."""
        while self.peek() != ";":
            if (word := self.take("';'")) not in "(),":
                yield word[1:-1] if word[0] == '"' else word
