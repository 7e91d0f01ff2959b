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
from collections.abc import Iterable, Iterator
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
    place = Path(os.path.abspath(path))
    if not place.parent.is_dir():
        raise FileNotFoundError(f"{place.parent} is no folder: make it before {place.name} is written to it")
    if os.path.lexists(place) and not (place / TABLE).is_file():
        raise ValueError(f"path is {path}, which is something else than trajectories: choose another name")
    draft, former = (place.with_name(f".{secrets.token_hex(8)}.{end}") for end in ("part", "old"))
    draft.mkdir()
    try:
        _write(draft, parts, num_steps)
        if place.exists():
            place.rename(former)
        draft.rename(place)
    finally:
        if former.exists() and not place.exists():
            former.rename(place)
        for rest in (draft, former):
            shutil.rmtree(rest, ignore_errors=True)


def _write(folder: Path, parts: Iterable[Any], num_steps: int | None) -> None:
    first: Any = None
    shapes: dict[str, list[int]] = {}
    with contextlib.ExitStack() as stack:
        files: dict[str, IO[bytes]] = {}
        for number, part in enumerate(parts):
            if not hasattr(part, "observed"):
                raise TypeError(f"parts[{number}] is {type(part).__name__}: give Trajectories")
            check(part)
            arrays = {
                name: np.asarray(array) for name in ARRAY_FIELDS if (array := getattr(part, name)) is not None
            }
            if first is None:
                first, width = part, arrays["observed"].shape[1] if num_steps is None else num_steps
                require_integer("num_steps", width, 1)
                dtypes = {name: array.dtype for name, array in arrays.items()}
                files = {name: stack.enter_context(open(folder / f"{name}.npy", "xb")) for name in arrays}
                shapes = {name: [0, *array.shape[1:]] for name, array in arrays.items()}
                for name, file in files.items():
                    shapes[name][1:2] = [width] if name in PADDING else []
                    _write_header(file, dtypes[name], shapes[name])
            _require_alike(number, part, first, width)
            for name, array in arrays.items():
                for rows in _rows(array):
                    files[name].write(
                        _padded(name, array[rows], width).astype(dtypes[name], casting="safe").tobytes()
                    )
                shapes[name][0] += len(array)
        if first is None:
            raise ValueError("parts is empty: give at least one")
        for name, file in files.items():
            file.seek(0)
            _write_header(file, dtypes[name], shapes[name])
            file.flush()
            os.fsync(file.fileno())
    metadata = dataclasses.asdict(first.metadata)
    with open(folder / TABLE, "x", encoding="utf-8") as table:
        json.dump({"format": FORMAT, "arrays": shapes, "metadata": metadata}, table, indent=1)
        table.flush()
        os.fsync(table.fileno())


def _write_header(file: IO[bytes], dtype: np.dtype, shape: list[int]) -> None:
    """The header of a ``.npy`` file, which has room for any number of rows."""
    described = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": tuple(shape)}
    np.lib.format.write_array_header_1_0(file, described)


def _rows(array: np.ndarray) -> Iterator[slice]:
    size = max(IN_MEMORY // max(array[:1].nbytes, 1), 1)
    return (slice(start, start + size) for start in range(0, len(array), size))


def _padded(name: str, array: np.ndarray, width: int) -> np.ndarray:
    if name not in PADDING or array.shape[1] == width:
        return array
    fill = np.nan if name == "times" and array.dtype.kind == "f" else PADDING[name]
    sides = [(0, 0), (0, width - array.shape[1]), (0, 0)][: array.ndim]
    return np.pad(array, sides, constant_values=fill)


def _require_alike(number: int, part: Any, first: Any, width: int) -> None:
    """Raise ValueError unless a part has the arrays, dtypes, names and at most the steps of the first."""
    if part.observed.shape[1] > width:
        raise ValueError(
            f"parts[{number}] has {part.observed.shape[1]} steps, more than {width}: give num_steps="
        )
    names = (*(STEP_LABELS | SEQUENCE_LABELS).values(), "name")
    for what, wanted in (
        form(first) | {f"metadata.{name}": getattr(first.metadata, name) for name in names}
    ).items():
        field = what.removeprefix("metadata.")
        found = form(part)[what] if what in form(part) else getattr(part.metadata, field)
        if found != wanted:
            raise ValueError(
                f"parts[{number}].{what} is {found!r}, that of parts[0] is {wanted!r}: read them alike, with metadata= "
                "of all names"
            )
    for name in ARRAY_FIELDS:
        found, wanted = (getattr(getattr(each, name), "dtype", None) for each in (part, first))
        if found != wanted:
            raise ValueError(
                f"parts[{number}].{name} has dtype {found}, that of parts[0] {wanted}: read them alike"
            )


def read_folder(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Fields of the trajectories in a folder, those of steps memory-mapped; shapes are checked, values are not."""
    place = Path(path)
    if not place.exists():
        raise FileNotFoundError(f"{path} does not exist")
    if not (place / TABLE).is_file():
        raise ValueError(
            f"{path} has no {TABLE}: it is no folder of trajectories, or was not written to the end; call save"
        )
    try:
        record = json.loads((place / TABLE).read_text(encoding="utf-8"))
        came, shapes, metadata = record["format"], record["arrays"], record["metadata"]
        if came != FORMAT:
            raise ValueError(f"its format is {came!r}, expected {FORMAT!r}")
        fields: dict[str, Any] = dict.fromkeys(ARRAY_FIELDS)
        for name, shape in shapes.items():
            mode = "r" if name in PADDING else None
            fields[name] = np.load(place / f"{name}.npy", mmap_mode=mode, allow_pickle=False)  # type: ignore[arg-type]
            if name not in ARRAY_FIELDS or list(fields[name].shape) != shape:
                raise ValueError(f"{name}.npy has shape {fields[name].shape}, expected {shape}")
        return fields | {"metadata": Metadata(**metadata)}
    except (ValueError, TypeError, KeyError, OSError, AttributeError) as error:
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
