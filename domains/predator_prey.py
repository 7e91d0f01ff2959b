"""Predator and prey on a torus: four predators with hidden roles surround a prey.

Cells are (row, column), rows counted downwards, on a board of `size` x `size` whose edges join. Agents 0..3
are predators, agent 4 is the prey. Every step all five choose one of `MOVES` at once; the moves are carried
out one after another in a random order drawn anew, and a move into an occupied cell is lost. The prey stays
with probability `prey_stay`, else moves to each side with equal probability. A game ends with the step after
which predators occupy all four neighbour cells of the prey (checked after each step, so that every game has at
least one), or after `horizon` steps.

A predator of role r heads for the cell ``SLOTS[r]`` beside the prey and follows ``expert_policies()[r]``. Roles
are a fresh random permutation in every game, so the index of an agent says nothing about its role.

References
----------
Le, Yue, Carr, Lucey (2017), Coordinated Multi-Agent Imitation Learning, section 4.1.
"""

import os
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from ethogram.domains.data import archive
from ethogram.models.arguments import require_integer, require_one_of
from ethogram.models.data.trajectories import Metadata, Trajectories
from ethogram.models.numpy_generator import numpy_generator

__all__ = [
    "MOVES", "MOVE_NAMES", "NUM_PREDATORS", "ROLE_NAMES", "SLOTS", "Chance", "Games", "captured", "carry_out",
    "draw", "expert_policies", "load_games", "sample_chance", "simulate", "symbols", "trajectories",
]  # fmt: skip

# 32 bits: JAX keeps the dtype of a constant from one precision to the next.
MOVES = np.array([[0, 0], [-1, 0], [1, 0], [0, 1], [0, -1]], np.int32)
MOVE_NAMES = ("stay", "N", "S", "E", "W")
SLOTS = np.array([[0, 1], [0, -1], [-1, 0], [1, 0]], np.int32)
ROLE_NAMES = ("right", "left", "above", "below")
NUM_PREDATORS = 4
PREY = 4

Integers = Int[Array, "..."] | Int[np.ndarray, "..."]


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


class Chance(NamedTuple):
    """All random draws of a set of games; given these, policies determine the games.

    Attributes
    ----------
    start : distinct uniform cells.
    roles : hidden role of each predator, a permutation in each game.
    prey_actions : the prey's intended moves.
    orders : who moves first, second, ... in each step.
    """

    start: Int[np.ndarray, "game agent 2"]
    roles: Int[np.ndarray, "game predator"]
    prey_actions: Int[np.ndarray, "game time"]
    orders: Int[np.ndarray, "game time agent"]


def carry_out(positions: Integers, actions: Integers, order: Integers, size: int) -> Int[Array, "agent 2"]:
    """Cells of all agents after the intended moves, executed one after another.

    Parameters
    ----------
    positions : (agent, 2) cells before.
    actions : (agent,) intended moves.
    order : (agent,) who moves first, second, ...
    size : rows and columns of the board.
    """
    cells = jnp.asarray(positions)
    targets = ((cells + jnp.asarray(MOVES)[actions]) % size).astype(cells.dtype)

    def move(cells: Array, agent: Array) -> tuple[Array, None]:
        occupied = jnp.any(jnp.all(cells == targets[agent][None], axis=-1))
        return cells.at[agent].set(jnp.where(occupied, cells[agent], targets[agent])), None

    return jax.lax.scan(move, cells, jnp.asarray(order))[0]


