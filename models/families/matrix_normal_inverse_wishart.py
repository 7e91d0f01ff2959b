"""Conjugate block of the coefficients and the covariance of a linear regression, or of a vector autoregression."""

import dataclasses
import functools
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.distributions import constraints

from ethogram.models.arguments import (
    Reals,
    common_batch,
    concretely,
    is_concrete,
    read_reals,
    require,
    require_covariance,
)
from ethogram.models.families.array_modules import modules_of
from ethogram.models.families.cholesky_factors import (
    cholesky,
    half_log_det,
    inverse,
    product,
    solve,
    solve_positive,
)
from ethogram.models.families.conjugate_block import ConjugateBlock, SiteNames, sample_site
from ethogram.models.families.divergences import Divergence, cholesky_divergence, wishart_dof_divergence
from ethogram.models.families.inverse_wishart import (
    covariance_mean,
    draw_roots,
    expected_half_log_precision,
    require_proper,
)
from ethogram.models.families.variates import Variates

__all__ = [
    "WHITE",
    "CoefficientsCovariance",
    "MatrixNormalInverseWishart",
    "MatrixNormalInverseWishartCoordinates",
    "MatrixNormalInverseWishartParameters",
]


WHITE = "_white"
"""Ending of the latent site of coefficients in the coordinates of their block."""


class CoefficientsCovariance(NamedTuple):
    """Coefficients (*batch, feature, regressor) and covariance (*batch, feature, feature) of a regression."""

    coefficients: Any
    covariance: Any


class MatrixNormalInverseWishartCoordinates(NamedTuple):
    """Natural coordinates M K, K, nu + D + P + 1 and Psi + M K M', for M in the coordinates of the block.

    They are paired with Sigma^-1 B, -B'Sigma^-1 B / 2, -log|Sigma| / 2 and -Sigma^-1 / 2; base measure 1.
    """

    location: Any
    precision: Any
    dof: Any
    scatter: Any


