"""Findings of features that say nothing, or the same as others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from ethogram.inference.diagnostics.finding import Finding, Level

__all__ = ["of_columns"]

ROUNDING = 1e-5
"""Share of the size of a feature up to which differences are rounding, as of numbers of single precision."""


def of_columns(
    values: Float[np.ndarray, "row feature"],
    names: Sequence[str],
    where: str,
    origin: Any = None,
    sums: bool = True,
) -> Iterator[Finding]:
    """Features without a difference, and those that are another one, or with `sums` a sum of others, in other units.

    Parameters
    ----------
    where : between what a feature does not differ.
    origin : (row, feature), from which values differ; the first row where None.
    """
    if len(values) < 2:
        return
    apart = values - (values[:1] if origin is None else origin)
    size = np.abs(apart).max(0, initial=0)
    varies = size > ROUNDING * np.abs(values).max(0, initial=0)
    for at in np.flatnonzero(~varies).tolist():
        yield Finding(
            "features",
            Level.WARNING,
            f"{names[at]} does not differ {where}: the data say nothing of it.",
            "Leave it out, or look for an error in the table.",
            1.0,
        )
    kept: list[int] = []
    units = apart / np.where(varies, size, 1)
    for at in np.flatnonzero(varies).tolist():
        for others in [kept] * bool(kept) if sums else [[each] for each in kept]:
            weights = np.linalg.lstsq(units[:, others], units[:, at], rcond=None)[0]
            if np.abs(units[:, at] - units[:, others] @ weights).max() < 10 * ROUNDING:
                used = [names[one] for one, weight in zip(others, weights, strict=True) if abs(weight) > 1e-3]
                yield Finding(
                    "features",
                    Level.WARNING,
                    f"{names[at]} is {' plus '.join(used)}, each times a number: the data do not tell them apart.",
                    "Leave one of them out.",
                    1.0,
                )
                break
        else:
            kept.append(at)
