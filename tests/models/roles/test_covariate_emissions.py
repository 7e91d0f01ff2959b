"""Emissions with covariates: densities against sums over paths, the posterior of one state, and what is refused."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import bernoulli, gamma, norm, poisson, vonmises

import ethogram
from ethogram.models.roles.covariate_roles import CovariateRoleHMM

LENGTHS = (4, 3)
X = [np.array([0.5, -1.0, 2.0, 0.3]), np.array([1.0, 0.2, -0.7])]
CENTRE = np.concatenate(X).mean()
INITIAL = np.array([0.3, 0.7])
STAY = np.array([0.8, 0.6])
B, W = np.array([-0.4, 0.9]), np.array([1.5, -0.6])


def sessions(values, **options):
    """Two sequences with the covariate x."""
    return ethogram.Trajectories.from_list(
        [np.asarray(part, float).reshape(len(part), -1) for part in values],
        covariates={"x": X},
        missing="nan",
        **options,
    )


def chain():
    odds = np.log((1 - STAY) / STAY)
    return {
        "initial": INITIAL,
        "log_odds": np.array([[0, odds[0]], [odds[1], 0]]),
        "effect": np.zeros((2, 2, 0)),
    }


def sum_over_paths(density, row):
    """Log density of a sequence from densities (time, state)."""
    matrix = np.array([[STAY[0], 1 - STAY[0]], [1 - STAY[1], STAY[1]]])
    total = 0.0
    for path in itertools.product(range(2), repeat=LENGTHS[row]):
        weight = INITIAL[path[0]] * np.prod([matrix[a, b] for a, b in itertools.pairwise(path)])
        total += weight * np.prod([density[time][state] for time, state in enumerate(path)])
    return np.log(total)


def softmax(eta):
    return np.exp(eta) / np.exp(eta).sum()


CASES = {
    "choice": (
        ethogram.ChoiceEmission("x"),
        {"intercept": B[:, None], "weight": W[:, None, None]},
        [[0, 1, 1, 0], [1, 0, 1]],
        lambda y, eta, k: bernoulli.pmf(int(y), 1 / (1 + np.exp(-B[k] - eta))),
    ),
    "probit": (
        ethogram.ChoiceEmission("x", link="probit"),
        {"intercept": B[:, None], "weight": W[:, None, None]},
        [[0, 1, 1, 0], [1, 0, 1]],
        lambda y, eta, k: norm.cdf((2 * y - 1) * (B[k] + eta)),
    ),
    "three options": (
        ethogram.ChoiceEmission("x", num_options=3),
        {"intercept": np.stack([B, -B], 1), "weight": np.stack([W, 0.5 * W], 1)[..., None]},
        [[0, 2, 1, 0], [1, 0, 2]],
        lambda y, eta, k: softmax(np.array([0, B[k] + eta, 0.5 * eta - B[k]]))[int(y)],
    ),
    "logit": (
        ethogram.LogitEmission("x"),
        {"intercept": B[:, None], "weight": W[:, None, None]},
        [[0, 1, 1, 0], [1, 0, 1]],
        lambda y, eta, k: bernoulli.pmf(int(y), 1 / (1 + np.exp(-B[k] - eta))),
    ),
    "gaussian": (
        ethogram.RegressionEmission(ethogram.GaussianEmission(1), "x"),
        {"mean": B[:, None], "covariance": np.full((2, 1, 1), 0.5), "weight": W[:, None, None]},
        [[0.3, 1.2, -2.0, 0.1], [1.0, 0.4, -0.5]],
        lambda y, eta, k: norm.pdf(y, B[k] + eta, np.sqrt(0.5)),
    ),
    "poisson": (
        ethogram.RegressionEmission(ethogram.PoissonEmission(), "x"),
        {"rate": np.exp(B)[:, None], "weight": W[:, None, None]},
        [[0, 3, 1, 2], [1, 0, 5]],
        lambda y, eta, k: poisson.pmf(int(y), np.exp(B[k] + eta)),
    ),
    "gamma": (
        ethogram.RegressionEmission(ethogram.GammaEmission(), "x"),
        {"mean": np.exp(B)[:, None], "shape": np.full((2, 1), 2.0), "weight": W[:, None, None]},
        [[0.3, 1.2, 2.0, 0.1], [1.0, 0.4, 0.5]],
        lambda y, eta, k: gamma.pdf(y, 2.0, scale=np.exp(B[k] + eta) / 2),
    ),
    "bernoulli": (
        ethogram.RegressionEmission(ethogram.BernoulliEmission(), "x"),
        {"probability": 1 / (1 + np.exp(-B))[:, None], "weight": W[:, None, None]},
        [[0, 1, 1, 0], [1, 0, 1]],
        lambda y, eta, k: bernoulli.pmf(int(y), 1 / (1 + np.exp(-B[k] - eta))),
    ),
    "von Mises": (
        ethogram.RegressionEmission(ethogram.VonMisesEmission(), "x"),
        {"direction": B[:, None], "concentration": np.full((2, 1), 2.0), "weight": W[:, None, None]},
        [[0.3, 1.2, -2.0, 0.1], [1.0, 0.4, -0.5]],
        lambda y, eta, k: vonmises.pdf(y, 2.0, loc=B[k] + 2 * np.arctan(eta)),
    ),
}


@pytest.mark.parametrize("kind", CASES)
def test_the_density_is_the_sum_over_all_paths(kind):
    """Also where a frame is missing: its density is 1 in every state."""
    emission, sites, values, pdf = CASES[kind]
    values = [np.array(values[0], float), np.array(values[1], float)]
    model = ethogram.RoleHMM(2, emission)
    assert type(model) is CovariateRoleHMM
    for gap in (False, True):
        if gap:
            values[0][1] = np.nan
        data = sessions(values)
        bound = model.bind(data)
        entries = bound.entries(data)
        with jax.enable_x64(True):
            found = np.asarray(bound.likelihood(chain() | sites, entries.batch).log_prob(entries.value))
        for row in range(2):
            density = [
                [1.0 if np.isnan(y) else pdf(y, W[state] * (x - CENTRE), state) for state in range(2)]
                for x, y in zip(X[row], np.asarray(data.observations)[row, :, 0].astype(float), strict=False)
            ]
            assert found[row] == pytest.approx(sum_over_paths(density, row), rel=2e-5)


def test_samples_have_the_means_that_the_curves_show():
    """Of one step of 4 000 sequences at one covariate, at known states; five standard errors."""
    count = 4000
    for kind, (emission, sites, values, _) in CASES.items():
        bound = ethogram.RoleHMM(2, emission).bind(sessions(values))
        parts = {name: jnp.asarray(site) for name, site in sites.items()}
        columns = jnp.full((count, 1, 1), 0.4)
        steps = bound.emission.distribution(parts, sessions(values)._replace(covariates=columns))
        states = jnp.ones((count, 1), int)
        drawn = np.asarray(steps.sample_steps(jax.random.key(3), states, states > 0, None))[:, 0, 0]
        eta = bound.emission.predictor(parts, jnp.array([0.4]))
        mean = np.asarray(bound.emission.response(parts, eta))[1]
        if kind == "three options":
            found, expected = (drawn == 1).mean(), mean[1]
        elif kind == "von Mises":
            found, expected = np.angle(np.exp(1j * drawn).mean()), mean[0]
        else:
            found, expected = drawn.mean(), mean[0]
        assert abs(found - expected) < 5 * drawn.std() / np.sqrt(count), kind


def test_features_that_are_missing_are_left_out():
    """Two correlated Gaussian features: that of the other one is its marginal."""
    values = [np.array([[0.3, np.nan], [1.2, 0.1], [np.nan, 2.0], [0.1, 0.4]]), np.full((3, 2), np.nan)]
    values[1][0, 1] = 0.5
    data = sessions(values)
    model = ethogram.RoleHMM(1, ethogram.RegressionEmission(ethogram.GaussianEmission(2), "x")).bind(data)
    covariance = np.array([[1.0, 0.6], [0.6, 2.0]])
    sites = {
        "initial": np.ones(1), "log_odds": np.zeros((1, 1)), "effect": np.zeros((1, 1, 0)),
        "mean": np.zeros((1, 2)), "covariance": covariance[None], "weight": np.array([[[1.0], [-2.0]]]),
    }  # fmt: skip
    entries = model.entries(data)
    found = np.asarray(model.likelihood(sites, entries.batch).log_prob(entries.value))
    for row, (columns, frames) in enumerate(zip(X, values, strict=True)):
        expected = 0.0
        for x, y in zip(columns, frames, strict=True):
            seen = ~np.isnan(y)
            gap = (y - np.array([1.0, -2.0]) * (x - CENTRE))[seen]
            block = covariance[np.ix_(seen, seen)]
            expected -= (gap @ np.linalg.solve(block, gap) + np.log(np.linalg.det(2 * np.pi * block))) / 2
        assert found[row] == pytest.approx(expected, rel=1e-5)


def test_without_slopes_choices_have_the_probabilities_of_categories():
    values = [[0, 2, 1, 0], [1, 0, 2]]
    data = sessions(values)
    bound = ethogram.RoleHMM(2, ethogram.ChoiceEmission("x", num_options=3)).bind(data)
    eta = np.array([[0.3, -1.0], [2.0, 0.5]])
    found = chain() | {"intercept": eta, "weight": np.zeros((2, 2, 1))}
    entries = bound.entries(data)
    plain = ethogram.RoleHMM(2, ethogram.CategoricalEmission(3))
    probability = np.array([softmax(np.append(0, each)) for each in eta])
    matrix = np.array([[STAY[0], 1 - STAY[0]], [1 - STAY[1], STAY[1]]])
    other = plain.likelihood({"initial": INITIAL, "transition": matrix, "probability": probability}, data)
    np.testing.assert_allclose(
        bound.likelihood(found, entries.batch).log_prob(entries.value),
        other.log_prob(plain.entries(data).value),
        rtol=1e-5,
    )


def test_effects_of_transitions_and_of_emissions_stand_side_by_side():
    """Columns of both formulas are those that each takes alone."""
    data = sessions([[0, 1, 1, 0], [1, 0, 1]], subject=["ann", "bob"])
    emission = ethogram.ChoiceEmission("np.exp(x)")
    transition = ethogram.Covariates("x", vary="subject")
    both = ethogram.RoleHMM(2, emission, transition=transition).bind(data)
    entries = both.entries(data)
    np.testing.assert_allclose(entries.batch.covariates[..., :1], transition.bind(data).encode(data).columns)
    own = emission.encoded(data).covariates.encode(data)
    np.testing.assert_allclose(entries.batch.covariates[..., 1:], own.columns)
    assert entries.batch.subject.tolist() == [0, 1]
    made = ethogram.RoleHMM(2, emission, transition=transition).simulate(jax.random.key(0), data)
    assert set(np.unique(made.data.observations)) <= {0, 1}
    assert {"weight", "intercept", "effect", "subject_log_odds"} <= {*made.parameters}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ethogram.ChoiceEmission(""), "formula is empty"),
        (lambda: ethogram.ChoiceEmission("x - 1"), "every state, or change"),
        (lambda: ethogram.ChoiceEmission("x", num_options=1), "num_options"),
        (lambda: ethogram.ChoiceEmission("x", num_options=3, link="probit"), "is of two options, not 3"),
        (lambda: ethogram.ChoiceEmission("x", link="log"), "link"),
        (lambda: ethogram.ChoiceEmission("x", scale=0.0), "scale"),
        (lambda: ethogram.LogitEmission("x", num_features=0), "num_features"),
        (lambda: ethogram.RegressionEmission(ethogram.CategoricalEmission(2), "x"), "a ChoiceEmission"),
        (lambda: ethogram.RoleHMM(2, ethogram.ChoiceEmission("x"), sticky=1.0), "expected_dwell"),
        (lambda: ethogram.RoleHMM(2, ethogram.ChoiceEmission("x"), transition=1.0), "expected_dwell"),
        (lambda: ethogram.RoleHMM(2, ethogram.ChoiceEmission("x"), exclusive="per_frame"), "exclusive"),
        (
            lambda: ethogram.RoleHMM(2, ethogram.ProductEmission({"a": ethogram.ChoiceEmission("x")})),
            "to RoleHMM itself",
        ),
        (lambda: ethogram.RoleHMM(2, ethogram.ChoiceEmission("y")).check(DATA), "formula 'y' takes y"),
        (lambda: ethogram.RoleHMM(2, ethogram.ChoiceEmission("x")).check(TWOS), "lies outside the 2 options"),
        (lambda: ethogram.RoleHMM(2, ethogram.ChoiceEmission("x")).arrange(DATA), "no conjugate prior"),
    ],
)
def test_models_that_are_refused(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make()


DATA = sessions([[0, 1, 1, 0], [1, 0, 1]])
TWOS = sessions([[0, 1, 2, 0], [1, 0, 1]])
