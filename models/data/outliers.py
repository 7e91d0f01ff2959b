"""One warning of values so far from all others that they are likely errors of a device."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ethogram.models.arguments import warn_user
from ethogram.models.data.metadata import Metadata

__all__ = ["warn_of_outliers"]

# A value this many interquartile ranges from the median warns, if there are at least LEAST rows.
FAR, LEAST = 100, 8


def warn_of_outliers(
    values: np.ndarray, recorded: np.ndarray, rows: Any, metadata: Metadata, place: Callable[[int], str]
) -> None:
    """Warn once of features (row, feature) far outside; the message names sequence, time and feature."""
    if recorded.sum() < LEAST:
        return
    known = recorded[:, None] & ~np.isnan(values)
    columns = [column[here] if here.any() else [0.0] for column, here in zip(values.T, known.T, strict=True)]
    low, median, high = np.transpose([np.quantile(column, (0.25, 0.5, 0.75)) for column in columns])
    with np.errstate(over="ignore", invalid="ignore"):
        spread = np.where(high > low, high - low, np.inf)
        distance = np.where(known, np.abs(values - median) / spread, 0)
    far = distance > FAR
    if not far.any():
        return
    row, feature = divmod(int(np.argmax(distance)), distance.shape[1])
    names = metadata.feature_names
    name = repr(names[feature]) if names else str(feature)
    when = f"step {rows.frame[row]}" if rows.times is None else f"time {rows.times[row]}"
    warn_user(
        f"feature {name} of sequence {place(int(rows.sequence[row]))} is {values[row, feature]:g} at {when}, "
        f"{distance[row, feature]:.3g} interquartile ranges from the median {median[feature]:g} ({far.sum()} values "
        'are that far): correct them, or set them to NaN and pass missing="nan"',
    )
