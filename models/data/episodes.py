"""Readers of Python lists with one array per sequence, and of recorded episodes."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from ethogram.models.arguments import as_list, read_array, require_flag, require_one_of
from ethogram.models.data.covariates import hold_covariates, listed_covariates, read_covariates
from ethogram.models.data.labels import coded_fields
from ethogram.models.data.metadata import Metadata, read_metadata
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
from ethogram.models.data.times import read_times, with_time_metadata

__all__ = ["read_episodes", "read_list"]

# Sequences that are arrays of their own at a time.
BLOCK = 1024

# What to do with actions that are no integers.
CONTINUOUS = "discretise them, join them to the observations as features, or pass with_actions=False"

# What flat dictionaries call the last steps of their episodes.
ENDS = ("terminals", "timeouts", "terminations", "truncations")

EpisodeArrays = tuple[str, np.ndarray, np.ndarray]
"""How messages call an episode, its observations (T,) or (T + 1,) and actions (T,), perhaps with more axes."""


def read_list(
    steps: Mapping[str, Iterable[Any] | None],
    labels: dict[str, Any],
    missing: str = "error",
    metadata: Metadata | None = None,
    time: Any = None,
    step: Any = None,
    snap: Any = False,
    codes: bool | str | Iterable[str] = False,
    covariates: Any = None,
    missing_covariates: str = "error",
) -> dict[str, Any]:
    """Fields of `Trajectories`, still to be checked, of lists; parameters of ``Trajectories.from_list``."""
    joined, counts = {}, {}
    for field, part in steps.items():
        if part is not None:
            joined[field], counts[field] = _joined(part, field)
    if not joined.keys() & {"observations", "states", "actions"}:
        raise ValueError("observations, states and actions are all None: give one of them")
    clock = as_list("time", () if time is None else time)
    clock = [as_list(f"time[{number}]", part, "one time per frame") for number, part in enumerate(clock)]
    lengths = _common_lengths(counts if time is None else counts | {"time": np.array([*map(len, clock)])})
    columns = {field: read_column(part, field) for field, part in labels.items() if part is not None}
    number = np.int32 if lengths.sum() < 2**31 else np.int64
    sequence = np.repeat(np.arange(len(lengths), dtype=number), lengths)
    first = (np.cumsum(lengths) - lengths).astype(number)
    rank: np.ndarray = np.arange(len(sequence), dtype=number)
    rank -= np.repeat(first, lengths)
    frame, times, moving = rank, None, None
    metadata, coded = read_metadata(metadata), coded_fields(codes)
    if covariates is not None:
        listed = listed_covariates(covariates, lengths, metadata)
        moving, metadata = read_covariates(
            listed, metadata, coded, lambda row: f"sequence {sequence[row]}, frame {rank[row]}"
        )
    if time is not None:
        entries = np.empty(lengths.sum(), object)
        entries[:] = [entry for part in clock for entry in part]
        times = read_times(entries, "time", len(entries))
        clocks = clocks_of(columns.get("group"), len(lengths), "group")
        sorted_rows = SortedRows(lambda row: f"time[{sequence[row]}][{rank[row]}]", sequence, str, clocks)
        frame = frame_numbers(times.values, step, sorted_rows, "time", snap)
        metadata = with_time_metadata(metadata, times, step, sequence)
        last = np.cumsum(lengths)[lengths > 0] - 1
        lengths[lengths > 0] = frame[last] + 1
    elif step is not None or snap is not False:
        given = "snap" if step is None else "step"
        raise ValueError(f"{given} is given without time: pass time=, one array of times per sequence")
    marks = joined.pop("observed", None)
    if marks is not None and marks.dtype != np.bool_ and marks.size:
        raise TypeError(f"observed has dtype {marks.dtype}: pass booleans")
    observations = joined.pop("observations", None)
    rows = FrameRows(
        sequence=sequence,
        frame=frame,
        lengths=lengths,
        observations=None if observations is None else Column(observations, is_nan(observations)),
        steps={field: read_column(part, field) for field, part in joined.items()},
        observed=None if marks is None else marks.astype(bool),
        times=None if times is None else times.values,
        covariates=moving,
    )
    rows = hold_covariates(rows, missing_covariates, metadata.covariate_names or (), str)
    return pad_rows(rows, columns, missing, metadata, coded=coded)


def read_episodes(
    episodes: Any, last: str, as_states: bool, with_actions: bool, action_names: Sequence[str]
) -> tuple[dict[str, list[np.ndarray] | None], list[Any] | None]:
    """Lists of observations, states and actions, one array per episode, and the keys of a mapping.

    Parameters are those of `Trajectories.from_episodes`, and the names of actions, if any.
    """
    require_one_of("last", last, ("keep", "drop"))
    require_flag("as_states", as_states)
    require_flag("with_actions", with_actions)
    read, keys = _episode_arrays(episodes)
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


def _joined(part: Iterable[Any], field: str) -> tuple[np.ndarray, np.ndarray]:
    """Rows of all arrays of a field, those of observations with a feature axis, and the lengths of the arrays.

    An array is made of some lists at a time, since many small arrays take more memory than their numbers.
    """
    values = part if isinstance(part, np.ndarray) and part.ndim else as_list(field, part)
    if not len(values):
        raise ValueError(f"{field} is empty: give one array per sequence, for at least one sequence")
    lengths, blocks, model = np.zeros(len(values), np.int64), [], None
    for start in range(0, len(values), BLOCK):
        arrays = []
        for number, value in enumerate(values[start : start + BLOCK], start):
            array = _array(value, f"{field}[{number}]", field == "observations")
            lengths[number] = len(array)
            arrays.append(array)
            if field == "observations" and len(array):
                model = model or (number, array.shape[1])
                if array.shape[1] != model[1]:
                    raise ValueError(
                        f"observations[{number}] has {array.shape[1]} features, but observations[{model[0]}] has "
                        f"{model[1]}: all sequences need the same features"
                    )
        blocks.append(_concatenated(arrays))
    return blocks[0] if len(blocks) == 1 else _concatenated(blocks), lengths


def _array(value: Any, name: str, has_features: bool) -> np.ndarray:
    array = read_entries(name, value)
    if has_features:
        array = as_floats(array) if array.dtype == object else array
        array = array[:, None] if array.ndim == 1 else array
    shape = "(time,) or (time, feature)" if has_features else "(time,)"
    if array.ndim != 1 + has_features:
        raise ValueError(f"{name} has shape {array.shape}, not {shape}")
    numbers = array.dtype.kind in "biuf" or jnp.issubdtype(array.dtype, jnp.floating)
    if has_features and len(array) and not numbers:
        raise TypeError(f"{name} has dtype {array.dtype}: pass floats or integers")
    return array


def _concatenated(arrays: list[np.ndarray]) -> np.ndarray:
    """All rows; an empty array determines neither dtype nor width, and numbers beside text stay numbers."""
    filled = [array for array in arrays if len(array)] or arrays[:1]
    if len({array.dtype.kind == "U" for array in filled}) > 1:
        filled = [array.astype(object) for array in filled]
    return np.concatenate(filled)


def _common_lengths(counts: Mapping[str, np.ndarray]) -> np.ndarray:
    (first, lengths), *others = counts.items()
    for field, own in others:
        if len(own) != len(lengths):
            raise ValueError(f"{field} has {len(own)} sequences, but {first} has {len(lengths)}")
        for number in np.flatnonzero(own != lengths)[:1]:
            raise ValueError(
                f"{field}[{number}] has {own[number]} frames, but {first}[{number}] has {lengths[number]}: "
                "mark what is missing with -1"
            )
    return lengths


def _episode_arrays(episodes: Any) -> tuple[list[EpisodeArrays], list[Any] | None]:
    """Arrays of every episode, and the keys of a mapping of episodes; as in `Trajectories.from_episodes`."""
    if not isinstance(episodes, Mapping):
        listed = enumerate(as_list("episodes", episodes, "one episode each"))
        return [_arrays_of(episode, f"episode {number}") for number, episode in listed], None
    if {"observations", "actions"} <= set(episodes):
        return list(_cut(episodes)), None
    whole = all(isinstance(key, int | np.integer) and key >= 0 for key in episodes)
    keys = [key if whole else str(key) for key in episodes]
    return [_arrays_of(episode, f"episode {key!r}") for key, episode in episodes.items()], keys


def _arrays_of(episode: Any, place: str) -> EpisodeArrays:
    for names in (("observations", "actions"), ("obs", "acts")):
        of = episode.get if isinstance(episode, Mapping) else lambda name: getattr(episode, name, None)
        parts = {f"{name} of {place}": of(name) for name in names}
        if all(part is not None for part in parts.values()):
            observations, actions = (_array_of(part, what) for what, part in parts.items())
            return place, observations, actions
    raise TypeError(f"{place} is {type(episode).__name__} without observations and actions (or obs and acts)")


def _array_of(part: Any, what: str) -> np.ndarray:
    if not isinstance(part, np.ndarray | list) and not hasattr(part, "__array__"):
        raise TypeError(f"{what} is {type(part).__name__}: flatten it to an array (time, feature)")
    array = read_array(what, part)
    if array.ndim == 0:
        raise ValueError(f"{what} is a single value: give one per frame")
    return array


def _cut(flat: Mapping[str, Any]) -> Iterator[EpisodeArrays]:
    """The episodes of a flat dictionary, in order; what follows the last end is an episode too."""
    names = [name for name in ("observations", "actions", "next_observations", *ENDS) if name in flat]
    parts = {name: _array_of(flat[name], f"{name} of episodes") for name in names}
    ends = [name for name in ENDS if name in parts]
    if not ends:
        raise ValueError(
            "episodes is a dictionary of observations and actions without terminals and timeouts: give these, or "
            "[episodes] if it is one episode"
        )
    count = len(parts["observations"])
    for name, part in parts.items():
        if len(part) != count or not count:
            raise ValueError(
                f"{name} of episodes has {len(part)} steps, observations {count}: give one entry per step"
            )
    last = np.arange(count) == count - 1
    for name in ends:
        part = parts[name]
        if part.size != count or part.dtype.kind not in "biuf" or not np.isin(part, (0, 1)).all():
            raise TypeError(
                f"{name} of episodes is not one boolean per step: it marks the last steps of episodes"
            )
        last |= part.reshape(count) == 1
    seen, after = parts["observations"], parts.get("next_observations")
    if after is not None:
        _check_next(seen, after, last)
    stops = np.flatnonzero(last) + 1
    for number, (start, stop) in enumerate(zip([0, *stops[:-1]], stops, strict=True)):
        here = seen[start:stop]
        if after is not None:
            here = np.concatenate([here, after[stop - 1 : stop]])
        yield f"episode {number}", here, parts["actions"][start:stop]


def _check_next(seen: np.ndarray, after: np.ndarray, last: np.ndarray) -> None:
    """Raise ValueError where the next observation is another than that of the next step of the same episode."""
    if after.shape != seen.shape:
        raise ValueError(f"next_observations of episodes has shape {after.shape}, observations {seen.shape}")
    same = (after[:-1] == seen[1:]) | (is_nan(after[:-1]) & is_nan(seen[1:]))
    torn = ~last[:-1] & ~same.reshape(len(same), -1).all(axis=1)
    if torn.any():
        step = int(torn.argmax())
        raise ValueError(
            f"next_observations[{step}] of episodes is not observations[{step + 1}], and no episode ends there: "
            "mark the ends in timeouts, or leave next_observations out"
        )
