"""Bounds by mini-buckets: never below the truth, and the truth where tables may be as large as they need."""

from __future__ import annotations

import numpy as np
import pytest

from ethogram.inference.networks.mini_buckets import mini_bucket_bound
from ethogram.inference.networks.zero_propagation import propagate_zeros, query_factors


@pytest.mark.parametrize("seed", range(25))
def test_bounds_of_small_networks(seed, drawn, enumerated):
    network, query = drawn(seed, 9)
    with np.errstate(divide="ignore"):
        truth = np.log(enumerated(network, query).max())
    possible = propagate_zeros(query_factors(query))
    bounds = [mini_bucket_bound(possible, query.map_variables, 2**cells) for cells in (1, 4, 7, 20)]
    assert all(bound >= truth - 1e-10 for bound in bounds)
    assert bounds[-1] == (truth if np.isinf(truth) else pytest.approx(truth, rel=1e-10))
