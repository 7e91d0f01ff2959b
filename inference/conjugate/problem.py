"""What coordinate ascent computes with: a bound model, its prior, and the data as compiled programs take them."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ethogram.inference.conjugate.mini_batches import in_group_order
from ethogram.inference.conjugate.padded_shapes import num_steps_of, pad_batch, padded_shape
from ethogram.inference.conjugate.spread import whole
from ethogram.inference.conjugate.steps import float_type
from ethogram.models.conjugate_model import ConjugateModel, group_size
from ethogram.models.data.parts import taken
from ethogram.models.data.trajectories import Metadata, Trajectories, group_labels
from ethogram.models.numpy_generator import numpy_generator

__all__ = [
    "MAX_WASTE",
    "Problem",
    "arranged",
    "make_problem",
    "padded",
    "placed",
    "problem_of_starts",
    "sampled_problem",
    "stripped",
]

MAX_WASTE = 0.3
"""Share of padding from which the data are split into one more bucket, whose shape has to be compiled."""

SMALL_CELLS = 200_000
"""Padded steps below which the data stay in one bucket: compiling a second shape costs more than it saves."""

SMALL_ARRAY = 2**14
"""Numbers that stay in NumPy: a compiled program takes them in less time than ``device_put``."""

START_CELLS = 2**17
"""Padded steps of the groups of large data from which fits start."""

PLAIN = Metadata()


class Problem(NamedTuple):
    """A bound model and its data.

    Attributes
    ----------
    model, prior : the bound model, and the blocks of its prior.
    arranged : batches as the model's ``arrange`` gives them, sequences in order of their groups.
    batches : the same in padded shapes.
    frames : informative steps of the data.
    scale : frames of the data per frame of the batches, where these are part of the data.
    """

    model: Any
    prior: dict[str, Any]
    arranged: list[Any]
    batches: list[Any]
    frames: float
    scale: float = 1.0

    @property
    def whole(self) -> list[Any]:
        """The batches in padded shapes, none of them wrapped, where they are spread over devices."""
        return [whole(batch) for batch in self.batches]

    def with_states(self, number: int) -> Problem:
        """The problem of a model with room for `number` states; data do not depend on them."""
        model = self.model.growth.narrowed(number)
        return self._replace(model=model, prior=model.prior())


def make_problem(model: ConjugateModel, data: Trajectories) -> Problem:
    """The problem of a bound model and its data.

    Small data keep their shape: fits of data that are laid out alike share one compilation.
    """
    prior = model.prior()
    small = is_small(model, data)
    plain = stripped(in_group_order(data))
    buckets = [plain.trim()] if small else plain.buckets(MAX_WASTE, by="group")
    each = [arranged(model, prior, bucket) for bucket in buckets]
    frames = float(model.informative_steps(data).sum())
    return Problem(model, prior, each, [padded(model, batch) for batch in each], frames)


def sampled_problem(model: ConjugateModel, data: Trajectories, key: Array, frames: int) -> Problem:
    """The problem of some groups of large data, drawn at random, from which fits start; `frames` are those of all."""
    _, number, counts = np.unique(group_labels(data), return_inverse=True, return_counts=True)
    order = numpy_generator(key).permutation(len(counts))
    most = START_CELLS // data.observed.shape[1]
    drawn = max(int(np.searchsorted(np.cumsum(counts[order]), most, side="right")), 1)
    problem = make_problem(model, taken(data, np.flatnonzero(np.isin(number, order[:drawn]))))
    return problem._replace(frames=float(frames), scale=frames / max(problem.frames, 1.0))


def problem_of_starts(problem: Problem, data: Trajectories, key: Array) -> Problem:
    """The problem of the data that fits start from: all of them, or some groups where they are many."""
    if problem.scale != 1 or data.observed.size <= 2 * START_CELLS:
        return problem
    return sampled_problem(problem.model, data, key, int(problem.frames))


def is_small(model: ConjugateModel, data: Trajectories) -> bool:
    """Whether data stay in one bucket."""
    return data.num_sequences * int(np.max(data.lengths)) < SMALL_CELLS and not model.e_step.costly


def stripped(data: Trajectories) -> Trajectories:
    """Data without times and names, which no fit depends on."""
    return data._replace(times=None, metadata=PLAIN)


def arranged(model: ConjugateModel, prior: Any, data: Trajectories) -> Any:
    """Arranged data in the precision of the blocks."""
    dtype = float_type(prior)

    def put(x):  # NumPy casts, because JAX would compile a program for each shape
        wanted = dtype if jnp.issubdtype(x.dtype, jnp.floating) else jax.dtypes.canonicalize_dtype(x.dtype)
        if isinstance(x, jax.Array) and x.dtype == wanted and not x.weak_type:
            return x
        return placed(np.asarray(x).astype(wanted, copy=False))

    return jax.tree.map(put, model.arrange(data))


def placed(tree: Any) -> Any:
    """Arrays of NumPy where a compiled program finds them soonest: on a CPU small ones as they are."""
    small = jax.default_backend() == "cpu" and all(x.size <= SMALL_ARRAY for x in jax.tree.leaves(tree))
    return tree if small else jax.device_put(tree)


def padded(model: ConjugateModel, batch: Any, spare: int = 0) -> Any:
    """An arranged batch in its padded shape; `spare` empty sequences at least, for the empty slots of mini-batches."""
    shape = len(jax.tree.leaves(batch)[0]) + spare, num_steps_of(batch)
    return pad_batch(batch, *(shape if model.e_step.costly else padded_shape(*shape, group_size(batch))))
