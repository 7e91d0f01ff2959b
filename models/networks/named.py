"""Evidence and MAP variables of a network as text: by name, in JSON, or by number in the UAI format.

By name, assignments ``variable = state``, or variables, are one per line or separated by commas. What follows ``#`` is
a comment. Names with a comma or ``#`` in them need quotation marks, and so do names of variables with an equals sign:
the first one outside of quotation marks is that of the assignment.

In JSON, evidence is an object of states by variable, or several objects, which are samples: in a list, or one after the
other. MAP variables are a list.

In the UAI format, evidence is the number of pairs and then pairs of variable and state, in the dialect of the PASCAL
2011 challenge with the number of samples in front; MAP variables follow their number. Text of integers alone is UAI.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ethogram.models.networks.bayes_net import BayesNet, NumberedStates, NumberedVariables
from ethogram.models.networks.tokens import Tokens, json_values, parse_json, read_text, write_text

__all__ = [
    "parse_assignments",
    "parse_variables",
    "read_evidence",
    "read_map_variables",
    "write_evidence",
    "write_map_variables",
]

ITEM = re.compile(r'((?:"[^"\n]*"|[^,\n#])*)(?:#[^\n]*)?(,|\n|\Z)')
"""An item of a list, a comment after it, and the comma or the end of the line behind them."""
EQUALS = re.compile(r'"[^"]*"|(=)')
NUMBER = re.compile(r"0|[1-9][0-9]{0,17}")


def parse_assignments(network: BayesNet, text: str, where: str) -> NumberedStates:
    """Observed states by variable, both by number, of assignments ``variable = state``.

    Parameters
    ----------
    text : one assignment per line, or separated by commas; each name may be a number where no name is a numeral.
    where : start of messages, such as the path of the file.

    Raises
    ------
    ValueError : there is no such variable or state, a variable appears twice, or a text is no assignment.
    """
    found = NumberedStates()
    for place, item in _items(text, where):
        equals = next((match.start() for match in EQUALS.finditer(item) if match.group(1)), len(item))
        name, state = item[:equals].strip(), item[equals + 1 :].strip()
        if not name or not state:
            raise ValueError(f"{place}: expected 'variable = state', found {item!r}")
        _observe(network, found, name, state, place)
    return found


def parse_variables(network: BayesNet, text: str, where: str) -> NumberedVariables:
    """Numbers of variables that are listed one per line, or separated by commas.

    Parameters
    ----------
    where : start of messages, such as the path of the file.

    Raises
    ------
    ValueError : there is no such variable, or one appears twice.
    """
    found = [network.variable(_value(item), place) for place, item in _items(text, where)]
    return _unique(network, found, where)


def read_evidence(path: str | os.PathLike, network: BayesNet, sample: int | None = None) -> NumberedStates:
    """Observed states by variable, both by number, from one sample of an evidence file.

    The file has one ``variable = state`` per line, by names or numbers, with comments after ``#``; or is a JSON object
    of states by variable, or several, which are samples, in a list or one after the other; or is in either dialect of
    the UAI format. Integers alone are always read as UAI.

    Parameters
    ----------
    sample : its number, from 0; None for the only one.

    Raises
    ------
    ValueError : the file is malformed, a variable or state does not exist or is repeated, there is no such sample, or
        there are several and `sample` is None.
    """
    text, where = read_text(path), os.fspath(path)
    if _is_json(text):
        values = json_values(path, text)
        samples = values[0] if len(values) == 1 and isinstance(values[0], list) else values
        if not samples:
            raise ValueError(f"{where} has no sample: give an object of states by variable")
        read = [_json_sample(network, value, f"{where}, sample {i}") for i, value in enumerate(samples)]
        return _chosen(path, read, sample)
    tokens = Tokens(path, text)
    if not all(map(_is_integer, tokens.words)):
        return _chosen(path, [parse_assignments(network, text, where)], sample)
    found = NumberedStates()
    for place in _chosen(path, _uai_samples(tokens), sample)[::2]:
        number, state = (int(tokens.words[i]) for i in (place, place + 1))
        number = network.variable(number, tokens.where(place), by_number=True)
        if number in found:
            raise ValueError(f"{tokens.where(place)}: variable {number} appears twice")
        found[number] = network.state(number, state, tokens.where(place), by_number=True)
    return found


def read_map_variables(path: str | os.PathLike, network: BayesNet) -> NumberedVariables:
    """Numbers of the MAP variables of a query file.

    The file has one name per line, with comments after ``#``; or is a JSON list of names and numbers; or is in the UAI
    format. Integers alone are always read as UAI.

    Raises
    ------
    ValueError : the file is malformed, or a variable does not exist or is repeated.
    """
    text, where = read_text(path), os.fspath(path)
    if _is_json(text):
        values = parse_json(path, text)
        if not isinstance(values, list):
            raise ValueError(f"{where}: expected a list of names or numbers of variables, found an object")
        return _unique(
            network, [network.variable(_value(_text(value, where)), where) for value in values], where
        )
    tokens = Tokens(path, text)
    if not all(map(_is_integer, tokens.words)):
        return parse_variables(network, text, where)
    count = tokens.integer("the number of MAP variables", 1)
    found = [tokens.integer(f"MAP variable {i}", 0, network.num_variables - 1) for i in range(count)]
    tokens.end()
    return _unique(network, found, where)


def write_evidence(path: str | os.PathLike, network: BayesNet, evidence: Mapping[Any, Any]) -> None:
    """Write one sample of evidence, states by variable, in one line of the UAI format."""
    pairs, by_number = [], isinstance(evidence, NumberedStates)
    for name, state in evidence.items():
        number = network.variable(name, "evidence", by_number)
        pairs += [number, network.state(number, state, "evidence", by_number)]
    write_text(path, " ".join(map(str, (len(pairs) // 2, *pairs))) + "\n")


def write_map_variables(path: str | os.PathLike, network: BayesNet, variables: Sequence[Any]) -> None:
    """Write MAP variables given by number or name in the UAI format."""
    by_number = isinstance(variables, NumberedVariables)
    numbers = [network.variable(name, "variables", by_number) for name in variables]
    write_text(path, " ".join(map(str, (len(numbers), *numbers))) + "\n")


def _items(text: str, where: str) -> Iterator[tuple[str, str]]:
    """Items of a list, one per line or separated by commas; each with `where` it is, and its line if several."""
    line, place, several = 1, 0, "\n" in text.rstrip()
    while place < len(text) and (match := ITEM.match(text, place)):
        if item := match.group(1).strip():
            yield f"{where}, line {line}" if several else where, item
        line, place = line + (match.group(2) == "\n"), match.end()


def _observe(network: BayesNet, found: dict[int, int], name: str, state: str, where: str) -> None:
    """Add an observation, which may not be there yet."""
    variable = network.variable(_value(name), where)
    if variable in found:
        raise ValueError(f"{where}: variable {network.names[variable]} appears twice")
    found[variable] = network.state(variable, _value(state), where)


def _value(text: str) -> str | int:
    """A name without the quotation marks around it, or a number, which networks look up by its text if they can."""
    if NUMBER.fullmatch(text):
        return int(text)
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text


def _unique(network: BayesNet, variables: Sequence[int], where: str) -> NumberedVariables:
    twice = next((variable for variable, count in Counter(variables).items() if count > 1), None)
    if twice is not None:
        raise ValueError(f"{where}: variable {network.names[twice]} appears twice")
    return NumberedVariables(variables)


def _is_json(text: str) -> bool:
    """Whether a text begins as a JSON object or list does."""
    return text.lstrip()[:1] in ("{", "[")


def _is_integer(word: str) -> bool:
    return word.isascii() and word.removeprefix("-").isdecimal()


def _text(value: Any, where: str) -> str:
    """The name or number of a JSON text, as text."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError(f"{where}: expected a name or a number, found {value!r:.40}")
    return str(value)


