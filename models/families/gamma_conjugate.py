r"""Conjugate block of mean and shape of a gamma distribution, whose normaliser is a one-dimensional integral.

Damsleth (1975), "Conjugate classes for gamma distributions"; Miller (1980), "Bayesian analysis of the two-parameter
gamma distribution". The base measure is ours: it keeps the shape within reason where there are few data.
"""

import dataclasses
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array, Float
from scipy.special import digamma
from scipy.special import gammaln as log_gamma

from ethogram.models.arguments import Reals, common_batch, concretely, is_concrete, read_reals, require
from ethogram.models.families.conjugate_block import ConjugateBlock, require_finite
from ethogram.models.families.divergences import (
    Divergence,
    excess,
    stirling_remainder,
    stirling_slope,
)
from ethogram.models.families.host_gamma import draw_log_gamma
from ethogram.models.families.host_quadrature import draw_log_size
from ethogram.models.families.log_quadrature import (
    LogQuadrature,
    Slope,
    draw_node,
    log_quadrature,
    rise,
)

__all__ = ["SPREAD", "GammaConjugate", "GammaConjugateCoordinates", "MeanShape"]

SPREAD = 2.0
"""Standard deviation of ln(shape) in the base measure: 95 % between 1/50 and 50 times its median."""

DRAW_NODES = 1024


class MeanShape(NamedTuple):
    """Mean mu and shape a (*batch,) of a gamma distribution, whose rate is a / mu."""

    mean: Any
    shape: Any


