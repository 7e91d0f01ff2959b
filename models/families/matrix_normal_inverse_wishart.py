"""Conjugate block of the coefficients and the covariance of a linear regression, or of a vector autoregression."""

import dataclasses
import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.linalg import cho_solve, solve_triangular
from jaxtyping import Array, Float

from ethogram.models.arguments import (
    Reals,
    common_batch,
    concretely,
    is_concrete,
    read_reals,
    require,
    require_covariance,
)
from ethogram.models.families.cholesky_factors import half_log_det, inverse
from ethogram.models.families.conjugate_block import ConjugateBlock, require_finite
from ethogram.models.families.divergences import Divergence, cholesky_divergence, wishart_dof_divergence
from ethogram.models.families.inverse_wishart import (
    covariance_mean,
    draw_roots,
    draw_roots_on_host,
    expected_half_log_precision,
    log_integral,
)

__all__ = [
    "CoefficientsCovariance",
    "MatrixNormalInverseWishart",
    "MatrixNormalInverseWishartCoordinates",
    "MatrixNormalInverseWishartParameters",
]


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
    r"""Distribution of the coefficients A and the covariance of a regression y = A h + noise, one a batch entry.

    .. math:: \Sigma \sim \mathrm{IW}(\Psi, \nu), \qquad A = A_0 + B T, \quad
              B \mid \Sigma \sim \mathrm{MN}(M, \Sigma, K^{-1})

    In its own coordinates an observation is a residual e = y - A_0 h and regressors u = T h. Its statistics are (e u',
    u u', 1, e e'); with s the expected statistics, E log N(y) = <e u', s.location> + <u u', s.precision> + s.dof + <e
    e', s.scatter> - D/2 log 2 pi. So the digits that y and A_0 h share do not cancel in sums of squares, and regressors
    that nearly depend on one another do not in their products.

    Parameters
    ----------
    natural : coordinates relative to ``origin``, for regressors in ``basis``.
    origin : A_0 (*batch, feature, regressor). It never moves, nor does ``basis``; blocks that meet in one `step` or
        divergence must share both.
    basis : T (*batch, regressor, regressor), lower triangular, with a positive diagonal.

    References
    ----------
    Fox, Sudderth, Jordan, Willsky (2011), "Bayesian nonparametric inference of switching dynamic linear models",
    section III.A.
    """

    natural: MatrixNormalInverseWishartCoordinates
    origin: Any
    basis: Any

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
        if is_concrete(nu):
            fix = f"dof must exceed D - 1 = {size - 1}; D + 2 gives the covariance a mean"
            require(np.asarray(nu) > size - 1, "dof", nu, f"is too small for {size} features", fix)
        for name, value in {"precision": k, "scale": psi}.items():
            if is_concrete(value):
                require_covariance(name, value)
        if is_concrete(t):
            _require_triangular("basis", np.asarray(t))
        return concretely(functools.partial(_standing, cls, batch), mean, k, nu, psi, t)

    def _factored(self) -> tuple[Array, Array, Array, Array]:
        """Mean in the block's coordinates, and the lower Cholesky factors of K and Psi, with nu between."""
        location, precision, dof, scatter = self.natural
        root = jnp.linalg.cholesky(precision)
        half = solve_triangular(root, location.mT, lower=True)
        mean = solve_triangular(root, half, trans=1, lower=True).mT
        psi = scatter - jnp.matmul(half.mT, half, precision="highest")
        nu = dof - (sum(location.shape[-2:]) + 1)
        return mean, root, nu, jnp.linalg.cholesky(0.5 * (psi + psi.mT))

    def in_units(self, own: Any) -> Array:
        """Coefficients A = A_0 + B T in units of the data of those in the block's coordinates, B."""
        return self.origin + jnp.matmul(own, self.basis, precision="highest")

    def whitened(self, coefficients: Any) -> Any:
        """Coefficients B in the block's coordinates of those in units of the data; the inverse of `in_units`."""
        gap = (coefficients - self.origin).mT
        return solve_triangular(
            jnp.broadcast_to(self.basis, (*gap.shape[:-2], *self.basis.shape[-2:])), gap, trans=1, lower=True
        ).mT

    def law_of_whitened(self) -> tuple[Array, Array, Array, Array]:
        """Mean of B, lower Cholesky factor of K^-1, nu and Psi: B ~ MN(M, Sigma, K^-1), Sigma ~ IW(Psi, nu)."""
        mean, root, nu, factor = self._factored()
        return (
            mean,
            jnp.linalg.cholesky(inverse(root)),
            nu,
            jnp.matmul(factor, factor.mT, precision="highest"),
        )

    def expected_statistics(self) -> MatrixNormalInverseWishartCoordinates:
        """Expected statistics of the four natural coordinates.

        nu Psi^-1 M, -(D K^-1 + nu M'Psi^-1 M) / 2, E(-log|Sigma|) / 2 and -nu Psi^-1 / 2.
        """
        mean, root, nu, factor = self._factored()
        whitened = solve_triangular(factor, mean, lower=True)
        weight = nu[..., None, None]
        explained = jnp.matmul(whitened.mT, whitened, precision="highest")
        return MatrixNormalInverseWishartCoordinates(
            weight * solve_triangular(factor, whitened, trans=1, lower=True),
            -0.5 * (mean.shape[-2] * inverse(root) + weight * explained),
            expected_half_log_precision(nu, factor),
            -0.5 * weight * inverse(factor),
        )

    def statistics(self, *value: Any) -> MatrixNormalInverseWishartCoordinates:
        """Statistics at coefficients (*batch, feature, regressor) and a covariance (*batch, feature, feature)."""
        coefficients, covariance = value
        own = self.whitened(coefficients)
        factor = jnp.linalg.cholesky(covariance)
        location = cho_solve((factor, True), own)
        return MatrixNormalInverseWishartCoordinates(
            location,
            -0.5 * jnp.matmul(own.mT, location, precision="highest"),
            -half_log_det(factor),
            -0.5 * inverse(factor),
        )

    def log_partition(self) -> Float[Array, "*batch"]:
        """Log of the integral of exp<natural, statistics> over B and Sigma.

        D/2 (P log 2 pi - log|K|), and the integral of the inverse Wishart.
        """
        mean, root, nu, factor = self._factored()
        size, count = mean.shape[-2:]
        return size * (0.5 * count * math.log(2 * math.pi) - half_log_det(root)) + log_integral(nu, factor)

    def divergence(self, other: "MatrixNormalInverseWishart") -> Divergence:
        """KL(self || other) of each entry, in parts; both have one origin and one basis."""
        mean, root, nu, factor = own = self._factored()
        pairs = zip(other._factored(), own, strict=True)
        mean0, root0, nu0, factor0 = (jnp.broadcast_to(part, like.shape) for part, like in pairs)
        gap = solve_triangular(factor, mean - mean0, lower=True)
        distance = jnp.sum(jnp.matmul(gap, root0, precision="highest") ** 2, axis=(-2, -1))
        coefficients = mean.shape[-2] * cholesky_divergence(root, root0) + nu * distance
        # Psi / nu is compared, not Psi; wishart_dof_divergence undoes that where the large terms cancel.
        shape = nu0 * cholesky_divergence(factor, factor0, nu / nu0)
        dof = wishart_dof_divergence(nu, nu0, mean.shape[-2])
        return dof._replace(rest=0.5 * (coefficients + shape) + dof.rest)

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> CoefficientsCovariance:
        """Coefficients (*sample_shape, *batch, feature, regressor) and covariances (..., feature, feature)."""
        mean, root, nu, factor = self._factored()
        key_diagonal, key_below, key_mean = jax.random.split(key, 3)
        spread = draw_roots(key_diagonal, key_below, nu, factor, sample_shape)
        noise = jax.random.normal(key_mean, (*sample_shape, *mean.shape), dtype=mean.dtype)
        root = jnp.broadcast_to(root, (*noise.shape[:-2], *root.shape[-2:]))
        noise = solve_triangular(root, noise.mT, trans=1, lower=True).mT
        covariance = jnp.matmul(spread, spread.mT, precision="highest")
        return CoefficientsCovariance(
            self.in_units(mean + jnp.matmul(spread, noise, precision="highest")),
            0.5 * (covariance + covariance.mT),
        )

    def draw_on_host(self, random: np.random.Generator, num_draws: int) -> CoefficientsCovariance:
        """Coefficients (draw, *batch, feature, regressor) and covariances, as NumPy arrays; see `sample`."""
        dtype = self.natural.location.dtype
        own, k, nu, psi = self._on_host()
        spread = draw_roots_on_host(random, nu, psi, num_draws)
        standard = random.standard_normal((num_draws, *own.shape))
        noise = np.linalg.solve(np.linalg.cholesky(k).mT, standard.mT).mT
        coefficients = np.asarray(self.origin, float) + (own + spread @ noise) @ np.asarray(self.basis, float)
        return CoefficientsCovariance(coefficients.astype(dtype), (spread @ spread.mT).astype(dtype))

    def _on_host(self) -> MatrixNormalInverseWishartParameters:
        """Usual parameters in the block's coordinates, in double precision."""
        location, k, dof, scatter = (np.asarray(x, float) for x in self.natural)
        own = np.linalg.solve(k, location.mT).mT
        psi = scatter - location @ own.mT
        nu = dof - (sum(location.shape[-2:]) + 1)
        return MatrixNormalInverseWishartParameters(own, k, nu, 0.5 * (psi + psi.mT))

    def mean(self) -> CoefficientsCovariance:
        """Mean of A, and Psi / (nu - D - 1); the covariance is infinite where nu <= D + 1: it has no mean there."""
        coefficients, _, nu, psi = self.standard()
        return CoefficientsCovariance(coefficients, covariance_mean(nu, psi))

    def predictive(self, *arguments: Any) -> dist.Distribution:
        """Student t distribution of one y at regressors h (regressor,), with the parameters integrated out.

        Degrees of freedom nu - D + 1, location M u, scale Psi (1 + u'K^-1 u) / (nu - D + 1), for u = T h.
        """
        (regressors,) = arguments
        mean, root, nu, factor = self._factored()
        dof = nu - (mean.shape[-2] - 1)
        own = (self.basis @ regressors)[..., None]
        leverage = jnp.sum(solve_triangular(root, own, lower=True) ** 2, axis=(-2, -1))
        location = self.origin @ regressors + (mean @ own)[..., 0]
        return dist.MultivariateStudentT(
            dof, location, jnp.sqrt((1 + leverage) / dof)[..., None, None] * factor
        )

    def standard(self) -> MatrixNormalInverseWishartParameters:
        """Coefficients (in the units of the data), precision (in the block's coordinates), dof and scale."""
        mean, _, nu, factor = self._factored()
        scale = jnp.matmul(factor, factor.mT, precision="highest")
        return MatrixNormalInverseWishartParameters(self.in_units(mean), self.natural.precision, nu, scale)

    def inner_point(self) -> CoefficientsCovariance:
        """Mean of A and the mode-like covariance Psi / (nu + D + P + 1), which is always finite."""
        coefficients, _, _, psi = self.standard()
        return CoefficientsCovariance(coefficients, psi / self.natural.dof[..., None, None])

    def validate(self, name: str) -> None:
        """Raise ValueError unless the coordinates are finite, dof large enough, and matrices definite."""
        super().validate(name)
        require_finite(name, {"origin": self.origin, "basis": self.basis})
        location = np.asarray(self.natural.location)
        *batch, size, count = location.shape
        shapes = (np.shape(x) for x in (self.origin, self.basis))
        if tuple(shapes) != (location.shape, (*batch, count, count)):
            raise ValueError(
                f"{name}.origin and basis have shapes {np.shape(self.origin)} and {np.shape(self.basis)}: their axes "
                "are not those of the block"
            )
        _require_triangular(f"{name}.basis", np.asarray(self.basis))
        require_covariance(f"{name}.precision", self.natural.precision)
        _, _, nu, psi = self._on_host()
        require(nu > size - 1, f"{name}.dof", nu, f"is too small for {size} features", "fit again")
        require_covariance(f"{name}.scale", psi)

    def check_point(self, name: str, value: Any, rows: np.ndarray) -> None:
        """Raise ValueError unless the covariances of the given rows are symmetric positive definite."""
        require_covariance(f"{name}.covariance", value[1], [tuple(at) for at in np.argwhere(rows).tolist()])


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
