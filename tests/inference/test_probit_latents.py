"""Draws of latent utilities: truncated normals far out, and the winner against quadrature."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import erfcx, log_ndtr
from scipy.stats import kstest

from ethogram.inference.probit_latents import draw_latents, normal_below, open_uniform

DRAWS = 100_000


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("bound", [-60.0, -37.0, -12.0, -3.0, 0.0, 3.0, 8.0])
def test_normals_below_a_bound_have_their_law(bound, dtype):
    """Kolmogorov-Smirnov at 1e-3 with fixed keys; far out the first two moments too."""
    with jax.enable_x64(dtype == "float64"):
        bits = jax.random.bits(jax.random.key(int(bound) + 100), (DRAWS,), jnp.uint32)
        drawn = normal_below(jnp.full(DRAWS, bound, dtype), open_uniform(bits, jnp.dtype(dtype)))
    assert drawn.dtype == dtype
    x = np.asarray(drawn, float)
    assert np.isfinite(x).all() and x.max() <= bound
    below = (bound - x) * max(
        -bound, 1
    )  # far out this is nearly exponential, and single precision resolves it
    if dtype == "float64" or bound > -20:
        share = np.exp(log_ndtr(np.minimum(x, bound)) - log_ndtr(bound))
        assert kstest(share, "uniform").pvalue > 1e-3
    rate = np.sqrt(2 / np.pi) / erfcx(-bound / np.sqrt(2))
    assert abs(below.mean() - (bound + rate) * max(-bound, 1)) < 5 * below.std() / np.sqrt(DRAWS) + 1e-3


def test_uniform_numbers_are_never_zero_or_one():
    ends = jnp.array([0, 2**32 - 1], jnp.uint32)
    for dtype in ("float32", "float64"):
        with jax.enable_x64(dtype == "float64"):
            low, high = np.asarray(open_uniform(ends, jnp.dtype(dtype)))
        assert 0 < low < 1e-6 and 1 - 1e-6 < high < 1


def winner_by_quadrature(mean):
    """Mean and deviation of the chosen utility, given that it is the largest."""
    w = np.linspace(mean.min() - 12, mean.max() + 12, 20_001)
    logs = -0.5 * (w - mean[0]) ** 2 + log_ndtr(w[:, None] - mean[1:]).sum(1)
    weight = np.exp(logs - logs.max())
    weight /= weight.sum()
    centre = weight @ w
    return centre, np.sqrt(weight @ (w - centre) ** 2)


@pytest.mark.parametrize("mean", [[0.0, 1.0, -1.0], [-8.0, 0.0, 2.0, 1.0], [5.0, 0.0], [-30.0, 0.0, 1.0]])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("winner", "proposals"), [("rejection", 1), ("mh", 4)])
def test_the_winner_has_its_marginal(mean, winner, proposals, dtype):
    """Mean and deviation within five Monte Carlo errors of quadrature; the others lie below."""
    mean = np.array(mean)
    centre, deviation = winner_by_quadrature(mean)
    with jax.enable_x64(dtype == "float64"):
        means = jnp.broadcast_to(jnp.asarray(mean, dtype)[:, None, None], (len(mean), 1, DRAWS))
        legal, drawn = jnp.ones((len(mean), 1, 1), bool), means
        for sweep in range(3):
            drawn, taken = draw_latents(jax.random.key(sweep), means, legal, drawn, winner, proposals)
        drawn, taken = np.asarray(drawn, float)[:, 0], np.asarray(taken)
    assert (drawn[1:] <= drawn[0]).all()
    assert abs(drawn[0].mean() - centre) < 5 * deviation / np.sqrt(DRAWS)
    assert abs(drawn[0].std() / deviation - 1) < 5 / np.sqrt(DRAWS)
    assert taken.mean() > 2 / (1 + np.sqrt(len(mean)))  # the least that the envelope allows


def test_what_is_not_legal_is_never_drawn():
    mean = jnp.zeros((4, 3, 5))
    legal = jnp.array([[True, True, True], [True, False, True], [True, True, False], [False, False, False]])[
        ..., None
    ]
    for winner in ("gibbs", "rejection", "mh", "paper"):
        drawn, _ = draw_latents(jax.random.key(0), mean, legal, jnp.where(legal, mean, 0), winner, 1)
        assert (
            np.isfinite(drawn).all() and (np.asarray(drawn)[~np.broadcast_to(legal, mean.shape)] == 0).all()
        )
