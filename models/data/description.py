"""What data hold, in words: numbers of sequences and frames, features with their units, dates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ethogram.models.data.metadata import SEQUENCE_LABELS, STEP_LABELS, Metadata
from ethogram.models.data.selection import valid_steps
from ethogram.models.data.write_table import own_times
from ethogram.models.printing import describe_value, few_names

__all__ = ["describe_data", "features_in_words", "trajectories_in_words", "with_spaces"]

VOCABULARIES = SEQUENCE_LABELS | STEP_LABELS | {"choice": "action_names"}


def describe_data(data: Any, in_words: Callable[[Any], list[str]]) -> str:
    """A line in words, and a row for each array that they leave out."""
    parts = {name: getattr(data, name) for name in data._fields[:-1] if getattr(data, name) is not None}
    title = " ".join([type(data).__name__, *filter(None, [data.metadata.name])])
    rows = [f"{title}: {'; '.join(in_words(data))}"]
    for field in [name for name in parts if name not in ("observed", "times", "legal")]:
        names = getattr(data.metadata, VOCABULARIES.get(field, ""), None)
        words = f"; names {few_names(names)}" if names else ""
        rows.append(f"  {field:12}  {describe_value(parts[field])}{words}")
    return "\n".join(rows)


def features_in_words(metadata: Metadata, axis: str = "feature") -> list[str]:
    """Names of the features, or covariates, with their units, where there are names."""
    names: Sequence[str] = getattr(metadata, f"{axis}_names") or ()
    units: Sequence[str] = getattr(metadata, f"{axis}_units") or ()
    if len(names) > 1 and len({*units}) == 1 and units[0]:
        return [f"{axis}s {few_names(names)}, all in {units[0]}"]
    features = [
        f"{name} ({unit})" if unit else name for name, unit in zip(names, units, strict=False)
    ] or names
    return [f"{axis}s {few_names(features)}"] if features else []


def trajectories_in_words(data: Any) -> list[str]:
    """Sizes, frame rate, the first and the last date in the zone of the data, features with units."""
    frames, metadata = valid_steps(data), data.metadata
    missing, count = int((frames & ~np.asarray(data.observed)).sum()), data.num_sequences
    sizes = f"{count} sequence{'s' * (count != 1)}, {with_spaces(frames.sum())} frames, {with_spaces(missing)} missing"
    times, rate = own_times(data.times, metadata), metadata.frame_rate
    unit = metadata.time_unit or "unit of time"
    parts = [sizes]
    if rate is not None:
        parts.append(f"{rate:g} frames per {unit}" if rate > 1 else f"a frame every {1 / rate:g} {unit}")
    if times is not None and metadata.time_kind == "date" and np.any(data.observed):
        import pandas

        known = pandas.Series([times[data.observed].min(), times[data.observed].max()]).dt.tz_localize("UTC")
        first, last = known.dt.tz_convert(metadata.time_zone or "UTC")
        form = "%B %Y" if (last - first).days > 2 else "%B %Y %H:%M"
        parts.append(f"from {first.day} {first.strftime(form)} to {last.day} {last.strftime(form)}")
    return parts + features_in_words(metadata) + features_in_words(metadata, "covariate")


def with_spaces(number: Any) -> str:
    """A number with spaces between thousands: 5 990."""
    return f"{number:,}".replace(",", " ")
