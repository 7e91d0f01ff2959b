"""Conjugate blocks of gamma and von Mises parameters against integrals in NumPy, and of Poisson rates."""

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
    """Log partition and expected statistics by the trapezoid rule on a fine grid, wherever the density counts."""
    _, _, _, density, statistics = CASES[name]
    rough = np.linspace(-30, 12, 100_001)
    values = density(rough, *row, centre)
    inside = rough[values > values.max() - 60]
    u = np.linspace(inside[0], inside[-1], 2001)
    values = density(u, *row, centre)
    weight = np.exp(values - values.max())
    means = [weight @ part / weight.sum() for part in statistics(u, *row, centre)]
    return values.max() + np.log(weight.sum() * (u[1] - u[0])), means


SIZE = np.exp(0.4)


@jax.jit
def everything(block, other):
    """Expected statistics, divergence from another block, log density at a size."""
    size = jnp.full_like(block.natural.count, SIZE)
    return (
        block.expected_statistics(),
        block.kl(other),
        block.log_density_of_size(size),
    )


@pytest.fixture(scope="module", params=["gamma", pytest.param("von Mises", marks=pytest.mark.slow)])
def case(request):
    """A block of every count; methods in one program share its quadrature, which takes long to compile."""
    block, found = blocks_of(request.param), {}
    plain = type(block)._quadrature

    def once(self, **options):
        key = id(self.natural.count), *options.values()
        if key not in found:
            found[key] = self, plain(self, **options)  # as long as it lives, no other has its id
        return found[key][1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(block), "_quadrature", once)
        yield request.param, block


def test_expected_statistics_are_integrals(case):
    name, block = case
    expected, *_ = everything(block, block)
    for i, row in enumerate(np.stack(block.natural, axis=-1)):
        _, means = exactly(name, row, CASES[name][2])
        np.testing.assert_allclose([part[i] for part in expected], means, rtol=1e-7)


def test_divergence_is_that_of_bregman(case):
    name, block = case
    other = CASES[name][0](*(np.full(5, x) for x in (0.5, 0.8)), np.full(5, 0.7))
    # The base measures must be equal: a difference of log partitions does not see them.
    other = dataclasses.replace(other, centre=block.centre)
    (expected, kl, _), (_, none, _) = everything(block, other), everything(other, other)
    own, theirs = (
        np.array([exactly(name, row, CASES[name][2])[0] for row in np.stack(one.natural, axis=-1)])
        for one in (block, other)
    )
    gaps = zip(other.natural, block.natural, expected, strict=True)
    bregman = theirs - own - sum((np.asarray(p) - np.asarray(q)) * mean for p, q, mean in gaps)
    np.testing.assert_allclose(kl, bregman, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(none, 0, atol=1e-9)


@pytest.mark.slow
def test_single_precision_up_to_ten_million_observations(case):
    """Expected statistics and divergences, beside double precision on the same coordinates."""
    counts = np.array([0.01, 1.0, 1e3, 1e5, 1e7])
    narrow = jax.tree.map(lambda x: np.asarray(x, np.float32), blocks_of(case[0], counts))
    wide = jax.tree.map(lambda x: x.astype(np.float64), narrow)
    prior = [jax.tree.map(lambda x: x[1:2].repeat(5), block) for block in (narrow, wide)]
    (single, kl, _), (double, against, _) = everything(narrow, prior[0]), everything(wide, prior[1])
    for a, b in zip(single, double, strict=True):
        assert a.dtype == np.float32
        np.testing.assert_allclose(a, b, rtol=3e-5)
    np.testing.assert_allclose(kl, against, rtol=1e-3, atol=1e-3)


def test_draws_and_sites_have_the_density(case):
    """Sizes against the distribution function of the density, and the log density of the site."""
    name, block = case
    at, (_, _, centre, density, _) = 2, CASES[name]
    one = jax.tree.map(lambda x: np.asarray(x)[at : at + 1], block)
    row, u = [float(x[0]) for x in one.natural], np.log(SIZE)
    drawn, found = (
        jax.jit(lambda one: one.sample_size(jax.random.key(0), (4000,)))(one),
        everything(block, block)[2],
    )
    grid = np.linspace(-12, 9, 20_001)
    weight = np.exp(density(grid, *row, centre))
    reached = integrate.cumulative_simpson(weight, x=grid, initial=0)
    drawn = np.log(np.asarray(drawn))[:, 0]
    assert stats.kstest(drawn, lambda u: np.interp(u, grid, reached / reached[-1])).pvalue > 1e-3
    np.testing.assert_allclose(found[at], density(u, *row, centre) - np.log(reached[-1]) - u, rtol=1e-6)
    kinds = {}

    def model(key, one):
        sites = trace(seed(sample_parameters, key)).get_trace({"step.both": one})
        kinds.update({name: site["type"] for name, site in sites.items()})

    jax.eval_shape(model, jax.random.key(1), one)
    assert {site for site, kind in kinds.items() if kind == "sample"} == {
        "gamma": {"step_mean", "step_shape"},
        "von Mises": {"step_concentration", "step_direction_vector"},
    }[name]


def test_directions_go_round_the_circle():
    """The density in the plane integrates to one, and by angle is von Mises."""
    axis = np.linspace(-3, 3, 300)
    plane = np.stack(np.meshgrid(axis, axis), axis=-1)
    log_prob = jax.jit(lambda plane: PlanarDirection(np.array(3.0), np.array(2.0)).log_prob(plane))
    weight = np.exp(log_prob(plane)) * (axis[1] - axis[0]) ** 2
    assert weight.sum() == pytest.approx(1, abs=1e-4)
    angle = np.arctan2(plane[..., 1], plane[..., 0])
    assert (weight * np.cos(angle - 3.0)).sum() == pytest.approx(special.i1(2.0) / special.i0(2.0), abs=1e-4)


def test_rates_of_counts():
    """Moments and divergence of gamma distributions by SciPy."""
    a, b = np.array([0.3, 50.0, 2e6]), np.array([0.01, 2.0, 1e6])
    block, other = Gamma.from_standard(a, b), Gamma.from_standard(a * 1.1 + 0.2, b)
    expected, mean, found = jax.jit(lambda q, p: (q.expected_statistics(), q.mean(), q.kl(p)))(block, other)
    np.testing.assert_allclose(expected.shape, special.digamma(a) - np.log(b))
    np.testing.assert_allclose(expected.rate, -a / b)
    np.testing.assert_allclose(mean, a / b)
    p = np.asarray(other.natural.shape)
    kl = (a - p) * special.digamma(a) - special.gammaln(a) + special.gammaln(p) + (p - a) * np.log(b)
    kl = kl - (p - a) * np.log(b)
    np.testing.assert_allclose(found, kl, rtol=1e-6)


def test_a_direction_of_which_nothing_is_known_has_a_density():
    """Also where numpyro validates arguments, as its samplers do: uniform over the circle at unit length."""
    with numpyro.validation_enabled():
        law = PlanarDirection(np.zeros(3), np.zeros(3))
        angle = np.array([0.0, 2.0, -3.0])
        found = jax.jit(law.log_prob)(np.stack([np.cos(angle), np.sin(angle)], -1))
    expected = -np.log(2 * np.pi) - 0.5 * np.log(2 * np.pi) - np.log(0.25)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
