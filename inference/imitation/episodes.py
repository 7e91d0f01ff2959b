"""Episodes of single agents, as the library imitation records them, to trajectories of teams and back.

By duck type: an episode has ``obs`` (T + 1, ...), ``acts`` (T, ...), ``infos`` and ``terminal``, perhaps ``rews`` (T,).
Where the library is installed, its own classes come back.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from ethogram.models.arguments import as_list, read_array, require_integer, require_one_of
from ethogram.models.data.gaps import require_complete
from ethogram.models.data.trajectories import Metadata, Trajectories, check
from ethogram.models.printing import short_repr

__all__ = ["Episode", "team_from_episodes", "team_to_episodes"]


@short_repr
class Episode(NamedTuple):
    """What `team_to_episodes` returns without the library imitation: the fields of its trajectories.

    Attributes
    ----------
    obs : (T + 1, feature), the last one after the last action.
    acts : (T,) integers, or (T, dim) reals.
    infos : (T,) dictionaries; None for none.
    terminal : whether the episode has ended.
    rews : (T,); None for none.
    """

    obs: np.ndarray
    acts: np.ndarray
    infos: Any
    terminal: bool
    rews: np.ndarray | None = None


def team_from_episodes(
    games: Iterable[Any], *, group: Any = None, last: str = "drop", metadata: Metadata | None = None
) -> Trajectories:
    """Trajectories of teams: one sequence per agent, one group per game.

    Integer actions become ``actions``. Real-valued ones become the last features of ``observations``, where
    `PettingZooWorld` looks for them. Rewards, infos and terminal flags are not read.

    Parameters
    ----------
    games : each a mapping from names of agents to episodes, with the same names in every game, or a list of episodes in
        order of the agents. Agents are numbered in the order of the first game.
    group : (game,) integers, such as seeds; 0, 1, ... where None.
    last : ``"drop"`` or ``"keep"`` the observation after the last action, as a frame whose action is -1. `imitate`
        needs one action per frame.
    metadata : names and units.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> def episode(start):
    ...     return SimpleNamespace(obs=[[start], [start + 1.0]], acts=[2], infos=None, terminal=True)
    >>> data = team_from_episodes([{"ann": episode(0.0), "bob": episode(5.0)}])
    >>> data.observations[:, 0, 0].tolist(), data.group.tolist(), data.metadata.agent_names
    ([0.0, 5.0], [0, 0], ('ann', 'bob'))
    """
    require_one_of("last", last, ("drop", "keep"))
    listed = [_by_name(game, number) for number, game in enumerate(as_list("games", games, "one game each"))]
    if not listed or not listed[0]:
        raise ValueError(f"games is {listed}: give one game at least, with an episode of each agent")
    if metadata is not None and not isinstance(metadata, Metadata):
        raise TypeError(f"metadata is {type(metadata).__name__}: give a Metadata")
    names, given = list(listed[0]), Metadata() if metadata is None else metadata
    episodes: dict[str, dict[str, np.ndarray]] = {}
    for number, game in enumerate(listed):
        if set(game) != set(names):
            raise ValueError(
                f"game {number} has the agents {list(game)}, game 0 {names}: give the same in every game"
            )
        places = [f"game {number}, agent {name!r}" for name in names]
        parts = {place: _arrays(game[name], place, last) for place, name in zip(places, names, strict=True)}
        lengths = [len(part["actions"]) for part in parts.values()]
        if len(set(lengths)) > 1:
            raise ValueError(
                f"game {number} has episodes of {lengths} actions: the agents of a game act at the same steps"
            )
        episodes |= parts
    kinds = {part["actions"].dtype.kind == "f" for part in episodes.values()}
    if len(kinds) > 1:
        raise TypeError("some episodes have integer actions, others reals: give one kind")
    (real,) = kinds
    if real and last == "keep":
        raise ValueError(
            "last is 'keep', but real-valued actions are features of every frame: use last='drop'"
        )
    if real:
        for part in episodes.values():
            part["observations"] = np.concatenate([part["observations"], part["actions"]], axis=1)
    numbers = np.arange(len(listed)) if group is None else read_array("group", group, 1)
    if numbers.shape != (len(listed),) or len(np.unique(numbers)) < len(listed):
        raise ValueError(
            f"group has shape {numbers.shape}, or repeats: give one number for each of {len(listed)} games"
        )
    if numbers.dtype.kind in "if" and (numbers < 0).any():
        raise ValueError(f"group has {numbers.min()}: give integers from 0")
    if given.agent_names is None and not all(isinstance(name, int) for name in names):
        given = dataclasses.replace(given, agent_names=tuple(str(name) for name in names))
    return Trajectories.from_episodes(
        episodes,
        with_actions=not real,
        agent=np.tile(np.arange(len(names)), len(listed)),
        group=np.repeat(numbers, len(names)),
        metadata=given,
        codes=("agent", "actions"),
    )


def team_to_episodes(
    data: Trajectories,
    *,
    terminal: Any = False,
    rewards: Any = None,
    last: str = "error",
    action_dim: int | None = None,
) -> list[Any]:
    """One episode for each sequence, in order, for the library imitation.

    Parameters
    ----------
    data : such as ``result.played`` of an imitation, without missing frames.
    terminal : (sequence,) booleans, or one for all: whether the episode has ended.
    rewards : (sequence, time), of each action; None for none.
    last : an episode has an observation after its last action. Where data have none, as roll-outs of `imitate`,
        ``"drop"`` leaves out the last action, after which the episode counts as not ended; ``"error"`` raises.
    action_dim : last features that are real-valued actions, where ``data.actions`` is None.

    Returns
    -------
    Objects of imitation's ``Trajectory``, or with `rewards` of its ``TrajectoryWithRew``, where it is installed; else
    `Episode`.
    """
    check(data)
    require_one_of("last", last, ("error", "drop"))
    if data.observations is None:
        raise ValueError("data.observations is None: an episode consists of observations and actions")
    if (data.actions is None) != (action_dim is not None):
        raise ValueError(
            f"data has {'no ' if data.actions is None else ''}actions, and action_dim is {action_dim}: give action_dim "
            "where there are none, the number of last features that are actions, and only there"
        )
    require_complete(data, "episodes need")
    observations, lengths = np.asarray(data.observations), np.asarray(data.lengths)
    inside = np.arange(observations.shape[1]) < lengths[:, None]
    for sequence, step in np.argwhere(inside & ~np.asarray(data.observed))[:1]:
        raise ValueError(
            f"sequence {sequence} has no observation at step {step}: an episode has no missing frames"
        )
    ends = read_array("terminal", terminal)
    if ends.dtype != bool or ends.shape not in ((), lengths.shape):
        raise ValueError(
            f"terminal is {ends.dtype} of shape {ends.shape}: give one boolean, or {lengths.shape} of them"
        )
    earned = None if rewards is None else read_array("rewards", rewards)
    if earned is not None:
        if earned.shape != inside.shape or earned.dtype.kind not in "iuf":
            raise ValueError(
                f"rewards is {earned.dtype} of shape {earned.shape}: give numbers {inside.shape}, (sequence, time)"
            )
        for sequence, step in np.argwhere(~np.isfinite(earned[:, :-1]) & inside[:, 1:])[:1]:
            raise ValueError(f"rewards of sequence {sequence} is {earned[sequence, step]} at step {step}")
    if action_dim is not None:
        require_integer("action_dim", action_dim, 1, observations.shape[2] - 1)
        observations, acted = observations[..., :-action_dim], observations[..., -action_dim:]
        after = np.zeros(lengths.shape, bool)  # whether the last frame is the one after the last action
    else:
        acted = np.asarray(data.actions)
        after = acted[np.arange(len(lengths)), lengths - 1] < 0
        for sequence, step in np.argwhere((acted[:, :-1] < 0) & inside[:, 1:])[:1]:
            raise ValueError(f"sequence {sequence} has no action at step {step}")
    for sequence in np.flatnonzero(lengths < 2)[:1]:
        raise ValueError(
            f"sequence {sequence} has {lengths[sequence]} frames: an episode has one action at least"
        )
    for sequence in np.flatnonzero(~after)[:1]:
        if last == "error":
            raise ValueError(
                f"sequence {sequence} has no observation after its last action: last='drop' leaves the action out"
            )
    make, ended, episodes = _class_of_imitation(earned is not None), ends & after, []
    for sequence, length in enumerate(lengths.tolist()):
        parts = {
            "obs": observations[sequence, :length].copy(),
            "acts": acted[sequence, : length - 1].copy(),
            "infos": None,
            "terminal": bool(ended[sequence]),
        }
        if earned is not None:
            parts["rews"] = earned[sequence, : length - 1].astype(float)
        episodes.append(make(**parts))
    return episodes


def _by_name(game: Any, number: int) -> dict[Any, Any]:
    if isinstance(game, Mapping):
        return dict(game)
    if isinstance(game, str) or hasattr(game, "acts") or not isinstance(game, Iterable):
        raise TypeError(
            f"game {number} is {type(game).__name__}: give a mapping from agents to episodes, or a list of episodes"
        )
    return dict(enumerate(game))


def _arrays(episode: Any, place: str, last: str) -> dict[str, np.ndarray]:
    """Finite observations (T or T + 1, feature) and actions (T,) or (T, dim) of an episode."""
    found = []
    for name in ("obs", "acts"):
        if not hasattr(episode, name):
            raise TypeError(
                f"{place} is {type(episode).__name__} without {name}: give an episode of imitation"
            )
        part = getattr(episode, name)
        if isinstance(part, Mapping) or hasattr(part, "_d"):
            raise TypeError(f"{name} of {place} is a dictionary: flatten it to an array")
        found.append(read_array(f"{name} of {place}", part))
    obs, acts = found
    if acts.dtype.kind not in "iuf" or obs.dtype.kind not in "biuf":
        raise TypeError(f"{place} has obs of dtype {obs.dtype} and acts of dtype {acts.dtype}: give numbers")
    if acts.ndim == 0 or len(obs) != len(acts) + 1:
        raise ValueError(
            f"{place} has obs of shape {obs.shape} and acts of shape {acts.shape}: give one observation more than "
            "actions"
        )
    if acts.dtype.kind == "f":
        acts = acts.reshape(len(acts), math.prod(acts.shape[1:]))
    elif (acts < 0).any():
        raise ValueError(f"{place} has action {acts.min()}: integer actions are 0 and up")
    obs = obs.reshape(len(obs), math.prod(obs.shape[1:]))[: None if last == "keep" else -1]
    for name, array in {"obs": obs, "acts": acts}.items():
        for step in np.argwhere(~np.isfinite(array))[:1, 0]:
            raise ValueError(
                f"{name} of {place} are not finite at step {step}: give the game without such steps"
            )
    return {"observations": obs, "actions": acts}


def _class_of_imitation(with_rewards: bool) -> Any:
    """The library's class, else `Episode`."""
    try:
        from imitation.data import types
    except ImportError:
        return Episode
    return types.TrajectoryWithRew if with_rewards else types.Trajectory
