"""Episodes of a policy in an environment, with a record from which an interrupted evaluation resumes.

A record is a file of JSON lines: the settings, then one line per finished episode. A last line that an interrupt cut
short is ignored and overwritten.
"""

from __future__ import annotations

import inspect
import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ethogram.inference.checkpoint import Checkpoint
from ethogram.models.arguments import require_integer
from ethogram.models.printing import short_repr
from ethogram.models.whole_files import replacing

__all__ = ["Episodes", "begin_episode", "play_episodes"]


@short_repr
class Episodes(NamedTuple):
    """What happened in the episodes of a policy.

    Attributes
    ----------
    returns : (episode,) sums of rewards.
    rewards : one array (step,) per episode.
    actions : names of the actions of every step of every episode.
    states : names of the fluents that were true at every step of every episode; ``name=value`` where enumerated.
    seconds : (episode,) mean seconds of wall time per decision.
    """

    returns: np.ndarray
    rewards: tuple[np.ndarray, ...]
    actions: tuple[tuple[tuple[str, ...], ...], ...]
    states: tuple[tuple[tuple[str, ...], ...], ...]
    seconds: np.ndarray


def play_episodes(
    environment: Any,
    policy: Any,
    num_episodes: int = 30,
    *,
    seed: int = 0,
    record: str | os.PathLike[str] | None = None,
    settings: Mapping[str, Any] | None = None,
    progress_bar: bool = True,
) -> Episodes:
    """Episodes of a policy, each with a seed of its own.

    Parameters
    ----------
    environment : with ``reset(seed=)`` and ``step(actions)`` as gymnasium's, and states by name, as pyRDDLGym's.
    policy : with ``sample_action(state)``, which returns actions by name, and ``reset()`` if it has one; a ``reset``
        that takes a `seed` is given that of the episode.
    num_episodes : number of episodes.
    seed : of the first episode; the next ones follow.
    record : file of JSON lines, to which each finished episode is added. If it exists, with the same settings, its
        episodes are not played again.
    settings : of the policy, compared with those of the record: numbers, strings, arrays, lists and dicts of them.
    progress_bar : whether to show one after two seconds.

    Raises
    ------
    TypeError, ValueError : the record is of other settings or another seed, or cannot be read or written; or the
        environment gives a state that is not by name, or a reward that is not finite.
    BlockingIOError : another process has the record.
    """
    from tqdm.auto import tqdm

    require_integer("num_episodes", num_episodes, 1)
    require_integer("seed", seed, 0)
    for name, given, methods in (
        ("environment", environment, ("reset", "step")),
        ("policy", policy, ("sample_action",)),
    ):
        for method in methods:
            if not callable(getattr(given, method, None)):
                raise TypeError(f"{name} is {type(given).__name__}, which has no {method}()")
    if settings is not None and not isinstance(settings, Mapping):
        raise TypeError(f"settings is {type(settings).__name__}: expected values by name")
    given = _as_json({"seed": seed, **(settings or {})})
    file = None if record is None else _Record(record, given)
    with (
        Checkpoint(record, "record", None if file is None else file.add) as store,
        tqdm(total=num_episodes, disable=not progress_bar, delay=2.0) as bar,
    ):
        done = [] if file is None else file.read()
        bar.update(min(len(done), num_episodes))
        for number in range(len(done), num_episodes):
            done.append(_play(environment, policy, int(seed) + number))
            store.save([*done], len(done))
            bar.update()
            bar.set_postfix(mean=f"{np.mean([sum(each['rewards']) for each in done]):.1f}")
    done = done[:num_episodes]
    return Episodes(
        np.array([sum(each["rewards"]) for each in done]),
        tuple(np.array(each["rewards"]) for each in done),
        tuple(tuple(tuple(names) for names in each["actions"]) for each in done),
        tuple(tuple(tuple(names) for names in each["states"]) for each in done),
        np.array([each["seconds"] for each in done]),
    )


def begin_episode(policy: Any, seed: int) -> None:
    """Call the ``reset`` of a policy that has one, with the seed of the episode if it takes one."""
    if callable(reset := getattr(policy, "reset", None)):
        reset(**({"seed": seed} if "seed" in inspect.signature(reset).parameters else {}))


