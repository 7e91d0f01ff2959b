"""Step sizes of stochastic natural gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["robbins_monro", "step_size_at"]


def robbins_monro(delay: float = 1.0, forgetting: float = 0.7) -> Callable[[Any], Any]:
    r"""Schedule :math:`\rho_t = (t + \tau)^{-\kappa}`, whose sum diverges and whose squares sum to a finite value.

    Parameters
    ----------
    delay : tau >= 1, which slows the first steps.
    forgetting : kappa in (0.5, 1].

    Raises
    ------
    ValueError
        If a parameter lies outside its range.

    References
    ----------
    Hoffman, Blei, Wang, Paisley (2013), "Stochastic variational inference", eq. 26.

    Examples
    --------
    >>> robbins_monro(delay=1.0, forgetting=1.0)(3)
    0.25
    """
    if not delay >= 1:
        raise ValueError(f"delay must be at least 1, so that no step exceeds 1; it is {delay}")
    if not 0.5 < forgetting <= 1:
        raise ValueError(f"forgetting must lie in (0.5, 1], not {forgetting}")
    return lambda step: (step + delay) ** -forgetting


def step_size_at(step_size: Any, steps: np.ndarray) -> np.ndarray:
    """Step sizes of the given steps, from a number or a schedule; all must lie in (0, 1]."""
    sizes = [float(step_size(int(step))) if callable(step_size) else float(step_size) for step in steps]
    for step, size in zip(steps, sizes, strict=True):
        if not 0 < size <= 1:
            raise ValueError(f"step_size is {size} at step {step}: natural-gradient steps lie in (0, 1]")
    return np.asarray(sizes)
