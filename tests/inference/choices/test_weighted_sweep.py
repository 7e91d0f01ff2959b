"""Sweeps with weights of decisions: shapes of the scale that keep the prior, and posteriors on a grid."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.distributions import Beta, TruncatedNormal
from scipy.special import betaln, ndtr
from scipy.stats import t as student
from scipy.stats import truncnorm

import ethogram
from ethogram.inference.choices.gibbs_sweep import MOVES, fitted, probit_problem, with_prior
from ethogram.inference.choices.weighted_sweep import draw_scales, draw_weighted
from ethogram.models.choices import Decisions

CHAINS, KAPPA, NU, LAPSE = 4000, 2.0, 4.0, 0.3
MOVE = MOVES["local+scale"]


@pytest.fixture(scope="module")
def problem():
    design = np.random.default_rng(0).normal(size=(6, 3, 2))
    return with_prior(
        probit_problem(design, np.ones((6, 3), bool), np.zeros(6, int), MOVE), np.full(2, 1 / KAPPA)
    )


@jax.jit
def errors_in_student(key, problem, extra):
    """Deviation of E|theta|^2 after alternating joint draws of scales and utilities, in standard errors."""

    def one_round(theta, key):
        keys = jax.random.split(key, 4)
        scale = jax.random.gamma(keys[0], NU / 2, (6, CHAINS)) / (NU / 2)
        mean = jnp.reshape(fitted(problem, theta), (3, 6, CHAINS))
        latents = mean + jax.random.normal(keys[1], mean.shape) / jnp.sqrt(scale)
        counted = problem._replace(counts=problem.counts + extra)
        root = jnp.sqrt(draw_scales(keys[2], counted, theta, latents, NU))
        return draw_weighted(keys[3], problem, root * latents, root, MOVE)[0], None

    return kept(one_round, key)


@jax.jit
def errors_with_lapses(key, problem, weight_of_lapsed):
    def one_round(theta, key):
        keys = jax.random.split(key, 3)
        mean = jnp.reshape(fitted(problem, theta), (3, 6, CHAINS))
        latents = mean + jax.random.normal(keys[0], mean.shape)
        lapsed = jax.random.bernoulli(keys[1], LAPSE, (6, CHAINS))
        weight = jnp.where(lapsed, weight_of_lapsed, 1.0)
        return draw_weighted(keys[2], problem, latents * weight, weight, MOVE)[0], None

    return kept(one_round, key)


def kept(one_round, key):
    key_start, key_rounds = jax.random.split(key)
    theta = jax.random.normal(key_start, (2, CHAINS)) * np.sqrt(KAPPA)
    theta, _ = jax.lax.scan(one_round, theta, jax.random.split(key_rounds, 20))
    squares = jnp.sum(theta**2, axis=0)
    return (jnp.mean(squares) - 2 * KAPPA) / (jnp.std(squares) / np.sqrt(CHAINS))


def test_scales_of_student_noise_keep_the_prior_of_values(problem):
    """|z| < 4; with the shape of the scale larger by a half it is beyond 10."""
    assert abs(errors_in_student(jax.random.key(0), problem, 0.0)) < 4
    assert abs(errors_in_student(jax.random.key(0), problem, 1.0)) > 10


def test_lapsed_decisions_are_not_counted(problem):
    """|z| < 4; where they have next to no weight, and count in the shape, it is beyond 10."""
    assert abs(errors_with_lapses(jax.random.key(1), problem, 0.0)) < 4
    assert abs(errors_with_lapses(jax.random.key(1), problem, 1e-9)) > 10


@pytest.mark.parametrize("name", ["student", "nu", "lapse", "fixed lapse"])
def test_posteriors_are_those_of_a_grid(name):
    """One value between two options, whose gaps have closed forms; the mean within 5 standard errors of 4000 draws."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(30, 2, 1)) * 2
    chosen = (x[..., 0] + rng.normal(size=(30, 2))).argmax(1)
    chosen = np.where(rng.random(30) < 0.3, rng.integers(2, size=30), chosen)
    gaps = x[np.arange(30), chosen, 0] - x[np.arange(30), 1 - chosen, 0]
    grid, lapse = np.meshgrid(np.linspace(-3, 6, 400), (np.arange(200) + 0.5) / 200, indexing="ij")
    at = grid[..., None] * gaps / np.sqrt(2)
    if name == "student":
        model = ethogram.NoisyMDP(1.0, "features", noise="student", nu=3.0)
        logs = np.log(student.cdf(at, 3.0)).sum(-1)
    elif name == "nu":
        prior = TruncatedNormal(4.0, 8.0, low=1.0)
        model = ethogram.NoisyMDP(1.0, "features", noise="student", nu=prior)
        nu = 1 + 40 * lapse
        logs = np.log(student.cdf(at, nu[..., None])).sum(-1) + truncnorm.logpdf(nu, -3 / 8, np.inf, 4, 8)
    else:
        model = ethogram.Probit(1.0, lapse=Beta(2, 10) if name == "lapse" else 0.2)
        share = lapse if name == "lapse" else np.full_like(lapse, 0.2)
        logs = np.log((1 - share[..., None]) * ndtr(at) + share[..., None] / 2).sum(-1)
        logs += np.log(lapse) + 9 * np.log1p(-lapse) - betaln(2, 10) if name == "lapse" else 0
    mass = np.exp(logs - grid**2 / 2 - logs.max())
    mass /= mass.sum()
    data = Decisions(x, np.ones((30, 2), bool), chosen)
    settings = {"num_warmup": 100, "num_samples": 1000, "progress_bar": False}
    sites = ethogram.fit(jax.random.key(0), model, data, "px-da", **settings).result.sites
    pairs = [(np.asarray(sites["theta"])[..., 0], grid)]
    pairs += [(np.asarray(sites["lapse"]), lapse)] if name == "lapse" else []
    pairs += [(np.asarray(sites["nu"]), nu)] if name == "nu" else []
    for draws, values in pairs:
        truth = (mass * values).sum()
        sd = np.sqrt((mass * (values - truth) ** 2).sum())
        assert abs(draws.mean() - truth) < 5 * sd / np.sqrt(400)  # of an ESS of 400 at least
        assert abs(draws.std() / sd - 1) < 0.15
