"""Calls of the package that the command makes, with the code of the same calls, which the report prints."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple

__all__ = ["Code", "call", "resolve"]

WIDTH = 88


class Code(NamedTuple):
    """A value, and an expression that has it."""

    value: Any
    text: str


def call(function: str, *arguments: Any, **named: Any) -> Code:
    """What a function returns, by its full name; arguments may be `Code`, also in lists and mappings."""
    values = {name: _value(argument) for name, argument in named.items()}
    parts = [*map(_text, arguments), *(f"{name}={_text(argument)}" for name, argument in named.items())]
    text = f"{function}({', '.join(parts)})"
    if len(text) > WIDTH:
        inside = ",\n".join(parts).replace("\n", "\n    ")
        text = f"{function}(\n    {inside},\n)"
    return Code(resolve(function)(*map(_value, arguments), **values), text)


def resolve(name: str) -> Any:
    """What has this full name, such as ``"ethogram.Trajectories.from_table"``."""
    module, *names = name.split(".")
    return functools.reduce(getattr, names, import_module(module))


def _value(argument: Any) -> Any:
    if isinstance(argument, Code):
        return argument.value
    if isinstance(argument, list):
        return [_value(each) for each in argument]
    if isinstance(argument, Mapping):
        return {name: _value(each) for name, each in argument.items()}
    return argument


def _text(argument: Any) -> str:
    if isinstance(argument, Code):
        return argument.text
    if isinstance(argument, list):
        return f"[{', '.join(map(_text, argument))}]"
    if isinstance(argument, Mapping):
        return f"{{{', '.join(f'{name!r}: {_text(each)}' for name, each in argument.items())}}}"
    return repr(os.fspath(argument) if isinstance(argument, os.PathLike) else argument)
