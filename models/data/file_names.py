"""Files of a path, a pattern or a list, and labels that are read from their names."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any

from ethogram.models.arguments import as_list

__all__ = ["NameRule", "Paths", "existing_file", "find_files", "is_path", "label_of_file"]

Paths = str | os.PathLike | Iterable[str | os.PathLike]
"""A path, a pattern such as ``"tracks/*.csv"``, or a list of these."""

NameRule = str | re.Pattern[str] | Callable[[Path], Any]
"""``"file"`` for the name without ending; a regular expression that is searched in it, of which the first group counts
where it has one; or a function of the path.
"""


def is_path(source: Any) -> bool:
    return isinstance(source, str | os.PathLike)


def find_files(source: Any, argument: str = "path") -> list[Path]:
    """The files, those of a pattern in alphabetical order; a FileNotFoundError where there is none of a pattern."""
    found: list[Path] = []
    for each in [source] if is_path(source) else as_list(argument, source, "paths"):
        if not is_path(each):
            raise TypeError(f"{argument} has {each!r}: give paths, or patterns such as 'tracks/*.csv'")
        is_pattern = glob.has_magic(os.fspath(each)) and not os.path.exists(each)
        files = sorted(glob.glob(os.fspath(each), recursive=True)) if is_pattern else [each]
        if not files:
            raise FileNotFoundError(f"{argument} is {str(each)!r}: no file has such a name")
        found += map(Path, files)
    twice = [path for path in found if found.count(path) > 1]
    if twice or not found:
        raise ValueError(
            f"{argument} has {f'{str(twice[0])!r} twice' if found else 'no path'}: give each file once"
        )
    return found


def existing_file(
    path: str | os.PathLike, endings: Collection[str], fix: str, argument: str = "path"
) -> Path:
    """The path; FileNotFoundError or ValueError unless it is a file with one of the endings."""
    found = Path(path)
    if not any(found.name.lower().endswith(ending) for ending in endings):
        raise ValueError(
            f"{argument} is {str(path)!r}, whose name ends in none of {', '.join(endings)}: {fix}"
        )
    if not found.is_file():
        raise FileNotFoundError(f"{argument} is {str(path)!r}: there is no such file")
    return found


def label_of_file(path: Path, rule: NameRule, argument: str) -> str:
    """Label of a file; a ValueError, which calls the rule by `argument`, where its name does not match."""
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
