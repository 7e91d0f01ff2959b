"""Normal and normal-inverse-Wishart blocks against scipy, quadrature, numpyro and the textbook update."""

import jax
import numpy as np
import pytest
from scipy import special, stats

from ethogram.models.families.normal import MeanCovariance, Normal, NormalCoordinates
from ethogram.models.families.normal_inverse_wishart import (
    NormalInverseWishart,
    NormalInverseWishartCoordinates,
)
from tests.models.families import log_partitions

MEAN = np.array([[1.0, -0.5], [0.3, 2.0]])
STRENGTH, DOF = np.array([0.7, 4.0]), np.array([5.5, 9.0])
SCALE = np.array([[[2.0, 0.6], [0.6, 1.0]], [[0.5, -0.2], [-0.2, 1.5]]])
ORIGIN = np.array([0.4, 0.1])
OTHER = (np.array([0.2, 0.2]), 1.3, 4.5, np.array([[1.0, 0.1], [0.1, 0.7]]))


def block_of(origin=ORIGIN):
    """Two rows in two features."""
    return NormalInverseWishart.from_standard(MEAN, STRENGTH, DOF, SCALE, origin=origin)


def reference_kl(m, k, nu, psi, m0, k0, nu0, psi0):
    """KL divergence of one NIW row in NumPy, term by term as it is printed in textbooks."""
    d = len(m)
    inverse = np.linalg.inv(psi)
    halves, halves0 = ((x - np.arange(d)) / 2 for x in (nu, nu0))
    log_gamma, log_gamma0 = special.gammaln(halves).sum(), special.gammaln(halves0).sum()
    quadratic = k0 * nu * (m - m0) @ inverse @ (m - m0)
    return (
        0.5 * (d * (k0 / k - 1 - np.log(k0 / k)) + quadratic)
        + 0.5 * nu0 * (np.linalg.slogdet(psi)[1] - np.linalg.slogdet(psi0)[1])
        + 0.5 * nu * (np.trace(psi0 @ inverse) - d)
        + log_gamma0
        - log_gamma
        + 0.5 * (nu - nu0) * special.digamma(halves).sum()
    )


kl = jax.jit(lambda q, p: q.kl(p))
dof_of = jax.jit(lambda q: q.standard().dof)
standard_of = jax.jit(lambda q: q.standard())
expect = jax.jit(lambda q: q.expected_statistics())
partition_of = jax.jit(lambda q: log_partitions.normal_inverse_wishart(*q.natural))


def test_density_and_expectations_are_scipys():
    tolerance = 1e-10
    with jax.numpy_rank_promotion("raise"):
        block = block_of()
        mean, covariance = np.array([[0.5, 0.5]] * 2), np.array([[[1.0, 0.3], [0.3, 0.8]]] * 2)
        statistics, expected = jax.device_get(
            jax.jit(lambda b: (b.statistics(mean, covariance), b.expected_statistics()))(block)
        )
    partition = partition_of(block)
    natural = jax.device_get(block.natural)
    for row in range(2):
        m, k, nu, psi = MEAN[row], STRENGTH[row], DOF[row], SCALE[row]
        density = sum(np.sum(n[row] * s[row]) for n, s in zip(natural, statistics, strict=True))
        wishart = stats.invwishart(nu, psi).logpdf(np.asarray(covariance[row], float))
        sigma = np.asarray(covariance[row], float)
        against = wishart + stats.multivariate_normal(m, sigma / k).logpdf(np.asarray(mean[row], float))
        np.testing.assert_allclose(density - partition[row], against, rtol=tolerance, atol=tolerance)

        centred = np.array([1.5, 0.2]) - ORIGIN
        log_density = (
            centred @ expected.location[row]
            + expected.strength[row]
            + expected.dof[row]
            + np.sum(np.outer(centred, centred) * expected.scatter[row])
            - np.log(2 * np.pi)
        )
        gap = np.array([1.5, 0.2]) - m
        log_det = special.digamma([nu / 2, (nu - 1) / 2]).sum() + 2 * np.log(2) - np.linalg.slogdet(psi)[1]
        against = 0.5 * (log_det - 2 / k - nu * gap @ np.linalg.solve(psi, gap)) - np.log(2 * np.pi)
        np.testing.assert_allclose(log_density, against, rtol=tolerance)


