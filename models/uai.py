"""Networks, evidence and queries in the text files of the UAI competitions.

A network file says BAYES or MARKOV, how many variables there are and how many states each has, the scope of every
table, the child last, and the tables, the last variable of a scope changing fastest. Words are separated by any white
space; what follows ``#`` is left out; a name that ends in ``.gz`` is of a compressed file. Evidence is pairs of a
variable and its state after their number, with the number of samples before them in the older form; a query is the
variables after their number. Files have no names: a second one, JSON, may have names of variables and of states.
"""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ethogram.models.bayes_net import BayesNet

__all__ = [
    "Factors", "read_evidence", "read_factors", "read_map_variables", "read_names", "read_network", "read_text",
    "write_evidence", "write_map_variables", "write_network", "write_text",
]  # fmt: skip

KINDS = ("BAYES", "MARKOV")


class Factors(NamedTuple):
    """A network file as it is.

    Attributes
    ----------
    kind : ``"BAYES"`` or ``"MARKOV"``.
    sizes : number of states of every variable.
    scopes : variables of every table.
    tables : arrays with an axis for each of them.
    """

    kind: str
    sizes: tuple[int, ...]
    scopes: tuple[tuple[int, ...], ...]
    tables: tuple[np.ndarray, ...]


def read_factors(path: str | os.PathLike) -> Factors:
    """Scopes and tables of a network file of either kind.

    Raises
    ------
    ValueError
        The file ends too early, goes on after its last table, or says something that does not fit; with its line.
    """
    words = _Words(path)
    kind = words.take("BAYES or MARKOV")
    if kind.upper() not in KINDS:
        raise words.wrong(f"has {kind!r}: a network file begins with BAYES or MARKOV")
    count = words.whole("the number of variables", 1)
    sizes = tuple(words.whole(f"the number of states of variable {i}", 1) for i in range(count))
    number = words.whole("the number of tables", 0)
    scopes = []
    for i in range(number):
        length = words.whole(f"the size of scope {i}", 0)
        scope = tuple(words.whole(f"a variable of scope {i}", 0, count - 1) for _ in range(length))
        if len(set(scope)) < len(scope):
            raise words.wrong(f"has scope {i} with a variable twice: {scope}")
        scopes.append(scope)
    tables = []
    for i, scope in enumerate(scopes):
        shape = tuple(sizes[variable] for variable in scope)
        wanted = int(np.prod(shape, dtype=object))
        length = words.whole(f"the size of table {i}", 0)
        if length != wanted:
            raise words.wrong(f"has table {i} of {length} numbers, and its scope {scope} has {wanted}")
        tables.append(words.reals(wanted, f"table {i}").reshape(shape))
    words.end()
    return Factors(kind.upper(), sizes, tuple(scopes), tuple(tables))


def read_network(path: str | os.PathLike, names: str | os.PathLike | None = None) -> BayesNet:
    """The network in a file that says BAYES.

    Parameters
    ----------
    names : a JSON file with ``names`` of variables, and ``states`` of each.

    Raises
    ------
    ValueError
        As :func:`read_factors`; the file says MARKOV; a variable has no table, or two; or as `BayesNet`.
    """
    found = read_factors(path)
    if found.kind != "BAYES":
        raise ValueError(
            f"{os.fspath(path)} says {found.kind}: its factors are no tables of children given parents: take "
            "read_factors and network_of_factors"
        )
    place: dict[int, int] = {}
    for i, scope in enumerate(found.scopes):
        if not scope:
            raise ValueError(
                f"{os.fspath(path)} has an empty scope, number {i}: a table is of a child, its last variable"
            )
        if scope[-1] in place:
            raise ValueError(
                f"{os.fspath(path)} has two tables of variable {scope[-1]}, {place[scope[-1]]} and {i}"
            )
        place[scope[-1]] = i
    missing = [variable for variable in range(len(found.sizes)) if variable not in place]
    if missing:
        raise ValueError(
            f"{os.fspath(path)} has no table of variable {missing[0]}: the child stands last in a scope"
        )
    order = [place[variable] for variable in range(len(found.sizes))]
    told: dict[str, Any] = {}
    if names is not None:
        told = read_names(names)
    parents = tuple(found.scopes[i][:-1] for i in order)
    return BayesNet(tuple(found.tables[i] for i in order), parents, **told)


