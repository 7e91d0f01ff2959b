"""Water-deprived mice in a labyrinth: a binary tree of corridors with a water port at one of its 64 ends.

238 windows of 500 steps between nodes (origin and licence: ``data/labyrinth/NOTICE``). Node 0 is the first fork,
reached from the home cage through the entrance; node n forks into nodes 2n + 1 and 2n + 2, and nodes 63 to 126 are the
ends. The windows are from ten mice, without identities. Each was selected to contain node 0 and the water port at least
seven times, and may concatenate several visits to the maze: occupancy in the windows is not that of the recordings.

Actions are the step types of the recordings. "in left" and "in right" enter the left or the right branch of a fork, as
seen from the entrance; "out left" returns along a left branch to its fork, "out right" along a right branch. Each
action is possible at some nodes only; the table of next nodes has impossible ones stay in place. They do not occur,
except that "out right" at node 0 stands for leaving the maze: the next visit begins at node 0, so the table stays
there. "out left" never occurs at node 0.

There is no ground truth. The modes usually reported are going to the water, going home and exploring.

References
----------
Rosenberg, Zhang, Perona, Meister (2021), Mice in a labyrinth show rapid learning, sudden insight, and efficient
exploration. Ke, Wu, Jha, Wu, Inverse Reinforcement Learning with Switching Rewards and History Dependency for
Characterizing Animal Behaviors.
"""

from typing import Any

import jax
import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from ethogram.domains.data import archive
from ethogram.models.arguments import read_array, require, require_integer, require_key
from ethogram.models.data.trajectories import Metadata, Trajectories

__all__ = [
    "ACTION_NAMES", "HOME", "NUM_ACTIONS", "NUM_NODES", "WATER", "draw_maze", "draw_windows", "load", "maze_occupancy",
    "next_state", "node_positions", "typical_window", "where_moves_lead",
]  # fmt: skip

NUM_NODES = 127
NUM_LEVELS = 6
ACTION_NAMES = ("in left", "in right", "out left", "out right")
NUM_ACTIONS = 4
HOME = 0
WATER = 116


def load() -> Trajectories:
    """The windows, one sequence each: nodes as states, step types as actions.

    Examples
    --------
    >>> load().states.shape
    (238, 500)
    """
    nodes, actions = archive.embedded("labyrinth", "labyrinth.npz", ("s", "a"))
    metadata = Metadata(name="labyrinth", action_names=ACTION_NAMES, time_unit="step")
    return Trajectories.from_list(states=list(nodes), actions=list(actions), metadata=metadata, codes=True)


def next_state() -> Int[np.ndarray, "node action"]:
    """Next node of each node and action; impossible actions stay in place."""
    return archive.embedded("labyrinth", "labyrinth.npz", ("next_state",))[0].astype(int)


