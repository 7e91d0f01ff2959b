r"""A sparse prior of relevances for GP-IRL.

The square of a half-Cauchy variable has the density

.. math:: p(\lambda) = \frac{1}{\pi \sqrt{\lambda}\,(1 + \lambda)}

Half of its mass is below one, most of that near zero, and its tail is heavy, for features few of which are relevant:
Carvalho, Polson and Scott (2010), "The horseshoe estimator for sparse signals", section 2, for variances.

Its scale says how many features are relevant. A feature of variance v with relevance :math:`\lambda` bends the kernel
where :math:`\lambda v`, half the expected weighted squared distance of two points, exceeds b = 0.02; a smooth measure
is the share :math:`\lambda v / (b + \lambda v)`, whose expectation is :math:`a / (1 + a)` with
:math:`a = \tau \sqrt{v / b}`. The default scale makes the sum of these over all D features equal to p_0, which for
equal variances is

.. math:: \tau = \frac{p_0}{D - p_0} \sqrt{b / v}

Piironen and Vehtari (2017), "Sparsity information and regularization in the horseshoe and other shrinkage priors",
section 3.3, where b / v is the variance of the noise over the number of data. Their slab is left out: a large relevance
is penalised by the noise of the kernel, which grows with it.
"""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import constraints

__all__ = ["MATTERS", "SquaredHalfCauchy", "shrinkage_scale"]

MATTERS = 0.02
"""Half the expected weighted squared distance of two points in a feature, from which its relevance matters."""

RELEVANT = 3
"""Expected number of relevant features of the default prior."""


class SquaredHalfCauchy(dist.TransformedDistribution):
    """Distribution of the square of a half-Cauchy variable.

    Parameters
    ----------
    scale : > 0, of the half-Cauchy variable; its square is the median.

    Examples
    --------
    >>> print(SquaredHalfCauchy(2.0).icdf(0.5).round(3))
    4.0
    """

    arg_constraints: ClassVar[dict] = {"scale": constraints.positive}
    support = constraints.positive
    reparametrized_params: ClassVar[list] = ["scale"]

    def __init__(self, scale: Any = 1.0, *, validate_args: bool | None = None):
        self.scale = jnp.asarray(scale, float)
        square = dist.transforms.PowerTransform(2.0)
        super().__init__(dist.HalfCauchy(self.scale), square, validate_args=validate_args)


@jax.jit
def shrinkage_scale(points: Any) -> Array:
    """Scale of a `SquaredHalfCauchy` of relevances at which three features (point, feature) are expected to matter.

    Half of the features that are not constant, where these are fewer than six.
    """
    varies = jnp.ptp(points, axis=0) > 0  # of a constant the variance may be a rounding error
    width = jnp.where(varies, jnp.sqrt(jnp.var(points, axis=0) / MATTERS), 0.0)
    wanted = jnp.minimum(RELEVANT, 0.5 * jnp.sum(width > 0))

    def halve(_, ends):
        low, high = ends
        middle = 0.5 * (low + high)
        each = jnp.exp(middle) * width
        enough = jnp.sum(each / (1 + each)) > wanted
        return jnp.where(enough, low, middle), jnp.where(enough, middle, high)

    low, high = jax.lax.fori_loop(0, 50, halve, (jnp.asarray(-30.0), jnp.asarray(30.0)))
    return jnp.exp(jnp.where(wanted > 0, 0.5 * (low + high), 0.0))
