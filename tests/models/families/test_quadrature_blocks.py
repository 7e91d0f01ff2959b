"""Conjugate blocks of gamma and von Mises parameters against adaptive quadrature in SciPy, and of Poisson rates."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
from numpyro.handlers import seed, trace
from scipy import integrate, special, stats

from ethogram.models.families import Gamma, GammaConjugate, VonMisesConjugate
from ethogram.models.families.numpyro_sites import sample_parameters
from ethogram.models.families.quadrature_sites import PlanarDirection

COUNTS = np.array([0.01, 0.3, 4.0, 300.0, 1e5])


def gamma_density(u, n, log_sum, total, a0):
    """Density of ln a, the rate integrated out, by Gamma functions as they are printed."""
    a = np.exp(u)
    kernel = u + special.gammaln(n * a) - n * a * np.log(total) - n * special.gammaln(a) + a * log_sum
    return kernel + stats.norm.logpdf(u, np.log(a0), 2)


def von_mises_density(u, n, cosine, sine, kappa0):
    kappa, r = np.exp(u), np.hypot(cosine, sine)
    log_bessel = [np.log(special.i0e(z)) + z for z in (kappa * r, kappa)]
    return np.log(2 * np.pi) + log_bessel[0] - n * log_bessel[1] + stats.norm.logpdf(u, np.log(kappa0), 2)


def gamma_statistics(u, n, log_sum, total, a0):
    a = np.exp(u)
    return a * (special.digamma(n * a) - np.log(total)) - special.gammaln(a), a, -n * a / total


def von_mises_statistics(u, n, cosine, sine, kappa0):
    kappa, r = np.exp(u), np.hypot(cosine, sine)
    along = kappa * special.i1e(kappa * r) / special.i0e(kappa * r)
    return -np.log(special.i0e(kappa)) - kappa, along * cosine / r, along * sine / r


CASES = {
    "gamma": (GammaConjugate.from_standard, (0.3, 2.5), 2.5, gamma_density, gamma_statistics),
    "von Mises": (
        VonMisesConjugate.from_standard,
        (2.0, 1.5),
        1.5,
        von_mises_density,
        von_mises_statistics,
    ),
}


def blocks_of(name, counts=COUNTS):
    make, point, _, _, _ = CASES[name]
    return make(*(np.full(counts.shape, x) for x in point), counts)


def exactly(name, row, centre):
    """Log partition and expected statistics by adaptive quadrature about the mode."""
    _, _, _, density, statistics = CASES[name]
    grid = np.linspace(-30, 12, 400_001)
    values = density(grid, *row, centre)
    mode = grid[np.argmax(values)]
    inside = grid[values > values.max() - 40]
    options = {"points": [mode], "epsabs": 0, "epsrel": 1e-11, "limit": 400}

    def integral(f):
        both = zip((inside[0], mode), (mode, inside[-1]), strict=True)
        options.pop("points", None)
        return sum(
            integrate.quad(
                lambda u: f(u) * np.exp(density(u, *row, centre) - values.max()), *ends, **options
            )[0]
            for ends in both
        )

    total = integral(lambda u: 1.0)
    means = [integral(lambda u, i=i: statistics(u, *row, centre)[i]) / total for i in range(3)]
    return values.max() + np.log(total), means


@pytest.fixture(scope="module", params=CASES)
def case(request):
    block = blocks_of(request.param)
    evaluated = jax.jit(lambda b: (b.log_partition(), b.expected_statistics()))
    return request.param, block, evaluated


def test_log_partition_and_expected_statistics(case):
    name, block, evaluated = case
    log_partition, expected = evaluated(block)
    for i, row in enumerate(np.stack(block.natural, axis=-1)):
        value, means = exactly(name, row, CASES[name][2])
        np.testing.assert_allclose(log_partition[i], value, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose([part[i] for part in expected], means, rtol=1e-7)


def test_expected_statistics_are_the_gradient_of_the_log_partition(case):
    """Central differences in double precision, whose nodes differ."""
    _, block, evaluated = case
    few = jax.tree.map(lambda x: x[1:4], block.natural)
    block = dataclasses.replace(block, natural=few, centre=block.centre[1:4])
    expected = evaluated(block)[1]
    for part in few._fields:
        step = 1e-5 * np.abs(np.asarray(getattr(few, part)))
        ends = [
            evaluated(
                dataclasses.replace(block, natural=few._replace(**{part: getattr(few, part) + sign * step}))
            )[0]
            for sign in (1, -1)
        ]
        np.testing.assert_allclose(
            (ends[0] - ends[1]) / (2 * step), getattr(expected, part), rtol=1e-5, atol=1e-7
        )


def test_divergence_is_that_of_bregman(case):
    name, block, evaluated = case
    other = CASES[name][0](*(np.full(5, x) for x in (0.5, 0.8)), np.full(5, 0.7))
    (own, expected), (theirs, _) = evaluated(block), evaluated(other)
    gaps = zip(other.natural, block.natural, expected, strict=True)
    bregman = theirs - own - sum((p - q) * mean for p, q, mean in gaps)
    # The base measures differ, which a difference of log partitions does not see.
    both = dataclasses.replace(other, centre=block.centre)
    bregman = bregman + evaluated(both)[0] - theirs
    kl = jax.jit(lambda p, q: p.kl(q))
    np.testing.assert_allclose(kl(block, both), bregman, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(kl(block, block), 0, atol=1e-9)


def test_single_precision_up_to_ten_million_observations(case):
    """Expected statistics and divergences, beside double precision on the same coordinates."""
    name, _, evaluated = case
    counts = np.array([0.01, 1.0, 1e3, 1e5, 1e7])
    narrow = jax.tree.map(lambda x: x.astype(np.float32), blocks_of(name, counts))
    wide = jax.tree.map(lambda x: x.astype(np.float64), narrow)
    for a, b in zip(evaluated(narrow)[1], evaluated(wide)[1], strict=True):
        assert a.dtype == np.float32
        np.testing.assert_allclose(a, b, rtol=3e-5)
    prior = [jax.tree.map(lambda x: x[1:2].repeat(5), block) for block in (narrow, wide)]
    kl = jax.jit(lambda p, q: p.kl(q))
    np.testing.assert_allclose(kl(narrow, prior[0]), kl(wide, prior[1]), rtol=1e-3, atol=1e-3)


def test_draws_and_sites_have_the_density(case):
    """Sizes against the distribution function of the adaptive density, and the log density of the site."""
    name, block, _ = case
    at, (_, _, centre, density, _) = 2, CASES[name]
    one = jax.tree.map(lambda x: x[at : at + 1], block)
    row = [float(x[0]) for x in one.natural]
    drawn = np.log(np.asarray(jax.jit(one.sample_size, static_argnums=1)(jax.random.key(0), (4000,))))[:, 0]
    grid = np.linspace(-12, 9, 20_001)
    weight = np.exp(density(grid, *row, centre))
    reached = integrate.cumulative_simpson(weight, x=grid, initial=0)
    assert stats.kstest(drawn, lambda u: np.interp(u, grid, reached / reached[-1])).pvalue > 1e-3
    u = np.array([0.4])
    expected = density(u, *row, centre) - np.log(reached[-1]) - u
    np.testing.assert_allclose(jax.jit(one.log_density_of_size)(np.exp(u)), expected, rtol=1e-6)
    sites = trace(seed(lambda: sample_parameters({"step.both": one}), jax.random.key(1))).get_trace()
    assert {site for site in sites if sites[site]["type"] == "sample"} == {
        "gamma": {"step_mean", "step_shape"},
        "von Mises": {"step_concentration", "step_direction_vector"},
    }[name]


def test_directions_go_round_the_circle():
    """The density in the plane integrates to one, and by angle is von Mises."""
    law = PlanarDirection(np.array(3.0), np.array(2.0))
    axis = np.linspace(-3, 3, 601)
    plane = np.stack(np.meshgrid(axis, axis), axis=-1) + 1e-9
    weight = np.exp(np.asarray(law.log_prob(jnp.asarray(plane)))) * (axis[1] - axis[0]) ** 2
    assert weight.sum() == pytest.approx(1, abs=1e-4)
    angle = np.arctan2(plane[..., 1], plane[..., 0])
    assert (weight * np.cos(angle - 3.0)).sum() == pytest.approx(special.i1(2.0) / special.i0(2.0), abs=1e-4)


def test_rates_of_counts():
    """Moments and divergence of gamma distributions by SciPy."""
    a, b = np.array([0.3, 50.0, 2e6]), np.array([0.01, 2.0, 1e6])
    block, other = Gamma.from_standard(a, b), Gamma.from_standard(a * 1.1 + 0.2, b)
    np.testing.assert_allclose(block.expected_statistics().shape, special.digamma(a) - np.log(b))
    np.testing.assert_allclose(block.mean(), a / b)
    p = np.asarray(other.natural.shape)
    kl = (a - p) * special.digamma(a) - special.gammaln(a) + special.gammaln(p) + (p - a) * np.log(b)
    kl = kl - (p - a) * np.log(b)
    np.testing.assert_allclose(block.kl(other), kl, rtol=1e-6)


def test_a_direction_of_which_nothing_is_known_has_a_density():
    """Also where numpyro validates arguments, as its samplers do: uniform over the circle at unit length."""
    with numpyro.validation_enabled():
        law = PlanarDirection(jnp.zeros(3), jnp.zeros(3))
        angle = np.array([0.0, 2.0, -3.0])
        found = law.log_prob(jnp.stack([jnp.cos(angle), jnp.sin(angle)], -1))
    expected = -np.log(2 * np.pi) - 0.5 * np.log(2 * np.pi) - np.log(0.25)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
