"""Residuals of choices and 0/1 features with covariates: standard normal under the truth alone."""

from __future__ import annotations

import types

import jax
import numpy as np
import pandas
import pytest
from scipy.special import ndtr
from scipy.stats import kstest

import ethogram
from ethogram.fits import effects
from ethogram.fits.checks import checked, pseudo_residuals

EMISSIONS = {
    "two": (ethogram.ChoiceEmission("x"), (2, 1)),
    "probit": (ethogram.ChoiceEmission("x", link="probit"), (2, 1)),
    "three": (ethogram.ChoiceEmission("x", num_options=3), (2, 2)),
    "logit": (ethogram.LogitEmission("x", num_features=2), (2, 2)),
}


@pytest.mark.parametrize("kind", EMISSIONS)
def test_residuals_are_standard_normal_under_the_truth_alone(kind):
    """Of 2000 frames; with slopes of the other sign the distance is far beyond chance."""
    emission, shape = EMISSIONS[kind]
    rng = np.random.default_rng(1)
    blank = ethogram.Trajectories.from_list(
        [np.zeros((500, emission.num_features))] * 4, covariates={"x": list(rng.normal(size=(4, 500)))}
    )
    model = ethogram.RoleHMM(2, emission)
    sites = {
        "initial": np.array([0.5, 0.5]),
        "log_odds": np.array([[0, -3.0], [-3.0, 0]]),
        "effect": np.zeros((2, 2, 0)),
        "intercept": np.broadcast_to([[1.0], [-0.5]], shape),
        "weight": np.broadcast_to([[2.0], [-0.5]], shape)[..., None],
    }
    made = model.simulate(jax.random.key(0), blank, parameters=sites)
    bound = model.bind(made.data)

    def distance(own):
        draws = {name: np.asarray(site)[None] for name, site in own.items()}
        return kstest(
            ndtr(pseudo_residuals(jax.random.key(1), bound, draws, made.data)).ravel(), "uniform"
        ).pvalue

    fit = types.SimpleNamespace(model=model, draws=lambda count: types.SimpleNamespace(model=bound))
    assert checked(fit, made.data) is bound
    assert distance(sites) > 1e-3
    assert distance({**sites, "intercept": sites["intercept"] + 1.5}) < 1e-6


def test_dwell_times_of_few_bouts_are_said_to_be_those_of_the_prior():
    """Of 30 and of 5 whole bouts, and of a size that is as uncertain as its prior."""
    names = [*["0"] * 30, *["1"] * 5, *["2"] * 30]
    table = pandas.DataFrame({"state": names, "cut": [""] * len(names)})
    fit = types.SimpleNamespace(bouts=lambda: table, state_names=("0", "1", "2"))
    rng = np.random.default_rng(0)
    draws = {"dwell_size": np.exp(rng.normal(0, [0.3, 0.3, 1.5], (500, 3)))}
    (finding,) = effects._of_dwell_times(fit, draws)
    assert "1 (5 whole bouts), 2 (30 whole bouts)" in finding.evidence
    draws["dwell_size"] = draws["dwell_size"][:, :1]
    sure = types.SimpleNamespace(bouts=lambda: table, state_names=("0",))
    assert not [*effects._of_dwell_times(sure, draws)]
