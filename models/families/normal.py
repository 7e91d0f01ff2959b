"""Conjugate block of the mean of a Gaussian whose covariance is known."""

import dataclasses
import functools
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, Float
from numpyro.distributions import constraints

from ethogram.models.arguments import (
    Reals,
    common_batch,
    concretely,
    is_concrete,
    read_reals,
    require_covariance,
)
from ethogram.models.families.array_modules import modules_of
from ethogram.models.families.cholesky_factors import cholesky, inverse, product, solve, solve_positive
from ethogram.models.families.conjugate_block import ConjugateBlock, SiteNames, broadcast_batch, sample_site
from ethogram.models.families.divergences import Divergence, cholesky_divergence
from ethogram.models.families.variates import Variates

__all__ = ["MeanCovariance", "Normal", "NormalCoordinates"]


class MeanCovariance(NamedTuple):
    """Mean (*batch, feature) and covariance (*batch, feature, feature) of a Gaussian."""

    mean: Any
    covariance: Any


class NormalCoordinates(NamedTuple):
    """Natural coordinates V^-1 m (*batch, feature) and V^-1, paired with mu and -mu mu'/2; base measure 1."""

    precision_mean: Any
    precision: Any


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Normal(ConjugateBlock):
    """Distribution of the mean of a Gaussian whose covariance is known, mu ~ N(m, V), one per batch entry.

    An observation x ~ N(mu, R), relative to ``origin``, has statistics (R^-1 x, R^-1).

    Parameters
    ----------
    natural : V^-1 m (*batch, feature), for m relative to ``origin``, and V^-1 (*batch, feature, feature);
        :meth:`from_standard` checks m and V.
    origin : (feature,), or with the leading axes of the batch; None is zeros. It never moves, and blocks that meet in
        one `step` must share it. Near the data it keeps large offsets from cancelling.
    """

    natural: NormalCoordinates
    origin: Any = None
    event_dim: ClassVar[int] = 1
    support: ClassVar[tuple] = (constraints.real_vector,)

    @classmethod
    def from_standard(cls, mean: Reals, covariance: Reals, origin: Reals | None = None) -> "Normal":
        """Block N(mean (*batch, feature), covariance (*batch, feature, feature)), batches broadcast.

        ``origin`` (feature,) is zeros if None; give the prior mean where data are far from 0.

        Raises
        ------
        ValueError : a value is NaN, shapes do not fit, or a covariance is not symmetric positive definite.
        TypeError : an array of integers.
        """
        given = {} if origin is None else {"origin": origin}
        m, v, *rest = read_reals(mean=mean, covariance=covariance, **given)
        came = f"mean has shape {m.shape} and covariance {v.shape}"
        if m.ndim < 1 or v.shape[-2:] != (m.shape[-1], m.shape[-1]):
            raise ValueError(f"{came}: give (*batch, feature) and (*batch, feature, feature)")
        batch = common_batch(came, m.shape[:-1], v.shape[:-2])
        if is_concrete(v):
            require_covariance("covariance", v)
        centre = rest[0] if rest else jnp.asarray(np.zeros(m.shape[-1:], dtype=m.dtype))
        if centre.ndim < 1 or centre.shape != (*batch[: centre.ndim - 1], m.shape[-1]):
            raise ValueError(
                f"origin has shape {centre.shape}: give it one entry per feature, {m.shape[-1:]}"
            )
        return cls(concretely(functools.partial(_normal_coordinates, batch), m, v, centre), centre)

    def _moments(self) -> tuple[Any, Any]:
        """Means relative to the origin, and lower Cholesky factors of the precisions."""
        factor = cholesky(self.natural.precision)
        return solve_positive(factor, self.natural.precision_mean[..., None])[..., 0], factor

    def _centre(self, ndim: int) -> Any:
        return 0.0 if self.origin is None else broadcast_batch(self.origin, ndim)

    def expected_statistics(self) -> NormalCoordinates:
        """E mu = m and E(-mu mu'/2) = -(V + m m')/2, relative to the origin."""
        mean, factor = self._moments()
        return NormalCoordinates(mean, -0.5 * (inverse(factor) + mean[..., :, None] * mean[..., None, :]))

    def statistics(self, *value: Float[Array, "*batch feature"]) -> NormalCoordinates:
        """Mu and -mu mu'/2, relative to the origin."""
        (mean,) = value
        mean = mean - self._centre(mean.ndim)
        return NormalCoordinates(mean, -0.5 * mean[..., :, None] * mean[..., None, :])

    def divergence(self, other: "Normal") -> Divergence:
        """KL(self || other) of each entry, whose origins may differ; no Gamma functions are in it."""
        mean, factor = self._moments()
        other_mean, other_factor = other._moments()
        other_factor = jnp.broadcast_to(other_factor, factor.shape)
        gap = mean - jnp.broadcast_to(other_mean, mean.shape)
        gap = gap + (self._centre(mean.ndim) - other._centre(mean.ndim))
        distance = jnp.sum(product(other_factor.mT, gap[..., None]) ** 2, axis=(-2, -1))
        none = jnp.zeros_like(distance, shape=(*distance.shape, 0))
        return Divergence(0.5 * (cholesky_divergence(factor, other_factor) + distance), none, none, none)

    def draw(self, variates: Variates, sample_shape: tuple[int, ...] = ()) -> Any:
        """Means (*sample_shape, *batch, feature)."""
        mean, factor = self._moments()
        xp, _ = modules_of(mean)
        noise = variates.normal((*sample_shape, *mean.shape), mean.dtype)
        spread = solve(factor, noise[..., None], transposed=True)[..., 0]
        return xp.broadcast_to(mean + self._centre(mean.ndim), spread.shape) + spread

    def mean(self) -> Float[Array, "*batch feature"]:
        """M, in the units of the data."""
        return self.standard().mean

    def standard(self) -> MeanCovariance:
        """M, in the units of the data, and V."""
        mean, factor = self._moments()
        return MeanCovariance(mean + self._centre(mean.ndim), inverse(factor))

    def sites(self, names: SiteNames, zeros: Any = None) -> Array:
        """Means, at one site."""
        return sample_site(names(), dist.MultivariateNormal(*self.standard()))


def _normal_coordinates(batch: tuple[int, ...], xp: Any, m: Any, v: Any, centre: Any) -> NormalCoordinates:
    """Natural coordinates, relative to ``centre``, of a mean and a covariance, by the array module ``xp``."""
    m = xp.broadcast_to(m, (*batch, *m.shape[-1:]))
    m = m - xp.broadcast_to(broadcast_batch(centre, m.ndim), m.shape)
    v = xp.broadcast_to(v, (*batch, *v.shape[-2:]))
    if xp is np:  # in double precision while it costs nothing
        precision = np.linalg.inv(v.astype(float))
        precision = 0.5 * (precision + precision.mT)
        precision_mean = (precision @ m[..., None].astype(float))[..., 0]
        return NormalCoordinates(precision_mean.astype(m.dtype), precision.astype(v.dtype))
    factor = cholesky(v)
    return NormalCoordinates(solve_positive(factor, m[..., None])[..., 0], inverse(factor))
