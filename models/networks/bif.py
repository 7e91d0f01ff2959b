"""Networks in BIF, the Bayesian interchange format: names of variables and states, and tables row by row.

Cozman's format, version 0.15, of JavaBayes, in which commas and the bar between a variable and its parents are blanks.
A ``table`` with parents has the child's states slowest, or there is one row a parent configuration, with a ``default``
for missing ones. Properties and comments are skipped.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator

import numpy as np

from ethogram.models.networks.bayes_net import BayesNet, network_by_name
from ethogram.models.networks.tokens import Tokens, errors_of, read_text, write_text

__all__ = ["parse_bif", "read_bif", "write_bif"]

WORD = re.compile(r'"[^"]*"|["{}()\[\],;|]|[^\s{}()\[\],;|"]+')
COMMENT = re.compile(r'"[^"]*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
PLAIN = re.compile(r'(?!.*(?://|/\*))[^\s{}()\[\],;|"]+')


def read_bif(path: str | os.PathLike) -> BayesNet:
    """Network of a BIF file, its variables in the order of their declaration.

    Raises
    ------
    ValueError
        The file is malformed (with the line); a variable has no table, or two; a row is missing or repeated; or as
        :class:`~ethogram.models.networks.BayesNet`.
    """
    return parse_bif(path, read_text(path))


def parse_bif(path: str | os.PathLike, text: str) -> BayesNet:
    """Network of the text of a BIF file; ``path`` is for messages."""
    tokens = _Parser(path, text, WORD, COMMENT)
    states: dict[str, tuple[str, ...]] = {}
    tables: dict[str, tuple[tuple[str, ...], np.ndarray]] = {}
    while (word := tokens.peek()) is not None:
        if word == "network":
            tokens.skip_block()
        elif word == "variable":
            name, found = tokens.variable()
            if name in states:
                raise tokens.error(f"variable {name!r} is declared twice")
            states[name] = found
        elif word == "probability":
            name, parents, table = tokens.probability(states)
            if name in tables:
                raise tokens.error(f"variable {name!r} has two probability blocks")
            tables[name] = parents, table
        else:
            raise tokens.error(f"expected network, variable or probability, found {word!r}", ahead=True)
    if not states:
        raise ValueError(f"{os.fspath(path)} declares no variable")
    for name in states:
        if name not in tables:
            raise ValueError(f"{os.fspath(path)}: variable {name!r} has no probability block")
    with errors_of(path):
        return network_by_name(states, tables)


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

    def name(self, what: str) -> str:
        word = self.take(what)
        if word[0] == '"' and len(word) > 1:
            return word[1:-1]
        if not PLAIN.fullmatch(word):
            raise self.error(f"expected {what}, found {word!r}")
        return word

    def skip_statement(self) -> None:
        while self.take("';'") != ";":
            pass

    def skip_block(self) -> None:
        while self.take("'{'") != "{":
            pass
        depth = 1
        while depth:
            depth += {"{": 1, "}": -1}.get(self.take("'}'"), 0)

    def names_until(self, end: str) -> Iterator[str]:
        """Names between blanks, commas or bars, up to a mark, which is taken too."""
        while (word := self.peek()) != end:
            if word in (",", "|"):
                self.take("a name")
            else:
                yield self.name(f"a name or {end!r}")
        self.expect(end)

    def variable(self) -> tuple[str, tuple[str, ...]]:
        """Name and states of a variable block."""
        self.expect("variable")
        name, found = self.name("the name of a variable"), None
        self.expect("{")
        while (word := self.take("'}'")) != "}":
            if word != "type":
                self.skip_statement()
                continue
            self.expect("discrete", "[")
            count = self.take("the number of states")
            self.expect("]", "{")
            found = tuple(self.names_until("}"))
            self.expect(";")
            if count != str(len(found)):
                raise self.error(f"variable {name!r} has {count} states, but {len(found)} names")
        if not found:
            raise self.error(f"variable {name!r} has no {'type' if found is None else 'states'}")
        if len(set(found)) < len(found):
            raise self.error(f"variable {name!r} has two states of one name")
        return name, found

    def probability(self, states: dict[str, tuple[str, ...]]) -> tuple[str, tuple[str, ...], np.ndarray]:
        """Name, parents and table of a probability block."""
        self.expect("probability", "(")
        name = self._known(self.name("the name of a variable"), states)
        parents = tuple(self._known(each, states) for each in self.names_until(")"))
        shape = tuple(len(states[each]) for each in (*parents, name))
        if len(set(parents)) < len(parents) or name in parents:
            raise self.error(f"a parent of {name!r} is repeated, or is its own")
        self.guard_table(name, shape)
        table, filled = np.zeros(shape), np.zeros(shape[:-1], bool)
        default = None
        self.expect("{")
        while (word := self.take("'}'")) != "}":
            if word == "table":  # the child's states run slowest
                listed = np.array(self.numbers(table.size)).reshape(shape[-1], *shape[:-1])
                table, filled = np.moveaxis(listed, 0, -1), np.ones(shape[:-1], bool)
            elif word == "default":
                default = self.numbers(shape[-1])
            elif word == "(":
                given = list(self.names_until(")"))
                if len(given) != len(parents):
                    wanted = f"its {len(parents)} parents"
                    raise self.error(f"a row of {name!r} has {len(given)} states for {wanted}")
                index = tuple(self._state(p, s, states) for p, s in zip(parents, given, strict=True))
                if filled[index]:
                    raise self.error(f"row {given} of {name!r} appears twice")
                table[index], filled[index] = self.numbers(shape[-1]), True
            else:
                self.skip_statement()
        if default is not None:
            np.copyto(table, default, where=~filled[..., None])
            filled[...] = True
        if not filled.all():
            index = np.argwhere(~filled)[0]
            row = [states[parent][i] for parent, i in zip(parents, index, strict=True)]
            raise self.error(f"row {row} of {name!r} is missing" if row else f"{name!r} has no table")
        return name, parents, table

    def _known(self, name: str, states: dict[str, tuple[str, ...]]) -> str:
        if name not in states:
            raise self.error(f"variable {name!r} has not been declared")
        return name

    def _state(self, parent: str, state: str, states: dict[str, tuple[str, ...]]) -> int:
        if state not in states[parent]:
            raise self.error(f"{parent!r} has no state {state!r}: its states are {', '.join(states[parent])}")
        return states[parent].index(state)

    def numbers(self, count: int) -> list[float]:
        """Numbers between commas or blanks, up to a semicolon, which is taken too."""
        found = []
        while (word := self.peek()) != ";":
            if word == ",":
                self.take("','")
            else:
                found.append(self.real("a number"))
        self.expect(";")
        if len(found) != count:
            raise self.error(f"expected {count} numbers, found {len(found)}")
        return found
