"""Oracles and counters that several test files share."""

from __future__ import annotations

import collections
import importlib.util
import sys
from pathlib import Path

import jax
import pytest


def neighbour(name):
    """A module beside this file: test folders are no packages."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # so that neighbours can import each other
    spec.loader.exec_module(module)
    return module


def count_primitives(jaxpr, total=None):
    """How often each primitive stands in a jaxpr, those inside other jaxprs included."""
    total = collections.Counter() if total is None else total
    for equation in jaxpr.eqns:
        total[equation.primitive.name] += 1
        inner = jax.tree.leaves(
            list(equation.params.values()), is_leaf=lambda x: hasattr(x, "eqns") or hasattr(x, "jaxpr")
        )
        for part in inner:
            part = getattr(part, "jaxpr", part)
            if hasattr(part, "eqns"):
                count_primitives(part, total)
    return total


@pytest.fixture(scope="session")
def primitives():
    """The function `count_primitives`."""
    return count_primitives


@pytest.fixture(scope="session")
def chain_oracle():
    """Chains by enumeration of every path."""
    return neighbour("chain_oracle")


@pytest.fixture(scope="session")
def oracle():
    """Variational Bayes of role HMMs by enumeration."""
    neighbour("role_families")
    return neighbour("role_oracle")


@pytest.fixture(scope="session")
def cases(oracle):
    """Small problems for every emission."""
    return neighbour("role_cases")


@pytest.fixture(scope="session")
def trace_oracle():
    """Agent Markov models by enumeration of every path of intents."""
    return neighbour("trace_oracle")


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