def captured(positions: Integers, size: int) -> Bool[Array, ""]:
    """Whether predators hold all four neighbour cells of the prey; `positions` (agent, 2)."""
    offsets = (positions[:PREY] - positions[PREY:]) % size
    held = jnp.all(offsets[:, None] == jnp.asarray(SLOTS)[None] % size, axis=-1)
    return jnp.all(jnp.any(held, axis=0))


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

    Raises
    ------
    ValueError : an argument outside its range.
    """
    check_board(size, prey_stay)
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
            action_value = (reward + discount * value[after[..., 0], after[..., 1]]) @ prey_moves(prey_stay)
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
    policies: Integers | None = None,
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

    Raises
    ------
    ValueError : an argument outside its range.

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
    chance = sample_chance(key, num_games, size, horizon=horizon, prey_stay=prey_stay)
    played = _play_all(jnp.asarray(table), *chance, size=size)
    games = Games(*map(np.asarray, (*played, chance.roles.reshape(-1))))
    return trajectories(games, size), games


@partial(jax.jit, static_argnames="size")
def _play_all(
    policies: Array, start: Array, roles: Array, prey_actions: Array, orders: Array, size: int
) -> tuple[Array, ...]:
    """Positions, actions, lengths and captures of all games, given the random draws."""

    def play(start: Array, roles: Array, prey_actions: Array, orders: Array) -> tuple[Array, ...]:
        def turn(carry: tuple[Array, Array], chance: tuple[Array, Array]) -> tuple[Any, Any]:
            cells, over = carry
            prey_action, order = chance
            rows, columns = ((cells[:PREY] - cells[PREY:]) % size).T
            actions = jnp.append(policies[roles, rows, columns], prey_action)
            moved = carry_out(cells, actions, order, size)
            record = jnp.where(over, -1, moved), jnp.where(over, -1, actions), ~over
            return (jnp.where(over, cells, moved), over | captured(moved, size)), record

        ended, (later, actions, played) = jax.lax.scan(
            turn, (start, jnp.array(False)), (prey_actions, orders)
        )
        return jnp.concatenate([start[None], later]), actions, played.sum(), ended[1]

    return jax.vmap(play)(start, roles, prey_actions, orders)


def sample_chance(
    key: Array, num_games: int, size: int = 7, *, horizon: int = 50, prey_stay: float = 0.2
) -> Chance:
    """Start cells, hidden roles, prey moves and orders of moves of fresh games.

    Arguments and errors are those of `simulate`. The key seeds a NumPy generator, so that only the game
    itself is compiled.
    """
    check_board(size, prey_stay)
    require_integer("num_games", num_games, 1)
    require_integer("horizon", horizon, 1)
    random = numpy_generator(key)

    def permutations(*shape: int) -> np.ndarray:
        return random.permuted(np.broadcast_to(np.arange(shape[-1]), shape), axis=-1)

    cells = permutations(num_games, size * size)[:, : NUM_PREDATORS + 1]
    return Chance(
        start=np.stack(np.divmod(cells, size), axis=-1),
        roles=permutations(num_games, NUM_PREDATORS),
        prey_actions=random.choice(len(MOVES), (num_games, horizon), p=prey_moves(prey_stay)),
        orders=permutations(num_games, horizon, NUM_PREDATORS + 1),
    )


def symbols(positions: Integers, actions: Integers, size: int = 7) -> Int[np.ndarray, "game predator time"]:
    """Each predator's cell relative to the prey and its intended move as one integer, -1 after the end.

    .. math:: y = 5 \\, (size \\cdot \\Delta row + \\Delta column) + move

    with both differences counted modulo `size`: 245 symbols on the 7 x 7 board.

    Parameters
    ----------
    positions : (game, time + 1, agent, 2) cells, -1 after the end.
    actions : (game, time, agent) intended moves, -1 after the end.
    size : rows and columns of the board.
    """
    before, moves = np.asarray(positions)[:, :-1], np.asarray(actions)
    rows, columns = np.moveaxis((before[:, :, :PREY] - before[:, :, PREY:]) % size, -1, 0)
    code = (rows * size + columns) * len(MOVES) + moves[:, :, :PREY]
    return np.where(moves[:, :, :PREY] < 0, -1, code).swapaxes(1, 2)


def trajectories(games: Games, size: int = 7) -> Trajectories:
    """One sequence a predator: symbols as observations, relative cells as states, intended moves as actions.

    Sequences go game by game, and by agent index within a game; `group` is the game and `agent` the index
    0..3. The time axis is as long as the longest game; entries after the end of a game hold -1.

    Parameters
    ----------
    games : as `simulate` records them.
    size : rows and columns of the board.
    """
    code = symbols(games.positions, games.actions, size).astype(np.int32)
    rows = [row[:length] for game, length in zip(code, games.lengths, strict=True) for row in game]
    cells = range(size)
    data = Trajectories.from_list(
        rows,
        states=[row // len(MOVES) for row in rows],
        actions=[row % len(MOVES) for row in rows],
        agent=np.tile(np.arange(NUM_PREDATORS), len(games.lengths)),
        group=np.repeat(np.arange(len(games.lengths)), NUM_PREDATORS),
        metadata=Metadata(
            name="predator-prey",
            feature_names=("symbol",),
            agent_names=tuple(f"predator {index}" for index in range(NUM_PREDATORS)),
            state_names=tuple(f"{row},{column}" for row in cells for column in cells),
            action_names=MOVE_NAMES,
            time_unit="step",
        ),
        codes=True,
    )
    whole = np.where(data.observed[..., None], np.asarray(data.observations), -1)
    return data._replace(observations=whole.astype(np.int32))


def load_games(
    split: str = "train", path: str | os.PathLike[str] | None = None
) -> tuple[Trajectories, Int[np.ndarray, "sequence"]]:
    """The recorded 7 x 7 games: trajectories of the predators, and the hidden role of each sequence.

    Parameters
    ----------
    split : "train" (300 games) or "test" (100 games).
    path : the npz file; by default ``predator_prey/predprey_7x7_sim.npz`` under ``ETHOGRAM_DATA``.

    Raises
    ------
    FileNotFoundError : the file is nowhere; the message says what to set.
    ValueError : an unknown split, or a file that cannot be read or lacks a part.
    """
    require_one_of("split", split, ("train", "test"))
    source = archive.external("predator_prey", "predprey_7x7_sim.npz") if path is None else path
    names = [f"{split}_{part}" for part in ("pos", "act", "length", "captured", "role")]
    positions, actions, lengths, caught, roles = archive.read(source, names)
    positions, actions, lengths, roles = (x.astype(int) for x in (positions, actions, lengths, roles))
    games = Games(positions, actions, lengths, caught, roles.reshape(-1))
    return trajectories(games), games.roles


def draw(
    positions: Integers,
    size: int = 7,
    *,
    roles: Integers | None = None,
    actions: Integers | None = None,
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


def prey_moves(prey_stay: float) -> np.ndarray:
    """Probability of each of the prey's moves."""
    return np.array([prey_stay, *[(1 - prey_stay) / 4] * 4])


def check_board(size: int, prey_stay: float) -> None:
    """Raise ValueError for boards or probabilities without a game."""
    if size < 3:
        raise ValueError(
            f"size is {size}: a prey has four distinct neighbour cells on boards of 3 x 3 and more"
        )
    if not 0 <= prey_stay <= 1:
        raise ValueError(f"prey_stay is {prey_stay}: a probability lies in [0, 1]")
