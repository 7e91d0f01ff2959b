"""Predictions of choices: exact against the vote, error against its floor, calibration of the truth."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ethogram.domains import toy_chain
from ethogram.inference.choice_predictions import (
    calibration,
    choice_error,
    noise_floor,
    predict_choice,
    predict_probabilities,
)
from ethogram.models.choice import ProbitChoice
from ethogram.models.noisy_mdp import NoisyMDP

MODEL = NoisyMDP(16.0)


@pytest.fixture(scope="module")
def toy():
    return toy_chain.simulate(jax.random.key(0), 2000, kappa=4.0)


def around(toy, spread, count):
    """Draws of parameters about the true values."""
    basis = np.linalg.lstsq(np.asarray(MODEL.parts(np.eye(6), toy.decisions)["v"]).T, toy.values, rcond=None)[
        0
    ]
    return {
        "theta": jnp.asarray(basis + spread * np.random.default_rng(0).normal(size=(count, 6)), jnp.float32)
    }


def test_probabilities_are_means_over_draws(toy):
    samples, data = around(toy, 1.0, 30), toy.decisions.take(np.arange(20))
    found = predict_probabilities(MODEL, samples, data)
    values = MODEL.parts(samples["theta"], data)["v"]
    each = [ProbitChoice(data.features @ np.asarray(v)).probs for v in values]
    np.testing.assert_allclose(found, np.mean(each, axis=0), rtol=1e-4, atol=1e-6)


def test_votes_agree_where_the_choice_is_clear(toy):
    """With 2000 draws the vote has a standard error of 0.011: options ahead by 0.1 win it."""
    samples, data = around(toy, 0.5, 2000), toy.decisions.take(np.arange(60))
    probabilities = np.asarray(predict_probabilities(MODEL, samples, data))
    ahead = np.diff(np.sort(probabilities, axis=-1)[:, -2:])[:, 0] > 0.1
    exact, voted = (
        predict_choice(MODEL, samples, data),
        predict_choice(MODEL, samples, data, method="vote", key=jax.random.key(1)),
    )
    np.testing.assert_array_equal(exact, probabilities.argmax(-1))
    assert ahead.sum() > 30 and (exact == voted)[ahead].all()


def test_who_knows_the_truth_errs_as_often_as_the_noise(toy):
    """Within four standard errors over 2000 decisions; and its calibration within four of each bin's."""
    utilities = toy.decisions.features @ toy.values
    floor = noise_floor(utilities, toy.decisions)
    error = choice_error(utilities.argmax(-1), toy.decisions)
    assert abs(error - floor) < 4 * np.sqrt(floor * (1 - floor) / 2000)
    assert 0.05 < floor < 0.6
    table = calibration(ProbitChoice(utilities).probs, toy.decisions)
    assert table.options.sum() == 6000 and (np.abs(table.chosen - table.predicted) < 4 * table.error).all()
    wrong = calibration(ProbitChoice(3 * utilities).probs, toy.decisions)
    assert (np.abs(wrong.chosen - wrong.predicted) > 6 * wrong.error).any()


def test_unknown_choices_do_not_count(toy):
    data = toy.decisions.take(np.arange(4))
    half = data._replace(choice=np.array([-1, -1, *data.choice[2:]]))
    assert choice_error(data.choice, half) == 0 and choice_error((half.choice + 1) % 3, half) == 1
    with pytest.raises(ValueError, match="no known choice"):
        choice_error(data.choice, data._replace(choice=np.full(4, -1)))


def test_bad_input_is_named(toy):
    data = toy.decisions.take(np.arange(4))
    with pytest.raises(ValueError, match=r"theta of shape \(3, 5\): give \(draw, 6\)"):
        predict_probabilities(MODEL, {"theta": jnp.zeros((3, 5))}, data)
    with pytest.raises(ValueError, match="method must be"):
        predict_choice(MODEL, {"theta": jnp.zeros((3, 6))}, data, method="vote")
    with pytest.raises(ValueError, match=r"predicted has shape \(3,\)"):
        choice_error([0, 1, 2], data)
    with pytest.raises(ValueError, match="num_bins is 0"):
        calibration(np.ones((4, 3)), data, 0)