class GammaConjugateCoordinates(NamedTuple):
    """Natural coordinates (*batch,): number of observations, sum of their logs, and their sum.

    They are paired with a ln b - ln Gamma(a), a and -b, for the shape a and the rate b.
    """

    count: Any
    sum_log: Any
    sum: Any


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class GammaConjugate(ConjugateBlock):
    r"""Distribution of mean mu and shape a of a gamma distribution, with the rate b = a / mu, one a batch entry.

    .. math:: q(a, b) \propto e^{n (a \ln b - \ln \Gamma(a)) + a L - b S} \, \frac{a}{b} \, LogN(a \mid \ln a_0, 2)

    An observation x has statistics (1, ln x, x). Given the shape, b ~ Gamma(n a, S); the marginal of the shape is
    normalised by quadrature in ln a (:mod:`ethogram.models.families.log_quadrature`).

    Parameters
    ----------
    natural : n, L and S (*batch,); n > 0, and the mean of the logs L / n below the log of the mean S / n.
    centre : a_0 (*batch,) or (), the median of the shape in the base measure; it never moves.
    """

    natural: GammaConjugateCoordinates
    centre: Any

    @classmethod
    def from_standard(cls, mean: Reals, shape: Reals, strength: Reals) -> "GammaConjugate":
        r"""Block worth `strength` observations from a gamma distribution of this mean and shape (*batch,).

        :math:`S = n \mu_0`, :math:`L = n (\ln \mu_0 + \psi(a_0) - \ln a_0)`, and the median of the base measure a_0.

        Raises
        ------
        ValueError : a value is not positive, or the shapes do not broadcast.
        TypeError : an array of integers.
        """
        given = dict(mean=mean, shape=shape, strength=strength)
        values = read_reals(**given)
        for name, value in zip(given, values, strict=True):
            if is_concrete(value):
                require(np.asarray(value) > 0, name, value, "is not positive", "use a positive number")
        came = f"mean has shape {values[0].shape}, shape {values[1].shape} and strength {values[2].shape}"
        batch = common_batch(came, *(value.shape for value in values))

        def natural(xp, m, a, n):
            m, a, n = (xp.broadcast_to(x, batch) for x in (m, a, n))
            gap = digamma(a) - np.log(a) if xp is np else jax.scipy.special.digamma(a) - jnp.log(a)
            return GammaConjugateCoordinates(n, (n * (xp.log(m) + gap)).astype(m.dtype), n * m)

        centre = concretely(lambda xp, a: xp.broadcast_to(a, batch), values[1])
        return cls(concretely(natural, *values), centre)

    def _functions(self, extra: int = 1) -> tuple[Slope, Slope]:
        """Log density of u = ln a, up to a constant, and its derivative, of arrays with `extra` more last axes.

        In terms of Stirling's remainder r, in which the leading terms of the Gamma functions have cancelled:
        (1 + n) u / 2 + r(n a) - n r(a) - n d a, with d = ln(S / n) - L / n, and the base measure.
        """
        count, sum_log, total = self.natural
        gap = jnp.log(total / count) - sum_log / count
        prior_log = jnp.log(jnp.broadcast_to(self.centre, count.shape))
        n, d, u0 = (x.reshape(x.shape + (1,) * extra) for x in (count, gap, prior_log))

        def value(u):
            a = jnp.exp(u)
            of_all, of_one = stirling_remainder(jnp.stack([n * a, a]))
            likelihood = 0.5 * (1 + n) * u + of_all - n * of_one - n * d * a
            return likelihood - 0.5 * ((u - u0) / SPREAD) ** 2

        def slope(u):
            a = jnp.exp(u)
            of_all, of_one = stirling_slope(jnp.stack([n * a, a]))
            steps = n * a * (of_all - of_one - d)
            return 0.5 * (1 + n) + steps - (u - u0) / SPREAD**2

        return value, slope

    def _quadrature(self, **options: Any) -> LogQuadrature:
        return log_quadrature(*self._functions(), self.natural.count, **options)

    def log_density_of_size(self, shape: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
        """Log density of the shape, the mean integrated out; differentiable with respect to the shape."""
        value, _ = self._functions(0)
        found = jax.lax.stop_gradient(self._quadrature())
        u = jnp.log(shape)
        return value(u) - value(found.mode) - found.log_width - u

    def expected_statistics(self) -> GammaConjugateCoordinates:
        """E(a ln b - ln Gamma(a)), E a and -E b = -n E a / S."""
        count, _, total = self.natural
        found = self._quadrature()
        a, n = jnp.exp(found.node), count[..., None]
        # a (psi(n a) - ln S) - ln Gamma(a), with the leading terms of both Gamma functions cancelled
        rest = a * stirling_slope(n * a) + 0.5 * found.node + a - stirling_remainder(a)
        shape = jnp.sum(found.weight * a, axis=-1)
        first = jnp.sum(found.weight * rest, axis=-1) - 0.5 / count - 0.5 * math.log(2 * math.pi)
        return GammaConjugateCoordinates(
            first + shape * jnp.log(count / total), shape, -count * shape / total
        )

    def statistics(self, *value: Any) -> GammaConjugateCoordinates:
        """Statistics at a mean and a shape (*batch,)."""
        mean, shape = value
        rate = shape / mean
        return GammaConjugateCoordinates(shape * jnp.log(rate) - gammaln(shape), shape, -rate)

    def log_partition(self) -> Float[Array, "*batch"]:
        """Log of the integral of exp<natural, statistics> times the base measure, by quadrature."""
        n = self.natural.count
        found, half_log = self._quadrature(), 0.5 * math.log(2 * math.pi)
        constant = half_log * (1 - n) - 0.5 * jnp.log(n) - half_log - math.log(SPREAD)
        return self._functions(0)[0](found.mode) + found.log_width + constant

    def divergence(self, other: "GammaConjugate") -> Divergence:
        """KL(self || other): that of the shapes, and of the rates given the shape, averaged over the nodes."""
        n, _, s = self.natural
        n0, _, s0 = (jnp.broadcast_to(part, n.shape) for part in other.natural)
        theirs = dataclasses.replace(
            other, natural=GammaConjugateCoordinates(n0, jnp.broadcast_to(other.natural.sum_log, n.shape), s0)
        )
        found, their_nodes = self._quadrature(), theirs._quadrature()
        own = _log_density(self, found, found.node)
        shapes = jnp.sum(found.weight * (own - _log_density(theirs, their_nodes, found.node)), axis=-1)
        mean_shape = jnp.sum(found.weight * jnp.exp(found.node), axis=-1)
        rates = n0 * mean_shape * excess((n / n0) * (s0 / s))
        a = jnp.exp(found.node)
        return Divergence(shapes + rates, found.weight, n0[..., None] * a, n[..., None] * a)

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> MeanShape:
        """Means and shapes (*sample_shape, *batch): the shape from the quadrature, the mean exactly given it."""
        key_shape, key_rate = jax.random.split(key)
        count, _, total = self.natural
        u = jnp.log(self.sample_size(key_shape, sample_shape))
        n, s = (jnp.broadcast_to(x, u.shape) for x in (count, total))
        log_rate = jax.random.loggamma(key_rate, n * jnp.exp(u), dtype=u.dtype) - jnp.log(s)
        return MeanShape(jnp.exp(u - log_rate), jnp.exp(u))

    def sample_size(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Float[Array, "*shape"]:
        """Draws (*sample_shape, *batch) of the shape, the mean integrated out."""
        return jnp.exp(draw_node(key, self._quadrature(num_nodes=DRAW_NODES), sample_shape))

    def draw_on_host(self, random: np.random.Generator, num_draws: int) -> MeanShape:
        """Means and shapes (draw, *batch), by NumPy in double precision."""
        count, sum_log, total = (np.asarray(part, float) for part in self.natural)
        n, given, s, u0 = (x[..., None] for x in (count, sum_log, total, np.log(self.centre) + 0 * count))

        def log_density(u):
            a = np.exp(u)
            likelihood = log_gamma(n * a) - n * log_gamma(a) + a * (given - n * np.log(s))
            return u + likelihood - 0.5 * ((u - u0) / SPREAD) ** 2

        u = draw_log_size(random, log_density, count.shape, num_draws)
        log_rate = draw_log_gamma(random, count * np.exp(u), 1)[0] - np.log(total)
        return MeanShape(np.exp(u - log_rate), np.exp(u))

    def mean(self) -> MeanShape:
        """S / n, the inverse of E(1 / mu), since the mean of mu itself may be infinite, and E a."""
        return MeanShape(self.natural.sum / self.natural.count, self.expected_statistics().sum_log)

    def predictive(self) -> Any:
        """Raise TypeError: it has no closed form."""
        raise TypeError("the predictive distribution of a GammaConjugate has no closed form: draw parameters")

    def validate(self, name: str) -> None:
        """Raise ValueError unless counts and sums are positive, and the mean log below the log of the mean."""
        super().validate(name)
        require_finite(f"{name}.centre", self.centre)
        count, sum_log, total = (np.asarray(part, float) for part in self.natural)
        for part, value in (("count", count), ("sum", total), ("centre", np.asarray(self.centre))):
            require(value > 0, f"{name}.{part}", value, "is not positive", "fit again")
        gap = np.log(total / count) - sum_log / count
        require(gap > -1e-5, f"{name}.sum_log", sum_log, "exceeds that of equal observations", "fit again")

    def check_point(self, name: str, value: Any, rows: np.ndarray) -> None:
        """Raise ValueError unless means and shapes of the given rows are positive."""
        for part in value:
            require((np.asarray(part) > 0) | ~rows, name, part, "is not positive", "use positive parameters")


def _log_density(block: GammaConjugate, quadrature: LogQuadrature, u: Array) -> Array:
    """Log density of u (*batch, node) from the quadrature of the same block."""
    above = rise(*block._functions(), quadrature.mode[..., None], u - quadrature.mode[..., None])
    return above - quadrature.log_width[..., None]
