"""The toy worlds, by their paths: tests are no package."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path

import pytest


def load(name, place=None):
    place = place or Path(__file__).with_name(f"{name}.py")
    spec = importlib.util.spec_from_file_location(name, place)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def unchecked():
    """Modules of imitation by name, as users have them: the types of arguments are not checked at a call."""

    def loaded(name):
        checked = importlib.import_module(f"ethogram.inference.imitation.{name}")
        return load(f"unchecked_{name}", checked.__file__)

    return loaded


@pytest.fixture(scope="session")
def ring():
    """The module `toy_ring`."""
    return load("toy_ring")


@pytest.fixture(scope="session")
def line():
    """The module `toy_parallel`."""
    return load("toy_parallel")
