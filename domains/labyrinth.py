"""Thirsty mice in a labyrinth: a binary tree of corridors with water at one of its 64 ends.

238 windows of 500 steps from node to node (origin and licence: ``data/labyrinth/NOTICE``). Node 0 is the first fork,
reached from the home cage by the entrance; node n forks into nodes 2n + 1 and 2n + 2, and nodes 63..126 are the
ends. The windows come from ten mice; the file does not say which is whose. They were chosen so that each has node 0 and
the water at least seven times, and several visits to the maze may stand in one window, end to end: they do not show how
often mice are where.

Actions are the step types of the recordings. "in left" and "in right" turn into the left or the right branch of a
fork, as seen by a mouse that comes from the entrance; "out left" leads back out along a left branch to the fork it
comes from, "out right" along a right branch. So an action is possible at some nodes only: in the table of
next nodes, an impossible one stays. No window has an impossible action, with one exception that is none: "out right" at
node 0 is the way home. It stands for leaving the maze, and since the next visit begins at node 0 as well, the table
stays there. "out left" never occurs at node 0.

There is no true intent. What is usually reported is going for water, going home and exploring.

References
----------
Rosenberg, Zhang, Perona, Meister (2021), Mice in a labyrinth show rapid learning, sudden insight, and efficient
exploration. Ke, Wu, Jha, Wu, Inverse Reinforcement Learning with Switching Rewards and History Dependency for
Characterizing Animal Behaviors.
"""

from typing import Any

import numpy as np
from jaxtyping import Float, Int

from ethogram.domains.data import archive
from ethogram.models.trajectories import Metadata, Trajectories

__all__ = [
    "ACTION_NAMES", "HOME", "NUM_ACTIONS", "NUM_NODES", "WATER", "draw_maze", "load", "next_state",
    "node_positions",
]  # fmt: skip

NUM_NODES = 127
NUM_LEVELS = 6
ACTION_NAMES = ("in left", "in right", "out left", "out right")
NUM_ACTIONS = 4
HOME = 0
WATER = 116


def load() -> Trajectories:
    """The windows, one sequence each: nodes as states, step types as actions.

    Raises
    ------
    ValueError : the embedded file cannot be read or lacks a part.

    Examples
    --------
    >>> load().states.shape
    (238, 500)
    """
    nodes, actions = _arrays("s", "a")
    metadata = Metadata(name="labyrinth", action_names=ACTION_NAMES, time_unit="step")
    return Trajectories.from_list(states=list(nodes), actions=list(actions), metadata=metadata)


def next_state() -> Int[np.ndarray, "node action"]:
    """Node that follows each node and action; an action that is impossible at a node stays there.

    Raises
    ------
    ValueError : the embedded file cannot be read or lacks a part.
    """
    return _arrays("next_state")[0].astype(int)


def node_positions() -> Float[np.ndarray, "node 2"]:
    """Where each node lies, x to the right and y upwards, in widths of a corridor: 0..14 either way.

    A mouse enters at (0, 7), heads right and comes to node 0 in the middle, (7, 7). The corridors to the nodes of
    level 1 run up and down, those of level 2 left and right, and so on in turns; they are 4, 4, 2, 2, 1 and 1 long.
    """
    middle = 2.0 ** (NUM_LEVELS // 2) - 1
    places = np.full((NUM_NODES, 2), middle)
    for node in range(1, NUM_NODES):
        level = (node + 1).bit_length() - 1
        reach = 2 ** ((NUM_LEVELS - level) // 2)
        # Of the two nodes after a fork the first lies above the fork or left of it.
        step = (0, reach) if level % 2 else (-reach, 0)
        places[node] = places[(node - 1) // 2] + (1 if node % 2 else -1) * np.array(step)
    return places


def draw_maze(ax: Any = None) -> Any:
    """Axes with the corridors as lines between the nodes, at the places of `node_positions`.

    Parameters
    ----------
    ax : Matplotlib axes to draw into; new ones by default.
    """
    import matplotlib.pyplot as plt
    from matplotlib.collections import LineCollection

    axes = plt.subplots(figsize=(4, 4))[1] if ax is None else ax
    places = node_positions()
    nodes = np.arange(1, NUM_NODES)
    corridors = np.stack([places[(nodes - 1) // 2], places[nodes]], axis=1)
    entrance = [[[0, places[HOME, 1]], places[HOME]]]
    lines = LineCollection(list(np.concatenate([entrance, corridors])), colors="0.75", linewidths=3, zorder=0)
    lines.set_capstyle("projecting")
    axes.add_collection(lines)
    side = 2 * places[HOME, 0]
    axes.set(xlim=(-0.7, side + 0.7), ylim=(-0.7, side + 0.7), aspect="equal", xticks=[], yticks=[])
    return axes


def _arrays(*keys: str) -> list[np.ndarray]:
    """Arrays of the embedded file."""
    return archive.embedded("labyrinth", "labyrinth.npz", keys)
