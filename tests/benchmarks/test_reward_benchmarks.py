"""Benchmarks of GP-IRL: calibration, published estimates and known evidence, in small runs."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from benchmarks.papers import gp_irl_calibration as calibration
from benchmarks.papers import gp_irl_truth, reward_history
from benchmarks.papers import rust_bus as estimates
from ethogram.domains import labyrinth


def test_coverage_is_of_differences_and_ranks_are_tested():
    """Draws about truths from the same distribution are calibrated; with half the spread they are not."""
    random = np.random.default_rng(0)
    middle = random.normal(size=(400, 1, calibration.STATES)) * 3
    draws = middle + random.normal(size=(400, 396, calibration.STATES))
    truth = (middle + random.normal(size=middle.shape))[:, 0]
    right = calibration.row_of("NUTS", draws, truth)
    assert right["reached"] and 0.88 < right["coverage90"] < 0.92
    sure = calibration.row_of("NUTS", middle + 0.5 * (draws - middle), truth)
    assert not sure["reached"] and sure["sbc_p"] < 1e-6
    level = calibration.row_of("NUTS", draws + 100, truth)  # a level is no difference
    assert level["coverage90"] == pytest.approx(right["coverage90"])


@pytest.mark.slow
def test_estimates_by_gradients_are_the_published_ones():
    with jax.enable_x64(True):
        rows = estimates.rows_by_gradients()
    assert [row["parameter"] for row in rows] == [*estimates.PUBLISHED, "seconds"]
    assert all(row["reached"] for row in rows[:3])


@pytest.mark.slow
def test_sums_over_nodes_have_the_known_evidence_and_posterior():
    """Of the three-state world, with its hyper-parameters known and with priors."""
    case = gp_irl_truth.cases()[0]
    with jax.enable_x64(True):
        exact = gp_irl_truth.posterior(case, 20)
    known = gp_irl_truth.KNOWN
    np.testing.assert_allclose(exact.evidence, known["evidence"], atol=1e-6)
    mean = np.array([0.0826816, 0.9062176, 0.0826816])
    np.testing.assert_allclose(exact.moments[:3], mean - mean.mean(), atol=1e-5)
    np.testing.assert_allclose(exact.moments[6], 0.6110380759, atol=1e-5)
    free = gp_irl_truth.posterior_with_priors(case, 8, 8)
    np.testing.assert_allclose(free.evidence, known["evidence, free"], atol=1e-2)
    np.testing.assert_allclose(free.moments[1] - free.moments[0], 1.2290689, atol=0.03)


def test_histories_of_the_maze_share_features_by_level_and_actions():
    """One feature of each kind for a history and an action, the same for all nodes of a level with the same actions."""
    mdp, data = reward_history.maze(), labyrinth.load()
    assert np.asarray(mdp.action_mask)[data.states, data.actions].all()
    history = mdp.with_history(1, of="actions")
    node, last = history.states[:, 0], history.actions[:, 0]
    for own in (False, True):
        features = reward_history.shared(history, own)
        assert (features.sum(-1) == 2 + own).all()
        by_level = features[..., labyrinth.NUM_NODES :]
        here, there = np.flatnonzero((node >= 3) & (node < 7) & (last == 0))  # two of the four of level 2
        below = np.flatnonzero((node >= 7) & (last == 0))[0]
        assert (by_level[here, 1] @ by_level[there, 1], by_level[here, 1] @ by_level[below, 1]) == (1, 0)
        assert by_level[here, 1] @ by_level[there, 2] == 0
