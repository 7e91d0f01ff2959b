"""Names and units that travel with trajectories, static under JAX transformations."""

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import Any

import jax

__all__ = ["SEQUENCE_LABELS", "STEP_FIELDS", "STEP_LABELS", "Metadata"]

# Integer fields whose codes may have names, and where metadata keeps them.
STEP_LABELS = {"states": "state_names", "actions": "action_names"}
SEQUENCE_LABELS = {"agent": "agent_names", "group": "group_names", "subject": "subject_names"}
STEP_FIELDS = ("observations", "states", "actions", "observed", "stay")


def _names(value: Any, field: str) -> tuple[str, ...] | None:
    if value is None:
        return None
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise TypeError(f"metadata.{field} is {value!r}: give a list of strings")
    names = tuple(str(name) if isinstance(name, str) else name for name in value)
    if not all(isinstance(name, str) for name in names):
        raise TypeError(f"metadata.{field} is {names!r}: every name is a string")
    if field != "feature_units" and len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"metadata.{field} has {twice!r} twice: names differ from each other")
    return names or None


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Metadata:
    """Names and units that travel beside the arrays, static under every JAX transformation.

    Lists become tuples and an empty list becomes None, which means "not said".

    Parameters
    ----------
    feature_names, feature_units : one string a feature; names differ from each other.
    time_unit : unit of time, such as ``"s"``.
    frame_rate : frames in one unit of time, positive.
    agent_names, group_names, subject_names, state_names, action_names : vocabularies; the integer
        ``k`` in the array stands for entry ``k``.
    name : of the data set.

    Raises
    ------
    TypeError
        If a vocabulary is a bare string or holds anything but strings.
    ValueError
        If names repeat, or the frame rate is not positive and finite.
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

    def __post_init__(self) -> None:
        for field in ("feature_names", "feature_units", *STEP_LABELS.values(), *SEQUENCE_LABELS.values()):
            object.__setattr__(self, field, _names(getattr(self, field), field))
        for field in ("time_unit", "name"):
            value = getattr(self, field)
            if not isinstance(value, str | None):
                raise TypeError(f"metadata.{field} is {value!r}: give a string or None")
        if self.frame_rate is not None:
            object.__setattr__(self, "frame_rate", float(self.frame_rate))
            if not (self.frame_rate > 0 and math.isfinite(self.frame_rate)):
                raise ValueError(
                    f"metadata.frame_rate is {self.frame_rate}: give frames per unit of time, above 0"
                )
