"""Laplace's approximation of roles with dwell times of their own, against NUTS and planted parameters."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import ethogram
from ethogram.models.roles.covariates import Covariates

APART = 40.0
"""Between the means of the states, so that the observations tell them."""


def bouts_data(lengths, means=(8.0, 5.0), sizes=(6.0, 1.0)):
    """Sequences of two states far apart, with dwell times of negative binomials."""
    rng = np.random.default_rng(7)
    values = []
    for length in lengths:
        path, state = [], int(rng.integers(2))
        while len(path) < length + 20:
            size, mean = sizes[state], means[state]
            path += [state] * (1 + rng.negative_binomial(size, size / (size + mean - 1)))
            state = 1 - state
        values.append((APART * np.array(path[20:][:length]) + rng.normal(size=length))[:, None])
    return ethogram.Trajectories.from_list(values)


@pytest.mark.slow
def test_nuts_has_the_same_posterior_of_dwell_times():
    """Sequences of one frame, and known roles, among them."""
    data = bouts_data((150, 150, 1, 60))
    states = np.full(data.observed.shape, -1)
    states[0, :5] = data.observations[0, :5, 0] > APART / 2
    data = data._replace(states=states)
    model = ethogram.RoleHMM(2, ethogram.GaussianEmission(1), dwell="negative-binomial", known_roles=True)
    settings = {"progress_bar": False, "num_warmup": 200, "num_samples": 600, "num_chains": 2}
    chains = ethogram.fit(jax.random.key(0), model, data, "nuts", **settings)
    first = ethogram.fit(jax.random.key(1), model, data, num_samples=2000, progress_bar=False)
    assert chains.result.r_hat < 1.05
    table, other = chains.summary(), first.summary()
    other = other.loc[table.index]
    assert (np.abs(table["mean"] - other["mean"]) < 0.35 * table["sd"]).all()
    assert (np.abs(np.log(table["sd"] / other["sd"])) < 0.4).all()


@pytest.mark.slow
def test_covariates_and_dwell_times_are_fitted_together():
    rng = np.random.default_rng(9)
    x = rng.normal(size=(4, 400))
    data = ethogram.Trajectories.from_list([np.zeros((400, 1))] * 4, covariates={"x": list(x)})
    model = ethogram.RoleHMM(
        3, ethogram.GaussianEmission(1), transition=Covariates("x"), dwell="negative-binomial"
    )
    effect = np.zeros((3, 3, 1))
    effect[0, 1:, 0] = [1.0, -1.0]
    truth = {
        "initial": np.full(3, 1 / 3),
        "mean": np.array([[0.0], [10.0], [20.0]]),
        "covariance": np.ones((3, 1, 1)),
        "dwell_mean": np.array([5.0, 8.0, 6.0]),
        "dwell_size": np.array([5.0, 1.0, 1.0]),
        "log_odds": np.zeros((3, 3)),
        "effect": effect,
    }
    made = model.simulate(jax.random.key(2), data, parameters=truth)
    fit = ethogram.fit(jax.random.key(0), model, made.data, restarts=2, progress_bar=False)
    table = fit.effects()
    assert table.loc[("0", "1", "x"), "lower"] < 1.0 < table.loc[("0", "1", "x"), "upper"]
    assert table.loc[("0", "1", "x"), "lower"] > 0.3
    for name in ("dwell_mean", "dwell_size"):
        draws = np.log(fit.result.sites[name][0])
        assert (np.abs(draws.mean(0) - np.log(truth[name])) < 3.5 * draws.std(0)).all()
    shares = fit.time_budget(at={"x": [-1.0, 1.0]})
    assert shares.loc[(1.0, "1"), "mean"] > shares.loc[(-1.0, "1"), "mean"]