class MatrixNormalInverseWishartParameters(NamedTuple):
    """Usual parameters: M (*batch, feature, regressor), K (*batch, regressor, regressor), nu (*batch,) and Psi.

    M is in the units of the data, K in the coordinates of the block.
    """

    coefficients: Any
    precision: Any
    dof: Any
    scale: Any


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class MatrixNormalInverseWishart(ConjugateBlock):
    r"""Distribution of the coefficients A and the covariance of a regression y = A h + noise, one per batch entry.

    .. math:: \Sigma \sim \mathrm{IW}(\Psi, \nu), \qquad A = A_0 + B T, \quad
              B \mid \Sigma \sim \mathrm{MN}(M, \Sigma, K^{-1})

    In its own coordinates an observation is a residual e = y - A_0 h and regressors u = T h. Its statistics are (e u',
    u u', 1, e e'); with s the expected statistics, E log N(y) = <e u', s.location> + <u u', s.precision> + s.dof + <e
    e', s.scatter> - D/2 log 2 pi. So the digits that y and A_0 h share do not cancel in sums of squares, and regressors
    that nearly depend on one another do not in their products.

    Parameters
    ----------
    natural : coordinates relative to ``origin``, for regressors in ``basis``.
    origin : A_0 (*batch, feature, regressor). It never moves, nor does ``basis``; blocks that meet in one `step` must
        share both, and those in a divergence the basis.
    basis : T (*batch, regressor, regressor), lower triangular, with a positive diagonal.

    References
    ----------
    Fox, Sudderth, Jordan, Willsky (2011), "Bayesian nonparametric inference of switching dynamic linear models",
    section III.A.
    """

    natural: MatrixNormalInverseWishartCoordinates
    origin: Any
    basis: Any
    event_dim: ClassVar[int] = 2
    support: ClassVar[tuple] = (constraints.real_matrix, constraints.positive_definite)

    @classmethod
    def from_standard(
        cls, coefficients: Reals, precision: Reals, dof: Reals, scale: Reals, basis: Reals | None = None
    ) -> "MatrixNormalInverseWishart":
        """Block with these parameters, batch axes broadcast; its origin is the mean of the coefficients.

        Parameters
        ----------
        coefficients : mean of A (*batch, feature, regressor), in units of the data.
        precision : K (*batch, regressor, regressor), symmetric positive definite, of the coefficients times T^-1.
        dof : nu > feature - 1 (*batch,).
        scale : Psi (*batch, feature, feature), symmetric positive definite.
        basis : T (*batch, regressor, regressor), lower triangular; the identity if None.

        Raises
        ------
        ValueError : a value is NaN, shapes do not fit, nu is too small, K or Psi is not symmetric positive definite, or
            the basis is not lower triangular with a positive diagonal.
        TypeError : an array of integers.
        """
        given = {} if basis is None else {"basis": basis}
        mean, k, nu, psi, *rest = read_reals(
            coefficients=coefficients, precision=precision, dof=dof, scale=scale, **given
        )
        size, count = mean.shape[-2:] if mean.ndim > 1 else (0, 0)
        t = rest[0] if rest else jnp.asarray(np.eye(count, dtype=mean.dtype))
        came = (
            f"coefficients has shape {mean.shape}, precision {k.shape}, dof {nu.shape}, scale {psi.shape} and basis "
            f"{t.shape}"
        )
        fits = k.shape[-2:] == t.shape[-2:] == (count, count) and psi.shape[-2:] == (size, size)
        if not size or not count or not fits:
            raise ValueError(
                f"{came}: give coefficients (*batch, feature, regressor), precision and basis (*batch, regressor, "
                "regressor) and scale (*batch, feature, feature)"
            )
        batch = common_batch(came, mean.shape[:-2], k.shape[:-2], nu.shape, psi.shape[:-2], t.shape[:-2])
        require_proper(nu, psi)
        if is_concrete(k):
            require_covariance("precision", k)
        if is_concrete(t):
            _require_triangular("basis", np.asarray(t))
        return concretely(functools.partial(_standing, cls, batch), mean, k, nu, psi, t)

    def _factored(self) -> tuple[Any, Any, Any, Any]:
        """Mean in the block's coordinates, and the lower Cholesky factors of K and Psi, with nu between."""
        location, precision, dof, scatter = self.natural
        root = cholesky(precision)
        if precision.shape[-1] == 1:  # in fewer roundings, of which the difference below keeps the sum
            mean = location / precision
            explained = product(location, mean.mT)
        else:
            half = solve(root, location.mT)
            mean = solve(root, half, transposed=True).mT
            explained = product(half.mT, half)
        psi = scatter - explained
        nu = dof - (sum(location.shape[-2:]) + 1)
        return mean, root, nu, cholesky(0.5 * (psi + psi.mT))

    def in_units(self, own: Any) -> Any:
        """Coefficients A = A_0 + B T in units of the data of those in the block's coordinates, B."""
        xp, _ = modules_of(self.origin, own)
        basis = xp.broadcast_to(self.basis, (*own.shape[:-2], *self.basis.shape[-2:]))
        return xp.broadcast_to(self.origin, own.shape) + product(own, basis)

    def whitened(self, coefficients: Any) -> Any:
        """Coefficients B in the block's coordinates of those in units of the data; the inverse of `in_units`."""
        xp, _ = modules_of(self.origin, coefficients)
        shape = np.broadcast_shapes(np.shape(coefficients), self.origin.shape)
        gap = xp.broadcast_to(coefficients, shape) - xp.broadcast_to(self.origin, shape)
        return solve(self.basis, gap.mT, transposed=True).mT

    def expected_statistics(self) -> MatrixNormalInverseWishartCoordinates:
        """Expected statistics of the four natural coordinates.

        nu Psi^-1 M, -(D K^-1 + nu M'Psi^-1 M) / 2, E(-log|Sigma|) / 2 and -nu Psi^-1 / 2.
        """
        mean, root, nu, factor = self._factored()
        whitened = solve(factor, mean)
        weight = nu[..., None, None]
        explained = product(whitened.mT, whitened)
        return MatrixNormalInverseWishartCoordinates(
            weight * solve(factor, whitened, transposed=True),
            -0.5 * (mean.shape[-2] * inverse(root) + weight * explained),
            expected_half_log_precision(nu, factor),
            -0.5 * weight * inverse(factor),
        )

    def statistics(self, *value: Any) -> MatrixNormalInverseWishartCoordinates:
        """Statistics at coefficients (*batch, feature, regressor) and a covariance (*batch, feature, feature)."""
        coefficients, covariance = value
        own = self.whitened(coefficients)
        factor = cholesky(covariance)
        location = solve_positive(factor, own)
        return MatrixNormalInverseWishartCoordinates(
            location,
            -0.5 * product(own.mT, location),
            -half_log_det(factor),
            -0.5 * inverse(factor),
        )

    def divergence(self, other: "MatrixNormalInverseWishart") -> Divergence:
        """KL(self || other) of each entry, in parts; the origins may differ, the basis may not."""
        mean, root, nu, factor = own = self._factored()
        pairs = zip(other._factored(), own, strict=True)
        mean0, root0, nu0, factor0 = (jnp.broadcast_to(part, like.shape) for part, like in pairs)
        gap = mean - mean0 - self.whitened(other.origin)
        distance = jnp.sum(product(solve(factor, gap), root0) ** 2, axis=(-2, -1))
        coefficients = mean.shape[-2] * cholesky_divergence(root, root0) + nu * distance
        # Psi / nu is compared, not Psi; wishart_dof_divergence undoes that where the large terms cancel.
        shape = nu0 * cholesky_divergence(factor, factor0, nu / nu0)
        dof = wishart_dof_divergence(nu, nu0, mean.shape[-2])
        return dof._replace(rest=0.5 * (coefficients + shape) + dof.rest)

    def draw(self, variates: Variates, sample_shape: tuple[int, ...] = ()) -> CoefficientsCovariance:
        """Coefficients (*sample_shape, *batch, feature, regressor) and covariances (..., feature, feature)."""
        mean, root, nu, factor = self._factored()
        xp, _ = modules_of(mean)
        of_diagonal, of_below, of_noise = variates.split(3)
        spread = draw_roots(of_diagonal, of_below, nu, factor, sample_shape)
        noise = of_noise.normal((*sample_shape, *mean.shape), mean.dtype)
        noise = solve(root, noise.mT, transposed=True).mT
        own = xp.broadcast_to(mean, noise.shape) + product(spread, noise)
        covariance = product(spread, spread.mT)
        return CoefficientsCovariance(self.in_units(own), 0.5 * (covariance + covariance.mT))

    def mean(self) -> CoefficientsCovariance:
        """Mean of A, and Psi / (nu - D - 1); the covariance is infinite where nu <= D + 1: it has no mean there."""
        coefficients, _, nu, psi = self.standard()
        return CoefficientsCovariance(coefficients, covariance_mean(nu, psi))

    def standard(self) -> MatrixNormalInverseWishartParameters:
        """Coefficients (in the units of the data), precision (in the block's coordinates), dof and scale."""
        mean, _, nu, factor = self._factored()
        return MatrixNormalInverseWishartParameters(
            self.in_units(mean), self.natural.precision, nu, product(factor, factor.mT)
        )

    def reference_point(self) -> CoefficientsCovariance:
        """Mean of A and the mode-like covariance Psi / (nu + D + P + 1), which is always finite."""
        coefficients, _, _, psi = self.standard()
        return CoefficientsCovariance(coefficients, psi / self.natural.dof[..., None, None])

    def sites(self, names: SiteNames, zeros: Any = None) -> CoefficientsCovariance:
        """Covariances, and coefficients in the coordinates of the block, whose site is ``coefficients_white``."""
        mean, root, nu, factor = self._factored()
        scale = product(factor, factor.mT)
        covariance = sample_site(names("covariance"), dist.InverseWishart(nu, scale, validate_args=False))
        law = dist.MatrixNormal(mean, jnp.linalg.cholesky(covariance), jnp.linalg.cholesky(inverse(root)))
        coefficients = self.in_units(sample_site(names(f"coefficients{WHITE}"), law))
        if not names.suffix:
            coefficients = numpyro.deterministic(names("coefficients"), coefficients)
        return CoefficientsCovariance(coefficients, covariance)


def _standing(
    cls: Any, batch: tuple[int, ...], xp: Any, mean: Any, k: Any, nu: Any, psi: Any, basis: Any
) -> Any:
    """The block at rest: the mean of the coefficients is its origin."""
    size, count = mean.shape[-2:]
    mean = xp.broadcast_to(mean, (*batch, size, count))
    natural = MatrixNormalInverseWishartCoordinates(
        xp.zeros_like(mean),
        xp.broadcast_to(0.5 * (k + k.mT), (*batch, count, count)),
        xp.broadcast_to(nu, batch) + (size + count + 1),
        xp.broadcast_to(0.5 * (psi + psi.mT), (*batch, size, size)),
    )
    return cls(natural, mean, xp.broadcast_to(basis, (*batch, count, count)))


def _require_triangular(name: str, basis: np.ndarray) -> None:
    good = np.diagonal(basis, axis1=-2, axis2=-1) > 0
    require(
        good.all(-1) & (np.triu(basis, 1) == 0).all((-2, -1)),
        name,
        basis,
        "is not lower triangular with a positive diagonal",
        "give a Cholesky factor, or its inverse",
    )
