"""Conjugate blocks by their natural parameters, and updates of a pytree of them.

q(theta) is a pytree of blocks: `expected_statistics` gives expected log potentials, `natural_step` the update, and
`total_kl` the divergence in the ELBO. Hoffman, Blei, Wang, Paisley (2013), eq. 15 and 31; Bishop (2006), appendix B.
"""

import dataclasses
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.scipy.special import digamma
from jaxtyping import Array, Float
from numpyro.distributions import constraints

from ethogram.models.arguments import Reals, is_concrete, read_positive, read_reals, require
from ethogram.models.families.array_modules import modules_of
from ethogram.models.families.conjugate_block import ConjugateBlock, SiteNames, sample_site
from ethogram.models.families.divergences import Divergence, dirichlet_divergence
from ethogram.models.families.normal import MeanCovariance, Normal
from ethogram.models.families.normal_inverse_wishart import NormalInverseWishart
from ethogram.models.families.partly_known import Known, PartlyKnown
from ethogram.models.families.variates import Variates
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
    """Distribution of probability rows, p ~ Dir(concentration), one per batch entry.

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
    event_dim: ClassVar[int] = 1
    support: ClassVar[tuple] = (constraints.simplex,)

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

    def _present(self) -> tuple[Any, Any, Any]:
        """Which entries are free, the concentrations with 1 put for the others, and the sum of each row."""
        (concentration,) = self.standard()
        xp, _ = modules_of(concentration)
        present = concentration > 0
        total = xp.sum(xp.where(present, concentration, 0), axis=-1, keepdims=True)
        return present, xp.where(present, concentration, 1), total

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

    def divergence(self, other: "Dirichlet") -> Divergence:
        """KL(self || other) of each row, in parts; infinite where the structural zeros differ."""
        (own,) = self.standard()
        return dirichlet_divergence(own, jnp.broadcast_to(other.natural.concentration, own.shape))

    def step(self, prior: Any, statistics: Any, scale: Any, step_size: Any) -> "Dirichlet":
        """Block after one natural-gradient step (see `ConjugateBlock.step`); structural zeros stay 0."""
        moved = super().step(prior, statistics, scale, step_size).natural.concentration
        natural = DirichletCoordinates(jnp.where(self.natural.concentration > 0, moved, 0))
        return dataclasses.replace(self, natural=natural)

    def draw(self, variates: Variates, sample_shape: tuple[int, ...] = ()) -> Any:
        """Probability rows (*sample_shape, *batch, category), drawn in log space."""
        present, safe, _ = self._present()
        xp, special = modules_of(safe)
        log_gamma = variates.log_gamma(safe, sample_shape)
        return special.softmax(
            xp.where(xp.broadcast_to(present, log_gamma.shape), log_gamma, -xp.inf), axis=-1
        )

    def mean(self) -> Float[Array, "*batch category"]:
        """Concentrations divided by their row sums."""
        present, safe, total = self._present()
        return jnp.where(present, safe / total, 0)

    def sites(self, names: SiteNames, zeros: Any = None) -> Array:
        """Probability rows; where entries are forbidden, the latent site is that of the others, which are Dirichlet."""
        (concentration,) = self.standard()
        if zeros is None:
            return sample_site(names(), dist.Dirichlet(concentration))
        present = ~jnp.asarray(zeros)
        free = sample_site(
            SiteNames(names.block, "_free")(), dist.Dirichlet(jnp.where(present, concentration, 1))
        )
        free = jnp.where(present, free, 0)
        rows = free / jnp.sum(free, axis=-1, keepdims=True)
        return rows if names.suffix else numpyro.deterministic(names(), rows)


class BetaCoordinates(NamedTuple):
    """Natural coordinates (*batch,), paired with log p and log(1 - p); base measure 1 / (p (1 - p))."""

    successes: Any
    failures: Any


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Beta(ConjugateBlock):
    """Distribution of probabilities, p ~ Beta(successes, failures), one per batch entry.

    Parameters
    ----------
    natural : successes and failures (*batch,); :meth:`from_standard` checks them.
    """

    natural: BetaCoordinates
    support: ClassVar[tuple] = (constraints.unit_interval,)

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

    def _pair(self) -> Dirichlet:
        """The same distribution of p and 1 - p, on a last axis."""
        xp, _ = modules_of(*self.natural)
        return Dirichlet(DirichletCoordinates(xp.stack(list(self.natural), axis=-1)))

    def expected_statistics(self) -> BetaCoordinates:
        """E log p = psi(a) - psi(a + b) and E log(1 - p) = psi(b) - psi(a + b)."""
        (logs,) = self._pair().expected_statistics()
        return BetaCoordinates(logs[..., 0], logs[..., 1])

    def statistics(self, *value: Float[Array, "*batch"]) -> BetaCoordinates:
        """Log p and log(1 - p); -inf with gradient 0 where p is 0 or 1."""
        (p,) = value
        some, all_but = p > 0, p < 1
        return BetaCoordinates(
            jnp.where(some, jnp.log(jnp.where(some, p, 1)), -jnp.inf),
            jnp.where(all_but, jnp.log1p(-jnp.where(all_but, p, 0)), -jnp.inf),
        )

    def divergence(self, other: "Beta") -> Divergence:
        """KL(self || other) of each entry, in parts."""
        return self._pair().divergence(other._pair())

    def draw(self, variates: Variates, sample_shape: tuple[int, ...] = ()) -> Any:
        """Probabilities (*sample_shape, *batch)."""
        return self._pair().draw(variates, sample_shape)[..., 0]

    def mean(self) -> Float[Array, "*batch"]:
        """Successes divided by all trials, a / (a + b)."""
        a, b = self.natural
        return a / (a + b)

    def sites(self, names: SiteNames, zeros: Any = None) -> Array:
        """Probabilities, at one site."""
        return sample_site(names(), dist.Beta(*self.natural))


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
