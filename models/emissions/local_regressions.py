"""Regressions in short windows of sequences: what tells apart frames that differ in how they follow one another.

One frame says little about the coefficients behind it, and k-means of residuals misses states that differ in
coefficients and noise alike. (Original to this package.)
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float

__all__ = ["HALF_WIDTH", "STRIDE", "local_regressions"]

HALF_WIDTH, STRIDE = 6, 3
"""Frames on either side of the middle of a window, and from one middle to the next."""

BLOCK = 1024
"""Windows at a time, at most."""

LEAST = 1e-6
"""Share of the mean residual square that one is at least, before its logarithm is taken."""


def local_regressions(
    targets: Float[np.ndarray, "sequence time feature"],
    regressors: Float[np.ndarray, "sequence time regressor"],
    observed: Bool[np.ndarray, "sequence time"],
) -> Float[np.ndarray, "sequence time entry"]:
    """Coefficients, and log mean squares of the residuals, of the window about every frame, one entry each.

    Parameters
    ----------
    targets, regressors : zero where either is missing; regressors of unit size, since the ridge is worth a window.
    observed : frames that the results are for; others have those of a window nearby.
    """
    rows = np.concatenate([targets, regressors], axis=-1)
    num_steps, size = rows.shape[1], targets.shape[-1]
    middles = np.minimum(np.arange(STRIDE // 2, num_steps + STRIDE // 2, STRIDE), num_steps - 1)
    inside = middles[:, None] + np.arange(-HALF_WIDTH, HALF_WIDTH + 1)
    padded = np.pad(rows, [(0, 0), (HALF_WIDTH, HALF_WIDTH), (0, 0)])
    found = np.stack([_of_windows(sequence, inside + HALF_WIDTH, size) for sequence in padded])
    found = found[:, np.minimum(np.arange(num_steps) // STRIDE, len(middles) - 1)]
    square = found[..., -size:]
    least = LEAST * np.mean(square[observed], axis=0) if observed.any() else 0
    found[..., -size:] = np.log(np.maximum(square, np.maximum(least, np.finfo(float).tiny)))
    return found


def _of_windows(rows: np.ndarray, inside: np.ndarray, size: int) -> np.ndarray:
    """Coefficients and sums of squared residuals (window, entry) of windows of the rows of one sequence."""
    parts = []
    for start in range(0, len(inside), BLOCK):
        window = rows[inside[start : start + BLOCK]]
        square = window.mT @ window
        ridge = inside.shape[1] * np.eye(square.shape[-1] - size)
        coefficients = np.linalg.solve(square[:, size:, size:] + ridge, square[:, size:, :size])
        explained = np.einsum("wpd,wpd->wd", coefficients, square[:, size:, :size])
        residual = np.diagonal(square[:, :size, :size], axis1=1, axis2=2) - explained
        parts.append(np.concatenate([coefficients.reshape(len(window), -1), residual], axis=1))
    return np.concatenate(parts)
