"""Fits, predictions and effects of choices whose noise is not normal, against SciPy, grids and planted noise."""

from __future__ import annotations

import warnings

import arviz
import jax
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy.optimize import minimize
from scipy.special import expit, log_expit, logsumexp
from scipy.stats import beta, norm, uniform

import ethogram
from ethogram.inference.choices import (
    choice_error,
    elasticities,
    find_choice_mode,
    noise_floor,
    summarize_choices,
)
from ethogram.inference.choices.laplace import laplace_choices
from ethogram.inference.convergence import LEAST_ESS
from ethogram.models.choices import Decisions

KEY = jax.random.key(0)
VALUES = np.array([1.0, -0.6])
NOISES = {
    "gumbel": ethogram.Logit(4.0),
    "student": ethogram.NoisyMDP(4.0, "features", noise="student", nu=2.0),
    "lapses": ethogram.Logit(4.0, lapse=dist.Beta(1, 9)),
}


def planted(model, num_decisions=60, num_options=3, seed=0):
    """Choices with the noise of a model, 10 % of them at random where it has lapses."""
    x = np.random.default_rng(seed).normal(size=(num_decisions, num_options, len(VALUES)))
    offered = Decisions(x, np.ones(x.shape[:2], bool), np.zeros(num_decisions, int))
    values = {"v": VALUES} | ({"lapse": 0.1} if "lapse" in model.needed_sites() else {})
    return model.simulate(jax.random.key(seed), offered, values).data


def logits(data, theta):
    """Log probabilities of the choices at theta (feature,) by the conditional logit."""
    utilities = np.asarray(data.features) @ theta
    rows = np.arange(len(data)), np.asarray(data.choice)
    return utilities[rows] - logsumexp(utilities, axis=1)


def test_the_mode_of_a_logit_is_that_of_scipy():
    """Under a flat prior and a proper one, with standard errors of differences, and what the summary says."""
    data = planted(NOISES["gumbel"])
    for kappa in (np.inf, 0.5):
        model = ethogram.Logit(kappa)

        def negative(theta, kappa=kappa):
            return -logits(data, theta).sum() + (theta**2).sum() / (2 * kappa)

        truth = minimize(negative, np.zeros(2), tol=1e-10).x
        found = find_choice_mode(model, data)
        np.testing.assert_allclose(found.theta, truth, atol=1e-5)
        np.testing.assert_allclose(found.log_likelihood, logits(data, truth).sum(), atol=1e-8)
        step = 1e-3 * np.eye(2)
        curved = [[negative(truth + a + b) - negative(truth + a - b) - negative(truth - a + b) + negative(truth - a - b)
                   for b in step] for a in step]  # fmt: skip
        np.testing.assert_allclose(
            found.deviation, np.sqrt(np.diag(np.linalg.inv(np.array(curved) / 4e-6))), rtol=1e-4
        )
    drawn = laplace_choices(KEY, ethogram.Logit(np.inf), data)
    said = summarize_choices(ethogram.Logit(np.inf), drawn.sites, data)
    assert said.evaluated_at == "maximum" and "2 parameters, Gumbel noise (conditional logit)" in str(said)


def test_elasticities_of_a_logit_are_its_formula_and_those_of_a_probit_are_not_alike():
    """The cross elasticities of a logit are equal over options in one decision (independence of irrelevant ones)."""
    data = planted(NOISES["gumbel"]).take([0])
    draws = {"theta": np.repeat(VALUES[None], LEAST_ESS, 0)}
    chance = np.exp(data.features[0] @ VALUES)
    chance /= chance.sum()
    truth = data.features[0, :, 0] * VALUES[0] * (np.eye(3) - chance)
    with jax.enable_x64(True):
        found = elasticities(ethogram.Logit(4.0), draws, data, 0).mean
        probit = elasticities(ethogram.Probit(4.0), draws, data, 0).mean
    np.testing.assert_allclose(found, truth, atol=1e-9)
    assert np.abs(probit[1, 0] - probit[2, 0]) > 0.01


