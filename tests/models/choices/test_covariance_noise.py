"""Covariances of alternatives: orthants against SciPy, the noise against independent errors and draws."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.distributions import biject_to
from scipy.integrate import quad
from scipy.stats import multivariate_normal, norm

import ethogram
from ethogram.models.choices.choice_distribution import ChoiceDistribution
from ethogram.models.choices.covariance_noise import (
    CovarianceNoise,
    CovariancePrior,
    independent_covariance,
)
from ethogram.models.choices.orthants import log_orthant
from ethogram.models.choices.probit_choice import NormalNoise

RNG = np.random.default_rng(0)


def correlations(count, size):
    root = RNG.normal(size=(count, size, size + 1))
    covariance = root @ np.swapaxes(root, 1, 2)
    deviation = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
    return covariance / deviation[:, :, None] / deviation[:, None]


def bivariate(h, k, r):
    """Log probability by a dense trapezoid, accurate far out."""
    z = np.linspace(h - 20, h, 40_001)
    logs = norm.logpdf(z) + norm.logcdf((k - r * z) / np.sqrt(1 - r**2))
    return logs.max() + np.log(np.trapezoid(np.exp(logs - logs.max()), z))


@pytest.fixture(scope="module")
def orthant():
    """Values and gradients by bounds, one program a dimension."""

    def total(bounds, correlation):
        each = log_orthant(bounds, correlation)
        return jnp.sum(each), each

    return jax.jit(jax.value_and_grad(total, (0, 1), has_aux=True))


def test_two_dimensions_have_the_relative_accuracy_of_a_trapezoid_in_the_tails(orthant):
    cases = [(-30, -29, 0.9), (-40, 3, -0.5), (-5, 5, -0.9), (-3, -3, -0.9), (0.1, 0, 0.99), (-1, 2, 0.3)]
    h, k, r = np.array(cases, float).T
    correlation = np.array([[np.ones(6), r], [r, np.ones(6)]])
    found = np.asarray(orthant(np.stack([h, k]), correlation)[0][1])
    truth = [bivariate(min(a, b), max(a, b), c) for a, b, c in cases]
    np.testing.assert_allclose(found, truth, atol=3e-5)  # of the trapezoid


def test_three_dimensions_are_those_of_scipy_and_their_gradients_finite_differences(orthant):
    correlation, bounds = correlations(6, 3), RNG.normal(size=(6, 3))
    flat = np.moveaxis(correlation, 0, -1)
    (_, found), (slopes, by_correlation) = orthant(bounds.T, flat)
    for r, h, value in zip(correlation, bounds, np.asarray(found), strict=True):
        left = np.sqrt(1 - r[0, 1:] ** 2)
        rest = np.clip((r[1, 2] - r[0, 1] * r[0, 2]) / left[0] / left[1], -1, 1)

        def density(z, r=r, h=h, left=left, rest=rest):
            inner = (h[1:] - r[0, 1:] * z) / left
            return norm.pdf(z) * multivariate_normal.cdf(inner, cov=[[1, rest], [rest, 1]])

        truth = quad(density, -9, h[0], epsabs=1e-9, epsrel=1e-8, points=[min(h[0], 0) - 2])[0]
        assert value == pytest.approx(np.log(truth), abs=1e-6)
    moved = 1e-4 * RNG.normal(size=bounds.T.shape)
    turned = np.zeros_like(flat)
    turned[0, 1] = turned[1, 0] = 1e-4
    ahead, behind = (np.asarray(orthant(bounds.T + s * moved, flat + s * turned)[0][1]) for s in (1, -1))
    predicted = (np.asarray(slopes) * moved).sum(0) + np.asarray(by_correlation)[0, 1] * 1e-4
    np.testing.assert_allclose(predicted, (ahead - behind) / 2, atol=1e-8)


@pytest.mark.parametrize(
    ("size", "within"), [(2, 1e-9), (3, 1e-7), pytest.param(4, 0.02, marks=pytest.mark.slow)]
)
def test_independent_errors_are_a_covariance_and_absent_alternatives_are_left_out(size, within):
    """Simulated beyond three dimensions. The last decision lacks the base, the one before another alternative."""
    utilities, legal = RNG.normal(size=(8, size + 1)) * 2, np.ones((8, size + 1), bool)
    legal[-1, -1] = legal[-2, 1] = False

    @jax.jit
    def each(utilities):
        return ChoiceDistribution(utilities, legal, CovarianceNoise(independent_covariance(size))).logits

    found, truth = np.exp(each(utilities)), ChoiceDistribution(utilities, legal, NormalNoise()).probs
    np.testing.assert_allclose(found, truth, atol=within)


def test_draws_have_the_probabilities_of_their_covariance():
    """2e5 draws of each of 12 options: |z| < 4.5."""
    covariance = np.array([[1.6, 0.9], [0.9, 0.7]])
    utilities = RNG.normal(size=(4, 3))

    @jax.jit
    def both(key):
        offered = ChoiceDistribution(utilities, None, CovarianceNoise(covariance))
        return offered.probs, offered.sample(key, (200_000,))

    probs, drawn = map(np.asarray, both(jax.random.key(0)))
    shares = (drawn[..., None] == np.arange(3)).mean(0)
    assert (np.abs(shares - probs) < 4.5 * np.sqrt(probs * (1 - probs) / 2e5)).all()


def test_the_prior_of_a_covariance_integrates_to_one_and_is_that_of_its_draws():
    """Two alternatives and a base, on a grid of unconstrained entries; the Jacobian against differentiation."""
    prior, to_covariance = CovariancePrior(2, 4.0), biject_to(CovariancePrior.support)
    axes = np.linspace(-9, 9, 300), np.linspace(-14, 14, 300)
    x = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 2)
    y = np.asarray(to_covariance(x))
    mass = np.exp(np.asarray(prior.log_prob(y) + to_covariance.log_abs_det_jacobian(x, y)))
    mass = mass * (axes[0][1] - axes[0][0]) * (axes[1][1] - axes[1][0])
    assert mass.sum() == pytest.approx(1, abs=1e-3)
    np.testing.assert_allclose(to_covariance.inv(y[150::4800]), x[150::4800], atol=1e-6)
    drawn = np.asarray(prior.sample(jax.random.key(0), (50_000,)))
    assert (drawn[:, 0, 1] ** 2).mean() == pytest.approx(mass @ y[:, 0, 1] ** 2, rel=0.03)
    jacobian = jax.jacobian(lambda x: to_covariance(x)[jnp.array([0, 1]), jnp.array([0, 0])])(x[40_000])
    found = to_covariance.log_abs_det_jacobian(x[40_000], y[40_000])
    assert float(found) == pytest.approx(np.linalg.slogdet(jacobian)[1], abs=1e-9)


def decisions(names=("air", "bus", "car"), legal=True):
    allowed = np.ones((9, 3), bool)
    allowed[:, 0] = legal
    x = np.random.default_rng(1).normal(size=(9, 3, 1))
    return ethogram.Decisions(
        x, allowed, np.arange(9) % 2 + 1, metadata=ethogram.Metadata(action_names=names)
    )


@pytest.mark.parametrize(
    ("data", "fields", "message"),
    [
        (decisions(names=None), {}, "the options have no labels"),
        (decisions(legal=False), {}, "alternative 'air' is legal in no decision with a known choice"),
        (decisions(), {"nu": 1.0}, "nu is 1.0: a covariance of 3 alternatives needs at least 2"),
    ],
)
def test_covariances_that_cannot_be_learnt_are_refused(data, fields, message):
    with pytest.raises(ValueError, match=message):
        ethogram.Probit(noise="covariance", **fields).check(data)
    with pytest.raises(
        ValueError, match="kappa is infinite, and the covariance of alternatives may become singular"
    ):
        ethogram.Probit(np.inf, noise="covariance")


@pytest.mark.parametrize("covariance", [np.eye(3), np.array([[1.0, 0.9], [0.0, 1.0]])])
def test_a_covariance_to_simulate_from_is_symmetric_and_of_all_but_the_base(covariance):
    values = {"v": np.ones(1), "noise_covariance": covariance}
    with pytest.raises(
        ValueError, match="pass a symmetric, positive definite matrix of all alternatives but"
    ):
        ethogram.Probit(noise="covariance").simulate(jax.random.key(0), decisions(), values)
