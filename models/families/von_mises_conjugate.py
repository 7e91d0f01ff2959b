r"""Conjugate block of direction and concentration of a von Mises distribution, normalised by quadrature.

Mardia and El-Atoum (1976), "Bayesian inference for the von Mises-Fisher distribution"; Guttorp and Lockhart (1988),
"Finding the location of a signal: a Bayesian analysis". The base measure is ours: with it the prior is proper without
any pseudo-observation.
"""

import dataclasses
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import i0e, i1e
from jaxtyping import Array, Float
from numpyro.distributions.util import von_mises_centered
from scipy.special import i0e as i0
from scipy.special import i1e as i1

from ethogram.models.arguments import Reals, common_batch, concretely, is_concrete, read_reals, require
from ethogram.models.families.conjugate_block import ConjugateBlock, require_finite
from ethogram.models.families.divergences import Divergence
from ethogram.models.families.gamma_conjugate import DRAW_NODES, SPREAD
from ethogram.models.families.host_quadrature import draw_log_size
from ethogram.models.families.log_quadrature import LogQuadrature, Slope, draw_node, log_quadrature, rise

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
class VonMisesConjugate(ConjugateBlock):
    r"""Distribution of direction mu and concentration kappa of a von Mises distribution, one a batch entry.

    .. math:: q(\mu, \kappa) \propto I_0(\kappa)^{-n} e^{\kappa (C \cos \mu + S \sin \mu)} \,
              LogN(\kappa \mid \ln \kappa_0, 2)

    An angle x has statistics (1, cos x, sin x). Given kappa, mu is von Mises with direction atan2(S, C) and
    concentration kappa R, :math:`R^2 = C^2 + S^2`; the marginal of kappa is normalised by quadrature in ln kappa.

    Parameters
    ----------
    natural : n >= 0, C and S (*batch,), with R <= n.
    centre : kappa_0 (*batch,) or (), the median of the concentration in the base measure; it never moves.
    """

    natural: VonMisesConjugateCoordinates
    centre: Any

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
            ratio = i1(kappa) / i0(kappa) if xp is np else 1 - _fall_short(kappa) / kappa
            resultant = n * ratio
            return VonMisesConjugateCoordinates(
                n, *(xp.asarray(resultant * each(mu), dtype=mu.dtype) for each in (xp.cos, xp.sin))
            )

        return cls(concretely(natural, *values), concretely(lambda xp, x: xp.broadcast_to(x, batch), kappa))

    @property
    def resultant(self) -> Array:
        """R, the length of the sum of the unit vectors (*batch,)."""
        return jnp.hypot(self.natural.cosine, self.natural.sine)

    def _functions(self, extra: int = 1) -> tuple[Slope, Slope]:
        """Log density of u = ln kappa, up to a constant, and its derivative, of arrays with `extra` more last axes."""
        count = self.natural.count
        prior_log = jnp.log(jnp.broadcast_to(self.centre, count.shape))
        n, r, u0 = (x.reshape(x.shape + (1,) * extra) for x in (count, self.resultant, prior_log))
        short = jnp.maximum(n - r, 0)

        def value(u):
            kappa = jnp.exp(u)
            of_sum, of_one = jnp.log(i0e(jnp.stack([kappa * r, kappa])))
            likelihood = of_sum - n * of_one - kappa * short
            return likelihood - 0.5 * ((u - u0) / SPREAD) ** 2

        def slope(u):
            kappa = jnp.exp(u)
            of_sum, of_one = _fall_short(jnp.stack([kappa * r, kappa]))
            return n * of_one - of_sum - kappa * short - (u - u0) / SPREAD**2

        return value, slope

    def _quadrature(self, **options: Any) -> LogQuadrature:
        return log_quadrature(*self._functions(), self.natural.count, **options)

    def log_density_of_size(self, concentration: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
        """Log density of the concentration, the direction integrated out; differentiable with respect to it."""
        value, _ = self._functions(0)
        found = jax.lax.stop_gradient(self._quadrature())
        u = jnp.log(concentration)
        return value(u) - value(found.mode) - found.log_width - u

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

    def log_partition(self) -> Float[Array, "*batch"]:
        """Log of the integral of exp<natural, statistics> times the base measure, by quadrature."""
        found = self._quadrature()
        constant = 0.5 * math.log(2 * math.pi) - math.log(SPREAD)
        return self._functions(0)[0](found.mode) + found.log_width + constant

    def divergence(self, other: "VonMisesConjugate") -> Divergence:
        """KL(self || other): that of the concentrations, and of the directions given them, averaged over the nodes."""
        natural = jax.tree.map(lambda x: jnp.broadcast_to(x, self.natural.count.shape), other.natural)
        theirs = dataclasses.replace(other, natural=natural)
        found, their_nodes = self._quadrature(), theirs._quadrature()
        own = _log_density(self, found, found.node)
        above = own - _log_density(theirs, their_nodes, found.node)
        r, r0 = self.resultant[..., None], theirs.resultant[..., None]
        (_, c, s), (_, c0, s0) = self.natural, natural
        turn = jnp.arctan2(c * s0 - s * c0, c * c0 + s * s0)[
            ..., None
        ]  # from one mean direction to the other
        kappa = jnp.exp(found.node)
        away = 2 * jnp.sin(0.5 * turn) ** 2 * r0
        scaled = _fall_short(kappa * r) * (1 - jnp.where(r > 0, r0 - away, 0) / jnp.where(r > 0, r, 1))
        directions = kappa * away - scaled + jnp.log(i0e(kappa * r0) / i0e(kappa * r))
        total = jnp.sum(found.weight * (above + directions), axis=-1)
        none = jnp.zeros((*total.shape, 0), total.dtype)
        return Divergence(total, none, none, none)

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> DirectionConcentration:
        """Directions and concentrations (*sample_shape, *batch).

        Directions lie within half a turn of their mean direction, so that those near pi are not torn apart.
        """
        key_concentration, key_direction = jax.random.split(key)
        u = jnp.log(self.sample_size(key_concentration, sample_shape))
        z = jnp.exp(u) * jnp.broadcast_to(self.resultant, u.shape)
        centre = jnp.broadcast_to(self.mean().direction, u.shape)
        return DirectionConcentration(centre + _draw_turn(key_direction, z), jnp.exp(u))

    def sample_size(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Float[Array, "*shape"]:
        """Draws (*sample_shape, *batch) of the concentration, the direction integrated out."""
        return jnp.exp(draw_node(key, self._quadrature(num_nodes=DRAW_NODES), sample_shape))

    def draw_on_host(self, random: np.random.Generator, num_draws: int) -> DirectionConcentration:
        """Directions and concentrations (draw, *batch) as `sample` makes, by NumPy in double precision."""
        count, cosine, sine = (np.asarray(part, float) for part in self.natural)
        resultant = np.hypot(cosine, sine)
        n, r, u0 = (x[..., None] for x in (count, resultant, np.log(self.centre) + 0 * count))

        def log_density(u):
            kappa = np.exp(u)
            likelihood = np.log(i0(kappa * r)) - n * np.log(i0(kappa)) - kappa * np.maximum(n - r, 0)
            return likelihood - 0.5 * ((u - u0) / SPREAD) ** 2

        u = draw_log_size(random, log_density, count.shape, num_draws)
        direction = np.arctan2(sine, cosine) + random.vonmises(0, np.exp(u) * resultant)
        return DirectionConcentration(direction, np.exp(u))

    def mean(self) -> DirectionConcentration:
        """The mean direction, within (-pi, pi], and E kappa."""
        found = self._quadrature()
        direction = jnp.arctan2(self.natural.sine, self.natural.cosine)
        return DirectionConcentration(direction, jnp.sum(found.weight * jnp.exp(found.node), axis=-1))

    def predictive(self) -> Any:
        """Raise TypeError: it has no closed form."""
        raise TypeError(
            "the predictive distribution of a VonMisesConjugate has no closed form: draw parameters"
        )

    def validate(self, name: str) -> None:
        """Raise ValueError unless the coordinates are those of directions: n at least 0, R at most n."""
        super().validate(name)
        require_finite(f"{name}.centre", self.centre)
        count, cosine, sine = (np.asarray(part, float) for part in self.natural)
        require(count >= 0, f"{name}.count", count, "is negative", "fit again")
        good = np.hypot(cosine, sine) <= count * (1 + 1e-4)
        require(good, f"{name}.cosine", cosine, "exceeds that of equal observations", "fit again")
        require(np.asarray(self.centre) > 0, f"{name}.centre", self.centre, "is not positive", "fit again")

    def check_point(self, name: str, value: Any, rows: np.ndarray) -> None:
        """Raise ValueError unless the concentrations of the given rows are at least 0."""
        fix = "use a concentration of at least 0"
        require((np.asarray(value[1]) >= 0) | ~rows, f"{name}.concentration", value[1], "is negative", fix)


def _fall_short(z: Array) -> Array:
    """Shortfall z (1 - I1(z) / I0(z)), by an asymptotic series where it is large (Abramowitz, Stegun 1964, 9.7.1)."""
    large = z > SERIES_FROM
    far, near = jnp.where(large, z, SERIES_FROM), jnp.where(large, SERIES_FROM, z)
    total = jnp.zeros_like(far)
    for coefficient in reversed(SERIES):
        total = total / far + coefficient
    bessel = i0e(near)
    return jnp.where(large, total, near * ((bessel - i1e(near)) / bessel))


def _ratio_over(z: Array) -> Array:
    """I1(z) / (z I0(z)), 1/2 at 0."""
    small = z < 1e-3
    safe = jnp.where(small, 1, z)
    return jnp.where(small, 0.5 - z * z / 16, (1 - _fall_short(safe) / safe) / safe)


def _draw_turn(key: Array, concentration: Array) -> Array:
    """Draws from von Mises distributions about 0; normal where the concentration is too large to tell."""
    key_turn, key_normal = jax.random.split(key)
    narrow = concentration > (1e4 if concentration.dtype == jnp.float32 else 1e8)
    wide = jnp.where(narrow, 1, jnp.maximum(concentration, 1e-6))
    turn = von_mises_centered(key_turn, wide, wide.shape, wide.dtype)
    normal = jax.random.normal(key_normal, wide.shape, wide.dtype)
    return jnp.where(narrow, normal / jnp.sqrt(jnp.where(narrow, concentration, 1)), turn)


def _log_density(block: VonMisesConjugate, quadrature: LogQuadrature, u: Array) -> Array:
    """Log density of u (*batch, node) from the quadrature of the same block."""
    above = rise(*block._functions(), quadrature.mode[..., None], u - quadrature.mode[..., None])
    return above - quadrature.log_width[..., None]
