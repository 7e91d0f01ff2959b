r"""Tetris: seven pieces, straight drops, and noisy players with values linear in features of the board.

A decision is a rotation and a column for the current piece; its value is linear in features of the board that results,
and the choice is noisy. Placements of equal shape are one option: two copies, each with noise of its own, would be
chosen more often than one. A game ends when the top row is occupied or no placement is legal; the player continues with
an empty board.

Singh, Chopin and Whiteley, "Bayesian learning of noisy Markov decision processes", section 5.2 (eq. 21-22). Erratum:
the text says 30 rows, and the printed lengths of games are those of 20.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Bool, Float, Int

from ethogram.domains.tetris.pieces import PIECES, placements
from ethogram.models.arguments import is_concrete, require_integer, require_key, require_one_of
from ethogram.models.choices.decisions import Decisions
from ethogram.models.data.trajectories import Metadata

__all__ = [
    "FEATURES",
    "Outcomes",
    "Play",
    "draw_board",
    "draw_placement",
    "outcomes",
    "play",
    "simulate",
]

FEATURES = {
    "basic": lambda cols: ("height", "holes", "bumpiness"),
    "bertsekas": lambda cols: (
        "height",
        "holes",
        *(f"column {c}" for c in range(cols)),
        *(f"step {c}" for c in range(cols - 1)),
    ),
}
"""Names of board features: the height of the highest cell, holes (empty cells below an occupied one), and the sum of
squared differences of adjacent column heights; "bertsekas" has the heights and absolute differences in its place."""


class Outcomes(NamedTuple):
    """The boards that the placements of a piece result in.

    Attributes
    ----------
    legal : (slot,) booleans.
    boards : (slot, row, column) booleans, after full rows are cleared.
    features : (slot, feature) of those boards.
    """

    legal: Bool[Array, "slot"]
    boards: Bool[Array, "slot row column"]
    features: Float[Array, "slot feature"]


def outcomes(board: Any, piece: Any, *, features: str = "basic", dedupe: bool = True) -> Outcomes:
    """Outcomes of all placements of a piece on a board.

    Parameters
    ----------
    board : (row, column) booleans, the top row first, at least 4 of each.
    piece : index into `PIECES`; not checked inside `jax.jit`.
    features : ``"basic"`` or ``"bertsekas"``.
    dedupe : as in `placements`.
    """
    _check_settings(features, dedupe=dedupe)
    return _outcomes(_read_board(board), _read_number("piece", piece, len(PIECES)), features, dedupe)


@functools.partial(jax.jit, static_argnums=(2, 3))
def _outcomes(board: Array, piece: Array, features: str, dedupe: bool) -> Outcomes:
    table = placements(board.shape[1], dedupe)
    cells, free = jnp.asarray(table.cells)[piece], _free_below(board)

    def place(where):
        drop = jnp.min(free[where[:, 0], where[:, 1]])
        return _cleared(board.at[where[:, 0] + drop, where[:, 1]].set(True))

    boards = jax.vmap(place)(cells)
    each = jax.vmap(functools.partial(_features, kind=features))(boards)
    return Outcomes(_legal(board, piece, dedupe), boards, each)


def _legal(board: Array, piece: Array, dedupe: bool) -> Array:
    """Whether the cells of each placement (slot,) are free at the top edge."""
    table = placements(board.shape[1], dedupe)
    cells = jnp.asarray(table.cells)[piece]
    return jnp.asarray(table.exists)[piece] & ~jnp.any(board[cells[..., 0], cells[..., 1]], axis=-1)


def _free_below(board: Array) -> Array:
    """Number of free cells below each cell, down to the first occupied one."""
    rows = board.shape[0]
    row = jnp.arange(rows)[:, None]
    blocked = jnp.where(board, row, rows)
    first = lax.cummin(blocked, axis=0, reverse=True)  # at or below
    below = jnp.concatenate([first[1:], jnp.full_like(first[:1], rows)])
    return below - row - 1


def _cleared(board: Array) -> Array:
    """The board after full rows are cleared."""
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
    """Consecutive decisions of a player, over one or more games.

    Attributes
    ----------
    boards : (decision, row, column) booleans before the placement.
    pieces : (decision,) indices into `PIECES`.
    game : (decision,) number of the game.
    decisions : features of the resulting boards, legal placements, and the chosen slots.
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
    noise: bool = True,
) -> Play:
    """Simulated decisions of a player with these values of the features, and standard normal noise.

    Parameters
    ----------
    key : a typed key, ``jax.random.key(seed)``.
    values : (feature,), such as (-3, -15, -1).
    rows, cols : of the board, at least 4 each.
    features : ``"basic"`` or ``"bertsekas"``.
    dedupe : as in `placements`; fit decisions with the setting in which they were made.
    noise : False for the greedy player, whose placement is the most probable one under noise.

    Examples
    --------
    >>> import jax
    >>> play = simulate(jax.random.key(0), (-3.0, -15.0, -1.0), 8)
    >>> play.decisions.features.shape, play.boards.shape
    ((8, 34, 3), (8, 20, 10))
    """
    require_key(key)
    _check_settings(features, dedupe=dedupe, noise=noise)
    _check_counts(num_decisions=num_decisions, rows=rows, cols=cols)
    weights = _read_values(values, features, cols)
    found = _play(key, weights, float(noise), num_decisions, (rows, cols), features, dedupe)
    boards, pieces, ended, slots, options, legal = map(np.asarray, found)
    metadata = Metadata(name="Tetris", feature_names=FEATURES[features](cols))
    return Play(boards, pieces, np.cumsum(ended), Decisions(options, legal, slots, metadata=metadata))


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
    noise: bool = True,
) -> Int[np.ndarray, "game"]:
    """Number of moves (game,) before each game ends, at most `max_moves`; games are vectorised.

    Parameters
    ----------
    key : a typed key.
    values : (feature,), or (game, feature) posterior draws, one per game.
    rows, cols, features, dedupe : as for :func:`simulate`, the setting in which the values were learned.
    noise : False for the greedy player.
    """
    require_key(key)
    _check_settings(features, dedupe=dedupe, noise=noise)
    _check_counts(num_games=num_games, max_moves=max_moves, rows=rows, cols=cols)
    weights = _read_values(values, features, cols, num_games)
    keys = jax.random.split(key, num_games)
    each = jnp.broadcast_to(weights, (num_games, weights.shape[-1]))
    return np.asarray(_games(keys, each, float(noise), max_moves, (rows, cols), features, dedupe))


