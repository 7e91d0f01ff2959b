"""The prior of relevances against the half-Cauchy law that it is the square of."""

from __future__ import annotations

import jax
import numpy as np
from scipy import stats

from ethogram.models.rewards.priors import SquaredHalfCauchy, shrinkage_scale


def test_density_and_quantiles_are_those_of_a_square():
    value = np.array([1e-6, 0.3, 1.0, 50.0])
    with jax.enable_x64(True):
        law, root = SquaredHalfCauchy(2.0), np.sqrt(value)
        density, below = jax.jit(lambda x: (law.log_prob(x), law.cdf(x)))(value)
        expected = stats.halfcauchy(scale=2).logpdf(root) - np.log(2 * root)
        np.testing.assert_allclose(density, expected, rtol=1e-12)
        np.testing.assert_allclose(below, stats.halfcauchy(scale=2).cdf(root), rtol=1e-12)
        np.testing.assert_allclose(jax.jit(law.icdf)(below), value, rtol=1e-9)


def test_draws_have_the_distribution_function():
    """Kolmogorov and Smirnov's test, 20 000 draws: fails by chance in 1 of 1000 runs."""
    law = SquaredHalfCauchy(0.5)
    drawn = np.asarray(law.sample(jax.random.key(0), (20_000,)), float)
    assert stats.kstest(2 / np.pi * np.arctan(np.sqrt(drawn) / 0.5), "uniform").pvalue > 1e-3


def test_the_default_scale_lets_three_features_matter():
    """Of sixty standard normal features by the printed formula; of any variances by the shares of 20 000 draws."""
    with jax.enable_x64(True):
        points = np.random.default_rng(0).normal(size=(200, 60))
        points = (points - points.mean(0)) / points.std(0)
        np.testing.assert_allclose(shrinkage_scale(points), 3 / 57 * np.sqrt(0.02), rtol=1e-9)
        uneven = points[:, :8] * [0.01, 0.1, 0.3, 1, 1, 3, 10, 0] + 0.1
        roots = stats.halfcauchy(scale=shrinkage_scale(uneven)).rvs((20_000, 8), random_state=1)
        bend = roots**2 * uneven.var(0)
        np.testing.assert_allclose((bend / (0.02 + bend)).sum(1).mean(), 3, atol=0.03)
        assert np.isfinite(shrinkage_scale(np.ones((5, 8))))
        # Of ten numbers 0.1 the deviation is a rounding error: half of two features, not of three.
        tenth = np.column_stack([np.full(10, 0.1), points[:10, :2]])
        np.testing.assert_allclose(shrinkage_scale(tenth), shrinkage_scale(points[:10, :2]), rtol=1e-9)