def node_positions() -> Float[np.ndarray, "node 2"]:
    """Coordinates of the nodes, x to the right and y upwards, in corridor widths from 0 to 14.

    The entrance is at (0, 7), node 0 in the centre at (7, 7). The corridors to the nodes of level 1 run vertically,
    those of level 2 horizontally, and so on in turns; their lengths are 4, 4, 2, 2, 1 and 1.
    """
    middle = 2.0 ** (NUM_LEVELS // 2) - 1
    places = np.full((NUM_NODES, 2), middle)
    for node in range(1, NUM_NODES):
        level = (node + 1).bit_length() - 1
        reach = 2 ** ((NUM_LEVELS - level) // 2)
        # Of the two nodes after a fork the first is above it or to its left.
        step = (0, reach) if level % 2 else (-reach, 0)
        places[node] = places[(node - 1) // 2] + (1 if node % 2 else -1) * np.array(step)
    return places


def draw_maze(ax: Any = None) -> Any:
    """Draw the corridors as lines between the nodes of `node_positions`.

    Parameters
    ----------
    ax : Matplotlib axes; new ones by default.
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


LARGEST = 3000
"""Area of a disc, in square points, for a share of 1."""
ARROW = 0.6
"""Length of an arrow in corridor widths."""


def maze_occupancy(
    visits: ArrayLike,
    ax: Any = None,
    *,
    policy: ArrayLike | None = None,
    colour: Any = "#3f90da",
    min_visits: float | int = 5.0,
) -> Any:
    """Occupancy of the labyrinth as discs, and the most probable moves as arrows.

    The area of a disc is the share of the steps at its node. At the first fork, an arrow to the left is the move to the
    home cage.

    Parameters
    ----------
    visits : (node,) steps at each node, such as sums of posterior probabilities.
    ax : axes to draw into.
    policy : (node, action) probabilities of the moves; None draws no arrows.
    colour : of the discs.
    min_visits : number of visits from which a node has an arrow; with fewer the policy is close to its prior.
    """
    steps = _read_visits(visits)
    moves = None if policy is None else _read_policy(policy)
    axes = draw_maze(ax)
    places = node_positions()
    share = steps / steps.sum()
    axes.scatter(*places.T, s=LARGEST * share, color=[colour], alpha=0.75, linewidth=0, zorder=2)
    if moves is not None:
        _draw_moves(axes, places, moves, np.flatnonzero(steps >= min_visits))
    mark: dict[str, Any] = {"linestyle": "", "markersize": 13, "markeredgecolor": "white", "zorder": 4}
    home = np.array([0, places[HOME, 1]])
    axes.plot(*places[WATER], marker="*", color="#3f90da", **mark)
    axes.plot(*home, marker="s", color="0.2", **(mark | {"markersize": 8}))
    at_water = places[WATER] + (0.5, 0.4)
    axes.text(*at_water, "water", ha="right", va="bottom", fontsize=9, zorder=5)
    axes.text(home[0] + 0.4, home[1] + 0.05, "home", ha="left", va="bottom", fontsize=9, zorder=5)
    if not axes.get_title():
        axes.set_title("occupancy and most probable moves", fontsize="medium")
    return axes


def _draw_moves(axes: Any, places: np.ndarray, policy: np.ndarray, nodes: np.ndarray) -> None:
    """Arrows from nodes in the direction of their most probable moves."""
    action = policy[nodes].argmax(-1)
    towards = places[next_state()[nodes, action]] - places[nodes]
    leaves = (nodes == HOME) & (action == ACTION_NAMES.index("out right"))
    towards[leaves] = (-1, 0)
    length = np.linalg.norm(towards, axis=-1, keepdims=True)
    towards = ARROW * towards / np.maximum(length, 1)
    axes.quiver(
        *places[nodes].T, *towards.T,
        angles="xy", scale_units="xy", scale=1, width=0.006, headwidth=4, headlength=4, headaxislength=3.6,
        color="0.1", zorder=3,
    )  # fmt: skip


def where_moves_lead(policy: ArrayLike, visits: ArrayLike) -> tuple[float, float]:
    """Shares of an intent's steps from which its most probable moves lead to the water port, and to the home cage.

    Whichever comes first counts; from all other nodes the moves end in a cycle.

    Parameters
    ----------
    policy : (node, action) probabilities.
    visits : (node,) steps at each node.
    """
    action, steps = _read_policy(policy).argmax(-1), _read_visits(visits)
    after = next_state()[np.arange(NUM_NODES), action]
    out = action[HOME] == ACTION_NAMES.index("out right")
    place, end = np.arange(NUM_NODES), np.zeros(NUM_NODES, int)
    for _ in range(NUM_NODES):
        end = np.where((end == 0) & (place == HOME) & out, 2, end)
        place = after[place]
        end = np.where((end == 0) & (place == WATER), 1, end)
    water, home = (float(steps[end == which].sum() / steps.sum()) for which in (1, 2))
    return water, home


def draw_windows(key: jax.Array, num_train: int, num_test: int) -> tuple[Trajectories, Trajectories]:
    """Disjoint training and test windows of the mice, at least 1 of each, drawn at random."""
    require_key(key)
    require_integer("num_train", num_train)
    require_integer("num_test", num_test)
    data, count = load(), num_train + num_test
    if min(num_train, num_test) < 1 or count > data.num_sequences:
        raise ValueError(
            f"num_train is {num_train} and num_test {num_test}: give at least 1 of each and at most "
            f"{data.num_sequences} in all"
        )
    key_chosen, key_split = jax.random.split(key)
    chosen = np.sort(np.asarray(jax.random.permutation(key_chosen, data.num_sequences))[:count])
    return data.take(chosen).split(key_split, test_fraction=num_test / count)


def typical_window(probability: ArrayLike) -> int:
    """Index of the window whose intent shares are nearest to those of all windows.

    The probability (sequence, time, intent) is zero beyond each length.
    """
    given = read_array("probability", probability, 3).astype(float)
    held = given.sum(1)
    if not held.sum() > 0 or not np.isfinite(held).all() or given.min() < 0:
        raise ValueError(
            f"probability has shape {given.shape} and sum {held.sum():g}: give (sequence, time, intent), finite, not "
            "negative, and not all 0"
        )
    share = held / np.maximum(held.sum(-1, keepdims=True), 1)
    return int(np.argmin(((share - held.sum(0) / held.sum()) ** 2).sum(-1)))


def _read_visits(visits: ArrayLike) -> np.ndarray:
    """Checked steps (node,) at each node."""
    steps = read_array("visits", visits).astype(float)
    if steps.shape != (NUM_NODES,) or not 0 < steps.sum() < np.inf or steps.min() < 0:
        raise ValueError(
            f"visits has shape {steps.shape} and sum {steps.sum():g}: give ({NUM_NODES},) non-negative numbers, not "
            "all 0"
        )
    return steps


def _read_policy(policy: ArrayLike) -> np.ndarray:
    """Checked probabilities (node, action) of the moves."""
    moves = read_array("policy", policy).astype(float)
    if moves.shape != (NUM_NODES, NUM_ACTIONS):
        raise ValueError(f"policy has shape {moves.shape}, not ({NUM_NODES}, {NUM_ACTIONS})")
    require(np.isfinite(moves).all(1), "policy", moves, ": give finite probabilities")
    return moves
