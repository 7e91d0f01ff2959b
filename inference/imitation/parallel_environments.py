"""Parallel environments by duck type: their spaces, and a pool of them, each at the state of one game.

An environment of PettingZoo's parallel API is an object with ``possible_agents``, ``agents``, ``reset(seed=)``,
``step(actions)``, ``action_space(agent)``; nothing is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ethogram.models.arguments import read_array

__all__ = ["ActionSpace", "EnvironmentPool", "GameKey", "Moved", "check_environment", "read_space"]

TOLERANCE = 1e-4
"""Relative and absolute difference up to which two observations are the same: machines round differently."""

GameKey = tuple[int, int, bytes]
"""State of a game: seed, joint actions since the reset, and their bytes."""


class ActionSpace(NamedTuple):
    """Actions that all agents have.

    Attributes
    ----------
    num_actions : of a Discrete space; None for a Box.
    start : lowest integer of a Discrete space.
    low, high : (agent, dim), bounds of a Box, flattened; actions are clipped to them.
    shapes : (agent,) shapes of one action of a Box.
    dtype : of the actions.
    """

    num_actions: int | None
    start: int
    low: np.ndarray
    high: np.ndarray
    shapes: tuple[tuple[int, ...], ...]
    dtype: np.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one action in arrays: () of integers, (dim,) of reals."""
        return () if self.num_actions is not None else self.low.shape[1:]

    def legal(self, actions: np.ndarray) -> np.ndarray:
        """Actions (agent, ...) in the dtype of the space and within its bounds."""
        if self.num_actions is not None:
            return actions.astype(self.dtype)
        if actions.shape != self.low.shape:
            raise ValueError(
                f"actions have shape {actions.shape} for each game: give {self.low.shape}, (agent, dim)"
            )
        return np.clip(actions.astype(self.dtype), self.low, self.high)

    def foreign(self, actions: np.ndarray) -> list[Any]:
        """One action an agent, as the environment takes it."""
        if self.num_actions is not None:
            return [self.start + int(action) for action in actions]
        return [action.reshape(shape) for action, shape in zip(actions, self.shapes, strict=True)]


class Moved(NamedTuple):
    """One game after a joint action."""

    observations: np.ndarray  # (agent, feature)
    reached: bool
    ended: bool  # by termination of all agents


class Live(NamedTuple):
    """An environment, with the latest observations by agent."""

    environment: Any
    seen: dict[str, Any]


