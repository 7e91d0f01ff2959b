"""Names and units that travel with trajectories, static under JAX transformations."""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import jax

from ethogram.models.arguments import as_list, require_number, require_one_of
from ethogram.models.printing import short_repr

__all__ = [
    "ARRAY_FIELDS",
    "COLUMN_NAMES",
    "SEQUENCE_LABELS",
    "STEP_FIELDS",
    "STEP_LABELS",
    "TABLES",
    "ColumnName",
    "Metadata",
    "read_metadata",
]

ColumnName = str | int

# Integer fields whose codes may have names, and where metadata keeps them.
STEP_LABELS = {"states": "state_names", "actions": "action_names"}
SEQUENCE_LABELS = {"agent": "agent_names", "group": "group_names", "subject": "subject_names"}
STEP_FIELDS = ("observations", "states", "actions", "observed", "stay", "times", "covariates")
ARRAY_FIELDS = (*STEP_FIELDS[:3], "lengths", "observed", *SEQUENCE_LABELS, "stay", "times", "covariates")

# Fields of steps with a third axis, its name, and where metadata keeps names and units.
TABLES = {"observations": "feature", "covariates": "covariate"}
COLUMN_NAMES = {f"{axis}_{part}": axis for axis in TABLES.values() for part in ("names", "units")}


def _names(value: Any, field: str) -> tuple[str, ...] | None:
    if value is None:
        return None
    if isinstance(value, str) or not isinstance(value, Iterable) or getattr(value, "ndim", 1) == 0:
        raise TypeError(f"metadata.{field} is {value!r}: give a list of strings")
    names = tuple(str(name) if isinstance(name, str) else name for name in value)
    if not all(isinstance(name, str) for name in names):
        raise TypeError(f"metadata.{field} is {names!r}: every name must be a string")
    if not field.endswith("_units") and len(set(names)) < len(names):
        twice = Counter(names).most_common(1)[0][0]
        raise ValueError(f"metadata.{field} must be unique; {twice!r} appears twice")
    return names or None


def _levels(value: Any, names: Sequence[str] | None) -> tuple[tuple[str, ...] | None, ...] | None:
    """Levels of covariates, one entry each; by default all are numbers."""
    if value is None:
        return None if names is None else (None,) * len(names)
    every = as_list("metadata.covariate_levels", value, "None, or levels, of each covariate")
    levels = tuple(_names(each, f"covariate_levels[{place}]") for place, each in enumerate(every))
    if len(levels) != len(names or ()):
        raise ValueError(
            f"metadata.covariate_levels has {len(levels)} entries for the names {names}: give one each"
        )
    return levels or None


def read_metadata(metadata: Any) -> "Metadata":
    """Metadata, those without any where None; a TypeError for anything else."""
    if not isinstance(metadata, Metadata | None):
        raise TypeError(f"metadata is {type(metadata).__name__}: give an ethogram.Metadata")
    return Metadata() if metadata is None else metadata


@jax.tree_util.register_static
@short_repr
@dataclasses.dataclass(frozen=True)
class Metadata:
    """Names and units that travel beside the arrays, static under every JAX transformation.

    Lists become tuples and an empty list becomes None (not specified).

    Parameters
    ----------
    feature_names, feature_units : one string per feature; names are unique.
    time_unit : unit of time, such as ``"s"``.
    frame_rate : frames in one unit of time, positive.
    agent_names, group_names, subject_names, state_names, action_names : vocabularies; the integer
        ``k`` in the array stands for entry ``k``. Constructors look up the labels that they are given by their text.
    name : of the data set.
    time_kind : what ``Trajectories.times`` are, None for numbers, ``"date"`` or ``"duration"`` for nanoseconds (dates
        since 1970 in UTC).
    time_zone : of dates that had one, such as ``"Europe/Paris"``.
    covariate_names, covariate_units : one string per covariate; names are unique.
    covariate_levels : one entry per covariate: None for a number, else the levels, of which the array has the places.
    formula : the formula of the features of decisions, and what it took from the data, as JSON; constructors write it,
        and encode other data alike that are read with these metadata.
    """

    feature_names: Sequence[str] | None = None
    feature_units: Sequence[str] | None = None
    time_unit: str | None = None
    frame_rate: float | int | None = None
    agent_names: Sequence[str] | None = None
    group_names: Sequence[str] | None = None
    subject_names: Sequence[str] | None = None
    state_names: Sequence[str] | None = None
    action_names: Sequence[str] | None = None
    name: str | None = None
    time_kind: str | None = None
    time_zone: str | None = None
    covariate_names: Sequence[str] | None = None
    covariate_units: Sequence[str] | None = None
    covariate_levels: Sequence[Sequence[str] | None] | None = None
    formula: str | None = None

    def __post_init__(self) -> None:
        for field in (*COLUMN_NAMES, *STEP_LABELS.values(), *SEQUENCE_LABELS.values()):
            object.__setattr__(self, field, _names(getattr(self, field), field))
        object.__setattr__(self, "covariate_levels", _levels(self.covariate_levels, self.covariate_names))
        for field in ("time_unit", "name", "time_kind", "time_zone", "formula"):
            value = getattr(self, field)
            if not isinstance(value, str | None):
                raise TypeError(f"metadata.{field} is {value!r}: give a string or None")
        require_one_of("metadata.time_kind", self.time_kind, (None, "date", "duration"))
        if self.frame_rate is not None:
            rate = require_number("metadata.frame_rate", self.frame_rate, above=0)
            object.__setattr__(self, "frame_rate", rate)
