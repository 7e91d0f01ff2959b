"""Weighted assignments against enumeration of all of them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from ethogram.inference.imitation.weighted_assignments import (
    known_assignments,
    shuffled_roles,
    weighted_assignments,
)


def enumerated(potentials):
    """Probability of each pair, and the best assignment, of one game."""
    num_agents, num_roles = potentials.shape
    assignments = list(itertools.permutations(range(num_roles), num_agents))
    score = np.array([sum(potentials[a, k] for a, k in enumerate(one)) for one in assignments])
    probs = np.exp(score - score.max())
    pairs = np.zeros((num_agents, num_roles))
    for one, weight in zip(assignments, probs / probs.sum(), strict=True):
        pairs[np.arange(num_agents), one] += weight
    return pairs, assignments[score.argmax()]


@pytest.mark.parametrize("num_agents, num_roles", [pytest.param(3, 3, marks=pytest.mark.slow), (2, 4)])
def test_weights_of_the_assignments_sum_to_the_probability_of_each_pair(num_agents, num_roles):
    potentials = np.random.default_rng(3).normal(size=(20, num_agents, num_roles)) * 2
    found = weighted_assignments(potentials)
    probability = found.probability
    summed = np.zeros_like(probability)
    for game, role, weight in zip(found.game, found.role, found.weight, strict=True):
        assert len(set(role)) == num_agents
        summed[game, np.arange(num_agents), role] += weight
    for game in range(20):
        pairs, best = enumerated(potentials[game])
        np.testing.assert_allclose(probability[game], pairs, atol=1e-9)
        assert tuple(found.best[game]) == best
        kept = np.where(pairs >= 0.01, pairs, 0)
        kept[np.arange(num_agents), best] = pairs[np.arange(num_agents), best]
        np.testing.assert_allclose(summed[game], kept / kept.sum(1, keepdims=True), atol=1e-9)


def test_a_pair_outside_the_best_assignment_stands_in_the_best_one_that_has_it():
    potentials = np.array([[[0.0, -1.0, -9.0], [-1.0, 0.0, -2.0], [-9.0, -9.0, 0.0]]])
    found = weighted_assignments(potentials)
    assert found.role.tolist() == [[0, 1, 2], [1, 0, 2]]
    np.testing.assert_allclose(found.weight.sum(0), 1)
    assert found.weight[1, 2] == 0  # that agent holds its role in the best assignment already


def test_known_roles_are_one_assignment_per_game_with_weight_one():
    known = np.array([[1, 0], [2, 1]])
    found = known_assignments(known, 3)
    np.testing.assert_array_equal(found.best, known)
    np.testing.assert_array_equal(found.role, known)
    np.testing.assert_array_equal(found.probability.argmax(2), known)
    assert (found.weight == 1).all() and found.game.tolist() == [0, 1]


def test_shuffled_roles_are_distinct_and_uniform():
    roles = shuffled_roles(np.random.default_rng(0), 6000, 2, 3)
    assert (roles[:, 0] != roles[:, 1]).all()
    counts = np.bincount(roles[:, 0] * 3 + roles[:, 1], minlength=9)[[1, 2, 3, 5, 6, 7]]
    assert ((counts - 1000) ** 2 / 1000).sum() < 20.5  # chi-square with five degrees of freedom, p = 0.001
