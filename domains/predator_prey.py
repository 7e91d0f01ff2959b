"""Predator and prey on a torus: four predators with hidden roles surround a prey.

Cells are (row, column), rows counted downwards, on a board of `size` x `size` whose edges join. Agents 0..3
are predators, agent 4 is the prey. Every step all five choose one of `MOVES` at once; the moves are carried
out one after another in a random order drawn anew, and a move into an occupied cell is lost. The prey stays
with probability `prey_stay`, else moves to each side with equal probability. A game ends with the step after
which predators occupy all four neighbour cells of the prey (checked after each step, so that every game has at
least one), or after `horizon` steps.

A predator of role r heads for the cell ``SLOTS[r]`` beside the prey and follows ``expert_policies()[r]``. Roles
are a fresh random permutation in every game, so the index of an agent says nothing about its role. `simulate`
plays games of experts; `PredatorPreyWorld` and `PredatorPreyExperts` are world and expert for `ethogram.imitate`.

References
----------
Le, Yue, Carr, Lucey (2017), Coordinated Multi-Agent Imitation Learning, section 4.1.
"""

from __future__ import annotations

import dataclasses
import os
from typing import Any, NamedTuple

import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Int

from ethogram.domains.data import archive
from ethogram.inference.imitation import Demonstrations, role_trajectories, sequences_of_games, team_features
from ethogram.models.arguments import read_array, require_integer, require_one_of
from ethogram.models.data.trajectories import Metadata, Trajectories
from ethogram.models.numpy_generator import numpy_generator

__all__ = [
    "MOVES", "MOVE_NAMES", "NUM_PREDATORS", "ROLE_NAMES", "SLOTS", "Games", "PredatorPreyExperts", "PredatorPreyWorld",
    "captured", "carry_out", "draw", "expert_policies", "load_games", "simulate", "trajectories",
]  # fmt: skip

MOVES = np.array([[0, 0], [-1, 0], [1, 0], [0, 1], [0, -1]])
MOVE_NAMES = ("stay", "N", "S", "E", "W")
SLOTS = np.array([[0, 1], [0, -1], [-1, 0], [1, 0]])
ROLE_NAMES = ("right", "left", "above", "below")
NUM_PREDATORS = 4
PREY = 4

Cells = Int[np.ndarray, "game agent 2"]


class Games(NamedTuple):
    """Record of the games, with the true roles.

    Attributes
    ----------
    positions : cell of each agent after t moves, -1 after the end.
    actions : intended move of each agent (an index of `MOVES`), -1 after the end.
    lengths : steps played.
    captured : whether the game ended with a capture.
    roles : hidden role of each sequence of `trajectories`; ``roles.reshape(-1, 4)`` is (game, predator).
    """

    positions: Int[np.ndarray, "game time_and_one agent 2"]
    actions: Int[np.ndarray, "game time agent"]
    lengths: Int[np.ndarray, "game"]
    captured: Bool[np.ndarray, "game"]
    roles: Int[np.ndarray, "sequence"]


def carry_out(
    cells: Cells, actions: Int[np.ndarray, "game agent"], order: Int[np.ndarray, "game agent"], size: int
) -> Cells:
    """Cells of all agents after the intended moves, executed one after another.

    Parameters
    ----------
    cells : before.
    actions : intended moves.
    order : who moves first, second, ...
    size : rows and columns of the board.
    """
    after, targets, games = np.array(cells), (cells + MOVES[actions]) % size, np.arange(len(cells))
    for agent in order.T:
        target = targets[games, agent]
        free = ~np.all(after == target[:, None], axis=-1).any(axis=1)
        after[games[free], agent[free]] = target[free]
    return after


def captured(cells: Cells, size: int) -> Bool[np.ndarray, "game"]:
    """Whether predators hold all four neighbour cells of the prey."""
    held = np.all(_from_prey(cells, size)[:, :, None] == SLOTS % size, axis=-1)
    return held.any(axis=1).all(axis=1)


