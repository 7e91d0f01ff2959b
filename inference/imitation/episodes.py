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

    Raises
    ------
    ValueError, TypeError
        For games of other agents than the first, episodes of one game that differ in length, numbers that are not
        finite, other sizes than in the first episode, and what is no episode; the message names the game and the agent.

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
    if not listed:
        raise ValueError("games is empty: give one game at least")
    names = list(listed[0])
    if not names:
        raise ValueError("game 0 is empty: give an episode of each agent")
    given = Metadata() if metadata is None else metadata
    if not isinstance(given, Metadata):
        raise TypeError(f"metadata is {type(given).__name__}: give a Metadata")
    places, seen, acted, kinds = [], [], [], []
    for number, game in enumerate(listed):
        if set(game) != set(names):
            raise ValueError(
                f"game {number} has the agents {list(game)}, game 0 {names}: give the same in every game"
            )
        here = [f"game {number}, agent {name!r}" for name in names]
        parts = [_arrays(game[name], place) for name, place in zip(names, here, strict=True)]
        places += here
        lengths = [len(acts) for _, acts in parts]
        if len(set(lengths)) > 1:
            raise ValueError(
                f"game {number} has episodes of {lengths} actions: the agents of a game act at the same steps"
            )
        kinds += [acts.dtype.kind == "f" for _, acts in parts]
        seen += [obs for obs, _ in parts]
        acted += [acts for _, acts in parts]
    if len(set(kinds)) > 1:
        raise TypeError("some episodes have integer actions, others reals: give one kind")
    if last == "drop" or kinds[0]:
        seen = [obs[:-1] for obs in seen]
    for place, obs, acts in zip(places, seen, acted, strict=True):
        _check_episode(place, obs, acts, seen[0], acted[0])
    if kinds[0]:
        if last == "keep":
            raise ValueError(
                "last is 'keep', but real-valued actions are features of every frame: use last='drop'"
            )
        seen = [np.concatenate([obs, acts], axis=1) for obs, acts in zip(seen, acted, strict=True)]
    elif last == "keep":
        acted = [np.append(acts, -1) for acts in acted]
    numbers = np.arange(len(listed)) if group is None else read_array("group", group, 1)
    if numbers.shape != (len(listed),) or len(np.unique(numbers)) < len(listed):
        raise ValueError(
            f"group has shape {numbers.shape}, or repeats: give one number for each of {len(listed)} games"
        )
    if numbers.dtype.kind in "if" and (numbers < 0).any():
        raise ValueError(f"group has {numbers.min()}: give integers from 0")
    if given.agent_names is None and not all(isinstance(name, int) for name in names):
        given = dataclasses.replace(given, agent_names=tuple(str(name) for name in names))
    return Trajectories.from_list(
        seen,
        actions=None if kinds[0] else acted,
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

    Raises
    ------
    ValueError, TypeError
        For missing frames or actions, arguments of the wrong shape, and episodes without an action.
    """
    check(data)
    require_one_of("last", last, ("error", "drop"))
    if data.observations is None:
        raise ValueError("data.observations is None: an episode consists of observations and actions")
    if data.actions is None and action_dim is None:
        raise ValueError(
            "data.actions is None: give action_dim, the number of last features that are actions"
        )
    if data.actions is not None and action_dim is not None:
        raise ValueError(f"data has actions, and action_dim is {action_dim}: leave it out, or data.actions")
    require_complete(data, "episodes need")
    count, lengths = data.num_sequences, np.asarray(data.lengths)
    observed = np.asarray(data.observed)
    observations = np.asarray(data.observations)
    ends = read_array("terminal", terminal)
    if ends.dtype != bool:
        raise TypeError(f"terminal has dtype {ends.dtype}: give booleans")
    if ends.shape not in ((), (count,)):
        raise ValueError(f"terminal has shape {ends.shape}: give one boolean, or ({count},)")
    ends = np.broadcast_to(ends, (count,))
    earned = None if rewards is None else read_array("rewards", rewards)
    if earned is not None and earned.shape != observed.shape:
        raise ValueError(f"rewards has shape {earned.shape}: give {observed.shape}, (sequence, time)")
    if earned is not None and earned.dtype.kind not in "iuf":
        raise TypeError(f"rewards has dtype {earned.dtype}: give numbers")
    if earned is not None:
        inside = np.arange(earned.shape[1]) < lengths[:, None] - 1
        for sequence, step in np.argwhere(~np.isfinite(earned) & inside)[:1]:
            raise ValueError(f"rewards of sequence {sequence} is {earned[sequence, step]} at step {step}")
    if action_dim is not None:
        require_integer("action_dim", action_dim, 1, observations.shape[2] - 1)
    make = _class_of_imitation(rewards is not None)
    episodes = []
    for sequence, length in enumerate(lengths.tolist()):
        if not observed[sequence, :length].all():
            step = int(np.argmin(observed[sequence, :length]))
            raise ValueError(
                f"sequence {sequence} has no observation at step {step}: an episode has no missing frames"
            )
        seen = observations[sequence, :length]
        if action_dim is not None:
            seen, acts = seen[:, :-action_dim], seen[:, -action_dim:]
            after = False
        else:
            acts = np.asarray(data.actions)[sequence, :length]
            after = length > 0 and acts[-1] < 0
        if not after and last == "error":
            raise ValueError(
                f"sequence {sequence} has no observation after its last action: last='drop' leaves the action out"
            )
        acts, ended = acts[:-1], bool(ends[sequence]) and after
        if not len(acts):
            raise ValueError(f"sequence {sequence} has {length} frames: an episode has one action at least")
        if action_dim is None and (acts < 0).any():
            raise ValueError(f"sequence {sequence} has no action at step {int(np.argmax(acts < 0))}")
        parts = {"obs": seen.copy(), "acts": acts.copy(), "infos": None, "terminal": ended}
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


def _arrays(episode: Any, place: str) -> tuple[np.ndarray, np.ndarray]:
    """Observations (T + 1, feature) and actions (T,) or (T, dim) of an episode."""
    for name in ("obs", "acts"):
        if not hasattr(episode, name):
            raise TypeError(
                f"{place} is {type(episode).__name__} without {name}: give an episode of imitation"
            )
        if isinstance(getattr(episode, name), Mapping) or hasattr(getattr(episode, name), "_d"):
            raise TypeError(f"{name} of {place} is a dictionary: flatten it to an array")
    obs, acts = read_array(f"obs of {place}", episode.obs), read_array(f"acts of {place}", episode.acts)
    if acts.ndim == 0 or len(obs) != len(acts) + 1:
        raise ValueError(
            f"{place} has obs of shape {obs.shape} and acts of shape {acts.shape}: give one observation more than "
            "actions"
        )
    if acts.dtype.kind not in "iuf" or obs.dtype.kind not in "biuf":
        raise TypeError(f"{place} has obs of dtype {obs.dtype} and acts of dtype {acts.dtype}: give numbers")
    if acts.dtype.kind != "f":
        acts = acts[:, 0] if acts.ndim == 2 and acts.shape[1] == 1 else acts
        if acts.ndim != 1:
            raise TypeError(f"{place} has acts of shape {acts.shape}: give one integer per step, or reals")
        if (acts < 0).any():
            raise ValueError(f"{place} has action {acts.min()}: integer actions are 0 and up")
    else:
        acts = acts.reshape(len(acts), math.prod(acts.shape[1:]))
    return obs.reshape(len(obs), math.prod(obs.shape[1:])), acts


def _check_episode(place: str, obs: np.ndarray, acts: np.ndarray, *first: np.ndarray) -> None:
    """Raise ValueError unless what is kept of an episode is finite, and of the sizes of the first one."""
    for name, array, like in zip(("obs", "acts"), (obs, acts), first, strict=True):
        if array.shape[1:] != like.shape[1:]:
            raise ValueError(
                f"{name} of {place} have shape {array.shape[1:]}, of the first episode {like.shape[1:]}: give one size"
            )
        for step in np.argwhere(~np.isfinite(array))[:1, 0]:
            raise ValueError(
                f"{name} of {place} are not finite at step {step}: give the game without such steps"
            )


def _class_of_imitation(with_rewards: bool) -> Any:
    """The library's class, else `Episode`."""
    try:
        from imitation.data import types
    except ImportError:
        return Episode
    return types.TrajectoryWithRew if with_rewards else types.Trajectory
