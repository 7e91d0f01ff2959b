"""Blocks with some rows fixed; the others follow Hoffman, Blei, Wang, Paisley (2013), eq. 15."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, Float

from ethogram.models.arguments import concretely, is_concrete, require, require_reals
from ethogram.models.families.conjugate_block import ConjugateBlock
from ethogram.models.families.divergences import Divergence
from ethogram.models.printing import short_repr

__all__ = ["Known", "PartlyKnown"]


@jax.tree_util.register_dataclass
@short_repr
@dataclasses.dataclass(frozen=True, eq=False)
class Known:
    """Known parameter values; rows of NaN are unknown.

    Parameters
    ----------
    value : an array in the shape of one draw of the block, or a tuple of arrays (a mean and a covariance).

    Examples
    --------
    >>> transition = Known([[0.9, 0.1], [float("nan"), float("nan")]])
    """

    value: Any


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class PartlyKnown(ConjugateBlock):
    """A block whose known rows are fixed at a point: they never move and have KL divergence 0.

    Parameters
    ----------
    block : distribution of all rows; that of the known ones is ignored.
    known : (*batch,) booleans.
    values : a point in the shape of one draw of the block; unknown rows may be anything, NaN too.
    """

    block: ConjugateBlock
    known: Any
    values: Any

    @classmethod
    def from_known(cls, block: ConjugateBlock, known: Known) -> "PartlyKnown":
        """Block with the rows that ``known`` gives held at their values.

        Raises
        ------
        ValueError : the shape is not that of the block, a row is NaN in part, or a row cannot be a parameter
            (probabilities that do not sum to one, a covariance that is not positive definite).
        TypeError : an array of integers.
        """
        point = jax.eval_shape(type(block).inner_point, block)
        ndim = jax.eval_shape(type(block).log_partition, block).ndim
        parts = known.value if isinstance(known.value, tuple) else (known.value,)
        shapes = point if isinstance(point, tuple) else (point,)
        if len(parts) != len(shapes):
            raise ValueError(f"known has {len(parts)} parts, not the {len(shapes)} of a draw of {block!r}")
        values = []
        for part, shape in zip(parts, shapes, strict=True):
            require_reals("known", part)
            array = concretely(lambda xp, x, dtype=shape.dtype: xp.asarray(x, dtype=dtype), part)
            if array.shape != shape.shape:
                fix = f"give it the shape {shape.shape}, with rows of NaN where not known"
                raise ValueError(f"known has shape {array.shape}: {fix}")
            if is_concrete(array):
                require(~np.isinf(np.asarray(array)), "known", array, "is infinite", "use a finite value")
            values.append(array)

        def missing(xp, *values):
            return xp.concatenate([xp.isnan(x).reshape(*x.shape[:ndim], -1) for x in values], axis=-1)

        holes = concretely(missing, *values)
        rows = concretely(lambda xp, x: ~xp.any(x, axis=-1), holes)
        value = type(point)(*values) if isinstance(point, tuple) else values[0]
        if is_concrete(rows, holes):
            partial = np.argwhere(np.asarray(holes).any(axis=-1) & ~np.asarray(holes).all(axis=-1))
            if len(partial):
                place = ", ".join(map(str, partial[0]))
                raise ValueError(f"known[{place}] is NaN in part: give all of a row, or NaN throughout")
            block.check_point("known", jax.tree.map(np.asarray, value), np.asarray(rows))
        return cls(block, rows, value)

    @property
    def natural(self) -> Any:
        """Natural coordinates of the underlying block; those of known rows are meaningless."""
        return self.block.natural

    def _choose(self, at_known: Any, at_others: Any) -> Any:
        """``at_known`` in the known rows, ``at_others``, which may have more leading axes, elsewhere."""

        def pick(one: Array, other: Array) -> Array:
            rows = jnp.expand_dims(self.known, tuple(range(self.known.ndim, one.ndim)))
            shape = jnp.broadcast_shapes(rows.shape, one.shape, other.shape)
            return jnp.where(jnp.broadcast_to(rows, shape), one, other)

        return jax.tree.map(pick, at_known, at_others)

    def hold(self, draws: Any) -> Any:
        """Draws (*sample_shape, *batch, ...) with the known rows at their values."""
        return self._choose(self.values, draws)

    def expected_statistics(self) -> Any:
        """Statistics at the point in known rows, expected statistics elsewhere."""
        point = self.inner_point()
        at_point = self.block.statistics(*(point if isinstance(point, tuple) else (point,)))
        return self._choose(at_point, self.block.expected_statistics())

    def statistics(self, *value: Any) -> Any:
        return self.block.statistics(*value)

    def log_partition(self) -> Float[Array, "*batch"]:
        """Log partition of the rows that are not known, 0 for the others."""
        of_block = self.block.log_partition()
        return self._choose(jnp.zeros_like(of_block), of_block)

    def divergence(self, other: Any) -> Divergence:
        """KL(self || other) of the rows that are not known, 0 for the others, in parts."""
        of_block = self.block.divergence(other.block if isinstance(other, PartlyKnown) else other)
        one = jnp.ones_like(of_block.p)
        nothing = Divergence(jnp.zeros_like(of_block.rest), jnp.zeros_like(one), one, one)
        return self._choose(nothing, of_block)

    def step(self, prior: Any, statistics: Any, scale: Any, step_size: Any) -> "PartlyKnown":
        """Block after one natural-gradient step (see `ConjugateBlock.step`); known rows stay."""
        start = prior.block if isinstance(prior, PartlyKnown) else prior
        moved = self.block.step(start, statistics, scale, step_size)
        natural = self._choose(self.block.natural, moved.natural)
        return dataclasses.replace(self, block=dataclasses.replace(moved, natural=natural))

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Any:
        """Draws (*sample_shape, *batch, ...), all equal in the known rows."""
        return self.hold(self.block.sample(key, sample_shape))

    def draw_on_host(self, random: np.random.Generator, num_draws: int) -> Any:
        """Draws (draw, *batch, ...), all equal in the known rows, as NumPy arrays."""
        drawn = jax.tree.map(jnp.asarray, self.block.draw_on_host(random, num_draws))
        return jax.tree.map(np.asarray, self.hold(drawn))

    def mean(self) -> Any:
        """Known values, and the mean elsewhere."""
        return self.hold(self.block.mean())

    def predictive(self, *arguments: Any) -> dist.Distribution:
        """Categorical distribution of one draw; only rows of probabilities have one for known and other rows.

        Raises
        ------
        TypeError : the block is of another kind.
        """
        if not isinstance(self.block.predictive(*arguments), dist.CategoricalProbs):
            raise TypeError(
                f"known and unknown rows of a {type(self.block).__name__} have predictive distributions of "
                "different kinds: use .block.predictive(...) for the unknown ones"
            )
        return dist.CategoricalProbs(self.mean())

    def standard(self) -> Any:
        """Usual parameters of the underlying block; those of known rows are meaningless."""
        return self.block.standard()

    def inner_point(self) -> Any:
        """Known values, and an inner point elsewhere."""
        return self.hold(self.block.inner_point())

    def validate(self, name: str) -> None:
        """Raise ValueError unless the block is proper, and the known rows are points that it can draw."""
        self.block.validate(name)
        known, batch = np.asarray(self.known), jax.eval_shape(self.block.log_partition).shape
        if known.dtype != bool or known.shape != batch:
            raise ValueError(f"{name}.known is {known.dtype} of shape {known.shape}, not booleans {batch}")
        values, point = (jax.tree.leaves(x) for x in (self.values, jax.eval_shape(self.block.inner_point)))
        for value, like in zip(values, point, strict=True):
            if np.shape(value) != like.shape:
                raise ValueError(f"{name}.values has shape {np.shape(value)}, not {like.shape}")
            require(
                np.isfinite(np.asarray(value)[known]),
                f"{name}.values",
                np.asarray(value)[known],
                "is not finite",
                "fit again",
            )
        self.block.check_point(f"{name}.values", jax.tree.map(np.asarray, self.values), known)

    def check_point(self, name: str, value: Any, rows: np.ndarray) -> None:
        self.block.check_point(name, value, rows)
