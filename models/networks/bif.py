"""Networks in BIF, the Bayesian interchange format: names of variables and states, and tables row by row.

Cozman's format, version 0.15, of JavaBayes, in which commas and the bar between a variable and its parents are blanks.
A ``table`` with parents has the child's states slowest, or there is one row per parent configuration, with a
``default`` for missing ones. Properties and comments are skipped.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator

import numpy as np

from ethogram.models.networks.bayes_net import BayesNet
from ethogram.models.networks.families import Family, Rows, network_by_name
from ethogram.models.networks.tokens import Tokens, decoded, read_bytes, write_text

__all__ = ["bif_families", "read_bif", "write_bif"]

WORD = re.compile(r'"[^"]*"|["{}()\[\];]|[^\s{}()\[\],;|"]+')
COMMENT = re.compile(r'"[^"]*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
OPEN = re.compile(r'"[^"]*"|(/\*)')
PLAIN = re.compile(r'(?!.*(?://|/\*))[^\s{}()\[\],;|"]+')


def read_bif(path: str | os.PathLike) -> BayesNet:
    """Network of a BIF file, its variables in the order of their declaration.

    Raises
    ------
    ValueError
        The file is malformed (with the line); a variable has no table, or two; a row is missing or repeated; or as
        :class:`~ethogram.models.networks.BayesNet`.
    """
    return network_by_name(path, bif_families(path, read_bytes(path)))


def bif_families(path: str | os.PathLike, content: bytes) -> Iterator[Family]:
    """Declarations of a BIF file; `path` is for messages, which have the line."""
    tokens = _Parser(path, decoded(path, content), WORD, COMMENT)
    if any(match.group(1) for match in OPEN.finditer(tokens.text)):
        raise ValueError(f"{os.fspath(path)}: a comment is not closed")
    while (word := tokens.peek()) is not None:
        if word == "network":
            tokens.skip_block()
        elif word == "variable":
            yield tokens.variable()
        elif word == "probability":
            yield tokens.probability()
        else:
            raise tokens.error(f"expected network, variable or probability, found {word!r}", ahead=True)


def write_bif(path: str | os.PathLike, network: BayesNet) -> None:
    """Write a BIF file; numbers round-trip exactly, and unnamed states are called s0, s1, ...

    Raises
    ------
    ValueError : the network has a constant factor, or a name has a quotation mark.
    """
    if network.log_constant != 0:
        raise ValueError(f"network has log_constant {network.log_constant}: a BIF file cannot hold it")
    states = network.state_names or tuple(tuple(f"s{i}" for i in range(size)) for size in network.sizes)
    names = [_written(name) for name in network.names]
    lines = ["network unknown {", "}"]
    for name, each in zip(names, states, strict=True):
        listed = ", ".join(map(_written, each))
        lines += [f"variable {name} {{", f"  type discrete [ {len(each)} ] {{ {listed} }};", "}"]
    for number, (table, parents) in enumerate(zip(network.tables, network.parents, strict=True)):
        of = f" | {', '.join(names[parent] for parent in parents)}" if parents else ""
        lines.append(f"probability ( {names[number]}{of} ) {{")
        for index in itertools.product(*(range(network.sizes[parent]) for parent in parents)):
            numbers = ", ".join(map(repr, table[index].tolist()))
            given = ", ".join(_written(states[p][state]) for p, state in zip(parents, index, strict=True))
            lines.append(f"  ({given}) {numbers};" if parents else f"  table {numbers};")
        lines.append("}")
    write_text(path, "\n".join(lines) + "\n")


def _written(name: str) -> str:
    if '"' in name:
        raise ValueError(f"name {name!r} has a quotation mark: a BIF file cannot hold it")
    return name if PLAIN.fullmatch(name) else f'"{name}"'


class _Parser(Tokens):
    """Declarations of a BIF file."""

    def skip_block(self) -> None:
        self.skip_until("{")
        depth = 1
        while depth:
            depth += {"{": 1, "}": -1}.get(self.take("'}'"), 0)

    def variable(self) -> Family:
        """A variable block: its name and states."""
        first = self.place
        self.expect("variable")
        name, states = self.name("the name of a variable"), None
        self.expect("{")
        while (word := self.take("'}'")) != "}":
            if word != "type":
                self.skip_until(";")
                continue
            self.expect("discrete", "[")
            count = self.take("the number of states")
            self.expect("]", "{")
            states = self.names_until("}")
            self.expect(";")
            if count != str(len(states)):
                raise self.error(f"variable {name!r} has {count} states, but {len(states)} names")
        return Family(name, states or (), line=self.line(first))

    def probability(self) -> Family:
        """A probability block: a variable, its parents and its table."""
        first = self.place
        self.expect("probability", "(")
        name, parents = self.name("the name of a variable"), self.names_until(")")
        what = f"the table of {name!r}"
        whole: dict[str, np.ndarray] = {}
        rows: list[tuple[tuple[str, ...], range]] = []
        self.expect("{")
        while (word := self.take("'}'")) != "}":
            if word in ("table", "default"):
                if word in whole:
                    raise self.error(f"{name!r} has a {word} twice")
                whole[word] = self.numbers(self.skip_until(";"), what)
            elif word == "(":
                rows.append((self.names_until(")"), self.skip_until(";")))
            else:
                self.skip_until(";")
        line = self.line(first)
        if "table" in whole and not rows:
            return Family(name, None, parents, whole["table"], line, axes=(name, *parents))
        if "table" in whole:
            raise self.error(f"{name!r} has a table, and rows too")
        numbers = self.numbers([place for _, places in rows for place in places], what)
        listed = np.split(numbers, np.cumsum([len(places) for _, places in rows])[:-1])
        by_states = zip((given for given, _ in rows), listed, strict=False)
        return Family(name, None, parents, Rows(by_states, whole.get("default")), line)
