"""What no file may hold: index hosts, machine paths, leftovers; and how long a file may be."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

LONGEST_FILE = 500
VAGUE_NAMES = {"utils", "util", "common", "helpers", "helper", "misc"}

# Written so that no pattern matches its own text.
PATTERNS = {
    "names a package index": re.compile(
        r"(?:\b(?:test\.)?pypi[.]org|pythonhosted[.]org|registry[.]npmjs|conda[.]anaconda[.]org"
        r"|://[^\s)\"']*/(?:simple|packages)/)"
    ),
    "names a path of one machine": re.compile(
        r"(?<![\w.~$})])(?:/(?:work|tmp|root|home|Users|opt|mnt)/|[A-Z]:\\Users\\)"
    ),
    "has a conflict marker": re.compile(r"^(?:<{7} |={7}$|>{7} )", re.MULTILINE),
    "has a leftover": re.compile(r"\b(?:TO[D]O|FIX[M]E|XX[X]|assert\s+True)\b"),
}


def text_offences(text: str) -> Iterator[tuple[int, str]]:
    """Line number and complaint for each match in a text."""
    for complaint, pattern in PATTERNS.items():
        for match in pattern.finditer(text):
            yield text.count("\n", 0, match.start()) + 1, f"{complaint}: {match.group().strip()!r}"


def name_offences(path: Path) -> Iterator[str]:
    """A complaint where a file or folder is named for nothing in particular."""
    for part in path.parts:
        if part.split(".")[0].lower().strip("_") in VAGUE_NAMES:
            yield f"{part!r} says nothing about what is inside: name the file by its reason to exist"


def length_offences(path: Path, text: str) -> Iterator[str]:
    """A complaint where a Python file is too long to have one reason to exist."""
    lines = text.count("\n")
    if path.suffix == ".py" and lines > LONGEST_FILE:
        yield f"{lines} lines, more than {LONGEST_FILE}: look for the second file"


def read_text(path: Path) -> str | None:
    """Text of a file, None for a binary one."""
    content = path.read_bytes()
    if b"\0" in content:
        return None
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return None


def test_every_file_is_clean(root, repository_files):
    complaints, read = [], 0
    for path in repository_files:
        complaints += [f"{path}: {complaint}" for complaint in name_offences(path)]
        text = read_text(root / path)
        if text is None:
            continue
        read += 1
        complaints += [f"{path}:{line}: {complaint}" for line, complaint in text_offences(text)]
        complaints += [f"{path}: {complaint}" for complaint in length_offences(path, text)]
    assert read > 10
    assert not complaints, "\n".join(complaints)


def slashed(*parts: str) -> str:
    """A path made here, so that this file does not hold it."""
    return "/".join(("", *parts, ""))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("see https://" + "pypi" + ".org/project/jax", "package index"),
        ("url = https://files." + "pythonhosted" + ".org/x", "package index"),
        ("--index-url http://mirror.example" + slashed("simple"), "package index"),
        ("open('" + slashed("work", "main") + "')", "path of one machine"),
        ("cd " + slashed("tmp", "x"), "path of one machine"),
        ("PATH=" + slashed("root", "bin"), "path of one machine"),
        ("(" + slashed("home", "me") + ")", "path of one machine"),
        ("a\n" + "<" * 7 + " HEAD\n", "conflict marker"),
        ("a\n" + "=" * 7 + "\nb", "conflict marker"),
        ("# TO" + "DO: later", "leftover"),
        ("    assert " + "True", "leftover"),
    ],
)
def test_the_scan_finds_a_planted_offender(text, complaint):
    complaints = list(text_offences("first line\n" + text))
    assert len(complaints) == 1
    assert complaints[0][0] >= 2 and complaint in complaints[0][1]


@pytest.mark.parametrize(
    "text",
    [
        "https://example.org" + slashed("home", "page"),
        "games/home/away",
        "$HOME" + slashed("work"),
        "=" * 40,
        "assert True_positive_rate > 0.5",
        "results/simple/model",
    ],
)
def test_the_scan_leaves_innocent_text_alone(text):
    assert list(text_offences(text)) == []


@pytest.mark.parametrize("name", ["utils.py", "models/common/x.py", "_helpers.py", "tests/util.py"])
def test_vague_names_are_found(name):
    assert len(list(name_offences(Path(name)))) == 1
    assert list(name_offences(Path("models/utility_function.py"))) == []


def test_long_files_are_found():
    text = "x = 1\n" * (LONGEST_FILE + 1)
    assert len(list(length_offences(Path("a.py"), text))) == 1
    assert list(length_offences(Path("a.csv"), text)) == []
    assert list(length_offences(Path("a.py"), "x = 1\n" * LONGEST_FILE)) == []
