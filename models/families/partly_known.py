"""Blocks with some rows fixed; the others follow Hoffman, Blei, Wang, Paisley (2013), eq. 15."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jaxtyping import Array
from numpyro.distributions import constraints
from numpyro.distributions.constraints import Constraint

from ethogram.models.arguments import concretely, is_concrete, require, require_covariance, require_reals
from ethogram.models.families.array_modules import modules_of
from ethogram.models.families.conjugate_block import ConjugateBlock, SiteNames
from ethogram.models.families.divergences import Divergence
from ethogram.models.families.variates import Variates
from ethogram.models.printing import short_repr

__all__ = ["Known", "PartlyKnown"]

NUMBERS: tuple[tuple[Constraint, Callable[[Any], Any], str, str], ...] = (
    (constraints.nonnegative, lambda x: x >= 0, "is negative", "use a value of at least 0"),
    (constraints.positive, lambda x: x > 0, "is not positive", "use a positive value"),
    (
        constraints.unit_interval,
        lambda x: (x >= 0) & (x <= 1),
        "is not a probability",
        "use a number from 0 to 1",
    ),
)
"""Constraints on single numbers, which of them they hold for, and what is wrong with others."""


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
    values : a point in the shape of one draw of the block; 0 in unknown rows.
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
        point = jax.eval_shape(type(block).reference_point, block)
        ndim = len(block.batch_shape)
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
        if is_concrete(rows, holes):
            partial = np.argwhere(np.asarray(holes).any(axis=-1) & ~np.asarray(holes).all(axis=-1))
            if len(partial):
                place = ", ".join(map(str, partial[0]))
                raise ValueError(f"known[{place}] is NaN in part: give all of a row, or NaN throughout")
            names = [f"known.{name}" for name in getattr(point, "_fields", ())] or ["known"]
            for name, array, constraint in zip(names, values, block.support, strict=True):
                _require_support(name, np.asarray(array), constraint, np.asarray(rows))
        values = [concretely(lambda xp, x: xp.where(xp.isnan(x), 0, x), array) for array in values]
        return cls(block, rows, type(point)(*values) if isinstance(point, tuple) else values[0])

    @property
    def natural(self) -> Any:
        """Natural coordinates of the underlying block; those of known rows are meaningless."""
        return self.block.natural

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """That of the block."""
        return self.block.batch_shape

    def _choose(self, at_known: Any, at_others: Any) -> Any:
        """``at_known`` in the known rows, ``at_others``, which may have more leading axes, elsewhere."""

        def pick(one: Array, other: Array) -> Array:
            xp, _ = modules_of(self.known, one, other)
            rows = self.known.reshape(self.known.shape + (1,) * (one.ndim - self.known.ndim))
            shape = np.broadcast_shapes(rows.shape, one.shape, other.shape)
            return xp.where(xp.broadcast_to(rows, shape), one, other)

        return jax.tree.map(pick, at_known, at_others)

    def with_known(self, draws: Any) -> Any:
        """Draws (*sample_shape, *batch, ...) with the known rows at their values."""
        return self._choose(self.values, draws)

    def expected_statistics(self) -> Any:
        """Statistics at the point in known rows, expected statistics elsewhere."""
        point = self.reference_point()
        at_point = self.block.statistics(*(point if isinstance(point, tuple) else (point,)))
        return self._choose(at_point, self.block.expected_statistics())

    def statistics(self, *value: Any) -> Any:
        return self.block.statistics(*value)

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

    def draw(self, variates: Variates, sample_shape: tuple[int, ...] = ()) -> Any:
        """Draws (*sample_shape, *batch, ...), all equal in the known rows."""
        return self.with_known(self.block.draw(variates, sample_shape))

    def mean(self) -> Any:
        """Known values, and the mean elsewhere."""
        return self.with_known(self.block.mean())

    def standard(self) -> Any:
        """Usual parameters of the underlying block; those of known rows are meaningless."""
        return self.block.standard()

    def reference_point(self) -> Any:
        """Known values, and a reference point elsewhere."""
        return self.with_known(self.block.reference_point())

    def sites(self, names: SiteNames, zeros: Any = None) -> Any:
        """The rows, deterministic; latent sites, those of the block with the suffix ``_free``, are of all rows."""
        rows = self.with_known(self.block.sites(SiteNames(names.block, "_free"), zeros))
        if not isinstance(rows, tuple):
            return numpyro.deterministic(names(), rows)
        parts = rows._asdict().items()  # type: ignore[attr-defined]
        return type(rows)(*(numpyro.deterministic(names(part), value) for part, value in parts))


def _require_support(name: str, value: np.ndarray, constraint: Constraint, rows: np.ndarray) -> None:
    """Raise ValueError unless the given rows of a part of a draw satisfy numpyro's constraint."""
    if constraint is constraints.positive_definite:
        require_covariance(name, value, [tuple(at) for at in np.argwhere(rows).tolist()])
    if constraint is constraints.simplex:
        fix = "divide each row by its sum"
        require((value >= 0) | ~rows[..., None], name, value, "is negative", fix)
        total = value.sum(axis=-1)
        near = np.abs(total - 1) <= 1e3 * np.finfo(value.dtype).eps
        require(near | ~rows, f"sum over the last axis of {name}", total, "is not 1", fix)
    for of_numbers, holds, fault, fix in NUMBERS:
        if constraint is of_numbers:
            require(holds(value) | ~rows, name, value, fault, fix)
