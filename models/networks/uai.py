"""Networks, evidence and MAP queries in the text formats of the UAI inference competitions.

A network file starts with BAYES or MARKOV, the number of variables and their numbers of states, then lists the scope of
every table (of a BAYES file, the child last) and the tables themselves, the last variable of a scope changing fastest.
Tokens are separated by any white space, ``#`` starts a comment, and a name that ends in ``.gz`` is a compressed file.
pyAgrum (1.15 to 3.3) writes tables in another order, and is known by its comments (``agrum_orders``).
An evidence file has pairs of variable and state after their number, in the dialect of the PASCAL 2011 challenge with
the number of samples in front; a query file the MAP variables after their number. Both may have names instead
(``named_files.py``). Names of a network's variables and states are in a JSON file.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ethogram.models.networks.bayes_net import BayesNet, NumberedStates, NumberedVariables
from ethogram.models.networks.named_files import (
    is_json,
    json_samples,
    json_variables,
    line_sample,
    line_variables,
    parse_json,
)
from ethogram.models.networks.tokens import MOST_AXES, MOST_CELLS, Tokens, read_text, write_text

__all__ = [
    "Factors",
    "parse_uai",
    "read_evidence",
    "read_factors",
    "read_map_variables",
    "read_names",
    "write_evidence",
    "write_map_variables",
    "write_network",
]


class Factors(NamedTuple):
    """Contents of a UAI network file.

    Attributes
    ----------
    kind : ``"BAYES"`` or ``"MARKOV"``.
    sizes : number of states of every variable.
    scopes : variables of every table.
    tables : arrays, one axis a variable of the scope.
    """

    kind: str
    sizes: tuple[int, ...]
    scopes: tuple[tuple[int, ...], ...]
    tables: tuple[np.ndarray, ...]

    def __repr__(self) -> str:
        largest = max((table.shape for table in self.tables), key=math.prod, default=())
        return f"Factors({self.kind}, {len(self.sizes)} variables; largest table of shape {largest})"


def read_factors(path: str | os.PathLike) -> Factors:
    """Scopes and tables of a UAI network file of either kind.

    Tables of a BAYES file of pgmpy, which only their sums betray, are as they stand: :func:`read_network` turns them.

    Raises
    ------
    ValueError : the file is malformed; the message has the line.
    """
    return parse_uai(path, read_text(path))


def parse_uai(path: str | os.PathLike, text: str) -> Factors:
    """Scopes and tables of the text of a UAI network file; ``path`` is for messages."""
    tokens = Tokens(path, text)
    kind = tokens.take("BAYES or MARKOV")
    if kind.upper() not in ("BAYES", "MARKOV"):
        raise tokens.error(f"expected BAYES or MARKOV, found {kind!r}")
    count = tokens.integer("the number of variables", 1)
    sizes = tuple(tokens.integer(f"the number of states of variable {i}", 1) for i in range(count))
    if sum(sizes) > MOST_CELLS:
        raise tokens.error(f"the variables have {sum(sizes)} states together, more than is read")
    scopes = []
    for i in range(tokens.integer("the number of tables", 0)):
        length = tokens.integer(f"the size of scope {i}", 0)
        scope = tuple(tokens.integer(f"a variable of scope {i}", 0, count - 1) for _ in range(length))
        if len(set(scope)) < len(scope):
            raise tokens.error(f"scope {i} lists a variable twice: {scope}")
        scopes.append(scope)
    tables, (orders, certain) = [], agrum_orders(text, kind.upper(), scopes)
    for i, scope in enumerate(scopes):
        if len(scope) > MOST_AXES:
            raise tokens.error(
                f"scope {i} has {len(scope)} variables, and {MOST_AXES} is the most there can be"
            )
        shape = tuple(sizes[variable] for variable in scope)
        wanted = int(np.prod(shape, dtype=object))
        length = tokens.integer(f"the size of table {i}", 0)
        if length != wanted:
            raise tokens.error(f"table {i} has {length} entries, and its scope {scope} needs {wanted}")
        entries = tokens.reals(wanted, f"table {i}")
        table = entries.reshape([sizes[variable] for variable in orders[i]])
        table = table.transpose([orders[i].index(variable) for variable in scope])
        if not certain and not np.array_equal(table, entries.reshape(shape)):
            raise tokens.error(
                f"table {i} is in the order of the standard or of pyAgrum, and some of the comments beside scopes and "
                "sizes are pyAgrum's: remove all comments if it is that of the standard, else write BIF by pyAgrum"
            )
        tables.append(table)
    tokens.end()
    return Factors(kind.upper(), sizes, tuple(scopes), tuple(tables))


def agrum_orders(
    text: str, kind: str, scopes: Sequence[tuple[int, ...]]
) -> tuple[list[tuple[int, ...]], bool]:
    """Axes of every table, the slowest first, and whether they are certain.

    They are those of the scope, unless pyAgrum wrote the file. Then they are, of a BAYES file, the parents backwards
    and the child, and every scope has the name of its child as a comment after three blanks; of a MARKOV file, the
    numbers in the comment after the table's size, backwards, and the order of the scope means nothing.
    """
    if "#" not in text:
        return list(scopes), True
    if kind == "MARKOV":
        found = re.findall(r"^[ \t]*\d+[ \t]*#[ \t]*\{([\d, \t]+)\}", text, re.M)
        listed = [tuple(map(int, re.findall(r"\d+", each)))[::-1] for each in found]
        if [set(each) for each in listed] == [set(scope) for scope in scopes]:
            return listed, True
        doubtful = listed or "# nbr" in text
        return [scope[::-1] for scope in scopes] if doubtful else list(scopes), not doubtful
    backwards = [(*scope[-2::-1], *scope[-1:]) for scope in scopes]
    written = [f"{len(scope)} {' '.join(map(str, scope))}" for scope in scopes]
    if re.findall(r"^(\d+(?: \d+)*)   # .*$", text, re.M) == written:
        return backwards, True
    beside = {" ".join(line.partition("#")[0].split()) for line in text.split("\n") if "#" in line}
    return (backwards, False) if beside.intersection(written) else (list(scopes), True)


def read_names(path: str | os.PathLike) -> dict[str, Any]:
    """Arguments ``names`` and ``state_names`` of a network, from a JSON file with ``names`` and ``states``."""
    content = parse_json(path, read_text(path))
    if not isinstance(content, dict) or "names" not in content:
        raise ValueError(f'{os.fspath(path)} has no "names": give {{"names": [...], "states": [[...], ...]}}')
    states = content.get("states")
    for name, value in (("names", content["names"]), ("states", states)):
        if not isinstance(value, list) and (name == "names" or value is not None):
            raise ValueError(f'{os.fspath(path)}: "{name}" must be a list, one entry a variable')
    if states is not None and not all(isinstance(each, list) for each in states):
        raise ValueError(f'{os.fspath(path)}: every entry of "states" must be a list of names')
    for each in (content["names"], *(states or ())):
        wrong = next((name for name in each if not isinstance(name, str)), None)
        if wrong is not None or len(set(each)) < len(each):
            fault = "a name appears twice" if wrong is None else f"{wrong!r} is not a string"
            raise ValueError(f"{os.fspath(path)}: names must be unique strings; {fault}")
    state_names = None if states is None else tuple(tuple(each) for each in states)
    return {"names": tuple(content["names"]), "state_names": state_names}


def write_network(path: str | os.PathLike, network: BayesNet, names: str | os.PathLike | None = None) -> None:
    """Write a BAYES file, and its names to a JSON file where one is given; numbers round-trip exactly.

    Raises
    ------
    ValueError : the network has a constant factor, which the format cannot hold.
    """
    if network.log_constant != 0:
        raise ValueError(f"network has log_constant {network.log_constant}: a UAI file cannot hold it")
    scopes = ((len(parents) + 1, *parents, number) for number, parents in enumerate(network.parents))
    count = (network.num_variables,)
    lines = ["BAYES", *(" ".join(map(str, each)) for each in (count, network.sizes, count, *scopes)), ""]
    for table in network.tables:
        rows = table.reshape(-1, table.shape[-1]).tolist()
        lines += [str(table.size), *(" " + " ".join(map(repr, row)) for row in rows), ""]
    write_text(path, "\n".join(lines) + "\n")
    if names is not None:
        write_text(names, json.dumps({"names": network.names, "states": network.state_names}))


def read_evidence(path: str | os.PathLike, network: BayesNet, sample: int | None = None) -> NumberedStates:
    """Observed states by variable, both by number, from one sample of an evidence file.

    The file is in either dialect of the UAI format; or has one ``variable = state`` or ``variable state`` a line, by
    names or numbers, with comments after ``#``; or is a JSON object of states by variable, or several, which are
    samples, in a list or one a line. Integers alone are always read as UAI.

    Parameters
    ----------
    sample : its number, from 0; None for the only one.

    Raises
    ------
    ValueError : the file is malformed, a variable or state does not exist or is repeated, there is no such sample, or
        there are several and `sample` is None.
    """
    text = read_text(path)
    if is_json(text):
        return NumberedStates(_chosen(path, json_samples(path, text, network), sample))
    tokens = Tokens(path, text)
    if not _is_uai(tokens, network):
        return NumberedStates(_chosen(path, [line_sample(path, text, network)], sample))
    numbers = [tokens.integer(f"integer {i}", 0) for i in range(len(tokens.words))]
    if numbers and len(numbers) == 1 + 2 * numbers[0] and not _one_sample_a_line(tokens, numbers):
        samples = [range(1, len(numbers))]
    else:
        samples = _samples(tokens, numbers)
    found = NumberedStates()
    for place in _chosen(path, samples or [range(0)], sample)[::2]:
        number = network.variable(numbers[place], tokens.where(place), by_number=True)
        if number in found:
            raise ValueError(f"{tokens.where(place)}: variable {number} appears twice")
        found[number] = network.state(number, numbers[place + 1], tokens.where(place), by_number=True)
    return found


def write_evidence(path: str | os.PathLike, network: BayesNet, evidence: Mapping[Any, Any]) -> None:
    """Write one sample of evidence, states by variable, in one line."""
    pairs, by_number = [], isinstance(evidence, NumberedStates)
    for name, state in evidence.items():
        number = network.variable(name, "evidence", by_number)
        pairs += [number, network.state(number, state, "evidence", by_number)]
    write_text(path, " ".join(map(str, (len(pairs) // 2, *pairs))) + "\n")


def read_map_variables(path: str | os.PathLike, network: BayesNet) -> NumberedVariables:
    """Numbers of the MAP variables of a query file.

    The file is in the UAI format; or has one name a line, with comments after ``#``; or is a JSON list of names and
    numbers. Integers alone are always read as UAI.

    Raises
    ------
    ValueError : the file is malformed, or a variable does not exist or is repeated.
    """
    text = read_text(path)
    tokens = Tokens(path, text)
    if is_json(text):
        found = json_variables(path, text, network)
    elif not tokens.words or _is_uai(tokens, network):
        count = tokens.integer("the number of MAP variables", 1)
        found = [tokens.integer(f"MAP variable {i}", 0, network.num_variables - 1) for i in range(count)]
        tokens.end()
    else:
        found = line_variables(path, text, network)
    if len(set(found)) < len(found):
        twice = next(variable for variable in found if found.count(variable) > 1)
        raise ValueError(f"{os.fspath(path)}: variable {network.names[twice]} appears twice")
    return NumberedVariables(found)


def write_map_variables(path: str | os.PathLike, network: BayesNet, variables: Sequence[Any]) -> None:
    """Write a query file of MAP variables given by number or name."""
    by_number = isinstance(variables, NumberedVariables)
    numbers = [network.variable(name, "variables", by_number) for name in variables]
    write_text(path, " ".join(map(str, (len(numbers), *numbers))) + "\n")


def _is_uai(tokens: Tokens, network: BayesNet) -> bool:
    """Whether a file of evidence or a query has numbers in the UAI format, and not names."""
    first = tokens.peek()
    if first is None or "=" in tokens.text or not _is_integer(first):
        return first is None
    return first not in network.names or all(map(_is_integer, tokens.words))


def _is_integer(word: str) -> bool:
    return word.isascii() and word.removeprefix("-").isdecimal()


def _chosen(path: str | os.PathLike, samples: Sequence[Any], sample: int | None) -> Any:
    """The sample of a number, or the only one."""
    count = len(samples)
    if sample is None and count > 1:
        raise ValueError(
            f"{os.fspath(path)} has {count} samples of evidence, numbered 0 to {count - 1}: choose one by sample= (by "
            "--sample of ethogram mmap)"
        )
    if sample is not None and not (isinstance(sample, int | np.integer) and 0 <= sample < count):
        are = "1 sample, number 0" if count == 1 else f"{count} samples, numbered 0 to {count - 1}"
        raise ValueError(f"sample is {sample}, but {os.fspath(path)} has {are}")
    return samples[sample or 0]


def _samples(tokens: Tokens, numbers: list[int]) -> list[range]:
    """Places of every sample's pairs, in the dialect with the number of samples first."""
    samples, place = [], 1
    for number in range(numbers[0] if numbers else 0):
        if place >= len(numbers):
            raise tokens.error(f"expected sample {number} of {numbers[0]}, found the end of the file")
        stop = place + 1 + 2 * numbers[place]
        if stop > len(numbers):
            raise tokens.error(
                f"sample {number} ends before its {numbers[place]} pairs of variable and state"
            )
        samples.append(range(place + 1, stop))
        place = stop
    if place < len(numbers):
        raise tokens.error(
            f"expected the end of the file after {numbers[0]} pairs or samples, found {len(numbers) - place} more"
        )
    return samples


def _one_sample_a_line(tokens: Tokens, numbers: list[int]) -> bool:
    """Whether the first line is the number of samples alone, and each of as many further lines is a whole sample."""
    lines: dict[int, list[int]] = {}
    for line, number in zip(tokens.lines, numbers, strict=True):
        lines.setdefault(line, []).append(number)
    first, *others = lines.values()
    return first == [len(others)] and all(len(each) == 1 + 2 * each[0] for each in others)
