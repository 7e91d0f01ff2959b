"""Willingness to pay, surplus and changes of shares against closed forms of the logit, with products of a formula."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from scipy.special import logsumexp, softmax

from ethogram.inference.choices import (
    consumer_surplus,
    elasticities,
    find_choice_mode,
    marginal_effects,
    share_changes,
    willingness_to_pay,
    wtp_space,
)
from ethogram.models.choices.decisions import Decisions
from ethogram.models.choices.logit_probit import Logit, Probit
from ethogram.models.data.metadata import Metadata

MODEL = Logit(9.0)
NAMES = ("price", "time", "price:income", "car", "car:sex[T.m]")


def trips(count=60, **changes):
    """A price and a time of three modes, an income and a sex; the features are those of `NAMES`."""
    random = np.random.default_rng(0)
    table = {
        "trip": np.repeat(np.arange(count), 2),
        "mode": np.tile(["bus", "car"], count),
        "price": random.uniform(1, 3, 2 * count),
        "time": random.uniform(1, 3, 2 * count),
        "income": np.repeat(random.uniform(1, 2, count), 2),
        "sex": np.repeat(random.permutation(["f", "m"] * (count // 2)), 2),
        "taken": (np.arange(2 * count) + np.repeat(random.integers(0, 2, count), 2)) % 2,
    }
    formula = "price + price:income + time | sex"
    return Decisions.from_table(
        table | changes, decision="trip", option="mode", chosen="taken", formula=formula
    )


DATA = trips()
INCOME = DATA.features[:, 0, 2] / DATA.features[:, 0, 0]
DRAWS = np.random.default_rng(1).normal((-1.2, -0.8, 0.2, 0.5, 0.3), 0.05, (400, 5))
SAMPLES = {"theta": DRAWS}


def chances(features):
    return softmax(features @ DRAWS.T, axis=1)  # (decision, option, draw)


def moved(data, option, share):
    """Features once a price is changed by a share of itself, with its product."""
    features = data.features.copy()
    features[:, option, [0, 2]] *= 1 + share
    return features


def test_effects_of_a_feature_are_with_its_products():
    assert DATA.metadata.feature_names == NAMES
    with jax.enable_x64(True):
        percent = elasticities(MODEL, SAMPLES, DATA, "price")
        own = marginal_effects(MODEL, SAMPLES, DATA, 3)
    with pytest.raises(
        ValueError, match="'price' enters price, price:income, of which a unit more is no one"
    ):
        marginal_effects(MODEL, SAMPLES, DATA, "price")
    base, step = chances(DATA.features), 1e-6
    for option in range(2):
        relative = chances(moved(DATA, option, step)).mean(0) / base.mean(0) - 1
        np.testing.assert_allclose(percent.mean[:, option], relative.mean(-1) / step, rtol=1e-4)
    assert (own.mean[:, 0] == 0).all() and own.mean[1, 1] > 0  # the bus has no constant that could change


def test_willingness_to_pay_is_of_the_ratio_at_covariates():
    band = willingness_to_pay(MODEL, SAMPLES, DATA, "time", "price", at={"income": 1.5}, probability=0.8)
    ratio = -DRAWS[:, 1] / (DRAWS[:, 0] + 1.5 * DRAWS[:, 2])
    np.testing.assert_allclose((band.lower, band.median, band.upper), np.percentile(ratio, (10, 50, 90)))
    assert band.mean is None and "mean" not in band.to_table() and "P(price < 0) = 1" in repr(band)
    car = willingness_to_pay(
        MODEL, SAMPLES, DATA, "car", "price", at={"income": 1.0, "sex": "m", "option": "car"}
    )
    assert car.median == pytest.approx(np.median(-(DRAWS[:, 3] + DRAWS[:, 4]) / (DRAWS[:, 0] + DRAWS[:, 2])))
    every = willingness_to_pay(MODEL, SAMPLES, DATA, None, 0).to_table()
    assert every.index.get_level_values(0).tolist() == [*NAMES[1:]]
    assert every.loc["time", "median"].item() == pytest.approx(np.median(-DRAWS[:, 1] / DRAWS[:, 0]))
    with pytest.raises(TypeError, match=r"at\['income'\] must be a real number"):
        willingness_to_pay(MODEL, SAMPLES, DATA, "time", "price", at={"income": "high"})
    for at, message in (
        (None, r"'price' enters 'price:income' too, and at has \[\]"),
        ({"income": 1, "sex": "x"}, "at has 'x' for 'sex': its levels are f, m"),
        ({"income": 1, "sex": "m", "option": "tram"}, "at has the option 'tram': pass one of"),
        ({"income": 1, "sex": "m", "incom": 2}, "at has 'incom', which enters no feature: pass some of"),
    ):
        with pytest.raises(ValueError, match=message):
            willingness_to_pay(MODEL, SAMPLES, DATA, "car", "price", at=at)


def test_a_price_that_may_not_deter_is_warned_of():
    draws = {"theta": DRAWS + np.array([1.1, 0, -0.2, 0, 0])}
    negative = (draws["theta"][:, 0] < 0).mean()
    assert 0.9 < negative < 0.99
    with pytest.warns(UserWarning, match=f"coefficient of price is negative with probability {negative:.3g}"):
        band = willingness_to_pay(MODEL, draws, DATA, "time", "price", at={"income": 0})
    assert f"P(price < 0) = {negative:.4g}" in repr(band)


def test_populations_have_the_spread_of_subjects_and_the_posterior_of_their_median():
    who = np.arange(DATA.num_decisions) % 5
    draws = DRAWS[:, None] * np.array([0.5, 1, 1, 1, 1])[:, None] ** (np.arange(5) == 1)
    data = DATA._replace(subject=who)
    band = willingness_to_pay(MODEL, {"theta": draws}, data, "time", 0, population=True, probability=0.5)
    ratio = -draws[..., 1] / draws[..., 0]
    table = band.to_table().loc["time"]
    np.testing.assert_allclose(table.loc["subjects"], np.percentile(ratio, (50, 25, 75)))
    np.testing.assert_allclose(table.loc["their median"], np.percentile(np.median(ratio, 1), (50, 25, 75)))
    with pytest.raises(ValueError, match="population=True needs subjects"):
        willingness_to_pay(MODEL, SAMPLES, DATA, "time", 0, population=True)


def test_a_dearer_car_changes_shares_and_surplus():
    dear = DATA.scale_feature("price", 1.5, option="car")
    np.testing.assert_allclose(dear.features, moved(DATA, 1, 0.5))
    band = share_changes(MODEL, SAMPLES, DATA, dear)
    one, two = chances(DATA.features).mean(0), chances(dear.features).mean(0)
    table = band.to_table()
    np.testing.assert_allclose(table.loc[("car", "change"), "mean"], (two - one)[1].mean(), rtol=1e-4)
    low = np.percentile((two - one)[1], 5)
    np.testing.assert_allclose(table.loc[("car", "change"), "lower"], low, rtol=1e-3)
    assert table.loc[("car", "after"), "mean"] == pytest.approx(two[1].mean(), rel=1e-5)
    lost = consumer_surplus(MODEL, SAMPLES, DATA, dear, 0)
    sums = [logsumexp(each.features @ DRAWS.T, axis=1).mean(0) for each in (DATA, dear)]
    truth = (sums[1] - sums[0]) / -DRAWS[:, 0]
    np.testing.assert_allclose(lost.median, [np.median(truth)], rtol=1e-4)
    assert lost.mean is None and lost.what.endswith("per decision, units of price")
    for change, message in (
        (
            lambda: consumer_surplus(Probit(9.0), SAMPLES, DATA, dear, 0),
            "the log sum is the expected maximum",
        ),
        (lambda: consumer_surplus(MODEL, SAMPLES, DATA, dear, "price"), "enters several features"),
        (
            lambda: consumer_surplus(MODEL, SAMPLES, DATA, dear.take([0]), 0),
            "before has 60 decisions, after 1",
        ),
        (
            lambda: consumer_surplus(MODEL, SAMPLES, DATA, dear._replace(weight=np.arange(60.0)), 0),
            "before and after differ in weight",
        ),
        (lambda: DATA.scale_feature("prise", 2), "feature is 'prise': pass one of the names"),
        (lambda: DATA.scale_feature("price", 2, option="tram"), "option is 'tram'"),
    ):
        with pytest.raises(ValueError, match=message):
            change()


def test_a_function_of_the_price_is_refused():
    prices = np.random.default_rng(2).uniform(1, 3, 120)
    table = {"trip": np.repeat(np.arange(60), 2), "price": prices, "taken": np.arange(120) % 2}
    data = Decisions.from_table(table, decision="trip", chosen="taken", formula="np.log(price) + price")
    for ask in (elasticities, marginal_effects):
        with pytest.raises(ValueError, match=r"'price' enters as np.log\(price\)"):
            ask(MODEL, {"theta": DRAWS[:, :2]}, data, "price")


def test_modes_have_names_and_the_same_optimum_in_the_space_of_willingness_to_pay():
    """Against the search of the other space, and the delta method by differences."""
    mode = find_choice_mode(Logit(np.inf), DATA)
    assert mode.names == [*NAMES] and str(mode).split()[2] == "price" and "log likelihood" in str(mode)
    found = wtp_space(mode, "price")
    assert found.index.tolist() == [*NAMES[1:], "price"]
    np.testing.assert_allclose(found["estimate"].iloc[0], -mode.theta[1] / mode.theta[0])

    def to_wtp(theta):
        return np.append(-theta[1:] / theta[0], theta[0])

    step = 1e-6
    slopes = np.array(
        [(to_wtp(mode.theta + step * e) - to_wtp(mode.theta - step * e)) / (2 * step) for e in np.eye(5)]
    )
    np.testing.assert_allclose(found["se"], np.sqrt(np.diag(slopes.T @ mode.covariance @ slopes)), rtol=1e-6)
    np.testing.assert_allclose(mode.to_table()["sd"], mode.deviation)
    with pytest.raises(ValueError, match="price is 'cost': pass one of the names"):
        wtp_space(mode, "cost")
    data = DATA._replace(features=DATA.features[..., :2], metadata=Metadata(action_names=["bus", "car"]))
    own = find_choice_mode(Logit(4.0, action_rewards=True), data)
    assert own.names == ["v[0]", "v[1]", "action_rewards[bus]", "action_rewards[car]"]
    assert own.to_table()["estimate"].iloc[-2:].sum() == pytest.approx(0)
