"""Model objects, posteriors and checkpoints as files: arrays in an archive, structure as JSON, no pickles.

A file is a NumPy ``.npz`` archive with one member ``structure``, the JSON of a nested record, and one member an
array. Only dataclasses and named tuples of this package are rebuilt, and distributions of this package and of numpyro
from their arguments, so that reading a file runs no foreign code. Files are written to a temporary name and renamed: a
reader sees the old file or the new one.
"""

from __future__ import annotations

import dataclasses
import importlib
import io
import json
import os
import secrets
import struct
import zipfile
import zlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions
from numpyro.distributions import Distribution

__all__ = ["fingerprint", "read", "write"]

PACKAGE = "ethogram"

FORMAT = "ethogram 1"

UNREADABLE = (
    zipfile.BadZipFile,
    struct.error,
    zlib.error,
    AttributeError,
    EOFError,
    ImportError,
    LookupError,
    NotImplementedError,
    OSError,
    RecursionError,
    TypeError,
    ValueError,
)
"""What reading bytes that nobody meant may raise."""


def write(path: str | os.PathLike, content: Any) -> None:
    """Write nested dicts, lists, numbers, strings, arrays, keys and this package's objects to a file.

    Raises
    ------
    TypeError
        If something else is in it: it could not be read back.
    """
    arrays: dict[str, np.ndarray] = {}
    structure = json.dumps({"format": FORMAT, "content": _encode(content, arrays, own_only=True)})
    path = os.fspath(path)
    temporary = f"{path}.{os.getpid()}.{secrets.token_hex(4)}.part"
    file = open(temporary, "xb")
    try:
        with file:
            np.savez(file, structure=np.array(structure), **arrays)  # type: ignore[arg-type]
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def read(path: str | os.PathLike) -> Any:
    """What :func:`write` wrote; arrays come back as they were, on the host or the device.

    Device arrays in double precision come back in single where JAX has that switched off.

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
    except UNREADABLE as error:
        raise ValueError(f"{path} cannot be read: truncated, or not written by ethogram ({error})") from error


def fingerprint(*content: Any) -> str:
    """A short digest of structure and every bit of every array, wherever the arrays live.

    Raises
    ------
    TypeError
        If something is neither an array nor a record of arrays.
    """
    import hashlib

    arrays: dict[str, np.ndarray] = {}
    digest = hashlib.sha256(json.dumps(_encode(list(content), arrays, own_only=False)).encode())
    for name, array in arrays.items():
        digest.update(f"{name}{array.shape}{array.dtype}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
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
    if isinstance(value, Distribution):
        arguments = {argument: inner(getattr(value, argument)) for argument in type(value).arg_constraints}
        return {
            "distribution": f"{type(value).__module__}:{type(value).__qualname__}",
            "arguments": arguments,
        }
    name = f"{type(value).__module__}:{type(value).__qualname__}"
    own = not own_only or name.partition(".")[0] == PACKAGE
    if isinstance(value, tuple) and hasattr(value, "_fields") and own:
        return {"named": name, "fields": {field: inner(getattr(value, field)) for field in value._fields}}
    if dataclasses.is_dataclass(value) and not isinstance(value, type) and own:
        fields = [field.name for field in dataclasses.fields(value)]
        return {"object": name, "fields": {field: inner(getattr(value, field)) for field in fields}}
    if type(value) in (list, tuple):
        return {type(value).__name__: [inner(item) for item in value]}
    raise TypeError(
        f"{type(value).__name__} cannot be saved: it is neither an array nor an object of {PACKAGE}"
    )


def _decode(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    if not isinstance(value, dict):
        return value
    if "array" in value:
        array = arrays[value["array"]]
        return jnp.asarray(array) if value["device"] else array
    if "key" in value:
        return jax.random.wrap_key_data(jnp.asarray(_decode(value["key"], arrays)), impl=value["impl"])
    if "dict" in value:
        return {_decode(key, arrays): _decode(item, arrays) for key, item in value["dict"]}
    for kind, make in (("list", list), ("tuple", tuple)):
        if kind in value:
            return make(_decode(item, arrays) for item in value[kind])
    if "distribution" in value:
        arguments = {name: _decode(item, arrays) for name, item in value["arguments"].items()}
        return _find_distribution(value["distribution"])(**arguments)
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
    if module.partition(".")[0] != PACKAGE:
        raise ValueError(f"it names the foreign class {name}")
    found: Any = importlib.import_module(module)
    for part in qualified.split("."):
        found = getattr(found, part)
    named = isinstance(found, type) and issubclass(found, tuple) and hasattr(found, "_fields")
    if not isinstance(found, type) or not (named or dataclasses.is_dataclass(found)):
        raise ValueError(f"it names {name}, which is no record")
    if found.__module__.partition(".")[0] != PACKAGE:
        raise ValueError(f"it names the foreign class {name}")
    return found


def _find_distribution(name: str) -> Any:
    module, _, qualified = name.partition(":")
    package = module.partition(".")[0]
    if package not in (PACKAGE, "numpyro"):
        raise ValueError(f"it names the foreign distribution {name}")
    home = importlib.import_module(module) if package == PACKAGE else numpyro.distributions
    found = getattr(home, qualified)
    if not isinstance(found, type) or not issubclass(found, Distribution):
        raise ValueError(f"it names {name}, which is no distribution")
    return found
