"""Hooks: public names that a base class of this package has for subclasses to override."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterator
from typing import Any

__all__ = ["misspelt", "overrides"]

CLOSE = 0.82
"""Similarity (`difflib.SequenceMatcher.ratio`) from which on a name counts as a misspelt hook."""


def overrides(instance: Any, hook: str) -> bool:
    """Whether a class of `instance` replaces the default that the class which declares the hook has."""
    return sum(hook in vars(base) for base in type(instance).__mro__) > 1


def misspelt(*instances: Any) -> Iterator[str]:
    """Public names of the classes of these objects that are almost those of hooks; a misspelt hook is never called."""
    for cls in {type(each) for each in instances}:
        bases = [base for base in cls.__mro__[1:] if base.__module__.startswith("ethogram.")]
        hooks = {name for base in bases for name in vars(base) if not name.startswith("_")}
        for name in {**vars(cls), **inspect.get_annotations(cls)}:
            if not name.startswith("_") and name not in hooks:
                for hook in difflib.get_close_matches(name, hooks, 1, CLOSE):
                    yield f"{cls.__name__}.{name} looks like a misspelling of the hook {hook}"