def read_names(path: str | os.PathLike) -> dict[str, Any]:
    """Arguments `names` and `state_names` of a network, from a JSON file with ``names``, and ``states`` of each.

    Raises
    ------
    ValueError : the file is no JSON, or has no names.
    """
    try:
        content = json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise ValueError(f"{os.fspath(path)}, line {error.lineno}, is no JSON: {error.msg}") from None
    if not isinstance(content, dict) or "names" not in content:
        raise ValueError(f"{os.fspath(path)} has no names: give JSON with names, and states of each")
    states = content.get("states")
    for name, value in (("names", content["names"]), ("states", states)):
        if not isinstance(value, list | None):
            raise ValueError(
                f"{os.fspath(path)} has {name} that are no list: give a list, of states one a variable"
            )
    if states is not None and not all(isinstance(each, list) for each in states):
        raise ValueError(f"{os.fspath(path)} has states that are no lists: give a list of each variable's")
    return {
        "names": tuple(content["names"]),
        "state_names": None if states is None else tuple(tuple(each) for each in states),
    }


def write_network(path: str | os.PathLike, network: BayesNet, names: str | os.PathLike | None = None) -> None:
    """Write a network, and its names where a second file is given; numbers are written so that they come back.

    Raises
    ------
    ValueError : the network has a constant that is not one, which the format has no place for.
    """
    if network.log_constant != 0:
        raise ValueError(f"network has log_constant {network.log_constant}, which a UAI file cannot say")
    lines = [
        "BAYES",
        str(network.num_variables),
        " ".join(map(str, network.sizes)),
        str(network.num_variables),
    ]
    for number, parents in enumerate(network.parents):
        lines.append(" ".join(map(str, (len(parents) + 1, *parents, number))))
    lines.append("")
    for table in network.tables:
        rows = table.reshape(-1, table.shape[-1]).tolist()
        lines += [str(table.size), *(" " + " ".join(map(repr, row)) for row in rows), ""]
    write_text(path, "\n".join(lines) + "\n")
    if names is not None:
        write_text(names, json.dumps({"names": network.names, "states": network.state_names}))


def read_evidence(path: str | os.PathLike, network: BayesNet, sample: int = 0) -> dict[int, int]:
    """States by variable, of one sample of an evidence file of either form.

    Raises
    ------
    ValueError
        The file is cut short or goes on, a variable or state is not there or stands twice, or there is no such sample.
    """
    words = _Words(path)
    told = words.all_whole()
    if told and len(told) == 1 + 2 * told[0] and not words.one_sample_a_line(told):
        samples = [range(1, len(told))]
    else:
        samples = _samples(words, told)
    if not 0 <= sample < max(len(samples), 1):
        raise ValueError(f"sample is {sample}: {os.fspath(path)} has {len(samples)}")
    found: dict[int, int] = {}
    for place in (samples[sample] if samples else range(0))[::2]:
        where = f"{os.fspath(path)}, line {words.lines[place]},"
        number = network.variable(told[place], where)
        if number in found:
            raise ValueError(f"{where} has variable {number} twice")
        found[number] = network.state(number, told[place + 1], where)
    return found


