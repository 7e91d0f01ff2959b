"""Every example in a docstring runs as users run it, in single precision, and prints what it says."""

from __future__ import annotations

import doctest
import re
from importlib import import_module
from pathlib import Path

import jax
import pytest

ROOT = Path(__file__).resolve().parents[2]
LAYERS = ("models", "inference", "domains", "src/ethogram")


def modules_with_examples() -> list[str]:
    """Dotted names of the modules of the package that have an example."""
    found = []
    for layer in LAYERS:
        for path in sorted((ROOT / layer).rglob("*.py")):
            relative = path.relative_to(ROOT).as_posix().removeprefix("src/ethogram/")
            seen = layer != "src/ethogram" or not relative.startswith(LAYERS[:3])
            if seen and re.search(r"^ *>>> ", path.read_text(encoding="utf-8"), re.MULTILINE):
                found.append("ethogram." + relative.removesuffix(".py").replace("/", "."))
    return [name.removesuffix(".__init__") for name in found]


def test_examples_are_found():
    assert {"ethogram", "ethogram.models.data.trajectories", "ethogram.domains.tetris.game"} <= set(
        modules_with_examples()
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", modules_with_examples())
def test_examples_run(name):
    with jax.enable_x64(False):
        results = doctest.testmod(import_module(name), optionflags=doctest.ELLIPSIS)
    assert results.attempted > 0, f"{name} has >>> outside its docstrings"
    assert results.failed == 0