def _as_json(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as a record has them: numbers and arrays of NumPy as plain ones, tuples as lists, names as strings."""

    def plain(value: Any) -> Any:
        if hasattr(value, "tolist"):
            return value.tolist()
        if isinstance(value, os.PathLike):
            return os.fspath(value)
        raise TypeError(f"a {type(value).__name__}")

    found = {}
    for name, value in settings.items():
        try:
            found[str(name)] = json.loads(json.dumps(value, default=plain, sort_keys=True))
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"settings[{name!r}] is {value!r}, which no record can hold ({error}): give numbers, strings, arrays, "
                "or lists and dicts of these"
            ) from error
    return found


def _play(environment: Any, policy: Any, seed: int) -> dict[str, Any]:
    """One episode as a record."""
    state, _ = environment.reset(seed=seed)
    begin_episode(policy, seed)
    rewards: list[float] = []
    actions, states, spent = list[list[str]](), list[list[str]](), list[float]()
    over = False
    while not over:
        begin = time.perf_counter()
        action = policy.sample_action(state)
        spent.append(time.perf_counter() - begin)
        states.append(_names("environment gave a state", state))
        actions.append(_names("policy gave actions", action))
        state, reward, ended, cut, _ = environment.step(action)
        if not np.isfinite(reward):
            raise ValueError(f"the environment gave reward {reward} at step {len(rewards)} of seed {seed}")
        rewards.append(float(reward))
        over = bool(ended or cut)
    return {"seconds": float(np.mean(spent)), "rewards": rewards, "actions": actions, "states": states}


def _names(what: str, values: Any) -> list[str]:
    """Names of what is true, and values of what is enumerated."""
    if not isinstance(values, Mapping):
        raise TypeError(f"{what} as {type(values).__name__}: expected values by name")
    found = []
    for name, value in values.items():
        if isinstance(value, str):
            found.append(f"{name}={value.lstrip('@')}")
        elif value:
            found.append(name)
    return found


class _Record:
    """A record of episodes with some settings."""

    def __init__(self, path: str | os.PathLike[str], settings: Mapping[str, Any]):
        self.path, self.settings = path, settings
        self.num_bytes = self.num_episodes = 0  # of whole lines that were read or written

    def read(self) -> list[dict[str, Any]]:
        """Episodes of the record; none if there is no file.

        Raises
        ------
        ValueError : it is no record, an episode is damaged, or the settings are others.
        """
        if not os.path.exists(self.path):
            return []
        try:
            content = Path(self.path).read_bytes()
            *lines, _ = content.split(b"\n")  # what follows the last line break was cut short
            first, *episodes = (json.loads(line) for line in lines)
            settings = dict(first["settings"])
            for each in episodes:
                lengths = {len(each[name]) for name in ("rewards", "actions", "states")}
                if len(lengths) != 1 or not np.isfinite([*each["rewards"], each["seconds"]]).all():
                    raise ValueError("an episode is damaged")
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"{self.path} is not a record of episodes: remove it, or choose another file"
            ) from error
        names = sorted({*settings, *self.settings})
        pairs = [(name, settings.get(name), self.settings.get(name)) for name in names]
        differing = [
            f"{name} {recorded!r} in place of {given!r}"
            for name, recorded, given in pairs
            if json.dumps(recorded) != json.dumps(given)
        ]
        if differing:
            raise ValueError(
                f"{self.path} is a record with {', '.join(differing)}: remove it, or choose another file"
            )
        self.num_bytes, self.num_episodes = sum(len(line) + 1 for line in lines), len(episodes)
        return episodes

    def add(self, episodes: Sequence[Mapping[str, Any]]) -> None:
        """Write those of all episodes that are not in the record yet, after its last whole line."""
        if not self.num_bytes:
            first = json.dumps({"settings": self.settings}).encode() + b"\n"
            with replacing(self.path) as file:
                file.write(first)
            self.num_bytes = len(first)
        lines = b"".join(json.dumps(each).encode() + b"\n" for each in episodes[self.num_episodes :])
        with open(self.path, "r+b") as file:
            file.seek(self.num_bytes)
            file.truncate()
            file.write(lines)
            file.flush()
            os.fsync(file.fileno())
        self.num_bytes += len(lines)
        self.num_episodes = len(episodes)
