"""Predictions given covariates of the steps to come, against sums over paths."""

from __future__ import annotations

import itertools
import types

import jax
import numpy as np
import pytest

import ethogram
from ethogram.fits.forecasts import forecast_covariates

LENGTHS, STEPS, DRAWS = (4, 3), 2, 4000
X = [np.array([0.5, -1.0, 2.0, 0.3]), np.array([1.0, 0.2, -0.7])]
FUTURE = np.array([[1.5, -0.4], [0.1, 2.0]])
CENTRE = np.concatenate(X).mean()
CHOICES = [[0.0, 1.0, 1.0, 0.0], [1.0, 0.0, 1.0]]
INITIAL = np.array([0.3, 0.7])
ODDS, EFFECT = np.array([-1.2, -0.3]), np.array([0.8, -0.5])
B, W = np.array([-0.4, 0.9]), np.array([1.5, -0.6])
SITES = {
    "initial": INITIAL,
    "log_odds": np.array([[0, ODDS[0]], [ODDS[1], 0]]),
    "effect": np.array([[0, EFFECT[0]], [EFFECT[1], 0]])[..., None],
    "intercept": B[:, None],
    "weight": W[:, None, None],
}
DWELL = {"dwell_mean": np.array([4.0, 2.5]), "dwell_size": np.ones(2)}
"""Of size 1, so that states have no memory."""


def sessions():
    return ethogram.Trajectories.from_list(
        [np.array(part)[:, None] for part in CHOICES],
        covariates={"x": X, "sex": [["f"] * 4, ["m"] * 3]},
        subject=[0, 1],
    )


def fit_of(model, data, sites):
    """What predictions take of a fit: its bound model, and draws, all of them alike."""
    bound = model.bind(data)
    each = {
        name: np.broadcast_to(site, (1, DRAWS, *site.shape)).astype(float) for name, site in sites.items()
    }
    found = types.SimpleNamespace(model=bound, sites=each)
    return types.SimpleNamespace(model=bound, _key=jax.random.key(3), draws=lambda count: found)


def enumerated(row, matrix):
    """Probabilities (step, state) of the states to come, and of choice 1 there, by sums over paths."""
    x = np.concatenate([X[row], FUTURE[row]]) - CENTRE
    chance = 1 / (1 + np.exp(-B - W * x[:, None]))
    weights = np.zeros((STEPS, 2))
    for path in itertools.product(range(2), repeat=len(x)):
        weight = INITIAL[path[0]]
        for time, (one, other) in enumerate(itertools.pairwise(path)):
            weight *= matrix(x[time])[one, other]
        for time, choice in enumerate(CHOICES[row]):
            weight *= chance[time, path[time]] if choice else 1 - chance[time, path[time]]
        for step in range(STEPS):
            weights[step, path[LENGTHS[row] + step]] += weight
    probability = weights / weights.sum(1, keepdims=True)
    return probability, (probability * chance[LENGTHS[row] :]).sum(1)


def by_log_odds(x):
    change = 1 / (1 + np.exp(-ODDS - EFFECT * x))
    return np.array([[1 - change[0], change[0]], [change[1], 1 - change[1]]])


def by_dwell_times(x):
    leave = 1 / DWELL["dwell_mean"]
    return np.array([[1 - leave[0], leave[0]], [leave[1], 1 - leave[1]]])


@pytest.mark.parametrize("dwell", ["geometric", "negative-binomial"])
def test_predictions_are_sums_over_paths(dwell):
    data, emission = sessions(), ethogram.ChoiceEmission("x")
    if dwell == "geometric":
        model, sites = ethogram.RoleHMM(2, emission, transition=ethogram.Covariates("x")), SITES
        matrix = by_log_odds
    else:
        model = ethogram.RoleHMM(2, emission, dwell="negative-binomial")
        sites = {**SITES, **DWELL, "effect": np.zeros((2, 2, 0)), "log_odds": np.zeros((2, 2))}
        matrix = by_dwell_times
    fit = fit_of(model, data, sites)
    found = forecast_covariates(fit, data, STEPS, DRAWS, at={"x": FUTURE})
    for row in range(2):
        probability, chance = enumerated(row, matrix)
        np.testing.assert_allclose(found.probability[row], probability, atol=2e-5)
        np.testing.assert_allclose(found.response[row, :, 0], chance, atol=2e-5)
        share = found.observations[:, row, :, 0].mean(0)
        assert (np.abs(share - chance) < 4 * np.sqrt(chance * (1 - chance) / DRAWS)).all()
    if dwell == "geometric":
        coming = ethogram.Trajectories.from_list([np.zeros((2, 1))] * 2, covariates={"x": list(FUTURE)})
        again = forecast_covariates(fit, data, num_draws=DRAWS, future=coming)
        np.testing.assert_array_equal(again.observations, found.observations)
        with pytest.raises(ValueError, match="future has subject 1 in place 0, where the data have 0"):
            who = np.arange(2)
            swapped = coming._replace(subject=who[::-1])
            forecast_covariates(fit, data._replace(subject=who), num_draws=DRAWS, future=swapped)


def test_other_covariates_keep_their_last_values_and_levels_are_those_of_the_data():
    data = sessions()
    model = ethogram.RoleHMM(2, ethogram.ChoiceEmission("x"), transition=ethogram.Covariates("x + sex"))
    sites = {**SITES, "effect": np.concatenate([SITES["effect"], SITES["effect"]], -1)}
    fit = fit_of(model, data, sites)
    kept = forecast_covariates(fit, data, STEPS, 2, at={})
    last = {"x": np.array([[0.3], [-0.7]]), "sex": [["f"], ["m"]]}
    np.testing.assert_array_equal(
        kept.probability, forecast_covariates(fit, data, STEPS, 2, last).probability
    )
    other = forecast_covariates(fit, data, STEPS, 2, at={"sex": "m"}).probability
    np.testing.assert_array_equal(other[1], kept.probability[1])
    assert np.abs(other[0] - kept.probability[0]).max() > 1e-3
    for wrong, message in (
        ({"at": {"sex": "x"}}, "contains 'x', which is not in its levels"),
        ({"at": {"hour": 1}}, "no covariate of the data: they have x, sex"),
        ({"at": {"x": [1.0, 2.0, 3.0]}}, r"shape \(3,\): give one value"),
        ({"at": {"x": np.nan}}, "give finite numbers"),
        ({"at": {}, "future": data}, "both at and future"),
        ({"future": data}, "has 2 sequences of 3 to 4 steps"),
        ({"future": data.take([1]), "num_draws": 2}, "has 1 sequences"),
        ({"at": {}, "steps": 0}, "steps must be at least 1"),
        ({}, r"need the covariates of the steps to come, sex, x: give at="),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            forecast_covariates(fit, data, **wrong)
