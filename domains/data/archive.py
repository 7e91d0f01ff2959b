"""Readers of npz archives of real data, in the package or under ``ETHOGRAM_DATA``."""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import IO

import numpy as np

from ethogram.models.memory_bound import declared_bytes, require_room

__all__ = ["embedded", "external", "read"]


def embedded(folder: str, name: str, keys: Sequence[str]) -> list[np.ndarray]:
    """Arrays of a file in a folder of ``ethogram.domains.data``, in the order of `keys`; errors as :func:`read`."""
    source = resources.files("ethogram.domains.data") / folder / name
    with source.open("rb") as file:
        return _arrays(file, str(source), keys)


def external(folder: str, name: str) -> Path:
    """Path of a file in a folder of ``ETHOGRAM_DATA``; FileNotFoundError says what to set."""
    root = os.environ.get("ETHOGRAM_DATA")
    if not root:
        raise FileNotFoundError(
            f"{name} does not come with ethogram and ETHOGRAM_DATA is not set: "
            f"set it to the folder that holds {folder}/{name}, or pass path="
        )
    path = Path(root) / folder / name
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} is not there (ETHOGRAM_DATA={root}): "
            f"set ETHOGRAM_DATA to the folder that holds {folder}/{name}, or pass path="
        )
    return path


def read(path: str | os.PathLike[str], keys: Sequence[str]) -> list[np.ndarray]:
    """Arrays of the npz archive at `path`, in the order of `keys`.

    Raises
    ------
    FileNotFoundError : no such file.
    ValueError : it is no npz archive, it was cut short, an array is missing or holds
        pickled objects; the message names the file and the cause.
    """
    with open(path, "rb") as file:
        return _arrays(file, os.fspath(path), keys)


def _arrays(file: IO[bytes], name: str, keys: Sequence[str]) -> list[np.ndarray]:
    """Arrays of an open archive; `name` is what a message calls it."""
    try:
        if not zipfile.is_zipfile(file):
            raise zipfile.BadZipFile("not a zip archive, or its end is missing")
        declared = declared_bytes(file)
        require_room(f"arrays of {name}", (declared,), np.uint8, "it may be damaged")
        file.seek(0)
        with np.load(file, allow_pickle=False) as archive:
            missing = [key for key in keys if key not in archive.files]
            if missing:
                raise ValueError(f"no array {', '.join(missing)} in it")
            return [np.asarray(archive[key]) for key in keys]
    except (zipfile.BadZipFile, zlib.error, ValueError, OSError, EOFError) as cause:
        raise ValueError(f"{name} is not the npz archive expected ({cause}): fetch the file again") from cause
