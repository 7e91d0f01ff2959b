"""A folder with one finished file per fit, which is the truth about what was done."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ethogram.fits.fit_items import digest_of
from ethogram.fits.fit_tasks import unpacked
from ethogram.fits.task_types import Failure
from ethogram.inference import storage
from ethogram.inference.checkpoint import locked
from ethogram.models.arguments import warn_user
from ethogram.models.whole_files import replacing

__all__ = ["FitsFolder"]

PLAN, FORMAT = "fits.json", "ethogram fits 1"
SLUG = 40
"""Characters of a name that its file keeps."""


class FitsFolder:
    """Files of the results of many fits by name, each written whole by a rename; results wait where one cannot be.

    Parameters
    ----------
    path : of the folder; made where its parent exists.

    Attributes
    ----------
    call : digest of the model or function, method, settings and key behind the files.
    data : digest of the data by name.
    """

    def __init__(self, path: str | os.PathLike) -> None:
        self.path = Path(os.fsdecode(path))
        self.call, self.data = "", dict[str, str]()
        self._waiting = dict[Path, bytes]()  # what could not be written
        if (self.path / PLAN).exists():
            try:
                plan = json.loads((self.path / PLAN).read_text())
                if plan["format"] != FORMAT:
                    raise ValueError(f"its format is {plan['format']!r}, not {FORMAT!r}")
                self.call, self.data = plan["call"], plan["data"]
            except (ValueError, KeyError, TypeError) as error:
                raise ValueError(f"{self.path / PLAN} cannot be read: {error}") from error

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Block in which no other process writes to the folder, at the end of which waiting results are tried again."""
        with locked(self.path / PLAN):
            try:
                yield
            except KeyboardInterrupt:
                print(f"{self.path}: fits that are done are saved; the same call goes on", file=sys.stderr)
                raise
            finally:
                self._write_waiting()

    def begin(self, call: str, data: Mapping[str, str]) -> None:
        """Note what will be done; a ValueError where the folder has fits of another call, or of other data."""
        if self.path.exists() and not self.path.is_dir():
            raise ValueError(f"out is {self.path}, which is a file: give a folder")
        others = self.path.iterdir() if self.path.exists() and not self.data else ()
        if any(file.suffix not in (".part", ".lock") for file in others):  # left by a process that was killed
            raise ValueError(f"out is {self.path}, a folder of other files: give a new or an empty one")
        if self.call not in ("", call):
            raise ValueError(
                f"out is {self.path}, which has fits by another model, method, settings or key: give another folder"
            )
        for name, digest in data.items():
            if digest and self.data.get(name) not in (None, "", digest) and self.finished(name):
                raise ValueError(
                    f"out is {self.path}, which has a fit of other data of {name!r}: give another folder, or remove "
                    f"{self.file_of(name).name} and its line in {PLAN}"
                )
        storage.require_folder(self.path)
        self.path.mkdir(exist_ok=True)
        known = {
            **self.data,
            **{name: digest for name, digest in data.items() if digest or name not in self.data},
        }
        if known == self.data:
            return
        self.call, self.data = call, known
        with locked(self.path / PLAN), replacing(self.path / PLAN, "w") as file:
            json.dump({"format": FORMAT, "call": self.call, "data": self.data}, file, indent=0)

    def file_of(self, name: str, ending: str = "ethogram") -> Path:
        """Where the result of an item is, or will be."""
        slug = re.sub(r"[^\w.=+-]+", "_", name)[:SLUG].strip("._")
        return self.path / f"{slug}-{digest_of(name)}.{ending}"

    def write(self, name: str, result: bytes | Failure, said: Sequence[str]) -> None:
        """Write the packed result of an item, or its failure, which a later result replaces."""
        path = self.file_of(name, "failure" if isinstance(result, Failure) else "ethogram")
        if isinstance(result, Failure):
            result = json.dumps(result._asdict() | {"warnings": list(said)}).encode()
        self._waiting[path] = result
        self._write_waiting()

    def _write_waiting(self) -> None:
        """Write all that is in memory, until something cannot be written."""
        try:
            for path, content in [*self._waiting.items()]:
                with replacing(path) as file:
                    file.write(content)
                del self._waiting[path]
                if path.suffix == ".ethogram":
                    path.with_suffix(".failure").unlink(missing_ok=True)
        except OSError as error:
            warn_user(f"a result was not written, and the fits go on: {error}; it is tried again later")

    def _exists(self, path: Path) -> bool:
        return path in self._waiting or path.exists()

    def _content(self, path: Path) -> bytes:
        return self._waiting[path] if path in self._waiting else path.read_bytes()

    def finished(self, name: str) -> bool:
        """Whether the result of an item is there."""
        return name in self.data and self._exists(self.file_of(name))

    def failed(self, name: str) -> bool:
        """Whether an item has failed, and no later try has succeeded."""
        return name in self.data and not self.finished(name) and self._exists(self.file_of(name, "failure"))

    def read(self, name: str) -> tuple[Any, tuple[str, ...]]:
        """The result of an item, or its failure, and its warnings; a KeyError where neither is there."""
        if self.finished(name):
            path = self.file_of(name)
            return unpacked(self._content(path), str(path))
        if not self.failed(name):
            raise KeyError(name)
        found = json.loads(self._content(self.file_of(name, "failure")))
        return Failure(*(found[field] for field in Failure._fields)), tuple(found["warnings"])
