"""Readers of Python lists with one array per sequence, and of recorded episodes."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from ethogram.models.arguments import as_list, require_one_of
from ethogram.models.data.episode_arrays import episode_arrays
from ethogram.models.data.labels import coded_fields
from ethogram.models.data.metadata import Metadata
from ethogram.models.data.padding import (
    Column,
    FrameRows,
    as_floats,
    is_nan,
    pad_rows,
    read_column,
    read_entries,
)
from ethogram.models.data.time_grid import SortedRows, clocks_of, frame_numbers
from ethogram.models.data.times import read_times, state_clock

__all__ = ["read_episodes", "read_list"]

# What to do with actions that are no integers.
CONTINUOUS = "discretise them, join them to the observations as features, or pass with_actions=False"


def read_list(
    steps: Mapping[str, Iterable[Any] | None],
    labels: dict[str, Any],
    missing: str = "error",
    metadata: Metadata | None = None,
    time: Any = None,
    step: Any = None,
    snap: Any = False,
    codes: bool | str | Iterable[str] = False,
) -> dict[str, Any]:
    """Fields of `Trajectories`, still to be checked, of lists; parameters of ``Trajectories.from_list``."""
    lists = {field: _arrays(part, field) for field, part in steps.items() if part is not None}
    if not lists.keys() & {"observations", "states", "actions"}:
        raise ValueError("observations, states and actions are all None: give one of them")
    clock = as_list("time", () if time is None else time)
    clock = [as_list(f"time[{number}]", part, "one time per frame") for number, part in enumerate(clock)]
    lengths = _common_lengths(lists if time is None else lists | {"time": clock})
    columns = {field: read_column(part, field) for field, part in labels.items() if part is not None}
    sequence = np.repeat(np.arange(len(lengths)), lengths)
    rank = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    frame, times = rank, None
    if time is not None:
        entries = np.empty(lengths.sum(), object)
        entries[:] = [entry for part in clock for entry in part]
        times = read_times(entries, "time", len(entries))
        clocks = clocks_of(columns.get("group"), len(lengths), "group")
        sorted_rows = SortedRows(lambda row: f"time[{sequence[row]}][{rank[row]}]", sequence, str, clocks)
        frame = frame_numbers(times.values, step, sorted_rows, "time", snap)
        metadata = state_clock(Metadata() if metadata is None else metadata, times, step, sequence)
        last = np.cumsum(lengths)[lengths > 0] - 1
        lengths[lengths > 0] = frame[last] + 1
    elif step is not None or snap is not False:
        given = "snap" if step is None else "step"
        raise ValueError(f"{given} is given without time: pass time=, one array of times per sequence")
    marks = _joined(lists["observed"]) if "observed" in lists else None
    if marks is not None and marks.dtype != np.bool_ and marks.size:
        raise TypeError(f"observed has dtype {marks.dtype}: pass booleans")
    rows = FrameRows(
        sequence=sequence,
        frame=frame,
        lengths=lengths,
        observations=_feature_columns(lists["observations"]) if "observations" in lists else None,
        steps={
            field: read_column(_joined(lists[field]), field)
            for field in ("states", "actions", "stay")
            if field in lists
        },
        observed=None if marks is None else marks.astype(bool),
        times=None if times is None else times.values,
    )
    return pad_rows(rows, columns, missing, metadata, coded=coded_fields(codes))


def read_episodes(
    episodes: Any, last: str, as_states: bool, with_actions: bool, action_names: Sequence[str]
) -> tuple[dict[str, list[np.ndarray] | None], list[Any] | None]:
    """Lists of observations, states and actions, one array per episode, and the keys of a mapping.

    Parameters are those of `Trajectories.from_episodes`, and the names of actions, if any.
    """
    require_one_of("last", last, ("keep", "drop"))
    read, keys = episode_arrays(episodes)
    seen, acted = [], []
    for place, observation, action in read:
        extra = len(observation) - len(action)
        if extra not in (0, 1):
            raise ValueError(
                f"{place} has {len(observation)} observations and {len(action)} actions: "
                "pass as many observations as actions, or one more"
            )
        if with_actions:
            action = _discrete(action, f"actions of {place}", CONTINUOUS)
        if extra and last == "drop":
            observation = observation[:-1]
        elif extra and with_actions:
            if "-1" in action_names:
                raise ValueError(
                    '-1 is an action, and cannot say that the last frame has none: pass last="drop"'
                )
            action = np.append(action, -1)
        if as_states:
            observation = _discrete(
                observation, f"observations of {place}", "number the states, or pass as_states=False"
            )
        seen.append(observation)
        acted.append(action)
    steps = {
        "observations": None if as_states else seen,
        "states": seen if as_states else None,
        "actions": acted if with_actions else None,
    }
    return steps, keys


def _discrete(values: np.ndarray, what: str, fix: str) -> np.ndarray:
    values = values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values
    if values.ndim != 1 or (values.dtype.kind not in "biu" and values.size):
        raise TypeError(
            f"{what} have shape {values.shape} and dtype {values.dtype}, not one integer per frame: {fix}"
        )
    return values.astype(np.int64)


def _arrays(part: Iterable[Any], field: str) -> list[np.ndarray]:
    """Arrays of one field, with a feature axis where they are observations."""
    arrays = []
    for number, value in enumerate(as_list(field, part)):
        array = read_entries(f"{field}[{number}]", value)
        if field == "observations":
            array = as_floats(array) if array.dtype == object else array
            array = array[:, None] if array.ndim == 1 else array
        wanted = ("(time,) or (time, feature)", 2) if field == "observations" else ("(time,)", 1)
        if array.ndim != wanted[1]:
            raise ValueError(f"{field}[{number}] has shape {array.shape}, not {wanted[0]}")
        arrays.append(array)
    if not arrays:
        raise ValueError(f"{field} is empty: give one array per sequence, for at least one sequence")
    return arrays


def _common_lengths(lists: Mapping[str, Sequence[Any]]) -> np.ndarray:
    (first, reference), *others = lists.items()
    for field, arrays in others:
        if len(arrays) != len(reference):
            raise ValueError(f"{field} has {len(arrays)} sequences, but {first} has {len(reference)}")
        for number, (array, model) in enumerate(zip(arrays, reference, strict=True)):
            if len(array) != len(model):
                raise ValueError(
                    f"{field}[{number}] has {len(array)} frames, but {first}[{number}] has {len(model)}: "
                    "mark what is missing with -1"
                )
    return np.array([len(array) for array in reference], dtype=np.int64)


def _joined(arrays: list[np.ndarray]) -> np.ndarray:
    """All rows; an empty array determines neither dtype nor width, and numbers beside text stay numbers."""
    filled = [array for array in arrays if len(array)] or arrays[:1]
    if len({array.dtype.kind == "U" for array in filled}) > 1:
        filled = [array.astype(object) for array in filled]
    return np.concatenate(filled)


def _feature_columns(arrays: list[np.ndarray]) -> Column:
    filled = [number for number, array in enumerate(arrays) if len(array)]
    for number in filled:
        array, model = arrays[number], arrays[filled[0]]
        if array.shape[1] != model.shape[1]:
            raise ValueError(
                f"observations[{number}] has {array.shape[1]} features, but observations[{filled[0]}] has "
                f"{model.shape[1]}: all sequences need the same features"
            )
        if array.dtype.kind not in "biuf" and not jnp.issubdtype(array.dtype, jnp.floating):
            raise TypeError(f"observations[{number}] has dtype {array.dtype}: pass floats or integers")
    values = _joined(arrays)
    return Column(values, is_nan(values))
