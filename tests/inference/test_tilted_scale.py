"""Draws of a tilted gamma against moments by quadrature."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import trapezoid

from ethogram.inference.tilted_scale import draw_tilted


@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize(
    ("power", "square", "drift"),
    [(1, 2, -3), (1, 2, 3), (1.5, 1, 0), (2, 1, -8), (7, 3, 4), (60, 80, -20), (900, 1000, 50)],
)
def test_moments(power, square, drift, x64):
    """100 000 draws: mean within 4.5 errors, deviation within 2 %; fails by chance in 1 of 10 000 runs."""
    count = 100_000
    with jax.enable_x64(x64):
        drawn = draw_tilted(
            jax.random.key(0),
            jnp.asarray(power, float),
            jnp.full(count, square, float),
            jnp.full(count, drift, float),
        )
        drawn = np.asarray(drawn, float)
    s = np.linspace(1e-9, 12, 2_000_001)
    logs = (power - 1) * np.log(s) - 0.5 * square * s**2 + drift * s
    density = np.exp(logs - logs.max())
    density /= trapezoid(density, s)
    mean = trapezoid(s * density, s)
    deviation = np.sqrt(trapezoid((s - mean) ** 2 * density, s))
    assert (drawn > 0).all()
    assert abs(drawn.mean() - mean) < 4.5 * deviation / np.sqrt(count)
    assert drawn.std() == pytest.approx(deviation, rel=0.02)


def test_the_least_of_random_bits_gives_a_finite_scale(monkeypatch):
    """A truncated normal, which is drawn by inversion: no uniform number is so small that its quantile is infinite."""
    monkeypatch.setattr(jax.random, "bits", lambda key, shape, dtype: jnp.zeros(shape, dtype))
    for drift in (-30.0, 0.0, 30.0):
        one = draw_tilted(jax.random.key(0), jnp.ones(2), jnp.ones(2), jnp.full(2, drift))
        assert np.isfinite(np.asarray(one)).all()
        assert (np.asarray(one) > 0).all()


def test_a_law_that_is_nan_has_draws_that_are():
    drawn = draw_tilted(jax.random.key(0), jnp.array([3.0, 3.0]), jnp.ones(2), jnp.array([jnp.nan, 0.0]))
    assert np.isnan(drawn[0]) and np.isfinite(drawn[1])
