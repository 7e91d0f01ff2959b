r"""Conjugate block of direction and concentration of a von Mises distribution, normalised by quadrature.

Mardia and El-Atoum (1976), "Bayesian inference for the von Mises-Fisher distribution"; Guttorp and Lockhart (1988),
"Finding the location of a signal: a Bayesian analysis". The base measure, original to this package, makes the prior
proper without any pseudo-observation.
"""

import dataclasses
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import scipy.special
from jax.scipy.special import i0e
from jaxtyping import Array
from numpyro.distributions import constraints

from ethogram.models.arguments import Reals, common_batch, concretely, is_concrete, read_reals, require
from ethogram.models.families.array_modules import modules_of
from ethogram.models.families.conjugate_block import SiteNames, sample_site
from ethogram.models.families.divergences import Divergence
from ethogram.models.families.quadrature_block import QuadratureBlock
from ethogram.models.families.quadrature_sites import VECTOR, PlanarDirection, SizeDensity
from ethogram.models.families.variates import Variates

__all__ = ["DirectionConcentration", "VonMisesConjugate", "VonMisesConjugateCoordinates"]

# (1 - I1(z) / I0(z)) z in powers of 1 / z, by the equation A' = 1 - A / z - A^2 of the ratio A.
SERIES = (
    1 / 2,
    1 / 8,
    1 / 8,
    25 / 128,
    13 / 32,
    1073 / 1024,
    103 / 32,
    375733 / 32768,
    23797 / 512,
    55384775 / 262144,
)
SERIES_FROM = 60.0


class DirectionConcentration(NamedTuple):
    """Mean direction mu (*batch,), in radians, and concentration kappa of a von Mises distribution."""

    direction: Any
    concentration: Any


