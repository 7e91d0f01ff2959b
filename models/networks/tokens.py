"""Text files as tokens that know their line: one tokenizer for UAI and BIF, and one reader and writer of files."""

from __future__ import annotations

import functools
import gzip
import os
import re
import zlib
from pathlib import Path

import numpy as np

__all__ = ["Tokens", "read_text", "write_text"]

WORD = re.compile(r"\S+")
COMMENT = re.compile(r"#[^\n]*")


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
        try:
            number = int(word)
        except ValueError:
            raise self.error(f"expected {what}, found {word!r}") from None
        if number < least or (most is not None and number > most):
            raise self.error(f"{what} is {number}, outside {least}..{'' if most is None else most}")
        return number

    def reals(self, count: int, what: str) -> np.ndarray:
        """The next ``count`` tokens as finite, nonnegative numbers."""
        words = self.words[self.place : self.place + count]
        if len(words) < count:
            self.place = len(self.words)
            raise self.error(f"{what} ends after {len(words)} of its {count} entries")
        try:
            numbers = np.array(words, dtype=np.float64)
        except ValueError:
            for word in words:
                self.place += 1
                try:
                    float(word)
                except ValueError:
                    raise self.error(f"expected a number in {what}, found {word!r}") from None
            raise
        wrong = np.flatnonzero(~(np.isfinite(numbers) & (numbers >= 0)))
        if len(wrong):
            self.place += int(wrong[0]) + 1
            raise self.error(f"{what} has the entry {words[wrong[0]]}: it must be finite and nonnegative")
        self.place += count
        return numbers

    def end(self) -> None:
        """ValueError unless all tokens are taken."""
        if self.place < len(self.words):
            self.place += 1
            raise self.error(f"expected the end of the file, found {self.words[self.place - 1]!r}")


def _blanked(found: re.Match[str]) -> str:
    """Blanks in a comment's place, so that lines still count; a quoted name stays."""
    return found.group() if found.group()[0] == '"' else re.sub(r"[^\n]", " ", found.group())


def read_text(path: str | os.PathLike) -> str:
    """Content of a text file, decompressed where its name ends in ``.gz``; ValueError unless it is whole and UTF-8."""
    try:
        if os.fspath(path).endswith(".gz"):
            with gzip.open(path, "rt", encoding="utf-8") as file:
                return file.read()
        return Path(path).read_text(encoding="utf-8")
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"{os.fspath(path)} cannot be decompressed, or is truncated: {error}") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{os.fspath(path)} is not UTF-8 text: invalid byte at {error.start}") from None


def write_text(path: str | os.PathLike, text: str) -> None:
    """Write a text file, compressed where its name ends in ``.gz``; completely or not at all."""
    place = Path(path)
    draft = place.with_name(f".{place.name}.{os.getpid()}")
    try:
        if place.name.endswith(".gz"):
            with gzip.open(draft, "wt", encoding="utf-8") as file:
                file.write(text)
        else:
            draft.write_text(text, encoding="utf-8")
        os.replace(draft, place)
    finally:
        draft.unlink(missing_ok=True)
