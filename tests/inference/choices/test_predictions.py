"""Predictions of choices: exact against the vote, error against its floor, calibration of the truth."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import norm

from ethogram.inference.choices.predictions import (
    calibration,
    choice_error,
    noise_floor,
    predict_choice_probabilities,
)
from ethogram.models.choices.decisions import Decisions
from ethogram.models.choices.noisy_mdp import NoisyMDP

MODEL = NoisyMDP(16.0)


class Toy(NamedTuple):
    """Decisions of an agent whose values are known."""

    decisions: Decisions
    values: np.ndarray


@pytest.fixture(scope="module")
def toy():
    random = np.random.default_rng(0)
    features, values = random.dirichlet(0.5 * np.ones(7), size=(2000, 3)), 2 * random.normal(size=7)
    values -= values.mean()
    choice = np.argmax(features @ values + random.normal(size=(2000, 3)), axis=1)
    return Toy(Decisions(features, np.ones((2000, 3), bool), choice), values)


def around(toy, spread, count):
    """Draws of parameters about the true values."""
    basis = np.asarray(MODEL.parts(np.eye(6), toy.decisions)["v"])
    theta = np.linalg.lstsq(basis.T, toy.values, rcond=None)[0]
    return {"theta": theta + spread * np.random.default_rng(1).normal(size=(count, 6))}


def exact_probabilities(utilities):
    """Probabilities (..., option) by a sum over the noise of each option, in NumPy."""
    x = np.linspace(-9, 9, 41)
    each = []
    for option in range(utilities.shape[-1]):
        gaps = utilities[..., [option]] - np.delete(utilities, option, axis=-1)
        density = norm.pdf(x) * np.prod(ndtr(x + gaps[..., None]), axis=-2)
        each.append(density.sum(-1) * (x[1] - x[0]))
    return np.stack(each, axis=-1)


DRAWS = 200


def test_probabilities_are_means_over_draws_and_votes_estimate_them(toy):
    """Shares of votes within five standard errors; options ahead by 0.25 win the vote, 3 standard errors."""
    draws, data = around(toy, 0.5, DRAWS), toy.decisions.take(np.arange(60))
    found = np.asarray(predict_choice_probabilities(None, MODEL, draws, data))
    values = np.asarray(MODEL.parts(draws["theta"], data)["v"])
    exact = exact_probabilities(np.einsum("dof,nf->ndo", data.features, values)).mean(0)
    np.testing.assert_allclose(found, exact, atol=1e-9)
    shares = np.asarray(predict_choice_probabilities(jax.random.key(1), MODEL, draws, data, vote=True))
    np.testing.assert_allclose(DRAWS * shares, np.round(DRAWS * shares), atol=1e-6)
    assert (np.abs(shares - exact) < 5 * np.sqrt(exact * (1 - exact) / DRAWS) + 1e-9).all()
    np.testing.assert_allclose(shares.sum(-1), 1, rtol=1e-6)
    ahead = np.diff(np.sort(exact, axis=-1)[:, -2:])[:, 0] > 0.25
    assert ahead.sum() > 20 and (exact.argmax(-1) == shares.argmax(-1))[ahead].all()


def test_the_oracle_errs_as_often_as_the_noise(toy):
    """Within four standard errors over 2000 decisions; and its calibration within four of each bin's."""
    utilities = toy.decisions.features @ toy.values
    floor = noise_floor(utilities, toy.decisions)
    assert floor == pytest.approx(1 - exact_probabilities(utilities).max(-1).mean(), abs=1e-9)
    error = choice_error(utilities.argmax(-1), toy.decisions)
    assert abs(error - floor) < 4 * np.sqrt(floor * (1 - floor) / 2000)
    assert 0.05 < floor < 0.6
    table = calibration(exact_probabilities(utilities), toy.decisions)
    assert table.options.sum() == 6000 and (np.abs(table.chosen - table.predicted) < 4 * table.error).all()
    wrong = calibration(exact_probabilities(3 * utilities), toy.decisions)
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
        calibration(exact_probabilities(utilities), weighted),
        calibration(exact_probabilities(many), repeated),
    )
    for one, other in zip(*tables, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)
    none = weighted._replace(weight=np.where(weighted.choice < 0, 1, 0))
    for measure in (
        lambda: choice_error(predicted, none),
        lambda: noise_floor(utilities, none),
        lambda: calibration(np.full((40, 3), 1 / 3), none),
    ):
        with pytest.raises(ValueError, match="no known choice of positive weight"):
            measure()


