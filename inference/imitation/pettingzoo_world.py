"""Environments of PettingZoo's parallel API as a world for `imitate`, by duck type; nothing is imported.

Such an environment is an object with ``possible_agents``, ``agents``, ``reset(seed=)``, ``step(actions)`` and
``action_space(agent)``, which cannot be copied in general, while `imitate` enters games at any step. A state is
therefore the seed of a reset and the joint actions since: everything that an environment determined by its seed is. The
environments of the latest states are kept, one for each game, so that rolling out costs one step of the environment per
step; only a state that is entered anew is played again from its seed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Int, Num

from ethogram.inference.imitation.roll_outs import roll_out
from ethogram.inference.imitation.world import (
    Demonstrations,
    put,
    read_actions,
    role_trajectories,
    sequences_of_games,
    take,
    team_features,
)
from ethogram.models.arguments import as_list, read_array, require_integer
from ethogram.models.data.trajectories import Metadata, Trajectories
from ethogram.models.printing import short_repr

__all__ = ["PettingZooState", "PettingZooWorld"]

TOLERANCE = 1e-4
"""Relative and absolute difference up to which two observations are the same: machines round differently."""


GameKey = tuple[int, int, bytes]
"""State of a game: seed, joint actions since the reset, and their bytes."""


@short_repr
class PettingZooState(NamedTuple):
    """Games at one step each.

    Attributes
    ----------
    seed : with which the environment was reset.
    time : joint actions since the reset.
    actions : these actions, 0 from `time` on; (game, step, agent), or (game, step, agent, dim) of reals.
    observations : the latest, flattened.
    ended : whether the environment has ended by termination; such a game stays as it is.
    """

    seed: Int[np.ndarray, "game"]
    time: Int[np.ndarray, "game"]
    actions: Num[np.ndarray, "game step agent ..."]
    observations: Num[np.ndarray, "game agent feature"]
    ended: Bool[np.ndarray, "game"]


class Live(NamedTuple):
    """An environment, with the latest observations by agent."""

    environment: Any
    seen: dict[str, Any]


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

    def to_env(self, actions: np.ndarray) -> list[Any]:
        """One action per agent, as the environment takes it."""
        if self.num_actions is not None:
            return [self.start + int(action) for action in actions]
        return [action.reshape(shape) for action, shape in zip(actions, self.shapes, strict=True)]


class PettingZooWorld:
    """A world of parallel environments, for `imitate`.

    Demonstrations have ``data.group``, the seed with which the environment of each was reset; :meth:`demonstrate` makes
    such. Observations of trajectories are what `role_features` gives, by default the agents' own observations, followed
    by real-valued actions; integer actions are ``data.actions``.

    An environment must be determined by the seed of its reset and the joint actions. What is played again is compared
    with what was observed, and a difference raises an error. A roll-out from the first state of a demonstration
    therefore sees the same random events as the demonstration while its actions agree. Memory is `max_steps` joint
    actions for each state that `imitate` keeps, and as many environments as games are played at once.

    Parameters
    ----------
    make : returns a new parallel environment.
    max_steps : most joint actions of a game; at least the horizon.
    agents : names of the agents that policies play, with actions of one size and observations of one size; all agents
        of the environment where None.
    others : ``others(rng, observations)`` returns the actions by name of all other agents, from the latest observations
        by name; `rng` is a NumPy generator that depends on the seed and the step.
    goal : ``goal(observations, rewards)`` of one game, arrays (agent, feature) and (agent,) after a step, returns
        whether the goal is reached. None: the environment terminates for all `agents`.
    features : ``features(roles, observations)``, arrays (game, agent) and (game, agent, feature), returns what policies
        see (game, agent, feature). None: the own observation, then those of team-mates in order of their roles.
    role_features : ``role_features(observations, actions)`` of rows, arrays (row, agent, feature) and (row, agent) or
        (row, agent, dim), returns what the role model observes (row, agent, feature).
    """

    def __init__(
        self,
        make: Callable[[], Any],
        max_steps: int,
        *,
        agents: Iterable[str] | None = None,
        others: Callable[[np.random.Generator, dict[str, Any]], Mapping[str, Any]] | None = None,
        goal: Callable[[np.ndarray, np.ndarray], bool] | None = None,
        features: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None,
        role_features: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None,
    ):
        require_integer("max_steps", max_steps, 1)
        given = {"make": make, "others": others, "goal": goal, "features": features}
        for name, function in (given | {"role_features": role_features}).items():
            if not callable(function) and (function is not None or name == "make"):
                raise TypeError(f"{name} is {type(function).__name__}: give a function")
        environment = make()
        check_environment(environment)
        known = list(environment.possible_agents)
        chosen = known if agents is None else as_list("agents", agents, "one name per agent")
        if not chosen or len(set(chosen)) != len(chosen) or not set(chosen) <= set(known):
            raise ValueError(f"agents is {chosen}: give distinct names out of {known}")
        if others is None and len(chosen) < len(known):
            left = [name for name in known if name not in chosen]
            raise ValueError(f"others is None, but nobody acts for {left}: give their policy")
        self.make, self.max_steps, self.agents, self.others, self.goal = make, max_steps, chosen, others, goal
        self.features, self.own_role_features = features, role_features
        self.space = read_space(environment, chosen)
        self.num_agents, self.num_actions = len(chosen), self.space.num_actions
        self._live: dict[GameKey | None, list[Live]] = {None: [Live(environment, {})]}

    def reset(self, rng: np.random.Generator, num_games: int) -> PettingZooState:
        """First states of fresh games, with random seeds."""
        return self._begin(rng.integers(2**31, size=num_games))

    def step(
        self, rng: np.random.Generator, state: PettingZooState, actions: np.ndarray
    ) -> tuple[PettingZooState, Bool[np.ndarray, "game"]]:
        """States after joint actions, and whether each game has reached its goal; nothing depends on `rng`.

        A game whose environment has ended by termination stays as it is. A ValueError where an agent has left it for
        another reason, or `max_steps` are over.
        """
        after = PettingZooState(*(np.array(part) for part in state))
        reached = np.zeros(len(after.seed), bool)
        keys = {game: _key(after, game) for game in np.flatnonzero(~after.ended).tolist()}
        needed = set(keys.values())
        for game, key in keys.items():
            seed, now = int(after.seed[game]), int(after.time[game])
            if now >= self.max_steps:
                raise ValueError(f"the game of seed {seed} has {now} joint actions: give a larger max_steps")
            legal = self.space.legal(actions[game])
            live = self._take(key)
            if live is None:
                live = self._enter(key, after.actions[game, :now], after.observations[game], needed)
            live, rewards, ended = self._advance(live, seed, now, legal)
            observations = self._observed(live, like=after.observations[game])
            reached[game] = ended if self.goal is None else self._reached(observations, rewards)
            after.observations[game], after.ended[game] = observations, ended
            after.actions[game, now], after.time[game] = legal, now + 1
            self._live.setdefault(_key(after, game), []).append(live)
        return after, reached

    def observe(self, roles: Int[np.ndarray, "game agent"], state: PettingZooState) -> np.ndarray:
        """Features (game, agent, feature): `features`, or own observations, and team-mates' in order of their roles."""
        observations = np.asarray(state.observations)
        if self.features is not None:
            return self.features(roles, observations)
        return team_features(roles, observations)

    def role_features(self, state: PettingZooState, actions: np.ndarray) -> np.ndarray:
        """What the role model observes (row, agent, feature), real-valued actions last."""
        seen = np.asarray(state.observations)
        if self.own_role_features is not None:
            seen = read_array("what role_features returned", self.own_role_features(seen, actions))
            if seen.shape[:2] != actions.shape[:2] or seen.ndim != 3:
                raise ValueError(
                    f"role_features returned shape {seen.shape}: give (row, agent, feature) for {actions.shape[:2]}"
                )
        return seen if self.num_actions is not None else np.concatenate([seen, actions], axis=-1)

    def demonstrations(self, data: Trajectories) -> Demonstrations:
        """Games of trajectories, played again from their seeds, `data.group`, and compared with `data.observations`."""
        sequences = sequences_of_games(data, self.num_agents)
        if data.observations is None:
            raise ValueError("data.observations is None: give what role_features returns")
        if data.agent is not None and (np.asarray(data.agent)[sequences] != np.arange(self.num_agents)).any():
            raise ValueError(
                f"data.agent has another order: give the agents {self.agents} of a group in this order, 0 up"
            )
        lengths = np.asarray(data.lengths)[sequences[:, 0]].astype(int)
        seeds = np.asarray(data.group)[sequences[:, 0]].astype(np.int64)
        if lengths.max() > self.max_steps:
            raise ValueError(f"data.lengths has {lengths.max()}: give max_steps={lengths.max()} at least")
        actions = self._actions_of(data, sequences, lengths)
        state = self._begin(seeds)
        states, nothing = [state], np.random.default_rng(0)
        for time in range(int(lengths.max()) - 1):
            active = np.flatnonzero(lengths > time + 1)
            after, _ = self.step(nothing, take(state, active), actions[active, time])
            state = put(state, active, after)
            states.append(state)
        games = Demonstrations(
            PettingZooState(*(np.stack(parts, axis=1) for parts in zip(*states, strict=True))),
            actions[:, : lengths.max()],
            lengths,
        )
        self._compare(data, sequences, games)
        return games

    def demonstrate(
        self, seeds: Any, expert: Callable[[PettingZooState, np.ndarray], np.ndarray], horizon: int
    ) -> Trajectories:
        """Demonstrations by an expert, one from each seed, until their goal or for `horizon` steps.

        Parameters
        ----------
        seeds : (game,) distinct integers, 0 or above; `group` of the trajectories, which go by ascending seed.
        expert : ``expert(state, game)`` returns the actions (row, agent), or (row, agent, dim) of reals, in the games
            (row,) at their states; games are numbered by ascending seed, as in `imitate`.
        """
        require_integer("horizon", horizon, 1, self.max_steps)
        if not callable(expert):
            raise TypeError(f"expert is {type(expert).__name__}: give a function expert(state, game)")
        seeds = read_array("seeds", seeds)
        if seeds.ndim != 1 or seeds.dtype.kind not in "iu" or not 0 < len(set(seeds.tolist())) == len(seeds):
            raise ValueError(
                f"seeds is {seeds.dtype} of shape {seeds.shape}, or repeats: give distinct integers (game,)"
            )
        seeds = np.sort(seeds)
        if seeds[0] < 0 or seeds[-1] >= 2**31:
            raise ValueError(f"seeds is in {seeds[0]}..{seeds[-1]}: give integers from 0 to 2^31 - 1")

        def act(state: PettingZooState, game: np.ndarray) -> np.ndarray:
            return read_actions("expert", expert(state, game), len(game), self)

        first, limits = self._begin(seeds.astype(np.int64)), np.full(len(seeds), horizon)
        rolled, _ = roll_out(self, act, first, np.random.default_rng(0), limits)
        lengths = np.minimum(
            rolled.lengths, (~rolled.states.ended).sum(axis=1)
        )  # some end without their goal
        games = Demonstrations(rolled.states, rolled.actions, lengths)
        metadata = Metadata(agent_names=tuple(str(name) for name in self.agents))
        return role_trajectories(self, games, metadata)._replace(group=np.repeat(seeds, self.num_agents))

    def _begin(self, seeds: np.ndarray) -> PettingZooState:
        """Games after their reset."""
        begun = [self._reset(self._spare(), seed) for seed in seeds.tolist()]
        observations = np.stack([self._observed(live) for live in begun])
        for seed, live in zip(seeds.tolist(), begun, strict=True):
            self._live.setdefault((seed, 0, b""), []).append(live)
        count = len(seeds)
        actions = np.zeros((count, self.max_steps, self.num_agents, *self.space.shape), self.space.dtype)
        return PettingZooState(seeds, np.zeros(count, int), actions, observations, np.zeros(count, bool))

    def _spare(self, needed: Collection[GameKey] = ()) -> Any:
        """An environment to be reset: the one at the oldest state that is not needed, or a new one."""
        for key in self._live:
            if key not in needed and (live := self._take(key)):
                return live.environment
        return self.make()

    def _take(self, key: GameKey | None) -> Live | None:
        """An environment at a state, which is then no longer kept there."""
        lives = self._live.get(key, [])
        live = lives.pop() if lives else None
        if not lives:
            self._live.pop(key, None)
        return live

    def _enter(
        self, key: GameKey, actions: np.ndarray, expected: np.ndarray, needed: Collection[GameKey]
    ) -> Live:
        """An environment at a state, after its joint actions (time, agent, ...), whose observations are known."""
        seed = key[0]
        live = self._reset(self._spare(needed), seed)
        for time, joint in enumerate(actions):
            live, _, _ = self._advance(live, seed, time, joint)
        if not np.allclose(self._observed(live), expected, TOLERANCE, TOLERANCE):
            raise ValueError(
                f"the environment of seed {seed} observes something else after the same {len(actions)} joint actions: "
                "it must be determined by the seed of its reset and the actions"
            )
        return live

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
        joint = dict(zip(self.agents, self.space.to_env(actions), strict=True))
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

    def _observed(self, live: Live, like: np.ndarray | None = None) -> np.ndarray:
        """Observations (agent, feature), flattened; of the size and dtype of `like`."""
        rows = []
        for name in self.agents:
            if name not in live.seen:
                raise ValueError(f"the environment gave no observation of {name!r}")
            given = live.seen[name]
            if isinstance(given, Mapping | tuple):
                raise TypeError(
                    f"the observation of {name!r} is {type(given).__name__}: flatten it to an array in a wrapper"
                )
            row = read_array(f"the observation of {name!r}", given).ravel()
            if row.dtype.kind not in "biuf" or not np.isfinite(row).all():
                raise ValueError(f"the observation of {name!r} is {row}: it must consist of finite numbers")
            rows.append(row)
        if len({len(row) for row in rows}) > 1:
            sizes = {name: len(row) for name, row in zip(self.agents, rows, strict=True)}
            raise ValueError(
                f"agents have observations of sizes {sizes}: give agents= of one size, or pad them in a wrapper"
            )
        found = np.stack(rows)
        if like is not None and (
            found.shape != like.shape or not np.can_cast(found.dtype, like.dtype, "same_kind")
        ):
            raise ValueError(
                f"observations are {found.dtype} of shape {found.shape} after a joint action, and {like.dtype} "
                f"{like.shape} before: give one type and size"
            )
        return found

    def _reached(self, observations: np.ndarray, rewards: np.ndarray) -> bool:
        assert self.goal is not None
        answer = np.asarray(self.goal(observations, rewards))
        if answer.shape or answer.dtype != bool:
            raise TypeError(f"goal returned {answer.dtype} of shape {answer.shape}: give True or False")
        return bool(answer)

    def _actions_of(self, data: Trajectories, sequences: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Joint actions (game, time, agent), or (game, time, agent, dim) of reals, of demonstrations."""
        if self.num_actions is None:
            if data.observations is None or data.observations.shape[2] < self.space.shape[0]:
                raise ValueError(
                    f"data.observations must end with the {self.space.shape[0]} numbers of an action"
                )
            return np.asarray(data.observations, float)[sequences].swapaxes(1, 2)[..., -self.space.shape[0] :]
        if data.actions is None:
            raise ValueError("data.actions is None: give the actions of the demonstrations")
        actions = np.asarray(data.actions)[sequences].swapaxes(1, 2)
        inside = np.arange(actions.shape[1]) < lengths[:, None]
        for game, time, agent in np.argwhere((actions < 0) & inside[..., None])[:1]:
            raise ValueError(
                f"data.actions of group {_group_of(data, sequences[game, agent])} is -1 at step {time}: leave out the "
                "observation after the last action (last='drop')"
            )
        return np.maximum(actions, 0)

    def _compare(self, data: Trajectories, sequences: np.ndarray, games: Demonstrations) -> None:
        """Raise ValueError where the role model would see other demonstrations than the data."""
        given = np.asarray(data.observations)[sequences].swapaxes(1, 2)[:, : games.actions.shape[1]]
        game, time = np.nonzero(games.inside)
        seen = self.role_features(take(games.states, games.inside), games.actions[games.inside])
        if seen.shape[2] != given.shape[3]:
            raise ValueError(
                f"data.observations have {given.shape[3]} features, role_features and actions {seen.shape[2]}: "
                "give those of the role model"
            )
        same = np.isclose(seen, given[games.inside], TOLERANCE, TOLERANCE)
        for row, agent, feature in np.argwhere(~same)[:1]:
            raise ValueError(
                f"group {_group_of(data, sequences[game[row], 0])} has observation "
                f"{given[game[row], time[row], agent, feature]} at step {time[row]}, agent {agent}, feature {feature}, "
                f"but {seen[row, agent, feature]} when it is played again: data.group must be the seed that the "
                "environment was reset with"
            )


def _key(state: PettingZooState, game: int) -> tuple[int, int, bytes]:
    time = int(state.time[game])
    return int(state.seed[game]), time, state.actions[game, :time].tobytes()


def _group_of(data: Trajectories, sequence: Any) -> int:
    return int(np.asarray(data.group)[sequence])


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
