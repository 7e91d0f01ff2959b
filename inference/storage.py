"""Model objects, posteriors and checkpoints as files: arrays in an archive, structure as JSON, no pickles.

A file is a NumPy ``.npz`` archive with a member ``structure``, the JSON of a nested record, and one member per array.
Only the classes of `saved_classes` are rebuilt, so that reading a file runs no foreign code. Files are written whole or
not at all, and the checksums of the archive find damage.
"""

from __future__ import annotations

import dataclasses
import io
import json
import os
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import Distribution

from ethogram.inference.saved_classes import PACKAGE, find_class, find_distribution, tag_of
from ethogram.models.held_warnings import held_warnings
from ethogram.models.memory_bound import declared_bytes, require_room
from ethogram.models.whole_files import replacing

__all__ = ["fingerprint", "pack", "read", "require_folder", "unpack", "write"]

FORMAT = "ethogram 1"
LATER = frozenset({"dwell", "log_odds_scale"})
"""Fields with a default that files of earlier versions do not have."""


def write(path: str | os.PathLike, content: Any, *, keep: bool = False) -> None:
    """Write nested dicts, lists, numbers, strings, arrays, keys and this package's objects to a file.

    With `keep` the file that it replaces stays beside it.

    A TypeError if something else is in it: it could not be read back; a FileNotFoundError if the folder is missing.
    """
    require_folder(path)
    members = _members(content)
    with replacing(path, keep=keep) as file:
        np.savez(file, **members)


def pack(content: Any) -> bytes:
    """The bytes of the file that :func:`write` writes."""
    file = io.BytesIO()
    np.savez(file, **_members(content))
    return file.getvalue()


def _members(content: Any) -> dict[str, Any]:
    """Members of the archive by name."""
    arrays: dict[str, np.ndarray] = {}
    structure = json.dumps({"format": FORMAT, "content": _encode(content, arrays, own_only=True)})
    return {"structure": np.array(structure), **arrays}


def require_folder(path: str | os.PathLike) -> None:
    """Raise FileNotFoundError unless the folder that a file is to be written to exists; TypeError without a path."""
    if not isinstance(path, str | bytes | os.PathLike):
        raise TypeError(f"path is {type(path).__name__}: give that of a file")
    if "\0" in os.fsdecode(path):
        raise ValueError(f"path is {path!r}, which has a null character: give that of a file")
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise FileNotFoundError(
            f"{folder} is no folder: make it before {os.path.basename(path)} is written to it"
        )


def read(path: str | os.PathLike) -> Any:
    """Read what :func:`write` wrote; arrays return to the host or the device, wherever they were.

    Device arrays in double precision come back in single where JAX has that switched off. Objects are built by their
    constructors, with all checks.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If the file is damaged or was not written by :func:`write`, or a constructor raises an error; the message names
        the file and the place in it.
    """
    path = os.fspath(path)
    if os.path.isdir(path):
        raise ValueError(f"{path} cannot be read: it is a folder, expected a file written by ethogram")
    with open(path, "rb") as file:
        return unpack(file.read(), path)


def unpack(raw: bytes, path: str) -> Any:
    """What :func:`pack` packed; `path` names it in errors."""
    foreign = f"{path} cannot be read: truncated, or not written by ethogram"
    try:
        declared = declared_bytes(io.BytesIO(raw))
    except Exception as error:  # arbitrary bytes may raise any
        raise ValueError(f"{foreign} ({error})") from error
    require_room(f"arrays of {path}", (declared,), np.uint8, "it may be damaged")
    try:
        with np.load(io.BytesIO(raw), allow_pickle=False) as archive:
            record = json.loads(str(archive["structure"]))
            arrays = {name: archive[name] for name in archive.files if name != "structure"}
        form, content = record["format"], record["content"]
    except Exception as error:
        raise ValueError(f"{foreign} ({error})") from error
    try:
        if form != FORMAT:
            raise ValueError(f"its format is {form!r}, not {FORMAT!r}")
        with held_warnings():  # constructors warned when the object was first built
            return _decode(content, arrays, "content")
    except Exception as error:
        raise ValueError(f"{path} cannot be read: {error}") from error


