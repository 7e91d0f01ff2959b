"""From rows, one per recorded frame, to padded arrays: nulls, label codes and the scatter."""

import dataclasses
import datetime
import numbers
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from ethogram.models.arguments import read_array, require_one_of
from ethogram.models.data.labels import VOCABULARIES, look_up
from ethogram.models.data.metadata import SEQUENCE_LABELS, STEP_LABELS, Metadata, read_metadata
from ethogram.models.data.outliers import warn_of_outliers, warn_of_unobserved
from ethogram.models.memory_bound import require_room

__all__ = [
    "Column",
    "FrameRows",
    "as_floats",
    "held_frames",
    "is_nan",
    "pad_rows",
    "plain_times",
    "read_column",
    "read_entries",
]

# Durations are kept in nanoseconds of 64 bits.
LONGEST = datetime.timedelta(days=106751)


class Column(NamedTuple):
    """Values, and where there is none (NaN, None, NaT or a table's null); values there are arbitrary."""

    values: np.ndarray
    null: np.ndarray

    def take(self, rows: np.ndarray) -> "Column":
        """The column at these rows."""
        return Column(self.values[rows], self.null[rows])


class FrameRows(NamedTuple):
    """One row per recorded frame, put together by sequence, in the order of frames."""

    sequence: np.ndarray  # (row,): with the frame, where the row goes
    frame: np.ndarray
    lengths: np.ndarray  # (sequence,): frames of each sequence, those without a row counted
    observations: Column | None  # (row, feature)
    steps: dict[str, Column]  # (row,): of states, actions and stay
    observed: np.ndarray | None = None  # (row,): None for all that are not null
    times: np.ndarray | None = None  # (row,): numbers, dates or durations
    removed: np.ndarray | None = None  # (row, feature): values that count as missing beside nulls
    covariates: Column | None = None  # (row, covariate)

    def when(self, row: int | np.integer) -> str:
        """How messages call the time of a row."""
        return f"step {self.frame[row]}" if self.times is None else f"time {self.times[row]}"


def read_column(column: Any, name: str) -> Column:
    """A column of a pandas or polars table, an array or a list, with its nulls apart."""
    if isinstance(column, np.ma.MaskedArray):
        raise TypeError(f'{name} is a masked array: fill it with NaN and pass missing="nan"')
    if hasattr(column, "isna"):
        null, known = np.array(column.isna(), dtype=bool), column.dropna().to_numpy()
    elif hasattr(column, "is_null"):
        null, known = np.array(column.is_null().to_numpy(), dtype=bool), column.drop_nulls().to_numpy()
    else:
        known = read_entries(name, column)
        null = np.zeros(known.shape, dtype=bool)
        if known.dtype == object:
            import pandas

            null = pandas.isna(known)
            known = known[~null]
    if null.ndim != 1:
        raise ValueError(f"{name} has shape {null.shape}: give one value each, in a list")
    if known.dtype == object:
        known, marked = _beside_text(known)
        null[~null] = marked
    values = known = _native(known, name)
    if null.any():
        values = np.zeros(null.shape, dtype=known.dtype)
        values[~null] = known
    return Column(values, null | is_nan(values))


def read_entries(name: str, column: Any) -> np.ndarray:
    """As `read_array`; in lists, numbers and nulls stay beside text, where NumPy would make them text."""
    values = read_array(name, column)
    if values.dtype.kind == "U" and not hasattr(column, "dtype"):
        entries = np.array(column, object)
        return values if all(isinstance(entry, str) for entry in entries.flat) else entries
    return values