def _json_sample(network: BayesNet, content: Any, where: str) -> NumberedStates:
    if not isinstance(content, dict):
        raise ValueError(f"{where}: expected an object of states by variable, found {content!r:.40}")
    found = NumberedStates()
    for name, state in content.items():
        _observe(network, found, name, _text(state, f"{where}, state of {name}"), where)
    return found


def _chosen(path: str | os.PathLike, samples: Sequence[Any], sample: int | None) -> Any:
    """The sample of a number, or the only one."""
    count = len(samples)
    if sample is None and count > 1:
        numbers = f"pass sample=0..{count - 1} (or --sample)"
        raise ValueError(f"{os.fspath(path)} contains {count} evidence samples; {numbers}")
    if sample is not None and not (isinstance(sample, int | np.integer) and 0 <= sample < count):
        last = "only sample 0" if count == 1 else f"samples 0..{count - 1}"
        raise ValueError(f"sample is {sample}, but {os.fspath(path)} contains {last}")
    return samples[sample or 0]


def _uai_samples(tokens: Tokens) -> Sequence[range]:
    """Places of every sample's pairs of variable and state; there is an empty sample at least."""
    numbers = [tokens.integer(f"integer {i}", 0) for i in range(len(tokens.words))]
    rows = [line.split() for line in tokens.text.split("\n") if line.strip()]
    one_per_line = rows[:1] == [[str(len(rows) - 1)]] and all(
        len(row) == 1 + 2 * int(row[0]) for row in rows[1:]
    )
    if not numbers or (len(numbers) == 1 + 2 * numbers[0] and not one_per_line):
        return [range(1, len(numbers))]
    samples, place = [], 1
    for number in range(numbers[0]):
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
        extra = f"{len(numbers) - place} more"
        raise tokens.error(f"expected the end of the file after {numbers[0]} pairs or samples, found {extra}")
    return samples or [range(0)]
