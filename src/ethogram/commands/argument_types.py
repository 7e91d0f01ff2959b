"""Types of command-line arguments: each reads a text, or says in one line what is wrong with it."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable

__all__ = ["LARGEST_SEED", "column_names", "integer", "number", "seconds", "setting", "sizes", "step"]

LARGEST_SEED = 2**32 - 1


def integer(least: int, most: int | None = None) -> Callable[[str], int]:
    """Type of an argument: an integer within the bounds."""

    def read(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text[:40]!r} is not an integer") from None
        if most is not None and not least <= number <= most:
            raise argparse.ArgumentTypeError(f"{number} is not between {least} and {most}")
        if number < least:
            raise argparse.ArgumentTypeError(f"{number} is below {least}")
        return number

    return read


def seconds(text: str) -> float:
    """A positive number of seconds."""
    return _between(text, 0, math.inf, "a positive number of seconds")


def number(low: float | int, high: float | int, what: str) -> Callable[[str], float]:
    """Type of an argument: a number between two bounds, and neither of them; `what` says so in messages."""
    return lambda text: _between(text, low, high, what)


def _between(text: str, low: float | int, high: float | int, what: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not low < found < high:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not {what}")
    return found


def column_names(text: str) -> list[str]:
    """Names between commas, each once."""
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise argparse.ArgumentTypeError(f"{text[:40]!r} has an empty name: give names between commas")
    if len(set(names)) < len(names):
        raise argparse.ArgumentTypeError(f"{text[:40]!r} has a name twice")
    return names


def sizes(text: str) -> list[int]:
    """One size, ``4``, or all of a range, ``2:8``."""
    try:
        ends = [int(part) for part in text.split(":")]
    except ValueError:
        ends = []
    if not (1 <= len(ends) <= 2 and 1 <= ends[0] <= ends[-1]):
        wanted = "a number from 1, such as 4, nor a range, such as 2:8"
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is neither {wanted}")
    return list(range(ends[0], ends[-1] + 1))


def step(text: str) -> float | str:
    """A time between frames: a number, or a duration such as ``10min``."""
    try:
        return float(text)
    except ValueError:
        return text


def setting(text: str) -> tuple[str, bool | int | float | str]:
    """A pair ``NAME=VALUE``: true, false, a number or a word."""
    name, equals, value = text.partition("=")
    if not (name.isidentifier() and equals and value):
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not NAME=VALUE, such as num_steps=200")
    if value.lower() in ("true", "false"):
        return name, value.lower() == "true"
    for kind in (int, float):
        try:
            return name, kind(value)
        except ValueError:
            pass
    return name, value
