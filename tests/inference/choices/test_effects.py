"""Shares, marginal effects and elasticities against finite differences of probabilities in closed form."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from scipy.special import log_ndtr
from scipy.stats import norm

from ethogram.inference.choices.effects import (
    choice_shares,
    elasticities,
    marginal_effects,
)
from ethogram.inference.choices.welfare import willingness_to_pay
from ethogram.inference.convergence import LEAST_ESS
from ethogram.models.choices.decisions import Decisions
from ethogram.models.choices.noisy_mdp import NoisyMDP
from ethogram.models.data.trajectories import Metadata

MODEL = NoisyMDP(9.0, "features")


def decisions(**parts):
    random = np.random.default_rng(0)
    features = random.uniform(1, 3, size=(30, 2, 2))
    names = Metadata(feature_names=["hours", "price"])
    data = Decisions(features, np.ones((30, 2), bool), np.zeros(30, int), metadata=names)
    return data._replace(**parts)


def constant(theta):
    """As many equal draws as a summary needs."""
    return np.repeat([theta], LEAST_ESS, axis=0)


def shares(features, theta, weight):
    first = norm.cdf((features[:, 0] - features[:, 1]) @ theta / np.sqrt(2))
    return np.array([weight @ first, weight @ (1 - first)]) / weight.sum()


@pytest.mark.parametrize(
    ("weight", "beta"), [pytest.param(None, None, marks=pytest.mark.slow), (np.arange(30.0), 0.6)]
)
def test_shares_and_their_derivatives(weight, beta):
    theta, data = np.array([0.7, -0.4]), decisions(weight=weight)
    model, samples = NoisyMDP(9.0, "features", beta=beta), {"theta": constant(theta)}
    often = np.ones(30) if weight is None else weight
    with jax.enable_x64(True):
        found = choice_shares(model, samples, data)
        slopes = marginal_effects(model, samples, data, "price")
        percent = elasticities(model, samples, data, 1)
    theta = theta * (beta or 1.0)
    base = shares(data.features, theta, often)
    np.testing.assert_allclose(found.mean, base, atol=1e-9)
    step = 1e-5
    for option in range(2):
        more, scaled = data.features.copy(), data.features.copy()
        more[:, option, 1] += step
        scaled[:, option, 1] *= 1 + step
        changed = (shares(more, theta, often) - base) / step
        np.testing.assert_allclose(slopes.mean[:, option], changed, atol=1e-5)
        relative = (shares(scaled, theta, often) / base - 1) / step
        np.testing.assert_allclose(percent.mean[:, option], relative, atol=1e-4)


def test_bands_are_of_the_draws():
    draws = np.random.default_rng(1).normal((0.7, -0.4), 0.1, size=(500, 2))
    data = decisions()
    found = choice_shares(MODEL, {"theta": draws}, data, probability=0.5)
    each = np.array([shares(data.features, theta, np.ones(30)) for theta in draws])
    np.testing.assert_allclose(found.lower, np.percentile(each, 25, axis=0), rtol=1e-4)
    np.testing.assert_allclose(found.median, np.percentile(each, 50, axis=0), rtol=1e-4)
    assert found.probability == 0.5


def test_subjects_use_their_own_values():
    theta = np.array([[0.7, -0.4], [-0.2, -1.0]])
    who = np.arange(30) % 2
    data = decisions(subject=who)
    found = marginal_effects(MODEL, {"theta": constant(theta)}, data, 0)
    parts = [
        marginal_effects(MODEL, {"theta": constant(theta[i])}, decisions().take(who == i), 0).mean
        for i in range(2)
    ]
    np.testing.assert_allclose(found.mean, np.mean(parts, axis=0), rtol=1e-4)
    paid = willingness_to_pay(MODEL, {"theta": constant(theta)}, data, "hours", "price")
    np.testing.assert_allclose(paid.median, [0.7 / 0.4, -0.2], rtol=1e-6)


def test_bands_print_their_names_and_units():
    names = Metadata(
        feature_names=["hours", "price"], feature_units=["h", "euro"], action_names=["bus", "car"]
    )
    data, samples = decisions(metadata=names), {"theta": constant([-0.7, -0.4])}
    paid = willingness_to_pay(MODEL, samples, data, "hours", "price")
    title = "willingness to pay, euro per h of hours: posterior median and 90 % interval"
    lines = repr(paid).splitlines()
    assert lines[0] == title and lines[3].split() == ["hours"] + ["-1.75"] * 3
    assert lines[4] == "P(price < 0) = 1" and paid.mean is None
    slopes = marginal_effects(MODEL, samples, data, "price").to_table()
    assert slopes.index.names == ["share of", "price of"] and slopes.loc[("bus", "car"), "mean"] > 0
    nameless = willingness_to_pay(MODEL, samples, decisions(metadata=Metadata()), 0, 1)
    assert "units of feature 1 per unit of feature 0" in repr(nameless)
    each = willingness_to_pay(
        MODEL, {"theta": constant([[-0.7, -0.4]] * 2)}, decisions(subject=np.arange(30) % 2), 0, 1
    )
    assert each.to_table().loc[("hours", "1"), "median"] == pytest.approx(-1.75)


def test_a_slot_without_options_has_no_elasticity():
    data = decisions(legal=np.broadcast_to([True, False], (30, 2)))
    samples = {"theta": constant([0.7, -0.4])}
    np.testing.assert_allclose(choice_shares(MODEL, samples, data).mean, [1, 0], atol=1e-6)
    found = elasticities(MODEL, samples, data, 0).mean
    assert np.isnan(found[1]).all()
    np.testing.assert_allclose(found[0], 0, atol=1e-6)


def log_shares(mu):
    """Log probabilities of three options by a sum over the noise of each, in logarithms."""
    found, top = [], max(mu)
    x = np.linspace(-50, 50, 2_001)
    for own in range(3):
        at = x + top
        logs = norm.logpdf(at - mu[own]) + sum(log_ndtr(at - mu[j]) for j in range(3) if j != own)
        found.append(np.logaddexp.reduce(logs) + np.log(x[1] - x[0]))
    return np.array(found)


def test_elasticities_of_shares_that_underflow():
    """Single precision, where the share of an option that is 19 behind is no number above zero."""
    samples, three = {"theta": constant([1.0])}, np.array([1.0, 30.0, 29.5])
    data = Decisions.from_list([[[0.0], [19.0]], [[0.0], [40.0]], three[:, None], [[0.0], [3.0]]])
    with jax.enable_x64(False):
        alone, found, of_three = (
            elasticities(MODEL, samples, data._replace(weight=np.array(weight)), 0).mean
            for weight in ([1.0, 0, 0, 0], [1.0, 1, 0, 0], [0.0, 0, 1, 0])
        )
        effect = marginal_effects(MODEL, samples, data._replace(weight=np.eye(4)[3]), 0).mean
    rate = np.exp(norm.logpdf(-19 / np.sqrt(2)) - norm.logcdf(-19 / np.sqrt(2))) / np.sqrt(2)
    assert 19 * rate == pytest.approx(181.5, abs=0.1)
    np.testing.assert_allclose(alone[0, :2], [0, -19 * rate], rtol=1e-5)
    # The share over both decisions is that of the first one, to rounding.
    np.testing.assert_allclose(found[0, :2], [0, -19 * rate], rtol=1e-5)
    step = 1e-5
    for option in range(3):
        moved = step * three[option] * np.eye(3)[option]
        truth = (log_shares(three + moved) - log_shares(three - moved)) / (2 * step)
        np.testing.assert_allclose(of_three[:, option], truth, rtol=1e-3, atol=1e-4)
    slope = norm.pdf(3 / np.sqrt(2)) / np.sqrt(2)
    np.testing.assert_allclose(effect[:2, :2], slope * np.array([[1, -1], [-1, 1]]), rtol=1e-5)


def test_slots_of_decisions_that_do_not_count_have_no_elasticity():
    data = decisions(
        legal=np.stack([np.ones(30, bool), np.arange(30) > 9], axis=1), weight=np.arange(30) < 10
    )
    data = data._replace(weight=data.weight.astype(float))
    found = elasticities(MODEL, {"theta": constant([0.7, -0.4])}, data, 0).mean
    assert np.isnan(found[1]).all() and np.isfinite(found[0]).all()


@pytest.mark.parametrize("feature", [0.7, True, None])
@pytest.mark.parametrize("ask", [marginal_effects, elasticities])
def test_features_are_numbers_or_names(ask, feature):
    with pytest.raises(TypeError, match=f"feature must be an integer, not {feature}"):
        ask(MODEL, {"theta": np.zeros((3, 2))}, decisions(), feature)
    with pytest.raises(TypeError, match="feature must be an integer, not True"):
        willingness_to_pay(MODEL, {"theta": np.zeros((3, 2))}, decisions(), True, 1)


@pytest.mark.parametrize("ask", [marginal_effects, elasticities])
def test_probabilities_of_next_states_have_no_unit_more(ask):
    data = Decisions.from_list([np.eye(2)] * 3)
    with pytest.raises(ValueError, match='of kind "tabular", whose features are transition probabilities'):
        ask(NoisyMDP(9.0), {"theta": np.zeros((3, 1))}, data, 0)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda s, d: marginal_effects(MODEL, s, d, "speed"), "feature is 'speed': pass an index, or one of"),
        (lambda s, d: elasticities(MODEL, s, d, 2), "feature must be at most 1, not 2"),
        (lambda s, d: willingness_to_pay(MODEL, s, d, 0, "hours"), "feature and price are both"),
        (lambda s, d: willingness_to_pay(NoisyMDP(), s, d, 0, 1), "tabular"),
        (lambda s, d: choice_shares(MODEL, {"theta": np.zeros((3, 5))}, d), r"shape \(3, 5\)"),
        (lambda s, d: choice_shares(MODEL, s, d, probability=2), "probability is 2"),
        (lambda s, d: choice_shares(MODEL, s, d._replace(weight=np.zeros(30))), "weight is all zero"),
    ],
)
def test_what_is_wrong_is_named(ask, message):
    with pytest.raises(ValueError, match=message):
        ask({"theta": constant([0.0, 0.0])}, decisions())
