"""Interface of exponential-family blocks.

A block is a distribution over parameters, q(theta) = h(theta) exp(<natural, statistics(theta)> - A(natural)),
kept in natural coordinates, where a conjugate update is an addition. The blocks themselves are in
`ethogram.models.families.exponential_family`.
"""

import abc
import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ethogram.models.arguments import require
from ethogram.models.families.divergences import Divergence
from ethogram.models.printing import short_repr

__all__ = ["ConjugateBlock", "broadcast_batch", "naming", "require_finite"]


class ConjugateBlock(abc.ABC):
    """A distribution over parameters, by its natural parameters; leading axes are a batch of independent ones.

    Subclasses are frozen dataclasses registered as pytrees. All methods work under jit, vmap, grad and scan, and
    none checks values; only the constructors ``from_standard`` do, for concrete arrays.
    """

    natural: Any

    def __init_subclass__(cls, **options: Any) -> None:
        """Blocks print short: dataclasses keep a ``__repr__`` that is there before them."""
        super().__init_subclass__(**options)
        short_repr(cls)

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
    def log_partition(self) -> Float[Array, "*batch"]:
        """A(natural), one per row; the log density is <natural, statistics> - A plus the base measure."""

    @abc.abstractmethod
    def divergence(self, other: Any) -> Divergence:
        """KL(self || other), one per row, before its Gamma functions are evaluated."""

    def kl(self, other: Any) -> Float[Array, "*batch"]:
        """KL(self || other), one per row, in nats."""
        return self.divergence(other).total()

    @abc.abstractmethod
    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Any:
        """Draws of the parameters, with axes sample_shape, then batch, then the parameter's own."""

    def draw_on_host(self, random: np.random.Generator, num_draws: int) -> Any:
        """Draws as `sample` makes, with one leading axis, as NumPy arrays.

        Blocks override it in NumPy, because JAX compiles a sampler of gamma variates for seconds, once per shape.
        """
        key = jax.random.key(int(random.integers(2**31)))
        draw = jax.jit(type(self).sample, static_argnums=2)
        return jax.tree.map(np.asarray, draw(self, key, (num_draws,)))

    @abc.abstractmethod
    def mean(self) -> Any:
        """E_q of the parameters, in the shape of one draw."""

    @abc.abstractmethod
    def predictive(self, *arguments: Any) -> Any:
        """Distribution of one observation, with the parameters integrated out."""

    def standard(self) -> Any:
        """Usual parameters, as ``from_standard`` takes them."""
        return self.natural

    def validate(self, name: str) -> None:
        """Raise ValueError unless the concrete coordinates are those of a proper distribution; `name` is its name."""
        require_finite(name, self.natural)

    def inner_point(self) -> Any:
        """A point at which every statistic is finite, in place of rows that are masked out."""
        return self.mean()

    def check_point(self, name: str, value: Any, rows: np.ndarray) -> None:  # noqa: B027
        """Raise ValueError unless the concrete ``value`` can be drawn from the block, in the given rows."""


@contextlib.contextmanager
def naming(name: str) -> Iterator[None]:
    """Puts the name of a block in front of the messages of its checks, which become ValueErrors."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name}: {error}") from error


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
