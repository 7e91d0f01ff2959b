"""Evidence and MAP variables in files by name: one a line, or JSON.

A line of an evidence file is ``variable = state`` or ``variable state``, one of a query file a name. What follows ``#``
is a comment, and names with that sign need quotation marks. A JSON evidence file is an object of states by variable, or
several objects, which are samples: in a list, or one a line. A JSON query file is a list of names and numbers.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from typing import Any

from ethogram.models.networks.bayes_net import BayesNet
from ethogram.models.networks.named_text import read_assignment, read_state, read_variable

__all__ = ["is_json", "json_samples", "json_variables", "line_sample", "line_variables", "parse_json"]

COMMENT = re.compile(r'("[^"]*")|#.*')
STATE = "the name or the number of a state"


def is_json(text: str) -> bool:
    """Whether a text begins as a JSON object or list does."""
    return text.lstrip()[:1] in ("{", "[")


def parse_json(path: str | os.PathLike, text: str) -> Any:
    """Content of a JSON text.

    Raises
    ------
    ValueError : it is not JSON, or an object has a name twice; the message has the file and the line.
    """
    return _parse(os.fspath(path), text, 0)


def line_sample(path: str | os.PathLike, text: str, network: BayesNet) -> dict[int, int]:
    """Observed states by variable, from a text with one assignment a line.

    Raises
    ------
    ValueError : a line is none, or has a variable again; the message has the file and the line.
    """
    found: dict[int, int] = {}
    for where, line in _lines(path, text):
        variable, state = read_assignment(network, line, where)
        if variable in found:
            raise ValueError(f"{where}: variable {network.names[variable]} appears twice")
        found[variable] = state
    return found


def line_variables(path: str | os.PathLike, text: str, network: BayesNet) -> list[int]:
    """Variables of a text with one a line; ValueError with file and line where there is no such variable."""
    return [read_variable(network, line, where) for where, line in _lines(path, text)]


def json_samples(path: str | os.PathLike, text: str, network: BayesNet) -> list[dict[int, int]]:
    """Observed states by variable, one dict a sample, from a JSON text.

    Raises
    ------
    ValueError : it is not JSON, or there is no such variable or state; the message has the file and the sample.
    """
    try:
        content = parse_json(path, text)
    except ValueError:
        lines = list(_lines(path, text, comment=False))
        if len(lines) < 2 or not all(line[0] == "{" and line[-1] == "}" for _, line in lines):
            raise
        content = [_parse(os.fspath(path), line, int(where.rpartition(" ")[2]) - 1) for where, line in lines]
    samples = content if isinstance(content, list) else [content]
    if not samples:
        raise ValueError(f"{os.fspath(path)} has no sample: give an object of states by variable")
    return [_sample(f"{os.fspath(path)}, sample {i}", each, network) for i, each in enumerate(samples)]


def json_variables(path: str | os.PathLike, text: str, network: BayesNet) -> list[int]:
    """Variables of a JSON list of names and numbers.

    Raises
    ------
    ValueError : it is not a list of them, or there is no such variable; the message has the file.
    """
    content = parse_json(path, text)
    if not isinstance(content, list):
        raise ValueError(
            f"{os.fspath(path)}: expected a list of names or numbers of variables, found an object"
        )
    return [network.variable(each, os.fspath(path)) for each in content]


def _sample(where: str, content: Any, network: BayesNet) -> dict[int, int]:
    if not isinstance(content, dict):
        raise ValueError(f"{where}: expected an object of states by variable, found {content!r:.40}")
    found: dict[int, int] = {}
    for name, value in content.items():
        variable = read_variable(network, name, where)
        if variable in found:
            raise ValueError(f"{where}: variable {network.names[variable]} appears twice")
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise ValueError(f"{where}: expected {STATE} of {network.names[variable]}, found {value!r:.40}")
        found[variable] = read_state(network, variable, str(value), where)
    return found


def _lines(path: str | os.PathLike, text: str, comment: bool = True) -> Iterator[tuple[str, str]]:
    """Place and content of every line that has some."""
    for number, line in enumerate(text.split("\n"), 1):
        content = (COMMENT.sub(lambda found: found.group(1) or "", line) if comment else line).strip()
        if content:
            yield f"{os.fspath(path)}, line {number}", content


def _parse(path: str, text: str, before: int) -> Any:
    """Content of a JSON text that begins after so many lines."""
    try:
        return json.loads(text, object_pairs_hook=_object)
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}, line {before + error.lineno}: not JSON: {error.msg}") from None
    except RecursionError:
        raise ValueError(f"{path}: not JSON that can be read: nested too deeply") from None
    except ValueError as error:  # a name twice, or an integer of thousands of digits
        raise ValueError(f"{path}: {error}") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"{name!r} appears twice")
        found[name] = value
    return found
