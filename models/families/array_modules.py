"""NumPy or JAX, by the arrays at hand: what draws parameters works on both, and NumPy compiles nothing."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.special

__all__ = ["modules_of"]


def modules_of(*arrays: Any) -> tuple[Any, Any]:
    """``numpy`` and ``scipy.special`` if all arrays are NumPy's, else ``jax.numpy`` and ``jax.scipy.special``."""
    if all(isinstance(array, np.ndarray | np.generic) for array in arrays):
        return np, scipy.special
    return jnp, jax.scipy.special
