r"""Frozen lake and cliff walking of gymnasium's toy text, as infinite-horizon MDPs.

*Frozen lake*: from the start S over frozen cells F to the goal G, with reward 1 on reaching it; episodes end there and
in holes H. On slippery ice a move goes in its direction with probability 1/3, and to either side with 1/3 each.

*Cliff walking*: every move costs 1. A move onto the cliff C costs 100 and leads back to the start S; episodes end at
the goal G. Cells of the cliff are unreachable states.

A move off the board leaves the agent where it is. Cell (row, column) is state ``row * columns + column``, rows counted
downwards.

Terminal states are absorbing, with reward zero and one action. The soft value includes the entropy of actions: with
all four a terminal state would be worth :math:`\ln 4 / (1 - \gamma)`, 27.7 at a discount of 0.95, about as much as
walking on indefinitely, and holes would not be avoided. ``dataclasses.replace(world.mdp, action_mask=None)`` has all
actions everywhere. With one action termination also ends the entropy bonus: an agent whose rewards are small compared
with ln 4 per step avoids the goal too.

The rules are those of gymnasium 1.4 (Towers et al., 2024), whose cliff is that of Sutton and Barto (2018), example 6.6.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from ethogram.models.mdps.mdp import MDP

__all__ = ["CLIFF", "CLIFF_ACTIONS", "LAKE", "LAKE_ACTIONS", "TextWorld", "cliff_walking", "frozen_lake"]

LAKE = ("SFFF", "FHFH", "FFFH", "HFFG")
LAKE_ACTIONS = ("left", "down", "right", "up")
CLIFF = ("............", "............", "............", "SCCCCCCCCCCG")
CLIFF_ACTIONS = ("up", "right", "down", "left")

MOVES = {"left": (0, -1), "down": (1, 0), "right": (0, 1), "up": (-1, 0)}
"""Rows down and columns right of each move."""

SLIPS = (-1, 0, 1)
"""Executed actions on ice, relative to the chosen one in the order of `LAKE_ACTIONS`."""


class TextWorld(NamedTuple):
    """An environment with its reward.

    Attributes
    ----------
    mdp : transitions and start, with one action in terminal states.
    reward : expected r (state, action); 0 in terminal states.
    terminal : (state,), terminal states.
    """

    mdp: MDP
    reward: Float[np.ndarray, "state action"]
    terminal: Bool[np.ndarray, "state"]


def frozen_lake(*, slippery: bool = True, discount: float | int = 0.95) -> TextWorld:
    """The lake of 4 x 4 cells, with actions left, down, right and up.

    Parameters
    ----------
    slippery : whether a move may slip to either side.
    discount : gamma in [0, 1].

    Raises
    ------
    TypeError, ValueError : `discount` is not a number in [0, 1].

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
        **_parts(cells, terminal, LAKE_ACTIONS),
    )
    return TextWorld(moves, np.where(terminal[:, None], 0.0, paid), terminal)


def cliff_walking(*, discount: float | int = 0.95) -> TextWorld:
    """The board of 4 x 12 cells with a cliff along its lower edge, with actions up, right, down and left.

    Parameters
    ----------
    discount : gamma in [0, 1].

    Raises
    ------
    TypeError, ValueError : `discount` is not a number in [0, 1].

    Examples
    --------
    >>> cliff = cliff_walking()
    >>> int(cliff.mdp.start.argmax()), cliff.reward[36].tolist()
    (36, [-1.0, -100.0, -1.0, -1.0])
    """
    cells, reached = _cells(CLIFF), _reached(CLIFF, CLIFF_ACTIONS)
    terminal = cells == "G"
    falls = cells[reached] == "C"
    reached[falls] = (cells == "S").argmax()
    reached[terminal] = np.flatnonzero(terminal)[:, None]
    paid = np.where(falls, -100.0, -1.0)
    moves = MDP.deterministic(reached, discount=discount, **_parts(cells, terminal, CLIFF_ACTIONS))
    return TextWorld(moves, np.where(terminal[:, None], 0.0, paid), terminal)


def _cells(board: Sequence[str]) -> np.ndarray:
    """Letters (state,) of a board."""
    return np.array(list("".join(board)))


def _reached(board: Sequence[str], actions: Sequence[str]) -> np.ndarray:
    """Neighbouring states (state, action) on the board, the state itself at the edge."""
    shape = len(board), len(board[0])
    place = np.stack(np.divmod(np.arange(shape[0] * shape[1]), shape[1]), axis=-1)
    after = place[:, None] + np.array([MOVES[name] for name in actions])
    row, column = np.moveaxis(np.clip(after, 0, np.array(shape) - 1), -1, 0)
    return row * shape[1] + column


def _parts(cells: np.ndarray, terminal: np.ndarray, names: Sequence[str]) -> dict[str, Any]:
    """Names, start and mask of an MDP: all four actions, and the first alone in terminal states."""
    mask = ~terminal[:, None] | (np.arange(4) == 0)
    return {"action_mask": mask, "start": (cells == "S").astype(float), "action_names": names}
