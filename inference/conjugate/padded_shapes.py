"""Padded shapes of small data sets: fits of data of different sizes share compiled programs.

Compiling a fit costs seconds, a small fit takes milliseconds. The numbers of sequences and of steps are therefore
rounded up: coarsely where the padding costs little, more finely in larger data, not at all in large ones.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

__all__ = ["num_steps_of", "pad_batch", "padded_shape"]

LEAST = (16, 64)
"""Sequences and steps of the smallest padded shape."""

COARSE_CELLS = 2**14
"""Padded cells (sequence, step) up to which sizes are rounded up to powers of 4."""

SEARCH_CELLS, SEARCH_PARTS = 2**12, 8
"""The same for a search of several hundred iterations, where padding costs more, and beyond it in how many parts of a
power of 2 sizes are rounded up."""

MEDIUM_CELLS = 2**16
"""Padded cells up to which sizes are rounded up to powers of 2."""


def padded_shape(num_sequences: int, num_steps: int, size: int = 1, search: bool = False) -> tuple[int, int]:
    """Padded numbers of sequences and steps.

    Parameters
    ----------
    num_sequences, num_steps : of the data, 1 at least.
    size : consecutive sequences that are scored jointly; the padded number is a multiple.
    search : whether a search of several hundred iterations runs in this shape.

    Examples
    --------
    >>> padded_shape(6, 207), padded_shape(12, 250), padded_shape(40, 900), padded_shape(40, 5000)
    ((16, 256), (16, 256), (64, 1024), (40, 5000))
    >>> padded_shape(20, 250), padded_shape(20, 250, search=True)
    ((64, 256), (20, 256))
    """
    groups = -(-num_sequences // size)
    coarse, parts = (SEARCH_CELLS, SEARCH_PARTS) if search else (COARSE_CELLS, 1)
    for factor, most, divided in ((4, coarse, 1), (2, MEDIUM_CELLS, parts)):
        smallest = LEAST if divided == 1 else (1, 1)
        rounded = [
            _up(n, factor, least, divided) for n, least in zip((groups, num_steps), smallest, strict=True)
        ]
        if rounded[0] * size * rounded[1] <= most:
            return rounded[0] * size, rounded[1]
    return num_sequences, num_steps


def _up(number: int, factor: int, least: int, parts: int) -> int:
    """The smallest power of `factor`, times `least`, from `number` on; of its `parts` as many as are needed."""
    while least < number:
        least *= factor
    part = max(least // parts, 1)
    return least if parts == 1 else -(-number // part) * part


def num_steps_of(batch: Any) -> int:
    """Steps of an arranged batch of arrays (sequence, ...) and (sequence, time, ...); 1 without any of the latter."""
    return max((x.shape[1] for x in jax.tree.leaves(batch) if x.ndim > 1), default=1)


def pad_batch(batch: Any, num_sequences: int, num_steps: int) -> Any:
    """An arranged batch with empty sequences at its end, and steps beyond all lengths; zeros in every array.

    Parameters
    ----------
    batch : pytree of arrays (sequence, ...) and (sequence, time, ...), as a model's ``arrange`` gives it.
    num_sequences, num_steps : padded sizes.
    """
    longest = num_steps_of(batch)

    def padded(x):
        more = [(0, num_sequences - x.shape[0])] + [(0, 0)] * (x.ndim - 1)
        if x.ndim > 1 and x.shape[1] == longest:
            more[1] = (0, num_steps - longest)
        return jax.device_put(np.pad(np.asarray(x), more)) if np.any(more) else x

    return jax.tree.map(padded, batch)
