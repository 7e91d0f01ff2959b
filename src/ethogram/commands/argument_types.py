"""The parser of the commands, and types of their arguments: each reads a text, or says in one line what is wrong."""

from __future__ import annotations

import argparse
import math
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

__all__ = [
    "KINDS",
    "LARGEST_SEED",
    "Kind",
    "Parser",
    "column_names",
    "emissions",
    "integer",
    "label",
    "make_folder",
    "number",
    "seconds",
    "setting",
    "sizes",
    "step",
]

LARGEST_SEED = 2**32 - 1

KINDS = {
    "gaussian": ("GaussianEmission", None),
    "gamma": ("GammaEmission", None),
    "von-mises": ("VonMisesEmission", None),
    "poisson": ("PoissonEmission", None),
    "bernoulli": ("BernoulliEmission", None),
    "binomial": ("BinomialEmission", "total_count"),
    "categorical": ("CategoricalEmission", "num_categories"),
    "mixture": ("GaussianMixtureEmission", "num_components"),
    "autoregressive": ("AutoregressiveGaussianEmission", "order"),
}
"""Kinds of emissions: the class, and its argument that a number after the kind gives."""

MOST_SIZES = 1000
"""Fits of one range of sizes."""

Kind = tuple[str, int | None]
"""A kind of emission, with its number where one is given."""


class Parser(argparse.ArgumentParser):
    """Reports an error in one line, with exit code 2."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n")


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


seconds = number(0, math.inf, "a positive number of seconds")


def column_names(text: str) -> list[str]:
    """Names between commas, each once."""
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise argparse.ArgumentTypeError(f"{text[:40]!r} has an empty name: give names between commas")
    if len(set(names)) < len(names):
        raise argparse.ArgumentTypeError(f"{text[:40]!r} has a name twice")
    return names


def emissions(text: str) -> dict[str, Kind] | list[Kind]:
    """Kinds by feature, ``x=gamma,y=poisson``, or in the order of the features, ``gamma,binomial:10``."""
    names, kinds = [], list[Kind]()
    for item in text.split(","):
        name, _, described = item.rpartition("=")
        kind, colon, count = described.strip().partition(":")
        if kind not in KINDS or (
            colon and (KINDS[kind][1] is None or not count.isdecimal() or int(count) < 1)
        ):
            known = ", ".join(f"{each}:N" if argument else each for each, (_, argument) in KINDS.items())
            raise argparse.ArgumentTypeError(f"{item[:40]!r} is no kind of emission: choose from {known}")
        names.append(name.strip())
        kinds.append((kind, int(count) if colon else None))
    if not any(names):
        return kinds
    if not all(names) or len(set(names)) < len(names):
        raise argparse.ArgumentTypeError(
            f"{text[:40]!r} must name each feature once, or none: x=gamma,y=poisson"
        )
    return dict(zip(names, kinds, strict=True))


def label(text: str) -> str | re.Pattern[str]:
    """A column, ``file``, or a regular expression for names of files, ``file:_(wt|ko)_``."""
    file, colon, pattern = text.partition(":")
    if file != "file" or not colon:
        return text
    try:
        return re.compile(pattern)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{pattern[:40]!r} is no regular expression: {error}") from None


def sizes(text: str) -> list[int]:
    """One size, ``4``, or all of a range, ``2:8``."""
    try:
        ends = [int(part) for part in text.split(":")]
    except ValueError:
        ends = []
    if not (1 <= len(ends) <= 2 and 1 <= ends[0] <= ends[-1]):
        wanted = "a number from 1, such as 4, nor a range, such as 2:8"
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is neither {wanted}")
    if ends[-1] - ends[0] >= MOST_SIZES:
        raise argparse.ArgumentTypeError(
            f"{text[:40]!r} has more than {MOST_SIZES} numbers: give a shorter range"
        )
    return list(range(ends[0], ends[-1] + 1))


def step(text: str) -> float | str:
    """A time between frames: a positive number, or a duration such as ``10min``."""
    try:
        float(text)
    except ValueError:
        return text
    return _between(text, 0, math.inf, "a positive time between frames")


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


def make_folder(out: Path) -> None:
    """Make a folder where there is none; ValueError unless files can be written to it."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as error:
        raise ValueError(
            f"--out {out} is not a writable folder ({error.strerror}): choose another"
        ) from error
