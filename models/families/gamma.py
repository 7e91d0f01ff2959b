"""Conjugate block of the rate of Poisson counts (Bishop 2006, section 2.3.6 and appendix B)."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.special import digamma, gammaln
from jaxtyping import Array, Float

from ethogram.models.arguments import Reals, read_positive, require
from ethogram.models.families.conjugate_block import ConjugateBlock, naming
from ethogram.models.families.divergences import Divergence, excess
from ethogram.models.families.host_gamma import draw_log_gamma

__all__ = ["Gamma", "GammaCoordinates"]


class GammaCoordinates(NamedTuple):
    """Natural coordinates a and b (*batch,), paired with log lambda and -lambda; base measure 1 / lambda."""

    shape: Any
    rate: Any


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Gamma(ConjugateBlock):
    """Distribution of rates, lambda ~ Gamma(a, b), one a batch entry; a Poisson count x has statistics (x, 1).

    Parameters
    ----------
    natural : shape a and rate b (*batch,); :meth:`from_standard` checks them.
    """

    natural: GammaCoordinates

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

    def log_partition(self) -> Float[Array, "*batch"]:
        """Log Gamma(a) - a log b."""
        a, b = self.natural
        return gammaln(a) - a * jnp.log(b)

    def divergence(self, other: "Gamma") -> Divergence:
        r"""KL(self || other), :math:`a_0 (r - 1 - \ln r)` and a remainder of ln Gamma, with r = a b_0 / (a_0 b)."""
        a, b = self.natural
        a0, b0 = (jnp.broadcast_to(part, a.shape) for part in other.natural)
        rest = a0 * excess((a / a0) * (b0 / b))
        return Divergence(rest, jnp.ones_like(a)[..., None], a0[..., None], a[..., None])

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Float[Array, "*shape"]:
        """Rates (*sample_shape, *batch)."""
        a, b = self.natural
        shape = (*sample_shape, *a.shape)
        log_gamma = jax.random.loggamma(key, jnp.broadcast_to(a, shape), dtype=a.dtype)
        return jnp.exp(log_gamma - jnp.broadcast_to(jnp.log(b), shape))

    def draw_on_host(self, random: np.random.Generator, num_draws: int) -> np.ndarray:
        """Rates (draw, *batch), as NumPy arrays."""
        a, b = (np.asarray(part, float) for part in self.natural)
        return np.exp(draw_log_gamma(random, a, num_draws) - np.log(b)).astype(self.natural.rate.dtype)

    def mean(self) -> Float[Array, "*batch"]:
        """A / b."""
        return self.natural.shape / self.natural.rate

    def predictive(self) -> dist.Distribution:
        """Negative binomial distribution of one count, with the rate integrated out."""
        a, b = self.natural
        return dist.GammaPoisson(a, b)

    def validate(self, name: str) -> None:
        """Raise ValueError unless shape and rate are those of :meth:`from_standard`."""
        with naming(name):
            Gamma.from_standard(*self.natural)

    def check_point(self, name: str, value: Any, rows: np.ndarray) -> None:
        """Raise ValueError unless the given entries of ``value`` are at least 0."""
        require((value >= 0) | ~rows, name, value, "is negative", "use a rate of at least 0")
