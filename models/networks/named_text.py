"""Variables and states as text: names, numbers, and assignments of one to the other.

A text is the name of a variable or state if there is one of that name, else a number from 0. Numbers are not taken
where names are numbers themselves, such as states ``1`` and ``2``: which is meant would be a guess. Double quotation
marks are allowed around every name.
"""

from __future__ import annotations

import re

from ethogram.models.networks.bayes_net import NUMERAL, BayesNet

__all__ = ["read_assignment", "read_state", "read_variable", "split_list", "unquoted"]

NUMBER = re.compile(r"[0-9]{1,18}")
PART = re.compile(r'((?:"[^"]*"|[^",])*)(,|\Z)')
EXPECTED = "expected 'variable = state' or 'variable state'"


def read_variable(network: BayesNet, text: str, where: str) -> int:
    """Number of the variable that a text names.

    Raises
    ------
    ValueError : there is none, or the text is a number and names of variables are numbers; it starts with `where`.
    """
    name = unquoted(text)
    if name in network.names or not NUMBER.fullmatch(text):
        return network.variable(name, where)
    if any(map(NUMERAL.fullmatch, network.names)):
        fault = f"no variable is named {text!r}, and numbers are not taken where names are numbers"
        raise ValueError(f"{where}: {fault}: give a name")
    return network.variable(int(text), where)


def read_state(network: BayesNet, variable: int, text: str, where: str) -> int:
    """Number of the state of a variable that a text names.

    Raises
    ------
    ValueError : there is none, or the text is a number and names of states are numbers; it starts with `where`.
    """
    known = () if network.state_names is None else network.state_names[variable]
    if unquoted(text) in known or not NUMBER.fullmatch(text) or any(map(NUMERAL.fullmatch, known)):
        return network.state(variable, unquoted(text), where)
    return network.state(variable, int(text), where)


def read_assignment(network: BayesNet, text: str, where: str) -> tuple[int, int]:
    """Numbers of the variable and the state of a text ``variable = state``, or ``variable state``.

    Names may contain the equals sign or blanks: among all places to split the text, there must be one that leaves a
    variable and one of its states.

    Raises
    ------
    ValueError : there is none, or there are several; it starts with `where`.
    """
    unknown: list[str] = []
    misfits: list[str] = []
    for mark in ("=", r"\s+"):
        found = []
        for left, right in _splits(text, mark):
            try:
                variable = read_variable(network, left, where)
            except ValueError as error:
                unknown.append(str(error))
                continue
            try:
                found.append((variable, read_state(network, variable, right, where)))
            except ValueError as error:
                misfits.append(str(error))
        if len(found) > 1:
            readings = " or ".join(
                f"{network.names[variable]!r} in state {state}" for variable, state in found
            )
            cure = "put quotation marks around the names"
            raise ValueError(f"{where}: {text.strip()!r} may be {readings}: {cure}")
        if found:
            return found[0]
    if faults := misfits[:1] or (unknown if len(unknown) == 1 or "=" in text else []):
        raise ValueError(faults[0])
    raise ValueError(f"{where}: {EXPECTED}, found {text.strip()!r}")


def _splits(text: str, mark: str) -> list[tuple[str, str]]:
    """The text before and after each mark outside of quotation marks, where there is some."""
    quoted = [match.span() for match in re.finditer(r'"[^"]*"', text)]
    marks = [
        match
        for match in re.finditer(mark, text)
        if not any(first < match.start() < last for first, last in quoted)
    ]
    sides = [(text[: each.start()].strip(), text[each.end() :].strip()) for each in marks]
    return [(left, right) for left, right in sides if left.strip("=") and right.strip("=")]


def split_list(text: str, where: str) -> list[str]:
    """Parts of a text between commas that are not inside quotation marks; empty parts are left out.

    Raises
    ------
    ValueError : a quotation mark has no partner; it starts with `where`.
    """
    parts, place = [], 0
    while place < len(text):
        match = PART.match(text, place)
        if match is None:
            raise ValueError(f"{where}: a quotation mark in {text!r} has no partner")
        parts.append(match.group(1).strip())
        place = match.end()
    return [part for part in parts if part]


def unquoted(text: str) -> str:
    """A name without the quotation marks around it."""
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text
