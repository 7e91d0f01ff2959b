"""Networks in BIF, the Bayesian interchange format: names of variables and states, and tables row by row.

What is read: a network's name, discrete variables with their states, and probabilities as a ``table``, or as a row for
each setting of the parents' states, with a ``default`` for rows that are not there. Properties and comments are passed
over. A name that ends in ``.gz`` is of a compressed file. Numbers of a ``table`` with parents go through the child's
states slowest, as in the files of JavaBayes.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator

import numpy as np

from ethogram.models.bayes_net import BayesNet
from ethogram.models.uai import read_text, write_text

__all__ = ["read_bif", "write_bif"]

WORD = re.compile(r'"[^"]*"|[{}()\[\],;|]|[^\s{}()\[\],;|"]+')
COMMENT = re.compile(r'"[^"]*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
PLAIN = re.compile(r'(?!.*(?://|/\*))[^\s{}()\[\],;|"]+')


def read_bif(path: str | os.PathLike) -> BayesNet:
    """The network in a BIF file, variables in the order in which they are declared.

    Raises
    ------
    ValueError
        The file ends too early or says something else than it should, with its line; a variable has no table, or two; a
        row is missing or stands twice; or as :class:`~ethogram.models.bayes_net.BayesNet`.
    """
    words = _Words(os.fspath(path), read_text(path))
    states: dict[str, tuple[str, ...]] = {}
    tables: dict[str, tuple[tuple[str, ...], np.ndarray]] = {}
    while (word := words.peek()) is not None:
        if word == "network":
            words.skip_block()
        elif word == "variable":
            name, found = words.variable()
            if name in states:
                raise words.wrong(f"has variable {name!r} twice")
            states[name] = found
        elif word == "probability":
            name, parents, table = words.probability(states)
            if name in tables:
                raise words.wrong(f"has probabilities of {name!r} twice")
            tables[name] = parents, table
        else:
            raise words.wrong(f"has {word!r} where network, variable or probability should stand", ahead=True)
    missing = [name for name in states if name not in tables]
    if missing or not states:
        raise ValueError(f"{os.fspath(path)} has no probabilities of {missing[0]!r}" if missing else
                         f"{os.fspath(path)} has no variable")  # fmt: skip
    number = {name: i for i, name in enumerate(states)}
    parents_of = tuple(tuple(number[parent] for parent in tables[name][0]) for name in states)
    return BayesNet(
        tuple(tables[name][1] for name in states),
        parents_of,
        names=tuple(states),
        state_names=tuple(states.values()),
    )


def write_bif(path: str | os.PathLike, network: BayesNet) -> None:
    """Write a network; numbers are written so that they come back, and states without names are called s0, s1, ...

    Raises
    ------
    ValueError : the network has a constant that is not one, or a name with a quotation mark.
    """
    if network.log_constant != 0:
        raise ValueError(f"network has log_constant {network.log_constant}, which a BIF file cannot say")
    states = network.state_names or tuple(tuple(f"s{i}" for i in range(size)) for size in network.sizes)
    names = [_written(name) for name in network.names]
    lines = ["network unknown {", "}"]
    for name, each in zip(names, states, strict=True):
        lines.append(f"variable {name} {{")
        lines.append(f"  type discrete [ {len(each)} ] {{ {', '.join(map(_written, each))} }};")
        lines.append("}")
    for number, (table, parents) in enumerate(zip(network.tables, network.parents, strict=True)):
        of = f" | {', '.join(names[parent] for parent in parents)}" if parents else ""
        lines.append(f"probability ( {names[number]}{of} ) {{")
        for index in itertools.product(*(range(network.sizes[parent]) for parent in parents)):
            numbers = ", ".join(map(repr, table[index].tolist()))
            given = ", ".join(
                _written(states[parent][state]) for parent, state in zip(parents, index, strict=True)
            )
            lines.append(f"  ({given}) {numbers};" if parents else f"  table {numbers};")
        lines.append("}")
    write_text(path, "\n".join(lines) + "\n")


def _written(name: str) -> str:
    if '"' in name:
        raise ValueError(f"name {name!r} has a quotation mark, which a BIF file cannot say")
    return name if PLAIN.fullmatch(name) else f'"{name}"'


def _without_comment(found: re.Match[str]) -> str:
    """Blanks in a comment's place; what is quoted stays."""
    return found.group() if found.group()[0] == '"' else re.sub(r"[^\n]", " ", found.group())


