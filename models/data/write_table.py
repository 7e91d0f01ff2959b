"""A table with one row per recorded frame, at the user's own times, with the user's own names."""

from typing import Any

import numpy as np

from ethogram.models.data.covariates import covariate_frame
from ethogram.models.data.metadata import SEQUENCE_LABELS, STEP_LABELS, Metadata
from ethogram.models.data.times import write_times

__all__ = ["own_times", "write_table"]


def own_times(times: Any, metadata: Metadata) -> np.ndarray | None:
    """Times as they were given, in UTC; None where there are none, or a device has shortened them to 32 bits."""
    if times is None or np.asarray(times).dtype.itemsize < 8:
        return None
    return write_times(np.asarray(times), metadata.time_kind)


def write_table(data: Any) -> Any:
    """The ``pandas.DataFrame`` that ``Trajectories.to_table`` describes, of checked trajectories."""
    import pandas

    metadata, recorded = data.metadata, np.asarray(data.observed)
    sequence, step = np.nonzero(recorded)
    columns: dict[str, Any] = {"sequence": sequence}
    times = own_times(data.times, metadata)
    if times is None:
        columns["time"] = step
    else:
        own = pandas.Series(times[recorded])
        if metadata.time_zone is not None:
            own = own.dt.tz_localize("UTC").dt.tz_convert(metadata.time_zone)
        columns["time"] = own
    for field, vocabulary in (SEQUENCE_LABELS | STEP_LABELS | {"stay": ""}).items():
        part = getattr(data, field)
        if part is not None:
            codes = np.asarray(part)[sequence] if field in SEQUENCE_LABELS else np.asarray(part)[recorded]
            names = getattr(metadata, vocabulary, None)
            columns[field] = codes if names is None else np.array([*names, None], object)[codes]
    if data.observations is not None:
        values = np.asarray(data.observations)[recorded]
        names = metadata.feature_names or [f"feature_{number}" for number in range(values.shape[1])]
        for number, name in enumerate(names):
            columns[name if name not in columns else f"feature_{name}"] = values[:, number]
    for name, values in () if data.covariates is None else covariate_frame(data, recorded).items():
        own = values if values.dtype.kind == "f" else values.astype(object)
        columns[name if name not in columns else f"covariate_{name}"] = own
    return pandas.DataFrame(columns)
