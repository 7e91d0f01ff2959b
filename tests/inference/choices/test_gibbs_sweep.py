"""Conditional distributions of scale and parameters given the latent utilities, against dense algebra in NumPy."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.infer import MCMC

from benchmarks.papers.noisy_mdp_variants import VARIANTS, VariantPXDA
from ethogram.domains import small_mdps
from ethogram.inference.choices.gibbs_sweep import draw_parameters, probit_problem, with_prior
from ethogram.inference.choices.px_da import PXDA
from ethogram.models.choices.decisions import Decisions
from ethogram.models.choices.noisy_mdp import NoisyMDP

CHAINS = 10_000
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
    """Power k, A and B of the density of s = 1 / sqrt(z1), and mean and covariance of theta given s = 1, in y's units.

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


FAST = (("da", False), ("scale+translate", False), ("local+scale", True))
SLOW = (("scale", False), ("translate", False), ("local", True), ("scale+translate", True))


def drawn_parameters(problem, latents, draw_one):
    """Draws of all chains, given the same latent utilities, in one program."""

    @jax.jit
    def draw(key, problem, latents):
        several = jnp.broadcast_to(latents.T[..., None], (*latents.T.shape, CHAINS))
        return draw_one(key, problem, several)

    return draw(jax.random.key(0), problem, jnp.asarray(latents))


@pytest.mark.parametrize(
    ("moves", "shifted"), [*FAST, *(pytest.param(*case, marks=pytest.mark.slow) for case in SLOW)]
)
def test_conditional_distributions(fixture, moves, shifted):
    """Moments of all chains within 4.5 standard errors: fails by chance in 1 of 2000 runs."""
    move, (design, latents) = VARIANTS[moves], fixture
    mean = np.array([1.5, -1.0]) * shifted
    power, square, drift, covariance, x, z = by_dense_algebra(design, latents, move, mean)
    extra = [0.0] if move.translations == "one" else []
    problem = probit_problem(design, LEGAL, np.zeros(4, int), move)
    problem = with_prior(problem, np.array([*PRECISION, *extra]), np.array([*mean, *extra]))
    drawn = drawn_parameters(problem, latents, functools.partial(draw_parameters, move=move, shifted=shifted))
    theta, s = np.asarray(drawn[0]), 1 / np.sqrt(np.asarray(drawn[2]))
    if move.scale:
        grid = np.linspace(1e-6, 8, 20_001)
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
@pytest.mark.parametrize("moves", ["scale_proper", "scale+translate_proper"])
def test_proper_scales_given_the_expanded_utilities(fixture, moves):
    """E z0 / z1, of the scales before and after, by sums over draws of z0 and the translation, within 5 errors."""
    move, (design, latents) = VARIANTS[moves], fixture
    random = np.random.default_rng(1)
    a, b = PRIOR
    spread = 1.3
    problem = probit_problem(design, LEGAL, np.zeros(4, int), move)
    extra = [1 / spread**2] if move.translations == "one" else []
    problem = with_prior(problem, np.array([*PRECISION, *extra]))
    kernel = VariantPXDA(NoisyMDP(1.0), moves, scale_prior=PRIOR)
    drawn = drawn_parameters(problem, latents, functools.partial(kernel._draw_parameters, shifted=False))
    rows = design[LEGAL]
    count = len(rows)
    z = b / random.gamma(a, size=CHAINS)
    shift = spread * random.normal(size=CHAINS) * (move.translations == "one")
    y = np.sqrt(z)[:, None] * (latents[LEGAL] + shift[:, None])
    marginal = np.eye(count) + rows @ np.diag(1 / PRECISION) @ rows.T
    if move.translations == "one":
        marginal += spread**2 * np.ones((count, count))
    square = np.einsum("ci,ij,cj->c", y, np.linalg.inv(marginal), y)
    inverse = z * (count / 2 + a) / (b + square / 2)  # the mean of z0 / z1 given z0 and y
    found = 1 / np.asarray(drawn[2])
    error = np.hypot(found.std(), inverse.std()) / np.sqrt(CHAINS)
    assert abs(found.mean() - inverse.mean()) < 5 * error


@pytest.mark.slow
def test_directions_without_data_keep_their_prior_in_single_precision():
    """The third feature is the sum of the others: along (1, 1, -1) there is the prior alone, of deviation 50.

    1200 draws, 4 chains; the deviation of independent draws has a standard error of 2 %.
    """
    random = np.random.default_rng(0)
    two = np.round(random.normal(size=(300, 10, 2)) * 40) / 8  # sums are exact
    features = np.concatenate([two, two.sum(-1, keepdims=True)], -1)
    choice = (two @ [0.4, -0.3] + random.normal(size=(300, 10))).argmax(1)
    data = Decisions(features.astype(np.float32), np.ones((300, 10), bool), choice)
    kernel = PXDA(NoisyMDP(2500.0, "features"))
    mcmc = MCMC(
        kernel, num_warmup=100, num_samples=300, num_chains=4, chain_method="vectorized", progress_bar=False
    )
    with jax.enable_x64(False), pytest.warns(UserWarning, match="only the prior bounds"):
        mcmc.run(jax.random.key(0), data)
        along = np.asarray(mcmc.get_samples()["v"], float) @ np.array([1.0, 1.0, -1.0]) / np.sqrt(3)
    assert abs(along.std() / 50 - 1) < 0.08


@pytest.mark.slow
def test_a_vague_proper_prior_of_the_scale_neither_under_nor_overflows():
    data = small_mdps.toy_chain(jax.random.key(0), 50).decisions
    kernel = VariantPXDA(NoisyMDP(25.0), "scale+translate_proper", scale_prior=(0.001, 0.001))
    mcmc = MCMC(kernel, num_warmup=0, num_samples=100, progress_bar=False)
    with jax.enable_x64(False):
        mcmc.run(jax.random.key(0), data)
        draws = np.asarray(mcmc.get_samples()["v"])
    assert np.isfinite(draws).all()
    assert (np.ptp(draws, axis=0) > 1).all()
