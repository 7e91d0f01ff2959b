"""Divergences against their definitions, and in float32 where the definitions cancel."""

import jax
import numpy as np
import pytest
from scipy import special

from ethogram.models.families.divergences import (
    cholesky_divergence,
    dirichlet_divergence,
    gamma_remainder_divergence,
    wishart_dof_divergence,
)


def test_gamma_remainder_is_the_bregman_divergence_less_its_leading_part():
    p, q = (
        x.ravel() for x in np.meshgrid([1e-4, 0.3, 2.0, 7.9, 8.1, 60.0], [1e-3, 0.5, 5.0, 7.99, 9.0, 80.0])
    )
    bregman = special.gammaln(p) - special.gammaln(q) - (p - q) * special.digamma(q)
    against = bregman - (p * np.log(p / q) - (p - q))
    with jax.numpy_rank_promotion("raise"):
        got = jax.jit(gamma_remainder_divergence)(p, q)
    np.testing.assert_allclose(got, against, rtol=1e-11, atol=1e-11)


def test_float32_keeps_divergences_between_counts_of_a_million():
    """The printed formula gives -2.9 in float32; the divergence is 3.4e-7."""
    q, p = np.array([1e6, 2e6]), np.array([1e6 + 1, 2e6])
    mean_log = special.digamma(q) - special.digamma(q.sum())
    log_beta = lambda a: special.gammaln(a).sum() - special.gammaln(a.sum())  # noqa: E731
    against = log_beta(p) - log_beta(q) + ((q - p) * mean_log).sum()
    got = jax.jit(lambda q, p: dirichlet_divergence(q, p).total())(*map(np.float32, (q, p)))
    assert abs(against) < 1e-6
    np.testing.assert_allclose(got, against, atol=1e-7)


dof_part = jax.jit(lambda dof, other: wishart_dof_divergence(dof, other, 3).total())


@pytest.mark.parametrize(
    ("dof", "other"), [(2.001, 5.0), (5.0, 2.001), (1e6, 4.0), (4.0, 1e6), (1e6, 1e6 + 8)]
)
def test_dof_part_of_the_wishart_divergence(dof, other):
    halves, halves0 = ((x - np.arange(3)) / 2 for x in (dof, other))
    bregman = (
        special.gammaln(halves0) - special.gammaln(halves) - (halves0 - halves) * special.digamma(halves)
    )
    leading = 0.5 * (other * np.log(other / dof) - (other - dof))
    against = np.sum(bregman - leading)
    got = dof_part(*map(np.float64, (dof, other)))
    np.testing.assert_allclose(got, against, rtol=1e-6 if max(dof, other) > 1e5 else 1e-11, atol=1e-8)
    single = dof_part(*map(np.float32, (dof, other)))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, got, rtol=2e-3, atol=2e-6)


def test_divergence_of_matrices():
    random = np.random.default_rng(0)
    root, other = (random.normal(size=(4, 3, 5)) for _ in range(2))
    one, two = (x @ x.swapaxes(-1, -2) for x in (root, other))
    against = [np.trace(t) - 3 - np.linalg.slogdet(t)[1] for t in 2 * np.linalg.solve(one, two)]
    lower = [np.linalg.cholesky(x) for x in (one, two)]
    divergence = jax.jit(cholesky_divergence)
    np.testing.assert_allclose(divergence(*lower, 2.0), against, rtol=1e-4)
    np.testing.assert_allclose(divergence(lower[0], lower[0], 1.0), 0, atol=1e-11)
