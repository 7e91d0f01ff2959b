"""NumPy generators that are seeded by typed keys, for what is drawn on the host."""

from __future__ import annotations

import jax
import numpy as np
from jax import Array

__all__ = ["key_words", "numpy_generator"]


def key_words(key: Array) -> list[int]:
    """The 32-bit words of a typed key: two of threefry, JAX's default, four of the others."""
    return np.asarray(jax.random.key_data(key)).ravel().tolist()


def numpy_generator(key: Array, *numbers: int) -> np.random.Generator:
    """NumPy generator seeded by a typed key, and by nonnegative integers that tell several of one key apart."""
    return np.random.default_rng([*key_words(key), *numbers])
