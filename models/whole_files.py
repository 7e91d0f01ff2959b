"""Files that are written whole or not at all, and what speaks against writing one."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

__all__ = ["previous_of", "refuse_place", "replacing", "whole_file"]


@contextlib.contextmanager
def replacing(
    path: str | os.PathLike[str], mode: str = "wb", *, keep: bool = False, **settings: Any
) -> Iterator[IO[Any]]:
    """A file that takes the place of `path` when the block ends; after an error or Ctrl-C that is as it was.

    File and folder are synced: after a loss of power the old file or the new one is there, whole. A symbolic link
    stays one, and the new file has the permissions of the old one. Devices and pipes are written to.

    Parameters
    ----------
    path : of the file.
    mode : ``"wb"`` or ``"w"``; further settings are those of :func:`open`.
    keep : whether the file that is replaced stays at :func:`previous_of`; only for a single writer.

    Raises
    ------
    OSError : the file cannot be written; names `path`.
    """
    place = os.path.realpath(os.fsdecode(path))
    if not os.path.basename(path):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    if os.path.exists(place) and not os.path.isfile(place):
        with open(place, mode, **settings) as file:
            yield file
        return
    folder, name = os.path.split(place)
    temporary = os.path.join(folder, f".{name if keep else secrets.token_hex(8)}.part")
    try:
        before = stat.S_IMODE(os.stat(place).st_mode) if os.path.exists(place) else None
        opener = None if before is None else lambda name, flags: os.open(name, flags, before & 0o777)
        with open(temporary, mode if keep else mode.replace("w", "x"), opener=opener, **settings) as file:
            if before is not None:
                with contextlib.suppress(OSError):  # some network folders have no permissions
                    os.chmod(temporary, before)
            yield file
            file.flush()
            os.fsync(file.fileno())
        if keep and before is not None:
            _keep(place)
        os.replace(temporary, place)
        _sync_folder(folder)
    except OSError as error:
        if error.errno is None or error.filename not in (None, temporary):
            raise
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error
    finally:
        with contextlib.suppress(OSError):  # it is gone where it was renamed
            os.unlink(temporary)


def previous_of(path: str | os.PathLike[str]) -> str:
    """Where the file before the newest one is kept."""
    return f"{os.path.realpath(os.fsdecode(path))}.previous"


def _keep(place: str) -> None:
    """Give a file a second name; where that cannot be, such as on file systems without links, it has none."""
    with contextlib.suppress(OSError):
        os.unlink(previous_of(place))
    with contextlib.suppress(OSError):
        os.link(place, previous_of(place))


def _sync_folder(folder: str) -> None:
    """Make a renaming last, where the system syncs folders."""
    with contextlib.suppress(PermissionError):  # Windows opens none
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOTSUP):
                raise
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A temporary path, for libraries that open files themselves; it replaces `path` when the block ends."""
    with tempfile.TemporaryDirectory(prefix=".draft-", dir=path.parent) as folder:
        draft = Path(folder) / path.name
        yield draft
        os.replace(draft, path)


def refuse_place(path: str | os.PathLike[str]) -> None:
    """Raise OSError, with the reason, where a file cannot be written or replaced."""
    name = os.fspath(path)
    if not os.path.basename(name) or "\0" in name:
        fault = "has a null character" if "\0" in name else "names a folder" if name else "is empty"
        raise OSError(f"{name!r} is no path of a file: it {fault}")
    place = os.path.realpath(path)
    folder = os.path.dirname(place)
    if not os.path.isdir(folder):
        raise OSError(f"{name} cannot be written: the folder {folder} does not exist")
    try:
        mode = os.stat(place).st_mode
    except FileNotFoundError:
        mode = None
    except OSError as error:  # such as a name that is too long
        raise OSError(f"{name} cannot be written: {error.strerror}") from error
    if mode is not None:
        if not stat.S_ISREG(mode):
            kind = "a folder" if stat.S_ISDIR(mode) else "a device or a pipe"
            raise OSError(f"{name} cannot be written: it is {kind}")
        if not mode & 0o222 or not os.access(place, os.W_OK):
            raise OSError(f"{name} cannot be written: it is read-only")
    try:  # permissions do not tell of file systems that are read-only
        probe = os.path.join(folder, f".{secrets.token_hex(8)}.part")
        os.close(os.open(probe, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        os.unlink(probe)
    except OSError as error:
        raise OSError(f"{name} cannot be written to the folder {folder}: {error.strerror}") from error
