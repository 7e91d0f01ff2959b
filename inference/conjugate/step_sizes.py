"""Step sizes of stochastic natural gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ethogram.models.arguments import require_number

__all__ = ["constant_then_average", "robbins_monro", "step_size_at"]


def robbins_monro(delay: float = 4.0, forgetting: float = 0.55) -> Callable[[Any], Any]:
    r"""Robbins-Monro schedule :math:`\rho_t = (t + \tau)^{-\kappa}`.

    Parameters
    ----------
    delay : tau >= 1, which down-weights early steps.
    forgetting : kappa in (0.5, 1], for which the sum of the steps diverges and that of their squares converges.

    Raises
    ------
    TypeError
        If a parameter is not a real number.
    ValueError
        If a parameter lies outside its range, or is infinite.

    References
    ----------
    Hoffman, Blei, Wang, Paisley (2013), "Stochastic variational inference", eq. 26.

    Examples
    --------
    >>> robbins_monro(delay=1.0, forgetting=1.0)(3)
    0.25
    """
    require_number("delay", delay, least=1)  # no step exceeds 1
    require_number("forgetting", forgetting, above=0.5, most=1)
    return lambda step: (step + delay) ** -forgetting


def constant_then_average(size: float, steps: int) -> Callable[[Any], Any]:
    r"""Schedule :math:`\rho_t = r` for the first `steps` steps, then :math:`1 / (t - t_0 + 1/r)`.

    The second phase averages the batches with equal weights, so that after whole epochs the statistics are those of
    all data.

    Parameters
    ----------
    size : r in (0, 1], the step size of the first phase.
    steps : t_0 >= 0, number of its steps; finite, so that the second phase begins.

    Raises
    ------
    TypeError
        If `size` or `steps` is not a real number.
    ValueError
        If `size` lies outside (0, 1], or `steps` is negative or infinite.

    References
    ----------
    Polyak and Juditsky (1992), "Acceleration of stochastic approximation by averaging".

    Examples
    --------
    >>> schedule = constant_then_average(0.5, 10)
    >>> [schedule(step) for step in (0, 9, 10, 12)]
    [0.5, 0.5, 0.5, 0.25]
    """
    require_number("size", size, above=0, most=1)
    require_number("steps", steps, least=0)
    return lambda step: size if step < steps else 1 / (step - steps + 1 / size)


def check_step_size(step_size: Any) -> None:
    """Raise TypeError unless it is a number, a schedule or None."""
    if step_size is None or callable(step_size):
        return
    number = np.asarray(step_size)
    if number.ndim or number.dtype.kind not in "fiu":
        raise TypeError(
            f"step_size must be a number in (0, 1], a schedule step -> number, or None, not {step_size!r}"
        )


def step_size_at(step_size: Any, steps: np.ndarray) -> np.ndarray:
    """Step sizes of the given steps, from a number or a schedule; all must lie in (0, 1]."""
    sizes = [float(step_size(int(step))) if callable(step_size) else float(step_size) for step in steps]
    for step, size in zip(steps, sizes, strict=True):
        if not 0 < size <= 1:
            raise ValueError(f"step_size is {size} at step {step}: natural-gradient steps lie in (0, 1]")
    return np.asarray(sizes)
