"""How objects that hold arrays print: in at most 20 lines, arrays by dtype, shape and range."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import jax
import numpy as np

__all__ = ["describe_record", "describe_value", "few_names", "printed_as", "short_repr", "shortened"]

T = TypeVar("T")

MOST_LINES = 20
WIDTH = 120
"""Characters of a line."""
MOST_INNER = 80
"""Characters of a record or a text inside another one."""
FEW = 6
"""Numbers or names that are written out."""
MISSING = dataclasses.MISSING


def printed_as(describe: Callable[[Any], str], rows: str = "") -> Callable[[type[T]], type[T]]:
    """Class decorator: instances print as `describe` says, in 20 lines at most, and by their fields where it fails.

    A named tuple is neither added nor repeated, which would make a tuple of arrays without a word. One whose ``len``
    counts rows has no places either; `rows` says how rows are chosen and joined.
    """

    def decorate(cls: type[T]) -> type[T]:
        def refuse(self: Any, *_: Any) -> Any:
            fix = f"{rows}compute with fields, such as .{self._fields[0]}"
            raise TypeError(f"{cls.__name__} is a record, neither a list nor a number: {fix}")

        def text(self: Any) -> str:
            try:
                return shortened(describe(self))
            except (AttributeError, TypeError, ValueError):  # fields are traced, or placeholders of JAX
                return shortened(describe_record(self))

        cls.__repr__ = text  # type: ignore[method-assign]
        if issubclass(cls, tuple):
            operators = ("__add__", "__radd__", "__mul__", "__rmul__", *(("__getitem__",) if rows else ()))
            for name in operators:
                setattr(cls, name, refuse)
        if rows:  # that of NamedTuple counts fields by len
            cls._make = classmethod(lambda own, values: own(*values))  # type: ignore[attr-defined]
        return cls

    return decorate


def shortened(text: str) -> str:
    """The first 20 lines of a text, wrapped at 120 characters, with a note where lines were left out."""
    lines = [
        part for line in text.splitlines() for part in textwrap.wrap(line, WIDTH, subsequent_indent="    ")
    ]
    if len(lines) > MOST_LINES:
        lines[MOST_LINES - 1 :] = [f"  ... {len(lines) - MOST_LINES + 1} more lines"]
    return "\n".join(lines)


def describe_record(record: Any) -> str:
    """A named tuple or dataclass: its class, and one row per field whose value is not the default.

    One line ``Name(field=value, ...)`` where that fits and no field is large.
    """
    name, fields = type(record).__name__, _fields(record)
    words = {field: describe_value(value) for field, value in fields.items()}
    line = f"{name}({', '.join(f'{field}={text}' for field, text in words.items())})"
    large = [
        each for each in fields.values() if isinstance(each, Mapping) or (_is_array(each) and each.size > FEW)
    ]
    if len(line) <= WIDTH and not large:
        return line
    width, rows = max(map(len, words), default=0), [name]
    inner = {field: value for field, value in fields.items() if isinstance(value, Mapping)}
    expand = len(words) + sum(map(len, inner.values())) < MOST_LINES
    for field, text in words.items():
        below = inner.get(field, {}) if expand else {}
        rows.append(f"  {field:{width}}  {f'{len(below)}:' if below else text}")
        keys = max((len(str(key)) for key in below), default=0)
        rows += [f"    {key!s:{keys}}  {describe_value(value)}" for key, value in below.items()]
    return "\n".join(rows)


short_repr = printed_as(describe_record)
"""Class decorator for named tuples and dataclasses of arrays."""


def describe_array(array: Any) -> str:
    """Dtype and shape; the values of up to six numbers on one axis, the range and the missing ones of more.

    Of traced, deleted and distributed arrays, and of keys, dtype and shape alone.
    """
    kind = f"{array.dtype}[{', '.join(map(str, array.shape))}]"
    known = isinstance(array, np.ndarray | np.generic) or (
        isinstance(array, jax.Array)
        and not isinstance(array, jax.core.Tracer)
        and array.is_fully_addressable
        and not array.is_deleted()
        and not jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key)
    )
    values = np.asarray(array) if known else np.empty(0, object)
    if not values.size or values.dtype.kind not in "biuf":
        return kind
    if values.ndim < 2 and values.size <= FEW:
        return _numbers(values.tolist()) if values.ndim else describe_value(values.item())
    if values.dtype.kind == "b":
        return f"{kind}, {values.sum()} true"
    lost = np.isnan(values) if values.dtype.kind == "f" else np.zeros(values.shape, bool)
    if lost.all():
        return f"{kind}, all NaN"
    low, high = (describe_value(end.item()) for end in (values[~lost].min(), values[~lost].max()))
    return (f"{kind}, all {low}" if low == high else f"{kind}, {low} to {high}") + (
        f", {lost.sum()} NaN" if lost.any() else ""
    )


def describe_value(value: Any) -> str:
    """One line about a value: numbers and short texts as they are, arrays and records by what they hold."""
    if value is None or isinstance(value, bool | int | str):
        return repr(value) if len(repr(value)) <= MOST_INNER else f"{repr(value)[:MOST_INNER]}..."
    if isinstance(value, float):
        return f"{value:.5g}"
    if _is_array(value):
        return describe_array(value)
    if _fields(value) is not None:
        own = type(value).__repr__.__module__ == __name__
        first = (repr(value) if own else describe_record(value)).partition("\n")[0]
        return first if len(first) <= MOST_INNER else first[:MOST_INNER] + "..."
    if isinstance(value, Mapping):
        plain = [
            f"{key}={describe_value(item)}" if isinstance(item, bool | int | float | str) else str(key)
            for key, item in value.items()
        ]
        return f"{len(plain)}: {few_names(plain)}" if plain else "{}"
    if isinstance(value, list | tuple):
        return _describe_sequence(value)
    return getattr(value, "__name__", type(value).__name__)


def few_names(names: Sequence[Any]) -> str:
    """The first six names, and how many more there are."""
    return ", ".join(map(str, names[:FEW])) + (f" and {len(names) - FEW} more" if len(names) > FEW else "")


def _describe_sequence(values: Sequence[Any]) -> str:
    if values and all(isinstance(value, str) for value in values):
        return f"{len(values)}: {few_names(values)}"
    if len(values) <= FEW and all(isinstance(value, bool | int | float | None) for value in values):
        return _numbers(values)
    return f"{len(values)}: {few_names([*dict.fromkeys(type(value).__name__ for value in values)])}"


def _numbers(values: Sequence[Any]) -> str:
    return f"[{', '.join(map(describe_value, values))}]"


def _fields(record: Any) -> Any:
    """Values by field, without those that are the default; None of what is neither a named tuple nor a dataclass."""
    every: Sequence[str]
    if isinstance(record, tuple) and hasattr(record, "_fields"):
        every, defaults = record._fields, record._field_defaults  # type: ignore[attr-defined]
    elif dataclasses.is_dataclass(record):
        every = [field.name for field in dataclasses.fields(record)]
        defaults = {field.name: field.default for field in dataclasses.fields(record)}
    else:
        return None
    values = {field: getattr(record, field, None) for field in every}
    return {field: value for field, value in values.items() if not _same(value, defaults.get(field, MISSING))}


def _is_array(value: Any) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype")


def _same(value: Any, default: Any) -> bool:
    plain = isinstance(value, bool | int | float | str) and type(value) is type(default)
    return value is default or (plain and value == default)
