r"""A prior of how relevant features are when few of many are: the square of a half-Cauchy variable.

.. math:: p(\lambda) = \frac{1}{\pi \sqrt{\lambda}\,(1 + \lambda)}

Half of its mass is below one, most of that near zero, and its tail is heavy: a feature is irrelevant, or it is not.
Carvalho, Polson and Scott (2010), "The horseshoe estimator for sparse signals", have it for variances.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import constraints

__all__ = ["SquaredHalfCauchy"]


class SquaredHalfCauchy(dist.Distribution):
    """Law of the square of a half-Cauchy variable.

    Parameters
    ----------
    scale : > 0, of that variable; its square is the median.

    Examples
    --------
    >>> print(SquaredHalfCauchy(2.0).icdf(0.5))
    4.0
    """

    arg_constraints: ClassVar[dict] = {"scale": constraints.positive}
    support = constraints.positive
    reparametrized_params: ClassVar[list] = ["scale"]

    def __init__(self, scale: Any = 1.0, *, validate_args: bool | None = None):
        self.scale = jnp.asarray(scale, float)
        super().__init__(jnp.shape(self.scale), validate_args=validate_args)

    def log_prob(self, value: Any) -> Array:
        """Log density (...)."""
        ratio = value / self.scale**2
        return -math.log(math.pi) - 2 * jnp.log(self.scale) - 0.5 * jnp.log(ratio) - jnp.log1p(ratio)

    def icdf(self, q: Any) -> Array:
        """Quantiles."""
        return jnp.square(self.scale * jnp.tan(0.5 * math.pi * jnp.asarray(q)))

    def cdf(self, value: Any) -> Array:
        """Probability of at most `value`."""
        return 2 / math.pi * jnp.arctan(jnp.sqrt(value) / self.scale)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draws (..., )."""
        shape = (*sample_shape, *self.batch_shape)
        return jnp.square(self.scale * jax.random.cauchy(key, shape, self.scale.dtype))