def expert_policies(
    size: int = 7, *, discount: float = 0.95, prey_stay: float = 0.2
) -> Int[np.ndarray, "role row column"]:
    """Move of an expert of each role for each cell relative to the prey, by value iteration.

    The expert's model of one step: its own move, then the prey's, which is lost against the expert. Standing
    in the own slot after the step earns 1. Moves into the prey's cell or into another role's slot are
    forbidden, so that experts wait instead of blocking each other; the prey may still bring the expert there.
    Among moves of equal value the one with the lowest index is taken.

    Parameters
    ----------
    size : rows and columns of the board, at least 3.
    discount : in [0, 1).
    prey_stay : probability that the prey stays.

    Returns
    -------
    ``policy[role, (row - prey row) % size, (column - prey column) % size]``, an index of `MOVES`.
    """
    _check_board(size, prey_stay)
    if not 0 <= discount < 1:
        raise ValueError(
            f"discount must be in [0, 1), not {discount}: values of the infinite horizon diverge at 1"
        )
    own = np.stack(np.meshgrid(np.arange(size), np.arange(size), indexing="ij"), axis=-1)
    own = (own[:, :, None] + MOVES) % size  # row, column, own move
    after = (own[..., None, :] - MOVES) % size  # row, column, own move, prey's move
    after = np.where(np.all(after == 0, axis=-1, keepdims=True), own[..., None, :], after)
    policies = np.zeros((NUM_PREDATORS, size, size), int)
    for role in range(NUM_PREDATORS):
        others = np.vstack([[[0, 0]], np.delete(SLOTS, role, axis=0)]) % size
        forbidden = np.any(np.all(own[..., None, :] == others, axis=-1), axis=-1)
        forbidden[..., 0] = False
        reward = np.all(after == SLOTS[role] % size, axis=-1).astype(float)
        value, change = np.zeros((size, size)), np.inf
        while change > 1e-13 * max(1.0, value.max()):
            action_value = (reward + discount * value[after[..., 0], after[..., 1]]) @ _prey_moves(prey_stay)
            action_value[forbidden] = -np.inf
            best = action_value.max(axis=-1)
            change, value = np.abs(best - value).max(), best
        # Moves of equal value differ by rounding only; argmax then takes the first.
        policies[role] = np.argmax(action_value >= best[..., None] - 1e-9 * best.max(), axis=-1)
    return policies


def simulate(
    key: Array,
    num_games: int,
    size: int = 7,
    *,
    horizon: int = 50,
    prey_stay: float = 0.2,
    policies: Int[np.ndarray, "role row column"] | None = None,
) -> tuple[Trajectories, Games]:
    """Fresh games as trajectories of the predators, and the full record with the hidden roles.

    Parameters
    ----------
    key : a typed key, ``jax.random.key(seed)``.
    num_games : number of games.
    size : rows and columns of the board, at least 3.
    horizon : most steps of a game.
    prey_stay : probability that the prey stays.
    policies : (role, row, column) move for each cell relative to the prey; the experts by default.

    Returns
    -------
    The trajectories as made by `trajectories`, and the `Games` behind them.

    Examples
    --------
    >>> import jax
    >>> data, games = simulate(jax.random.key(0), num_games=3, horizon=5)
    >>> data.observations.shape[0], games.roles.shape
    (12, (12,))
    """
    table = np.asarray(expert_policies(size, prey_stay=prey_stay) if policies is None else policies)
    if table.shape != (NUM_PREDATORS, size, size) or table.min() < 0 or table.max() >= len(MOVES):
        raise ValueError(
            f"policies has shape {table.shape} and values {table.min()}..{table.max()}: "
            f"give one move 0..4 for each of ({NUM_PREDATORS}, {size}, {size}) role and relative cell"
        )
    world = PredatorPreyWorld(size, prey_stay)
    require_integer("num_games", num_games, 1)
    require_integer("horizon", horizon, 1)
    random = numpy_generator(key)
    cells = world.reset(random, num_games)
    roles = random.permuted(np.broadcast_to(np.arange(NUM_PREDATORS), (num_games, NUM_PREDATORS)), axis=-1)
    prey_moves, orders = world.draw_chance(random, num_games, horizon)
    positions = np.full((num_games, horizon + 1, NUM_PREDATORS + 1, 2), -1)
    actions = np.full((num_games, horizon, NUM_PREDATORS + 1), -1)
    lengths, caught, going = np.full(num_games, horizon), np.zeros(num_games, bool), np.arange(num_games)
    positions[:, 0] = cells
    for time in range(horizon):
        rows, columns = np.moveaxis(_from_prey(cells, size), -1, 0)
        moves = np.column_stack([table[roles[going], rows, columns], prey_moves[going, time]])
        cells = carry_out(cells, moves, orders[going, time], size)
        positions[going, time + 1], actions[going, time] = cells, moves
        ended = captured(cells, size)
        lengths[going[ended]], caught[going[ended]] = time + 1, True
        cells, going = cells[~ended], going[~ended]
    games = Games(positions, actions, lengths, caught, roles.reshape(-1))
    return trajectories(games, size), games


