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
from ethogram.models.decisions import Decisions
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


def test_weights_say_how_often_a_decision_counts(toy):
    """All three measures of weighted decisions are those of decisions that stand there so often."""
    data = toy.decisions.take(np.arange(40))
    weight = np.arange(40) % 4
    weighted = data._replace(weight=weight, choice=np.where(np.arange(40) == 7, -1, data.choice))
    repeated = data.take(np.repeat(np.arange(40), np.where(np.arange(40) == 7, 0, weight)))
    utilities, predicted = weighted.features @ toy.values, np.zeros(40, int)
    many = repeated.features @ toy.values
    assert choice_error(predicted, weighted) == pytest.approx(
        choice_error(np.zeros(len(many), int), repeated), abs=1e-12
    )
    assert noise_floor(utilities, weighted) == pytest.approx(noise_floor(many, repeated), abs=1e-6)
    tables = (
        calibration(ProbitChoice(utilities).probs, weighted),
        calibration(ProbitChoice(many).probs, repeated),
    )
    for one, other in zip(*tables, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)
    none = weighted._replace(weight=np.where(weighted.choice < 0, 1, 0))
    for measure in (
        lambda: choice_error(predicted, none),
        lambda: noise_floor(utilities, none),
        lambda: calibration(np.full((40, 3), 1 / 3), none),
    ):
        with pytest.raises(ValueError, match="no known choice of a weight above 0"):
            measure()


def test_held_out_decisions_need_not_have_every_subject():
    sets = np.random.default_rng(0).normal(size=(4, 3, 2))
    model, theta = NoisyMDP(1.0, "features"), np.array([[[1.0, 0.0], [0.0, 1.0], [-1.0, 2.0]]] * 2)
    data = Decisions.from_list(sets, subject=[0, 1, 1, 0])
    found = predict_probabilities(model, {"theta": theta}, data)
    each = [ProbitChoice(one @ theta[0, who]).probs for one, who in zip(sets, data.subject, strict=True)]
    np.testing.assert_allclose(found, each, atol=1e-5)
    with pytest.raises(
        ValueError, match=r"theta of shape \(2, 1, 2\): give \(draw, 2, 2\), with 2 subjects at"
    ):
        predict_probabilities(model, {"theta": theta[:, :1]}, data)


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        ({}, "samples have no theta: they have nothing"),
        ({"v": np.zeros((3, 7))}, "samples have no theta: they have v"),
        ({"theta": np.zeros((0, 6))}, "samples have no draw of theta"),
        ({"theta": np.full((2, 6), np.nan)}, r"samples have theta\[0, 0\] that is not finite"),
        (
            {"theta": np.zeros((2, 5, 6))},
            r"theta of shape \(2, 5, 6\): give \(draw, 6\).*not grouped by chain",
        ),
    ],
)
def test_samples_that_are_no_draws_are_named(toy, samples, message):
    with pytest.raises(ValueError, match=message):
        predict_probabilities(MODEL, samples, toy.decisions)


def broken(place, value):
    """Equal probabilities, but for one entry."""
    table = np.full((4, 3), 1 / 3)
    table[place] = value
    return table


@pytest.mark.parametrize("value", [2.0, -0.1, np.nan, np.inf])
def test_what_is_no_probability_is_named(toy, value):
    data = toy.decisions.take(np.arange(4))
    with pytest.raises(ValueError, match=r"probabilities\[2, 1\] is .*: give numbers in \[0, 1\]"):
        calibration(broken((2, 1), value), data)
    fewer = data._replace(legal=np.arange(3) != np.where(np.arange(4) == 2, 1, -1)[:, None])
    fewer = fewer._replace(choice=np.zeros(4, int))
    assert calibration(broken((2, 1), value), fewer).options.sum() == 11


def test_bad_input_is_named(toy):
    data = toy.decisions.take(np.arange(4))
    with pytest.raises(TypeError, match=r"key must come from jax\.random\.key, not int"):
        predict_choice(MODEL, {"theta": jnp.zeros((3, 6))}, data, method="vote", key=3)
    with pytest.raises(ValueError, match=r"predicted\[1\] is nan, outside 0\.\.2"):
        choice_error([0, np.nan, 1, 1], data)
    with pytest.raises(ValueError, match=r"predicted\[0\] is 3, outside 0\.\.2"):
        choice_error([3, 0, 1, 1], data)
    with pytest.raises(TypeError, match="predicted holds bool"):
        choice_error([True, False, True, True], data)
    with pytest.raises(ValueError, match=r"utilities has shape \(3,\), not \(4, 3\)"):
        noise_floor(np.zeros(3), data)
    with pytest.raises(ValueError, match=r"utilities\[0, 0\] is nan"):
        noise_floor(np.full((4, 3), np.nan), data)
    with pytest.raises(ValueError, match=r"theta of shape \(3, 5\): give \(draw, 6\)"):
        predict_probabilities(MODEL, {"theta": jnp.zeros((3, 5))}, data)
    with pytest.raises(ValueError, match="method must be"):
        predict_choice(MODEL, {"theta": jnp.zeros((3, 6))}, data, method="vote")
    with pytest.raises(ValueError, match=r"predicted has shape \(3,\)"):
        choice_error([0, 1, 2], data)
    with pytest.raises(ValueError, match="num_bins must be at least 1, not 0"):
        calibration(np.ones((4, 3)), data, 0)
