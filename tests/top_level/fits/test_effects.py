"""What a fit with covariates answers: effects, curves, budgets of the long run, files and code."""

from __future__ import annotations

import copy
import dataclasses
import types

import jax
import matplotlib
import numpy as np
import pytest

import ethogram
from ethogram.fits import effects, subjects

matplotlib.use("Agg")


@pytest.fixture(scope="module")
def fit():
    """Two states far apart, left more often where it is warm, by three subjects of two sexes."""
    rng = np.random.default_rng(0)
    count, steps = 3, 120
    warm = rng.normal(15, 5, (count, steps))
    states = np.zeros((count, steps), int)
    for row in range(count):
        for time in range(steps - 1):
            change = 1 / (1 + np.exp(1.5 - 0.2 * (warm[row, time] - 15)))
            states[row, time + 1] = states[row, time] ^ (rng.uniform() < change)
    data = ethogram.Trajectories.from_list(
        list((5.0 * states + rng.normal(size=states.shape))[..., None]),
        subject=["ann", "bob", "cat"],
        covariates={"temperature": list(warm), "sex": ["f", "m", "f"]},
        metadata=ethogram.Metadata(
            feature_names=["x"], covariate_names=["temperature", "sex"], covariate_units=["C", ""]
        ),
    )
    transition = ethogram.Covariates("temperature + sex")
    model = ethogram.RoleHMM(2, ethogram.GaussianEmission(1), transition=transition)
    return ethogram.fit(jax.random.key(0), model, data, num_samples=300, restarts=2, progress_bar=False)


def test_effects_are_odds_per_unit(fit):
    table = fit.effects(0.8)
    assert table.index.names == ["state", "next_state", "covariate"]
    draws = fit.result.sites["effect"][0]
    row = table.loc[("1", "0", "temperature")]
    assert row["mean"] == pytest.approx(draws[:, 1, 0, 0].mean(), rel=1e-5)
    assert row["odds_upper"] == pytest.approx(np.exp(np.quantile(draws[:, 1, 0, 0], 0.9)), rel=1e-4)
    assert row["lower"] < 0.2 < table.loc[("0", "1", "temperature"), "upper"]
    assert table.loc[("0", "1", "temperature"), "positive"] > 0.99


def test_long_run_shares_solve_the_equations_of_the_chain(fit):
    values, matrices, shares = effects.curves(fit, "temperature")
    np.testing.assert_allclose(np.einsum("npi,npij->npj", shares, matrices), shares, atol=1e-9)
    np.testing.assert_allclose(shares.sum(-1), 1)
    covariates = fit.result.model.transition
    sites, point = fit.result.sites, 7
    moved = values[point] - covariates.encoding.mean[0]
    sex = 0 - covariates.encoding.mean[1]  # most are female
    eta = sites["log_odds"][0, :, 0, 1] + sites["effect"][0, :, 0, 1] @ np.array([moved, sex])
    np.testing.assert_allclose(matrices[:, point, 0, 1], 1 / (1 + np.exp(-eta)), rtol=1e-4)


def test_time_budgets_at_settings_of_covariates(fit):
    table = fit.time_budget(at={"temperature": [5, 25], "sex": "f"})
    assert table.index.names == ["temperature", "sex", "state"]
    change = table.loc[("difference", "difference", "0"), "mean"]
    assert change == pytest.approx(table.loc[(25, "f", "0"), "mean"] - table.loc[(5, "f", "0"), "mean"])
    assert table.loc[(5, "f")]["mean"].sum() == pytest.approx(1)
    with pytest.raises(ValueError, match="'wind' is no covariate"):
        fit.time_budget(at={"wind": 3})
    with pytest.raises(ValueError, match="has not seen"):
        fit.time_budget(at={"sex": "x"})
    with pytest.raises(ValueError, match="no values for 'sex'"):
        fit.time_budget(at={"sex": []})
    with pytest.raises(ValueError, match="'wind' is no covariate"):
        effects.curves(fit, "temperature", {"wind": 3})
    with pytest.raises(ValueError, match="give one value"):
        effects.curves(fit, "temperature", {"sex": ["f", "m"]})


