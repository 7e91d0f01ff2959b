"""What `imitate` needs of a world, many games at once, and checks of what a world answers.

State, actions and everything else lead with the axis of the games, so that one call of a policy serves a step of all
games. A state is any pytree of NumPy arrays; `jax.tree` slices it.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np
from jaxtyping import Bool, Int, Num

from ethogram.models.arguments import read_array, require_integer
from ethogram.models.data import trajectories
from ethogram.models.data.gaps import require_complete
from ethogram.models.data.selection import label_name
from ethogram.models.data.trajectories import Metadata, Trajectories
from ethogram.models.printing import short_repr

__all__ = [
    "Demonstrations",
    "World",
    "check_world",
    "observe",
    "put",
    "read_actions",
    "read_demonstrations",
    "reset",
    "role_trajectories",
    "sequences_of_games",
    "step",
    "take",
    "team_features",
]


@short_repr
class Demonstrations(NamedTuple):
    """Games as a world sees them: states and joint actions.

    Attributes
    ----------
    states : pytree of arrays (game, time, ...), the state before each joint action.
    actions : (game, time, agent) integers, or (game, time, agent, dim) reals; anything beyond the length.
    lengths : (game,), joint actions of each game, at least 1.
    """

    states: Any
    actions: np.ndarray
    lengths: Int[np.ndarray, "game"]

    @property
    def inside(self) -> Bool[np.ndarray, "game time"]:
        """Which joint actions were played."""
        return np.arange(self.actions.shape[1]) < np.asarray(self.lengths)[:, None]


class World(Protocol):
    """A world in which several agents act at once, vectorised over games.

    A world that reads recorded trajectories has ``demonstrations(data)`` too: their games as `Demonstrations`, in
    ascending order of their groups, as `sequences_of_games` gives them.

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

        States keep the dtypes of those of `reset` and of the demonstrations.
        """

    def observe(self, roles: np.ndarray, state: Any) -> np.ndarray:
        """Features (game, agent, feature) of each agent in its role.

        `roles` (game, agent) has distinct entries in a row. Team-mates are visible, in order of their roles, so that a
        feature means the same in every game.
        """

    def role_features(self, state: Any, actions: np.ndarray) -> np.ndarray:
        """What the role model observes (row, agent, feature), at states (row, ...) with the joint actions (row, agent).

        Integers are symbols of a categorical emission.
        """


METHODS = ("reset", "step", "observe", "role_features")


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


def put(state: Any, rows: np.ndarray, new: Any) -> Any:
    """The states with those of some games replaced."""

    def replaced(old: Any, values: Any) -> np.ndarray:
        changed = np.array(old)
        changed[rows] = values
        return changed

    return jax.tree.map(replaced, state, new)


def team_features(
    roles: Int[np.ndarray, "game agent"], own: Num[np.ndarray, "game agent feature"]
) -> Num[np.ndarray, "game agent features"]:
    """Features of each agent, and then those of its team-mates in order of their roles, for `observe`."""
    by_role, games = np.argsort(roles, axis=1), np.arange(len(roles))[:, None]
    num_agents = own.shape[1]
    found = np.empty((len(roles), num_agents, num_agents, own.shape[2]), own.dtype)
    found[:, :, 0] = own
    for place in range(num_agents):
        mates = np.delete(by_role, place, axis=1)
        found[games, by_role[:, place, None], 1:] = own[games, mates][:, None]
    return found.reshape(len(roles), num_agents, -1)


def read_demonstrations(world: Any, data: Any) -> tuple[Demonstrations, Trajectories, np.ndarray]:
    """Checked demonstrations, what the role model observes of them, and the sequences (game, agent) of `data`."""
    if isinstance(data, Trajectories):
        trajectories.check(data)
        require_complete(data, "demonstrations need")
        sequences, origin, metadata = (
            sequences_of_games(data, world.num_agents),
            "world.demonstrations",
            data.metadata,
        )
        if not callable(getattr(world, origin.partition(".")[2], None)):
            raise TypeError(
                f"data is Trajectories, and {type(world).__name__} has no demonstrations(data), which reads them: give "
                "Demonstrations(states, actions, lengths), or define it"
            )
        given = world.demonstrations(data)
    else:
        sequences, origin, metadata, given = None, "data", Metadata(), data
    if not isinstance(given, Demonstrations):
        raise TypeError(
            f"{origin} is {type(given).__name__}: give Demonstrations(states, actions, lengths)"
            + (", or Trajectories" if sequences is None else "")
        )
    games = _checked(world, given, origin)
    if sequences is None:
        sequences = np.arange(len(games.lengths) * world.num_agents).reshape(-1, world.num_agents)
    elif len(games.lengths) != len(sequences):
        raise ValueError(
            f"{origin} has {len(games.lengths)} games, data has {len(sequences)} groups: give one per group"
        )
    _try_methods(world, games)
    observed = role_trajectories(world, games, metadata)
    if isinstance(data, Trajectories):  # whose games, agents and times have their own numbers
        own = data.take(sequences.ravel())
        if np.array_equal(own.observed, observed.observed):
            observed = own._replace(
                observations=observed.observations,
                actions=observed.actions,
                states=None,
            )
    size, names = (
        np.asarray(observed.observations).shape[-1],
        (metadata.feature_names, metadata.feature_units),
    )
    if any(listed is not None and len(listed) != size for listed in names):  # of other features
        plain = dataclasses.replace(metadata, feature_names=None, feature_units=None)
        observed = observed._replace(metadata=plain)
    return games, observed, sequences


def _checked(world: Any, games: Demonstrations, origin: str) -> Demonstrations:
    """Demonstrations with legal actions, in a dtype that holds the answers of experts."""
    states, actions, lengths = games.states, np.asarray(games.actions), np.asarray(games.lengths)
    num_steps = actions.shape[1] if actions.ndim > 2 else 0
    if lengths.shape != actions.shape[:1] or lengths.dtype.kind not in "iu" or not lengths.size:
        raise ValueError(
            f"lengths of {origin} are {lengths.dtype} of shape {lengths.shape}, actions {actions.shape}: give integers "
            "(game,) and actions (game, time, agent), one game at least"
        )
    if lengths.min() < 1 or lengths.max() > num_steps:
        raise ValueError(
            f"lengths of {origin} are in {lengths.min()}..{lengths.max()}: give 1 to {num_steps}, the steps of actions"
        )
    for leaf in jax.tree.leaves(states):
        if np.shape(leaf)[:2] != actions.shape[:2]:
            raise ValueError(
                f"states of {origin} have shape {np.shape(leaf)}: give (game, time) = {actions.shape[:2]} first"
            )
    inside = Demonstrations(states, actions, lengths).inside
    _require_state(take(states, inside), origin)
    legal = read_actions(origin, actions[inside], int(lengths.sum()), world)
    # Answers of experts are stored beside these, and may not fit into a narrower dtype.
    return Demonstrations(states, actions.astype(legal.dtype), lengths.astype(int))


def _try_methods(world: Any, games: Demonstrations) -> None:
    """Raise TypeError or ValueError, before anything is fitted, unless the world answers in one game as it should."""
    rng, first = np.random.default_rng(0), take(games.states, ([0], [0]))
    reset(world, rng, 1, like=first)
    observe(world, np.arange(world.num_agents)[None], first)
    step(world, rng, first, games.actions[:1, 0])


def reset(world: Any, rng: np.random.Generator, num_games: int, like: Any = None) -> Any:
    """Checked first states of fresh games; of the structure of `like` where given."""
    state = world.reset(rng, num_games)
    for leaf in jax.tree.leaves(state):
        if np.shape(leaf)[:1] != (num_games,):
            raise ValueError(
                f"world.reset returned a state of shape {np.shape(leaf)}: give {num_games} games first"
            )
    _require_state(state, "world.reset")
    if like is not None:
        _require_alike(state, like, "world.reset")
    return state


def observe(world: Any, roles: Int[np.ndarray, "game agent"], state: Any) -> np.ndarray:
    """Checked features (game, agent, feature)."""
    return _read_features("world.observe", world.observe(roles, state), roles.shape)


def _read_features(origin: str, features: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Finite features (game, agent, feature)."""
    features = read_array(f"what {origin} returned", features)
    if features.ndim != 3 or features.shape[:2] != shape:
        raise ValueError(f"{origin} returned shape {features.shape}: give (game, agent, feature) for {shape}")
    if features.dtype.kind not in "iufb":
        raise TypeError(f"{origin} returned {features.dtype}: give numbers")
    if not np.isfinite(features).all():
        game, agent, feature = np.argwhere(~np.isfinite(features))[0]
        raise ValueError(
            f"{origin} returned {features[game, agent, feature]} for game {game}, agent {agent}, "
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
    _require_state(after, "world.step")
    _require_alike(after, state, "world.step")
    done = np.asarray(done)
    if done.shape != (len(actions),) or done.dtype != bool:
        raise ValueError(
            f"world.step returned goals as {done.dtype} of shape {done.shape}: give booleans ({len(actions)},)"
        )
    return after, done


def role_trajectories(world: Any, games: Demonstrations, metadata: Metadata | None = None) -> Trajectories:
    """What the role model observes of games: one sequence per agent, game by game, numbered as `group` from 0.

    Parameters
    ----------
    games : such as demonstrations of a world, for `ethogram.fit` or a figure.
    metadata : names and units of the trajectories.
    """
    num_games, num_steps, num_agents = games.actions.shape[:3]
    inside = games.inside
    acted = games.actions[inside]
    features = world.role_features(take(games.states, inside), acted)
    features = _read_features("world.role_features", features, acted.shape[:2])

    def by_sequence(rows: np.ndarray, fill: int) -> np.ndarray:
        whole = np.full((num_games, num_steps, *rows.shape[1:]), fill, rows.dtype)
        whole[inside] = rows
        return whole.swapaxes(1, 2).reshape(num_games * num_agents, num_steps, *rows.shape[2:])

    return Trajectories(
        observations=by_sequence(features, 0),
        states=None,
        actions=None if world.num_actions is None else by_sequence(acted, -1),
        lengths=np.repeat(games.lengths, num_agents),
        observed=np.repeat(inside, num_agents, axis=0),
        agent=np.tile(np.arange(num_agents), num_games),
        group=np.repeat(np.arange(num_games), num_agents),
        metadata=Metadata() if metadata is None else metadata,
    )


def read_actions(origin: str, actions: Any, num_rows: int, world: Any) -> np.ndarray:
    """Legal joint actions (row, agent), or (row, agent, dim) of reals; a ValueError that names who gave them."""
    array = np.asarray(actions)
    shape = (num_rows, world.num_agents)
    if world.num_actions is None:
        if array.ndim != 3 or array.shape[:2] != shape or array.dtype.kind not in "iuf":
            raise ValueError(
                f"{origin} gave actions as {array.dtype} of shape {array.shape}: give reals {(*shape, 'dim')}"
            )
        if not np.isfinite(array).all():
            row, agent, _ = np.argwhere(~np.isfinite(array))[0]
            raise ValueError(f"{origin} gave an action that is not finite at row {row}, agent {agent}")
        return array.astype(float)
    if array.shape != shape or array.dtype.kind not in "iu":
        raise ValueError(
            f"{origin} gave actions as {array.dtype} of shape {array.shape}: give integers {shape}, (row, agent)"
        )
    wrong = (array < 0) | (array >= world.num_actions)
    for row, agent in np.argwhere(wrong)[:1]:
        raise ValueError(
            f"{origin} gave action {array[row, agent]} at row {row}, agent {agent}: "
            f"legal are 0 to {world.num_actions - 1}"
        )
    return array.astype(np.int64)


def _require_state(state: Any, origin: str) -> None:
    """Raise TypeError or ValueError where a state has no array, or NaN or an infinite number."""
    leaves = jax.tree.leaves(state)
    if not leaves:
        raise TypeError(f"{origin} gave the state {state!r}: give arrays that lead with the games")
    for leaf in leaves:
        array = np.asarray(leaf)
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            place = np.argwhere(~np.isfinite(array))[0].tolist()
            raise ValueError(
                f"{origin} gave {array[tuple(place)]} in its state at {place}: states must be finite"
            )


def _require_alike(state: Any, like: Any, origin: str) -> None:
    """Raise TypeError or ValueError unless a state can be stored beside others."""
    tree, expected = (str(jax.tree.structure(x)) for x in (state, like))
    if tree != expected:
        raise ValueError(f"{origin} returned a state of structure {tree}, expected {expected}")
    for new, old in zip(jax.tree.leaves(state), jax.tree.leaves(like), strict=True):
        given, stored = np.asarray(new), np.asarray(old)
        if given.shape != stored.shape:
            raise ValueError(f"{origin} returned a state of shape {given.shape}, expected {stored.shape}")
        if not np.can_cast(given.dtype, stored.dtype, "same_kind"):
            raise TypeError(
                f"{origin} returned a state of {given.dtype}, others are {stored.dtype}, in which it would be rounded: "
                "return one dtype from reset, step and the demonstrations"
            )
