"""Conjugate block of the mean and the covariance of a Gaussian: that of a regression on the constant 1."""

import dataclasses
import functools
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro.distributions import constraints

from ethogram.models.arguments import Reals, common_batch, host_arrays, is_concrete, read_reals, require
from ethogram.models.families.array_modules import modules_of
from ethogram.models.families.conjugate_block import ConjugateBlock, SiteNames, broadcast_batch, sample_site
from ethogram.models.families.divergences import Divergence
from ethogram.models.families.inverse_wishart import require_proper
from ethogram.models.families.matrix_normal_inverse_wishart import (
    CoefficientsCovariance,
    MatrixNormalInverseWishart,
    MatrixNormalInverseWishartCoordinates,
)
from ethogram.models.families.normal import MeanCovariance
from ethogram.models.families.variates import Variates

__all__ = [
    "NormalInverseWishart",
    "NormalInverseWishartCoordinates",
    "NormalInverseWishartParameters",
]


class NormalInverseWishartCoordinates(NamedTuple):
    """Natural coordinates kappa m, kappa, nu + D + 2 and Psi + kappa m m', for m relative to the origin.

    They are paired with Sigma^-1 mu, -mu'Sigma^-1 mu / 2, -log|Sigma| / 2 and -Sigma^-1 / 2; base measure 1.
    """

    location: Any
    strength: Any
    dof: Any
    scatter: Any