@pytest.mark.parametrize("name", ["temperature", "sex"])
def test_the_figure_of_a_covariate(fit, name):
    figure = fit.plot(name)
    assert figure.axes[0].get_xlabel() == ("temperature (C)" if name == "temperature" else "sex")
    assert [axes.get_title() for axes in figure.axes] == ["from 0", "from 1", "time in the long run"]
    matplotlib.pyplot.close(figure)


def test_effects_that_the_prior_decides_are_named(fit):
    """Sound effects are not; those as wide as the prior, or far out in it, are."""
    assert not [finding for finding in fit.diagnose() if finding.kind == "prior"]
    scale = 1 / fit.result.model.transition.encoding.spread[0]
    rng = np.random.default_rng(1)
    for mean, sd, said in (
        (0.0, 1.0, "as uncertain as their prior"),
        (4.0, 0.2, "from 0, which alone may bound"),
    ):
        sites = {name: site.copy() for name, site in fit.result.sites.items()}
        sites["effect"][0, :, 0, 1, 0] = scale * rng.normal(mean, sd, sites["effect"].shape[1])
        other = copy.copy(fit)
        other.result = dataclasses.replace(fit.result, sites=sites)
        other._diagnoses, other._paths = {}, {}
        found = [finding for finding in other.diagnose() if finding.kind == "prior"]
        assert said in str(found[0])
        assert "temperature of 0 to 1" in str(found[0])


def test_a_fit_with_covariates_is_a_fit_like_others(fit, tmp_path):
    assert fit.states().probability.shape == (3, 120, 2)
    new = fit.data.take([1])
    assert np.isfinite(fit.score(new).mean)
    fit.save(tmp_path / "fit")
    again = ethogram.load(tmp_path / "fit")
    assert again.effects().equals(fit.effects())
    made = eval(fit.code.split("model = ")[1].splitlines()[0], {"ethogram": ethogram})
    assert type(made) is type(fit.model)
    assert not any("[0, 0" in name for name in fit.summary().index if name.startswith(("effect", "log_odds")))
    assert {"log_odds", "effect"} <= {*fit.to_arviz().posterior.data_vars}
    with pytest.raises(TypeError, match="covariates of the steps to come"):
        fit.predict()
    with pytest.raises(TypeError, match="without Covariates has no effects"):
        ethogram.fit(
            jax.random.key(0), ethogram.RoleHMM(2, ethogram.GaussianEmission(1)), fit.data, num_steps=2, restarts=1,
            progress_bar=False,
        ).effects()  # fmt: skip


def test_subjects_stand_beside_their_population(fit):
    random = np.random.default_rng(3)
    log_odds, own = random.normal(size=(1, 200, 2, 2)), random.normal(size=(1, 200, 3, 2, 2))
    encoding = types.SimpleNamespace(
        subjects=("ann", "bob")
    )  # the last row is a subject that is not in the data
    draws = types.SimpleNamespace(
        sites={"log_odds": log_odds, "subject_log_odds": own},
        model=types.SimpleNamespace(transition=types.SimpleNamespace(encoding=encoding)),
    )
    varying = types.SimpleNamespace(
        has_draws=True, draws=lambda: draws, state_names=("rest", "run"), model=None
    )
    table = subjects.subjects(varying, 0.8)
    assert [*table.loc[("run", "rest")].index] == ["population", "ann", "bob"]
    bob = log_odds[0, :, 0, 1] + own[0, :, 1, 0, 1]
    row = table.loc[("rest", "run", "bob")]
    assert row["upper"] == pytest.approx(np.quantile(bob, 0.9))
    assert row["above_population"] == (own[0, :, 1, 0, 1] > 0).mean()
    figure = subjects.plot_subjects(varying)
    assert [text.get_text() for text in figure.axes[0].get_yticklabels()] in (["ann", "bob"], ["bob", "ann"])
    with pytest.raises(TypeError, match="subjects of this fit do not vary"):
        fit.plot("subjects")
