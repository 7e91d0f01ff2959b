"""Corrected fits: whose draws they have, the names of their columns, and files.

Draws of Gibbs sweeps are compared with the exact posterior in the tests of the sweeps.
"""

import functools

import jax
import numpy as np
import pytest

import ethogram
from ethogram.fits import corrected

NUM_STEPS = {"num_steps": 50, "restarts": 1, "progress_bar": False}


@pytest.fixture(scope="module")
def narrow():
    model = ethogram.RoleHMM(2, ethogram.CategoricalEmission(2))
    data = ethogram.Trajectories.from_list(list(np.random.default_rng(0).integers(2, size=(4, 8, 1))))
    return ethogram.fit(jax.random.key(0), model, data, **NUM_STEPS).rename({0: "rest"})


@pytest.fixture(scope="module")
def right(narrow):
    return narrow.corrected()


def test_columns_say_whose_they_are(narrow, right):
    before, after = narrow.summary(), right.summary()
    assert list(before.columns) == ["mean", "q_sd", "q_lower", "q_upper", "ess", "r_hat"]
    assert list(after.columns) == ["mean", "sd", "lower", "upper", "ess", "r_hat"]
    assert list(before.index) == list(after.index) and "initial[rest]" in after.index
    assert after["ess"].min() > 500 and after["r_hat"].max() < 1.01
    assert "Gibbs" in right.to_arviz().posterior.attrs["draws_from"]
    assert right.corrected() is right and right.code.endswith("fit = fit.corrected()")


def test_corrected_fits_are_saved_and_read(right, tmp_path):
    right.save(tmp_path / "fit")
    again = ethogram.load(tmp_path / "fit")
    assert again.summary().equals(right.summary()) and again.method == "corrected"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the draws have not converged")
def test_intents_are_corrected_by_nuts(monkeypatch):
    few = functools.partial(corrected.refresh_posterior, num_warmup=50, num_draws=100, num_chains=1)
    monkeypatch.setattr(corrected, "refresh_posterior", few)
    model = ethogram.AgentMarkov(2, 2, truncation=2, beta_prior="fixed", stickiness=None)
    made = model.simulate(jax.random.key(0), np.array([[0, 1], [1, 0]]), np.array([0, 1, 0, 1]), 20)
    fit = ethogram.fit(jax.random.key(1), model, made.data, **NUM_STEPS)
    right = fit.corrected()
    assert "NUTS" in right.to_arviz().posterior.attrs["draws_from"]
    narrow, wide = fit.summary()["q_sd"], right.summary()["sd"]
    assert wide.loc[narrow.index].median() > narrow.median()
