"""Paths drawn from the posterior follow their exact distribution, by enumeration; labels agree over all draws."""

from __future__ import annotations

import itertools

import jax
import numpy as np
import pytest
from scipy.stats import norm

from ethogram.inference.smoothed_draws import sampled_paths
from ethogram.models.data import Trajectories
from ethogram.models.emissions import GaussianEmission
from ethogram.models.roles import RoleHMM

INITIAL, TRANSITION = np.array([0.7, 0.3]), np.array([[0.8, 0.2], [0.4, 0.6]])
MEANS, X = np.array([-0.5, 0.8]), np.array([0.3, -0.2, 0.9, 0.1])
DRAWS = 4000


def sites(order, count):
    """`count` equal draws of the parameters, whose states are numbered by `order`."""
    order = np.asarray(order)
    one = {
        "initial": INITIAL[order],
        "transition": TRANSITION[np.ix_(order, order)],
        "mean": MEANS[order][:, None],
        "covariance": np.ones((2, 1, 1)),
    }
    return {name: np.repeat(value[None], count, axis=0) for name, value in one.items()}


@pytest.fixture(scope="module")
def enumerated():
    """Probabilities of all paths of four steps."""
    weights = {}
    for path in itertools.product(range(2), repeat=4):
        chain = INITIAL[path[0]] * np.prod([TRANSITION[a, b] for a, b in itertools.pairwise(path)])
        weights[path] = chain * norm.pdf(X - MEANS[list(path)]).prod()
    total = sum(weights.values())
    return {path: weight / total for path, weight in weights.items()}


@pytest.fixture(scope="module")
def drawn(enumerated):
    """Paths of half the draws as the reference numbers states, then half the other way round."""
    data = Trajectories.from_list([X[:, None], X[:2, None]])
    first = np.zeros((2, 4, 2))
    for path, weight in enumerated.items():
        first[0, np.arange(4), list(path)] += weight
    first[1, :2] = first[0, :2]  # only the overlap of labels rests on it
    halves = [sites(order, DRAWS // 2) for order in ([0, 1], [1, 0])]
    draws = {name: np.concatenate([half[name] for half in halves]) for name in halves[0]}
    model = RoleHMM(2, GaussianEmission(1)).bind(data)
    asked = jax.random.key(0), model, draws, data, 2
    kept = sampled_paths(*asked, None)  # the same paths, in the labels of each half
    kept[DRAWS // 2 :] = np.where(kept[DRAWS // 2 :] < 0, -1, 1 - kept[DRAWS // 2 :])
    paths = sampled_paths(*asked, first)
    np.testing.assert_array_equal(kept, paths)
    return paths


def test_paths_occur_as_often_as_enumeration_says(drawn, enumerated):
    """Six standard errors: one false alarm in ten million for 32 counts."""
    for half in (drawn[: DRAWS // 2, 0], drawn[DRAWS // 2 :, 0]):
        for path, weight in enumerated.items():
            share = (half == path).all(1).mean()
            assert abs(share - weight) < 6 * np.sqrt(weight * (1 - weight) / len(half)), path


def test_nothing_stands_beyond_a_length(drawn):
    assert (drawn[:, 1, 2:] == -1).all() and (drawn[:, 1, :2] >= 0).all()