class VonMisesConjugateCoordinates(NamedTuple):
    """Natural coordinates (*batch,): number of observations, sums of their cosines and of their sines.

    They are paired with -ln I0(kappa), kappa cos mu and kappa sin mu.
    """

    count: Any
    cosine: Any
    sine: Any


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class VonMisesConjugate(QuadratureBlock):
    r"""Distribution of direction mu and concentration kappa of a von Mises distribution, one per batch entry.

    .. math:: q(\mu, \kappa) \propto I_0(\kappa)^{-n} e^{\kappa (C \cos \mu + S \sin \mu)} \,
              LogN(\kappa \mid \ln \kappa_0, 2)

    An angle x has statistics (1, cos x, sin x). Given kappa, mu is von Mises with direction atan2(S, C) and
    concentration kappa R, :math:`R^2 = C^2 + S^2`; the size of the base class is kappa.

    Parameters
    ----------
    natural : n >= 0, C and S (*batch,), with R <= n.
    centre : kappa_0 (*batch,) or (), the median of the concentration in the base measure; it never moves.
    """

    natural: VonMisesConjugateCoordinates
    centre: Any
    support: ClassVar[tuple] = (constraints.circular, constraints.nonnegative)

    @classmethod
    def from_standard(cls, direction: Reals, concentration: Reals, strength: Reals) -> "VonMisesConjugate":
        r"""Block worth `strength` observations with this direction and concentration (*batch,).

        :math:`R = n I_1(\kappa_0) / I_0(\kappa_0)`, and the median of the base measure kappa_0.

        Raises
        ------
        ValueError : the concentration is not positive, the strength negative, or the shapes do not broadcast.
        TypeError : an array of integers.
        """
        given = dict(direction=direction, concentration=concentration, strength=strength)
        mu, kappa, n = values = read_reals(**given)
        if is_concrete(kappa):
            require(np.asarray(kappa) > 0, "concentration", kappa, "is not positive", "use a positive number")
        if is_concrete(n):
            require(np.asarray(n) >= 0, "strength", n, "is negative", "use 0 or a positive number")
        came = f"direction has shape {mu.shape}, concentration {kappa.shape} and strength {n.shape}"
        batch = common_batch(came, *(value.shape for value in values))

        def natural(xp, mu, kappa, n):
            mu, kappa, n = (xp.broadcast_to(x, batch) for x in (mu, kappa, n))
            ratio = (
                scipy.special.i1e(kappa) / scipy.special.i0e(kappa)
                if xp is np
                else 1 - _fall_short(kappa) / kappa
            )
            resultant = n * ratio
            return VonMisesConjugateCoordinates(
                n, *(xp.asarray(resultant * each(mu), dtype=mu.dtype) for each in (xp.cos, xp.sin))
            )

        return cls(concretely(natural, *values), concretely(lambda xp, x: xp.broadcast_to(x, batch), kappa))

    @property
    def resultant(self) -> Any:
        """R, the length of the sum of the unit vectors (*batch,)."""
        return _resultant(self.natural)

    @property
    def direction(self) -> Any:
        """The mean direction (*batch,), within (-pi, pi]."""
        xp, _ = modules_of(*self.natural)
        return xp.arctan2(self.natural.sine, self.natural.cosine)

    def log_marginal(self, natural: Any, u: Any) -> Any:
        """Ln I0(kappa R) - n ln I0(kappa), by scaled Bessel functions."""
        xp, special = modules_of(u)
        n, r, kappa = natural.count, _resultant(natural), xp.exp(u)
        of_sum, of_one = xp.log(special.i0e(xp.stack([kappa * r, kappa])))
        return of_sum - n * of_one - kappa * xp.maximum(n - r, 0)

    def slope_of_log_marginal(self, natural: Any, u: Any) -> Any:
        xp, _ = modules_of(u)
        n, r, kappa = natural.count, _resultant(natural), xp.exp(u)
        of_sum, of_one = _fall_short(xp.stack([kappa * r, kappa]))
        return n * of_one - of_sum - kappa * xp.maximum(n - r, 0)

    def expected_statistics(self) -> VonMisesConjugateCoordinates:
        """-E ln I0(kappa), E(kappa cos mu) and E(kappa sin mu)."""
        found, r = self._quadrature(), self.resultant
        kappa = jnp.exp(found.node)
        log_bessel = jnp.sum(found.weight * (kappa + jnp.log(i0e(kappa))), axis=-1)
        # E kappa A(kappa R) / R; where R is 0 the limit E kappa^2 / 2 is multiplied by a C and a S of 0
        z = kappa * r[..., None]
        along = kappa * kappa * _ratio_over(z)
        along = jnp.sum(found.weight * along, axis=-1)
        return VonMisesConjugateCoordinates(
            -log_bessel, along * self.natural.cosine, along * self.natural.sine
        )

    def statistics(self, *value: Any) -> VonMisesConjugateCoordinates:
        """Statistics at a direction and a concentration (*batch,)."""
        direction, kappa = value
        log_bessel = kappa + jnp.log(i0e(kappa))
        return VonMisesConjugateCoordinates(
            -log_bessel, kappa * jnp.cos(direction), kappa * jnp.sin(direction)
        )

    def divergence(self, other: "VonMisesConjugate") -> Divergence:
        """KL(self || other): that of the concentrations, and of the directions given them, averaged over the nodes."""
        theirs, found, above = self._beside(other)
        r, r0 = self.resultant[..., None], theirs.resultant[..., None]
        (_, c, s), (_, c0, s0) = self.natural, theirs.natural
        # from one mean direction to the other
        turn = jnp.arctan2(c * s0 - s * c0, c * c0 + s * s0)[..., None]
        kappa = jnp.exp(found.node)
        away = 2 * jnp.sin(0.5 * turn) ** 2 * r0
        scaled = _fall_short(kappa * r) * (1 - jnp.where(r > 0, r0 - away, 0) / jnp.where(r > 0, r, 1))
        directions = kappa * away - scaled + jnp.log(i0e(kappa * r0) / i0e(kappa * r))
        total = jnp.sum(found.weight * (above + directions), axis=-1)
        none = jnp.zeros((*total.shape, 0), total.dtype)
        return Divergence(total, none, none, none)

    def draw(self, variates: Variates, sample_shape: tuple[int, ...] = ()) -> DirectionConcentration:
        """Directions and concentrations (*sample_shape, *batch).

        Directions lie within half a turn of their mean direction, so that those near pi are not torn apart.
        """
        of_concentration, of_direction = variates.split(2)
        u = self.draw_log_size(of_concentration, sample_shape)
        xp, _ = modules_of(u)
        resultant, direction = (xp.broadcast_to(x, u.shape) for x in (self.resultant, self.direction))
        turn = of_direction.von_mises(xp.exp(u) * resultant)
        return DirectionConcentration(direction + turn, xp.exp(u))

    def mean(self) -> DirectionConcentration:
        """The mean direction, within (-pi, pi], and E kappa."""
        found = self._quadrature()
        return DirectionConcentration(self.direction, jnp.sum(found.weight * jnp.exp(found.node), axis=-1))

    def sites(self, names: SiteNames, zeros: Any = None) -> DirectionConcentration:
        """Concentrations, and directions as angles of vectors in the plane, the latent site ``direction_vector``."""
        concentration = sample_site(names("concentration"), SizeDensity(self))
        in_plane = PlanarDirection(self.direction, concentration * self.resultant)
        vector = sample_site(names(f"direction{VECTOR}"), in_plane)
        direction = jnp.arctan2(vector[..., 1], vector[..., 0])
        if not names.suffix:
            direction = numpyro.deterministic(names("direction"), direction)
        return DirectionConcentration(direction, concentration)


def _resultant(natural: VonMisesConjugateCoordinates) -> Any:
    xp, _ = modules_of(*natural)
    return xp.hypot(natural.cosine, natural.sine)


def _fall_short(z: Any) -> Any:
    """Shortfall z (1 - I1(z) / I0(z)), by an asymptotic series where it is large (Abramowitz, Stegun 1964, 9.7.1)."""
    xp, special = modules_of(z)
    large = z > SERIES_FROM
    far, near = xp.where(large, z, SERIES_FROM), xp.where(large, SERIES_FROM, z)
    total = xp.zeros_like(far)
    for coefficient in reversed(SERIES):
        total = total / far + coefficient
    bessel = special.i0e(near)
    return xp.where(large, total, near * ((bessel - special.i1e(near)) / bessel))


def _ratio_over(z: Array) -> Array:
    """I1(z) / (z I0(z)), 1/2 at 0."""
    small = z < 1e-3
    safe = jnp.where(small, 1, z)
    return jnp.where(small, 0.5 - z * z / 16, (1 - _fall_short(safe) / safe) / safe)
