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
    given, keyed = [*map(_code, arguments)], {name: _code(argument) for name, argument in named.items()}
    parts = [*(each.text for each in given), *(f"{name}={each.text}" for name, each in keyed.items())]
    text = f"{function}({', '.join(parts)})"
    if len(text) > WIDTH:
        inside = ",\n".join(parts).replace("\n", "\n    ")
        text = f"{function}(\n    {inside},\n)"
    values = {name: each.value for name, each in keyed.items()}
    return Code(resolve(function)(*(each.value for each in given), **values), text)


def resolve(name: str) -> Any:
    """What has this full name, such as ``"ethogram.Trajectories.from_table"``."""
    module, *names = name.split(".")
    return functools.reduce(getattr, names, import_module(module))


def _code(argument: Any) -> Code:
    """An argument with its code."""
    if isinstance(argument, Code):
        return argument
    if isinstance(argument, list):
        parts = [*map(_code, argument)]
        return Code([part.value for part in parts], f"[{', '.join(part.text for part in parts)}]")
    if isinstance(argument, Mapping):
        pairs = {name: _code(each) for name, each in argument.items()}
        text = ", ".join(f"{name!r}: {each.text}" for name, each in pairs.items())
        return Code({name: each.value for name, each in pairs.items()}, f"{{{text}}}")
    return Code(argument, repr(os.fspath(argument) if isinstance(argument, os.PathLike) else argument))
