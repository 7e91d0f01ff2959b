"""Noise of choices: probabilities against closed forms, quadrature and simulation; gradients; what is refused."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy.integrate import quad
from scipy.special import logsumexp
from scipy.stats import gamma, norm, t

import ethogram
from ethogram.models.choices.choice_distribution import ChoiceDistribution
from ethogram.models.choices.choice_noise import GumbelNoise, LapseNoise
from ethogram.models.choices.probit_choice import NormalNoise
from ethogram.models.choices.student_noise import StudentNoise

NOISES = {
    "gumbel": GumbelNoise(),
    "student": StudentNoise(3.0),
    "normal with lapses": LapseNoise(NormalNoise(), 0.1),
    "gumbel with lapses": LapseNoise(GumbelNoise(), 0.02),
}
UTILITIES = np.array(
    [
        [0.0, 1.2, -0.7, 0.4],
        [3.0, np.nan, -2.0, np.nan],
        [9.0, -30.0, 1.0, 5.0],
        [0.3, np.nan, np.nan, np.nan],
    ]
)
LEGAL = np.isfinite(UTILITIES)


@jax.jit
def every(noise, utilities):
    """Log probabilities (option, decision), their gradients (option, decision, option), and probabilities."""

    def total(x, option):
        each = ChoiceDistribution(x, LEGAL, noise).log_prob(option)
        return jnp.sum(jnp.where(jnp.asarray(LEGAL)[:, option], each, 0)), each

    slopes, each = jax.lax.map(lambda option: jax.grad(total, has_aux=True)(utilities, option), jnp.arange(4))
    return each, slopes, ChoiceDistribution(utilities, LEGAL, noise).probs


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=pytest.mark.slow if name == "student" else ()) for name in NOISES],
)
def noise(request):
    return NOISES[request.param]


def test_probabilities_sum_to_one_over_the_legal_options_and_are_those_of_draws(noise):
    """2e5 draws of each decision: |z| < 4 of up to 9 options."""
    each, _, probs = (np.asarray(x) for x in every(noise, UTILITIES))
    np.testing.assert_allclose(probs, np.exp(each.T), atol=2e-7)
    np.testing.assert_allclose(np.exp(each).sum(0), 1, atol=2e-7)
    assert (each.T[~LEGAL] == -np.inf).all() and (probs[~LEGAL] == 0).all() and each[0, 3] == 0
    drawn = np.asarray(ChoiceDistribution(UTILITIES, LEGAL, noise).sample(jax.random.key(0), (200_000,)))
    shares = (drawn[..., None] == np.arange(4)).mean(0)
    error = np.sqrt(np.maximum(probs * (1 - probs), 1e-7) / 200_000)
    assert (np.abs(shares - probs) < 4 * error).all()


def test_gradients_are_finite_differences(noise):
    """Entries that are not legal have none, even where they are NaN."""
    _, slopes, _ = (np.asarray(x) for x in every(noise, UTILITIES))
    for option in range(4):
        ahead, behind = (
            np.asarray(every(noise, np.where(np.arange(4) == option, UTILITIES + sign * 1e-4, UTILITIES))[0])
            for sign in (1, -1)
        )
        truth = np.where(
            LEGAL.T & LEGAL[:, option], (np.where(LEGAL.T, ahead, 0) - np.where(LEGAL.T, behind, 0)) / 2e-4, 0
        )
        np.testing.assert_allclose(slopes[..., option], truth, atol=1e-6, rtol=2e-5)


def test_logits_and_lapses_are_closed_forms():
    each = np.asarray(every(GumbelNoise(), UTILITIES)[0]).T
    truth = UTILITIES - logsumexp(np.where(LEGAL, UTILITIES, -np.inf), axis=1, keepdims=True)
    np.testing.assert_allclose(each[LEGAL], truth[LEGAL], atol=1e-12)
    mixed = np.asarray(every(LapseNoise(GumbelNoise(), 0.02), UTILITIES)[0]).T
    truth = np.log(0.98 * np.exp(truth) + 0.02 / LEGAL.sum(1, keepdims=True))
    np.testing.assert_allclose(mixed[LEGAL], truth[LEGAL], atol=1e-12)


def test_student_noise_is_a_t_between_two_and_a_mixture_of_probits_beyond():
    """Gaps up to 90; the mixture by SciPy's quadrature of the scale and of the winner's error."""

    @jax.jit
    def of_gaps(gaps, nu):
        return StudentNoise(nu).log_probability(gaps, jnp.ones(gaps.shape, bool), 32)

    gaps = np.linspace(-90, 20, 23)[None]
    for nu, within in ((30.0, 1e-12), (4.0, 1e-8), (2.0, 1e-7), (1.0, 2e-6)):
        found = np.asarray(of_gaps(gaps, nu))
        np.testing.assert_allclose(np.expm1(found - t.logcdf(gaps[0] / np.sqrt(2), nu)), 0, atol=within)

    with jax.enable_x64(True):
        slope = np.asarray(jax.jacfwd(of_gaps, argnums=1)(gaps[:, 17:], 3.0))
    ends = [t.logcdf(gaps[0, 17:] / np.sqrt(2), 3 + step) for step in (1e-5, -1e-5)]
    np.testing.assert_allclose(slope, (ends[0] - ends[1]) / 2e-5, atol=1e-6)

    def probit(scale, gaps):
        x = np.linspace(-9, 9, 361)
        return (norm.pdf(x) * norm.cdf(x[:, None] + scale * gaps).prod(1)).sum() * (x[1] - x[0])

    for three in np.array([[0.5, -1.0, 2.0], [-6.0, -2.0, 4.0]]):

        def density(eta, three=three):
            lam = np.exp(eta)
            return gamma.pdf(lam, 2.0, scale=0.5) * lam * probit(np.sqrt(lam), three)

        truth = quad(density, -25, 3, limit=200, epsabs=0, epsrel=1e-8)[0]
        found = float(np.asarray(of_gaps(np.repeat(three[:, None], 23, 1), 4.0))[0])
        assert found == pytest.approx(np.log(truth), abs=1e-6)


def test_quadratures_placed_elsewhere_give_the_same(noise):
    """As the weights of Laplace's approximation use them, by products and by sums of logarithms."""
    gaps = np.random.default_rng(0).normal(size=(2, 30)) * 2
    others = np.random.default_rng(1).random((2, 30)) < 0.8

    @jax.jit
    def both(gaps):
        nodes = noise.placed(0.9 * gaps, others, 10)
        return noise.log_probability(gaps, others), *(
            noise.on_nodes(gaps, others, nodes, near) for near in (True, False)
        )

    exact, product, sums = map(np.asarray, both(gaps))
    np.testing.assert_allclose(product, exact, atol=2e-3)
    np.testing.assert_allclose(sums, product, atol=1e-9)


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"noise": "cauchy"}, ValueError, "noise must be 'normal', 'gumbel', 'student' or 'covariance', not"),
        ({"nu": 3.0}, ValueError, "nu is 3.0, but noise is 'normal'"),
        ({"noise": "student", "nu": 0.5}, ValueError, "nu must be a finite number of at least 1, not 0.5"),
        (
            {"noise": "student", "nu": dist.HalfNormal(4.0)},
            ValueError,
            r"nu has a prior .*: pass a distribution on the reals above 1, such as TruncatedNormal",
        ),
        ({"noise": "covariance", "nu": dist.HalfNormal(4.0)}, TypeError, "the prior of a covariance is a number"),
        ({"lapse": 1.0}, ValueError, r"lapse must be a number in \[0, 1\), or a distribution, not 1.0"),
        ({"lapse": dist.HalfNormal(1.0)}, ValueError, r"lapse has a prior .*: pass a distribution on \[0, 1\]"),
        ({"lapse": 0.1, "kappa": np.inf}, ValueError, "kappa is infinite, and with lapses .* Pass a finite kappa"),
        ({"noise": "student", "kappa": np.inf}, ValueError, "kappa is infinite, and with Student noise"),
    ],
)  # fmt: skip
def test_what_makes_no_posterior_is_refused(fields, error, message):
    with pytest.raises(error, match=message):
        ethogram.NoisyMDP(kind="features", **fields)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (ethogram.Logit(), "PXDA does not sample Gumbel noise .*Polya-Gamma.* use NUTS"),
        (
            ethogram.Logit(lapse=0.1),
            "PXDA does not sample Gumbel noise .* and lapses of probability 0.1: the chances",
        ),
        (
            ethogram.NoisyMDP(noise="student", lapse=0.1),
            "and lapses .*: lapses are drawn beside normal noise alone",
        ),
        (ethogram.Probit(lapse=dist.Uniform()), "and lapses: the prior of lapse is not a Beta"),
    ],
)
def test_augmentation_names_the_noise_that_it_does_not_sample(model, message):
    with pytest.raises(ValueError, match=message):
        ethogram.PXDA(model)


def test_constructors_are_of_one_class():
    assert (ethogram.Logit().noise, ethogram.Logit().kind) == ("gumbel", "features")
    assert (ethogram.Probit(4.0).noise, ethogram.Probit(4.0).kappa) == ("normal", 4.0)
    assert ethogram.Probit(lapse=0).lapse is None and ethogram.NoisyMDP(noise="student").nu == 4.0


def test_a_logit_takes_no_other_noise():
    with pytest.raises(TypeError, match="a Logit has Gumbel noise: leave noise out"):
        ethogram.Logit(noise="student")
