"""Tours of few iterations, once a test file: of its system `NAME` by its function `TOUR` at its sizes `TINY`."""

from __future__ import annotations

import sys
import warnings

import pytest

from ethogram.tour import Guide


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
