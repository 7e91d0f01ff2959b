"""Draws of latent utilities: truncated normals far out, and the winner against quadrature."""

from __future__ import annotations

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import erfcx, log_ndtr, ndtri_exp
from scipy.stats import kstest

from benchmarks.papers.noisy_mdp_variants import draw_variant
from ethogram.inference.choices.latent_utilities import normal_below, open_uniform

DRAWS = 6_000
BOUNDS = (-60.0, -37.0, -12.0, -3.0, 0.0, 3.0, 8.0)
MEANS = np.array(
    [[0, 1, -1, 9], [-8, 0, 2, 1], [5, 0, 9, 9], [-30, 0, 1, 9], [9, 9, 9, 9], [np.nan, 0, 0, 0]]
)
LEGAL = np.array([[1, 1, 1, 0], [1, 1, 1, 1], [1, 1, 0, 0], [1, 1, 1, 0], [0, 0, 0, 0], [1, 1, 1, 1]], bool)
"""Decisions by option, the chosen one first; the last two have no option, and a mean that is NaN."""

draw = functools.partial(jax.jit, static_argnames=("winner", "proposals"))(draw_variant)


@pytest.mark.parametrize("dtype", ["float64", pytest.param("float32", marks=pytest.mark.slow)])
def test_normals_below_a_bound_have_their_distribution(dtype):
    """Kolmogorov-Smirnov at 1e-3 with fixed keys; far out the mean too."""
    with jax.enable_x64(dtype == "float64"):
        bits = jax.random.bits(jax.random.key(0), (len(BOUNDS), DRAWS), jnp.uint32)
        drawn = jax.jit(
            lambda bits: normal_below(jnp.array(BOUNDS, dtype)[:, None], open_uniform(bits, jnp.dtype(dtype)))
        )(bits)
    assert drawn.dtype == dtype
    for bound, x in zip(BOUNDS, np.asarray(drawn, float), strict=True):
        assert np.isfinite(x).all() and x.max() <= bound
        # Far out this is nearly exponential, and single precision resolves its mean only.
        below = (bound - x) * max(-bound, 1)
        if dtype == "float64" or bound > -20:
            share = np.exp(log_ndtr(np.minimum(x, bound)) - log_ndtr(bound))
            assert kstest(share, "uniform").pvalue > 1e-3
        rate = np.sqrt(2 / np.pi) / erfcx(-bound / np.sqrt(2))
        assert abs(below.mean() - (bound + rate) * max(-bound, 1)) < 5 * below.std() / np.sqrt(DRAWS) + 1e-3


def test_bounds_that_are_safe_need_no_tail():
    """The branch without a tail has the numbers of the other."""
    bounds, uniform = np.array([[-3.0, -3.0, -60.0], [-3.0, -3.0, -3.0]]), np.array([1e-9, 1 - 1e-9, 0.5])
    with_tail, without = (np.asarray(jax.jit(normal_below)(bound, uniform)) for bound in bounds)
    np.testing.assert_allclose(without[:2], with_tail[:2], rtol=1e-12)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_medians_below_a_bound_agree_with_scipy(dtype):
    """In both tails to 40; the scaled erfcx has no cancellation or underflow on the left."""
    bounds = np.linspace(-40, 40, 1601).astype(dtype)
    with jax.enable_x64(dtype == "float64"):
        drawn = jax.jit(normal_below)(bounds, np.full(bounds.shape, 0.5, dtype))
    assert drawn.dtype == dtype
    exact = bounds.astype(float)
    logs = np.where(exact < 0, log_ndtr(np.minimum(exact, 0)), log_ndtr(exact)) + np.log(0.5)
    truth = ndtri_exp(logs)
    np.testing.assert_allclose(
        np.asarray(drawn, float), truth, rtol=1e-5 if dtype == "float32" else 1e-9, atol=1e-6
    )


def test_the_distribution_function_costs_one_erfc():
    """The ndtr of jax evaluates erf and erfc, which doubles the time of a sweep."""
    bounds = jnp.array([-3.0, 0.0])
    program = str(jax.make_jaxpr(normal_below)(bounds, jnp.full(2, 0.5)))
    assert len(re.findall(r"\berfc\b", program)) == 1
    assert not re.search(r"\berf\b", program)


def test_uniform_numbers_are_never_zero_or_one():
    ends = jnp.array([0, 2**32 - 1], jnp.uint32)
    for dtype in ("float32", "float64"):
        low, high = np.asarray(jax.jit(open_uniform, static_argnums=1)(ends, jnp.dtype(dtype)))
        assert 0 < low < 1e-6 and 1 - 1e-6 < high < 1


def winner_by_quadrature(mean):
    """Mean and deviation of the chosen utility, given that it is the largest."""
    w = np.linspace(mean.min() - 12, mean.max() + 12, 3_001)
    logs = -0.5 * (w - mean[0]) ** 2 + log_ndtr(w[:, None] - mean[1:]).sum(1)
    weight = np.exp(logs - logs.max())
    weight /= weight.sum()
    centre = weight @ w
    return centre, np.sqrt(weight @ (w - centre) ** 2)


@functools.cache
def start(dtype):
    """Means, legal options, and exact draws by rejection."""
    means = np.broadcast_to(MEANS.T.astype(dtype)[..., None], (*MEANS.T.shape, DRAWS))
    legal = LEGAL.T[..., None]
    return (
        means,
        legal,
        draw(jax.random.key(0), means, legal, np.zeros_like(means), winner="rejection"),
    )


def check_winners(drawn):
    """Mean and deviation within five Monte Carlo errors of quadrature; the others below, padding zero, NaN kept."""
    drawn = np.asarray(drawn, float)
    for number in range(4):
        utilities = drawn[LEGAL[number], number]
        centre, deviation = winner_by_quadrature(MEANS[number, LEGAL[number]])
        assert (utilities[1:] <= utilities[0]).all()
        assert abs(utilities[0].mean() - centre) < 5 * deviation / np.sqrt(DRAWS)
        assert abs(utilities[0].std() / deviation - 1) < 5 / np.sqrt(DRAWS)
        # The others are normals below the winner: their mean given it is mu - h(w - mu).
        gap = utilities[0] - MEANS[number, LEGAL[number]][1:, None]
        residual = (
            utilities[1:]
            - MEANS[number, LEGAL[number]][1:, None]
            + np.sqrt(2 / np.pi) / erfcx(-gap / np.sqrt(2))
        )
        assert (np.abs(residual.mean(1)) < 5 * residual.std(1) / np.sqrt(DRAWS)).all()
    assert (drawn[:, :5][~LEGAL.T[:, :5]] == 0).all()
    assert np.isnan(drawn[0, 5]).all()


def test_rejection_draws_the_winner_from_its_marginal():
    check_winners(start("float64")[2])


@pytest.mark.parametrize(
    ("winner", "proposals"), [("gibbs", 1), ("mh", 2), pytest.param("paper", 2, marks=pytest.mark.slow)]
)
def test_markov_moves_of_the_winner_keep_its_marginal(winner, proposals):
    means, legal, exact = start("float64")
    drawn = draw(jax.random.key(1), means, legal, exact, winner=winner, proposals=proposals)
    check_winners(drawn)
    assert (np.asarray(drawn)[0, :4] != np.asarray(exact)[0, :4]).mean() > 0.5


@pytest.mark.slow
def test_rejection_is_right_in_single_precision():
    with jax.enable_x64(False):
        check_winners(start("float32")[2])
