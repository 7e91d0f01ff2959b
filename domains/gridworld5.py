"""A 5 x 5 gridworld and a simulated agent that switches between two modes, with the true mode of every step.

200 traces of 500 steps (origin and licence: ``data/gridworld5/NOTICE``). The cell is ``5 * row + column``; there are
five actions, and the borders are walls. The file has numbers only: the names left, down, right and up follow from its
table of next cells, with rows counted downwards.

The intent is the mode. Its switching depends on the cell that the agent leaves: mode 0 ends mainly at cell 23
(with probability 0.36, and 0.04 at cell 24), mode 1 at cell 0 (0.15). At each of the other 22 cells fewer than one step
in 70 is a switch, so that "the intent never changes here" is nearly true there, but not exactly.

References
----------
Ke, Wu, Jha, Wu, Inverse Reinforcement Learning with Switching Rewards and History Dependency for
Characterizing Animal Behaviors.
"""

import numpy as np
from jaxtyping import Bool

from ethogram.domains.data import archive
from ethogram.models.data.trajectories import Metadata, Trajectories
from ethogram.models.intents import Rollout

__all__ = [
    "ACTION_NAMES", "NEXT_STATE", "NUM_ACTIONS", "NUM_CELLS", "QUIET_CELLS", "load", "quiet_region",
]  # fmt: skip

NUM_CELLS = 25
ACTION_NAMES = ("left", "down", "right", "up", "stay")
NUM_ACTIONS = 5
NEXT_STATE = np.array([
    [0, 5, 1, 0, 0], [0, 6, 2, 1, 1], [1, 7, 3, 2, 2], [2, 8, 4, 3, 3], [3, 9, 4, 4, 4],
    [5, 10, 6, 0, 5], [5, 11, 7, 1, 6], [6, 12, 8, 2, 7], [7, 13, 9, 3, 8], [8, 14, 9, 4, 9],
    [10, 15, 11, 5, 10], [10, 16, 12, 6, 11], [11, 17, 13, 7, 12], [12, 18, 14, 8, 13], [13, 19, 14, 9, 14],
    [15, 20, 16, 10, 15], [15, 21, 17, 11, 16], [16, 22, 18, 12, 17], [17, 23, 19, 13, 18], [18, 24, 19, 14, 19],
    [20, 20, 21, 15, 20], [20, 21, 22, 16, 21], [21, 22, 23, 17, 22], [22, 23, 24, 18, 23], [23, 24, 24, 19, 24],
])  # fmt: skip
QUIET_CELLS = np.arange(1, 23)


def load() -> Rollout:
    """The traces as states and actions, with the mode of every step as the intent.

    Examples
    --------
    >>> rollout = load()
    >>> rollout.data.states.shape, rollout.intents.shape
    ((200, 500), (200, 500))
    """
    keys = ("s", "a", "x_true")
    cells, actions, modes = archive.embedded("gridworld5", "gridworld5_switching.npz", keys)
    metadata = Metadata(name="5 x 5 gridworld, two modes", action_names=ACTION_NAMES, time_unit="step")
    return Rollout(
        Trajectories.from_list(states=list(cells), actions=list(actions), metadata=metadata, codes=True),
        modes.astype(np.int32),
    )


def quiet_region() -> Bool[np.ndarray, "cell"]:
    """Mask of the cells where the intent hardly ever switches: `QUIET_CELLS`, all but 0, 23 and 24."""
    return np.isin(np.arange(NUM_CELLS), QUIET_CELLS)
