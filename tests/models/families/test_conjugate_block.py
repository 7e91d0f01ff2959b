"""What constructors of blocks take, what they refuse, and that tracing skips the checks of values."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ethogram.models.families.exponential_family import Beta, Dirichlet, Normal, NormalInverseWishart


def test_types_of_arguments():
    with jax.enable_x64(False):
        assert Dirichlet.from_standard([1, 2, 3]).natural.concentration.dtype == jnp.float32
    assert not Dirichlet.from_standard([1, 2]).natural.concentration.weak_type
    assert Beta.from_standard(1, np.array([1.0, 2.0])).natural.successes.shape == (2,)
    assert Dirichlet.from_standard([1, 2, 3]).natural.concentration.dtype == jnp.float64
    kept = Beta.from_standard(1.0, np.float32(2.0)).natural
    assert kept.successes.dtype == kept.failures.dtype == jnp.float32


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: Dirichlet.from_standard([[1.0, 1.0], [1.0, -0.5]]), ValueError, r"concentration\[1, 1\] is neg"),
        (lambda: Dirichlet.from_standard([[1.0, 1.0], [0.0, 0.0]]), ValueError, r"concentration\[1\] is a row of"),
        (lambda: Dirichlet.from_standard([1.0, np.nan]), ValueError, r"concentration\[1\] is not finite"),
        (lambda: Dirichlet.from_standard(1.0), ValueError, "pass shape"),
        (lambda: Dirichlet.from_standard(np.ones((2, 0))), ValueError, "pass shape"),
        (lambda: Dirichlet.from_standard(np.array([1, 2])), TypeError, r"concentration\.astype\(float\)"),
        (lambda: Dirichlet.from_standard(jnp.array([True, False])), TypeError, "dtype bool"),
        (lambda: Dirichlet.from_standard([[1.0, 2.0], [1.0]]), TypeError, "neither a real number nor an array"),
        (lambda: Dirichlet.from_standard(["a", "b"]), TypeError, "neither a real number"),
        (lambda: Beta.from_standard(0.0, 1.0), ValueError, r"successes is not positive \(it is 0"),
        (lambda: Beta.from_standard(1.0, [2.0, -1.0]), ValueError, r"failures\[1\] is not positive"),
        (lambda: Beta.from_standard(np.ones(2), np.ones(3)), ValueError, "broadcast"),
        (lambda: Beta.from_standard(np.ones(2), np.inf), ValueError, "failures is not finite"),
    ],
)  # fmt: skip
def test_bad_arguments_are_named(build, error, message):
    with pytest.raises(error, match=message):
        build()


def test_values_are_not_checked_while_tracing():
    block = jax.jit(Dirichlet.from_standard)(jnp.array([1.0, -1.0]))
    assert block.natural.concentration.shape == (2,)
    mean, covariance = jnp.zeros(2), -jnp.eye(2)
    jax.jit(Normal.from_standard)(mean, covariance)
    jax.jit(NormalInverseWishart.from_standard)(mean, 1.0, 0.0, covariance)
    with pytest.raises(ValueError, match="broadcast"):
        jax.jit(Beta.from_standard)(jnp.ones(2), jnp.ones(3))
