"""Benchmarks of GP-IRL: their checks on made-up rows, and small runs."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from benchmarks.papers import bus_engine, gp_irl, gp_irl_truth, reward_history, reward_intents
from benchmarks.papers import gp_irl_calibration as calibration
from benchmarks.papers import rust_bus as estimates
from ethogram.domains import labyrinth, rust_bus


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


def test_what_is_held_against_the_toolkit():
    case = gp_irl.Case("stored", 1, None, None, (), None)
    values = dict(zip(gp_irl.COLUMNS, (0.5, 0.0, 0.35, 0.05), strict=True))
    fixed = dict(zip(gp_irl.COLUMNS, (0.6, 0.0, 0.3, 0.08), strict=True))
    levine = dict(zip(gp_irl.COLUMNS, (0.41, 0.06, 0.35, 0.09), strict=True))
    rows = [
        {"method": "toolkit, GPIRL"} | dict(zip(gp_irl.COLUMNS, (0.402, 0.034, 0.341, 0.076), strict=True)),
        {"method": "MaxEnt", "evd_standard": 0.55},
        {"method": "levine", "objective": -863.3} | levine,
        {"method": "nested", "elbo": -699.0, "laplace_elbo": -701.0} | levine,
        {"method": "natural gradient", "elbo": -700.0, "laplace_elbo": -701.0} | values,
        {"method": "natural gradient, Levine's relevance", "elbo": -702.0, "laplace_elbo": -701.0} | fixed,
        {"method": "natural gradient, toolkit relevance", "elbo": -688.5},
    ]
    told = {row["check"]: row["reached"] for row in gp_irl.checks(case, 64, rows, None)}
    assert {text for text, reached in told.items() if not reached} == {
        "nested: transfer_standard (<=)",
        "nested: transfer_soft (<=)",
        "natural gradient: transfer_standard (<=)",
        "natural gradient, Levine's relevance: standard EVD beside MaxEnt's (<=)",
        "natural gradient, Levine's relevance: ELBO beside Laplace's (>=)",
        "natural gradient, Levine's relevance: transfer_soft (<=)",
        "natural gradient, Levine's relevance: evd_standard (<=)",
        "Levine's objective (>=)",
        "Levine's soft EVD (<=)",
        "Levine's transfer_soft, off the toolkit's by a share of (<=)",
        "ELBO at the toolkit's relevance (>=)",
    }
    assert len(told) == 24


def test_the_band_is_asked_at_mileages_that_were_seen():
    counts = rust_bus.decision_counts(rust_bus.load(4))
    line = rust_bus.COST * bus_engine.PUBLISHED["theta"] * np.arange(rust_bus.NUM_BINS)
    seen = counts.sum(1) > 0
    told = np.stack([line, np.where(seen, line - 0.01, 9.0), np.where(seen, line + 0.01, 10.0)])

    class Fit:
        elbo = laplace_elbo = 0.0
        steps, converged = 1, True

    assert bus_engine.check(told, counts, Fit())["reached"]
    told[1, 20] = line[20] + 0.001
    row = bus_engine.check(told, counts, Fit())
    assert not row["reached"] and row["value"] == pytest.approx(1 - 1 / seen.sum())


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


def test_numbers_of_intents_are_chosen_on_other_draws():
    """Scores of three draws, of one and two intents: each draw takes the number that the other two prefer."""
    world = reward_intents.World("some", None, np.zeros(1), None, 0, 0.15, 3, 0, 0, (1, 2), True)
    drawn = [
        {
            "heldout": [-1.0, second], "elbo": [-10.0, -9.0], "converged": [1, 1], "seconds": 1.0,
            "peers": {"1 intents": (-1.0, 0.1), "agent Markov model": (-0.8, None)}, "accuracy": [0.5, 0.9],
        }
        for second in (-1.3, -0.8, -0.8)
    ]  # fmt: skip
    rows = reward_intents.rows_of(world, (1, 2), drawn)
    chosen = next(row for row in rows if row.get("model") == "chosen number")
    assert chosen["chosen"] == [2, 1, 1] and chosen["heldout"] == pytest.approx(-1.1)
    one, agent = (next(row for row in rows if row.get("peer") == name) for name in drawn[0]["peers"])
    assert (one["gain"], one["reached"]) == (pytest.approx(-0.1), False) and "se" not in agent
    accuracy = rows[-1]
    assert accuracy["accuracy"] == pytest.approx((0.9 + 0.5 + 0.5) / 3) and not accuracy["reached"]
    assert {"input-driven HMM"} < {row["peer"] for row in reward_intents.recorded("gridworld5")}
