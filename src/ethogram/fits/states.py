"""Hidden states of data under a fit, by name: what they were at every step, as arrays and as a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from ethogram.models.arguments import require_integer, warn_user
from ethogram.models.data import Trajectories

__all__ = ["HiddenStates", "names_of_states", "renamed", "warn_of_rare"]

RARE, ENOUGH = 0.01, 1000
"""Share of the frames that a state seldom holds, and frames from which on this says something."""

FRAMES = 2**22
"""Frames that are counted at a time."""


class HiddenStates:
    """Hidden states of trajectories; it unpacks as, and has the attributes of, what found them.

    That is an `InferredRoles`, an `InferredIntents` or a `RewardIntents`.

    Attributes
    ----------
    path : (sequence, time), the most probable state of each step, -1 beyond the length.
    probability : (sequence, time, state), zero beyond the length.
    names : (state,) names of the states.
    data : the trajectories.
    """

    def __init__(self, found: Any, names: tuple[str, ...], data: Trajectories) -> None:
        self._found, self.names, self.data = found, names, data
        self.path: Int[np.ndarray, "sequence time"] = found.path if hasattr(found, "path") else found.labels
        self.probability: Float[np.ndarray, "sequence time state"] = found.probability

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # while an object is copied it has no attributes yet
            raise AttributeError(name)
        return getattr(self._found, name)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._found)

    def __repr__(self) -> str:
        frames = self.frames
        shares = ", ".join(
            f"{name} {100 * count / max(frames.sum(), 1):.0f} %"
            for name, count in zip(self.names, frames, strict=True)
        )
        return f"HiddenStates of {len(self.path)} sequences, {frames.sum()} frames: {shares}"

    @property
    def frames(self) -> Int[np.ndarray, "state"]:
        """Recorded frames (state,) of which each state is the most probable."""
        frames = np.zeros(len(self.names), int)
        size = max(FRAMES // self.path.shape[1], 1)
        for rows in (slice(start, start + size) for start in range(0, len(self.path), size)):
            frames += np.bincount(
                self.path[rows][np.asarray(self.data.observed[rows])], minlength=len(frames)
            )
        return frames

    def to_table(self) -> Any:
        """The data with their states: a pandas DataFrame, one row per recorded frame, in the data's own times.

        Columns are those of `Trajectories.to_table`, then ``state``, its name, and ``probability``, that of the state;
        features of these names become ``feature_state`` and ``feature_probability``.
        """
        import pandas

        table, recorded = self.data.to_table(), np.asarray(self.data.observed)
        path = self.path[recorded]
        chance = np.minimum(np.take_along_axis(self.probability[recorded], path[:, None], -1)[:, 0], 1)
        names = pandas.Categorical.from_codes(path, list(self.names))
        features = {name: f"feature_{name}" for name in ("state", "probability")}
        return table.rename(columns=features).assign(state=names, probability=chance)


def warn_of_rare(states: HiddenStates) -> None:
    """Warn of states of few frames, which positions that a device got wrong often are."""
    frames = states.frames
    rare = np.flatnonzero((frames > 0) & (frames < RARE * frames.sum()))
    if len(rare) and frames.sum() >= ENOUGH:
        held = ", ".join(f"{states.names[state]} {frames[state]}" for state in rare)
        warn_user(
            f"states hold less than 1 % of the {frames.sum()} frames ({held}): look at these in states().to_table(), "
            "since errors of a device often become a state of their own; max_speed= of readers takes jumps as "
            "missing, swapped= of egocentric poses turned round"
        )


def names_of_states(count: int, given: Mapping[int, str]) -> tuple[str, ...]:
    """The names (state,) of states; those without one are called by their numbers."""
    return tuple(given.get(state, str(state)) for state in range(count))


def renamed(count: int, names: Mapping[Any, Any], given: Mapping[int, str]) -> dict[int, str]:
    """Names by number, after some are given: by the number or the present name of a state."""
    if not isinstance(names, Mapping):
        raise TypeError(f"names is {type(names).__name__}: give a mapping such as {{0: 'rest', 1: 'walk'}}")
    present = {name: state for state, name in enumerate(names_of_states(count, given))}
    found = dict(given)
    for state, name in names.items():
        if isinstance(state, str):
            if state not in present:
                raise ValueError(f"names has the state {state!r}: the states are {', '.join(present)}")
            state = present[state]
        state = require_integer("a state of names", state, 0, count - 1)
        if not isinstance(name, str) or not name.strip():
            raise TypeError(f"names[{state}] is {name!r}: give a string that is not empty")
        found[state] = name
    every = names_of_states(count, found)
    twice = next((name for name in every if every.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"names would call two states {twice!r}: give every state a name of its own")
    return found
