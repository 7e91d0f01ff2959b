"""Model objects, posteriors and checkpoints as files: arrays in an archive, structure as JSON, no pickles.

A file is a NumPy ``.npz`` archive with a member ``structure``, the JSON of a nested record, and one member per array.
Only the classes of `saved_classes`, and distributions of this package and of numpyro, are rebuilt, so that reading a
file runs no foreign code. Classes are recorded by public tags, ``ethogram.RoleHMM``, and may move. Writing is atomic:
to a temporary name, then renamed.
"""

from __future__ import annotations

import dataclasses
import io
import json
import os
import secrets
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import Distribution

from ethogram.inference.saved_classes import PACKAGE, find_class, find_distribution, tag_of

__all__ = ["fingerprint", "read", "write"]

FORMAT = "ethogram 1"


def write(path: str | os.PathLike, content: Any) -> None:
    """Write nested dicts, lists, numbers, strings, arrays, keys and this package's objects to a file.

    A TypeError if something else is in it: it could not be read back.
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
    """Read what :func:`write` wrote; arrays return to the host or the device, wherever they were.

    Device arrays in double precision come back in single where JAX has that switched off. A ValueError if the file is
    truncated or was not written by :func:`write`.
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
    except Exception as error:  # arbitrary bytes may raise any
        raise ValueError(f"{path} cannot be read: truncated, or not written by ethogram ({error})") from error


def fingerprint(*content: Any) -> str:
    """A short digest of structure and every bit of every array; a TypeError for what is no record of arrays."""
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
        f"{type(value).__name__} cannot be saved: it is neither an array nor an object of {PACKAGE}"
    )


def _decode(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    def inner(items):
        return {name: _decode(item, arrays) for name, item in items.items()}

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
        return find_distribution(value["distribution"])(**inner(value["arguments"]))
    if "named" in value:
        return find_class(value["named"])(**inner(value["fields"]))
    made: Any = object.__new__(find_class(value["object"]))
    for name, item in inner(value["fields"]).items():
        object.__setattr__(made, name, item)
    return made
