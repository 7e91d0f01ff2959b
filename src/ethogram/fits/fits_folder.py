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
from ethogram.models.whole_files import previous_of, replacing

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
        self._waiting: dict[str, tuple[bytes | Failure, tuple[str, ...]]] = {}
        if (self.path / PLAN).exists():
            try:
                self._read_plan(self.path / PLAN)
            except ValueError as error:
                try:
                    self._read_plan(Path(previous_of(self.path / PLAN)))
                except (OSError, ValueError):
                    raise error from None
                warn_user(f"{error}; it is damaged, and that before it is read")

    def _read_plan(self, path: Path) -> None:
        try:
            plan = json.loads(path.read_text())
            if plan["format"] != FORMAT:
                raise ValueError(f"its format is {plan['format']!r}, not {FORMAT!r}")
            self.call, self.data = plan["call"], plan["data"]
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path} cannot be read: {error}") from error

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
                if self._waiting:
                    warn_user(
                        f"{len(self._waiting)} results are in memory alone: {self.path} could not be written"
                    )

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
        with locked(self.path / PLAN), replacing(self.path / PLAN, "w", keep=True) as file:
            json.dump({"format": FORMAT, "call": self.call, "data": self.data}, file, indent=0)

    def file_of(self, name: str, ending: str = "ethogram") -> Path:
        """Where the result of an item is, or will be."""
        slug = re.sub(r"[^\w.=+-]+", "_", name)[:SLUG].strip("._")
        return self.path / f"{slug}-{digest_of(name)}.{ending}"

    def write(self, name: str, result: bytes | Failure, said: Sequence[str]) -> None:
        """Write the packed result of an item, or its failure, which a later result replaces."""
        self._waiting[name] = result, tuple(said)
        self._write_waiting()

    def _write_waiting(self) -> None:
        """Write all results that are in memory, until one cannot be written."""
        try:
            for name, (result, said) in [*self._waiting.items()]:
                failed = self.file_of(name, "failure")
                if isinstance(result, Failure):
                    with replacing(failed, "w") as file:
                        json.dump(result._asdict() | {"warnings": list(said)}, file)
                else:
                    with replacing(self.file_of(name)) as whole:
                        whole.write(result)
                    failed.unlink(missing_ok=True)
                del self._waiting[name]
        except OSError as error:
            warn_user(
                f"the result of {name!r} was not written, and the fits go on: {error}; it is tried again later"
            )

    def finished(self, name: str) -> bool:
        """Whether the result of an item is there."""
        if name in self._waiting:
            return isinstance(self._waiting[name][0], bytes)
        return name in self.data and self.file_of(name).exists()

    def failed(self, name: str) -> bool:
        """Whether an item has failed, and no later try has succeeded."""
        there = name in self._waiting or self.file_of(name, "failure").exists()
        return name in self.data and there and not self.finished(name)

    def read(self, name: str) -> tuple[Any, tuple[str, ...]]:
        """The result of an item, or its failure, and its warnings; a KeyError where neither is there."""
        if name in self._waiting:
            result, said = self._waiting[name]
            return unpacked(result, name) if isinstance(result, bytes) else (result, said)
        if self.finished(name):
            path = self.file_of(name)
            return unpacked(path.read_bytes(), str(path))
        if not self.failed(name):
            raise KeyError(name)
        found = json.loads(self.file_of(name, "failure").read_text())
        return Failure(*(found[field] for field in Failure._fields)), tuple(found["warnings"])