@functools.partial(jax.jit, static_argnums=(3, 4, 5, 6))
def _games(keys, weights, noise, max_moves, size, features, dedupe):
    def one(key, value):
        ended = _play(key, value, noise, max_moves + 1, size, features, dedupe)[2]
        return jnp.where(jnp.any(ended), jnp.argmax(ended), max_moves)

    return jax.vmap(one)(keys, weights)


@functools.partial(jax.jit, static_argnums=(3, 4, 5, 6))
def _play(key, weights, noise, num_decisions, size, features, dedupe):
    """Boards, pieces, whether the last game had ended, chosen slots, features and legal placements, by decision."""

    def decide(board, key):
        key_piece, key_noise = jax.random.split(key)
        piece = jax.random.randint(key_piece, (), 0, len(PIECES))
        ended = jnp.any(board[0]) | ~jnp.any(_legal(board, piece, dedupe))
        board = jnp.where(ended, False, board)
        found = _outcomes(board, piece, features, dedupe)
        disturbed = noise * jax.random.normal(key_noise, found.legal.shape, weights.dtype)
        utility = found.features @ weights + disturbed
        slot = jnp.argmax(jnp.where(found.legal, utility, -jnp.inf))
        return found.boards[slot], (board, piece, ended, slot, found.features, found.legal)

    return lax.scan(decide, jnp.zeros(size, bool), jax.random.split(key, num_decisions))[1]


def _check_settings(features: Any, **flags: Any) -> None:
    require_one_of("features", features, FEATURES)
    for name, flag in flags.items():
        if not isinstance(flag, bool):
            raise TypeError(f"{name} must be True or False, not {flag!r}")


