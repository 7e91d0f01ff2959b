"""Logarithms and derivatives of the Gamma function against SciPy."""

from __future__ import annotations

import jax
import numpy as np
from scipy.special import digamma, gammaln, polygamma

from ethogram.models.families.polygamma import log_gamma_and_digamma, trigamma_and_tetragamma


def test_equal_scipy_from_tiny_to_huge():
    x = 10 ** np.linspace(-6, 6, 2001)
    first, second = jax.jit(trigamma_and_tetragamma)(x)
    np.testing.assert_allclose(first, polygamma(1, x), rtol=2e-14)
    np.testing.assert_allclose(second, polygamma(2, x), rtol=4e-14)
    value, slope = jax.jit(log_gamma_and_digamma)(x)
    np.testing.assert_allclose(value, gammaln(x), rtol=2e-14, atol=1e-14)
    np.testing.assert_allclose(slope, digamma(x), rtol=2e-14, atol=1e-14)
