"""Counts of demonstrations, and what is refused as one."""

from __future__ import annotations

import numpy as np
import pytest

from ethogram.models.data import Trajectories
from ethogram.models.mdps import MDP, demonstration_counts

MDP_OF_THREE = MDP.deterministic(
    [[0, 1], [0, 2], [1, 2]], action_mask=[[True, True], [True, True], [False, True]]
)


def test_counts_are_of_known_actions():
    """Pooled, and by expert."""
    data = Trajectories.from_list(states=[[0, 1, 2, 2], [1, 0, 0]], actions=[[1, 1, 1, -1], [0, 0, 0]])
    expected = np.array([[2, 1], [1, 1], [0, 1]])
    np.testing.assert_array_equal(demonstration_counts(MDP_OF_THREE, data), expected)
    by_expert = demonstration_counts(MDP_OF_THREE, data._replace(subject=np.array([1, 0])), num_agents=2)
    np.testing.assert_array_equal(by_expert, [[[2, 0], [1, 0], [0, 0]], [[0, 1], [0, 1], [0, 1]]])


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (np.array([[0, 0], [0, 0], [1, 0]]), ValueError, r"demonstrations\[2, 0\] is 1, but this action is not"),
        (np.zeros((3, 2), int), ValueError, "demonstrations is all 0"),
        (np.ones((3, 2)), TypeError, "demonstrations has dtype float64: give integer counts"),
        ([[0, 1]], TypeError, "demonstrations is a list"),
        (([0, 2], [1, 1]), ValueError, r"data.states\[0, 1\] is 2: action 1 never leads there from 0"),
        (([2, 1], [0, 0]), ValueError, r"demonstrations.actions\[0, 0\] is 0, which is not available in its state"),
        (([0, 1], [-1, -1]), ValueError, "demonstrations have no observed action"),
    ],
)  # fmt: skip
def test_bad_demonstrations_are_refused(data, error, message):
    if isinstance(data, tuple):
        data = Trajectories.from_list(states=[data[0]], actions=[data[1]])
    with pytest.raises(error, match=message):
        demonstration_counts(MDP_OF_THREE, data)
