"""The toy ring, by its path: tests are no package."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def ring():
    """The module `toy_ring`."""
    place = Path(__file__).with_name("toy_ring.py")
    spec = importlib.util.spec_from_file_location("toy_ring", place)
    module = importlib.util.module_from_spec(spec)
    sys.modules["toy_ring"] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module