class _Words:
    """The words of a file one after the other, and the line that each stands in."""

    def __init__(self, path: str, text: str):
        self.path, self.place = path, 0
        text = COMMENT.sub(_without_comment, text)
        self.words = list(WORD.finditer(text))
        self.text = text

    def wrong(self, what: str, ahead: bool = False) -> ValueError:
        at = min(self.place - (not ahead), len(self.words) - 1)
        line = self.text.count("\n", 0, self.words[max(at, 0)].start()) + 1 if self.words else 1
        return ValueError(f"{self.path}, line {line}, {what}")

    def peek(self) -> str | None:
        return self.words[self.place].group() if self.place < len(self.words) else None

    def take(self, what: str) -> str:
        word = self.peek()
        if word is None:
            raise self.wrong(f"ends where {what} should stand", ahead=True)
        self.place += 1
        return word

    def expect(self, wanted: str) -> None:
        word = self.take(repr(wanted))
        if word != wanted:
            raise self.wrong(f"has {word!r} where {wanted!r} should stand")

    def name(self, what: str) -> str:
        word = self.take(what)
        if word[0] == '"':
            return word[1:-1]
        if not PLAIN.fullmatch(word):
            raise self.wrong(f"has {word!r} where {what} should stand")
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
        """Names between commas, up to a mark, which is taken too."""
        while True:
            yield self.name("a name")
            mark = self.take(f"',' or {end!r}")
            if mark == end:
                return
            if mark != ",":
                raise self.wrong(f"has {mark!r} where ',' or {end!r} should stand")

    def variable(self) -> tuple[str, tuple[str, ...]]:
        self.expect("variable")
        name, found = self.name("a variable's name"), None
        self.expect("{")
        while (word := self.take("'}'")) != "}":
            if word != "type":
                self.skip_statement()
                continue
            for wanted in ("discrete", "["):
                self.expect(wanted)
            said = self.take("the number of states")
            for wanted in ("]", "{"):
                self.expect(wanted)
            found = tuple(self.names_until("}"))
            self.expect(";")
            if said != str(len(found)):
                raise self.wrong(f"says that {name!r} has {said} states, and names {len(found)}")
        if found is None:
            raise self.wrong(f"has no type of {name!r}")
        return name, found

    def probability(self, states: dict[str, tuple[str, ...]]) -> tuple[str, tuple[str, ...], np.ndarray]:
        for wanted in ("probability", "("):
            self.expect(wanted)
        name = self._known(self.name("a variable's name"), states)
        parents: tuple[str, ...] = ()
        mark = self.take("'|' or ')'")
        if mark == "|":
            parents = tuple(self._known(each, states) for each in self.names_until(")"))
        elif mark != ")":
            raise self.wrong(f"has {mark!r} where '|' or ')' should stand")
        shape = tuple(len(states[each]) for each in (*parents, name))
        table, filled = np.zeros(shape), np.zeros(shape[:-1], bool)
        default = None
        self.expect("{")
        while (word := self.take("'}'")) != "}":
            if word == "table":
                listed = np.array(self.numbers(table.size)).reshape(
                    shape[-1], *shape[:-1]
                )  # the child goes slowest
                table, filled = np.moveaxis(listed, 0, -1), np.ones(shape[:-1], bool)
            elif word == "default":
                default = self.numbers(shape[-1])
            elif word == "(":
                given = list(self.names_until(")"))
                if len(given) != len(parents):
                    raise self.wrong(
                        f"has a row of {len(given)} states, and {name!r} has {len(parents)} parents"
                    )
                index = tuple(self._state(p, s, states) for p, s in zip(parents, given, strict=True))
                if filled[index]:
                    raise self.wrong(f"has the row {given} of {name!r} twice")
                table[index], filled[index] = self.numbers(shape[-1]), True
            else:
                self.skip_statement()
        if default is not None:
            table[~filled], filled[...] = default, True
        if not filled.all():
            index = np.argwhere(~filled)[0]
            row = [states[parent][i] for parent, i in zip(parents, index, strict=True)]
            raise self.wrong(f"has no row {row} of {name!r}" if row else f"has no table of {name!r}")
        return name, parents, table

    def _known(self, name: str, states: dict[str, tuple[str, ...]]) -> str:
        if name not in states:
            raise self.wrong(f"has {name!r}, which is no variable that was declared before")
        return name

    def _state(self, parent: str, state: str, states: dict[str, tuple[str, ...]]) -> int:
        if state not in states[parent]:
            raise self.wrong(f"has {state!r} for {parent!r}, whose states are {', '.join(states[parent])}")
        return states[parent].index(state)

    def numbers(self, count: int) -> list[float]:
        """Numbers with commas or blanks between them, up to a semicolon, which is taken too."""
        found = []
        while (word := self.take("a number or ';'")) != ";":
            if word == ",":
                continue
            try:
                found.append(float(word))
            except ValueError:
                raise self.wrong(f"has {word!r} where a number should stand") from None
        if len(found) != count:
            raise self.wrong(f"has {len(found)} numbers where {count} should stand")
        return found
