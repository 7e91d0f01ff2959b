"""Trajectories in a folder of NumPy files, of which a model reads what it needs: data may be larger than memory."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

import numpy as np

from ethogram.models.arguments import require_integer
from ethogram.models.data.checks import check
from ethogram.models.data.concatenation import PADDING, form
from ethogram.models.data.metadata import ARRAY_FIELDS, SEQUENCE_LABELS, STEP_LABELS, Metadata

__all__ = ["disk_array", "read_folder", "write_folder"]

FORMAT = "ethogram trajectories 1"
TABLE = "trajectories.json"
"""The file of names, shapes and metadata, written last."""

IN_MEMORY = 2**26
"""Bytes of an array of results from which on it is a temporary file."""


def write_folder(path: str | os.PathLike[str], parts: Iterable[Any], num_steps: int | None) -> None:
    """Write trajectories, part by part, to a folder that takes the place of `path` once it is whole."""
    place = Path(os.path.realpath(path))
    if not place.parent.is_dir():
        raise FileNotFoundError(f"{place.parent} is no folder: make it before {place.name} is written to it")
    if os.path.lexists(place) and not (place / TABLE).is_file():
        raise ValueError(f"path is {path}, which is something else than trajectories: choose another name")
    ours = {TABLE, *(f"{name}.npy" for name in ARRAY_FIELDS)}
    if place.is_dir() and (others := {name for name in os.listdir(place) if name[0] != "."} - ours):
        raise ValueError(f"path is {path}, which also holds {min(others)}: move it, or choose another name")
    draft, former = (place.with_name(f".{secrets.token_hex(8)}.{end}") for end in ("part", "old"))
    try:
        draft.mkdir()
    except OSError as error:  # such as a folder that is read-only
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error
    try:
        with contextlib.ExitStack() as files:
            _write(draft, parts, num_steps, files)
        if place.exists():
            place.rename(former)
        draft.rename(place)
    finally:
        if former.exists() and not place.exists():
            former.rename(place)
        for rest in (draft, former):
            shutil.rmtree(rest, ignore_errors=True)


def _write(folder: Path, parts: Iterable[Any], width: int | None, stack: contextlib.ExitStack) -> None:
    """Append the arrays of parts to files in a folder, and say in the end how many rows these have."""
    first: dict[str, Any] = {}
    files: dict[str, IO[bytes]] = {}
    shapes: dict[str, list[int]] = {}
    for number, part in enumerate(parts):
        check(part)
        arrays = {
            name: np.asarray(getattr(part, name)) for name in ARRAY_FIELDS if getattr(part, name) is not None
        }
        layout = _layout(part, arrays)
        if not first:
            width = require_integer("num_steps", arrays["observed"].shape[1] if width is None else width, 1)
            first, metadata, dtypes = (
                layout,
                part.metadata,
                {name: array.dtype for name, array in arrays.items()},
            )
            shapes = {
                name: [0, *[width] * (name in PADDING), *array.shape[2:]] for name, array in arrays.items()
            }
            files = {name: stack.enter_context(open(folder / f"{name}.npy", "xb")) for name in arrays}
            for name, file in files.items():
                _write_header(file, dtypes[name], shapes[name])
        for what, wanted in first.items():
            if (found := layout[what]) != wanted:
                raise ValueError(
                    f"parts[{number}].{what} is {found!r}, that of parts[0] is {wanted!r}: read them alike, with "
                    "metadata= of all names"
                )
        assert width is not None
        if len(arrays["observed"][0]) > width:
            raise ValueError(
                f"parts[{number}] has {len(arrays['observed'][0])} steps, more than {width}: give num_steps="
            )
        for name, array in arrays.items():
            sides = (
                [(0, 0), (0, width - array.shape[1]), (0, 0)][: array.ndim] if name in PADDING else [(0, 0)]
            )
            fill = np.nan if name == "times" and array.dtype.kind == "f" else PADDING.get(name, 0)
            wide = np.pad(array, sides, constant_values=fill) if np.any(sides) else array
            np.ascontiguousarray(wide).tofile(files[name])
            shapes[name][0] += len(array)
    if not first:
        raise ValueError("parts is empty: give at least one")
    for name, file in files.items():
        file.seek(0)
        _write_header(file, dtypes[name], shapes[name])
        file.flush()
        os.fsync(file.fileno())
    table = stack.enter_context(open(folder / TABLE, "x", encoding="utf-8"))
    json.dump({"format": FORMAT, "arrays": shapes, "metadata": dataclasses.asdict(metadata)}, table, indent=1)
    table.flush()
    os.fsync(table.fileno())


def _write_header(file: IO[bytes], dtype: np.dtype, shape: list[int]) -> None:
    """The header of a ``.npy`` file, which has room for any number of rows."""
    described = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": tuple(shape)}
    np.lib.format.write_array_header_1_0(file, described)


def _layout(part: Any, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """What the parts of a folder have in common."""
    names = (*(STEP_LABELS | SEQUENCE_LABELS).values(), "covariate_levels", "name")
    dtypes = {f"{name}.dtype": str(array.dtype) for name, array in arrays.items()}
    return form(part) | {f"metadata.{name}": getattr(part.metadata, name) for name in names} | dtypes


def read_folder(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Fields of the trajectories in a folder, those of steps memory-mapped."""
    place = Path(path)
    if not place.exists():
        raise FileNotFoundError(f"{path} does not exist")
    if not (place / TABLE).is_file():
        raise ValueError(
            f"{path} has no {TABLE}: it is no folder of trajectories, or was not written to the end"
        )
    try:
        record = json.loads((place / TABLE).read_text(encoding="utf-8"))
        if record["format"] != FORMAT:
            raise ValueError(f"its format is {record['format']!r}, expected {FORMAT!r}")
        fields: dict[str, Any] = dict.fromkeys(ARRAY_FIELDS)
        for name, shape in record["arrays"].items():
            mode: Any = "r" if name in PADDING else None
            fields[name] = np.load(place / f"{name}.npy", mmap_mode=mode, allow_pickle=False)
            if list(fields[name].shape) != shape:
                raise ValueError(f"{name}.npy has shape {fields[name].shape}, expected {shape}")
        return fields | {"metadata": Metadata(**record["metadata"])}
    except (ValueError, TypeError, KeyError, OSError) as error:
        raise ValueError(f"{path} cannot be read as trajectories: {error}") from error


def disk_array(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """An array of zeros; a large one is in a temporary file without a name, which goes when the array does."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    if size < IN_MEMORY:
        return np.zeros(shape, dtype)
    with tempfile.TemporaryFile() as file:
        if hasattr(os, "posix_fallocate"):  # a full disk is an error here, and would end the process later
            os.posix_fallocate(file.fileno(), 0, size)
        return np.memmap(file, dtype, "w+", shape=shape)
