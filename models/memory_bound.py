"""One bound on the memory that what a caller declares may take, asked before any of it is allocated."""

from __future__ import annotations

import contextlib
import contextvars
import math
import zipfile
from collections.abc import Iterator, Sequence
from typing import IO, Any

import jax.numpy as jnp
import numpy as np

from ethogram.models.arguments import require_integer

__all__ = ["declared_bytes", "memory_bound", "most_bytes_now", "require_room"]

_MOST_BYTES = contextvars.ContextVar("most_bytes", default=2**31)


@contextlib.contextmanager
def memory_bound(most_bytes: int) -> Iterator[None]:
    """A block in which arrays, files and tables of up to `most_bytes` are made and read; outside it is 2 GiB.

    A few characters can declare more than any machine has: a number of states, the header of an archive, a node with
    thirty parents. Where an argument or a file declares more than the bound, a ValueError says what, and how much it
    would take, before any memory is taken. The bound is that of the thread; processes that it starts have their own.

    >>> with memory_bound(most_bytes=2**34):
    ...     require_room("transition", (30_000, 30_000), float, "give fewer states")
    """
    token = _MOST_BYTES.set(require_integer("most_bytes", most_bytes, 1))
    try:
        yield
    finally:
        _MOST_BYTES.reset(token)


def most_bytes_now() -> int:
    """The bound that holds here."""
    return _MOST_BYTES.get()


def declared_bytes(file: IO[bytes]) -> int:
    """Bytes of the arrays of an npz archive by its directory, or by their own headers where these say more."""
    with zipfile.ZipFile(file) as archive:
        return sum(max(each.file_size, _bytes_of_header(archive, each)) for each in archive.infolist())


def _bytes_of_header(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> int:
    with archive.open(member) as file:
        first = np.lib.format.read_magic(file) == (1, 0)
        read = np.lib.format.read_array_header_1_0 if first else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(file)
    return math.prod(shape) * dtype.itemsize


def require_room(name: str, shape: Sequence[int], dtype: Any, fix: str, copies: int = 1) -> None:
    """Raise ValueError where an array of this shape, or so many of it, would take more than the bound."""
    size, most = copies * math.prod(map(int, shape)) * jnp.dtype(dtype).itemsize, _MOST_BYTES.get()
    if size > most:
        axes = ", ".join(str(axis) if axis < 2**64 else "more than 2**64" for axis in map(int, shape))
        raise ValueError(
            f"{name} would have shape ({axes}{',' * (len(shape) == 1)}) and take {min(size, 2**999) / 2**30:.3g} GiB, "
            f"more than {most / 2**30:.3g}: {fix}; ethogram.memory_bound(most_bytes=...) raises the bound"
        )