def test_partition_and_expectations_are_integrals_in_one_dimension():
    """Trapezoids over the mean and the log variance, fine and wide enough for eight digits."""
    block = NormalInverseWishart.from_standard([0.4], 2.0, 6.0, [[1.5]], origin=[1.0])
    standard, log_variance = np.meshgrid(np.linspace(-9, 9, 201), np.linspace(-5, 6, 401), indexing="ij")
    variance = np.exp(log_variance)
    mu = 0.4 + standard * np.sqrt(variance / 2.0)
    statistics, expectations = jax.device_get(
        jax.jit(lambda b, m, v: (b.statistics(m, v), b.expected_statistics()))(
            block, mu[..., None], variance[..., None, None]
        )
    )
    statistics = [np.asarray(s).reshape(mu.shape) for s in statistics]
    natural = [np.asarray(n).item() for n in block.natural]
    # Jacobians: d mu = sqrt(variance / 2) d standard and d variance = variance d log_variance.
    weight = np.exp(sum(n * s for n, s in zip(natural, statistics, strict=True)))
    weight *= variance**1.5 / np.sqrt(2.0)
    integral = lambda y: np.trapezoid(np.trapezoid(y, dx=18 / 200), dx=11 / 400)  # noqa: E731
    mass = integral(weight)
    np.testing.assert_allclose(partition_of(block), np.log(mass), rtol=1e-8)
    for expected, statistic in zip(expectations, statistics, strict=True):
        np.testing.assert_allclose(np.ravel(expected)[0], integral(weight * statistic) / mass, rtol=1e-7)


def test_kl_is_the_printed_formula_whatever_the_origins():
    with jax.numpy_rank_promotion("raise"):
        against = [reference_kl(*row, *OTHER) for row in zip(MEAN, STRENGTH, DOF, SCALE, strict=True)]
        prior = NormalInverseWishart.from_standard(*OTHER, origin=np.array([-3.0, 2.0]))
        np.testing.assert_allclose(kl(block_of(), prior), against, rtol=1e-11)
        np.testing.assert_allclose(kl(block_of(None), prior), against, rtol=1e-11)


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize(("dof", "strength"), [(1.01, 1e-3), (4.0, 1.0), (1e6, 1e6)])
def test_extreme_parameters_in_float32(size, dof, strength):
    """The divergence to and from a weak prior, against the printed formula in float64."""
    m, m0 = np.array([0.02, -0.01]) * np.sqrt(size), np.zeros(2)
    # As many degrees of freedom, as large a scale.
    psi, psi0 = size * max(dof / 3, 1) * OTHER[3], size * np.eye(2)
    q, p = (m, strength, dof, psi), (m0, 1.0, 3.0, psi0)
    with jax.enable_x64(False):
        blocks = [NormalInverseWishart.from_standard(*row) for row in (q, p)]
        # What float32 keeps of nu is what the coordinate nu + D + 2 keeps.
        q = (m, strength, float(dof_of(blocks[0])), psi)
        assert all(s.dtype == np.float32 and np.all(np.isfinite(s)) for s in expect(blocks[0]))
        np.testing.assert_allclose(kl(*blocks), reference_kl(*q, *p), rtol=3e-5)
        np.testing.assert_allclose(kl(*blocks[::-1]), reference_kl(*p, *q), rtol=3e-5)
        np.testing.assert_allclose(kl(blocks[0], blocks[0]), 0, atol=1e-6)


def test_origin_saves_float32_from_large_offsets():
    """Data at 1e4 with a spread of 1: the update is right about an origin there; without, it is refused."""
    random = np.random.default_rng(0)
    far = np.array([1e4, -2e4])
    x = far + random.normal(size=(50, 2))
    centred = x - far
    data = NormalInverseWishartCoordinates(centred.sum(0), 50.0, 50.0, centred.T @ centred)
    data = jax.tree.map(np.float32, data)
    with jax.enable_x64(False):
        prior = NormalInverseWishart.from_standard(far, 1.0, 4.0, np.eye(2), origin=far)
        after = jax.jit(lambda p, d: p.step(p, d, 1.0, 1.0).standard())(prior, data)
    mean, strength, dof, scale = jax.device_get(after)
    assert scale.dtype == np.float32
    average = x.mean(0)
    against = np.eye(2) + (x - average).T @ (x - average) + 50 / 51 * np.outer(average - far, average - far)
    np.testing.assert_allclose(scale, against, rtol=1e-4)
    np.testing.assert_allclose(mean, (far + 50 * average) / 51, rtol=1e-6)
    assert (strength, dof) == (51, 54)
    lost = pytest.raises(ValueError, match=r"diagonal of scale\[0\] is lost to rounding.*give origin=mean")
    with jax.enable_x64(False), lost:
        NormalInverseWishart.from_standard(far, 1.0, 4.0, np.eye(2))


