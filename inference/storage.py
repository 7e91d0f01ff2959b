"""Model objects, posteriors and checkpoints as files: arrays in an archive, structure as JSON, no pickles.

A file is a NumPy ``.npz`` archive with one member ``structure``, the JSON of a nested record, and one member an
array. Only dataclasses and named tuples of this package are rebuilt, so that reading a file runs no foreign
code. Files are written to a temporary name and renamed: a reader sees the old file or the new one.
"""

from __future__ import annotations

import dataclasses
import importlib
import io
import json
import os
import tempfile
import zipfile
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

__all__ = ["fingerprint", "read", "write"]

FORMAT = "ethogram 1"


def write(path: str | os.PathLike, content: Any) -> None:
    """Write nested dicts, lists, numbers, strings, arrays, keys and this package's objects to a file."""
    arrays: dict[str, np.ndarray] = {}
    structure = json.dumps({"format": FORMAT, "content": _encode(content, arrays)})
    path = os.fspath(path)
    folder = os.path.dirname(os.path.abspath(path))
    handle, temporary = tempfile.mkstemp(dir=folder, prefix=os.path.basename(path), suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez(file, structure=np.array(structure), **arrays)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def read(path: str | os.PathLike) -> Any:
    """What :func:`write` wrote; arrays come back as they were, on the host or the device.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If the file is truncated or was not written by :func:`write`.
    """
    path = os.fspath(path)
    with open(path, "rb") as file:
        raw = file.read()
    try:
        with np.load(io.BytesIO(raw), allow_pickle=False) as archive:
            record = json.loads(str(archive["structure"]))
            arrays = {name: archive[name] for name in archive.files if name != "structure"}
        if record["format"] != FORMAT:
            raise ValueError(f"its format is {record['format']!r}, not {FORMAT!r}")
        return _decode(record["content"], arrays)
    except (zipfile.BadZipFile, KeyError, EOFError, OSError, ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} cannot be read: truncated, or not written by ethogram ({error})") from error


def fingerprint(*content: Any) -> str:
    """A short digest of structure and every bit of every array."""
    import hashlib

    arrays: dict[str, np.ndarray] = {}
    digest = hashlib.sha256(json.dumps(_encode(list(content), arrays)).encode())
    for name, array in arrays.items():
        digest.update(f"{name}{array.shape}{array.dtype}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:32]


def _encode(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        data = _encode(np.asarray(jax.random.key_data(value)), arrays)
        return {"key": data, "impl": str(jax.random.key_impl(value))}
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        name = f"array_{len(arrays)}"
        arrays[name] = np.asarray(value)
        return {"array": name, "device": isinstance(value, jax.Array)}
    if isinstance(value, dict):
        return {"dict": [[key, _encode(item, arrays)] for key, item in value.items()]}
    if hasattr(value, "_fields"):
        items = {name: _encode(getattr(value, name), arrays) for name in value._fields}
        return {"named": _class_name(value), "fields": items}
    if dataclasses.is_dataclass(value):
        fields = {
            field.name: _encode(getattr(value, field.name), arrays) for field in dataclasses.fields(value)
        }
        return {"object": _class_name(value), "fields": fields}
    if isinstance(value, list | tuple):
        return {type(value).__name__: [_encode(item, arrays) for item in value]}
    raise TypeError(
        f"{type(value).__name__} cannot be saved: it is neither an array nor an object of ethogram"
    )


def _class_name(value: Any) -> str:
    return f"{type(value).__module__}:{type(value).__qualname__}"


def _decode(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    if not isinstance(value, dict):
        return value
    if "array" in value:
        array = arrays[value["array"]]
        return jnp.asarray(array) if value["device"] else array
    if "key" in value:
        return jax.random.wrap_key_data(jnp.asarray(_decode(value["key"], arrays)), impl=value["impl"])
    if "dict" in value:
        return {key: _decode(item, arrays) for key, item in value["dict"]}
    for kind, make in (("list", list), ("tuple", tuple)):
        if kind in value:
            return make(_decode(item, arrays) for item in value[kind])
    cls = _find_class(value.get("named") or value["object"])
    fields = {name: _decode(item, arrays) for name, item in value["fields"].items()}
    if "named" in value:
        return cls(**fields)
    made = object.__new__(cls)
    for name, item in fields.items():
        object.__setattr__(made, name, item)
    return made


def _find_class(name: str) -> Any:
    module, _, qualified = name.partition(":")
    if module.split(".")[0] != "ethogram":
        raise ValueError(f"it names the foreign class {name}")
    found: Any = importlib.import_module(module)
    for part in qualified.split("."):
        found = getattr(found, part)
    if not isinstance(found, type) or not (dataclasses.is_dataclass(found) or hasattr(found, "_fields")):
        raise ValueError(f"it names {name}, which is no record")
    return found