def test_held_out_decisions_need_not_have_every_subject():
    sets = np.random.default_rng(0).normal(size=(4, 3, 2))
    model, theta = NoisyMDP(1.0, "features"), np.array([[[1.0, 0.0], [0.0, 1.0], [-1.0, 2.0]]] * 100)
    data = Decisions.from_list(sets, subject=[0, 1, 1, 0])
    found = predict_choice_probabilities(None, model, {"theta": theta}, data)
    each = exact_probabilities(
        np.stack([one @ theta[0, who] for one, who in zip(sets, data.subject, strict=True)])
    )
    np.testing.assert_allclose(found, each, atol=1e-5)
    with pytest.raises(
        ValueError, match=r"theta of shape \(100, 1, 2\): pass \(draw, 2, 2\), with at least 2 subjects"
    ):
        predict_choice_probabilities(None, model, {"theta": theta[:, :1]}, data)


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        ({}, "draws have no theta, but nothing"),
        ({"v": np.zeros((3, 7))}, "draws have no theta, but v"),
        ({"theta": np.zeros((0, 6))}, "draws have no draw of theta"),
        ({"theta": np.full((2, 6), np.nan)}, r"draws have theta\[0, 0\], which is not finite"),
        (
            {"theta": np.zeros((5, 2, 6))},  # more chains than draws: subjects, say
            r"theta of shape \(5, 2, 6\): pass \(draw, 6\).*or with a leading chain axis",
        ),
    ],
)
def test_samples_that_are_no_draws_are_named(toy, samples, message):
    with pytest.raises(ValueError, match=message):
        predict_choice_probabilities(None, MODEL, samples, toy.decisions)


def broken(place, value):
    """Equal probabilities, but for one entry."""
    table = np.full((4, 3), 1 / 3)
    table[place] = value
    return table


@pytest.mark.parametrize("value", [2.0, -0.1, np.nan, np.inf])
def test_what_is_no_probability_is_named(toy, value):
    data = toy.decisions.take(np.arange(4))
    with pytest.raises(ValueError, match=r"probabilities\[2, 1\] is .*: pass probabilities in \[0, 1\]"):
        calibration(broken((2, 1), value), data)
    fewer = data._replace(legal=np.arange(3) != np.where(np.arange(4) == 2, 1, -1)[:, None])
    fewer = fewer._replace(choice=np.zeros(4, int))
    assert calibration(broken((2, 1), value), fewer).options.sum() == 11


def test_bad_input_is_named(toy):
    data = toy.decisions.take(np.arange(4))
    for key in (3, None):
        with pytest.raises(TypeError, match=f"key must be one typed key, not {type(key).__name__}"):
            predict_choice_probabilities(key, MODEL, {"theta": jnp.zeros((3, 6))}, data, vote=True)
    with pytest.raises(ValueError, match=r"predicted\[1\] is nan, not an option"):
        choice_error([0, np.nan, 1, 1], data)
    with pytest.raises(ValueError, match=r"predicted\[0\] is 3, not an option: pass indices from 0 to 2"):
        choice_error([3, 0, 1, 1], data)
    with pytest.raises(TypeError, match="predicted has dtype bool"):
        choice_error([True, False, True, True], data)
    with pytest.raises(ValueError, match=r"utilities has shape \(3,\), not \(4, 3\)"):
        noise_floor(np.zeros(3), data)
    with pytest.raises(ValueError, match=r"utilities\[0, 0\] is nan"):
        noise_floor(np.full((4, 3), np.nan), data)
    with pytest.raises(ValueError, match=r"theta of shape \(3, 5\): pass \(draw, 6\)"):
        predict_choice_probabilities(None, MODEL, {"theta": jnp.zeros((3, 5))}, data)
    with pytest.raises(ValueError, match=r"predicted has shape \(3,\)"):
        choice_error([0, 1, 2], data)
    with pytest.raises(ValueError, match="num_bins must be at least 1, not 0"):
        calibration(np.ones((4, 3)), data, 0)
