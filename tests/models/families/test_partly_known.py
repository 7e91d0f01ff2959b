"""Known rows: held in every method, never NaN, and refused when they cannot be parameters."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ethogram.models.families import Gamma, GammaConjugate, VonMisesConjugate
from ethogram.models.families.exponential_family import (
    Beta,
    Dirichlet,
    Known,
    MeanCovariance,
    Normal,
    NormalInverseWishart,
    PartlyKnown,
    natural_step,
    total_kl,
)

NAN = float("nan")


def dirichlet():
    """Rows of which the first, with a zero, is known."""
    block = Dirichlet.from_standard(np.array([[1.0, 1.0, 1.0], [2.0, 1.0, 3.0]]))
    return PartlyKnown.from_known(block, Known([[0.7, 0.3, 0.0], [NAN, NAN, NAN]]))


def gaussian():
    """A mean and covariance known in the second row."""
    block = NormalInverseWishart.from_standard(np.ones((2, 2)), 1.0, 2.5, np.eye(2))
    mean = np.array([[NAN, NAN], [0.5, 2.0]])
    covariance = np.stack([np.full((2, 2), NAN), np.array([[2.0, 0.5], [0.5, 1.0]])])
    return PartlyKnown.from_known(block, Known((mean, covariance)))


def test_known_rows_of_probabilities():
    with jax.numpy_rank_promotion("raise"):
        partly = dirichlet()
        free = Dirichlet.from_standard(np.ones((2, 3)))
        prior = PartlyKnown.from_known(free, Known([[0.7, 0.3, 0.0], [NAN] * 3]))

        @jax.jit
        def everything(q, p):
            moved = q.step(p, q.natural, 2.0, 1.0)
            divergence = q.kl(p), q.kl(p.block)
            return q.expected_statistics(), q.block.expected_statistics(), divergence, moved, moved.mean()

        (expected,), (of_block,), divergence, moved, mean = jax.device_get(everything(partly, prior))
        np.testing.assert_allclose(expected[0, :2], np.log([0.7, 0.3]), rtol=1e-6)
        assert np.isneginf(expected[0, 2])
        np.testing.assert_array_equal(expected[1], of_block[1])
        assert divergence[0][0] == 0 and divergence[0][1] > 0
        np.testing.assert_array_equal(*divergence)
        np.testing.assert_array_equal(moved.natural.concentration, [[1, 1, 1], [5, 3, 7]])
        np.testing.assert_allclose(mean, [[0.7, 0.3, 0], [1 / 3, 0.2, 7 / 15]], rtol=1e-6)
        assert partly.standard().concentration.shape == (2, 3)


def test_draws_of_known_rows_are_the_values():
    partly, normal = (
        dirichlet(),
        PartlyKnown.from_known(Normal.from_standard(np.zeros((2, 1)), np.eye(1)), Known([[NAN], [3.0]])),
    )
    draw = jax.jit(lambda a, b: (a.sample(jax.random.key(0), (4,)), b.sample(jax.random.key(1))))
    draws, means = jax.device_get(draw(partly, normal))
    np.testing.assert_allclose(draws[:, 0], [[0.7, 0.3, 0]] * 4, rtol=1e-6)
    assert np.ptp(draws[:, 1], axis=0).min() > 0
    assert means[1, 0] == 3 and means[0, 0] != 0
    shape = jax.eval_shape(lambda: gaussian().sample(jax.random.key(0), (3,)))
    assert isinstance(shape, MeanCovariance) and shape.mean.shape == (3, 2, 2)


@pytest.mark.slow
def test_known_mean_and_covariance_under_jit_vmap_and_grad():
    partly = gaussian()
    start = {"emission": partly, "all": dirichlet()}
    data = jax.tree.map(lambda x: 0.1 * x, {k: b.natural for k, b in start.items()})
    after = jax.jit(natural_step)(start, start, data, 1.0, 0.5)["emission"]
    np.testing.assert_allclose(after.mean().mean[1], [0.5, 2.0])
    np.testing.assert_allclose(after.mean().covariance[1], [[2, 0.5], [0.5, 1]])
    assert np.all(np.isposinf(after.mean().covariance[0]))  # as of its block, of 2.6 degrees
    expected = jax.jit(lambda b: b.expected_statistics())
    location, strength, dof, scatter = expected(after)
    precision = np.linalg.inv([[2, 0.5], [0.5, 1]])
    mu = np.array([0.5, 2.0])
    np.testing.assert_allclose(location[1], precision @ mu)
    np.testing.assert_allclose(strength[1], -0.5 * mu @ precision @ mu)
    np.testing.assert_allclose(dof[1], -0.5 * np.log(1.75))
    np.testing.assert_allclose(scatter[1], -0.5 * precision)

    def loss(tree):
        return total_kl(tree, start) + sum(jnp.sum(s) for s in tree["emission"].expected_statistics())

    slopes = jax.jit(jax.grad(loss, allow_int=True))({"emission": after, "all": start["all"]})
    assert all(np.all(np.isfinite(s)) for s in slopes["emission"].block.natural)
    assert np.all(np.asarray(slopes["emission"].block.natural.location[1]) == 0)
    assert np.all(np.isfinite(slopes["emission"].values.covariance))
    pair = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), after)
    np.testing.assert_allclose(jax.jit(jax.vmap(expected))(pair).location[1], location)
    np.testing.assert_allclose(expected(pair).location[1], location)


def test_known_numbers_and_means_are_held():
    beta = PartlyKnown.from_known(Beta.from_standard(np.ones(2), 1.0), Known([0.5, NAN]))
    np.testing.assert_allclose(jax.jit(lambda q: q.mean())(beta), [0.5, 0.5])
    normal = PartlyKnown.from_known(Normal.from_standard(np.zeros((2, 1)), np.eye(1)), Known([[NAN], [3.0]]))
    expected = jax.jit(lambda q: q.expected_statistics())(normal)
    np.testing.assert_allclose(expected.precision_mean, [[0.0], [3.0]])


rows = Dirichlet.from_standard(np.ones((2, 2)))
gaussians = NormalInverseWishart.from_standard(np.zeros((2, 2)), 1.0, 4.0, np.eye(2))


@pytest.mark.parametrize(
    ("block", "value", "error", "message"),
    [
        (rows, [[0.5, 0.4], [NAN, NAN]], ValueError, r"sum over the last axis of known\[0\] is not 1.*divide"),
        (rows, [[NAN, NAN], [1.5, -0.5]], ValueError, r"known\[1, 1\] is negative"),
        (rows, [[NAN, 0.5], [0.5, 0.5]], ValueError, r"known\[0\] is NaN in part"),
        (rows, [0.5, 0.5], ValueError, r"known has shape \(2,\): give it the shape \(2, 2\)"),
        (rows, [[np.inf, 0.5], [0.5, 0.5]], ValueError, r"known\[0, 0\] is infinite"),
        (rows, np.eye(2, dtype=int), TypeError, r"known\.astype\(float\)"),
        (rows, (np.eye(2), np.eye(2)), ValueError, "known has 2 parts, not the 1"),
        (gaussians, (np.zeros((2, 2)), -np.stack([np.eye(2)] * 2)), ValueError, r"known.covariance\[0\] is not pos"),
        (Beta.from_standard(1.0, 1.0), 1.2, ValueError, r"known is not a probability \(it is 1.2"),
        (Gamma.from_standard(1.0, 1.0), -1.0, ValueError, r"known is negative \(it is -1"),
        (GammaConjugate.from_standard(1.0, 1.0, 1.0), (1.0, 0.0), ValueError, r"known\.shape is not positive"),
        (VonMisesConjugate.from_standard(0.0, 1.0, 1.0), (1.0, -1.0), ValueError, r"known\.concentration is neg"),
    ],
)  # fmt: skip
def test_impossible_values_are_named(block, value, error, message):
    with pytest.raises(error, match=message):
        PartlyKnown.from_known(block, Known(value))
