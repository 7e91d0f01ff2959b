"""Interface of exponential-family blocks.

A block is a distribution over parameters, q(theta) = h(theta) exp(<natural, statistics(theta)> - A(natural)),
kept in natural coordinates, where a conjugate update is an addition. The blocks themselves are in
`ethogram.models.families.exponential_family`.
"""

import abc
import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jaxtyping import Array, Float
from numpyro.distributions.constraints import Constraint

from ethogram.models.arguments import require
from ethogram.models.families.divergences import Divergence
from ethogram.models.families.variates import JaxVariates, NumpyVariates, Variates
from ethogram.models.printing import short_repr

__all__ = ["ConjugateBlock", "SiteNames", "broadcast_batch", "require_finite", "sample_site"]


@dataclasses.dataclass(frozen=True)
class SiteNames:
    """Names of the numpyro sites of a block: of its draw, and of the parts of a draw in parts."""

    block: str
    suffix: str = ""

    @property
    def front(self) -> str:
        """What comes before a dot in the name of the block, in front of the names of its sites."""
        return f"{self.block.rpartition('.')[0]}_" if "." in self.block else ""

    def __call__(self, part: str = "") -> str:
        return f"{self.front}{part or self.block.rpartition('.')[2]}{self.suffix}"


class ConjugateBlock(abc.ABC):
    """A distribution over parameters, by its natural parameters; leading axes are a batch of independent ones.

    Subclasses are frozen dataclasses registered as pytrees. All methods work under jit, vmap, grad and scan, and
    none checks values; only the constructors ``from_standard`` do, for concrete arrays.

    Attributes
    ----------
    event_dim : number of axes of the first natural coordinate beyond those of the batch.
    support : numpyro's constraint on each part of a draw.
    """

    natural: Any
    event_dim: ClassVar[int] = 0
    support: ClassVar[tuple[Constraint, ...]] = ()

    def __init_subclass__(cls, **options: Any) -> None:
        """Blocks print short: dataclasses keep a ``__repr__`` that is there before them."""
        super().__init_subclass__(**options)
        short_repr(cls)

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """Shape of the batch of independent distributions."""
        shape = np.shape(jax.tree.leaves(self.natural)[0])
        return shape[: len(shape) - self.event_dim]

    def step(self, prior: Any, statistics: Any, scale: Any, step_size: Any) -> Any:
        r"""Block after one natural-gradient step; ``step_size=1`` is the exact conjugate update.

        .. math:: \eta \leftarrow (1 - \rho)\,\eta + \rho\,(\eta_0 + b\, t)

        This is :math:`\eta + \rho (\eta_0 + b t - \eta)`, written so that a full step without data gives the
        prior back to the last bit.

        Parameters
        ----------
        prior : a block of the same kind, with this one's batch shape or fewer leading axes.
        statistics : expected statistics of the data, a tuple of the type of ``natural``.
        scale : b, size of the whole data set over that of the mini-batch; a scalar.
        step_size : rho in [0, 1]; a scalar.

        References
        ----------
        Hoffman, Blei, Wang, Paisley (2013), Stochastic variational inference, eq. 15 and 31.
        """

        def moved(old: Array, start: Array, data: Array) -> Array:
            target = jnp.broadcast_to(start, old.shape) + scale * jnp.broadcast_to(data, old.shape)
            return ((1 - step_size) * old + step_size * target).astype(old.dtype)

        natural = jax.tree.map(moved, self.natural, prior.natural, statistics)
        return dataclasses.replace(self, natural=natural)  # type: ignore[type-var]

    @abc.abstractmethod
    def expected_statistics(self) -> Any:
        """E_q of the statistic paired with each natural coordinate, as a tuple of the type of ``natural``."""

    @abc.abstractmethod
    def statistics(self, *value: Any) -> Any:
        """Statistics at a point, as a tuple of the type of ``natural``."""

    @abc.abstractmethod
    def divergence(self, other: Any) -> Divergence:
        """KL(self || other), one per row, before its Gamma functions are evaluated."""

    def kl(self, other: Any) -> Float[Array, "*batch"]:
        """KL(self || other), one per row, in nats."""
        return self.divergence(other).total()

    @abc.abstractmethod
    def draw(self, variates: Variates, sample_shape: tuple[int, ...] = ()) -> Any:
        """Draws of the parameters, with axes sample_shape, then batch, then the parameter's own.

        By the block's arrays and the variates, all of JAX or all of NumPy.
        """

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Any:
        """Draws of the parameters as `draw` makes, by JAX."""
        return jax.tree.map(jnp.asarray, self).draw(JaxVariates(key), sample_shape)

    def sample_numpy(self, random: np.random.Generator, num_draws: int) -> Any:
        """Draws of the parameters (draw, *batch, ...) by NumPy in double precision, as arrays of the block's dtype."""
        wide = jax.tree.map(_in_double_precision, self)
        dtype = np.asarray(jax.tree.leaves(self.natural)[0]).dtype
        with np.errstate(all="ignore"):  # as in JAX
            drawn = wide.draw(NumpyVariates(random), (num_draws,))
            return jax.tree.map(lambda x: np.array(x, dtype), drawn)

    @abc.abstractmethod
    def mean(self) -> Any:
        """E_q of the parameters, in the shape of one draw."""

    def standard(self) -> Any:
        """Usual parameters, as ``from_standard`` takes them."""
        return self.natural

    def reference_point(self) -> Any:
        """A point at which every statistic is finite, in place of rows that are masked out."""
        return self.mean()

    def sites(self, names: SiteNames, zeros: Any = None) -> Any:
        """A draw inside a numpyro model, at its sites.

        Parameters
        ----------
        names : of the sites; those of deterministic sites are left to the caller where they have a suffix.
        zeros : nested tuples of booleans, entries that a block of probabilities forbids.
        """
        raise TypeError(
            f"block {names.block} of type {type(self).__name__} has no numpyro site: use another block"
        )


def sample_site(name: str, distribution: dist.Distribution) -> Array:
    """A draw at one numpyro site from a distribution, whose batch axes become axes of the event."""
    return numpyro.sample(name, distribution.to_event(len(distribution.batch_shape)))


def _in_double_precision(leaf: Any) -> np.ndarray:
    array = np.asarray(leaf)
    return array.astype(float) if array.dtype.kind == "f" else array


def require_finite(name: str, tree: Any) -> None:
    """Raise ValueError at the first NaN or infinity of a pytree of arrays; integers and booleans pass."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        good = np.isfinite(np.asarray(leaf))
        require(
            good, f"{name}{jax.tree_util.keystr(path)}", leaf, "is not finite", "fit again, or save again"
        )


def broadcast_batch(leading: Any, ndim: int) -> Any:
    """``leading`` with axes of length 1 put before its last one, to ``ndim`` axes: its batch axes lead."""
    return leading.reshape(leading.shape[:-1] + (1,) * (ndim - leading.ndim) + leading.shape[-1:])
