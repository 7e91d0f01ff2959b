"""Episodes of a policy in an environment, with a record that a broken evaluation goes on from."""

from __future__ import annotations

import inspect
import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ethogram.inference.checkpoint import check_path
from ethogram.models.arguments import require_integer, warn_user
from ethogram.models.whole_files import replacing

__all__ = ["Episodes", "begin_episode", "play_episodes"]


class Episodes(NamedTuple):
    """What happened in the episodes of a policy.

    Attributes
    ----------
    returns : (episode,) sums of rewards.
    rewards : one array (step,) an episode.
    actions : names of the actions of every step of every episode.
    states : names of the fluents that were true at every step of every episode; ``name=value`` where enumerated.
    seconds : (episode,) mean seconds of wall time a decision.
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
    stop: Callable[[], bool] | None = None,
) -> Episodes:
    """Episodes of a policy, each with a seed of its own.

    Parameters
    ----------
    environment : with ``reset(seed=)`` and ``step(actions)`` as gymnasium's, and states by name, as pyRDDLGym's.
    policy : with ``sample_action(state)``, which returns actions by name, and ``reset()`` if it has one; a ``reset``
        that takes a `seed` is given that of the episode.
    num_episodes : number of episodes.
    seed : of the first episode; the next ones follow.
    record : JSON file that is written after each episode. Where it is there already, with the same settings, its
        episodes are not played again.
    settings : of the policy, compared with those of the record: numbers, strings, arrays, lists and dicts of them.
    progress_bar : whether to show one after two seconds.
    stop : called after each episode; True ends the evaluation.

    Raises
    ------
    TypeError, ValueError : the record is of other settings or another seed, or cannot be read or written; or the
        environment gives a state that is not by name, or a reward that is not finite.
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
    told = _as_json({"seed": seed, **(settings or {})})
    done = []
    if record is not None:
        check_path(record, "record")
        done = _read(Path(record), told)
    with tqdm(
        total=num_episodes, initial=min(len(done), num_episodes), disable=not progress_bar, delay=2.0
    ) as bar:
        for number in range(len(done), num_episodes):
            done.append(_play(environment, policy, int(seed) + number))
            if record is not None:
                try:
                    _write(Path(record), told, done)
                except OSError as error:  # what was played is in memory
                    warn_user(f"the record was not written, and the episodes go on: {error}")
            bar.update()
            bar.set_postfix(mean=f"{np.mean([sum(each['rewards']) for each in done]):.1f}")
            if stop is not None and stop():
                break
    done = done[:num_episodes]
    return Episodes(
        np.array([sum(each["rewards"]) for each in done]),
        tuple(np.array(each["rewards"]) for each in done),
        tuple(tuple(tuple(names) for names in each["actions"]) for each in done),
        tuple(tuple(tuple(names) for names in each["states"]) for each in done),
        np.array([each["seconds"] for each in done]),
    )


def begin_episode(policy: Any, seed: int) -> None:
    """Tell a policy that has a ``reset`` that an episode begins, with the seed if it takes one."""
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


def _read(path: Path, told: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Episodes of a record of the same settings."""
    if not path.exists():
        return []
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        settings, episodes = dict(content["settings"]), list(content["episodes"])
        for each in episodes:
            lengths = {len(each[name]) for name in ("rewards", "actions", "states")}
            if len(lengths) != 1 or not np.isfinite([*each["rewards"], each["seconds"]]).all():
                raise ValueError("an episode is damaged")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is not a record of episodes: remove it, or choose another file") from error
    apart = [
        name for name in {*settings, *told} if json.dumps(settings.get(name)) != json.dumps(told.get(name))
    ]
    if apart:
        what = ", ".join(
            f"{name} {settings.get(name)!r} in place of {told.get(name)!r}" for name in sorted(apart)
        )
        raise ValueError(f"{path} is a record with {what}: remove it, or choose another file")
    return episodes


def _write(path: Path, told: Mapping[str, Any], done: list[dict[str, Any]]) -> None:
    """Write a record, whole or not at all."""
    returns = [sum(each["rewards"]) for each in done]
    error = float(np.std(returns, ddof=1) / np.sqrt(len(returns))) if len(returns) > 1 else None
    content = {
        "settings": dict(told),
        "mean": float(np.mean(returns)),
        "standard_error": error,
        "returns": returns,
        "episodes": done,
    }
    with replacing(path, "w", encoding="utf-8") as file:
        file.write(json.dumps(content, indent=1) + "\n")
