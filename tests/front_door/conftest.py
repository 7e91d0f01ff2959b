"""A small fit of roles that many tests look at, and tours of few iterations by their files' `NAME`, `TOUR`, `TINY`."""

from __future__ import annotations

import sys
import warnings

import jax
import numpy as np
import pytest

import ethogram
from ethogram.tour import Guide

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


def small_tour(request, out, seed):
    said: list[str] = []
    guide = Guide(request.module.NAME, out, said.append, seed=seed)
    return request.module.TOUR(guide, request.module.TINY), said


@pytest.fixture(scope="module")
def first(request, tmp_path_factory):
    """Report and lines of a tour."""
    return small_tour(request, tmp_path_factory.mktemp("first"), 0)


@pytest.fixture(scope="module")
def written(first, request):
    """Picture and ArviZ tree of the first tour, which are all that is in its folder."""
    import matplotlib.image

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what ArviZ says at import depends on its version
        import arviz
    picture, vectors, record = first[0].files
    assert vectors.read_bytes().startswith(b"%PDF")
    name = request.module.NAME
    assert sorted(path.name for path in picture.parent.iterdir()) == [
        f"{name}.nc",
        f"{name}.pdf",
        f"{name}.png",
    ]
    image = matplotlib.image.imread(picture)
    assert image.shape[0] > 300 and image[..., :3].std() > 0.05
    return arviz.from_netcdf(str(record))
