"""Mice in a labyrinth: training and test windows, and where the moves of an intent lead, for tour and notebook."""

from __future__ import annotations

import jax
import numpy as np
from numpy.typing import ArrayLike

from ethogram.domains import labyrinth
from ethogram.models.data import Trajectories

__all__ = ["draw_windows", "typical_trace", "where_moves_lead"]


def where_moves_lead(policy: ArrayLike, visits: ArrayLike) -> tuple[float, float]:
    """Shares of an intent's steps from which its most probable moves lead to the water port, and to the home cage.

    Whichever comes first counts; from all other nodes the moves end in a cycle.

    Parameters
    ----------
    policy : (node, action) probabilities.
    visits : (node,) steps at each node.
    """
    action, steps = np.asarray(policy).argmax(-1), np.asarray(visits, float)
    after = labyrinth.next_state()[np.arange(labyrinth.NUM_NODES), action]
    out = action[labyrinth.HOME] == labyrinth.ACTION_NAMES.index("out right")
    place, end = np.arange(labyrinth.NUM_NODES), np.zeros(labyrinth.NUM_NODES, int)
    for _ in range(labyrinth.NUM_NODES):
        end = np.where((end == 0) & (place == labyrinth.HOME) & out, 2, end)
        place = after[place]
        end = np.where((end == 0) & (place == labyrinth.WATER), 1, end)
    water, home = (float(steps[end == which].sum() / steps.sum()) for which in (1, 2))
    return water, home


def draw_windows(key: jax.Array, num_train: int, num_test: int) -> tuple[Trajectories, Trajectories]:
    """Disjoint training and test windows of the mice, at least 1 of each, drawn at random."""
    data, count = labyrinth.load(), num_train + num_test
    if min(num_train, num_test) < 1 or count > data.num_sequences:
        raise ValueError(
            f"num_train is {num_train} and num_test {num_test}: give at least 1 of each and at most "
            f"{data.num_sequences} in all"
        )
    key_chosen, key_split = jax.random.split(key)
    chosen = np.sort(np.asarray(jax.random.permutation(key_chosen, data.num_sequences))[:count])
    return data.take(chosen).split(key_split, test_fraction=num_test / count)


def typical_trace(probability: ArrayLike) -> int:
    """Index of the trace whose intent shares are nearest to those of all traces.

    The probability (sequence, time, intent) is zero beyond each length.
    """
    held = np.asarray(probability, float).sum(1)
    share = held / np.maximum(held.sum(-1, keepdims=True), 1)
    return int(np.argmin(((share - held.sum(0) / held.sum()) ** 2).sum(-1)))
