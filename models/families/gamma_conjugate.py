r"""Conjugate block of mean and shape of a gamma distribution, whose normaliser is a one-dimensional integral.

Damsleth (1975), "Conjugate classes for gamma distributions"; Miller (1980), "Bayesian analysis of the two-parameter
gamma distribution". The base measure, original to this package, keeps the shape within reason where there are few data.
"""

import dataclasses
import math
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import scipy.special
from jax.scipy.special import gammaln
from numpyro.distributions import constraints

from ethogram.models.arguments import Reals, concretely, read_positive
from ethogram.models.families.array_modules import modules_of
from ethogram.models.families.conjugate_block import SiteNames, sample_site
from ethogram.models.families.divergences import (
    Divergence,
    excess,
    stirling_remainder,
    stirling_slope,
)
from ethogram.models.families.quadrature_block import QuadratureBlock
from ethogram.models.families.quadrature_sites import SizeDensity
from ethogram.models.families.variates import Variates

__all__ = ["GammaConjugate", "GammaConjugateCoordinates", "MeanShape"]


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
class GammaConjugate(QuadratureBlock):
    r"""Distribution of mean mu and shape a of a gamma distribution, with the rate b = a / mu, one per batch entry.

    .. math:: q(a, b) \propto e^{n (a \ln b - \ln \Gamma(a)) + a L - b S} \, \frac{a}{b} \, LogN(a \mid \ln a_0, 2)

    An observation x has statistics (1, ln x, x). Given the shape, b ~ Gamma(n a, S); the size of the
    base class is the shape.

    Parameters
    ----------
    natural : n, L and S (*batch,); n > 0, and the mean of the logs L / n below the log of the mean S / n.
    centre : a_0 (*batch,) or (), the median of the shape in the base measure; it never moves.
    """

    natural: GammaConjugateCoordinates
    centre: Any
    support: ClassVar[tuple] = (constraints.positive, constraints.positive)

    @classmethod
    def from_standard(cls, mean: Reals, shape: Reals, strength: Reals) -> "GammaConjugate":
        r"""Block worth `strength` observations from a gamma distribution of this mean and shape (*batch,).

        :math:`S = n \mu_0`, :math:`L = n (\ln \mu_0 + \psi(a_0) - \ln a_0)`, and the median of the base measure a_0.

        Raises
        ------
        ValueError : a value is not positive, or the shapes do not broadcast.
        TypeError : an array of integers.
        """
        values = read_positive("use a positive number", mean=mean, shape=shape, strength=strength)

        def natural(xp, m, a, n):
            digamma = (scipy.special if xp is np else jax.scipy.special).digamma
            gap = digamma(a) - xp.log(a)
            return GammaConjugateCoordinates(n, (n * (xp.log(m) + gap)).astype(m.dtype), n * m)

        return cls(concretely(natural, *values), values[1])

    def log_marginal(self, natural: Any, u: Any) -> Any:
        """In terms of Stirling's remainder r, in which the leading terms of the Gamma functions have cancelled.

        (1 + n) u / 2 + r(n a) - n r(a) - n d a, with d = ln(S / n) - L / n.
        """
        xp, _ = modules_of(u)
        n, sum_log, total = natural
        a, d = xp.exp(u), xp.log(total / n) - sum_log / n
        of_all, of_one = stirling_remainder(xp.stack([n * a, a]))
        return 0.5 * (1 + n) * u + of_all - n * of_one - n * d * a

    def slope_of_log_marginal(self, natural: Any, u: Any) -> Any:
        xp, _ = modules_of(u)
        n, sum_log, total = natural
        a, d = xp.exp(u), xp.log(total / n) - sum_log / n
        of_all, of_one = stirling_slope(xp.stack([n * a, a]))
        return 0.5 * (1 + n) + n * a * (of_all - of_one - d)

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

    def divergence(self, other: "GammaConjugate") -> Divergence:
        """KL(self || other): that of the shapes, and of the rates given the shape, averaged over the nodes."""
        theirs, found, log_ratio = self._beside(other)
        (n, _, s), (n0, _, s0) = self.natural, theirs.natural
        a = jnp.exp(found.node)
        shapes = jnp.sum(found.weight * log_ratio, axis=-1)
        rates = n0 * jnp.sum(found.weight * a, axis=-1) * excess((n / n0) * (s0 / s))
        return Divergence(shapes + rates, found.weight, n0[..., None] * a, n[..., None] * a)

    def draw(self, variates: Variates, sample_shape: tuple[int, ...] = ()) -> MeanShape:
        """Means and shapes (*sample_shape, *batch): the shape from the quadrature, the mean exactly given it."""
        of_shape, of_rate = variates.split(2)
        count, _, total = self.natural
        u = self.draw_log_size(of_shape, sample_shape)
        xp, _ = modules_of(u)
        n, s = (xp.broadcast_to(x, u.shape) for x in (count, total))
        log_rate = of_rate.log_gamma(n * xp.exp(u)) - xp.log(s)
        return MeanShape(xp.exp(u - log_rate), xp.exp(u))

    def mean(self) -> MeanShape:
        """S / n, the inverse of E(1 / mu), since the mean of mu itself may be infinite, and E a."""
        return MeanShape(self.natural.sum / self.natural.count, self.expected_statistics().sum_log)

    def sites(self, names: SiteNames, zeros: Any = None) -> MeanShape:
        """Shapes, and means given these."""
        count, _, total = self.natural
        shape = sample_site(names("shape"), SizeDensity(self))
        return MeanShape(sample_site(names("mean"), dist.InverseGamma(count * shape, total * shape)), shape)
