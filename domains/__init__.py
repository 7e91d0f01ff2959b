"""Worlds that behaviour comes from, with simulators, true agents and bundled data: one module per world."""

from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

__all__ = sorted(module.name for module in iter_modules(__path__))


def __getattr__(name: str) -> ModuleType:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")


def __dir__() -> list[str]:
    return __all__
