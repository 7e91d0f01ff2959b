"""Derivatives of the digamma function against SciPy."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import polygamma

from ethogram.models.blocks.polygamma import trigamma, trigamma_and_tetragamma


@pytest.mark.parametrize(("double", "tolerance"), [(True, 2e-14), (False, 2e-6)], ids=["float64", "float32"])
def test_equal_scipy_from_tiny_to_huge(double, tolerance):
    with jax.enable_x64(double):
        x = jnp.asarray(10 ** np.linspace(-6, 6, 2001))
        first, second = trigamma_and_tetragamma(x)
        assert first.dtype == x.dtype
        np.testing.assert_allclose(first, polygamma(1, np.asarray(x, float)), rtol=tolerance)
        np.testing.assert_allclose(second, polygamma(2, np.asarray(x, float)), rtol=2 * tolerance)
        np.testing.assert_array_equal(trigamma(x), first)
