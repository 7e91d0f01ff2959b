"""Figures of reward posteriors: their contents, and refusals."""

from __future__ import annotations

import numpy as np
import pytest

from ethogram.domains import objectworld, toy_text
from ethogram.models.mdps import MDP
from ethogram.plots import rewards as plots_rewards


def test_a_map_has_its_first_row_below(axes):
    visited = np.zeros(9)
    visited[[1, 5]] = 2, 8
    drawn = plots_rewards.reward_map(np.arange(9.0), 3, axes, visited=visited)
    assert drawn is axes
    image = axes.images[0]
    assert image.origin == "lower"
    np.testing.assert_array_equal(np.asarray(image.get_array())[0], [0, 1, 2])
    rings = axes.collections[0]
    np.testing.assert_array_equal(rings.get_offsets(), [[1, 0], [2, 1]])
    assert rings.get_sizes()[1] == 4 * rings.get_sizes()[0]
    assert axes.figure.axes[1].get_ylabel() == "reward"


def test_the_most_relevant_features_stand_on_top(axes):
    relevance = np.full((5, 20), 1e-3)
    relevance[:, 7], relevance[:, 2] = 10.0, 1.0
    plots_rewards.relevance_forest(relevance, axes, names=objectworld.feature_names(6))
    labels = [text.get_text() for text in axes.get_yticklabels()]
    names = objectworld.feature_names(6)
    rows = dict(zip(labels, axes.get_yticks(), strict=True))
    assert len(labels) == 12 and rows[names[7]] == 11 and rows[names[2]] == 10
    assert axes.get_xscale() == "log" and axes.get_xlabel() == "relevance, the largest 12 of 20"


def test_cells_of_a_grid_are_found_by_its_moves():
    """Lakes and cliffs are numbered from above, an objectworld from below, as its action +y says."""
    for world, shape in ((toy_text.frozen_lake(), (4, 4)), (toy_text.cliff_walking(), (4, 12))):
        rows, columns = np.divmod(np.arange(shape[0] * shape[1]), shape[1])
        np.testing.assert_array_equal(plots_rewards.grid_cells(world.mdp), np.stack([rows, columns], -1))
    cell = np.arange(12)
    moves = np.stack([np.where(cell < 8, cell + 4, cell), np.where(cell % 4 < 3, cell + 1, cell)], -1)
    above = plots_rewards.grid_cells(MDP.deterministic(moves, action_names=("+y", "+x")))
    assert above[[0, 3, 8]].tolist() == [[2, 0], [2, 3], [0, 0]]


def test_cells_are_named_given_or_absent(axes):
    corridor = MDP.deterministic([[0, 1], [0, 2], [1, 2]], state_names=("(1, 0)", "(1, 1)", "(0, 1)"))
    cells = plots_rewards.grid_cells(corridor)
    assert cells.tolist() == [[1, 0], [1, 1], [0, 1]]
    drawn = plots_rewards.reward_map([1.0, 2.0, 3.0], cells, axes)
    np.testing.assert_array_equal(drawn.images[0].get_array().filled(np.nan), [[np.nan, 3], [1, 2]])
    bits = np.arange(8)[:, None] ^ [1, 2, 4]  # three switches are no grid
    assert plots_rewards.grid_cells(MDP.deterministic(bits)) is None
    assert plots_rewards.grid_cells(MDP.deterministic(bits), (2, 4))[5].tolist() == [1, 1]
    assert plots_rewards.grid_cells(MDP.dense(np.full((6, 2, 6), 1 / 6))) is None
    with pytest.raises(ValueError, match="whose product is 8 states"):
        plots_rewards.grid_cells(MDP.deterministic(bits), (3, 3))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: plots_rewards.reward_map(np.zeros(8), 3), "finite numbers, one per cell"),
        (lambda: plots_rewards.reward_map(np.full(9, np.nan), 3), "finite numbers, one per cell"),
        (lambda: plots_rewards.reward_map(np.zeros(9), 3, visited=np.zeros(4)), "visited has shape"),
        (lambda: plots_rewards.relevance_forest(np.zeros((5, 2))), "numbers above 0"),
        (
            lambda: plots_rewards.relevance_forest(np.ones((5, 2)), names=["one"]),
            "names has 1 entries: give 2",
        ),
    ],
)
def test_what_cannot_be_drawn_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
