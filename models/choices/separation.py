r"""Separation of choices: a direction of the parameters that no choice contradicts.

Along a direction d with :math:`(x_{\mathrm{chosen}} - x_{\mathrm{other}})' d \ge 0` for every option not chosen, the
likelihood never falls: under a flat prior the posterior is improper, and there is no maximum likelihood estimate.
Speckman, Lee and Sun (2009), "Existence of the MLE and propriety of posteriors for a general multinomial choice model",
whose condition of overlap this is (complete and quasi-complete separation). The flat prior of Singh, Chopin and
Whiteley, section 4.1.2, needs it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ethogram.models.printing import few_names, short_repr

__all__ = ["Separation", "find_separation", "in_words"]

TOLERANCE = 1e-9
FEW_ROWS = 16
"""Differences per parameter of the smallest part that is looked at before all."""


@short_repr
class Separation(NamedTuple):
    """A direction that no choice contradicts.

    Attributes
    ----------
    direction : (parameter,), its largest magnitude one.
    agreeing : (decision,) booleans, choices that the direction makes more probable; the others do not depend on it.
    """

    direction: Float[np.ndarray, "parameter"]
    agreeing: Bool[np.ndarray, "decision"]


def find_separation(
    design: Float[np.ndarray | Array, "decision option parameter"],
    legal: Bool[np.ndarray | Array, "decision option"],
    choice: Int[np.ndarray | Array, "decision"] | Sequence[int],
) -> Separation | None:
    """A direction of the parameters that no choice contradicts; None where the choices overlap, or without parameters.

    Parameters
    ----------
    design : (decision, option, parameter); utilities are linear in the parameters.
    legal : (decision, option) booleans.
    choice : (decision,) integers; unknown choices, -1, are ignored.

    Notes
    -----
    First directions along which no two options differ, by singular values; then a linear programme: maximise the sum
    of all differences along d, with none negative and every entry of d in [-1, 1].
    """
    design, known = np.asarray(design, float), np.asarray(choice) >= 0
    chosen = np.maximum(choice, 0)[:, None]
    others = np.asarray(legal) & known[:, None] & (np.arange(legal.shape[1]) != chosen)
    gaps = np.take_along_axis(design, chosen[..., None], 1) - design
    rows, num_parameters = gaps[others], design.shape[-1]
    if num_parameters == 0:
        return None
    # In units in which the largest entry of every column, then of every row, is one.
    units = np.abs(rows).max(axis=0, initial=0)
    if not (units > 0).all():
        return _separation((units == 0).astype(float), gaps, others)
    rows = rows / units
    rows = rows / np.maximum(np.abs(rows).max(axis=1, keepdims=True), np.finfo(float).tiny)
    for count in FEW_ROWS * num_parameters * 8 ** np.arange(8):
        if count >= len(rows):
            break
        part = rows[np.linspace(0, len(rows) - 1, count).astype(int)]
        if np.linalg.matrix_rank(part) == num_parameters and not -_programme(part).fun > TOLERANCE:
            return None  # choices of a part overlap, and those of all therefore do
    _, sizes, directions = np.linalg.svd(rows, full_matrices=len(rows) < num_parameters)
    rank = int((sizes > max(rows.shape) * np.finfo(float).eps * sizes[0]).sum())
    if rank < num_parameters:
        return _separation(directions[-1] / units, gaps, others)
    found = _programme(rows)
    return _separation(found.x / units, gaps, others) if -found.fun > TOLERANCE else None


def _programme(rows: np.ndarray) -> Any:
    """Solution of the linear programme of differences (row, parameter)."""
    from scipy.optimize import linprog

    found = linprog(-rows.sum(0), A_ub=-rows, b_ub=np.zeros(len(rows)), bounds=(-1, 1), method="highs")
    if found.status != 0:
        raise RuntimeError(f"the linear programme of separation failed: {found.message}")
    return found


def _separation(direction: np.ndarray, gaps: np.ndarray, others: np.ndarray) -> Separation:
    direction = direction / direction[np.abs(direction).argmax()] if (direction != 0).any() else direction
    along = np.where(others, gaps @ direction, 0)
    size = np.where(others, np.abs(gaps) @ np.abs(direction), 0)
    if along.sum() < 0:
        direction, along = -direction, -along
    return Separation(direction, np.any(along > TOLERANCE * size, axis=-1))


def in_words(found: Separation, parts: Mapping[str, Any]) -> str:
    """That no choice contradicts a direction, whose parts are given by site."""
    direction = "; ".join(
        f"{name} + c * {np.array2string(np.asarray(part), precision=3, threshold=12)}"
        for name, part in parts.items()
    )
    agreeing = np.flatnonzero(found.agreeing).tolist()
    few = ("no option differs along it", f"only decision {few_names(agreeing)} depends on it")
    said = few[len(agreeing)] if len(agreeing) < 2 else f"decisions {few_names(agreeing)} agree"
    return f"the choices are separated: none contradicts {direction} for any c > 0 ({said})"
