"""A small fit of roles that many tests look at."""

from __future__ import annotations

import sys

import jax
import numpy as np
import pytest

import ethogram

CENTRES = np.array([[-5.0, 2.0], [5.0, -2.0]])


@pytest.fixture(scope="session")
def role_tracks():
    """Twelve sequences of 16 steps about two centres, which alternate every eight steps."""
    random = np.random.default_rng(0)
    role = (np.arange(12)[:, None] + np.arange(16) // 8) % 2
    return ethogram.Trajectories.from_list(CENTRES[role] + random.normal(size=(12, 16, 2)))


@pytest.fixture(scope="session")
def role_data(role_tracks):
    return ethogram.RoleHMM(2, ethogram.GaussianEmission(2)), role_tracks.take(range(6))


@pytest.fixture(scope="session")
def roles(role_data):
    settings = {"num_steps": 40, "restarts": 2, "progress_bar": False}
    return ethogram.fit(jax.random.key(1), *role_data, **settings)


@pytest.fixture(autouse=True)
def no_figures_left():
    """Figures of pyplot are closed after each test, which matplotlib would warn of in a process that opens many."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")
