"""Find frames with missing features, and reject them where a model needs complete frames."""

from typing import Any

import numpy as np

from ethogram.models.arguments import is_concrete
from ethogram.models.data.padding import is_nan

__all__ = ["first_gap", "lacking", "require_complete"]


def lacking(values: np.ndarray, recorded: np.ndarray) -> np.ndarray:
    """Features (..., feature) that are NaN, which says that they are missing, of recorded frames (...)."""
    return is_nan(values) & recorded[..., None]


def first_gap(data: Any, gaps: np.ndarray) -> str:
    """How messages call the first True of ``gaps`` (sequence, time, feature), and what stands there."""
    row, step, feature = np.argwhere(gaps)[0].tolist()
    names = data.metadata.feature_names
    name = f" (feature {names[feature]!r})" if names else ""
    return f"data.observations[{row}, {step}, {feature}]{name} is {data.observations[row, step, feature]}"


def require_complete(data: Any, needs: str) -> None:
    """Raise ValueError where a feature of an observed frame is NaN: ``needs`` says what takes complete frames only.

    Traced arrays are not looked at.
    """
    if data.observations is None or not is_concrete(data.observations, data.observed):
        return
    gaps = lacking(np.asarray(data.observations), np.asarray(data.observed))
    if gaps.any():
        raise ValueError(
            f"{first_gap(data, gaps)}: {needs} complete frames; pass data.complete_frames(), in which frames with "
            "missing features are missing, or fill them in"
        )
