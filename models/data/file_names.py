"""Files of a path, a pattern or a list, and labels that are read from their names."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from ethogram.models.arguments import as_list

__all__ = ["NameRule", "Paths", "find_files", "is_path", "label_of_file"]

Paths = str | os.PathLike | Iterable[str | os.PathLike]
"""A path, a pattern such as ``"tracks/*.csv"``, or a list of these."""

NameRule = str | re.Pattern[str] | Callable[[Path], Any]
"""How a label is read from a file's name; see `label_of_file`."""


def is_path(source: Any) -> bool:
    return isinstance(source, str | os.PathLike)


def find_files(source: Paths, argument: str = "path") -> list[Path]:
    """The files, those of a pattern in alphabetical order; they may not exist where no pattern asks for them.

    Raises
    ------
    TypeError, ValueError, FileNotFoundError
        There is no path, one is there twice, or no file is of a pattern.
    """
    found: list[Path] = []
    for each in [source] if is_path(source) else as_list(argument, source, "paths"):
        if not is_path(each):
            raise TypeError(f"{argument} has {each!r}: give paths, or patterns such as 'tracks/*.csv'")
        name = os.fspath(each)
        if glob.has_magic(name) and not os.path.exists(name):
            matches = sorted(glob.glob(name, recursive=True))
            if not matches:
                raise FileNotFoundError(f"{argument} is {name!r}: no file has such a name")
            found += map(Path, matches)
        else:
            found.append(Path(name))
    twice = next((path for path in found if found.count(path) > 1), None)
    if twice is not None or not found:
        raise ValueError(
            f"{argument} has {f'{str(twice)!r} twice' if found else 'no path'}: give each file once"
        )
    return found


def label_of_file(path: Path, rule: NameRule, argument: str) -> str:
    """Label of a file by its name without ending.

    Parameters
    ----------
    rule : ``"file"`` for the name itself; a regular expression, of which the first group counts where it has one; or a
        function of the path.
    argument : how messages call the rule.

    Raises
    ------
    ValueError
        The name does not match.
    """
    stem = Path(path.name.removesuffix(".gz")).stem
    if isinstance(rule, str) and rule == "file":
        return stem
    if callable(rule):
        return str(rule(path))
    found = re.search(rule, stem)
    label = found and found[min(found.re.groups, 1)]
    if not label:
        pattern = rule if isinstance(rule, str) else rule.pattern
        raise ValueError(f"{argument} is {pattern!r}, which is not in the name {stem!r} of {path}")
    return label
