"""What a picture was drawn from, written into its file: tells without drawing whether the picture is out of date.

A source is the code of a module that draws, without comments and docstrings, or anything that JSON can hold: the rows
of a record, the sizes of a tour. A picture holds a digest of each. What a tour fits is not a source: after a change of
models or algorithms, only drawing anew shows whether a picture still holds.
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ethogram import plots

__all__ = ["changed_sources", "code_digests", "code_lines", "data_digest", "read_sources", "write_sources"]

FIELD = "Drawn from"
"""Name of the PNG's text that holds the digests."""

DRAWING = ("ethogram.plots.", "ethogram.tour.", "benchmarks.figures.")
NOT_DRAWING = {"ethogram.tour.guide"}
"""It only writes what others drew."""


def code_digests(module: str) -> dict[str, str]:
    """By name, digests of the code of a module and of all modules that it imports and that draw."""
    found: dict[str, str] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name in found or name in NOT_DRAWING:
            continue
        text = Path(str(_origin(name))).read_text(encoding="utf-8")
        found[name] = _digest(code_lines(text))
        waiting += [other for other in _imports(ast.parse(text)) if other.startswith(DRAWING)]
    return dict(sorted(found.items()))


def data_digest(data: Any) -> str:
    """Digest of what JSON can hold."""
    return _digest(json.dumps(data, sort_keys=True))


def write_sources(path: Path, digests: Mapping[str, str], *, colours: int | None = None) -> None:
    """Write digests into a PNG, in place of those that it has; a palette of so many colours makes a small file."""
    from PIL import Image, PngImagePlugin

    text = PngImagePlugin.PngInfo()
    text.add_text(FIELD, json.dumps(digests))
    with Image.open(path) as picture:
        picture.load()
        dots = picture.info.get("dpi", (100, 100))
        reduced = picture if colours is None else picture.convert("RGB").quantize(colours)
        reduced.save(path, pnginfo=text, optimize=True, dpi=dots)


def read_sources(path: Path) -> dict[str, str]:
    """Digests that a PNG holds; none if nobody wrote them."""
    from PIL import Image

    with Image.open(path) as picture:
        return json.loads(picture.info.get(FIELD, "{}"))


def changed_sources(path: Path, digests: Mapping[str, str]) -> list[str]:
    """Names of the sources that were others, or did not exist, when the picture was drawn, or have gone since."""
    held = read_sources(path)
    return sorted(name for name in held.keys() | digests.keys() if held.get(name) != digests.get(name))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def code_lines(text: str) -> str:
    """The lines of a module that are neither blank, nor a comment, nor of a string that stands alone."""
    alone = {
        line
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    lines = (line.rstrip() for number, line in enumerate(text.splitlines(), 1) if number not in alone)
    return "\n".join(line for line in lines if line and not line.lstrip().startswith("#"))


def _imports(tree: ast.Module) -> Iterator[str]:
    """Full names of modules that are imported, and of those whose functions are called as `plots.NAME`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            inside = [f"{node.module}.{alias.name}" for alias in node.names]
            modules = [name for name in inside if name.startswith(DRAWING) and _origin(name) is not None]
            yield from modules or [node.module]
        elif (
            isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "plots"
        ):
            yield getattr(plots, node.attr).__module__


def _origin(module: str) -> str | None:
    """File of a module, None where there is no such module."""
    try:
        found = find_spec(module)
    except ModuleNotFoundError:  # the name of a function in a module
        return None
    return None if found is None else found.origin