class EnvironmentPool:
    """Environments at the states of games; states that have none are played again from their seeds.

    Parameters are those of `PettingZooWorld`.
    """

    def __init__(
        self,
        make: Callable[[], Any],
        first: Any,
        agents: Sequence[str],
        space: ActionSpace,
        others: Callable[[np.random.Generator, dict[str, Any]], Mapping[str, Any]] | None,
        goal: Callable[[np.ndarray, np.ndarray], bool] | None,
    ):
        self.make, self.agents, self.space, self.others, self.goal = make, agents, space, others, goal
        self._idle: list[Any] = [first]
        self._live: dict[GameKey, list[Live]] = {}

    def begin(self, seeds: Sequence[int]) -> np.ndarray:
        """Observations (game, agent, feature) after resets; environments at other states are used again."""
        self._idle += [live.environment for lives in self._live.values() for live in lives]
        self._live = {}
        observations = []
        for seed in seeds:
            environment = self._idle.pop() if self._idle else self.make()
            observations.append(self._keep((seed, 0, b""), self._reset(environment, seed)))
        return np.stack(observations)

    def move(
        self,
        key: GameKey,
        history: np.ndarray,
        expected: np.ndarray,
        actions: np.ndarray,
        needed: Collection[GameKey],
    ) -> Moved:
        """A game one joint action later.

        Parameters
        ----------
        key : state of the game, after the joint actions `history` (time, agent, ...).
        expected : observations (agent, feature) there.
        actions : (agent, ...) legal ones.
        needed : states whose environments are not to be used for another game.
        """
        lives = self._live.get(key, [])
        live = lives.pop() if lives else self._played_again(key, history, expected, needed)
        if not lives:
            self._live.pop(key, None)
        live, rewards, ended = self._advance(live, key[0], key[1], actions)
        after = (key[0], key[1] + 1, np.concatenate([history, actions[None]]).tobytes())
        observations = self._keep(after, live)
        if observations.shape != expected.shape or not np.can_cast(
            observations.dtype, expected.dtype, "same_kind"
        ):
            raise ValueError(
                f"the environment of seed {key[0]} observes {observations.dtype} of shape {observations.shape} after "
                f"{key[1] + 1} joint actions, and {expected.dtype} {expected.shape} before: give one type and size"
            )
        return Moved(
            observations, ended if self.goal is None else self._reached(observations, rewards), ended
        )

    def _reached(self, observations: np.ndarray, rewards: np.ndarray) -> bool:
        assert self.goal is not None
        answer = np.asarray(self.goal(observations, rewards))
        if answer.shape or answer.dtype != bool:
            raise TypeError(f"goal returned {answer.dtype} of shape {answer.shape}: give True or False")
        return bool(answer)

    def _played_again(
        self, key: GameKey, history: np.ndarray, expected: np.ndarray, needed: Collection[GameKey]
    ) -> Live:
        seed = key[0]
        live = self._reset(self._idle_one(needed), seed)
        for time, actions in enumerate(history):
            live, _, _ = self._advance(live, seed, time, actions)
        found = self._observed(live.seen)
        if not np.allclose(found, expected, TOLERANCE, TOLERANCE):
            raise ValueError(
                f"the environment of seed {seed} observes something else after the same {len(history)} joint actions: "
                "it must be determined by the seed of its reset and the actions"
            )
        return live

    def _idle_one(self, needed: Collection[GameKey]) -> Any:
        """An environment to be reset: an idle one, the one at the oldest state that is not needed, or a new one."""
        if self._idle:
            return self._idle.pop()
        for key in self._live:
            if key not in needed:
                lives = self._live[key]
                live = lives.pop()
                if not lives:
                    del self._live[key]
                return live.environment
        return self.make()

    def _keep(self, key: GameKey, live: Live) -> np.ndarray:
        self._live.setdefault(key, []).append(live)
        return self._observed(live.seen)

    def _reset(self, environment: Any, seed: int) -> Live:
        answer = environment.reset(seed=seed)
        if not isinstance(answer, tuple) or len(answer) != 2:
            raise TypeError(
                f"reset of {type(environment).__name__} returns no pair of observations and infos: give an environment "
                "of the parallel API of PettingZoo 1.23 or later"
            )
        return Live(environment, dict(answer[0]))

    def _advance(
        self, live: Live, seed: int, time: int, actions: np.ndarray
    ) -> tuple[Live, np.ndarray, bool]:
        """The environment after one joint action, rewards (agent,), and whether all agents have terminated."""
        environment = live.environment
        for name in self.agents:
            if name not in environment.agents:
                raise ValueError(
                    f"{name} has left the environment of seed {seed} after {time} joint actions: give a smaller "
                    "horizon, or an environment in which the agents of policies stay until the end"
                )
        joint = dict(zip(self.agents, self.space.foreign(actions), strict=True))
        rest = [name for name in environment.agents if name not in joint]
        if rest:
            assert self.others is not None
            chosen = self.others(np.random.default_rng([seed, time]), live.seen)
            if not isinstance(chosen, Mapping):
                raise TypeError(f"others returned {type(chosen).__name__}: give actions by name, of {rest}")
            for name in rest:
                if name not in chosen:
                    raise ValueError(f"others returned no action of {name!r}: give one for each of {rest}")
                joint[name] = chosen[name]
        answer = environment.step(joint)
        if not isinstance(answer, tuple) or len(answer) != 5:
            raise TypeError(
                f"step of {type(environment).__name__} returns no observations, rewards, terminations, truncations and "
                "infos: give an environment of the parallel API of PettingZoo 1.23 or later"
            )
        seen, rewards, terminated = answer[:3]
        ended = all(terminated.get(name, False) for name in self.agents)
        earned = np.array([float(rewards.get(name, 0.0)) for name in self.agents])
        return Live(environment, live.seen | seen), earned, ended

    def _observed(self, seen: Mapping[str, Any]) -> np.ndarray:
        """Observations (agent, feature), flattened."""
        rows = []
        for name in self.agents:
            if name not in seen:
                raise ValueError(f"the environment gave no observation of {name!r}")
            if isinstance(seen[name], Mapping | tuple):
                raise TypeError(
                    f"the observation of {name!r} is {type(seen[name]).__name__}: flatten it to an array in a wrapper"
                )
            row = read_array(f"the observation of {name!r}", seen[name]).ravel()
            if row.dtype.kind not in "biuf" or not np.isfinite(row).all():
                raise ValueError(f"the observation of {name!r} is {row}: it must consist of finite numbers")
            rows.append(row)
        if len({len(row) for row in rows}) > 1:
            sizes = {name: len(row) for name, row in zip(self.agents, rows, strict=True)}
            raise ValueError(
                f"agents have observations of sizes {sizes}: give agents= of one size, or pad them in a wrapper"
            )
        return np.stack(rows)