def test_draws_follow_scipys_marginals():
    """Bartlett draws in three features: Kolmogorov-Smirnov on diagonal entries, determinant and mean."""
    psi = np.array([[2.0, 0.5, 0.1], [0.5, 1.0, -0.3], [0.1, -0.3, 0.8]])
    block = NormalInverseWishart.from_standard(np.zeros(3), 2.0, 3.3, psi)
    mean, covariance = jax.jit(lambda b: b.sample(jax.random.key(1), (2_000,)))(block)
    covariance = np.asarray(covariance)
    assert mean.shape == (2_000, 3) and covariance.shape == (2_000, 3, 3)
    np.testing.assert_array_equal(covariance, covariance.swapaxes(-1, -2))
    # Sigma_ii is inverse gamma; |Psi| / |Sigma| is a product of chi squares.
    for i in range(3):
        marginal = stats.invgamma((3.3 - 2) / 2, scale=psi[i, i] / 2)
        assert stats.kstest(covariance[:, i, i], marginal.cdf).pvalue > 1e-3
    whitened = np.asarray(mean)[:, 0] / np.sqrt(covariance[:, 0, 0] / 2)
    assert stats.kstest(whitened, stats.norm.cdf).pvalue > 1e-3
    # Many more draws of the reference than of the block, so that its own noise does not count.
    random = np.random.default_rng(1)
    product = np.prod([random.chisquare(3.3 - i, size=200_000) for i in range(3)], axis=0)
    determinants = np.linalg.det(psi) / np.linalg.det(covariance)
    assert stats.ks_2samp(determinants, product).pvalue > 1e-3


def test_mean_of_the_covariance_is_infinite_where_it_has_none():
    block = NormalInverseWishart.from_standard(np.zeros((2, 2)), 1.0, [3.0, 5.0], np.eye(2))
    mean, inner = jax.jit(lambda b: (b.mean(), b.reference_point()))(block)
    covariance = np.asarray(mean.covariance)
    assert np.all(np.isposinf(covariance[0]))
    np.testing.assert_allclose(covariance[1], np.eye(2) / 2, rtol=1e-5)
    assert np.all(np.isfinite(inner.covariance))


def test_normal_is_scipys_and_the_textbook_update():
    noise = np.array([[0.5, 0.1], [0.1, 0.4]])
    x = np.random.default_rng(1).normal(size=(20, 2))
    with jax.numpy_rank_promotion("raise"):
        block = Normal.from_standard(MEAN, SCALE)
        point = np.array([[0.5, 0.5]] * 2)
        prior = Normal.from_standard(*OTHER[::3])
        inverse = np.linalg.inv(noise)
        data = NormalCoordinates(inverse @ x.sum(0), 20 * inverse)

        @jax.jit
        def of(q, p, data, point):
            expected = q.expected_statistics()
            return (q.statistics(point), q.kl(p), expected), p.step(p, data, 1, 1).standard()

        (statistics, divergence, expected), after = jax.device_get(of(block, prior, data, point))
    partition = jax.jit(log_partitions.normal)(*block.natural)
    natural = jax.device_get(block.natural)
    m0, v0 = OTHER[::3]
    for row in range(2):
        m, v = MEAN[row], SCALE[row]
        density = sum(np.sum(n[row] * s[row]) for n, s in zip(natural, statistics, strict=True))
        against = stats.multivariate_normal(m, v).logpdf(point[row])
        np.testing.assert_allclose(density - partition[row], against, rtol=1e-11)
        np.testing.assert_allclose(expected.precision_mean[row], m, rtol=1e-12)
        np.testing.assert_allclose(expected.precision[row], -0.5 * (v + np.outer(m, m)), rtol=1e-12)
        gap, precision0 = m - m0, np.linalg.inv(v0)
        against = np.trace(precision0 @ v) - 2 - np.linalg.slogdet(precision0 @ v)[1] + gap @ precision0 @ gap
        np.testing.assert_allclose(divergence[row], 0.5 * against, rtol=1e-11)
    covariance = np.linalg.inv(np.linalg.inv(v0) + 20 * inverse)
    np.testing.assert_allclose(after.covariance, covariance, rtol=1e-11)
    mean = covariance @ (np.linalg.solve(v0, m0) + inverse @ x.sum(0))
    np.testing.assert_allclose(after.mean, mean, rtol=1e-11)