def fingerprint(*content: Any) -> str:
    """A short digest of structure and every bit of every array; a TypeError for what is no record of arrays."""
    import hashlib

    arrays: dict[str, np.ndarray] = {}
    digest = hashlib.sha256(json.dumps(_encode(list(content), arrays, own_only=False)).encode())
    for name, array in arrays.items():
        digest.update(f"{name}{array.shape}{array.dtype}".encode())
        digest.update(np.ascontiguousarray(array).view(np.uint8).data)
    return digest.hexdigest()[:32]


def _encode(value: Any, arrays: dict[str, np.ndarray], own_only: bool) -> Any:
    """JSON of a value, its arrays put into `arrays`; `own_only` refuses what could not be read back."""

    def inner(item):
        return _encode(item, arrays, own_only)

    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        data = inner(np.asarray(jax.random.key_data(value)))
        return {"key": data, "impl": str(jax.random.key_impl(value))}
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        name = f"array_{len(arrays)}"
        arrays[name] = np.asarray(value)
        return {"array": name, "device": own_only and isinstance(value, jax.Array)}
    if isinstance(value, dict):
        return {"dict": [[inner(key), inner(item)] for key, item in value.items()]}
    tag = tag_of(type(value)) or (None if own_only else type(value).__qualname__)
    if isinstance(value, Distribution) and tag:
        arguments = {argument: inner(getattr(value, argument)) for argument in type(value).arg_constraints}
        return {"distribution": tag, "arguments": arguments}
    named = isinstance(value, tuple) and hasattr(value, "_fields")
    if (named or (dataclasses.is_dataclass(value) and not isinstance(value, type))) and tag:
        names = value._fields if named else [field.name for field in dataclasses.fields(value)]
        fields = {name: inner(getattr(value, name)) for name in names}
        return {"named" if named else "object": tag, "fields": fields}
    if type(value) in (list, tuple):
        return {type(value).__name__: [inner(item) for item in value]}
    raise TypeError(
        f"{type(value).__name__} cannot be saved: it is neither an array nor an object of {PACKAGE}, nor a model "
        "object of your own"
    )


def _decode(value: Any, arrays: dict[str, np.ndarray], place: str) -> Any:
    """The value of a record; objects by their constructors."""

    def inner(item, name):
        return _decode(item, arrays, f"{place}{name}")

    def fields(items):
        return {name: inner(item, f".{name}") for name, item in items.items()}

    if not isinstance(value, dict):
        return value
    if "array" in value:
        array = arrays[value["array"]]
        return jax.device_put(array) if value["device"] else array
    if "dict" in value:
        pairs = [(inner(key, " (a key)"), item) for key, item in value["dict"]]
        return {key: inner(item, f"[{key!r}]") for key, item in pairs}
    for kind, make in (("list", list), ("tuple", tuple)):
        if kind in value:
            return make(inner(item, f"[{number}]") for number, item in enumerate(value[kind]))
    if "key" in value:
        data = jax.device_put(inner(value["key"], ""))
        return _built(place, "a key", lambda: jax.random.wrap_key_data(data, impl=value["impl"]))
    if "distribution" in value:
        cls: Any = find_distribution(value["distribution"])
        return _built(place, cls.__name__, lambda: cls(**fields(value["arguments"]), validate_args=True))
    for kind in ("named", "object"):
        if kind in value:
            return _object(find_class(value[kind]), fields(value["fields"]), place)
    raise ValueError(f"{place} has an unknown record type: {', '.join(value)}")


def _object(cls: Any, given: dict[str, Any], place: str) -> Any:
    """A named tuple of all its fields, or a model object of those that its constructor takes."""
    names = getattr(cls, "_fields", None) or [field.name for field in dataclasses.fields(cls)]
    if not {*names} - LATER <= {*given} <= {*names}:
        raise ValueError(f"{place} has the fields {', '.join(given)}, expected {', '.join(names)}")
    if not hasattr(cls, "_fields"):
        taken = {field.name for field in dataclasses.fields(cls) if field.init}
        given = {name: value for name, value in given.items() if name in taken}
    return _built(place, cls.__name__, lambda: cls(**given))


def _built(place: str, name: str, make: Callable[[], Any]) -> Any:
    """What a constructor makes; a ValueError that names the place in the file where it raises one."""
    try:
        return make()
    except Exception as error:
        raise ValueError(f"{place} is no valid {name}: {error}") from error
