"""The public names: one table, the stub that repeats it for type checkers, and a front module a system."""

from __future__ import annotations

import importlib

import pytest

import ethogram

SYSTEMS = ("choices", "intents", "mdps", "networks", "planning", "rewards", "roles", "tracking")


def stub() -> str:
    """What `__init__.pyi` must say: write it there when the table changes."""
    lines = ['"""Public names for type checkers and editors: what `_EXPORTS` of `__init__.py` says."""', ""]
    lines += [
        f"from ethogram import {name} as {name}"
        for name in sorted([*ethogram._SYSTEMS, *ethogram._SUBPACKAGES])
    ]
    for module, names in ethogram._EXPORTS.items():
        lines += [f"from {module} import {name} as {name}" for name in names]
    lines += ["", *(f"{old} = {new}" for old, new in sorted(ethogram._ALIASES.items()))]
    return "\n".join([*lines, "__version__: str", ""])


def test_the_stub_says_what_the_table_says(root):
    assert (root / "src" / "ethogram" / "__init__.pyi").read_text(encoding="utf-8") == stub()


def test_every_public_name_is_there():
    assert len(set(ethogram.__all__)) == len(ethogram.__all__)
    for name in ethogram.__all__:
        assert getattr(ethogram, name) is not None
    for old, new in ethogram._ALIASES.items():
        assert getattr(ethogram, old) is getattr(ethogram, new)
    assert set(dir(ethogram)) == {*ethogram.__all__, *SYSTEMS, "domains", "plots", "testing", "__version__"}
    with pytest.raises(AttributeError, match=r"no attribute 'nothing'$"):
        _ = ethogram.nothing


def test_the_top_level_is_small():
    """The rest is under the front modules."""
    assert len(ethogram.__all__) <= 77


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_front_module_holds_the_rooms_of_both_floors(system):
    front = getattr(ethogram, system)
    modules = [importlib.import_module(f"ethogram.models.{system}")]
    if system not in ("mdps", "tracking"):
        modules.append(importlib.import_module(f"ethogram.inference.{system}"))
    if system == "roles":
        modules.append(importlib.import_module("ethogram.inference.imitation"))
    assert front.__all__ == sorted(name for module in modules for name in module.__all__)
    for module in modules:
        for name in module.__all__:
            assert getattr(front, name) is getattr(module, name)


def test_systems_are_modules_of_the_front():
    assert ethogram._SYSTEMS == SYSTEMS


def test_worlds_are_attributes_of_their_package():
    assert {"data", "football", "small_mdps"} < {*dir(ethogram.domains)}
    assert ethogram.domains.small_mdps is importlib.import_module("ethogram.domains.small_mdps")
    with pytest.raises(AttributeError, match=r"'ethogram.domains' has no attribute 'nothing'$"):
        _ = ethogram.domains.nothing
