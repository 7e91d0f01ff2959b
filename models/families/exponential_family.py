"""Conjugate blocks by their natural parameters, and updates of a pytree of them.

q(theta) is a pytree of blocks: `expected_statistics` gives expected log potentials, `natural_step` the update, and
`total_kl` the divergence in the ELBO. Hoffman, Blei, Wang, Paisley (2013), eq. 15 and 31; Bishop (2006), appendix B.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.special import digamma, gammaln
from jaxtyping import Array, Float
from scipy.special import expit, softmax

from ethogram.models.arguments import Reals, is_concrete, read_positive, read_reals, require
from ethogram.models.families.conjugate_block import ConjugateBlock, naming
from ethogram.models.families.divergences import Divergence, dirichlet_divergence
from ethogram.models.families.host_gamma import draw_log_gamma
from ethogram.models.families.normal import MeanCovariance, Normal
from ethogram.models.families.normal_inverse_wishart import NormalInverseWishart
from ethogram.models.families.partly_known import Known, PartlyKnown
from ethogram.models.quick_jit import quick_jit

__all__ = [
    "Beta",
    "BetaCoordinates",
    "ConjugateBlock",
    "Dirichlet",
    "DirichletCoordinates",
    "Known",
    "MeanCovariance",
    "Normal",
    "NormalInverseWishart",
    "PartlyKnown",
    "expected_statistics",
    "natural_step",
    "total_kl",
]


class DirichletCoordinates(NamedTuple):
    """Natural coordinates (*batch, category), paired with log p; the base measure is prod 1/p."""

    concentration: Any


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Dirichlet(ConjugateBlock):
    """Distribution of probability rows, p ~ Dir(concentration), one a batch entry.

    A concentration of exactly 0 is a structural zero: that category has probability 0, its expected log
    probability is -inf with gradient 0, it never moves, and it counts for nothing in the KL divergence.
    A row with one positive entry is a point mass.

    Parameters
    ----------
    natural : concentrations (*batch, category); :meth:`from_standard` checks them.

    Examples
    --------
    >>> block = Dirichlet.from_standard([[1.0, 1.0], [3.0, 0.0]])
    >>> print(block.mean())
    [[0.5 0.5]
     [1.  0. ]]
    """

    natural: DirichletCoordinates

    @classmethod
    def from_standard(cls, concentration: Reals) -> "Dirichlet":
        """Block with these concentrations (*batch, category).

        Raises
        ------
        ValueError : a concentration is negative or NaN, a row is all zeros, or there is no category axis.
        TypeError : an array of integers.
        """
        (rows,) = read_reals(concentration=concentration)
        if rows.ndim < 1 or rows.shape[-1] < 1:
            raise ValueError(f"concentration has shape {rows.shape}: pass shape (*batch, category)")
        if is_concrete(rows):
            values = np.asarray(rows)
            require(
                values >= 0, "concentration", values, "is negative", "use a positive one, or 0 to forbid it"
            )
            some = (values > 0).any(axis=-1)
            require(some, "concentration", values, "is a row of zeros", "make one entry positive")
        return cls(DirichletCoordinates(rows))

    def _present(self) -> tuple[Array, Array, Array]:
        """Which entries are free, the concentrations with 1 put for the others, and the sum of each row."""
        (concentration,) = self.standard()
        present = concentration > 0
        total = jnp.sum(jnp.where(present, concentration, 0), axis=-1, keepdims=True)
        return present, jnp.where(present, concentration, 1), total

    def expected_statistics(self) -> DirichletCoordinates:
        """E log p = psi(a_i) - psi(sum a), shape (*batch, category); -inf at structural zeros."""
        present, safe, total = self._present()
        return DirichletCoordinates(jnp.where(present, digamma(safe) - digamma(total), -jnp.inf))

    def statistics(self, *value: Float[Array, "*batch category"]) -> DirichletCoordinates:
        """Log p of rows p (*batch, category); -inf with gradient 0 at zeros."""
        (probability,) = value
        positive = probability > 0
        return DirichletCoordinates(
            jnp.where(positive, jnp.log(jnp.where(positive, probability, 1)), -jnp.inf)
        )

    def log_partition(self) -> Float[Array, "*batch"]:
        """Sum of log Gamma(a_i) over free entries, less log Gamma(sum a)."""
        present, safe, total = self._present()
        return jnp.sum(jnp.where(present, gammaln(safe), 0), axis=-1) - gammaln(jnp.squeeze(total, axis=-1))

    def divergence(self, other: "Dirichlet") -> Divergence:
        """KL(self || other) of each row, in parts; infinite where the structural zeros differ."""
        (own,) = self.standard()
        return dirichlet_divergence(own, jnp.broadcast_to(other.natural.concentration, own.shape))

    def step(self, prior: Any, statistics: Any, scale: Any, step_size: Any) -> "Dirichlet":
        """Block after one natural-gradient step (see `ConjugateBlock.step`); structural zeros stay 0."""
        moved = super().step(prior, statistics, scale, step_size).natural.concentration
        natural = DirichletCoordinates(jnp.where(self.natural.concentration > 0, moved, 0))
        return dataclasses.replace(self, natural=natural)

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Float[Array, "*shape category"]:
        """Probability rows (*sample_shape, *batch, category), drawn in log space."""
        present, safe, _ = self._present()
        shape = (*sample_shape, *safe.shape)
        log_gamma = jax.random.loggamma(key, jnp.broadcast_to(safe, shape), dtype=safe.dtype)
        return jax.nn.softmax(jnp.where(jnp.broadcast_to(present, shape), log_gamma, -jnp.inf), axis=-1)

    def draw_on_host(self, random: np.random.Generator, num_draws: int) -> np.ndarray:
        """Probability rows (draw, *batch, category), as NumPy arrays."""
        concentration = np.asarray(self.standard().concentration)
        present = concentration > 0
        variates = draw_log_gamma(random, np.where(present, concentration, 1), num_draws)
        return softmax(np.where(present, variates, -np.inf), axis=-1).astype(concentration.dtype)

    def mean(self) -> Float[Array, "*batch category"]:
        """Concentrations divided by their row sums."""
        present, safe, total = self._present()
        return jnp.where(present, safe / total, 0)

    def predictive(self) -> dist.Distribution:
        """Categorical distribution of one draw, with the parameters integrated out."""
        return dist.CategoricalProbs(self.mean())

    def validate(self, name: str) -> None:
        """Raise ValueError unless the concentrations are those of :meth:`from_standard`."""
        with naming(name):
            Dirichlet.from_standard(self.natural.concentration)

    def check_point(self, name: str, value: Any, rows: np.ndarray) -> None:
        """Raise ValueError unless the given rows of ``value`` are probability rows."""
        fix = "divide each row by its sum"
        require((value >= 0) | ~rows[..., None], name, value, "is negative", fix)
        total = value.sum(axis=-1)
        near = np.abs(total - 1) <= 1e3 * np.finfo(value.dtype).eps
        require(near | ~rows, f"sum over the last axis of {name}", total, "is not 1", fix)


class BetaCoordinates(NamedTuple):
    """Natural coordinates (*batch,), paired with log p and log(1 - p); base measure 1 / (p (1 - p))."""

    successes: Any
    failures: Any


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Beta(ConjugateBlock):
    """Distribution of probabilities, p ~ Beta(successes, failures), one a batch entry.

    Parameters
    ----------
    natural : successes and failures (*batch,); :meth:`from_standard` checks them.
    """

    natural: BetaCoordinates

    @classmethod
    def from_standard(cls, successes: Reals, failures: Reals) -> "Beta":
        """Block with these counts, broadcast against each other.

        Raises
        ------
        ValueError : a count is not positive, or the shapes do not broadcast.
        TypeError : an array of integers.
        """
        return cls(
            BetaCoordinates(
                *read_positive("use a positive pseudo-count", successes=successes, failures=failures)
            )
        )

    def _counts(self) -> Array:
        """Both counts on a last axis."""
        return jnp.stack([self.natural.successes, self.natural.failures], axis=-1)

    def expected_statistics(self) -> BetaCoordinates:
        """E log p = psi(a) - psi(a + b) and E log(1 - p) = psi(b) - psi(a + b)."""
        a, b = self.natural
        total = digamma(a + b)
        return BetaCoordinates(digamma(a) - total, digamma(b) - total)

    def statistics(self, *value: Float[Array, "*batch"]) -> BetaCoordinates:
        """Log p and log(1 - p); -inf with gradient 0 where p is 0 or 1."""
        (p,) = value
        some, all_but = p > 0, p < 1
        return BetaCoordinates(
            jnp.where(some, jnp.log(jnp.where(some, p, 1)), -jnp.inf),
            jnp.where(all_but, jnp.log1p(-jnp.where(all_but, p, 0)), -jnp.inf),
        )

    def log_partition(self) -> Float[Array, "*batch"]:
        """Log of the beta function, log Gamma(a) + log Gamma(b) - log Gamma(a + b)."""
        a, b = self.natural
        return gammaln(a) + gammaln(b) - gammaln(a + b)

    def divergence(self, other: "Beta") -> Divergence:
        """KL(self || other) of each entry, in parts."""
        own = self._counts()
        return dirichlet_divergence(own, jnp.broadcast_to(other._counts(), own.shape))

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Float[Array, "*shape"]:
        """Probabilities (*sample_shape, *batch)."""
        counts = self._counts()
        shape = (*sample_shape, *counts.shape)
        log_gamma = jax.random.loggamma(key, jnp.broadcast_to(counts, shape), dtype=counts.dtype)
        return jax.nn.sigmoid(log_gamma[..., 0] - log_gamma[..., 1])

    def draw_on_host(self, random: np.random.Generator, num_draws: int) -> np.ndarray:
        """Probabilities (draw, *batch), as NumPy arrays."""
        counts = np.stack([np.asarray(count) for count in self.natural], axis=-1)
        variates = draw_log_gamma(random, counts, num_draws)
        return expit(variates[..., 0] - variates[..., 1]).astype(counts.dtype)

    def mean(self) -> Float[Array, "*batch"]:
        """Successes divided by all trials, a / (a + b)."""
        a, b = self.natural
        return a / (a + b)

    def predictive(self, total_count: Any = 1) -> dist.Distribution:
        """Beta-binomial distribution of the successes among ``total_count`` trials."""
        a, b = self.natural
        return dist.BetaBinomial(a, b, total_count=total_count)

    def validate(self, name: str) -> None:
        """Raise ValueError unless the counts are those of :meth:`from_standard`, of one shape."""
        with naming(name):
            Beta.from_standard(*self.natural)
            if np.shape(self.natural.successes) != np.shape(self.natural.failures):
                raise ValueError("successes and failures have different shapes: give one of each")

    def check_point(self, name: str, value: Any, rows: np.ndarray) -> None:
        """Raise ValueError unless the given entries of ``value`` are probabilities."""
        good = ((value >= 0) & (value <= 1)) | ~rows
        require(good, name, value, "is not a probability", "use a number from 0 to 1")


def _is_block(node: Any) -> bool:
    return isinstance(node, ConjugateBlock)


@quick_jit(inline=True)
def expected_statistics(blocks: Any) -> Any:
    """Expected statistics of every block of the pytree `blocks`, in its place."""
    return jax.tree.map(lambda block: block.expected_statistics(), blocks, is_leaf=_is_block)


@quick_jit(inline=True)
def natural_step(blocks: Any, prior: Any, statistics: Any, scale: Any, step_size: Any) -> Any:
    """Every block of a pytree after one natural-gradient step (see `ConjugateBlock.step`).

    Parameters
    ----------
    blocks, prior : pytrees (a dict, say) with a block at the same places.
    statistics : the same tree with a tuple of expected statistics in place of each block, as the gradient of
        a log normaliser with respect to `expected_statistics` of the tree gives it.
    scale : size of the whole data set over that of the mini-batch.
    step_size : rho in [0, 1]; 1 is coordinate ascent.
    """
    return jax.tree.map(
        lambda block, start, data: block.step(start, data, scale, step_size),
        blocks,
        prior,
        statistics,
        is_leaf=_is_block,
    )


@quick_jit(inline=True)
def total_kl(blocks: Any, prior: Any) -> Float[Array, ""]:
    """Sum of KL(q || p) over all rows of all blocks of the pytrees `blocks` (q) and `prior` (p), in nats."""
    parts = jax.tree.map(lambda block, start: block.divergence(start), blocks, prior, is_leaf=_is_block)
    columns = zip(*jax.tree.leaves(parts, is_leaf=lambda part: isinstance(part, Divergence)), strict=True)
    rest, weight, p, q = (jnp.concatenate([part.ravel() for part in column]) for column in columns)
    return jnp.sum(rest) + Divergence(jnp.zeros((), rest.dtype), weight, p, q).total()
