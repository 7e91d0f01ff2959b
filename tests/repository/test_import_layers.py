"""Imports run down the layers only and by full names: read from the source, not from what is loaded."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

LAYERS = ("models", "inference", "domains", "the top level", "benchmarks, examples, notebooks and tests")
PACKAGES = LAYERS[:3]
TOP = len(LAYERS) - 1
MAY_USE_BENCHMARKS = ("benchmarks", "tests")


def layer_of_file(path: Path) -> int | None:
    """Layer of a file of the repository; None for Python that lives on no layer (a build script, say)."""
    if path.parts[0] in PACKAGES:
        return PACKAGES.index(path.parts[0])
    if path.parts[:2] == ("src", "ethogram"):
        return 3
    return TOP if path.parts[0] in ("benchmarks", "examples", "notebooks", "tests") else None


def layer_of_module(name: str) -> int | None:
    """Layer of an imported module; None for one that is not ours."""
    parts = name.split(".")
    if parts[0] in ("benchmarks", "examples"):
        return TOP
    if parts[0] != "ethogram":
        return None
    return PACKAGES.index(parts[1]) if len(parts) > 1 and parts[1] in PACKAGES else 3


@functools.cache
def parsed(source: str) -> ast.Module:
    """Every file is parsed once for all scans."""
    return ast.parse(source)


def statements_in(node: ast.AST) -> list[ast.AST]:
    """Statements right inside one; most nodes of a file are parts of expressions, in which nothing is imported."""
    fields = ("body", "orelse", "handlers", "finalbody", "cases")
    parts = [getattr(node, field, None) for field in fields]
    return [inside for part in parts if isinstance(part, list) for inside in part]


def nodes_with_imports(source: str) -> Iterator[ast.AST]:
    """All statements of a file, and its expressions where one may import by a call."""
    waiting: list[ast.AST] = [parsed(source)]
    inside = ast.iter_child_nodes if "import_module" in source or "__import__" in source else statements_in
    while waiting:
        node = waiting.pop()
        waiting += inside(node)
        yield node


@functools.cache
def imported_modules(source: str) -> list[tuple[int, str]]:
    """Line and dotted name of each import, inside functions too, and of literal `import_module` calls.

    `from ethogram import models` counts as `ethogram.models`; a relative import keeps its leading dots.
    """
    found = []
    for node in nodes_with_imports(source):
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
    layer = layer_of_file(path)
    complaints = []
    for line, name in imported_modules(source):
        place = f"{path}:{line}: {name}"
        if name.startswith("."):
            complaints.append(f"{place}: a relative import: write the full name")
        elif name.split(".")[0] in PACKAGES:
            complaints.append(f"{place}: no such package outside the clone: import ethogram.{name}")
        elif name.split(".")[0] == "benchmarks" and path.parts[0] not in MAY_USE_BENCHMARKS:
            complaints.append(f"{place}: only benchmarks and tests use benchmarks")
        elif layer is not None and (layer_of_module(name) or 0) > layer:
            complaints.append(f"{place}: {LAYERS[layer]} may not import {LAYERS[layer_of_module(name) or 0]}")
    return complaints


SYSTEMS = {
    "models": ("roles", "intents", "choices", "rewards", "networks", "planning"),
    "inference": ("roles", "intents", "choices", "rewards", "networks", "planning"),
}
"""Subpackages of one system each; every other one is core, and knows no system."""

PARTS = {"imitation": "roles"}
"""Subpackages of inference that belong to a system of another name."""


def system_of(parts: tuple[str, ...] | list[str]) -> str | None:
    """System of ``(layer, subpackage, ...)``; None for core."""
    layer, subpackage = [*parts, "", ""][:2]
    subpackage = PARTS.get(subpackage, subpackage) if layer == "inference" else subpackage
    return subpackage if subpackage in SYSTEMS.get(layer, ()) else None


def crossings(path: Path, source: str) -> list[str]:
    """Imports of one system by another, or of a system by a core subpackage, a line each."""
    if path.parts[0] not in SYSTEMS:
        return []
    mine, complaints = system_of(path.parts), []
    for line, name in imported_modules(source):
        theirs = system_of(name.split(".")[1:])
        if name.split(".")[1:3] == ["models", "mdps"] and mine not in (None, "choices", "rewards"):
            complaints.append(f"{path}:{line}: {name}: only choices and rewards use MDPs")
        if theirs not in (None, mine):
            complaints.append(
                f"{path}:{line}: {name}: {mine or 'a core subpackage'} may not import the system {theirs}"
            )
    return complaints


def test_systems_do_not_import_each_other(root, repository_files):
    sources = [path for path in repository_files if path.suffix == ".py" and path.parts[0] in SYSTEMS]
    assert {system_of(path.parts) for path in sources} == {None, *SYSTEMS["models"]}
    complaints = [
        line for path in sources for line in crossings(path, (root / path).read_text(encoding="utf-8"))
    ]
    assert not complaints, "\n".join(complaints)


@pytest.mark.parametrize(
    ("path", "source", "expected"),
    [
        ("models/rewards/a.py", "from ethogram.models.mdps import MDP", None),
        ("inference/roles/a.py", "from ethogram.models.roles.role_hmm import RoleHMM", None),
        (
            "inference/roles/a.py",
            "from ethogram.inference.intents import infer_intents",
            "the system intents",
        ),
        ("inference/imitation/a.py", "from ethogram.inference.roles.assignment import infer_roles", None),
        ("inference/imitation/a.py", "from ethogram.models.intents import AgentTrace", "the system intents"),
        ("models/data/a.py", "import ethogram.models.choices.decisions", "a core subpackage may not import"),
        ("models/roles/a.py", "from ethogram.models.mdps import MDP", "only choices and rewards use MDPs"),
        ("inference/export/a.py", "from ethogram.inference.rewards import RewardFit", "the system rewards"),
        ("src/ethogram/tour/a.py", "from ethogram.models.roles import RoleHMM", None),
    ],
)
def test_the_scan_finds_a_planted_crossing(path, source, expected):
    complaints = crossings(Path(path), source)
    assert complaints == [] if expected is None else (len(complaints) == 1 and expected in complaints[0])


def test_imports_run_down(root, repository_files):
    sources = [path for path in repository_files if path.suffix == ".py"]
    assert {layer_of_file(path) for path in sources} >= {0, 1, 2, 3, TOP}
    complaints = [
        line for path in sources for line in offences(path, (root / path).read_text(encoding="utf-8"))
    ]
    assert not complaints, "\n".join(complaints)


@pytest.mark.parametrize(
    ("path", "source", "expected"),
    [
        ("models/a.py", "from ethogram.models.mdps.mdp import MDP", None),
        ("models/a.py", "import ethogram.inference.conjugate.conjugate_svi", "may not import inference"),
        ("models/a.py", "def f():\n    from ethogram import domains", "models/a.py:2"),
        ("models/a.py", "import ethogram", "may not import the top level"),
        ("models/a.py", "from ethogram import plots", "may not import the top level"),
        (
            "models/a.py",
            "import importlib\nimportlib.import_module('ethogram.domains.football')",
            "may not import domains",
        ),
        ("models/a.py", "from .mdp import MDP", "relative"),
        ("inference/a.py", "import ethogram.models.mdps.mdp as mdp", None),
        ("inference/a.py", "from ethogram.domains import football", "may not import domains"),
        ("domains/data/a.py", "from ethogram.inference import alignment", None),
        ("domains/a.py", "from ethogram.tour import main", "may not import the top level"),
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
    complaints = offences(Path(path), source)
    if expected is None:
        assert complaints == []
    else:
        assert len(complaints) == 1 and expected in complaints[0]


def imported_names(node: ast.AST) -> Iterator[str]:
    """Dotted name of everything that is imported at run time, inside functions too: modules, and names in them."""
    if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
        parts: list[ast.AST] = list(node.orelse)
    else:
        parts = statements_in(node)
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield from (f"{node.module}.{alias.name}" for alias in node.names)
    for part in parts:
        yield from imported_names(part)


def import_graph(sources: dict[str, str]) -> dict[str, set[str]]:
    """Modules that each module imports; a name in a module counts as the module."""
    graph: dict[str, set[str]] = {}
    for module, source in sources.items():
        names = imported_names(parsed(source))
        found = {name if name in sources else name.rpartition(".")[0] for name in names}
        graph[module] = (found & sources.keys()) - {module}
    return graph


def circle(graph: dict[str, set[str]]) -> list[str]:
    """Some modules that import each other in a circle, in order; none where there is no such circle."""
    settled: set[str] = set()

    def follow(module: str, trail: list[str]) -> list[str]:
        if module in trail:
            return trail[trail.index(module) :]
        if module in settled:
            return []
        for other in sorted(graph[module]):
            if found := follow(other, [*trail, module]):
                return found
        settled.add(module)
        return []

    return next((found for module in sorted(graph) if (found := follow(module, []))), [])


def by_subpackage(graph: dict[str, set[str]]) -> dict[str, set[str]]:
    """The same graph of folders and of the files beside them: `ethogram.models.data`, `ethogram.models.arguments`."""
    subpackage = {module: ".".join(module.split(".")[:3]) for module in graph}
    merged: dict[str, set[str]] = {name: set() for name in subpackage.values()}
    for module, others in graph.items():
        merged[subpackage[module]] |= {subpackage[other] for other in others} - {subpackage[module]}
    return merged


def sources_of_packages(root: Path, files: list[Path]) -> dict[str, str]:
    """Source of each module of both layers by its dotted name; a package has the name of its folder."""
    paths = [path for path in files if path.suffix == ".py" and path.parts[0] in SYSTEMS]
    names = [".".join(("ethogram", *path.with_suffix("").parts)).removesuffix(".__init__") for path in paths]
    return {name: (root / path).read_text(encoding="utf-8") for name, path in zip(names, paths, strict=True)}


def test_no_modules_import_each_other_in_a_circle(root, repository_files):
    graph = import_graph(sources_of_packages(root, repository_files))
    assert len(graph) > 100 and sum(map(len, graph.values())) > len(graph)
    assert not circle(graph), " -> ".join(circle(graph))
    assert not circle(by_subpackage(graph)), " -> ".join(circle(by_subpackage(graph)))


def test_a_planted_circle_is_found():
    sources = {
        "ethogram.models.a.x": "import numpy\nfrom ethogram.models.b.y import thing",
        "ethogram.models.b.y": "def f():\n    from ethogram.models.a import x",
        "ethogram.models.c.z": "import ethogram.models.a.x",
    }
    assert circle(import_graph(sources)) == ["ethogram.models.a.x", "ethogram.models.b.y"]
    typed = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ethogram.models.a import x"
    assert circle(import_graph(sources | {"ethogram.models.b.y": typed})) == []
    parted = {"ethogram.models.b.y": "", "ethogram.models.b.w": "import ethogram.models.a.x"}
    assert circle(import_graph(sources | parted)) == []
    assert circle(by_subpackage(import_graph(sources | parted))) == ["ethogram.models.a", "ethogram.models.b"]


def subpackage_offences(source: str) -> list[str]:
    """What is wrong with a subpackage's `__init__.py`: not a docstring, imports and `__all__` of their names."""
    complaints = [] if ast.get_docstring(parsed(source)) else ["no docstring"]
    imported: list[str] = []
    listed: list[str] | None = None
    for node in parsed(source).body[1 - len(complaints) :]:
        if isinstance(node, ast.Import | ast.ImportFrom):
            imported += [alias.asname or alias.name for alias in node.names]
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            listed = ast.literal_eval(node.value)
        else:
            complaints.append(f"line {node.lineno}: {type(node).__name__}, neither an import nor __all__")
    if listed is None:
        return [*complaints, "no __all__"]
    complaints += [f"{name!r} is in __all__, but not imported" for name in listed if name not in imported]
    return complaints + [
        f"{name!r} is imported, but not in __all__" for name in imported if name not in listed
    ]


