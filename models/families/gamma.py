"""Conjugate block of the rate of Poisson counts (Bishop 2006, section 2.3.6 and appendix B)."""

import dataclasses
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax.scipy.special import digamma
from jaxtyping import Array, Float
from numpyro.distributions import constraints

from ethogram.models.arguments import Reals, read_positive
from ethogram.models.families.array_modules import modules_of
from ethogram.models.families.conjugate_block import ConjugateBlock, SiteNames, sample_site
from ethogram.models.families.divergences import Divergence, excess
from ethogram.models.families.variates import Variates

__all__ = ["Gamma", "GammaCoordinates"]


class GammaCoordinates(NamedTuple):
    """Natural coordinates a and b (*batch,), paired with log lambda and -lambda; base measure 1 / lambda."""

    shape: Any
    rate: Any


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Gamma(ConjugateBlock):
    """Distribution of rates, lambda ~ Gamma(a, b), one per batch entry; a Poisson count x has statistics (x, 1).

    Parameters
    ----------
    natural : shape a and rate b (*batch,); :meth:`from_standard` checks them.
    """

    natural: GammaCoordinates
    support: ClassVar[tuple] = (constraints.nonnegative,)

    @classmethod
    def from_standard(cls, shape: Reals, rate: Reals) -> "Gamma":
        """Block with this shape and rate, broadcast against each other.

        Raises
        ------
        ValueError : a value is not positive, or the shapes do not broadcast.
        TypeError : an array of integers.
        """
        return cls(GammaCoordinates(*read_positive("use a positive number", shape=shape, rate=rate)))

    def expected_statistics(self) -> GammaCoordinates:
        """E log lambda = psi(a) - log b and E(-lambda) = -a / b."""
        a, b = self.natural
        return GammaCoordinates(digamma(a) - jnp.log(b), -a / b)

    def statistics(self, *value: Float[Array, "*batch"]) -> GammaCoordinates:
        """Log lambda, -inf with gradient 0 where it is 0, and -lambda."""
        (rate,) = value
        positive = rate > 0
        return GammaCoordinates(jnp.where(positive, jnp.log(jnp.where(positive, rate, 1)), -jnp.inf), -rate)

    def divergence(self, other: "Gamma") -> Divergence:
        r"""KL(self || other), :math:`a_0 (r - 1 - \ln r)` and a remainder of ln Gamma, with r = a b_0 / (a_0 b)."""
        a, b = self.natural
        a0, b0 = (jnp.broadcast_to(part, a.shape) for part in other.natural)
        rest = a0 * excess((a / a0) * (b0 / b))
        return Divergence(rest, jnp.ones_like(a)[..., None], a0[..., None], a[..., None])

    def draw(self, variates: Variates, sample_shape: tuple[int, ...] = ()) -> Any:
        """Rates (*sample_shape, *batch)."""
        a, b = self.natural
        xp, _ = modules_of(a, b)
        log_gamma = variates.log_gamma(a, sample_shape)
        return xp.exp(log_gamma - xp.broadcast_to(xp.log(b), log_gamma.shape))

    def mean(self) -> Float[Array, "*batch"]:
        """A / b."""
        return self.natural.shape / self.natural.rate

    def sites(self, names: SiteNames, zeros: Any = None) -> Array:
        """Rates, at one site."""
        return sample_site(names(), dist.Gamma(*self.natural))
