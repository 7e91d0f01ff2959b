"""What a fit with dwell times answers: estimates, distributions beside bouts, states, scores, files and refusals."""

from __future__ import annotations

import types

import jax
import matplotlib
import numpy as np
import pytest
from scipy.stats import nbinom

import ethogram
from ethogram.fits import dwell

matplotlib.use("Agg")

MEAN, SIZE = (8.0, 5.0), (8.0, 1.0)


@pytest.fixture(scope="module")
def made():
    """Two states far apart, the first with regular bouts."""
    rng = np.random.default_rng(0)
    paths = []
    for _ in range(4):
        path, state = [], int(rng.integers(2))
        while len(path) < 170:
            ends = SIZE[state] / (SIZE[state] + MEAN[state] - 1)
            path += [state] * (1 + rng.negative_binomial(SIZE[state], ends))
            state = 1 - state
        paths.append(path[20:170])
    states = np.array(paths)
    values = 6.0 * states + rng.normal(size=states.shape)
    return ethogram.Trajectories.from_list(list(values[..., None])), states


@pytest.fixture(scope="module")
def fit(made):
    model = ethogram.RoleHMM(2, ethogram.GaussianEmission(1), dwell="negative-binomial")
    return ethogram.fit(jax.random.key(0), model, made[0], num_samples=300, restarts=2, progress_bar=False)


def test_mean_and_size_are_estimated(fit, made):
    assert fit.method == "laplace"
    table = fit.summary()
    for state in range(2):
        for name, truth in (("dwell_mean", MEAN[state]), ("dwell_size", SIZE[state])):
            row = table.loc[f"{name}[{state}]"]
            assert abs(np.log(row["mean"] / truth)) < 3.5 * row["sd"] / row["mean"]
    assert table.loc["dwell_size[0]", "lower"] > 1.5  # more regular than geometric
    assert not any(name.startswith(("log_odds", "effect")) for name in table.index)
    assert (fit.states().path == made[1]).mean() > 0.99


def test_fitted_dwell_times_stand_beside_the_bouts(fit):
    table = fit.dwell_distribution(0.8)
    assert table.index.names == ["state", "dwell"]
    sites = fit.result.sites
    mean, size = (sites[f"dwell_{name}"][0, :, 0].astype(float) for name in ("mean", "size"))
    each = nbinom.pmf(6, size, size / (size + mean - 1))
    row = table.loc[("0", 7)]
    assert row["mean"] == pytest.approx(each.mean(), rel=1e-6)
    assert row["upper"] == pytest.approx(np.quantile(each, 0.9), rel=1e-6)
    bouts = fit.bouts()
    whole = bouts[(bouts["cut"] == "") & (bouts["state"] == "0")]
    assert row["bouts"] == (whole["frames"] == 7).sum()
    assert table.loc["0"]["observed"].sum() == pytest.approx(1)
    assert table.loc["0"]["mean"].sum() > 0.97
    figure = fit.plot("dwell")
    assert [axes.get_title() for axes in figure.axes] == ["0", "1"]
    matplotlib.pyplot.close(figure)
    with pytest.raises(ValueError, match="probability"):
        fit.dwell_distribution(1.0)


def test_a_fit_with_dwell_times_is_a_fit_like_others(fit, made, tmp_path):
    data = made[0]
    assert np.isfinite(fit.score(data.take([1])).mean)
    assert fit.sample_paths(5).shape == (5, 4, 150)
    assert 3 < float(fit.dwell_times().loc["1", "mean"]) < 8
    fit.save(tmp_path / "fit")
    again = ethogram.load(tmp_path / "fit")
    assert again.result.model.num_phases == fit.result.model.num_phases
    assert again.dwell_distribution().equals(fit.dwell_distribution())
    made_again = eval(fit.code.split("model = ")[1].splitlines()[0], {"ethogram": ethogram})
    assert type(made_again) is type(fit.model)
    assert {"dwell_mean", "dwell_size"} <= {*fit.to_arviz().posterior.data_vars}
    assert len([*fit.diagnose()]) >= 0
    with pytest.raises(TypeError, match="no covariates"):
        fit.effects()
    with pytest.raises(ValueError, match="no covariate of the formula"):
        fit.time_budget(at={"x": 1})
    with pytest.raises(ValueError, match="method"):
        ethogram.fit(jax.random.key(0), fit.model, data, "cavi")


def test_geometric_dwell_times_are_drawn_too(made):
    model = ethogram.RoleHMM(2, ethogram.GaussianEmission(1))
    plain = ethogram.fit(jax.random.key(0), model, made[0], num_steps=20, restarts=1, progress_bar=False)
    table = plain.dwell_distribution()
    assert table.loc[("0", 1), "lower"] > table.loc[("0", 1), "observed"]  # regular bouts are not geometric
    covered = ethogram.RoleHMM(2, ethogram.GaussianEmission(1), transition=ethogram.Covariates("x"))
    plain.model = covered
    with pytest.raises(TypeError, match="dwell='negative-binomial'"):
        plain.dwell_distribution()


def test_constant_transitions_beside_a_regression_have_geometric_dwell_times():
    log_odds = np.log([[1.0, 1 / 9], [1 / 3, 1.0]])
    found = types.SimpleNamespace(sites={"log_odds": np.tile(log_odds, (1, 3, 1, 1))})
    model = ethogram.RoleHMM(2, ethogram.ChoiceEmission("x"))
    mean, size = dwell._draws(types.SimpleNamespace(model=model, draws=lambda: found))
    np.testing.assert_allclose(mean, np.tile([10.0, 4.0], (3, 1)))
    np.testing.assert_array_equal(size, 1)
