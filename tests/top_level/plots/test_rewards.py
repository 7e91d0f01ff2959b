"""Figures of reward posteriors: their contents, and refusals."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas
import pytest
from matplotlib.figure import Figure

import ethogram
from ethogram.domains import objectworld, small_mdps
from ethogram.fits.figures import draw_rewards
from ethogram.fits.findings import of_rewards
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.mdps import MDP
from ethogram.plots import rewards as plots_rewards


def test_a_map_has_its_first_row_below(axes):
    visited = np.zeros(9)
    visited[[1, 5]] = 2, 8
    drawn = plots_rewards.reward_map(np.arange(9.0), 3, axes, visited=visited, limits=(-1, 9))
    assert drawn is axes
    image = axes.images[0]
    assert image.origin == "lower" and image.get_clim() == (-1, 9)
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
    """Lakes are numbered from above, an objectworld from below, as its action +y says."""
    for world, shape in (
        (small_mdps.frozen_lake(), (4, 4)),
        (small_mdps.frozen_lake(["SFFF", "FFFG"]), (2, 4)),
    ):
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


def drawn_fit(model, data, rows, rewards):
    """A fit whose four draws of centred rewards are equal."""
    table = pandas.DataFrame({"mean": rewards, "lower": rewards, "upper": rewards}, rows)
    fit = SimpleNamespace(model=model, data=data, has_draws=True, state_names=(), summary=lambda: table)
    fit._entries = lambda **_: (rows, np.tile(rewards, (1, 4, 1)))
    return fit


def test_subjects_have_maps_of_their_own_in_colours_of_one_scale():
    names = [f"{row},{column}" for row in range(2) for column in range(3)]
    grid = MDP.dense(np.full((6, 2, 6), 1 / 6), discount=0.9, state_names=names)
    model = ethogram.GPIRL(grid, np.eye(6)[:, :2])
    data = Trajectories.from_list(states=[[0], [1]], actions=[[1], [1]], subject=["Ana", "Bo"])
    centred = np.array([[5.0, -1, -1, -1, -1, -1], [-2, -2, -2, -2, -2, 10]])
    rows = [f"centred_reward[{owner}, {name}]" for owner in ("Ana", "Bo") for name in names]
    fit = drawn_fit(model, data, rows, centred.ravel())
    figure = Figure(figsize=(11, 5))
    draw_rewards(fit, figure)
    maps = [axes for axes in figure.axes if axes.images]
    for axes, mean in zip(maps, centred, strict=True):
        np.testing.assert_array_equal(axes.images[0].get_array(), mean.reshape(2, 3))
        assert axes.images[0].get_clim() == (-2, 10)
    bars = [axes.get_ylabel() for axes in figure.axes if not axes.images]
    assert bars == ["mean reward, subject Ana", "mean reward, subject Bo"]
    (sentence,) = of_rewards(fit).sentences
    assert sentence.startswith("The largest reward is that of subject and state Bo, 1,2, 10 above")
    assert "interval" not in sentence  # of a point


def test_maps_average_rewards_over_the_actions_that_are_available():
    mask = np.ones((4, 2), bool)
    mask[3, 1] = False
    names = ["0,0", "0,1", "1,0", "1,1"]
    world = MDP.dense(np.full((4, 2, 4), 0.25), discount=0.9, action_mask=mask, state_names=names)
    rewards = np.array([0.0, 2, 0, 0, -4, 0, 8, -6])
    rows = [f"centred_reward[{name}, {action}]" for name in names for action in range(2)]
    figure = Figure(figsize=(11, 5))
    fit = drawn_fit(
        ethogram.GPIRL(world, np.arange(8.0).reshape(4, 2, 1), relevance_prior=1.0),
        np.zeros((4, 2), int),
        rows,
        rewards,
    )
    draw_rewards(fit, figure)
    image, bar = figure.axes
    np.testing.assert_array_equal(image.images[0].get_array(), [[1, 0], [-2, 8]])
    assert bar.get_ylabel() == "reward, centred, mean of actions" and image.get_title() == "estimate"


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
