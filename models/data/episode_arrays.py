"""Observations and actions of recorded episodes: objects or dictionaries, several or one flat dictionary of all."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ethogram.models.arguments import as_list, read_array
from ethogram.models.data.padding import is_nan

__all__ = ["episode_arrays"]

EpisodeArrays = tuple[str, np.ndarray, np.ndarray]
"""How messages call an episode, its observations (T,) or (T + 1,) and actions (T,), perhaps with more axes."""

# What flat dictionaries call the last steps of their episodes.
ENDS = ("terminals", "timeouts", "terminations", "truncations")


def episode_arrays(episodes: Any) -> tuple[list[EpisodeArrays], list[Any] | None]:
    """Arrays of every episode, and the keys of a mapping of episodes; as in `Trajectories.from_episodes`."""
    if not isinstance(episodes, Mapping):
        listed = enumerate(as_list("episodes", episodes, "one episode each"))
        return [_read(episode, f"episode {number}") for number, episode in listed], None
    if {"observations", "actions"} <= set(episodes):
        return list(_cut(episodes)), None
    whole = all(isinstance(key, int | np.integer) and key >= 0 for key in episodes)
    keys = [key if whole else str(key) for key in episodes]
    return [_read(episode, f"episode {key!r}") for key, episode in episodes.items()], keys


def _read(episode: Any, place: str) -> EpisodeArrays:
    for names in (("observations", "actions"), ("obs", "acts")):
        of = episode.get if isinstance(episode, Mapping) else lambda name: getattr(episode, name, None)
        parts = {f"{name} of {place}": of(name) for name in names}
        if all(part is not None for part in parts.values()):
            observations, actions = (_array(part, what) for what, part in parts.items())
            return place, observations, actions
    raise TypeError(f"{place} is {type(episode).__name__} without observations and actions (or obs and acts)")


def _array(part: Any, what: str) -> np.ndarray:
    if not isinstance(part, np.ndarray | list) and not hasattr(part, "__array__"):
        raise TypeError(f"{what} is {type(part).__name__}: flatten it to an array (time, feature)")
    array = read_array(what, part)
    if array.ndim == 0:
        raise ValueError(f"{what} is a single value: give one per frame")
    return array


def _cut(flat: Mapping[str, Any]) -> Iterator[EpisodeArrays]:
    """The episodes of a flat dictionary, in order; what follows the last end is an episode too."""
    names = [name for name in ("observations", "actions", "next_observations", *ENDS) if name in flat]
    parts = {name: _array(flat[name], f"{name} of episodes") for name in names}
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