@pytest.mark.parametrize("seed", range(5))
def test_standard_parameters_come_back(seed):
    random = np.random.default_rng(seed)
    (mean, origin), (strength, spare, *root) = random.uniform(-50, 50, (2, 2)), 10 ** random.uniform(-2, 2, 4)
    factor = np.array([[root[0], 0], [random.uniform(-5, 5), root[1]]])
    scale = factor @ factor.T
    given = (mean, strength, 1 + spare, scale)
    block = NormalInverseWishart.from_standard(*given, origin=origin)
    tolerance = 1e-9 * max(1.0, strength) * np.abs(scale).max() + 1e-9
    standard = standard_of(block)
    for left, right in zip(standard, given, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-9, atol=tolerance)
    again = NormalInverseWishart.from_standard(*jax.device_get(standard), origin=origin)
    for left, right in zip(again.natural, block.natural, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-9, atol=tolerance)


GOOD = {"mean": np.zeros(2), "strength": 1.0, "dof": 4.0, "scale": np.eye(2)}


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"dof": 1.0}, ValueError, r"dof is too small for 2 features \(it is 1.*dof must exceed D - 1 = 1"),
        ({"dof": [4.0, 0.5]}, ValueError, r"dof\[1\] is too small"),
        ({"dof": np.float32(1 + 1e-7)}, ValueError, "dof is D - 1 after rounding"),
        ({"strength": 0.0}, ValueError, "strength is not positive"),
        ({"strength": np.array(1)}, TypeError, r"strength\.astype\(float\)"),
        ({"scale": -np.eye(2)}, ValueError, "scale is not positive definite"),
        ({"scale": np.array([[1.0, 0.5], [0.0, 1.0]])}, ValueError, "scale is not symmetric"),
        ({"scale": np.stack([np.eye(2), np.ones((2, 2))])}, ValueError, r"scale\[1\] is not positive definite"),
        ({"scale": np.eye(3)}, ValueError, "give mean"),
        ({"scale": np.full((2, 2), np.nan)}, ValueError, r"scale\[0, 0\] is not finite"),
        ({"mean": 0.0}, ValueError, "give mean"),
        ({"mean": np.zeros((3, 2)), "dof": [4.0, 4.0]}, ValueError, "batch axes that broadcast"),
        ({"origin": np.zeros(3)}, ValueError, "origin has shape"),
        ({"origin": [0.0, np.nan]}, ValueError, r"origin\[1\] is not finite"),
    ],
)  # fmt: skip
def test_bad_arguments_are_named(change, error, message):
    with jax.enable_x64(False), pytest.raises(error, match=message):  # one of them is lost in float32 only
        NormalInverseWishart.from_standard(**(GOOD | change))


@pytest.mark.parametrize(
    ("mean", "covariance", "message"),
    [
        (np.zeros(2), np.eye(3), "give"),
        (np.zeros((2, 2)), np.stack([np.eye(2)] * 3), "broadcast"),
        (np.zeros(2), np.zeros((2, 2)), "covariance is not positive definite"),
        (np.zeros(2), np.triu(np.ones((2, 2))), "covariance is not symmetric"),
        ([0.0, np.inf], np.eye(2), r"mean\[1\] is not finite"),
    ],
)
def test_bad_arguments_of_normal_are_named(mean, covariance, message):
    with pytest.raises(ValueError, match=message):
        Normal.from_standard(mean, covariance)


def test_origin_with_leading_axes_of_the_batch():
    origin = np.array([[1.0, 2.0], [3.0, 4.0]])
    block = NormalInverseWishart.from_standard(np.zeros((2, 3, 2)), 1.0, 5.0, np.eye(2), origin=origin)
    np.testing.assert_allclose(jax.jit(lambda b: b.standard())(block).mean, np.zeros((2, 3, 2)), atol=1e-6)
    np.testing.assert_allclose(block.natural.location[1, 2], [-3, -4])
    draws = jax.eval_shape(lambda: block.sample(jax.random.key(0)))
    assert isinstance(draws, MeanCovariance)
    assert draws.mean.shape == (2, 3, 2)
