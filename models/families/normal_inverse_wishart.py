"""Conjugate block of the mean and the covariance of a Gaussian."""

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
from ethogram.models.families.conjugate_block import ConjugateBlock, broadcast_batch, require_finite
from ethogram.models.families.divergences import (
    Divergence,
    cholesky_divergence,
    excess,
    wishart_dof_divergence,
)
from ethogram.models.families.inverse_wishart import (
    covariance_mean,
    draw_roots,
    draw_roots_on_host,
    expected_half_log_precision,
    log_integral,
)
from ethogram.models.families.normal import MeanCovariance

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
    r"""Distribution of a Gaussian's mean and covariance, one a batch entry.

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
        if is_concrete(nu):
            fix = f"dof must exceed D - 1 = {dimension - 1}; D + 2 gives the covariance a mean"
            require(np.asarray(nu) > dimension - 1, "dof", nu, f"is too small for {dimension} features", fix)
        if is_concrete(psi):
            require_covariance("scale", psi)
        natural = concretely(functools.partial(_natural, batch), m, kappa, nu, psi, centre)
        if is_concrete(natural.scatter):  # rounding may have eaten the scale or the degrees of freedom
            _, _, nu, rounded = _relative(jax.tree.map(np.asarray, natural))
            pair = (np.broadcast_to(np.asarray(psi), rounded.shape), rounded)
            variance, kept = (np.diagonal(part, axis1=-2, axis2=-1) for part in pair)
            near = np.abs(kept - variance) <= 0.01 * variance
            fix = "give origin=mean, or use float64 (jax_enable_x64)"
            require(near, "diagonal of scale", variance, "is lost to rounding beside the squared mean", fix)
            require(nu > dimension - 1, "dof", nu, "is D - 1 after rounding", "give a larger one")
        return cls(natural, centre)

    def _factored(self) -> tuple[Array, Array, Array, Array]:
        """Mean relative to the origin, kappa, nu, and the lower Cholesky factor of Psi."""
        m, kappa, nu, psi = _relative(self.natural)
        return m, kappa, nu, jnp.linalg.cholesky(psi)

    def expected_statistics(self) -> NormalInverseWishartCoordinates:
        """Expected statistics of the four natural coordinates, relative to the origin.

        nu Psi^-1 m, -(D / kappa + nu m'Psi^-1 m) / 2, (sum_d psi((nu + 1 - d) / 2) + D log 2 - log|Psi|) / 2
        and -nu Psi^-1 / 2.
        """
        m, kappa, nu, factor = self._factored()
        dimension = m.shape[-1]
        whitened = solve_triangular(factor, m[..., None], lower=True)
        precision_mean = nu[..., None] * solve_triangular(factor, whitened, trans=1, lower=True)[..., 0]
        distance = nu * jnp.sum(whitened[..., 0] ** 2, axis=-1)
        return NormalInverseWishartCoordinates(
            precision_mean,
            -0.5 * (dimension / kappa + distance),
            expected_half_log_precision(nu, factor),
            -0.5 * nu[..., None, None] * inverse(factor),
        )

    def statistics(self, *value: Any) -> NormalInverseWishartCoordinates:
        """Statistics at a mean (*batch, feature) and a covariance (*batch, feature, feature)."""
        mean, covariance = value
        m = mean - broadcast_batch(self.origin, mean.ndim)
        factor = jnp.linalg.cholesky(covariance)
        precision_mean = cho_solve((factor, True), m[..., None])[..., 0]
        return NormalInverseWishartCoordinates(
            precision_mean,
            -0.5 * jnp.sum(m * precision_mean, axis=-1),
            -half_log_det(factor),
            -0.5 * inverse(factor),
        )

    def log_partition(self) -> Float[Array, "*batch"]:
        """Log of the integral of exp<natural, statistics>.

        D/2 log(2 pi / kappa) + nu D/2 log 2 + log Gamma_D(nu / 2) - nu/2 log|Psi|.
        """
        m, kappa, nu, factor = self._factored()
        dimension = m.shape[-1]
        gaussian = 0.5 * dimension * (math.log(2 * math.pi) - jnp.log(kappa))
        return gaussian + log_integral(nu, factor)

    def divergence(self, other: "NormalInverseWishart") -> Divergence:
        """KL(self || other) of each entry, in parts; the origins may differ."""
        m, kappa, nu, factor = own = self._factored()
        pairs = zip(other._factored(), own, strict=True)
        m0, kappa0, nu0, factor0 = (jnp.broadcast_to(part, like.shape) for part, like in pairs)
        origin, origin0 = (broadcast_batch(q.origin, q.natural.location.ndim) for q in (self, other))
        gap = (m - m0) + (jnp.broadcast_to(origin, m.shape) - jnp.broadcast_to(origin0, m.shape))
        whitened = solve_triangular(factor, gap[..., None], lower=True)[..., 0]
        mean_part = m.shape[-1] * excess(kappa0 / kappa) + kappa0 * nu * jnp.sum(whitened**2, axis=-1)
        # Psi / nu is compared, not Psi; wishart_dof_divergence undoes that where the large terms cancel.
        shape_part = nu0 * cholesky_divergence(factor, factor0, nu / nu0)
        dof_part = wishart_dof_divergence(nu, nu0, m.shape[-1])
        return dof_part._replace(rest=0.5 * (mean_part + shape_part) + dof_part.rest)

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> MeanCovariance:
        """Means (*sample_shape, *batch, feature) and covariances (..., feature, feature)."""
        m, kappa, nu, factor = self._factored()
        shape = (*sample_shape, *m.shape)
        key_diagonal, key_below, key_mean = jax.random.split(key, 3)
        root = draw_roots(key_diagonal, key_below, nu, factor, sample_shape)
        covariance = jnp.einsum("...ik,...jk->...ij", root, root)
        noise = jax.random.normal(key_mean, shape, dtype=m.dtype)
        noise = noise / jnp.sqrt(jnp.broadcast_to(kappa, shape[:-1]))[..., None]
        spread = jnp.einsum("...ij,...j->...i", root, noise)
        centre = jnp.broadcast_to(m + broadcast_batch(self.origin, m.ndim), shape)
        return MeanCovariance(centre + spread, 0.5 * (covariance + covariance.mT))

    def draw_on_host(self, random: np.random.Generator, num_draws: int) -> MeanCovariance:
        """Means (draw, *batch, feature) and covariances (..., feature, feature), as NumPy arrays; see `sample`."""
        m, kappa, nu, psi = _relative(jax.tree.map(lambda x: np.asarray(x, float), self.natural))
        dtype = self.natural.location.dtype
        root = draw_roots_on_host(random, nu, psi, num_draws)
        noise = random.standard_normal((num_draws, *m.shape)) / np.sqrt(kappa)[..., None]
        mean = (
            m + broadcast_batch(np.asarray(self.origin), m.ndim) + np.einsum("...ij,...j->...i", root, noise)
        )
        covariance = root @ root.swapaxes(-2, -1)
        return MeanCovariance(mean.astype(dtype), covariance.astype(dtype))

    def mean(self) -> MeanCovariance:
        """M and Psi / (nu - D - 1); the covariance is infinite where nu <= D + 1: it has no mean there."""
        m, _, nu, psi = self.standard()
        return MeanCovariance(m, covariance_mean(nu, psi))

    def predictive(self) -> dist.Distribution:
        """Student t distribution of one observation, with the parameters integrated out.

        Degrees of freedom nu - D + 1, location m, scale Psi (kappa + 1) / (kappa (nu - D + 1)).
        """
        m, kappa, nu, factor = self._factored()
        dof = nu - (m.shape[-1] - 1)
        spread = jnp.sqrt((kappa + 1) / (kappa * dof))[..., None, None]
        return dist.MultivariateStudentT(dof, m + broadcast_batch(self.origin, m.ndim), spread * factor)

    def standard(self) -> NormalInverseWishartParameters:
        """Mean (in the units of the data), strength, dof and scale."""
        relative = _relative(self.natural)
        return relative._replace(mean=relative.mean + broadcast_batch(self.origin, relative.mean.ndim))

    def inner_point(self) -> MeanCovariance:
        """M and the mode-like covariance Psi / (nu + D + 2), which is always finite."""
        m, _, _, psi = self.standard()
        return MeanCovariance(m, psi / self.natural.dof[..., None, None])

    def validate(self, name: str) -> None:
        """Raise ValueError unless the coordinates are finite, strength and dof large enough, and scales definite."""
        super().validate(name)
        require_finite(f"{name}.origin", self.origin)
        wide = jax.tree.map(lambda x: np.asarray(x, float), self.natural)
        features = wide.location.shape[-1]
        lead = np.ndim(self.origin) - 1
        if lead < 0 or np.shape(self.origin) != (*wide.strength.shape[:lead], features):
            raise ValueError(
                f"{name}.origin has shape {np.shape(self.origin)}: its axes are not those of the block"
            )
        require(wide.strength > 0, f"{name}.strength", wide.strength, "is not positive", "fit again")
        _, _, nu, psi = _relative(wide)
        require(nu > features - 1, f"{name}.dof", nu, f"is too small for {features} features", "fit again")
        require_covariance(f"{name}.scale", psi)

    def check_point(self, name: str, value: Any, rows: np.ndarray) -> None:
        """Raise ValueError unless the covariances of the given rows are symmetric positive definite."""
        require_covariance(f"{name}.covariance", value[1], [tuple(at) for at in np.argwhere(rows).tolist()])


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


def _relative(natural: NormalInverseWishartCoordinates) -> NormalInverseWishartParameters:
    """Usual parameters, the mean relative to the origin; of NumPy or JAX arrays."""
    location, kappa, dof, scatter = natural
    m = location / kappa[..., None]
    psi = scatter - location[..., :, None] * m[..., None, :]
    return NormalInverseWishartParameters(m, kappa, dof - (m.shape[-1] + 2), 0.5 * (psi + psi.mT))