def _check_counts(*, rows: Any, cols: Any, **counts: Any) -> None:
    for name, number in counts.items():
        require_integer(name, number, 1)
    require_integer("rows", rows, 4)
    require_integer("cols", cols, 4)


def _read_values(values: Any, features: str, cols: int, games: int | None = None) -> Array:
    width = len(FEATURES[features](cols))
    try:
        with np.errstate(over="ignore"):  # overflows of single precision are refused below
            weights = jnp.asarray(np.asarray(values, float), float)
    except (TypeError, ValueError):
        raise TypeError(f"values is {values!r}: pass numbers, one per feature of {features!r}") from None
    if weights.shape != (width,) and (games is None or weights.shape != (games, width)):
        raise ValueError(
            f"values has shape {weights.shape}, not ({width},): pass one value per feature of {features!r}"
        )
    if not np.isfinite(weights).all():
        raise ValueError(f"values is {values}: pass finite numbers")
    return weights


def _read_board(board: Any) -> Any:
    cells = board if hasattr(board, "dtype") else np.asarray(board)
    if cells.dtype != bool:
        raise TypeError(f"board has dtype {cells.dtype}: pass booleans, True where a cell is occupied")
    if cells.ndim != 2 or min(cells.shape) < 4:
        raise ValueError(f"board has shape {cells.shape}: pass (row, column), at least 4 of each")
    return cells


def _read_number(name: str, number: Any, count: int) -> Any:
    """An integer from 0 to count - 1, of Python or an array; traced values are not checked."""
    dtype = number.dtype if hasattr(number, "dtype") else np.asarray(number).dtype
    if np.ndim(number) or not np.issubdtype(dtype, np.integer):
        raise TypeError(f"{name} must be an integer, not {number!r}")
    if is_concrete(number) and not 0 <= number < count:
        raise ValueError(f"{name} is {number}: pass a number from 0 to {count - 1}")
    return number


def draw_board(board: Any, ax: Any = None) -> Any:
    """Axes with a board.

    Parameters
    ----------
    board : (row, column) booleans, the top row first.
    ax : axes to draw into.
    """
    return _draw(_read_board(board).astype(int), ax)


def draw_placement(board: Any, piece: Any, slot: Any, ax: Any = None, *, dedupe: bool = True) -> Any:
    """Axes with a board and, in another colour, a piece where it lands; full rows are not cleared yet.

    Parameters
    ----------
    board : (row, column) booleans before the placement, the top row first.
    piece : index into `PIECES`.
    slot : of `placements`, such as a choice of :func:`simulate`.
    ax : axes to draw into.
    dedupe : as in `placements`.
    """
    before, table = np.asarray(_read_board(board)), placements(np.shape(board)[1], dedupe)
    piece = int(_read_number("piece", piece, len(PIECES)))
    slot = int(_read_number("slot", slot, table.exists.shape[1]))
    row, column = table.cells[piece, slot].T
    if not table.exists[piece, slot] or before[row, column].any():
        raise ValueError(
            f"slot {slot} is not legal for piece {list(PIECES)[piece]}: pass a slot that `outcomes` calls legal"
        )
    cells = before.astype(int)
    free = [np.append(before[r + 1 :, c], True).argmax() for r, c in zip(row, column, strict=True)]
    cells[row + min(free), column] = 2
    return _draw(cells, ax)


def _draw(cells: np.ndarray, ax: Any) -> Any:
    """Axes with cells: 0 is free, 1 occupied, 2 occupied by the piece."""
    import matplotlib.pyplot as plt
    from matplotlib.colors import ListedColormap

    rows, cols = cells.shape
    axes = ax if ax is not None else plt.subplots(figsize=(0.25 * cols, 0.25 * rows))[1]
    axes.imshow(cells, cmap=ListedColormap(["white", "0.55", "C1"]), vmin=0, vmax=2)
    axes.set_xticks(np.arange(-0.5, cols), minor=True)
    axes.set_yticks(np.arange(-0.5, rows), minor=True)
    axes.grid(which="minor", color="0.85", linewidth=0.5)
    axes.tick_params(which="both", length=0, labelbottom=False, labelleft=False)
    return axes