def write_evidence(path: str | os.PathLike, network: BayesNet, evidence: Mapping[Any, Any]) -> None:
    """Write one sample of evidence, states by variable, in one line."""
    pairs = []
    for name, state in evidence.items():
        number = network.variable(name, "evidence")
        pairs += [number, network.state(number, state, "evidence")]
    write_text(path, " ".join(map(str, (len(pairs) // 2, *pairs))) + "\n")


def read_map_variables(path: str | os.PathLike, network: BayesNet) -> tuple[int, ...]:
    """Variables that are asked for, of a query file.

    Raises
    ------
    ValueError : the file is cut short or goes on, or a variable is not there or stands twice.
    """
    words = _Words(path)
    count = words.whole("the number of variables", 1)
    found = [words.whole(f"variable {i}", 0, network.num_variables - 1) for i in range(count)]
    words.end()
    if len(set(found)) < count:
        raise ValueError(
            f"{os.fspath(path)} has variable {next(v for v in found if found.count(v) > 1)} twice"
        )
    return tuple(found)


def write_map_variables(path: str | os.PathLike, network: BayesNet, variables: Sequence[Any]) -> None:
    """Write a query, variables by number or name."""
    numbers = [network.variable(name, "variables") for name in variables]
    write_text(path, " ".join(map(str, (len(numbers), *numbers))) + "\n")


def _samples(words: _Words, told: list[int]) -> list[range]:
    """Places of every sample's pairs, in the form with the number of samples first."""
    samples, place = [], 1
    for number in range(told[0] if told else 0):
        if place >= len(told):
            raise words.wrong(f"ends before sample {number} of {told[0]}")
        stop = place + 1 + 2 * told[place]
        if stop > len(told):
            raise words.wrong(
                f"ends in sample {number}: {told[place]} pairs of a variable and its state are said"
            )
        samples.append(range(place + 1, stop))
        place = stop
    if place < len(told):
        raise words.wrong(
            f"has {len(told) - place} numbers after the {told[0]} pairs, or samples, that it says it has"
        )
    return samples


class _Words:
    """The words of a file one after the other, and the line that each stands in."""

    def __init__(self, path: str | os.PathLike):
        self.path = os.fspath(path)
        self.words: list[str] = []
        self.lines: list[int] = []
        for number, line in enumerate(read_text(path).splitlines(), start=1):
            here = line.partition("#")[0].split()
            self.words += here
            self.lines += [number] * len(here)
        self.place = 0

    def wrong(self, text: str) -> ValueError:
        """What to raise at the word that was taken last."""
        line = self.lines[min(max(self.place - 1, 0), len(self.lines) - 1)] if self.lines else 1
        return ValueError(f"{self.path}, line {line}, {text}")

    def take(self, what: str) -> str:
        if self.place == len(self.words):
            raise self.wrong(f"ends where {what} should stand")
        self.place += 1
        return self.words[self.place - 1]

    def whole(self, what: str, least: int, most: int | None = None) -> int:
        word = self.take(what)
        try:
            number = int(word)
        except ValueError:
            raise self.wrong(f"has {word!r} where {what} should stand") from None
        if number < least or (most is not None and number > most):
            raise self.wrong(f"has {number} for {what}, outside {least}..{'' if most is None else most}")
        return number

    def reals(self, count: int, what: str) -> np.ndarray:
        words = self.words[self.place : self.place + count]
        if len(words) < count:
            self.place = len(self.words)
            raise self.wrong(f"ends in {what}: {len(words)} of its {count} numbers are there")
        try:
            numbers = np.array(words, dtype=np.float64)
        except ValueError:
            for word in words:
                self.place += 1
                try:
                    float(word)
                except ValueError:
                    raise self.wrong(f"has {word!r} in {what}: give numbers") from None
            raise
        wrong = np.flatnonzero(~(np.isfinite(numbers) & (numbers >= 0)))
        if len(wrong):
            self.place += int(wrong[0]) + 1
            raise self.wrong(f"has {words[wrong[0]]} in {what}: give numbers of at least 0")
        self.place += count
        return numbers

    def all_whole(self) -> list[int]:
        return [self.whole(f"number {i}", 0) for i in range(len(self.words))]

    def one_sample_a_line(self, told: list[int]) -> bool:
        """Whether the first line is a number of samples alone, and as many lines follow, each a whole one."""
        lines = [
            [told[i] for i in range(len(told)) if self.lines[i] == line] for line in dict.fromkeys(self.lines)
        ]
        return lines[0] == [len(lines) - 1] and all(len(each) == 1 + 2 * each[0] for each in lines[1:])

    def end(self) -> None:
        if self.place < len(self.words):
            self.place += 1
            raise self.wrong(f"goes on with {self.words[self.place - 1]!r}, where the file should end")


def read_text(path: str | os.PathLike) -> str:
    """What a file says; one that ends in ``.gz`` is unpacked.

    Raises
    ------
    OSError : there is no such file.
    ValueError : it is no text, or is cut short.
    """
    try:
        if os.fspath(path).endswith(".gz"):
            with gzip.open(path, "rt", encoding="utf-8") as file:
                return file.read()
        return Path(path).read_text(encoding="utf-8")
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"{os.fspath(path)} cannot be unpacked, or is cut short: {error}") from None
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{os.fspath(path)} is no text in UTF-8: byte {error.start} is no part of a letter"
        ) from None


def write_text(path: str | os.PathLike, text: str) -> None:
    """Write a file, packed where its name ends in ``.gz``; whole or not at all."""
    place = Path(path)
    draft = place.with_name(f".{place.name}.{os.getpid()}")
    try:
        if place.name.endswith(".gz"):
            with gzip.open(draft, "wt", encoding="utf-8") as file:
                file.write(text)
        else:
            draft.write_text(text, encoding="utf-8")
        os.replace(draft, place)
    finally:
        draft.unlink(missing_ok=True)
