r"""Priors of GP-IRL: a sparse prior of relevances, and checks of priors and inducing points.

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

import math
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import constraints

from ethogram.models.arguments import is_concrete, read_reals, require_reals

__all__ = [
    "MATTERS", "SquaredHalfCauchy", "read_inducing", "read_prior", "require_room_for_rewards", "shrinkage_scale",
]  # fmt: skip

MATTERS = 0.02
"""Half the expected weighted squared distance of two points in a feature, from which its relevance matters."""

RELEVANT = 3
"""Expected number of relevant features of the default prior."""

POSITIVE = (constraints.positive, constraints.nonnegative)


class SquaredHalfCauchy(dist.Distribution):
    """Distribution of the square of a half-Cauchy variable.

    Parameters
    ----------
    scale : > 0, of the half-Cauchy variable; its square is the median.

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


@jax.jit
def shrinkage_scale(points: Any) -> Array:
    """Scale of a `SquaredHalfCauchy` of relevances at which three features (point, feature) are expected to matter.

    Half of the features that are not constant, where these are fewer than six.
    """
    # A constant that is no binary fraction has a variance of rounding errors.
    varies = jnp.max(points, axis=0) > jnp.min(points, axis=0)
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


def read_inducing(inducing: Any, family: str, num_points: int) -> Any:
    """Checked numbers of points (inducing,), which must be unique; None for the direct family."""
    if family == "direct":
        if inducing is not None:
            raise ValueError(
                'inducing is given, but family is "direct": leave it out, or pass family="inducing"'
            )
        return None
    if inducing is None:
        raise ValueError(
            f'inducing is None, family is "inducing" ({num_points} points) and the features are traced: pass numbers '
            "of points, from representative_points or select_inducing_points"
        )
    points = jnp.asarray(inducing)
    if not jnp.issubdtype(points.dtype, jnp.integer) or points.ndim != 1 or not len(points):
        raise TypeError(
            f"inducing is {points.dtype} {points.shape}: give integers (inducing,), numbers of points"
        )
    if is_concrete(points):
        found, counts = np.unique(np.asarray(points), return_counts=True)
        if found[0] < 0 or found[-1] >= num_points:
            wrong = found[0] if found[0] < 0 else found[-1]
            raise ValueError(
                f"inducing has {wrong}, outside the points 0..{num_points - 1}: give numbers of points"
            )
        if (counts > 1).any():
            raise ValueError(f"inducing must be unique points; {found[counts > 1][0]} appears twice")
    return points


def read_prior(name: str, value: Any, shapes: tuple[tuple[int, ...], ...]) -> Any:
    """A checked scalar distribution on the positive reals, not of noise; or numbers above 0 of one of the shapes."""
    if isinstance(value, dist.Distribution):
        if name == "noise":
            raise TypeError("noise is a distribution: give a number")
        if value.batch_shape != () or value.event_shape != ():
            raise ValueError(f"{name} has batch shape {value.batch_shape}: give a scalar distribution")
        if not any(value.support is one or value.support == one for one in POSITIVE):
            raise ValueError(
                f"{name} is {type(value).__name__} with support {value.support}: give a distribution on the positive "
                "reals, such as LogNormal, Gamma or HalfNormal"
            )
        return value
    require_reals(name, value)
    if np.shape(value) not in shapes or (is_concrete(value) and not np.all(np.asarray(value) > 0)):
        allowed = " or ".join("a number" if not shape else f"numbers {shape}" for shape in shapes)
        raise ValueError(f"{name} must be {allowed} above 0, or a distribution, not {value!r}")
    return read_reals(**{name: value})[0]


TABLES, LARGEST = 6, 2**32
"""Matrices (point, point), or (point, inducing), that a fit holds at once, and bytes that these may take."""


def require_room_for_rewards(num_points: int, num_inducing: int | None) -> None:
    """Raise ValueError where covariances take too much memory: of all points, or only with the inducing points."""
    size = TABLES * num_points * (num_inducing or num_points) * 8
    if size > LARGEST:
        cure = "fewer inducing points" if num_inducing else 'family="inducing" and conditional="independent"'
        raise ValueError(
            f"features has {num_points} points: their covariances, Cholesky factors and Hessians take {size} bytes, "
            f"more than {LARGEST}. Pass {cure}, aggregate states, or fit a linear reward by fit_max_entropy, which "
            "takes sparse MDPs of any size"
        )
