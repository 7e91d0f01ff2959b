"""Packages that benchmarks compare with: a row says why one is left out."""

from __future__ import annotations

import functools
import importlib

__all__ = ["why_skipped"]


@functools.cache
def why_skipped(*modules: str) -> str | None:
    """Why rows of a peer are skipped, by the modules that they need; None where all of them import."""
    for module in modules:
        package = module.partition(".")[0]
        try:
            importlib.import_module(module)
        except Exception as error:  # a broken installation raises anything
            if isinstance(error, ModuleNotFoundError) and error.name == package:
                return f"skipped: {package} is not installed"
            first_line = (str(error).splitlines() or [""])[0]
            return f"skipped: {module} does not import: {type(error).__name__}: {first_line[:100]}"
    return None
