"""Laws of scale and parameters given the latent utilities, against dense algebra in NumPy."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ethogram.inference.probit_sweep import MOVES, draw_parameters, probit_problem, with_prior

CHAINS = 100_000
LEGAL = np.array([[1, 1, 1], [1, 1, 0], [1, 0, 1], [1, 1, 1]], bool)
PRECISION = np.array([0.25, 0.7])
PRIOR = (5.0, 2.0)


@pytest.fixture(scope="module")
def fixture():
    random = np.random.default_rng(0)
    design = random.normal(size=(4, 3, 2))
    latents = random.normal(size=(4, 3)) + np.array([2.0, 0, 0])
    return design, np.where(LEGAL, latents, 0)


def by_dense_algebra(design, latents, move, mean):
    """Power k, A and B of the law of s = 1 / sqrt(z1), and mean and covariance of theta given s = 1, in y's units.

    The marginal covariance of y has the prior's share X C X', and a share that is larger than all else for every level
    that is integrated out: k loses one for each of them.
    """
    rows = design[LEGAL]
    y = latents[LEGAL]
    levels = {
        "none": np.zeros((len(y), 0)),
        "one": np.ones((len(y), 1)),
        "local": np.eye(4)[np.nonzero(LEGAL)[0]],
    }[move.translations]
    # The projection off the levels, and theta's posterior by least squares on what is left.
    off = np.eye(len(y)) - levels @ np.linalg.pinv(levels)
    x, z = off @ rows, off @ y
    covariance = np.linalg.inv(x.T @ x + np.diag(PRECISION))
    marginal = np.linalg.pinv(off @ (np.eye(len(y)) + rows @ np.diag(1 / PRECISION) @ rows.T) @ off)
    square, drift = z @ marginal @ z, z @ marginal @ x @ mean
    return len(y) - levels.shape[1], square, drift, covariance, x, z


@pytest.mark.slow
@pytest.mark.parametrize("shifted", [False, True])
@pytest.mark.parametrize("moves", [name for name, move in MOVES.items() if not move.proper])
def test_conditional_laws(fixture, moves, shifted):
    """Moments of 100 000 draws within 4.5 standard errors: fails by chance in 1 of 2000 runs."""
    move, (design, latents) = MOVES[moves], fixture
    mean = np.array([1.5, -1.0]) * shifted
    power, square, drift, covariance, x, z = by_dense_algebra(design, latents, move, mean)
    with jax.enable_x64(True):
        problem = probit_problem(design, LEGAL, np.zeros(4, int), move)
        extra = [0.0] if move.translations == "one" else []
        problem = with_prior(problem, jnp.array([*PRECISION, *extra]), jnp.array([*mean, *extra]))
        drawn = draw_parameters(
            jax.random.key(0),
            problem,
            jnp.broadcast_to(jnp.asarray(latents.T)[..., None], (3, 4, CHAINS)),
            move,
            scale_prior=None,
            translation_sd=jnp.ones(()),
            shifted=shifted,
        )
    s = 1 / np.sqrt(np.asarray(drawn.scale))
    theta = np.asarray(drawn.theta)
    if move.scale:
        grid = np.linspace(1e-6, 8, 400_001)
        logs = (power - 1) * np.log(grid) - square * grid**2 / 2 + drift * grid
        mass = np.exp(logs - logs.max())
        mass /= mass.sum()
        moments = [mass @ grid**order for order in range(1, 5)]
        for order in (1, 2):
            error = np.sqrt((moments[2 * order - 1] - moments[order - 1] ** 2) / CHAINS)
            assert abs((s**order).mean() - moments[order - 1]) < 4.5 * error, order
    else:
        np.testing.assert_array_equal(s, 1)
    off = theta - covariance @ ((x.T @ z)[:, None] * s + (PRECISION * mean)[:, None])
    spread = np.sqrt(np.diag(covariance))
    assert (np.abs(off.mean(1)) < 4.5 * spread / np.sqrt(CHAINS)).all()
    assert (np.abs(off @ s / CHAINS) < 4.5 * spread * np.sqrt((s**2).mean() / CHAINS)).all()
    np.testing.assert_allclose(np.cov(off), covariance, atol=4.5 * 1.5 * spread.max() ** 2 / np.sqrt(CHAINS))


@pytest.mark.slow
@pytest.mark.parametrize("moves", [name for name, move in MOVES.items() if move.proper])
def test_proper_scales_given_the_expanded_utilities(fixture, moves):
    """The law of z1 averaged over its expansion: E 1/z1 by sums over the expansion's own draws, within 5 errors."""
    move, (design, latents) = MOVES[moves], fixture
    random = np.random.default_rng(1)
    a, b = PRIOR
    spread = 1.3
    with jax.enable_x64(True):
        problem = probit_problem(design, LEGAL, np.zeros(4, int), move)
        extra = [1 / spread**2] if move.translations == "one" else []
        problem = with_prior(problem, jnp.array([*PRECISION, *extra]))
        drawn = draw_parameters(
            jax.random.key(0),
            problem,
            jnp.broadcast_to(jnp.asarray(latents.T)[..., None], (3, 4, CHAINS)),
            move,
            scale_prior=PRIOR,
            translation_sd=jnp.asarray(spread),
        )
    rows = design[LEGAL]
    count = len(rows)
    z = b / random.gamma(a, size=CHAINS)
    shift = spread * random.normal(size=CHAINS) * (move.translations == "one")
    y = np.sqrt(z)[:, None] * (latents[LEGAL] + shift[:, None])
    marginal = np.eye(count) + rows @ np.diag(1 / PRECISION) @ rows.T
    if move.translations == "one":
        marginal += spread**2 * np.ones((count, count))
    square = np.einsum("ci,ij,cj->c", y, np.linalg.inv(marginal), y)
    inverse = (count / 2 + a) / (b + square / 2)  # the mean of 1 / z1 given y
    found = 1 / np.asarray(drawn.scale)
    error = np.hypot(found.std(), inverse.std()) / np.sqrt(CHAINS)
    assert abs(found.mean() - inverse.mean()) < 5 * error
