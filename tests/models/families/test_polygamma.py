"""Derivatives of the digamma function against SciPy."""

from __future__ import annotations

import jax
import numpy as np
from scipy.special import polygamma

from ethogram.models.families.polygamma import trigamma, trigamma_and_tetragamma


def test_equal_scipy_from_tiny_to_huge():
    x = 10 ** np.linspace(-6, 6, 2001)
    first, second = jax.jit(trigamma_and_tetragamma)(x)
    np.testing.assert_allclose(first, polygamma(1, x), rtol=2e-14)
    np.testing.assert_allclose(second, polygamma(2, x), rtol=4e-14)
    np.testing.assert_array_equal(jax.jit(trigamma)(x), first)
