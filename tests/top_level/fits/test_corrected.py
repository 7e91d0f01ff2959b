"""Corrected fits against the exact posterior, by enumeration of the labels."""

import itertools

import jax
import numpy as np
import pytest
from scipy.special import gammaln

import ethogram

SYMBOLS = np.array([0, 0, 1, 1, 0, 1, 1, 0, 1, 0])
KNOWN = np.array([0, 0, 1, 1, -1, -1, -1, -1, -1, -1])  # roles; the other six are to be found
NUM_STEPS = {"num_steps": 50, "restarts": 1, "progress_bar": False}


def spread_of_initial():
    """Standard deviation of the probability that a sequence of one frame is in role 0."""

    def log_evidence(counts):  # of labels under a Dirichlet of ones
        return gammaln(counts + 1.0).sum() - gammaln(counts.sum() + counts.size)

    weights, moments = [], []
    for tail in itertools.product((0, 1), repeat=int((KNOWN < 0).sum())):
        role = np.concatenate([KNOWN[KNOWN >= 0], tail])
        counts, by_role = np.bincount(role, minlength=2), np.zeros((2, 2))
        np.add.at(by_role, (role, SYMBOLS), 1)
        weights.append(log_evidence(counts) + log_evidence(by_role[0]) + log_evidence(by_role[1]))
        successes, total = counts[0] + 1, counts.sum() + 2
        moments.append([successes / total, successes * (successes + 1) / (total * (total + 1))])
    mean, square = np.average(moments, axis=0, weights=np.exp(weights))
    return np.sqrt(square - mean**2)


@pytest.fixture(scope="module")
def narrow():
    model = ethogram.RoleHMM(2, ethogram.CategoricalEmission(2), known_roles=True)
    data = ethogram.Trajectories.from_list([[[x]] for x in SYMBOLS], states=[[role] for role in KNOWN])
    return ethogram.fit(jax.random.key(0), model, data, **NUM_STEPS).rename({0: "rest"})


def test_spreads_are_those_of_the_posterior_and_columns_say_whose_they_are(narrow):
    wanted, right = spread_of_initial(), narrow.corrected()
    before, after = narrow.summary(), right.summary()
    assert list(before.columns) == ["mean", "q_sd", "q_lower", "q_upper", "ess", "r_hat"]
    assert list(after.columns) == ["mean", "sd", "lower", "upper", "ess", "r_hat"]
    assert before.loc["initial[rest]", "q_sd"] < 0.85 * wanted
    assert after.loc["initial[rest]", "sd"] == pytest.approx(wanted, rel=0.08)
    assert after["ess"].min() > 500 and after["r_hat"].max() < 1.01
    assert "Gibbs" in right.to_arviz().posterior.attrs["draws_from"]
    assert right.corrected() is right and right.code.endswith("fit = fit.corrected()")


def test_corrected_fits_are_saved_and_read(narrow, tmp_path):
    right = narrow.corrected()
    right.save(tmp_path / "fit")
    again = ethogram.load(tmp_path / "fit")
    assert again.summary().equals(right.summary()) and again.method == "corrected"


@pytest.mark.slow
def test_intents_are_corrected_by_nuts():
    model = ethogram.AgentMarkov(2, 2, truncation=2, beta_prior="fixed", stickiness=None)
    made = model.simulate(jax.random.key(0), np.array([[0, 1], [1, 0]]), np.array([0, 1, 0, 1]), 20)
    fit = ethogram.fit(jax.random.key(1), model, made.data, **NUM_STEPS)
    right = fit.corrected()
    assert "NUTS" in right.to_arviz().posterior.attrs["draws_from"]
    narrow, wide = fit.summary()["q_sd"], right.summary()["sd"]
    assert wide.loc[narrow.index].median() > narrow.median()
