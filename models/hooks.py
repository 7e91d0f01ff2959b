"""Hooks: public names that a base class declares for subclasses to override, and the check of their spelling.

A public name of a subclass that is close to a hook, but is none, raises an error when the class is defined: a misspelt
hook would otherwise never be called.
"""

from __future__ import annotations

import difflib
import inspect
from typing import Any, ClassVar

__all__ = ["HasHooks", "overrides"]

CLOSE = 0.82
"""Similarity (`difflib.SequenceMatcher.ratio`) from which on a name counts as a misspelt hook."""


class HasHooks:
    """Base of classes with hooks: every public name of a subclass with ``declares_hooks=True`` is one."""

    _declares_hooks: ClassVar[bool]

    def __init_subclass__(cls, *, declares_hooks: bool = False, **options: Any) -> None:
        """Raise TypeError where a public name of the class is a near miss of a hook, or a method hook no method."""
        super().__init_subclass__(**options)
        cls._declares_hooks = declares_hooks
        if not declares_hooks:
            _refuse_misspelt_hooks(cls)


def overrides(instance: Any, hook: str) -> bool:
    """Whether the class of `instance` replaces the default of a hook."""
    return any(hook in vars(base) for base in type(instance).__mro__ if not _declares(base))


def _refuse_misspelt_hooks(cls: type) -> None:
    hooks, fields = _hooks(cls), inspect.get_annotations(cls)
    inherited = {name for base in cls.__mro__[1:] for name in vars(base)}
    for name in {**vars(cls), **fields}:
        if callable(hooks.get(name)) and (name in fields or not callable(getattr(cls, name))):
            raise TypeError(f"{cls.__name__}.{name} overrides the hook {name}: make it a method")
        if name.startswith("_") or name in inherited or name in hooks:
            continue
        for hook in difflib.get_close_matches(name, hooks, 1, CLOSE):
            raise TypeError(
                f"{cls.__name__}.{name} looks like a misspelling of the hook {hook}: correct it, or choose a "
                "name less like it (private names, with a leading underscore, are not checked)"
            )


def _hooks(cls: type) -> dict[str, Any]:
    """Hooks that a class inherits, with their defaults; None for one that is only annotated."""
    bases = [base for base in cls.__mro__ if _declares(base)]
    found = [{**dict.fromkeys(inspect.get_annotations(base)), **vars(base)} for base in bases]
    return {name: hook for names in found for name, hook in names.items() if not name.startswith("_")}


def _declares(base: type) -> bool:
    return bool(vars(base).get("_declares_hooks", False))
