"""Padded shapes: fits, scores and states of data of different sizes share compiled programs.

Compiling a fit costs seconds, a small fit takes milliseconds. The numbers of sequences and of steps are therefore
rounded up: to powers of four in small data, more finely in larger data, not at all in large ones.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import numpy as np

from ethogram.models.conjugate_model import ConjugateModel, Exportable
from ethogram.models.data.trajectories import Trajectories

__all__ = ["num_steps_of", "pad_batch", "padded_data", "padded_shape"]

LEAST = (1, 64)
"""Sequences and steps of the smallest padded shape."""

RATIOS = ((2**11, 4.0), (2**16, 2**0.5), (2**20, 2**0.25))
"""Padded cells (sequence, step) up to which sizes are rounded up to powers of a ratio: little data share programs, in
more data at most half of the cells are padding, in large data a third."""


def padded_shape(num_sequences: int, num_steps: int, size: int = 1) -> tuple[int, int]:
    """Padded numbers of sequences and steps.

    Parameters
    ----------
    num_sequences, num_steps : of the data, 1 at least.
    size : consecutive sequences that are scored jointly; the padded number is a multiple.

    Examples
    --------
    >>> padded_shape(1, 300), padded_shape(6, 207), padded_shape(40, 900), padded_shape(400, 5000)
    ((1, 1024), (6, 256), (46, 1024), (400, 5000))
    """
    groups = -(-num_sequences // size)
    for most, ratio in RATIOS:
        rounded = [_up(n, least, ratio) for n, least in zip((groups, num_steps), LEAST, strict=True)]
        if rounded[0] * size * rounded[1] <= most:
            return rounded[0] * size, rounded[1]
    return num_sequences, num_steps


def _up(number: int, least: int, ratio: float) -> int:
    """The smallest of the sizes `least` times a power of `ratio`, rounded up, from `number` on."""
    if number <= least:
        return least
    power = math.floor(math.log((number - 1) / least, ratio) + 1e-9) + 1
    return math.ceil(least * ratio**power - 1e-9)


def num_steps_of(batch: Any) -> int:
    """Steps of an arranged batch of arrays (sequence,) and (sequence, time, ...); 1 without any of the latter.

    A ValueError where the second axes differ: time could not be told from another axis.
    """
    leaves = jax.tree_util.tree_leaves_with_path(batch)
    steps = {jax.tree_util.keystr(path): x.shape[1] for path, x in leaves if x.ndim > 1}
    if len({*steps.values()}) > 1:
        came = ", ".join(f"{name} with {count}" for name, count in steps.items())
        raise ValueError(
            f"arrange gives arrays of different steps, {came}: their axes are (sequence,) or (sequence, time, ...); "
            "give numbers of a whole sequence the axes (sequence, time, number)"
        )
    return next(iter(steps.values()), 1)


def pad_batch(batch: Any, num_sequences: int, num_steps: int) -> Any:
    """An arranged batch with empty sequences at its end, and steps beyond all lengths; zeros in every array.

    Parameters
    ----------
    batch : pytree of arrays (sequence,) and (sequence, time, ...), as a model's ``arrange`` gives it.
    num_sequences, num_steps : padded sizes.
    """
    longest = num_steps_of(batch)

    def padded(x):
        more = [(0, num_sequences - x.shape[0])] + [(0, 0)] * (x.ndim - 1)
        if x.ndim > 1:
            more[1] = (0, num_steps - longest)
        if not np.any(more):
            return x
        wider = np.zeros([size + after for size, (_, after) in zip(x.shape, more, strict=True)], x.dtype)
        wider[tuple(map(slice, x.shape))] = x
        return jax.device_put(wider) if isinstance(x, jax.Array) else wider

    return jax.tree.map(padded, batch)


def padded_data(model: Exportable, data: Trajectories) -> Trajectories:
    """Data in their padded shape, as those of a fit: scores and states of other sizes share compiled programs.

    Empty sequences are added at the end, in groups of their own, as large as the others where these have one size.
    Data of models whose steps are costly stay as they are, as do those of models without conjugate blocks.
    """
    if not isinstance(model, ConjugateModel) or model.e_step.costly:
        return data
    size, group, agent = 1, data.group, data.agent
    if group is not None and np.min(group) >= 0:
        counts = np.unique(np.asarray(group), return_counts=True)[1]
        size = int(counts[0]) if (counts == counts[0]).all() else 1
    shape = padded_shape(data.num_sequences, np.shape(data.observed)[1], size)
    added = np.arange(shape[0] - data.num_sequences, dtype=np.int32)
    if group is not None:
        group = np.append(group, np.max(group) + 1 + added // size)
    if agent is not None:
        agent = np.append(agent, added % size)
    return pad_batch(data._replace(group=None, agent=None), *shape)._replace(group=group, agent=agent)
