"""Oracles and counters that several test files share."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import jax
import pytest


@pytest.fixture(scope="session")
def chain_oracle():
    """The module ``chain_oracle`` beside this file: test folders are no packages."""
    spec = importlib.util.spec_from_file_location("chain_oracle", Path(__file__).with_name("chain_oracle.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def compilations():
    """A list that grows by one entry with every compilation."""
    seen = []

    def listen(event, duration, **details):
        if event == "/jax/core/compile/backend_compile_duration":
            seen.append(duration)

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield seen
    jax.monitoring.unregister_event_duration_listener(listen)
