"""Draws of a tilted gamma against moments by quadrature."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import trapezoid

from ethogram.inference.choices.tilted_scale import draw_tilted

CASES = np.array([(1, 2, -3), (1, 2, 3), (1.5, 1, 0), (2, 1, -8), (7, 3, 4), (60, 80, -20), (900, 1000, 50)])
"""Power, square and drift; the first two are truncated normals."""


@pytest.mark.parametrize("x64", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_moments(x64):
    """4000 draws a case: means within 4.5 errors, deviations within 5 %; fails by chance in 1 of 3000 runs."""
    count = 4_000
    cases = np.append(CASES, [(3, 1, np.nan)], axis=0)[..., None]
    with jax.enable_x64(x64):
        power, square, drift = (jnp.asarray(part, float) for part in np.swapaxes(cases, 0, 1))
        drawn = jax.jit(draw_tilted)(
            jax.random.key(0), power, jnp.broadcast_to(square, (len(cases), count)), drift
        )
    drawn = np.asarray(drawn, float)
    assert np.isnan(drawn[-1]).all()  # and the loop has ended
    s = np.linspace(1e-9, 12, 24_001)
    for (power, square, drift), found in zip(CASES, drawn, strict=False):
        logs = (power - 1) * np.log(s) - 0.5 * square * s**2 + drift * s
        density = np.exp(logs - logs.max())
        density /= trapezoid(density, s)
        mean = trapezoid(s * density, s)
        deviation = np.sqrt(trapezoid((s - mean) ** 2 * density, s))
        assert (found > 0).all()
        assert abs(found.mean() - mean) < 4.5 * deviation / np.sqrt(count), (power, square, drift)
        assert found.std() == pytest.approx(deviation, rel=0.05), (power, square, drift)


def test_the_least_of_random_bits_gives_a_finite_scale(monkeypatch):
    """A truncated normal, drawn by inversion: no uniform is so small that its quantile is infinite."""
    monkeypatch.setattr(jax.random, "bits", lambda key, shape, dtype: jnp.zeros(shape, dtype))
    one = jax.jit(draw_tilted)(jax.random.key(0), jnp.ones(3), jnp.ones(3), jnp.array([-30.0, 0.0, 30.0]))
    assert np.isfinite(np.asarray(one)).all() and (np.asarray(one) > 0).all()
