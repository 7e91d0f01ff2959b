"""Logarithms of gamma variates by NumPy."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

__all__ = ["draw_log_gamma"]


def draw_log_gamma(
    random: np.random.Generator, concentration: np.ndarray, num_draws: int
) -> Float[np.ndarray, "draw ..."]:
    """Logarithms of Gamma(a, 1) variates (draw, ...) for concentrations a (...) > 0, of any size.

    Below a = 1, where variates underflow, that of a + 1 plus ln(u) / a: Marsaglia and Tsang (2000), section 6.
    """
    wide = np.asarray(concentration, float)
    small, shape = wide < 1, (num_draws, *wide.shape)
    variates = np.log(random.standard_gamma(np.where(small, wide + 1, wide), shape))
    if small.any():
        variates -= np.where(small, random.standard_exponential(shape) / wide, 0)
    return variates
