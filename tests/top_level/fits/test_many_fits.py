"""A loop of fits shares its programs: memory and the maps of the process stay what they were."""

from __future__ import annotations

import pathlib

import jax
import numpy as np
import pytest

import ethogram
from ethogram.inference import nuts_chains
from ethogram.inference.choices import px_da_chains

TINY = {"num_warmup": 3, "num_samples": 4, "num_chains": 1}
MAPS = pathlib.Path("/proc/self/maps")


def case(method, number):
    """Model and data of another fit of the same structure and shape."""
    random = np.random.default_rng(number)
    if method in ("nuts", "px-da"):
        x = random.normal(size=(12, 2, 1))
        x[0], x[1] = [[1.0], [0.0]], [[0.0], [1.0]]
        return ethogram.NoisyMDP(1.0 + number, "features"), ethogram.Decisions(
            x, np.ones((12, 2), bool), np.r_[0, 0, random.integers(0, 2, 10)]
        )
    if method == "cavi":
        model = ethogram.RoleHMM(2, ethogram.GaussianEmission(1))
        return model, ethogram.Trajectories.from_list(list(random.normal(size=(3, 8, 1))))
    corridor = ethogram.MDP.deterministic([[0, 1], [0, 2], [1, 2]], discount=0.9)
    model = ethogram.GPIRL(corridor, random.normal(size=(3, 1)), scale_prior=5.0, relevance_prior=1.0)
    return model, random.integers(1, 5, size=(3, 2))


SETTINGS = {
    "nuts": TINY,
    "px-da": TINY,
    "cavi": {"num_steps": 5, "restarts": 1},
    "laplace": {},
    "max_entropy": {"penalty": 0.1},
}


def fit(method, number):
    quiet = {} if method == "max_entropy" else {"progress_bar": False}
    return ethogram.fit(jax.random.key(number), *case(method, number), method, **SETTINGS[method], **quiet)


@pytest.mark.parametrize(("method", "module"), [("nuts", nuts_chains), ("px-da", px_da_chains)])
@pytest.mark.slow
def test_a_second_fit_compiles_nothing(method, module):
    """Other data, another variance and another seed; and other draws."""
    first = fit(method, 0)
    programs = module._advance._cache_size()
    second = fit(method, 1)
    assert module._advance._cache_size() == programs
    assert not np.array_equal(first.result.sites["theta"], second.result.sites["theta"])
    np.testing.assert_array_equal(fit(method, 0).result.sites["theta"], first.result.sites["theta"])


@pytest.mark.slow
@pytest.mark.skipif(not MAPS.exists(), reason="only Linux lists the maps of a process")
@pytest.mark.filterwarnings("ignore:the draws have not converged")
@pytest.mark.filterwarnings("ignore:the choices are separated")
@pytest.mark.parametrize("method", SETTINGS)
def test_many_fits_keep_to_the_memory_of_the_first(method):
    """100 fits by each sampler, about 140 of which once exhausted the maps of a process; fewer by what never did."""

    def used():
        statm = pathlib.Path("/proc/self/statm").read_text().split()
        return len(MAPS.read_text().splitlines()), int(statm[1]) * 4096 / 2**20

    many = 100 if method in ("nuts", "px-da") else 40
    for number in range(12):  # NUTS of choices has two programs, with a start from Laplace and without
        fit(method, number)
    maps, megabytes = used()
    for number in range(12, many):
        fit(method, number)
    maps_after, megabytes_after = used()
    assert maps_after - maps < 100, (maps, maps_after)
    assert megabytes_after - megabytes < 60, (megabytes, megabytes_after)
