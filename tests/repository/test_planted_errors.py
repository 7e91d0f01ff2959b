"""The list of planted errors does not rot: each can still be planted, and is another program."""

from __future__ import annotations

import ast
import importlib.util
import sys

import pytest


@pytest.fixture(scope="module")
def planted_errors(root):
    """The command, which is no module of a package."""
    path = root / "tests" / "repository" / "planted_errors.py"
    spec = importlib.util.spec_from_file_location("planted_errors", path)
    module = sys.modules["planted_errors"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_texts_occur_once_and_tests_exist(planted_errors):
    assert planted_errors.faults() == []


def test_a_text_that_is_gone_is_told(planted_errors, monkeypatch):
    gone = planted_errors.PLANTED[0]._replace(text="no such line", places="models/no_such_folder")
    monkeypatch.setattr(planted_errors, "PLANTED", (gone,))
    text, tests = planted_errors.faults()
    assert "0 times" in text and "no_such_folder" in tests


def test_errors_compile_and_differ(planted_errors, root):
    for each in planted_errors.PLANTED:
        original = (root / each.file).read_text(encoding="utf-8")
        assert each.planted_in(original) != original, each.name
        ast.parse(each.planted_in(original), each.name)


def test_every_system_has_its_errors(planted_errors):
    systems = [each.system for each in planted_errors.PLANTED]
    counts = {system: systems.count(system) for system in systems}
    main = dict.fromkeys(("roles", "intents", "choices", "rewards", "networks"), 6)
    assert counts == {**main, "planning": 2, "imitation": 2}
    assert len({each.name for each in planted_errors.PLANTED}) == len(systems)
