"""Python that makes a model, and a fit, again."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax import Array
from numpyro import distributions
from numpyro.distributions import Distribution

from ethogram.inference import storage
from ethogram.models.held_warnings import held_warnings
from ethogram.models.model_object import DEFINED

__all__ = ["as_code", "call_as_code"]

IMPORTS = {
    "import re": "re.compile(",
    "import jax": "",
    "import numpy as np": "np.",
    "import numpyro.distributions as dist": "dist.",
    "import ethogram": "",
}
MOST_NUMBERS = 60
"""Numbers of an array that is written out."""


def call_as_code(
    key: Array,
    model: Any,
    data: Any,
    method: str,
    settings: Mapping[str, Any],
    reading: Sequence[str] = (),
    made: str = "",
) -> str:
    """The call of :func:`ethogram.fit`, with comments for what no short code makes.

    `reading` are lines that make the data, where these are known, and `made` one that makes a model of longer code.
    """
    given, lines = "query" if data is None else "model", [*reading]
    if data is not None and not reading:
        lines = [f"# data: the {type(data).__name__} that were fitted (fit.data of a saved fit)"]
    try:
        lines.append(made or f"{given} = {as_code(model)}")
    except ValueError:
        lines.append(f"# {given}: the {type(model).__name__} that was fitted (fit.model of a saved fit)")
    words = [_key_as_code(key), given, *(["data"] if data is not None else []), f"method={method!r}"]
    for name, value in settings.items():
        try:
            words.append(f"{name}={as_code(value)}")
        except ValueError:
            lines.append(f"# {name}: the {type(value).__name__} that was passed")
            words.append(f"{name}={name}")
    text = "\n".join([*lines, f"fit = ethogram.fit({', '.join(words)})"])
    own = sorted({*re.findall(r"\b([\w.]+)\.[A-Z]\w*\(", text)} - {"ethogram", "dist"})
    imports = [line for line, sign in IMPORTS.items() if sign in text]
    imports += [f"import {module}" for module in own]
    return "\n".join([*imports, "", text])


def as_code(value: Any) -> str:
    """An expression that makes the value: a number, a string, an array, a model or an emission.

    Raises
    ------
    ValueError : no short expression does.
    """
    import ethogram

    if isinstance(value, np.generic | np.ndarray | Array) and not np.ndim(value):
        value = np.asarray(value).item()
    if value is None or isinstance(value, bool | int | str):
        return repr(value)
    if isinstance(value, re.Pattern):
        return f"re.compile({value.pattern!r})"
    if isinstance(value, float):
        return repr(value) if np.isfinite(value) else f"float('{value}')"
    if isinstance(value, np.ndarray | Array) and value.size <= MOST_NUMBERS:
        return f"np.array({np.asarray(value).tolist()})" if np.isfinite(value).all() else _refuse(value)
    if type(value) in (list, tuple):
        ends = "[]" if isinstance(value, list) else ("(", ",)" if len(value) == 1 else ")")
        return f"{ends[0]}{', '.join(map(as_code, value))}{ends[1]}"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{as_code(key)}: {as_code(item)}' for key, item in value.items())}}}"
    if isinstance(value, Distribution):
        return _distribution_as_code(value)
    kind, home = type(value), type(value).__module__
    own = (
        kind.__mro__ if home.startswith("ethogram.") else [kind]
    )  # a public class may make one of its subclasses
    public = next((each for each in own if getattr(ethogram, each.__name__, None) is each), None)
    if public is not None:
        kind, home = public, "ethogram"
    elif f"{home}:{type(value).__qualname__}" not in DEFINED or home.startswith("ethogram."):
        return _refuse(value)
    parts = {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if field.init}
    for field in reversed([*parts]):  # those that the constructor would fill in
        fewer = {other: part for other, part in parts.items() if other != field}
        parts = fewer if _makes(kind, fewer, value) else parts
    place = "" if home == "__main__" else f"{home}."
    return f"{place}{kind.__name__}({', '.join(f'{field}={as_code(part)}' for field, part in parts.items())})"


def _distribution_as_code(value: Distribution) -> str:
    """A distribution of numpyro by its parameters; one that is made of others has none."""
    kind = type(value)
    parts = {name: getattr(value, name) for name in kind.arg_constraints}
    if getattr(distributions, kind.__name__, None) is not kind or not _makes(kind, parts, value):
        _refuse(value)
    return f"dist.{kind.__name__}({', '.join(f'{name}={as_code(part)}' for name, part in parts.items())})"


def _makes(kind: Any, parts: Mapping[str, Any], value: Any) -> bool:
    try:
        with held_warnings():
            return storage.fingerprint(kind(**parts)) == storage.fingerprint(value)
    except (TypeError, ValueError):
        return False


def _refuse(value: Any) -> str:
    raise ValueError(f"no short expression makes this {type(value).__name__}")


def _key_as_code(key: Array) -> str:
    words = np.asarray(jax.random.key_data(key)).tolist()
    if key.dtype == jax.random.key(0).dtype and words[0] == 0:
        return f"jax.random.key({words[1]})"
    return f"jax.random.wrap_key_data(np.array({words}, np.uint32))"