def _beside_text(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Objects with whole floats as integers where there is text, less -1 for what is missing; and where those were."""
    text = np.array([isinstance(value, str) for value in values], bool)
    if text.all() or not text.any():
        return values, np.zeros(len(values), bool)
    floats = np.array(
        [isinstance(value, float | np.floating) and value.is_integer() for value in values], bool
    )
    values = values.copy()
    values[floats] = [int(value) for value in values[floats]]
    marked = ~text & (values == -1)
    return values[~marked], marked


def _native(values: np.ndarray, name: str) -> np.ndarray:
    if values.dtype == object:
        native = read_array(name, values.tolist())
        mixed = native.dtype.kind == "U" and not all(
            isinstance(value, str | int | np.integer) for value in values
        )
        values = native if native.shape == values.shape and not mixed else values
        if values.dtype == object and all(isinstance(value, datetime.timedelta) for value in values):
            if max(map(abs, values)) > LONGEST:  # NumPy would wrap around
                raise TypeError(f"{name} has durations of more than {LONGEST.days} days: give numbers")
            values = values.astype("timedelta64[us]")
        elif values.dtype == object and all(hasattr(value, "isoformat") for value in values):
            try:
                values = values.astype("datetime64[us]")
            except (TypeError, ValueError, OverflowError):
                raise TypeError(f"{name} mixes dates and times of day: give dates only") from None
    if values.dtype.kind not in "biufUmM" and not jnp.issubdtype(values.dtype, jnp.floating):
        kinds = dict.fromkeys(type(value).__name__ for value in values.flat)
        kind = " and ".join(kinds) if values.dtype == object and values.size else values.dtype
        raise TypeError(f"{name} has dtype {kind}: pass numbers, booleans, strings, dates or durations")
    return values


def is_nan(values: np.ndarray) -> np.ndarray:
    """Whether entries are NaN or NaT, of whatever dtype."""
    if values.dtype.kind in "mM":
        return np.isnat(values)
    if jnp.issubdtype(values.dtype, jnp.floating):
        return np.isnan(values)
    return np.zeros(values.shape, dtype=bool)


def pad_rows(
    rows: FrameRows,
    labels: dict[str, Column],
    missing: str = "error",
    metadata: Metadata | None = None,
    place: Callable[[int], str] = str,
    coded: Collection[str] = (),
) -> dict[str, Any]:
    """Fields of `Trajectories`, still to be checked, of the rows; frames without a row are missing.

    `labels` are columns (sequence,), `place` is how messages call a sequence, `coded` are the fields whose integers are
    numbers of names, and the rest is as in ``Trajectories.from_list``.
    """
    require_one_of("missing", missing, ("error", "nan"))
    metadata = read_metadata(metadata)
    num_steps = max(int(rows.lengths.max(initial=0)), 1)
    shape = (len(rows.lengths), num_steps)
    for name, table in (("observations", rows.observations), ("covariates", rows.covariates)):
        if table is not None:
            cells = (*shape, table.values.shape[1])
            require_room(name, cells, np.float64, "read fewer sequences at a time")

    has_row = np.zeros(shape, dtype=bool)
    has_row[rows.sequence, rows.frame] = True

    def scatter(values: np.ndarray, fill: float | int) -> np.ndarray:
        if has_row.all():
            return values.reshape(shape + values.shape[1:])
        padded = np.full(shape + values.shape[1:], fill, dtype=values.dtype)
        for feature in np.ndindex(values.shape[1:]):  # a mask of all axes is not made into indices
            padded[(..., *feature)][has_row] = values[(slice(None), *feature)]
        return padded

    covariates = None
    if rows.covariates is not None:
        covariates = np.zeros((*shape, rows.covariates.values.shape[1]))
        inside = np.arange(num_steps) < rows.lengths[:, None]
        covariates[inside] = np.repeat(rows.covariates.values, held_frames(rows), axis=0)

    codes: dict[str, np.ndarray] = {}
    for field, column in (rows.steps | labels).items():
        if missing == "error" and field in STEP_LABELS and column.null.any():
            row = int(column.null.argmax())
            where = f"{field} of sequence {place(int(rows.sequence[row]))}, step {rows.frame[row]}"
            raise ValueError(
                f'{where} is missing (NaN, None, or -1 beside names): pass missing="nan" to let it be -1'
            )
        codes[field], metadata = _codes(column, field, metadata, field in coded)

    recorded = np.ones(len(rows.sequence), dtype=bool) if rows.observed is None else rows.observed
    observations = None
    if rows.observations is not None:
        values, recorded = _mark_missing(rows.observations, recorded, rows, missing, metadata, place)
        if values.dtype.kind == "f":
            warn_of_outliers(values, recorded, rows, metadata, place)
        observations = scatter(values, np.nan)
        observations[np.arange(num_steps)[None] >= rows.lengths[:, None]] = 0
    elif rows.observed is None:
        recorded = np.any([codes[field] >= 0 for field in STEP_LABELS if field in codes], axis=0)
    steps = {field: scatter(codes[field], -1) if field in codes else None for field in (*STEP_LABELS, "stay")}
    observed = scatter(recorded, False)
    warn_of_unobserved(observed, codes.get("agent"), metadata.agent_names, place)
    return {
        "observations": observations,
        "lengths": rows.lengths.astype(np.int32),
        "observed": observed,
        "metadata": metadata,
        "times": None if rows.times is None else scatter(*plain_times(rows.times)),
        "covariates": covariates,
        **steps,
        **{field: codes.get(field) for field in SEQUENCE_LABELS},
    }


def held_frames(rows: FrameRows) -> np.ndarray:
    """Frames (row,) from a row to the one before the next of its sequence; of the first row those before it too."""
    is_first = np.diff(rows.sequence, prepend=-1) != 0
    is_last = np.roll(is_first, -1)
    end = np.where(is_last, rows.lengths[rows.sequence], np.roll(rows.frame, -1))
    return end - np.where(is_first, 0, rows.frame)


def plain_times(times: np.ndarray) -> tuple[np.ndarray, float | int]:
    """Times as numbers, those of dates and durations as nanoseconds, and what stands where there is none."""
    if times.dtype.kind in "mM":
        kept = times.astype(f"{times.dtype.kind}8[ns]")
        second = f"{times.dtype.kind}8[s]"
        wrapped = (kept.astype(second) != times.astype(second)) & ~np.isnat(times)
        if wrapped.any():
            raise ValueError(
                f"times has {times[wrapped][0]}: nanoseconds of 64 bits hold dates up to 292 years before and after "
                "1970, and durations as long; give numbers"
            )
        times = kept.astype(np.int64)
    if times.dtype.kind == "f":
        return times.astype(np.float64, copy=False), np.nan
    return times.astype(np.int64, copy=False), -1


def _mark_missing(
    observations: Column,
    recorded: np.ndarray,
    rows: FrameRows,
    missing: str,
    metadata: Metadata,
    place: Callable[[int], str],
) -> tuple[np.ndarray, np.ndarray]:
    """Observations as floats, NaN where missing, and which rows are not missing as a whole."""
    values, null = observations
    if missing == "error" and (null & recorded[:, None]).any():
        row, feature = np.argwhere(null & recorded[:, None])[0].tolist()
        name = dict(enumerate(map(repr, metadata.feature_names or ()))).get(feature, feature)
        raise ValueError(
            f"observations of sequence {place(int(rows.sequence[row]))}, step {rows.frame[row]}, "
            f'feature {name} is NaN or null: pass missing="nan" to take it as missing'
        )
    null = null if rows.removed is None else null | rows.removed
    recorded = recorded & ~null.all(axis=1)
    values = as_floats(values)
    values[~recorded[:, None] | null] = np.nan  # rows are of this reader alone
    return values, recorded


def as_floats(values: np.ndarray, name: str = "observations") -> np.ndarray:
    """Values as floats, which have NaN for what is missing; a TypeError unless they are numbers or nulls."""
    if values.dtype == object:
        import pandas

        null = pandas.isna(values)
        if all(isinstance(value, numbers.Real) for value in values[~null]):
            try:
                return np.where(null, np.nan, values).astype(float)
            except OverflowError:
                raise ValueError(f"{name} has an integer of more than 308 digits: pass numbers") from None
    if values.dtype.kind in "biu" or values.dtype == np.longdouble:
        return values.astype(float)
    if jnp.issubdtype(values.dtype, jnp.floating):
        return values
    raise TypeError(f"{name} has dtype {values.dtype}: pass numbers")


def _codes(column: Column, field: str, metadata: Metadata, coded: bool) -> tuple[np.ndarray, Metadata]:
    """Integer codes (int32) of labels, -1 where null, and metadata with the vocabulary they refer to."""
    null, vocabulary = column.null, VOCABULARIES.get(field, "")
    names = getattr(metadata, vocabulary, None)
    is_text = column.values[~null].dtype.kind == "U"
    if column.values.dtype.kind in "if" and "-1" not in (names or ()):
        null = null | (column.values == -1)
    known = column.values[~null]
    if vocabulary and (is_text or (names and not coded)) and known.dtype.kind in "Ubiuf":
        names = names or tuple(np.unique(known).tolist())
        fix = ", or pass codes=True if integers are numbers of names"
        known = look_up(known, names, field, f"metadata.{vocabulary}", fix)
        given: dict[str, Any] = {vocabulary: names}
        metadata = dataclasses.replace(metadata, **given)
    elif known.dtype.kind not in "biuf" or not (known == np.rint(known)).all():
        kind = known[known != np.rint(known)][0] if known.dtype.kind == "f" else known.dtype
        raise TypeError(
            f"{field} contains {kind}: pass integers{' or strings' if field in VOCABULARIES else ''}"
        )
    if known.size and not (known.min() >= -(2**31) and known.max() < 2**31):
        worst = known.max() if known.max() >= 2**31 else known.min()
        raise ValueError(f"{field} contains {worst}, beyond 32 bits: pass such labels as strings")
    codes = np.full(null.shape, -1, dtype=np.int32)
    codes[~null] = known.astype(np.int32)
    return codes, metadata
