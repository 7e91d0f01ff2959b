"""Draws of blocks by NumPy against quantiles and moments of SciPy's distributions; each check errs with rate 1e-4."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from scipy import special, stats

from ethogram.models.families.exponential_family import (
    Beta,
    Dirichlet,
    Known,
    Normal,
    NormalInverseWishart,
    PartlyKnown,
)
from ethogram.models.families.gamma_conjugate import GammaConjugate
from ethogram.models.families.quadrature_block import SPREAD
from ethogram.models.families.variates import NumpyVariates
from ethogram.models.families.von_mises_conjugate import VonMisesConjugate
from ethogram.models.intents.stick_weights import StickWeights

DRAWS = 4000


def drawn(block, seed=0):
    return block.sample_numpy(np.random.default_rng(seed), DRAWS)


def follows(values, distribution):
    return stats.kstest(values, distribution.cdf).pvalue > 1e-4


@pytest.mark.parametrize("concentration", [1e-3, 0.3, 1.0, 40.0])
def test_log_gamma_has_its_quantiles(concentration):
    """Also where the variate itself underflows."""
    values = NumpyVariates(np.random.default_rng(0)).log_gamma(np.array([concentration]), (DRAWS,))[:, 0]
    assert np.isfinite(values).all() and follows(values, stats.loggamma(concentration))


def test_rows_of_probabilities():
    """Beta marginals of every entry; structural zeros stay."""
    rows = np.array([[0.2, 3.0, 0.0], [5.0, 1.0, 2.0]])
    values = drawn(Dirichlet.from_standard(rows))
    np.testing.assert_allclose(values.sum(-1), 1, rtol=1e-12)
    assert (values[:, 0, 2] == 0).all()
    for row, column in ((0, 0), (1, 0), (1, 2)):
        rest = rows[row].sum() - rows[row, column]
        assert follows(values[:, row, column], stats.beta(rows[row, column], rest))
    assert follows(drawn(Beta.from_standard(np.array([2.0]), np.array([0.5])))[:, 0], stats.beta(2.0, 0.5))


def test_gaussian_means_and_covariances():
    """Marginals: normal; Student's t of the mean, inverse gamma of a variance, and the mean of the covariance."""
    covariance = np.array([[2.0, 0.6], [0.6, 1.0]])
    values = drawn(
        Normal.from_standard(np.array([[1.0, -2.0]]), covariance[None], origin=np.array([5.0, 5.0]))
    )
    assert follows(values[:, 0, 1], stats.norm(-2.0, 1.0))
    assert follows(values[:, 0].sum(-1), stats.norm(-1.0, np.sqrt(covariance.sum())))
    psi, kappa, nu = 3 * covariance, 0.5, 9.0
    block = NormalInverseWishart.from_standard(
        np.array([[1.0, -2.0]]), np.array([kappa]), np.array([nu]), psi[None]
    )
    mean, spread = drawn(block)
    assert follows(spread[:, 0, 0, 0], stats.invgamma((nu - 1) / 2, scale=psi[0, 0] / 2))
    assert follows(spread[:, 0, 1, 1], stats.invgamma((nu - 1) / 2, scale=psi[1, 1] / 2))
    assert follows(mean[:, 0, 0], stats.t(nu - 1, 1.0, np.sqrt(psi[0, 0] / (kappa * (nu - 1)))))
    error = spread[:, 0].std(0) / np.sqrt(DRAWS)
    assert (np.abs(spread[:, 0].mean(0) - psi / (nu - 3)) < 4.5 * error).all()
    np.testing.assert_allclose(spread, spread.swapaxes(-2, -1), rtol=1e-12)


def test_known_rows_and_weights_are_held():
    known = np.array([[0.25, 0.75], [np.nan, np.nan]])
    values = drawn(PartlyKnown.from_known(Dirichlet.from_standard(np.ones((2, 2))), Known(known)))
    np.testing.assert_array_equal(values[:, 0], np.tile(known[0], (DRAWS, 1)))
    assert follows(values[:, 1, 0], stats.uniform())
    weights = StickWeights.uniform(3, jax.device_put(2.0), "stick")
    np.testing.assert_array_equal(drawn(weights)[-1], weights.natural)


def marginals(log_joint, rows, columns):
    """Distribution functions of both coordinates of a density on a grid, by sums."""
    joint = np.exp(log_joint - log_joint.max())
    for grid, axis in ((rows, 1), (columns, 0)):
        below = np.cumsum(joint.sum(axis))
        yield stats.rv_histogram((np.diff(below, prepend=0), np.append(grid, 2 * grid[-1] - grid[-2])))


@pytest.mark.parametrize("strength", [2.0, 1e6])
def test_gamma_means_and_shapes(strength):
    """Against the density of ln(shape) and ln(rate) as the class states it, on a grid over their range."""
    block = GammaConjugate.from_standard(np.array([3.0]), np.array([4.0]), np.array([strength]))
    mean, shape = (np.log(part[:, 0].astype(float)) for part in drawn(block))
    n, log_sum, total = (float(part[0]) for part in block.natural)
    a, m = (np.linspace(x.min(), x.max(), 1501) for x in (shape, mean))
    u, v = a[:, None], a[:, None] - m
    likelihood = n * (np.exp(u) * v - special.gammaln(np.exp(u))) + np.exp(u) * log_sum - np.exp(v) * total
    log_joint = 2 * u + stats.norm(np.log(4.0), SPREAD).logpdf(u) - u + likelihood
    of_shape, of_mean = marginals(log_joint, a, m)
    assert follows(shape, of_shape) and follows(mean, of_mean)


@pytest.mark.parametrize("strength", [0.5, 1e6])
def test_directions_and_concentrations(strength):
    """Against the density of the direction and ln(concentration) as the class states it, on a grid over their range."""
    block = VonMisesConjugate.from_standard(np.array([3.0]), np.array([2.0]), np.array([strength]))
    direction, concentration = (part[:, 0].astype(float) for part in drawn(block))
    concentration = np.log(concentration)
    n, cosine, sine = (float(part[0]) for part in block.natural)
    k, mu = (np.linspace(x.min(), x.max(), 1501) for x in (concentration, direction))
    kappa = np.exp(k)[:, None]
    log_joint = kappa * (cosine * np.cos(mu) + sine * np.sin(mu)) - n * (np.log(special.i0e(kappa)) + kappa)
    log_joint = log_joint - 0.5 * ((k[:, None] - np.log(2.0)) / SPREAD) ** 2
    of_concentration, of_direction = marginals(log_joint, k, mu)
    assert follows(concentration, of_concentration) and follows(direction, of_direction)
