r"""Tetris: seven pieces, straight drops, and players who value what a placement leaves behind.

A decision is a rotation and a column for the piece at hand; the value of the board that it leaves is linear in a few
features of it, and the choice is noisy. Placements of equal shape are one option: two of them, each with noise of its
own, would be chosen more often than one. A game ends when the top row is occupied, or no placement is left; the player
goes on with an empty board.

Singh, Chopin and Whiteley, "Bayesian learning of noisy Markov decision processes", section 5.2; the number of rows is
said to be 30 there, and the lengths of its games are those of 20.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Bool, Float, Int

from ethogram.models.decisions import Decisions
from ethogram.models.trajectories import Metadata

__all__ = [
    "FEATURES",
    "PIECES",
    "Outcomes",
    "Placements",
    "Play",
    "draw_board",
    "outcomes",
    "placements",
    "play",
    "simulate",
]

PIECES = {
    "I": ("1111",), "O": ("11", "11"), "T": ("111", "010"), "S": ("011", "110"), "Z": ("110", "011"),
    "J": ("100", "111"), "L": ("001", "111"),
}  # fmt: skip
"""Rows of each piece from the top; the piece that comes next is uniform."""

FEATURES = {
    "basic": lambda cols: ("height", "holes", "bumpiness"),
    "bertsekas": lambda cols: (
        "height",
        "holes",
        *(f"column {c}" for c in range(cols)),
        *(f"step {c}" for c in range(cols - 1)),
    ),
}
"""Names of the features of a board: the height of its highest cell, empty cells below an occupied one, and the summed
squares of steps between neighbouring columns; or, in place of the last, the height of each column and each step."""


class Placements(NamedTuple):
    """Where each piece may be put, a slot a rotation and column, padded to the longest list.

    Attributes
    ----------
    rotation, column : (piece, slot) quarter turns counter-clockwise, and the leftmost column.
    exists : (piece, slot) booleans.
    cells : (piece, slot, 4, 2) rows and columns of the piece's cells at the top edge.
    """

    rotation: Int[np.ndarray, "piece slot"]
    column: Int[np.ndarray, "piece slot"]
    exists: Bool[np.ndarray, "piece slot"]
    cells: Int[np.ndarray, "piece slot 4 2"]


@functools.lru_cache(maxsize=16)
def placements(cols: int = 10, dedupe: bool = True) -> Placements:
    """All placements of all pieces on boards of so many columns.

    Parameters
    ----------
    cols : columns, at least 4.
    dedupe : whether rotations of equal shape are one option; False lists all four of every piece.

    Examples
    --------
    >>> dict(zip(PIECES, placements().exists.sum(1).tolist()))
    {'I': 17, 'O': 9, 'T': 34, 'S': 17, 'Z': 17, 'J': 34, 'L': 34}
    """
    if cols < 4:
        raise ValueError(f"cols is {cols}: a board has 4 columns at least")
    lists: list[list[tuple[int, int, np.ndarray]]] = []
    for rows in PIECES.values():
        shape = np.array([[int(cell) for cell in row] for row in rows])
        seen: list[np.ndarray] = []
        slots: list[tuple[int, int, np.ndarray]] = []
        for turns in range(4):
            turned = np.rot90(shape, turns)
            if not dedupe or not any(np.array_equal(turned, other) for other in seen):
                cells = np.argwhere(turned)
                slots += [
                    (turns, left, cells + np.array([0, left])) for left in range(cols - turned.shape[1] + 1)
                ]
            seen.append(turned)
        lists.append(slots)
    size = (len(lists), max(map(len, lists)))
    found = Placements(
        np.zeros(size, np.int32),
        np.zeros(size, np.int32),
        np.zeros(size, bool),
        np.zeros((*size, 4, 2), np.int32),
    )
    for piece, slots in enumerate(lists):
        for slot, placement in enumerate(slots):
            found.rotation[piece, slot], found.column[piece, slot], found.cells[piece, slot] = placement
            found.exists[piece, slot] = True
    return found


class Outcomes(NamedTuple):
    """What each placement of a piece leads to.

    Attributes
    ----------
    legal : (slot,) booleans.
    boards : (slot, row, column) booleans, after full rows are gone.
    features : (slot, feature) of those boards.
    """

    legal: Bool[Array, "slot"]
    boards: Bool[Array, "slot row column"]
    features: Float[Array, "slot feature"]


@functools.partial(jax.jit, static_argnames=("features", "dedupe"))
def outcomes(board: Array, piece: Array, *, features: str = "basic", dedupe: bool = True) -> Outcomes:
    """All placements of a piece on a board (row, column), the top row first."""
    table = placements(board.shape[1], dedupe)
    cells, free = jnp.asarray(table.cells)[piece], _free_below(board)

    def place(where):
        drop = jnp.min(free[where[:, 0], where[:, 1]])
        return _cleared(board.at[where[:, 0] + drop, where[:, 1]].set(True))

    boards = jax.vmap(place)(cells)
    each = jax.vmap(functools.partial(_features, kind=features))(boards)
    return Outcomes(_legal(board, piece, dedupe), boards, each)


def _legal(board: Array, piece: Array, dedupe: bool) -> Array:
    """Whether the cells of each placement are free at the top edge."""
    table = placements(board.shape[1], dedupe)
    cells = jnp.asarray(table.cells)[piece]
    return jnp.asarray(table.exists)[piece] & ~jnp.any(board[cells[..., 0], cells[..., 1]], axis=-1)


def _free_below(board: Array) -> Array:
    """How many cells below each one are free, down to the first that is not."""
    rows = board.shape[0]
    row = jnp.arange(rows)[:, None]
    blocked = jnp.where(board, row, rows)
    first = lax.cummin(blocked, axis=0, reverse=True)  # at or below
    below = jnp.concatenate([first[1:], jnp.full_like(first[:1], rows)])
    return below - row - 1


def _cleared(board: Array) -> Array:
    """The board without its full rows; rows above them come down."""
    full = jnp.all(board, axis=1)
    order = jnp.argsort(~full, stable=True)
    return board[order] & (jnp.arange(len(full)) >= jnp.sum(full))[:, None]


def _features(board: Array, kind: str) -> Array:
    rows = board.shape[0]
    heights = jnp.where(jnp.any(board, axis=0), rows - jnp.argmax(board, axis=0), 0)
    covered = lax.cummax(board.astype(jnp.int32), axis=0) > 0
    steps = jnp.diff(heights)
    whole = [jnp.max(heights), jnp.sum(covered & ~board)]
    last = [jnp.sum(steps**2)] if kind == "basic" else [*heights, *jnp.abs(steps)]
    return jnp.stack([*whole, *last]).astype(float)


class Play(NamedTuple):
    """A player's decisions, one after another; an ended game is followed by the next one.

    Attributes
    ----------
    boards : (decision, row, column) booleans before the placement.
    pieces : (decision,) numbers in the order of `PIECES`.
    game : (decision,) number of the game.
    decisions : features of what each placement leaves, which were legal, and the slot of the one chosen.
    """

    boards: Bool[np.ndarray, "decision row column"]
    pieces: Int[np.ndarray, "decision"]
    game: Int[np.ndarray, "decision"]
    decisions: Decisions


def simulate(
    key: Array,
    values: Any,
    num_decisions: int = 100,
    *,
    rows: int = 20,
    cols: int = 10,
    features: str = "basic",
    dedupe: bool = True,
) -> Play:
    """Decisions of a player with some values of the features, and standard normal noise in the choice.

    Parameters
    ----------
    key : a typed key, ``jax.random.key(seed)``.
    values : (feature,), such as (-3, -15, -1).
    rows, cols : of the board, at least 4 each.
    features : ``"basic"`` or ``"bertsekas"``.
    dedupe : as in `placements`; learn from decisions of the setting that they were made in.

    Raises
    ------
    ValueError
        If values are not one a feature, `features` has another name, or a size is too small.

    Examples
    --------
    >>> import jax
    >>> play = simulate(jax.random.key(0), (-3.0, -15.0, -1.0), 8)
    >>> play.decisions.features.shape, play.boards.shape
    ((8, 34, 3), (8, 20, 10))
    """
    weights = _read_values(values, features, cols, rows, num_decisions)
    size = (rows, cols)
    boards, pieces, ended, slots, options, legal = _play(key, weights, num_decisions, size, features, dedupe)
    metadata = Metadata(name="Tetris", feature_names=FEATURES[features](cols))
    options, legal, slots = (np.asarray(x) for x in (options, legal, slots))
    decisions = Decisions(options, legal, slots, metadata=metadata)
    return Play(np.asarray(boards), np.asarray(pieces), np.cumsum(np.asarray(ended)), decisions)


def play(
    key: Array,
    values: Any,
    num_games: int = 100,
    max_moves: int = 500,
    *,
    rows: int = 20,
    cols: int = 10,
    features: str = "basic",
    dedupe: bool = True,
) -> Int[np.ndarray, "game"]:
    """Moves (game,) that a player makes before a game ends, at most `max_moves`; games are played side by side.

    Parameters
    ----------
    values : (feature,), or (game, feature) draws from a posterior, one a game.
    rows, cols, features, dedupe : as for :func:`simulate`, in which setting the values were learned.
    """
    weights = _read_values(values, features, cols, rows, max_moves, num_games)
    keys = jax.random.split(key, num_games)
    each = jnp.broadcast_to(weights, (num_games, weights.shape[-1]))
    return np.asarray(_games(keys, each, max_moves, (rows, cols), features, dedupe))


@functools.partial(jax.jit, static_argnums=(2, 3, 4, 5))
def _games(keys, weights, max_moves, size, features, dedupe):
    def one(key, value):
        ended = _play(key, value, max_moves + 1, size, features, dedupe)[2]
        return jnp.where(jnp.any(ended), jnp.argmax(ended), max_moves)

    return jax.vmap(one)(keys, weights)


@functools.partial(jax.jit, static_argnums=(2, 3, 4, 5))
def _play(key, weights, num_decisions, size, features, dedupe):
    """Boards, pieces, whether the game before had ended, slots chosen, features and legality of every decision."""

    def decide(board, key):
        key_piece, key_noise = jax.random.split(key)
        piece = jax.random.randint(key_piece, (), 0, len(PIECES))
        ended = jnp.any(board[0]) | ~jnp.any(_legal(board, piece, dedupe))
        board = jnp.where(ended, False, board)
        found = outcomes(board, piece, features=features, dedupe=dedupe)
        utility = found.features @ weights + jax.random.normal(key_noise, found.legal.shape, weights.dtype)
        slot = jnp.argmax(jnp.where(found.legal, utility, -jnp.inf))
        return found.boards[slot], (board, piece, ended, slot, found.features, found.legal)

    return lax.scan(decide, jnp.zeros(size, bool), jax.random.split(key, num_decisions))[1]


def _read_values(
    values: Any, features: str, cols: int, rows: int, count: int, games: int | None = None
) -> Array:
    if features not in FEATURES:
        raise ValueError(f"features must be one of {tuple(FEATURES)}, not {features!r}")
    for name, size, least in (("rows", rows, 4), ("cols", cols, 4), ("the number of decisions", count, 1)):
        if size < least:
            raise ValueError(f"{name} is {size}: give at least {least}")
    weights, width = jnp.asarray(values, float), len(FEATURES[features](cols))
    good = weights.shape == (width,) or (games is not None and weights.shape == (games, width))
    if not good:
        raise ValueError(f"values has shape {weights.shape}, not ({width},): one a feature of {features!r}")
    return weights


def draw_board(board: Any, ax: Any = None, *, before: Any = None) -> Any:
    """Axes with a board; cells that `before` does not have, the placement, in a colour of their own.

    Parameters
    ----------
    board : (row, column) booleans, the top row first.
    ax : axes to draw into.
    before : the board before the placement.
    """
    import matplotlib.pyplot as plt
    from matplotlib.colors import ListedColormap

    cells = np.asarray(board, bool).astype(int)
    if before is not None:
        cells = cells + (cells.astype(bool) & ~np.asarray(before, bool))
    rows, cols = cells.shape
    axes = ax if ax is not None else plt.subplots(figsize=(0.25 * cols, 0.25 * rows))[1]
    axes.imshow(cells, cmap=ListedColormap(["white", "0.55", "C1"]), vmin=0, vmax=2)
    axes.set_xticks(np.arange(-0.5, cols), minor=True)
    axes.set_yticks(np.arange(-0.5, rows), minor=True)
    axes.grid(which="minor", color="0.85", linewidth=0.5)
    axes.tick_params(which="both", length=0, labelbottom=False, labelleft=False)
    return axes