class NormalInverseWishartParameters(NamedTuple):
    """Usual parameters: m (*batch, feature), kappa and nu (*batch,), Psi (*batch, feature, feature)."""

    mean: Any
    strength: Any
    dof: Any
    scale: Any


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class NormalInverseWishart(ConjugateBlock):
    r"""Distribution of a Gaussian's mean and covariance, one per batch entry.

    .. math:: \Sigma \sim \mathrm{IW}(\Psi, \nu), \qquad \mu \mid \Sigma \sim N(m, \Sigma / \kappa)

    An observation x, relative to ``origin``, has statistics (x, 1, 1, x x'); with s the expected statistics,
    E log N(x) = x's.location + s.strength + s.dof + <x x', s.scatter> - D/2 log 2 pi.

    Parameters
    ----------
    natural : coordinates relative to ``origin``.
    origin : (feature,), or with the leading axes of the batch; it never moves, and blocks that meet in one
        `step` must share it. Near the data it keeps large offsets from cancelling: Psi is the difference of
        ``scatter`` and kappa m m', so in float32 a scale below 1e-6 times the squared distance of the mean
        from the origin is lost.

    References
    ----------
    Murphy (2007), Conjugate Bayesian analysis of the Gaussian distribution, section 9.
    """

    natural: NormalInverseWishartCoordinates
    origin: Any
    event_dim: ClassVar[int] = 1
    support: ClassVar[tuple] = (constraints.real_vector, constraints.positive_definite)

    @classmethod
    def from_standard(
        cls, mean: Reals, strength: Reals, dof: Reals, scale: Reals, origin: Reals | None = None
    ) -> "NormalInverseWishart":
        """Block with these parameters, batch axes broadcast.

        Parameters
        ----------
        mean : m (*batch, feature), in the units of the data.
        strength : kappa > 0 (*batch,), how many observations the prior mean is worth.
        dof : nu > feature - 1 (*batch,).
        scale : Psi (*batch, feature, feature), symmetric positive definite.
        origin : (feature,); zeros if None. Give the prior mean where data are far from 0.

        Raises
        ------
        ValueError : a value is NaN, shapes do not fit, kappa or nu is too small, Psi is not symmetric
            positive definite, or Psi is lost to rounding because the mean is far from the origin.
        TypeError : an array of integers.
        """
        given = {} if origin is None else {"origin": origin}
        m, kappa, nu, psi, *rest = read_reals(mean=mean, strength=strength, dof=dof, scale=scale, **given)
        came = f"mean has shape {m.shape}, strength {kappa.shape}, dof {nu.shape} and scale {psi.shape}"
        dimension = m.shape[-1] if m.ndim else 0
        if dimension == 0 or psi.shape[-2:] != (dimension, dimension):
            raise ValueError(f"{came}: give mean (*batch, feature) and scale (*batch, feature, feature)")
        batch = common_batch(came, m.shape[:-1], kappa.shape, nu.shape, psi.shape[:-2])
        centre = rest[0] if rest else jnp.asarray(np.zeros((dimension,), dtype=m.dtype))
        if centre.ndim < 1 or centre.shape != (*batch[: centre.ndim - 1], dimension):
            raise ValueError(
                f"origin has shape {centre.shape}: give it one entry per feature, ({dimension},)"
            )
        if is_concrete(kappa):
            require(np.asarray(kappa) > 0, "strength", kappa, "is not positive", "give a positive one")
        require_proper(nu, psi)
        natural = host_arrays(functools.partial(_natural, batch), m, kappa, nu, psi, centre)
        if is_concrete(natural.scatter):  # rounding may have eaten the scale or the degrees of freedom
            location, kept_kappa, kept_dof, scatter = (np.asarray(part) for part in natural)
            variance = np.broadcast_to(np.diagonal(psi, axis1=-2, axis2=-1), location.shape)
            kept = np.diagonal(scatter, axis1=-2, axis2=-1) - location**2 / kept_kappa[..., None]
            near = np.abs(kept - variance) <= 0.01 * variance
            fix = "give origin=mean, or use float64 (jax_enable_x64)"
            require(near, "diagonal of scale", variance, "is lost to rounding beside the squared mean", fix)
            kept_nu = kept_dof - (dimension + 2)
            require(kept_nu > dimension - 1, "dof", kept_nu, "is D - 1 after rounding", "give a larger one")
        return cls(natural, centre)

    @classmethod
    def from_checked(
        cls, mean: Any, strength: Any, dof: Any, scale: Any, origin: Any
    ) -> "NormalInverseWishart":
        """As `from_standard`, of parameters that are known to be valid, such as those of other blocks and of data."""
        shapes = mean.shape[:-1], strength.shape, dof.shape, scale.shape[:-2]
        natural = functools.partial(_natural, np.broadcast_shapes(*shapes))
        return cls(host_arrays(natural, mean, strength, dof, scale, origin), origin)

    def _regression(self) -> MatrixNormalInverseWishart:
        """The same distribution of a column of coefficients, those of the regressor 1."""
        location, strength, dof, scatter = self.natural
        xp, _ = modules_of(location, self.origin)
        origin = xp.broadcast_to(broadcast_batch(self.origin, location.ndim), location.shape)
        natural = MatrixNormalInverseWishartCoordinates(
            location[..., None], strength[..., None, None], dof, scatter
        )
        return MatrixNormalInverseWishart(
            natural, origin[..., None], xp.ones((*dof.shape, 1, 1), location.dtype)
        )

    def expected_statistics(self) -> NormalInverseWishartCoordinates:
        """Expected statistics of the four natural coordinates.

        nu Psi^-1 m, -(D / kappa + nu m'Psi^-1 m) / 2, E(-log|Sigma|) / 2 and -nu Psi^-1 / 2.
        """
        return _of_mean(self._regression().expected_statistics())

    def statistics(self, *value: Any) -> NormalInverseWishartCoordinates:
        """Statistics at a mean (*batch, feature) and a covariance (*batch, feature, feature)."""
        mean, covariance = value
        return _of_mean(self._regression().statistics(mean[..., None], covariance))

    def divergence(self, other: "NormalInverseWishart") -> Divergence:
        """KL(self || other) of each entry, in parts; the origins may differ."""
        return self._regression().divergence(other._regression())

    def draw(self, variates: Variates, sample_shape: tuple[int, ...] = ()) -> MeanCovariance:
        """Means (*sample_shape, *batch, feature) and covariances (..., feature, feature)."""
        return _point(self._regression().draw(variates, sample_shape))

    def mean(self) -> MeanCovariance:
        """M and Psi / (nu - D - 1); the covariance is infinite where nu <= D + 1: it has no mean there."""
        return _point(self._regression().mean())

    def standard(self) -> NormalInverseWishartParameters:
        """Mean (in the units of the data), strength, dof and scale."""
        coefficients, _, dof, scale = self._regression().standard()
        return NormalInverseWishartParameters(coefficients[..., 0], self.natural.strength, dof, scale)

    def reference_point(self) -> MeanCovariance:
        """M and the mode-like covariance Psi / (nu + D + 2), which is always finite."""
        return _point(self._regression().reference_point())

    def sites(self, names: SiteNames, zeros: Any = None) -> MeanCovariance:
        """Covariances, and means given these."""
        mean, strength, dof, scale = self.standard()
        covariance = sample_site(names("covariance"), dist.InverseWishart(dof, scale, validate_args=False))
        # Unchecked, for numpyro compiles a program for each operation of its checks.
        spread = covariance / strength[..., None, None]
        normal = dist.MultivariateNormal(mean, spread, validate_args=False)
        return MeanCovariance(sample_site(names("mean"), normal), covariance)


def _of_mean(of_regression: MatrixNormalInverseWishartCoordinates) -> NormalInverseWishartCoordinates:
    location, precision, dof, scatter = of_regression
    return NormalInverseWishartCoordinates(location[..., 0], precision[..., 0, 0], dof, scatter)


def _point(of_regression: CoefficientsCovariance) -> MeanCovariance:
    return MeanCovariance(of_regression.coefficients[..., 0], of_regression.covariance)


def _natural(
    batch: tuple[int, ...], xp: Any, m: Any, kappa: Any, nu: Any, psi: Any, centre: Any
) -> NormalInverseWishartCoordinates:
    """Natural coordinates of usual parameters, by the array module ``xp``."""
    dimension = m.shape[-1]
    m = xp.broadcast_to(m, (*batch, dimension)) - broadcast_batch(centre, len(batch) + 1)
    kappa, nu = xp.broadcast_to(kappa, batch), xp.broadcast_to(nu, batch)
    psi = xp.broadcast_to(psi, (*batch, dimension, dimension))
    location = kappa[..., None] * m
    scatter = 0.5 * (psi + psi.mT) + location[..., :, None] * m[..., None, :]
    return NormalInverseWishartCoordinates(location, kappa, nu + dimension + 2, scatter)
