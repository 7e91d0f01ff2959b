"""What `imitate` needs of a world, many games at once, and checks of what a world answers.

State, actions and everything else lead with the axis of the games, so that one call of a policy serves a step of all
games. A state is any pytree of NumPy arrays; `jax.tree` slices it.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import jax
import numpy as np
from jaxtyping import Int

from ethogram.models.arguments import read_array, require_integer
from ethogram.models.data.action_numbers import rolled_out
from ethogram.models.data.selection import label_name
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.printing import short_repr

__all__ = [
    "Replay",
    "World",
    "check_world",
    "observe",
    "read_actions",
    "record",
    "replay",
    "require_state",
    "sequences_of_games",
    "step",
    "take",
]


@short_repr
class Replay(NamedTuple):
    """Demonstrations as a world sees them.

    Attributes
    ----------
    states : pytree of arrays (game, time, ...), the state before each joint action.
    actions : (game, time, agent) integers, or (game, time, agent, dim) reals; anything beyond the length.
    lengths : (game,), joint actions in each game, at least 1 and at most its frames.
    """

    states: Any
    actions: np.ndarray
    lengths: Int[np.ndarray, "game"]


class World(Protocol):
    """A world in which several agents act at once, vectorised over games.

    Attributes
    ----------
    num_agents : agents that policies play, at least 1.
    num_actions : actions are integers 0, ..., num_actions - 1; None for vectors of reals.
    """

    num_agents: int
    num_actions: int | None

    def reset(self, rng: np.random.Generator, num_games: int) -> Any:
        """First states of `num_games` fresh games."""

    def step(self, rng: np.random.Generator, state: Any, actions: np.ndarray) -> tuple[Any, np.ndarray]:
        """States after the joint actions (game, agent), and whether each game has reached its goal (game,).

        States have the types of those of `reset` and `replay`: reals are not stored in integers.
        """

    def observe(self, roles: np.ndarray, state: Any) -> np.ndarray:
        """Features (game, agent, feature) of each agent in its role.

        `roles` (game, agent) has distinct entries in a row. Team-mates are visible, in order of their roles, so that a
        feature means the same in every game.
        """

    def replay(self, data: Trajectories) -> Replay:
        """The demonstrations, in ascending order of their groups, agents in order of appearance."""

    def record(self, states: Any, actions: np.ndarray, lengths: np.ndarray) -> Trajectories:
        """Roll-outs, laid out as in `Replay`, as trajectories like the demonstrations.

        One sequence an agent, game by game; `group` is the game, and observations are those of the role model.
        """


METHODS = ("reset", "step", "observe", "replay", "record")


def check_world(world: Any) -> None:
    """Raise TypeError or ValueError unless a world has the methods and sizes of `World`."""
    if isinstance(world, type):
        raise TypeError(f"world is the class {world.__name__}: give an object of it")
    missing = [name for name in METHODS if not callable(getattr(world, name, None))]
    if missing:
        raise TypeError(
            f"world is {type(world).__name__} without {', '.join(missing)}: define {', '.join(METHODS)}"
        )
    for name in ("num_agents", "num_actions"):
        if not hasattr(world, name):
            raise TypeError(f"world is {type(world).__name__} without {name}: give it this attribute")
    require_integer("world.num_agents", world.num_agents, 1)
    if world.num_actions is not None:
        require_integer("world.num_actions", world.num_actions, 1)


def sequences_of_games(data: Trajectories, num_agents: int) -> Int[np.ndarray, "game agent"]:
    """Sequence numbers of the agents of each game, games in ascending order of their groups.

    A ValueError if sequences have no group, or a group has not `num_agents` sequences of one length.
    """
    if data.group is None:
        raise ValueError("data.group is None: imitation needs the game (demonstration) of every sequence")
    group, lengths = np.asarray(data.group), np.asarray(data.lengths)
    if (group < 0).any():
        raise ValueError(f"data.group[{np.argmax(group < 0)}] is -1: leave sequences without a game out")
    games, counts = np.unique(group, return_counts=True)
    for at in np.flatnonzero(counts != num_agents)[:1]:
        raise ValueError(
            f"group {label_name(data, 'group', games[at])} has {counts[at]} sequences, the world "
            f"num_agents={num_agents}: give one sequence for each agent in every group"
        )
    sequences = np.argsort(group, kind="stable").reshape(-1, num_agents)
    uneven = (lengths[sequences] != lengths[sequences[:, :1]]).any(axis=1) | (lengths[sequences[:, 0]] < 1)
    for at in np.flatnonzero(uneven)[:1]:
        raise ValueError(
            f"group {label_name(data, 'group', games[at])} has sequences of lengths {lengths[sequences[at]].tolist()}: "
            "the agents of a group act at the same steps, at least one"
        )
    return sequences


def take(state: Any, rows: Any) -> Any:
    """The states of some games."""
    return jax.tree.map(lambda leaf: np.asarray(leaf)[rows], state)


def replay(world: Any, data: Trajectories, sequences: Int[np.ndarray, "game agent"]) -> Replay:
    """Checked demonstrations of a world."""
    given = world.replay(data)
    if not isinstance(given, tuple) or len(given) != 3:
        raise TypeError("world.replay must return a Replay: states, actions, lengths")
    states, actions, lengths = given
    num_games, frames = len(sequences), np.asarray(data.lengths)[sequences[:, 0]]
    lengths = np.asarray(lengths)
    if lengths.shape != (num_games,) or (lengths < 1).any() or (lengths > frames).any():
        raise ValueError(
            f"world.replay returned lengths {lengths.tolist()[:8]} of shape {lengths.shape}: give the joint actions of "
            f"each game, from 1 to its frames, {frames.tolist()[:8]}"
        )
    inside = np.arange(np.shape(actions)[1] if np.ndim(actions) > 1 else 0) < lengths[:, None]
    if inside.shape[1] < lengths.max():
        raise ValueError(
            f"world.replay returned actions of shape {np.shape(actions)}: give (game, time, agent)"
        )
    for leaf in jax.tree.leaves(states):
        if np.shape(leaf)[:2] != inside.shape:
            raise ValueError(
                f"world.replay returned a state of shape {np.shape(leaf)}: give (game, time) = {inside.shape} first"
            )
    require_state(take(states, inside), "world.replay")
    actions = np.asarray(actions)
    legal = read_actions("world.replay", actions[inside], int(lengths.sum()), world)
    # Answers of experts are stored beside these, and may not fit into a narrower type.
    return Replay(states, actions.astype(legal.dtype), lengths)


def observe(world: Any, roles: Int[np.ndarray, "game agent"], state: Any) -> np.ndarray:
    """Checked features (game, agent, feature)."""
    features = read_array("what world.observe returned", world.observe(roles, state))
    if features.ndim != 3 or features.shape[:2] != roles.shape:
        raise ValueError(
            f"world.observe returned shape {features.shape}: give (game, agent, feature) for {roles.shape}"
        )
    if features.dtype.kind not in "iufb":
        raise TypeError(f"world.observe returned {features.dtype}: give numbers")
    if not np.isfinite(features).all():
        game, agent, feature = np.argwhere(~np.isfinite(features))[0]
        raise ValueError(
            f"world.observe returned {features[game, agent, feature]} for game {game}, agent {agent}, "
            f"feature {feature}: features must be finite"
        )
    return features


def step(world: Any, rng: np.random.Generator, state: Any, actions: np.ndarray) -> tuple[Any, np.ndarray]:
    """Checked states after joint actions, and which games have reached their goal."""
    given = world.step(rng, state, actions)
    if not isinstance(given, tuple) or len(given) != 2:
        raise TypeError(
            "world.step must return a pair: the state, and whether each game has reached its goal"
        )
    after, done = given
    tree, expected = (str(jax.tree.structure(x)) for x in (after, state))
    if tree != expected:
        raise ValueError(f"world.step returned a state of structure {tree}, expected {expected}")
    require_state(after, "world.step")
    for old, new in zip(jax.tree.leaves(state), jax.tree.leaves(after), strict=True):
        came, before = np.asarray(new), np.asarray(old)
        if came.shape != before.shape:
            raise ValueError(f"world.step returned a state of shape {came.shape}, expected {before.shape}")
        if not np.can_cast(came.dtype, before.dtype, "same_kind"):
            raise TypeError(
                f"world.step returned a state of {came.dtype} after one of {before.dtype}, which would be rounded: "
                "let reset and replay return the same type"
            )
    done = np.asarray(done)
    if done.shape != (len(actions),) or done.dtype != bool:
        raise ValueError(
            f"world.step returned goals as {done.dtype} of shape {done.shape}: give booleans ({len(actions)},)"
        )
    return after, done


def record(world: Any, states: Any, actions: np.ndarray, lengths: np.ndarray) -> Trajectories:
    """Checked trajectories of roll-outs, one sequence per agent, game by game."""
    with rolled_out():
        data = world.record(states, actions, lengths)
    if not isinstance(data, Trajectories):
        raise TypeError(f"world.record returned {type(data).__name__}: give Trajectories")
    num_agents = world.num_agents
    expected = np.repeat(np.arange(len(lengths)), num_agents)
    if data.group is None or not np.array_equal(data.group, expected):
        raise ValueError(
            "world.record returned other groups than the games: give one sequence per agent, game by game, from 0"
        )
    if not np.array_equal(data.lengths, np.repeat(lengths, num_agents)):
        raise ValueError("world.record returned other lengths than those of the games")
    return data


def read_actions(origin: str, actions: Any, num_rows: int, world: Any) -> np.ndarray:
    """Legal joint actions (row, agent), or (row, agent, dim) of reals; a ValueError that names who gave them."""
    array = np.asarray(actions)
    shape = (num_rows, world.num_agents)
    if world.num_actions is None:
        if array.ndim != 3 or array.shape[:2] != shape or array.dtype.kind not in "iuf":
            raise ValueError(
                f"{origin} returned actions as {array.dtype} of shape {array.shape}: give reals {(*shape, 'dim')}"
            )
        if not np.isfinite(array).all():
            row, agent, _ = np.argwhere(~np.isfinite(array))[0]
            raise ValueError(f"{origin} returned an action that is not finite at row {row}, agent {agent}")
        return array.astype(float)
    if array.shape != shape or array.dtype.kind not in "iu":
        raise ValueError(
            f"{origin} returned actions as {array.dtype} of shape {array.shape}: give integers {shape}, (row, agent)"
        )
    wrong = (array < 0) | (array >= world.num_actions)
    for row, agent in np.argwhere(wrong)[:1]:
        raise ValueError(
            f"{origin} returned action {array[row, agent]} at row {row}, agent {agent}: "
            f"legal are 0 to {world.num_actions - 1}"
        )
    return array.astype(np.int64)


def require_state(state: Any, origin: str) -> None:
    """Raise TypeError or ValueError where a state has no array, or NaN or an infinite number."""
    leaves = jax.tree.leaves(state)
    if not leaves:
        raise TypeError(f"{origin} returned the state {state!r}: give arrays that lead with the games")
    for leaf in leaves:
        array = np.asarray(leaf)
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            place = np.argwhere(~np.isfinite(array))[0].tolist()
            raise ValueError(
                f"{origin} returned {array[tuple(place)]} in its state at {place}: states must be finite"
            )
