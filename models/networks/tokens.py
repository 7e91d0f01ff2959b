"""Text files as tokens that know their line: one tokenizer for all text formats, and one reader and writer of files."""

from __future__ import annotations

import contextlib
import functools
import gzip
import itertools
import json
import os
import re
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ethogram.models.memory_bound import most_bytes_now, require_room
from ethogram.models.whole_files import replacing

__all__ = [
    "COPIES",
    "MAX_TABLE_AXES",
    "Tokens",
    "decoded",
    "json_values",
    "nonnegative_numbers",
    "parse_json",
    "prefix_errors",
    "read_bytes",
    "read_text",
    "write_text",
]

MAX_TABLE_AXES = 32
"""Variables of the largest table that is read; NumPy's arrays had no more axes before its version 2."""

COPIES = 3
"""Arrays of all entries of the tables that are held while a network is read."""

PIECE = 2**16
"""Bytes of a file that are read at a time."""

BYTES_OF_TOKEN = 64
"""Memory of a token, which is a string in a list."""

NONBLANK = re.compile(r"\S")
WORD = re.compile(r"\S+")
COMMENT = re.compile(r"#[^\n]*")
SEPARATORS = " \t\n{}()[]|;=,"
MARKS = frozenset('"{}()[]|;=,')
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
        num_words = sum(map(text.count, SEPARATORS))
        require_room(f"tokens of {self.path}", (num_words,), np.uint8, "give fewer tables", BYTES_OF_TOKEN)
        self.text = comment.sub(_blanked, text)
        self.words = word.findall(self.text)

    @functools.cached_property
    def lines(self) -> list[int]:
        """Line of every token, counted when a message needs one."""
        starts = [match.start() for match in self.word.finditer(self.text)]
        ends = [match.start() for match in re.finditer("\n", self.text)]
        return (1 + np.searchsorted(ends, starts)).tolist()

    def line(self, place: int) -> int:
        """Line of a token, or of the last before the end."""
        return self.lines[min(max(place, 0), len(self.lines) - 1)] if self.lines else 1

    def where(self, place: int) -> str:
        """File and line of a token."""
        return f"{self.path}, line {self.line(place)}"

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

    def name(self, what: str) -> str:
        """The next token as a name, which may be in quotation marks; ValueError at a mark."""
        word = self.take(what)
        if word in MARKS:
            raise self.error(f"expected {what}, found {word!r}")
        return word[1:-1] if word[0] == '"' else word

    def names_until(self, end: str) -> tuple[str, ...]:
        """Names up to a mark, which is taken too."""
        found = []
        while self.peek() != end:
            found.append(self.name(f"a name or {end!r}"))
        self.expect(end)
        return tuple(found)

    def skip_until(self, end: str) -> range:
        """Places of the tokens up to a mark, which is taken too."""
        first = self.place
        while self.take(repr(end)) != end:
            pass
        return range(first, self.place - 1)

    def integer(self, what: str, least: int, most: int | None = None) -> int:
        """The next token as an integer in ``least..most``."""
        word = self.take(what)
        if not INTEGER.fullmatch(word):
            raise self.error(f"expected {what}, found {word!r}")
        number = int(word)
        if number < least or (most is not None and number > most):
            raise self.error(f"{what} is {number}, outside {least}..{'' if most is None else most}")
        return number

    def numbers(self, places: Sequence[int], what: str) -> np.ndarray:
        """The tokens at these places as finite, nonnegative numbers; `what` they are is for messages."""
        try:
            return nonnegative_numbers([self.words[place] for place in places], what)
        except WrongNumber as error:
            self.place = places[error.index] + 1
            raise self.error(str(error)) from None

    def end(self) -> None:
        """ValueError unless all tokens are taken."""
        if self.place < len(self.words):
            self.place += 1
            raise self.error(f"expected the end of the file, found {self.words[self.place - 1]!r}")


class WrongNumber(ValueError):
    """A word is no finite, nonnegative number; `index` is its place among those given."""

    def __init__(self, message: str, index: int):
        super().__init__(message)
        self.index = index


def nonnegative_numbers(words: Sequence[str], what: str) -> np.ndarray:
    """Words as finite, nonnegative numbers; WrongNumber, with `what` they are, at the first that is none."""
    try:
        numbers = np.array(words, dtype=np.float64)
        if not _is_plain("".join(words)):
            raise ValueError
    except ValueError:
        index = next(i for i, word in enumerate(words) if not _is_number(word))
        raise WrongNumber(f"expected a number in {what}, found {words[index]!r}", index) from None
    wrong = np.flatnonzero(~(np.isfinite(numbers) & (numbers >= 0)))
    if len(wrong):
        index = int(wrong[0])
        raise WrongNumber(f"{what} has the entry {words[index]}: it must be finite and nonnegative", index)
    return numbers


def _is_plain(word: str) -> bool:
    """False where Python would read more as a number than the formats have: underscores, digits of other scripts."""
    return word.isascii() and "_" not in word


def _is_number(word: str) -> bool:
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
    opened, most = gzip.open if os.fspath(path).endswith(".gz") else open, most_bytes_now() // 8
    try:
        with opened(path, "rb") as file:
            pieces = iter(lambda: file.read(PIECE), b"")  # at once, room for all would be taken
            content = b"".join(itertools.islice(pieces, most // PIECE + 1))
        require_room(f"the text of {os.fspath(path)}", (len(content),), np.uint8, "give a smaller file", 8)
        return content
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


def parse_json(path: str | os.PathLike, text: str) -> Any:
    """The one value of a JSON text; ValueError as :func:`json_values`, or where it has none or several."""
    values = json_values(path, text)
    if len(values) != 1:
        raise ValueError(f"{os.fspath(path)}: not JSON: expected one value, found {len(values)}")
    return values[0]


def json_values(path: str | os.PathLike, text: str) -> list[Any]:
    """Values of a JSON text, which may have several, one after the other.

    Raises
    ------
    ValueError : it is not JSON, or an object has a name twice; the message has the file and, if known, the line.
    """
    decoder, found = json.JSONDecoder(object_pairs_hook=_object), []
    place = 0
    try:
        while start := NONBLANK.search(text, place):
            value, place = decoder.raw_decode(text, start.start())
            found.append(value)
    except json.JSONDecodeError as error:
        raise ValueError(f"{os.fspath(path)}, line {error.lineno}: not JSON: {error.msg}") from None
    except RecursionError:
        raise ValueError(f"{os.fspath(path)}: not JSON that can be read: nested too deeply") from None
    except ValueError as error:  # a name twice, or an integer of thousands of digits
        raise ValueError(f"{os.fspath(path)}: {error}") from None
    return found


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"{name!r} appears twice")
        found[name] = value
    return found


@contextlib.contextmanager
def prefix_errors(path: str | os.PathLike) -> Iterator[None]:
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
