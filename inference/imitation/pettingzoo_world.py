"""Environments of PettingZoo's parallel API as a world for `imitate`, by duck type.

Such an environment is an object that cannot be copied in general, while `imitate` enters games at any step. A state is
therefore the seed of a reset and the joint actions since: everything that an environment determined by its seed is.
Environments at the states that were reached last are kept, one for each game that is played at the same time, so that
rolling out costs one step of the environment a step; only a state that is entered anew is played again from its seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Int, Num

from ethogram.inference.imitation.parallel_environments import (
    TOLERANCE,
    EnvironmentPool,
    check_environment,
    read_space,
)
from ethogram.inference.imitation.world import Replay, read_actions, sequences_of_games, take
from ethogram.models.arguments import as_list, read_array, require_integer
from ethogram.models.data.trajectories import Metadata, Trajectories
from ethogram.models.printing import short_repr

__all__ = ["PettingZooState", "PettingZooWorld"]


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


class PettingZooWorld:
    """A world of parallel environments, for `imitate`.

    Demonstrations have ``data.group``, the seed with which the environment of each was reset; :meth:`demonstrate` makes
    such. Observations of trajectories are what `role_features` gives, by default the agents' own observations, followed
    by real-valued actions; integer actions are ``data.actions``.

    An environment must be determined by the seed of its reset and the joint actions. What is played again is compared
    with what was observed, and a difference raises an error. A roll-out from the first state of a demonstration
    therefore meets the same chance as the demonstration, as long as it acts like it. Memory is `max_steps` joint
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
    role_features : ``role_features(observations, actions)`` of one game, arrays (time, agent, feature) and (time,
        agent) or (time, agent, dim), returns what the role model sees (time, agent, feature).

    Raises
    ------
    ValueError, TypeError
        For what is no parallel environment, spaces other than Discrete or Box, or of several sizes, and unknown agents.
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
        self.max_steps, self.agents, self.features, self.role_features = (
            max_steps,
            chosen,
            features,
            role_features,
        )
        self.space = read_space(environment, chosen)
        self.num_agents, self.num_actions = len(chosen), self.space.num_actions
        self._pool = EnvironmentPool(make, environment, chosen, self.space, others, goal)

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
        playing = np.flatnonzero(~after.ended).tolist()
        keys = {game: _key(after, game) for game in playing}
        needed, reached = set(keys.values()), np.zeros(len(after.seed), bool)
        for game, key in keys.items():
            now = key[1]
            if now >= self.max_steps:
                raise ValueError(
                    f"the game of seed {key[0]} has {now} joint actions: give a larger max_steps"
                )
            legal, expected = self.space.legal(actions[game]), after.observations[game]
            moved = self._pool.move(key, after.actions[game, :now], expected, legal, needed)
            after.observations[game], reached[game], after.ended[game] = moved
            after.actions[game, now], after.time[game] = legal, now + 1
        return after, reached

    def observe(self, roles: Int[np.ndarray, "game agent"], state: PettingZooState) -> np.ndarray:
        """Features (game, agent, feature): `features`, or own observations, and team-mates' in order of their roles."""
        observations = np.asarray(state.observations)
        if self.features is not None:
            return self.features(roles, observations)
        by_role, games = np.argsort(roles, axis=1), np.arange(len(roles))[:, None]
        num_agents, width = observations.shape[1:]
        found = np.empty((len(roles), num_agents, num_agents * width), observations.dtype)
        found[:, :, :width] = observations
        for place in range(num_agents):
            mates = np.delete(by_role, place, axis=1)
            found[games, by_role[:, place, None], width:] = observations[games, mates].reshape(
                len(roles), 1, -1
            )
        return found

    def replay(self, data: Trajectories) -> Replay:
        """Demonstrations, played again from their seeds in `data.group`, and compared with `data.observations`."""
        sequences = sequences_of_games(data, self.num_agents)
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
            changed = [np.array(part) for part in state]
            for part, new in zip(changed, after, strict=True):
                part[active] = new
            state = PettingZooState(*changed)
            states.append(state)
        together = PettingZooState(*(np.stack(parts, axis=1) for parts in zip(*states, strict=True)))
        self._compare(data, sequences, together.observations, actions, lengths)
        return Replay(together, actions, lengths)

    def record(self, states: PettingZooState, actions: np.ndarray, lengths: np.ndarray) -> Trajectories:
        """Roll-outs as trajectories like the demonstrations, but with the number of the game as `group`."""
        return self._recorded(states.observations, actions, lengths, np.arange(len(lengths)))

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
        if (
            seeds.ndim != 1
            or not seeds.size
            or seeds.dtype.kind not in "iu"
            or len(set(seeds.tolist())) < len(seeds)
        ):
            raise ValueError(
                f"seeds is {seeds.dtype} of shape {seeds.shape}, or repeats: give distinct integers (game,)"
            )
        seeds = np.sort(seeds)
        if seeds[0] < 0 or seeds[-1] >= 2**31:
            raise ValueError(f"seeds is in {seeds[0]}..{seeds[-1]}: give integers from 0 to 2^31 - 1")
        state, active = self._begin(seeds.astype(np.int64)), np.arange(len(seeds))
        lengths, nothing = np.zeros(len(seeds), int), np.random.default_rng(0)
        steps: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        while len(active) and len(steps) < horizon:
            acted = read_actions("expert", expert(state, active), len(active), self)
            steps.append((active, state.observations, acted))
            lengths[active] += 1
            state, reached = self.step(nothing, state, acted)
            goes_on = ~(reached | state.ended)
            active, state = active[goes_on], take(state, goes_on)
        whole = [np.zeros((len(seeds), len(steps), *part.shape[1:]), part.dtype) for part in steps[0][1:]]
        for time, (games, *parts) in enumerate(steps):
            for into, part in zip(whole, parts, strict=True):
                into[games, time] = part
        observations, acted = whole
        return self._recorded(observations, acted, lengths, seeds)

    def _begin(self, seeds: np.ndarray) -> PettingZooState:
        observations = self._pool.begin(seeds.tolist())
        count = len(seeds)
        actions = np.zeros((count, self.max_steps, self.num_agents, *self.space.shape), self.space.dtype)
        return PettingZooState(seeds, np.zeros(count, int), actions, observations, np.zeros(count, bool))

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

    def _seen_by_roles(self, observations: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """What the role model sees of one game (time, agent, feature), real-valued actions last."""
        seen = observations
        if self.role_features is not None:
            seen = read_array("what role_features returned", self.role_features(observations, actions))
        if seen.shape[:2] != observations.shape[:2] or seen.ndim != 3:
            raise ValueError(
                f"role_features returned shape {seen.shape}: give (time, agent, feature) for {observations.shape[:2]}"
            )
        for time, agent, feature in np.argwhere(~np.isfinite(seen))[:1]:
            raise ValueError(
                f"role_features returned {seen[time, agent, feature]} at step {time}, agent {agent}, feature {feature}"
            )
        return seen if self.num_actions is not None else np.concatenate([seen, actions], axis=-1)

    def _recorded(
        self, observations: np.ndarray, actions: np.ndarray, lengths: np.ndarray, group: np.ndarray
    ) -> Trajectories:
        rows, acted = [], []
        for game, length in enumerate(lengths.tolist()):
            seen = self._seen_by_roles(observations[game, :length], actions[game, :length])
            rows += list(seen.swapaxes(0, 1))
            acted += list(actions[game, :length].swapaxes(0, 1))
        return Trajectories.from_list(
            rows,
            actions=acted if self.num_actions is not None else None,
            agent=np.tile(np.arange(self.num_agents), len(lengths)),
            group=np.repeat(group, self.num_agents),
            metadata=Metadata(agent_names=tuple(str(name) for name in self.agents)),
            codes=True,
        )

    def _compare(
        self,
        data: Trajectories,
        sequences: np.ndarray,
        observations: np.ndarray,
        actions: np.ndarray,
        lengths: np.ndarray,
    ) -> None:
        """Raise ValueError where the role model would see other demonstrations than the data."""
        if data.observations is None:
            raise ValueError("data.observations is None: give what role_features returns")
        given = np.asarray(data.observations)[sequences].swapaxes(1, 2)
        for game, length in enumerate(lengths.tolist()):
            seen = self._seen_by_roles(observations[game, :length], actions[game, :length])
            group = _group_of(data, sequences[game, 0])
            if seen.shape != given[game, :length].shape:
                raise ValueError(
                    f"data.observations have {given.shape[-1]} features, role_features and actions {seen.shape[-1]}: "
                    "give those of the role model"
                )
            same = np.isclose(seen, given[game, :length], TOLERANCE, TOLERANCE)
            for time, agent, feature in np.argwhere(~same)[:1]:
                raise ValueError(
                    f"group {group} has observation {given[game, time, agent, feature]} at step {time}, agent {agent}, "
                    f"feature {feature}, but {seen[time, agent, feature]} when it is played again: data.group must be "
                    "the seed that the environment was reset with"
                )


def _key(state: PettingZooState, game: int) -> tuple[int, int, bytes]:
    time = int(state.time[game])
    return int(state.seed[game]), time, state.actions[game, :time].tobytes()


def _group_of(data: Trajectories, sequence: Any) -> int:
    return int(np.asarray(data.group)[sequence])
