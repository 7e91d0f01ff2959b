"""Held-out scores of actions against sums by hand, and their peers."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from ethogram.domains import small_mdps
from ethogram.inference.rewards import fit_reward, heldout_policy_scores, reward_peers
from ethogram.models.data import Trajectories
from ethogram.models.rewards import GPIRL

WORLD = small_mdps.three_state()
TRAIN = Trajectories.from_list(states=[[0, 2, 1, 2], [2, 1, 2]], actions=[[1, 1, 1, 1], [1, 1, 0]])
TEST = Trajectories.from_list(states=[[0, 2, 1], [2, 1], [0]], actions=[[1, 1, -1], [1, 0], [1]])
STEPS = [[(0, 1), (2, 1)], [(2, 1), (1, 0)], [(0, 1)]]
KEY = jax.random.key(0)


def test_scores_and_their_paired_errors_are_sums_by_hand():
    """Of a posterior, of maximum entropy, and of tables, per known action, over trajectories."""
    model = GPIRL(WORLD, np.array([[1.0], [2.0], [3.0]]), scale_prior=5.0, relevance_prior=1.0)
    fit = fit_reward(KEY, model, TRAIN, "laplace", hyper="fixed", num_evaluations=64, progress_bar=False)
    peers = reward_peers(WORLD, TRAIN)
    found = heldout_policy_scores(KEY, {"GP-IRL": fit} | peers, TEST, num_draws=50)
    tables = {
        "GP-IRL": np.asarray(fit.posterior.sample(KEY, 50)["policy"]).mean(0),
        "maximum entropy, features": peers["maximum entropy, features"].policy,
        "p(a | s)": peers["p(a | s)"].probability,
    }
    by_hand = {
        name: np.array([sum(np.log(table[step]) for step in one) for one in STEPS])
        for name, table in tables.items()
    }
    for name, each in by_hand.items():
        np.testing.assert_allclose(found[name].log_density, each.sum() / 5, rtol=1e-6)
    assert len(found) == 6 and max(score.difference for score in found.values()) == 0
    best = max(found, key=lambda name: found[name].log_density)
    for name in tables.keys() - {best}:
        gap = found[name].log_density - found[best].log_density
        np.testing.assert_allclose(found[name].difference, gap, rtol=1e-6)
    two = heldout_policy_scores(KEY, {"a": tables["GP-IRL"], "b": tables["p(a | s)"]}, TEST)
    gaps, steps = by_hand["GP-IRL"] - by_hand["p(a | s)"], np.array([2, 2, 1])
    left = gaps - gaps.sum() / 5 * steps
    error = np.sqrt(3 / 2 * (left**2).sum()) / 5  # of a ratio of sums over three trajectories
    assert {0.0, max(one.difference_se for one in two.values())} == {
        one.difference_se for one in two.values()
    }
    np.testing.assert_allclose(max(one.difference_se for one in two.values()), error, rtol=1e-5)


@pytest.mark.parametrize(
    ("models", "test", "message"),
    [
        ({}, TEST, "models is dict: give at least one"),
        ({"x": np.ones((3, 2))}, TEST, r"models\['x'\]\[0\] sums to 2"),
        ({"x": "policy"}, TEST, "give a fit, a policy"),
        ({"x": np.full((2, 2), 0.5)}, TEST, r"data.states\[0, 1\] is 2, outside 0..1"),
        ({"x": np.full((3, 2), 0.5)}, TEST._replace(actions=np.full((3, 3), -1)), "no known action"),
        ({"x": np.full((3, 2), 0.5)}, [[0, 1]], "test is list"),
    ],
)
def test_bad_input_is_refused(models, test, message):
    with pytest.raises((TypeError, ValueError), match=message):
        heldout_policy_scores(KEY, models, test)