def test_subpackages_hold_a_docstring_imports_and_all(root, repository_files):
    paths = [path for path in repository_files if path.name == "__init__.py" and path.parts[0] in SYSTEMS]
    paths = [path for path in paths if len(path.parts) == 3]
    assert len(paths) > 15
    complaints = [
        f"{path}: {line}"
        for path in paths
        for line in subpackage_offences((root / path).read_text(encoding="utf-8"))
    ]
    assert not complaints, "\n".join(complaints)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('"""A subpackage."""\nfrom a import b, c\n__all__ = ["b", "c"]', []),
        (
            '"""A subpackage."""\nfrom a import b\n__all__ = ["b", "c"]',
            ["'c' is in __all__, but not imported"],
        ),
        ('"""A subpackage."""\nfrom a import b, c\n__all__ = ["b"]', ["'c' is imported, but not in __all__"]),
        (
            '"""A subpackage."""\nfrom a import b\n__all__ = ["b"]\nx = b()',
            ["line 4: Assign, neither an import nor __all__"],
        ),
        (
            '"""A subpackage."""\ndef f(): pass\n__all__ = []',
            ["line 2: FunctionDef, neither an import nor __all__"],
        ),
        ('"""A subpackage."""\nfrom a import b', ["no __all__"]),
        ("", ["no docstring", "no __all__"]),
        ('from a import b\n__all__ = ["b"]', ["no docstring"]),
    ],
)
def test_the_scan_finds_a_planted_subpackage(source, expected):
    assert subpackage_offences(source) == expected
