"""Text files as tokens that know their line: one tokenizer for UAI and BIF, and one reader and writer of files."""

from __future__ import annotations

import contextlib
import functools
import gzip
import math
import os
import re
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ethogram.models.whole_files import replacing

__all__ = [
    "MOST_AXES",
    "MOST_CELLS",
    "Tokens",
    "decoded",
    "errors_of",
    "is_number",
    "read_bytes",
    "read_text",
    "write_text",
]

MOST_AXES = 32
"""Variables of the largest family that is read; NumPy's arrays had no more axes before its version 2."""

MOST_CELLS = 2**27
"""Entries of the largest table that is read, one GiB."""

MOST_BYTES = 2**28
"""Bytes of the largest compressed file that is read, decompressed."""

WORD = re.compile(r"\S+")
COMMENT = re.compile(r"#[^\n]*")
INTEGER = re.compile(r"[+-]?[0-9]{1,18}")


class Tokens:
    """Tokens of a text one after the other; every error message starts with the file and the line.

    Parameters
    ----------
    path : of the file, for messages.
    text : its content.
    word : what a token is; anything between white space unless given.
    comment : what is skipped; ``#`` to the end of the line unless given. Matches that start with a quotation mark stay.
    """

    def __init__(
        self,
        path: str | os.PathLike,
        text: str,
        word: re.Pattern[str] = WORD,
        comment: re.Pattern[str] = COMMENT,
    ):
        self.path, self.word, self.place = os.fspath(path), word, 0
        self.text = comment.sub(_blanked, text)
        self.words = word.findall(self.text)

    @functools.cached_property
    def lines(self) -> list[int]:
        """Line of every token, counted when a message needs one."""
        found, line, last = [], 1, 0
        for match in self.word.finditer(self.text):
            line += self.text.count("\n", last, match.start())
            last = match.start()
            found.append(line)
        return found

    def where(self, place: int) -> str:
        """File and line of a token."""
        return f"{self.path}, line {self.lines[min(max(place, 0), len(self.lines) - 1)] if self.lines else 1}"

    def error(self, message: str, ahead: bool = False) -> ValueError:
        """The exception to raise at the token taken last, or at the one ahead."""
        return ValueError(f"{self.where(self.place - (not ahead))}: {message}")

    def peek(self) -> str | None:
        """The next token, which stays; None at the end."""
        return self.words[self.place] if self.place < len(self.words) else None

    def take(self, expected: str) -> str:
        """The next token; ValueError at the end."""
        word = self.peek()
        if word is None:
            raise self.error(f"expected {expected}, found the end of the file")
        self.place += 1
        return word

    def expect(self, *words: str) -> None:
        """Take tokens that must be these."""
        for wanted in words:
            if (word := self.take(repr(wanted))) != wanted:
                raise self.error(f"expected {wanted!r}, found {word!r}")

    def integer(self, what: str, least: int, most: int | None = None) -> int:
        """The next token as an integer in ``least..most``."""
        word = self.take(what)
        if not INTEGER.fullmatch(word):
            raise self.error(f"expected {what}, found {word!r}")
        number = int(word)
        if number < least or (most is not None and number > most):
            raise self.error(f"{what} is {number}, outside {least}..{'' if most is None else most}")
        return number

    def real(self, what: str) -> float:
        """The next token as a finite, nonnegative number."""
        word = self.take(what)
        if not is_number(word):
            raise self.error(f"expected {what}, found {word!r}")
        number = float(word)
        if not 0 <= number < math.inf:
            raise self.error(f"{what} is {word}: it must be finite and nonnegative")
        return number

    def reals(self, count: int, what: str) -> np.ndarray:
        """The next ``count`` tokens as finite, nonnegative numbers."""
        words = self.words[self.place : self.place + count]
        if len(words) < count:
            self.place = len(self.words)
            raise self.error(f"{what} ends after {len(words)} of its {count} entries")
        try:
            numbers = np.array(words, dtype=np.float64)
            plain = _is_plain("".join(words))
        except ValueError:
            plain = False
        if not plain:
            self.place += next(i for i, word in enumerate(words) if not is_number(word)) + 1
            raise self.error(f"expected a number in {what}, found {self.words[self.place - 1]!r}")
        wrong = np.flatnonzero(~(np.isfinite(numbers) & (numbers >= 0)))
        if len(wrong):
            self.place += int(wrong[0]) + 1
            raise self.error(f"{what} has the entry {words[wrong[0]]}: it must be finite and nonnegative")
        self.place += count
        return numbers

    def guard_table(self, name: str, shape: tuple[int, ...]) -> None:
        """ValueError unless the table of a variable has few enough axes and entries to be read."""
        if len(shape) > MOST_AXES or math.prod(shape) > MOST_CELLS:
            cells = f"{math.prod(shape)} entries of {len(shape)} variables"
            raise self.error(f"the table of {name!r} would have {cells}, more than is read")

    def end(self) -> None:
        """ValueError unless all tokens are taken."""
        if self.place < len(self.words):
            self.place += 1
            raise self.error(f"expected the end of the file, found {self.words[self.place - 1]!r}")


def _is_plain(word: str) -> bool:
    """False where Python would read more as a number than the formats have: underscores, digits of other scripts."""
    return word.isascii() and "_" not in word


def is_number(word: str) -> bool:
    """Whether a word is a number of the formats, which may be infinite."""
    try:
        float(word)
    except ValueError:
        return False
    return _is_plain(word)


def _blanked(found: re.Match[str]) -> str:
    """Blanks in a comment's place, so that lines still count; a quoted name stays."""
    return found.group() if found.group()[0] == '"' else re.sub(r"[^\n]", " ", found.group())


def read_bytes(path: str | os.PathLike) -> bytes:
    """Content of a file, decompressed where its name ends in ``.gz``; ValueError unless it is whole."""
    try:
        if os.fspath(path).endswith(".gz"):
            with gzip.open(path, "rb") as file:
                content = file.read(MOST_BYTES + 1)
            if len(content) > MOST_BYTES:
                raise ValueError(
                    f"{os.fspath(path)} is larger than {MOST_BYTES} bytes, decompressed: decompress it first"
                )
            return content
        return Path(path).read_bytes()
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"{os.fspath(path)} cannot be decompressed, or is truncated: {error}") from None


def decoded(path: str | os.PathLike, content: bytes) -> str:
    """The text of a file, without a byte order mark; ValueError unless it is UTF-8."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        utf16 = ", and starts as UTF-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else ""
        raise ValueError(
            f"{os.fspath(path)} is not UTF-8 text: invalid byte at {error.start}{utf16}"
        ) from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_text(path: str | os.PathLike) -> str:
    """Content of a text file, decompressed where its name ends in ``.gz``; ValueError unless it is whole and UTF-8."""
    return decoded(path, read_bytes(path))


@contextlib.contextmanager
def errors_of(path: str | os.PathLike) -> Iterator[None]:
    """The file in front of messages that know nothing of files, such as those of a network's constructor."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{os.fspath(path)}: {error}") from None


def write_text(path: str | os.PathLike, text: str) -> None:
    """Write a text file, compressed where its name ends in ``.gz``; completely or not at all."""
    content = text.encode()
    with replacing(path) as file:
        file.write(gzip.compress(content) if os.fspath(path).endswith(".gz") else content)
