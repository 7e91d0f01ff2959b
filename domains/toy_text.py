r"""Two boards of gymnasium's toy text, a frozen lake and a cliff, as worlds without end.

*Frozen lake*: from the start S over frozen cells F to the goal G, which pays 1 when it is reached; the way ends there,
and in a hole H. On slippery ice a move goes where it should with probability 1/3, and as often to either side of that.

*Cliff walking*: every move costs 1. A move onto the cliff C costs 100 and leads back to the start S; the way ends at
the goal G. Cells of the cliff are states that nothing leads to, and are left by the same moves.

A move off the board leaves the agent where it is. Cell (row, column) is state ``row * columns + column``, rows counted
downwards.

Where the way ends the agent stays for ever, paid nothing, and has one action. An agent that is soft about its return is
paid for choice: with all four actions an end would be worth :math:`\ln 4 / (1 - \gamma)`, 27.7 at a discount of 0.95,
about as much as walking on for ever, and a hole in the ice would be nothing to avoid.
``dataclasses.replace(world.mdp, action_mask=None)`` is the world with all actions everywhere. With one action an end
also ends what choice pays: an agent whose rewards are small beside ln 4 a step puts off the goal too.

The rules are those of gymnasium 1.4 (Towers et al., 2024), whose cliff is that of Sutton and Barto (2018), example 6.6.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from ethogram.models.mdp import MDP

__all__ = ["CLIFF", "CLIFF_ACTIONS", "LAKE", "LAKE_ACTIONS", "TextWorld", "cliff_walking", "frozen_lake"]

LAKE = ("SFFF", "FHFH", "FFFH", "HFFG")
LAKE_ACTIONS = ("left", "down", "right", "up")
CLIFF = ("............", "............", "............", "SCCCCCCCCCCG")
CLIFF_ACTIONS = ("up", "right", "down", "left")

MOVES = {"left": (0, -1), "down": (1, 0), "right": (0, 1), "up": (-1, 0)}
"""Rows downwards and columns to the right that a move goes."""

SLIPS = (-1, 0, 1)
"""Actions that happen on ice, counted from the one chosen: its neighbours in the order of `LAKE_ACTIONS`."""


class TextWorld(NamedTuple):
    """A board with what is paid on it.

    Attributes
    ----------
    mdp : the moves and the start, with one action where the way ends.
    reward : r (state, action), expected over what may follow; 0 where the way has ended.
    terminal : (state,), where the way ends.
    """

    mdp: MDP
    reward: Float[np.ndarray, "state action"]
    terminal: Bool[np.ndarray, "state"]


def frozen_lake(*, slippery: bool = True, discount: float | int = 0.95) -> TextWorld:
    """The lake of 4 x 4 cells, with actions left, down, right and up.

    Parameters
    ----------
    slippery : whether a move may go to either side.
    discount : gamma in [0, 1].

    Raises
    ------
    TypeError, ValueError : `discount` is no number in [0, 1].

    Examples
    --------
    >>> lake = frozen_lake()
    >>> lake.reward[14].round(2).tolist(), np.flatnonzero(lake.terminal).tolist()
    ([0.0, 0.33, 0.33, 0.33], [5, 7, 11, 12, 15])
    """
    cells, reached = _cells(LAKE), _reached(LAKE, LAKE_ACTIONS)
    terminal = np.isin(cells, ["H", "G"])
    reached[terminal] = np.flatnonzero(terminal)[:, None]
    happens = np.arange(4)[:, None] + (SLIPS if slippery else (0,))
    successors = reached[:, happens % 4]
    paid = (cells[successors] == "G").mean(-1)
    moves = MDP.sparse(
        successors,
        np.full(successors.shape, 1 / successors.shape[-1]),
        discount=discount,
        action_mask=_one_action(terminal),
        start=(cells == "S").astype(float),
        action_names=LAKE_ACTIONS,
    )
    return TextWorld(moves, np.where(terminal[:, None], 0.0, paid), terminal)


def cliff_walking(*, discount: float | int = 0.95) -> TextWorld:
    """The board of 4 x 12 cells with a cliff along its lower edge, with actions up, right, down and left.

    Parameters
    ----------
    discount : gamma in [0, 1].

    Raises
    ------
    TypeError, ValueError : `discount` is no number in [0, 1].

    Examples
    --------
    >>> cliff = cliff_walking()
    >>> int(cliff.mdp.start.argmax()), cliff.reward[36].tolist()
    (36, [-1.0, -100.0, -1.0, -1.0])
    """
    cells, reached = _cells(CLIFF), _reached(CLIFF, CLIFF_ACTIONS)
    terminal, start = cells == "G", cells == "S"
    falls = cells[reached] == "C"
    reached[falls] = start.argmax()
    reached[terminal] = np.flatnonzero(terminal)[:, None]
    paid = np.where(falls, -100.0, -1.0)
    moves = MDP.deterministic(
        reached,
        discount=discount,
        action_mask=_one_action(terminal),
        start=start.astype(float),
        action_names=CLIFF_ACTIONS,
    )
    return TextWorld(moves, np.where(terminal[:, None], 0.0, paid), terminal)


def _cells(board: Sequence[str]) -> np.ndarray:
    """Letters (state,) of a board."""
    return np.array(list("".join(board)))


def _reached(board: Sequence[str], actions: Sequence[str]) -> np.ndarray:
    """States (state, action) next to each on the board, itself at the edge."""
    shape = len(board), len(board[0])
    place = np.stack(np.divmod(np.arange(shape[0] * shape[1]), shape[1]), axis=-1)
    after = place[:, None] + np.array([MOVES[name] for name in actions])
    row, column = np.moveaxis(np.clip(after, 0, np.array(shape) - 1), -1, 0)
    return row * shape[1] + column


def _one_action(terminal: np.ndarray) -> np.ndarray:
    """Availability (state, action): all four actions, and the first alone where the way ends."""
    return ~terminal[:, None] | (np.arange(4) == 0)
