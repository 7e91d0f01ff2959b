"""The matrix-normal inverse-Wishart block against SciPy's densities and the textbook update."""

import jax
import numpy as np
import pytest
from numpyro.infer.util import log_density
from scipy import stats

from ethogram.models.families import MatrixNormalInverseWishart
from ethogram.models.families.numpyro_sites import sample_parameters, start_of_site
from tests.models.families.log_partitions import matrix_normal_inverse_wishart as partitions

RNG = np.random.default_rng(0)
MEAN = RNG.normal(size=(2, 2, 3))  # two rows, two features, three regressors
PRECISION = np.array([[2.0, 0.3, 0.1], [0.3, 1.0, 0.2], [0.1, 0.2, 0.7]])
BASIS = np.array([[1.5, 0, 0], [-0.4, 0.8, 0], [0.2, 1.0, 2.0]])
DOF, SCALE = 5.5, np.array([[2.0, 0.6], [0.6, 1.0]])
REGRESSORS, TARGETS = RNG.normal(size=(9, 3)), RNG.normal(size=(9, 2))
COEFFICIENTS, COVARIANCE = RNG.normal(size=(2, 2, 3)), stats.invwishart.rvs(6, SCALE, 2, RNG)


def block_of():
    return MatrixNormalInverseWishart.from_standard(MEAN, PRECISION, DOF, SCALE, basis=BASIS)


def textbook_update():
    """Mean, precision, dof and scale by row, of coefficients in units of the data, after nine observations."""
    to_units = np.linalg.inv(BASIS)
    prior = to_units @ PRECISION @ to_units.T
    precision = prior + REGRESSORS.T @ REGRESSORS
    rows = []
    for mean in MEAN:
        new = (mean @ prior + TARGETS.T @ REGRESSORS) @ np.linalg.inv(precision)
        scatter = SCALE + TARGETS.T @ TARGETS + mean @ prior @ mean.T
        rows.append((new, precision, DOF + 9, scatter - new @ precision @ new.T))
    return rows


@pytest.fixture(scope="module")
def updated():
    """The block after nine observations in its own coordinates, and what one program computes of it."""
    block = block_of()
    own = REGRESSORS @ BASIS.T
    residual = TARGETS - np.einsum("kdp,np->knd", MEAN, REGRESSORS)
    statistics = type(block.natural)(
        np.einsum("knd,np->kdp", residual, own),
        np.broadcast_to(own.T @ own, (2, 3, 3)),
        np.full(2, 9.0),
        np.einsum("knd,kne->kde", residual, residual),
    )

    @jax.jit
    def of(block, statistics, point):
        q = block.step(block, statistics, 1.0, 1.0)
        gradient = jax.grad(lambda natural: partitions(*natural).sum())(q.natural)
        density = [
            (natural * one).reshape(2, -1).sum(1)
            for natural, one in zip(q.natural, q.statistics(*point), strict=True)
        ]
        return (
            q,
            q.standard(),
            gradient,
            q.expected_statistics(),
            sum(density) - partitions(*q.natural),
            (q.kl(q), q.kl(block)),
        )

    return jax.device_get(of(block, statistics, (COEFFICIENTS, COVARIANCE)))


def test_update_density_and_expectations(updated):
    """Of Fox et al. (2011), section III.A; the expectations are the gradient of the log normaliser."""
    _, standard, gradient, expected, density, _ = updated
    for row, (mean, precision, dof, scale) in enumerate(textbook_update()):
        np.testing.assert_allclose(standard.coefficients[row], mean, rtol=1e-11)
        np.testing.assert_allclose(standard.scale[row], scale, rtol=1e-11)
        np.testing.assert_allclose(standard.dof[row], dof)
        log_density = stats.invwishart.logpdf(COVARIANCE[row], dof, scale)
        log_density += stats.matrix_normal.logpdf(
            COEFFICIENTS[row], mean, COVARIANCE[row], np.linalg.inv(precision)
        )
        of_basis = 2 * np.linalg.slogdet(BASIS)[1]  # the block's density is of B, with A = A_0 + B T
        np.testing.assert_allclose(density[row], log_density + of_basis, rtol=1e-11)
    for one, other in zip(gradient, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


def test_divergence_and_draws(updated):
    """KL by Monte Carlo within four standard errors; draws have the mean of q."""
    q, standard, *_, (none, divergence) = updated
    np.testing.assert_allclose(none, 0, atol=1e-12)
    coefficients, covariance = q.sample_numpy(np.random.default_rng(0), 4000)
    to_units, prior = np.linalg.inv(BASIS), block_of()
    before = np.linalg.inv(to_units @ PRECISION @ to_units.T)
    for row, (mean, precision, dof, scale) in enumerate(textbook_update()):
        after = np.linalg.inv(precision)
        gaps = [
            stats.invwishart.logpdf(s, dof, scale)
            - stats.invwishart.logpdf(s, DOF, SCALE)
            + stats.matrix_normal.logpdf(a, mean, s, after)
            - stats.matrix_normal.logpdf(a, MEAN[row], s, before)
            for a, s in zip(coefficients[:400, row], covariance[:400, row], strict=True)
        ]
        assert abs(np.mean(gaps) - divergence[row]) < 4 * np.std(gaps) / np.sqrt(400)
    error = coefficients.std(0) / np.sqrt(4000)
    assert (np.abs(coefficients.mean(0) - standard.coefficients) < 4.5 * error).all()
    error = covariance.std(0) / np.sqrt(4000)
    means = standard.scale / (np.asarray(standard.dof) - 3)[:, None, None]
    assert (np.abs(covariance.mean(0) - means) < 4.5 * error).all()
    draws = {"coefficients": coefficients}
    latent = start_of_site("coefficients_white", draws, {"coefficients_covariance": prior})
    np.testing.assert_allclose(prior.origin + latent @ BASIS, coefficients, rtol=1e-9, atol=1e-12)


def test_sites_have_the_density_of_the_block():
    white = RNG.normal(size=(2, 2, 3))
    at = {"covariance": COVARIANCE, "coefficients_white": white}
    blocks = {"coefficients_covariance": block_of()}

    @jax.jit
    def density(at):
        total, trace = log_density(lambda: sample_parameters(blocks), (), {}, at)
        return total, trace["coefficients"]["value"]

    found, coefficients = density(at)
    against = sum(
        stats.invwishart.logpdf(s, DOF, SCALE)
        + stats.matrix_normal.logpdf(b, np.zeros((2, 3)), s, np.linalg.inv(PRECISION))
        for s, b in zip(COVARIANCE, white, strict=True)
    )
    np.testing.assert_allclose(found, against, rtol=1e-9)
    np.testing.assert_allclose(coefficients, MEAN + white @ BASIS, rtol=1e-12)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"dof": 1.0}, "dof is too small for 2 features"),
        ({"scale": -SCALE}, "scale is not positive definite"),
        ({"precision": np.eye(2)}, r"precision \(2, 2\).*give coefficients"),
        ({"basis": BASIS.T}, "basis is not lower triangular"),
    ],
)
def test_bad_parameters(changed, message):
    given = {"coefficients": MEAN, "precision": PRECISION, "dof": DOF, "scale": SCALE, "basis": BASIS}
    with pytest.raises(ValueError, match=message):
        MatrixNormalInverseWishart.from_standard(**{**given, **changed})