@pytest.mark.parametrize(
    ("prior", "truth"), [(dist.Beta(2, 10), beta(2, 10)), (dist.Uniform(0.02, 0.2), uniform(0.02, 0.18))]
)
def test_lapses_and_values_have_the_moments_of_a_grid(prior, truth):
    """Of a logit of one value between two options, and priors on all and on a part of [0, 1]; 4.5 standard errors."""
    model = ethogram.Logit(1.0, lapse=prior)
    rng = np.random.default_rng(3)
    x = rng.normal(size=(60, 2, 1)) * 2
    chosen = (x[..., 0] + rng.gumbel(size=(60, 2))).argmax(1)
    chosen = np.where(rng.random(60) < 0.3, rng.integers(2, size=60), chosen)
    data = Decisions(x, np.ones((60, 2), bool), chosen)
    found = laplace_choices(KEY, model, data, num_samples=2000)
    theta, at = np.meshgrid(np.linspace(-1, 5, 300), np.linspace(-12, 2, 300), indexing="ij")
    gaps = x[np.arange(60), chosen, 0] - x[np.arange(60), 1 - chosen, 0]
    lapse = expit(at)
    each = np.log((1 - lapse)[..., None] * expit(theta[..., None] * gaps) + lapse[..., None] / 2).sum(-1)
    log_joint = each + norm.logpdf(theta) + truth.logpdf(lapse) + log_expit(at) + log_expit(-at)
    mass = np.exp(log_joint - log_joint.max())
    evidence = log_joint.max() + np.log(mass.sum() * (theta[1, 0] - theta[0, 0]) * (at[0, 1] - at[0, 0]))
    mass /= mass.sum()
    assert found.pareto_k < 0.5
    for draws, grid in ((found.sites["theta"][0, :, 0], theta), (found.sites["lapse"][0], lapse)):
        mean = (mass * grid).sum()
        sd = np.sqrt((mass * (grid - mean) ** 2).sum())
        np.testing.assert_allclose((draws.mean() - mean) / sd, 0, atol=4.5 / np.sqrt(500))
        np.testing.assert_allclose(draws.std() / sd, 1, atol=4.5 / np.sqrt(500))
    np.testing.assert_allclose(found.log_evidence, evidence, atol=0.1)


@pytest.fixture(
    scope="module",
    params=["gumbel", "lapses", pytest.param("student", marks=pytest.mark.slow)],
)
def fitted(request):
    model = NOISES[request.param]
    draws = 200 if request.param == "student" else 500  # whose probabilities are integrals of integrals
    return ethogram.fit(KEY, model, planted(model), "laplace", num_samples=draws)


def test_a_fit_is_predicted_exported_scored_and_read_back(fitted, tmp_path):
    """Pointwise log likelihoods are those of SciPy where there is a closed form; lapses are a row of the summary."""
    data, model = fitted.data, fitted.model
    table, probability = fitted.summary(), np.asarray(fitted.predict())
    assert ("lapse" in table.index) == ("lapse" in model.needed_sites())
    np.testing.assert_allclose(probability.sum(1), 1, atol=1e-5)
    exported = ethogram.to_arviz(fitted.result, data, log_likelihood="sequence", progress_bar=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of the Pareto k of single decisions
        loo = arviz.loo(exported)
    assert np.isfinite(loo.elpd if hasattr(loo, "elpd") else loo.elpd_loo)
    theta = np.asarray(exported.posterior["theta"])[0, 0]
    if model.noise == "gumbel":
        lapse = float(np.asarray(exported.posterior["lapse"])[0, 0]) if "lapse" in exported.posterior else 0.0
        truth = np.log((1 - lapse) * np.exp(logits(data, theta)) + lapse / 3)
        np.testing.assert_allclose(np.asarray(exported.log_likelihood["choice"])[0, 0], truth, atol=1e-4)
    fitted.save(tmp_path / "fit.ethogram")
    read = ethogram.load(tmp_path / "fit.ethogram")
    assert read.model.noise == model.noise
    np.testing.assert_array_equal(np.asarray(read.predict()), probability)
    assert "calibration" not in str(fitted.diagnose())


def test_the_error_made_is_the_expected_one(fitted):
    """Of the planted values, in 4000 decisions: within three standard errors, of each noise."""
    model = fitted.model if "lapse" not in fitted.model.needed_sites() else ethogram.Logit(4.0, lapse=0.1)
    data = planted(model, 4000)
    utilities = data.features @ VALUES
    expected = noise_floor(utilities, data, model)
    made = choice_error(utilities.argmax(1), data)
    assert abs(made - expected) < 3 * np.sqrt(expected * (1 - expected) / 4000)


def test_choices_without_noise_but_lapses_are_named():
    """All but three of sixty choices take the best option: the likelihood has no maximum."""
    data = planted(NOISES["gumbel"])
    best = (data.features @ VALUES).argmax(1)
    data = data._replace(choice=np.where(np.arange(60) < 3, (best + 1) % 3, best))
    with pytest.warns(UserWarning, match="the likelihood is no smaller where values are 10 times as large"):
        laplace_choices(KEY, ethogram.Logit(400.0, lapse=0.1), data)


def test_two_priors_leave_laplace_to_nuts():
    model = ethogram.Logit(dist.InverseGamma(3.0, 2.0), lapse=dist.Beta(1, 9))
    with pytest.raises(ValueError, match=r'kappa and lapse both have priors, .* use method="nuts"'):
        laplace_choices(KEY, model, planted(NOISES["gumbel"]))
    with pytest.raises(ValueError, match="pass numbers for kappa, nu and lapse"):
        find_choice_mode(NOISES["lapses"], planted(NOISES["gumbel"]))
