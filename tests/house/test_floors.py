"""Imports run down the floors only and by full names: read from the source, not from what is loaded."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

FLOORS = ("models", "inference", "domains", "the front door", "benchmarks, notebooks and tests")
GROUND_FLOORS = FLOORS[:3]
TOP = len(FLOORS) - 1
MAY_USE_BENCHMARKS = ("benchmarks", "tests")


def floor_of_file(path: Path) -> int | None:
    """Floor of a file of the repository; None for Python that lives on no floor (a build script, say)."""
    if path.parts[0] in GROUND_FLOORS:
        return GROUND_FLOORS.index(path.parts[0])
    if path.parts[:2] == ("src", "ethogram"):
        return 3
    return TOP if path.parts[0] in ("benchmarks", "notebooks", "tests") else None


def floor_of_module(name: str) -> int | None:
    """Floor of an imported module; None for one that is not ours."""
    parts = name.split(".")
    if parts[0] == "benchmarks":
        return TOP
    if parts[0] != "ethogram":
        return None
    return GROUND_FLOORS.index(parts[1]) if len(parts) > 1 and parts[1] in GROUND_FLOORS else 3


def imported_modules(tree: ast.AST) -> list[tuple[int, str]]:
    """Line and dotted name of each import, inside functions too, and of literal `import_module` calls.

    `from ethogram import models` counts as `ethogram.models`; a relative import keeps its leading dots.
    """
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            stem = "." * node.level + (node.module or "")
            names = [alias.name for alias in node.names if stem == "ethogram"]
            found += [(node.lineno, f"ethogram.{name}") for name in names] or [(node.lineno, stem)]
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = getattr(node.func, "attr", getattr(node.func, "id", None))
            if called in ("import_module", "__import__") and isinstance(node.args[0].value, str):
                found.append((node.lineno, node.args[0].value))
    return found


def offences(path: Path, source: str) -> list[str]:
    """What is wrong with the imports of one file, a line each."""
    floor = floor_of_file(path)
    told = []
    for line, name in imported_modules(ast.parse(source)):
        place = f"{path}:{line}: {name}"
        if name.startswith("."):
            told.append(f"{place}: a relative import: write the full name")
        elif name.split(".")[0] in GROUND_FLOORS:
            told.append(f"{place}: no such package outside the clone: import ethogram.{name}")
        elif name.split(".")[0] == "benchmarks" and path.parts[0] not in MAY_USE_BENCHMARKS:
            told.append(f"{place}: only benchmarks and tests use benchmarks")
        elif floor is not None and (floor_of_module(name) or 0) > floor:
            told.append(f"{place}: {FLOORS[floor]} may not look up to {FLOORS[floor_of_module(name) or 0]}")
    return told


def test_imports_run_down(root, repository_files):
    sources = [path for path in repository_files if path.suffix == ".py"]
    assert {floor_of_file(path) for path in sources} >= {0, 1, 2, 3, TOP}
    told = [line for path in sources for line in offences(path, (root / path).read_text(encoding="utf-8"))]
    assert not told, "\n".join(told)


@pytest.mark.parametrize(
    ("path", "source", "expected"),
    [
        ("models/a.py", "from ethogram.models.mdp import MDP", None),
        ("models/a.py", "import ethogram.inference.conjugate_svi", "may not look up to inference"),
        ("models/a.py", "def f():\n    from ethogram import domains", "models/a.py:2"),
        ("models/a.py", "import ethogram", "may not look up to the front door"),
        ("models/a.py", "from ethogram import plots", "may not look up to the front door"),
        (
            "models/a.py",
            "import importlib\nimportlib.import_module('ethogram.domains.football')",
            "look up to domains",
        ),
        ("models/a.py", "from .mdp import MDP", "relative"),
        ("inference/a.py", "import ethogram.models.mdp as mdp", None),
        ("inference/a.py", "from ethogram.domains import football", "may not look up to domains"),
        ("domains/data/a.py", "from ethogram.inference import alignment", None),
        ("domains/a.py", "from ethogram.tour import main", "may not look up to the front door"),
        ("src/ethogram/tour.py", "from ethogram.domains import football\nimport ethogram.plots", None),
        ("src/ethogram/tour.py", "import benchmarks.report", "only benchmarks and tests"),
        ("notebooks/a.py", "from benchmarks import report", "only benchmarks and tests"),
        ("benchmarks/papers/a.py", "from benchmarks import report\nimport ethogram", None),
        ("tests/a.py", "from benchmarks.speed import timing", None),
        ("tests/a.py", "from models.mdp import MDP", "import ethogram.models.mdp"),
        ("setup.py", "import domains", "no such package"),
    ],
)
def test_the_scan_finds_a_planted_offender(path, source, expected):
    told = offences(Path(path), source)
    if expected is None:
        assert told == []
    else:
        assert len(told) == 1 and expected in told[0]
