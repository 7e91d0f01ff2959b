"""Tours on few sweeps, once a file of tests: of its `TOUR` at its sizes `TINY`."""

from __future__ import annotations

import pytest

from ethogram import tour


def small_tour(request, out, seed):
    said: list[str] = []
    report = request.module.TOUR(tour.TourSettings(out, True, seed, False, said.append), request.module.TINY)
    return report, said


@pytest.fixture(scope="module")
def first(request, tmp_path_factory):
    return small_tour(request, tmp_path_factory.mktemp("first"), 0)


@pytest.fixture(scope="module")
def second(request, tmp_path_factory):
    return small_tour(request, tmp_path_factory.mktemp("second"), 1)