def trajectories(games: Games, size: int = 7) -> Trajectories:
    """One sequence per predator: symbols as observations, relative cells as states, intended moves as actions.

    Symbols are those of `PredatorPreyWorld.role_features`, states cells ``row * size + column`` relative to the prey,
    -1 after the end. Sequences go game by game, and by agent index within a game; `group` is the game and `agent` the
    index 0..3. The time axis is as long as the longest game.

    Parameters
    ----------
    games : as `simulate` records them.
    size : rows and columns of the board.
    """
    longest, cells = games.lengths.max(), range(size)
    shown = Demonstrations(games.positions[:, :longest], games.actions[:, :longest, :PREY], games.lengths)
    metadata = Metadata(
        name="predator-prey",
        feature_names=("symbol",),
        agent_names=tuple(f"predator {index}" for index in range(NUM_PREDATORS)),
        state_names=tuple(f"{row},{column}" for row in cells for column in cells),
        action_names=MOVE_NAMES,
        time_unit="step",
    )
    data = role_trajectories(PredatorPreyWorld(size), shown, metadata)
    symbols = np.asarray(data.observations)[..., 0]
    return data._replace(states=np.where(data.observed, symbols // len(MOVES), -1))


def load_games(
    split: str = "train", path: str | os.PathLike[str] | None = None
) -> tuple[Trajectories, Int[np.ndarray, "sequence"]]:
    """The recorded 7 x 7 games: trajectories of the predators, and the hidden role of each sequence.

    Parameters
    ----------
    split : "train" (300 games) or "test" (100 games).
    path : the npz file; by default ``predator_prey/predprey_7x7_sim.npz`` under ``ETHOGRAM_DATA``.
    """
    require_one_of("split", split, ("train", "test"))
    source = archive.external("predator_prey", "predprey_7x7_sim.npz") if path is None else path
    names = [f"{split}_{part}" for part in ("pos", "act", "length", "captured", "role")]
    positions, actions, lengths, caught, roles = archive.read(source, names)
    positions, actions, lengths, roles = (x.astype(int) for x in (positions, actions, lengths, roles))
    games = Games(positions, actions, lengths, caught, roles.reshape(-1))
    return trajectories(games), games.roles


@dataclasses.dataclass(frozen=True)
class PredatorPreyWorld:
    """Games of four predators, which policies play, and a prey.

    Parameters
    ----------
    size : rows and columns of the board, at least 3.
    prey_stay : probability that the prey stays.
    """

    size: int = 7
    prey_stay: float = 0.2

    num_agents = NUM_PREDATORS
    num_actions = len(MOVES)

    def __post_init__(self):
        _check_board(self.size, self.prey_stay)

    def reset(self, rng: np.random.Generator, num_games: int) -> Cells:
        """Distinct uniform cells in each game."""
        cells = np.broadcast_to(np.arange(self.size**2), (num_games, self.size**2))
        chosen = rng.permuted(cells, axis=1)[:, : NUM_PREDATORS + 1]
        return np.stack(np.divmod(chosen, self.size), axis=-1)

    def draw_chance(
        self, rng: np.random.Generator, num_games: int, horizon: int
    ) -> tuple[Int[np.ndarray, "game time"], Int[np.ndarray, "game time agent"]]:
        """The prey's moves, and in which order agents move, in each step."""
        prey = rng.choice(len(MOVES), (num_games, horizon), p=_prey_moves(self.prey_stay))
        agents = np.broadcast_to(np.arange(NUM_PREDATORS + 1), (num_games, horizon, NUM_PREDATORS + 1))
        return prey, rng.permuted(agents, axis=-1)

    def step(
        self, rng: np.random.Generator, state: Cells, actions: Int[np.ndarray, "game predator"]
    ) -> tuple[Cells, Bool[np.ndarray, "game"]]:
        """Cells after all moves, which are carried out in a random order, and whether the prey is caught."""
        prey, order = self.draw_chance(rng, len(state), 1)
        after = carry_out(state, np.concatenate([actions, prey], axis=1), order[:, 0], self.size)
        return after, captured(after, self.size)

    def observe(
        self, roles: Int[np.ndarray, "game predator"], state: Cells
    ) -> Float[np.ndarray, "game predator 8"]:
        """Rows and columns from the prey to the predator itself, then to its team-mates in order of their roles.

        Differences are the short way round the board, between ``-(size // 2)`` and ``(size - 1) // 2``.
        """
        half = self.size // 2
        offsets = (state[:, :PREY] - state[:, PREY:] + half) % self.size - half
        return team_features(roles, offsets.astype(float))

    def role_features(
        self, state: Cells, actions: Int[np.ndarray, "game predator"]
    ) -> Int[np.ndarray, "game predator 1"]:
        r"""Each predator's cell relative to the prey and its intended move as one integer.

        .. math:: y = 5 \, (size \cdot \Delta row + \Delta column) + move

        with both differences counted modulo `size`: 245 symbols on the 7 x 7 board.
        """
        rows, columns = np.moveaxis(_from_prey(state, self.size), -1, 0)
        return ((rows * self.size + columns) * len(MOVES) + actions)[..., None].astype(np.int32)

    def demonstrations(self, data: Trajectories) -> Demonstrations:
        """Games of trajectories, whose states are cells relative to the prey, which is put at (0, 0)."""
        if data.states is None or data.actions is None:
            raise ValueError("data.states or data.actions is None: give trajectories of predator_prey")
        sequences = sequences_of_games(data, NUM_PREDATORS)
        states, actions = (np.asarray(x)[sequences].swapaxes(1, 2) for x in (data.states, data.actions))
        if states.max() >= self.size**2:
            raise ValueError(
                f"data.states has cell {states.max()}: on a board of size {self.size} cells end before"
            )
        lengths = np.asarray(data.lengths)[sequences[:, 0]].astype(int)
        unknown = (states < 0) & (np.arange(states.shape[1]) < lengths[:, None])[..., None]
        for game, time, predator in np.argwhere(unknown)[:1]:
            raise ValueError(
                f"data.states of sequence {sequences[game, predator]} is -1 at step {time}: demonstrations have no gaps"
            )
        cells = np.zeros((*states.shape[:2], NUM_PREDATORS + 1, 2), int)
        cells[:, :, :PREY] = np.stack(np.divmod(np.maximum(states, 0), self.size), axis=-1)
        return Demonstrations(cells, np.asarray(actions, int), lengths)


class PredatorPreyExperts:
    """The demonstrators of recorded games, to be asked at any state of them: ``expert(state, game)``.

    They know the roles that `imitate` has to find out.

    Parameters
    ----------
    roles : (sequence,) or (game, predator), hidden role of each predator, as `simulate` returns them.
    size, prey_stay : of the board and the prey.
    """

    def __init__(self, roles: Int[np.ndarray, "..."], size: int = 7, prey_stay: float = 0.2):
        given = read_array("roles", roles)
        if given.dtype.kind not in "iu" or not given.size or given.size % NUM_PREDATORS:
            raise ValueError(
                f"roles is {given.dtype} of shape {given.shape}: give integers, {NUM_PREDATORS} for each game"
            )
        if given.min() < 0 or given.max() >= NUM_PREDATORS:
            raise ValueError(f"roles is in {given.min()}..{given.max()}: give 0 to {NUM_PREDATORS - 1}")
        self.roles = given.reshape(-1, NUM_PREDATORS)
        self.policies, self.size = expert_policies(size, prey_stay=prey_stay), size

    def __call__(self, state: Cells, game: Int[np.ndarray, "game"]) -> Int[np.ndarray, "game predator"]:
        """Their moves at states (row, agent, 2) of the games (row,)."""
        rows, columns = np.moveaxis(_from_prey(state, self.size), -1, 0)
        return self.policies[self.roles[game], rows, columns]


def draw(
    positions: Int[np.ndarray, "agent 2"],
    size: int = 7,
    *,
    roles: Int[np.ndarray, "predator"] | None = None,
    actions: Int[np.ndarray, "agent"] | None = None,
    ax: Any = None,
) -> Any:
    """Matplotlib axes with one frame of a game: board, prey, predators and intended moves.

    Parameters
    ----------
    positions : (agent, 2) cells.
    size : rows and columns of the board.
    roles : (predator,) roles, for the colours of predators and their slots; grey where None.
    actions : (agent,) intended moves, drawn as arrows.
    ax : axes to draw into; new ones by default.
    """
    import matplotlib.pyplot as plt

    cells = np.asarray(positions)
    if cells.min() < 0:
        raise ValueError("positions holds -1, a frame after the end of its game: draw an earlier one")
    axes = plt.subplots(figsize=(4, 4))[1] if ax is None else ax
    palette = ["#0072b2", "#d55e00", "#009e73", "#cc79a7"]
    colours = ["0.45"] * NUM_PREDATORS if roles is None else [palette[int(role)] for role in roles]
    for role, (row, column) in enumerate((cells[PREY] + SLOTS) % size):
        colour = "0.5" if roles is None else palette[role]
        corner = (column - 0.5, row - 0.5)
        axes.add_patch(plt.Rectangle(corner, 1, 1, facecolor=colour, alpha=0.2, linewidth=0))
    for agent, (row, column) in enumerate(cells):
        colour, label = ("black", "prey") if agent == PREY else (colours[agent], str(agent))
        axes.add_patch(plt.Circle((column, row), 0.36, color=colour, zorder=2))
        axes.text(column, row, label, color="white", ha="center", va="center", fontsize=8, zorder=4)
        if actions is not None and actions[agent] > 0:
            down, right = MOVES[int(actions[agent])]
            ends = (column + 0.8 * right, row + 0.8 * down), (column + 0.3 * right, row + 0.3 * down)
            axes.annotate("", *ends, arrowprops={"arrowstyle": "->", "color": colour, "lw": 1.8}, zorder=3)
    axes.set(xlim=(-0.5, size - 0.5), ylim=(size - 0.5, -0.5), aspect="equal")
    edges = np.arange(size + 1) - 0.5
    axes.set(xticks=edges, yticks=edges, xticklabels=[], yticklabels=[])
    axes.tick_params(length=0)
    axes.grid(color="0.85")
    axes.set_axisbelow(True)
    return axes


def _from_prey(cells: Int[np.ndarray, "*game agent 2"], size: int) -> Int[np.ndarray, "*game predator 2"]:
    """Rows and columns from the prey to each predator, modulo the size."""
    return (cells[..., :PREY, :] - cells[..., PREY:, :]) % size


def _prey_moves(prey_stay: float) -> np.ndarray:
    """Probability of each of the prey's moves."""
    return np.array([prey_stay, *[(1 - prey_stay) / 4] * 4])


def _check_board(size: int, prey_stay: float) -> None:
    """Raise ValueError for boards or probabilities without a game."""
    if size < 3:
        raise ValueError(
            f"size is {size}: a prey has four distinct neighbour cells on boards of 3 x 3 and more"
        )
    if not 0 <= prey_stay <= 1:
        raise ValueError(f"prey_stay is {prey_stay}: a probability lies in [0, 1]")