def check_environment(environment: Any) -> None:
    """Raise TypeError for what is no parallel environment."""
    kind = type(environment).__name__
    if callable(getattr(environment, "agent_iter", None)):
        raise TypeError(
            f"make returns {kind}, whose agents take turns: give a parallel environment (aec_to_parallel)"
        )
    missing = [
        name for name in ("reset", "step", "action_space") if not callable(getattr(environment, name, None))
    ]
    missing += [] if hasattr(environment, "possible_agents") else ["possible_agents"]
    if missing:
        raise TypeError(
            f"make returns {kind} without {', '.join(missing)}: give an environment of the parallel API"
        )


def read_space(environment: Any, agents: Sequence[str]) -> ActionSpace:
    """The actions of some agents; a ValueError or TypeError where they differ in number or size, or are of no use."""
    spaces = {name: environment.action_space(name) for name in agents}
    counts: dict[str, Any] = {name: getattr(space, "n", None) for name, space in spaces.items()}
    discrete = [np.ndim(count) == 0 and count is not None for count in counts.values()]
    if all(discrete):
        starts = {name: int(getattr(space, "start", 0)) for name, space in spaces.items()}
        if len(set(counts.values())) > 1 or len(set(starts.values())) > 1:
            raise ValueError(f"agents have action numbers {counts} from {starts}: give agents= of one number")
        number = int(counts[agents[0]])
        nothing = np.zeros((len(agents), 0))
        dtype = np.dtype(np.int16 if number < 2**15 else np.int64)
        return ActionSpace(number, starts[agents[0]], nothing, nothing, ((),) * len(agents), dtype)
    for name, space in spaces.items():
        if not all(hasattr(space, part) for part in ("low", "high", "shape")):
            raise TypeError(f"the action space of {name!r} is {space}: give Discrete or Box for all agents")
    sizes = {name: int(np.prod(space.shape)) for name, space in spaces.items()}
    if len(set(sizes.values())) > 1:
        raise ValueError(f"agents have actions of sizes {sizes}: give agents= of one size")
    low, high = (
        np.stack([np.broadcast_to(getattr(space, end), space.shape).ravel() for space in spaces.values()])
        for end in ("low", "high")
    )
    if low.dtype.kind != "f":
        raise TypeError(
            f"the action space of {agents[0]!r} is {spaces[agents[0]]}: give a Box of reals, or Discrete"
        )
    return ActionSpace(None, 0, low, high, tuple(space.shape for space in spaces.values()), low.dtype)
