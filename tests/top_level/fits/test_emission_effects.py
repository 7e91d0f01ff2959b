"""A fit of choices by states whose choices and switching depend on covariates: tables, curves, files and findings."""

from __future__ import annotations

import copy
import dataclasses
import types

import jax
import matplotlib
import numpy as np
import pytest
from scipy.optimize import minimize

import ethogram
from ethogram.fits import effects

matplotlib.use("Agg")
SETTINGS = {"num_samples": 200, "restarts": 2, "progress_bar": False}


def sessions(rng, count, steps):
    """Choices by two states: one follows the stimulus, one takes option 1; the stimulus and the truth."""
    stimulus, states = rng.uniform(-1, 1, (count, steps)), np.zeros((count, steps), int)
    for time in range(1, steps):
        states[:, time] = states[:, time - 1] ^ (rng.uniform(size=count) < 0.03)
    eta = np.where(states, 2.0, 6 * stimulus)
    choices = (rng.uniform(size=eta.shape) < 1 / (1 + np.exp(-eta))).astype(float)
    data = ethogram.Trajectories.from_list(
        list(choices[..., None]),
        covariates={"stimulus": list(stimulus), "wind": list(rng.normal(size=eta.shape))},
    )
    return data, states, stimulus, choices


@pytest.fixture(scope="module")
def found():
    return sessions(np.random.default_rng(0), 4, 100)


@pytest.fixture(scope="module")
def fit(found):
    model = ethogram.RoleHMM(2, ethogram.ChoiceEmission("stimulus"), transition=ethogram.Covariates("wind"))
    return ethogram.fit(jax.random.key(0), model, found[0], **SETTINGS)


def test_the_state_that_follows_the_stimulus_comes_first(fit, found):
    agree = (fit.states().probability.argmax(-1) == found[1]).mean()
    assert agree > 0.8
    assert fit.result.restart_heights.shape == (2,)
    assert fit.result.log_evidence < 0


def test_effects_of_both_parts_are_in_one_table(fit):
    table = fit.effects(0.8)
    assert table.index.names == ["part", "state", "outcome", "covariate"]
    draws = fit.result.sites["weight"][0, :, 0, 0, 0].astype(float)
    row = table.loc[("emission", "0", "1", "stimulus")]
    assert row["mean"] == pytest.approx(draws.mean(), rel=1e-5)
    assert row["odds_upper"] == pytest.approx(np.exp(np.quantile(draws, 0.9)), rel=1e-4)
    assert row["lower"] > 3
    assert {"intercept"} <= {*table.loc["emission"].index.get_level_values("covariate")}
    assert {*table.loc["transition"].index.get_level_values("covariate")} == {"wind"}


def test_curves_of_choices_are_probabilities_at_the_covariate(fit):
    values, means = effects.responses(fit, "stimulus")
    sites, point = fit.result.sites, 5
    moved = values[point] - float(fit.result.model.emission.encoding.mean[0])
    eta = sites["intercept"][0, :, 1, 0] + sites["weight"][0, :, 1, 0, 0] * moved
    np.testing.assert_allclose(means[:, point, 1, 0], 1 / (1 + np.exp(-eta)), rtol=1e-4)
    for name, titles in (
        ("stimulus", ["P(option 1)"]),
        ("wind", ["from 0", "from 1", "time in the long run"]),
    ):
        figure = fit.plot(name)
        assert [axes.get_title() for axes in figure.axes] == titles
        matplotlib.pyplot.close(figure)
    with pytest.raises(ValueError, match="it takes stimulus, wind"):
        fit.plot("sun")
    with pytest.raises(ValueError, match="of transitions: it takes wind"):
        fit.time_budget(at={"stimulus": 1.0})
    matplotlib.pyplot.close(fit.plot())


def test_a_fit_of_choices_is_a_fit_like_others(fit, tmp_path):
    new = sessions(np.random.default_rng(5), 2, 40)[0]
    assert np.isfinite(fit.score(new).mean)
    codes = np.asarray(new.observations).copy()
    codes[0, 3] = 2
    with pytest.raises(ValueError, match="lies outside the 2 options"):
        fit.score(new._replace(observations=codes))
    fit.save(tmp_path / "fit")
    again = ethogram.load(tmp_path / "fit")
    assert again.effects().equals(fit.effects())
    np.testing.assert_array_equal(again.result.restart_heights, fit.result.restart_heights)
    made = eval(fit.code.split("model = ")[1].splitlines()[0], {"ethogram": ethogram})
    assert type(made) is type(fit.model)
    weight = fit.to_arviz().posterior["weight"]
    assert weight.dims[2:] == ("state", "option", "emission_covariate")
    assert weight.emission_covariate.values.tolist() == ["stimulus"]
    assert any(name.startswith("weight") for name in fit.summary().index)
    with pytest.raises(TypeError, match="covariates of the steps to come"):
        fit.predict()
    with pytest.raises(ValueError, match="method"):
        ethogram.fit(jax.random.key(0), fit.model, fit.data, "cavi")


