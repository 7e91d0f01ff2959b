"""Possible draws are possible, have the joint probability they say, and are as frequent as they should be."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ethogram.inference.networks.elimination import exact_log_probability
from ethogram.inference.networks.samples import possible_draws
from ethogram.inference.networks.zero_propagation import propagate_zeros, query_factors
from ethogram.models.networks.bayes_net import BayesNet
from ethogram.models.networks.marginal_map import MarginalMAP


@pytest.mark.parametrize("seed", range(12))
def test_draws_are_possible_and_bound_their_answers(seed, drawn, enumerated):
    network, query = drawn(seed)
    possible = propagate_zeros(query_factors(query))
    if possible.impossible:
        return
    found = possible_draws(np.random.default_rng(seed), query, possible)
    soft = dict(query.soft)
    for states, log_joint in zip(found.states, found.log_joint, strict=True):
        truth = network.log_joint(states.tolist()) + sum(math.log(soft[v][states[v]]) for v in soft)
        assert log_joint == pytest.approx(truth, rel=1e-10)
        assert all(states[v] == state for v, state in query.observed)
        answer = [int(states[v]) for v in query.map_variables]
        assert log_joint <= exact_log_probability(query, answer) + 1e-9
    answers = [tuple(states[list(query.map_variables)]) for states in found.states]
    assert len(set(answers)) == len(answers) <= 32
    assert (np.diff(found.log_joint) <= 0).all()


def test_forced_ancestors_of_evidence_are_set():
    rare, copy = np.array([1 - 1e-9, 1e-9]), np.eye(2)
    network = BayesNet((rare, copy, np.full((2, 2), 0.5)), ((), (0,), (1,)))
    query = MarginalMAP(network, {1: 1}, [2])
    found = possible_draws(np.random.default_rng(0), query, propagate_zeros(query_factors(query)))
    assert (found.states[:, 0] == 1).all()
    assert len(found.states) == 2
    np.testing.assert_allclose(found.log_joint, math.log(0.5e-9), rtol=1e-12)


def test_without_a_possible_draw_there_is_none():
    coin, same = np.array([0.5, 0.5]), np.array([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]]])
    network = BayesNet((coin,) * 3 + (same,) * 3, ((), (), (), (0, 1), (1, 2), (0, 2)))
    query = MarginalMAP(network, {3: 1, 4: 1, 5: 1}, [0])  # three that all differ from each other
    found = possible_draws(np.random.default_rng(0), query, propagate_zeros(query_factors(query)))
    assert len(found.states) == len(found.log_joint) == 0