def test_slopes_that_the_prior_decides_are_named(fit):
    """Sound ones are not; one as wide as the prior is."""
    assert not [finding for finding in fit.diagnose() if "stimulus on" in str(finding)]
    sites = {name: site.copy() for name, site in fit.result.sites.items()}
    unit = float(np.asarray(fit.result.model.emission.weight_scale())[0, 0])
    sites["weight"][0, :, 1, 0, 0] = unit * np.random.default_rng(1).normal(4, 0.2, sites["weight"].shape[1])
    other = copy.copy(fit)
    other.result = dataclasses.replace(fit.result, sites=sites)
    other._diagnoses, other._paths = {}, {}
    said = [str(finding) for finding in other.diagnose() if finding.kind == "prior"]
    assert any("stimulus on 1 in state 1" in each and "which alone may bound" in each for each in said)


def test_effects_of_choices_name_the_functions_that_have_them():
    with pytest.raises(TypeError, match=r"ethogram\.choices\.marginal_effects"):
        effects.effects(types.SimpleNamespace(model=ethogram.Logit()), 0.9)


def test_one_state_is_a_penalised_logistic_regression(found):
    data, _, stimulus, choices = found
    fit = ethogram.fit(
        jax.random.key(0), ethogram.RoleHMM(1, ethogram.ChoiceEmission("stimulus")), data, **SETTINGS
    )
    centre, spread = stimulus.mean(), stimulus.std()

    def minus_log_density(theta):
        eta = theta[0] + theta[1] * (stimulus - centre) / spread
        return np.logaddexp(0, eta).sum() - eta[choices == 1].sum() + (theta**2).sum() / 8

    best = minimize(minus_log_density, np.zeros(2), method="BFGS")
    sd = np.sqrt(np.diag(best.hess_inv))
    draws = fit.result.sites
    own = draws["intercept"][0, :, 0, 0], draws["weight"][0, :, 0, 0, 0] * spread
    for each, mode, deviation in zip(
        own, best.x, sd, strict=True
    ):  # 200 draws, 4 standard errors and the skew
        assert abs(each.mean() - mode) < 0.35 * deviation
        assert each.std() == pytest.approx(deviation, rel=0.25)


@pytest.mark.slow
def test_nuts_has_the_posterior_of_choices(fit):
    chains = ethogram.fit(
        jax.random.key(0),
        fit.model,
        fit.data,
        "nuts",
        num_warmup=200,
        num_samples=300,
        num_chains=2,
        progress_bar=False,
    )
    assert chains.result.r_hat < 1.05
    table, other = chains.summary(), fit.summary()
    other = other.loc[table.index]
    assert (np.abs(table["mean"] - other["mean"]) < 0.45 * table["sd"]).all()


@pytest.mark.slow
def test_climbs_of_angles_start_at_their_directions():
    rng = np.random.default_rng(2)
    x = rng.normal(size=(2, 50))
    turns = 2 * np.arctan(0.5 * x) + rng.normal(scale=0.3, size=x.shape) + np.repeat([0.0, 1.5], 25)
    angles = np.angle(np.exp(1j * turns))
    data = ethogram.Trajectories.from_list(list(angles[..., None]), covariates={"x": list(x)})
    model = ethogram.RoleHMM(2, ethogram.RegressionEmission(ethogram.VonMisesEmission(), "x"))
    fit = ethogram.fit(jax.random.key(0), model, data, **SETTINGS)
    assert np.isfinite(fit.result.restart_heights).all()
    assert abs(fit.result.sites["weight"].mean() - 0.5) < 0.15


@pytest.mark.slow
def test_slopes_on_a_logarithmic_scale_are_factors_of_the_mean():
    rng = np.random.default_rng(4)
    x = rng.normal(size=(2, 60))
    counts = rng.poisson(np.exp(1 + 0.5 * x + np.tile(np.repeat([0.0, 2.0], 10), 6).reshape(2, 60)))
    data = ethogram.Trajectories.from_list(list(counts[..., None].astype(float)), covariates={"x": list(x)})
    model = ethogram.RoleHMM(2, ethogram.RegressionEmission(ethogram.PoissonEmission(), "x"))
    fit = ethogram.fit(jax.random.key(0), model, data, **SETTINGS)
    row = fit.effects(0.8).loc[("emission", "0", "0", "x")]
    draws = fit.result.sites["weight"][0, :, 0, 0, 0].astype(float)
    assert row["mean_ratio"] == pytest.approx(np.exp(draws.mean()), rel=1e-5)
    assert row["mean_ratio_upper"] == pytest.approx(np.exp(np.quantile(draws, 0.9)), rel=1e-5)
    assert np.isnan(row["odds_ratio"]) and 1.3 < row["mean_ratio"] < 2.1  # exp(0.5) is 1.65
