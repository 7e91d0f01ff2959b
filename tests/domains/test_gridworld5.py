"""The 5 x 5 board: its table against geometry, its traces against the table, where modes change, its licence."""

from importlib import resources

import numpy as np
import pytest

from ethogram.domains import gridworld5
from ethogram.models.data.trajectories import check

FOLDER = resources.files("ethogram.domains.data") / "gridworld5"
SHIFTS = {"left": (0, -1), "down": (1, 0), "right": (0, 1), "up": (-1, 0), "stay": (0, 0)}


@pytest.fixture(scope="module")
def raw():
    with (FOLDER / "gridworld5_switching.npz").open("rb") as file, np.load(file) as archive:
        return dict(archive)


@pytest.fixture(scope="module")
def life():
    return gridworld5.load()


def test_the_table_is_that_of_the_file_and_of_a_board(raw):
    np.testing.assert_array_equal(gridworld5.NEXT_STATE, raw["next_state"])
    assert gridworld5.NEXT_STATE.shape == (gridworld5.NUM_CELLS, gridworld5.NUM_ACTIONS)
    for cell, row in enumerate(gridworld5.NEXT_STATE):
        for name, following in zip(gridworld5.ACTION_NAMES, row, strict=True):
            place = np.clip(np.array(divmod(cell, 5)) + SHIFTS[name], 0, 4)
            assert following == 5 * place[0] + place[1]


def test_traces_are_those_of_the_file(raw, life):
    data = check(life.data)
    assert data.observations is None and data.observed.all()
    assert data.lengths.tolist() == [500] * 200
    for ours, theirs in ((data.states, "s"), (data.actions, "a"), (life.intents, "x_true")):
        assert ours.dtype == np.int32
        np.testing.assert_array_equal(ours, raw[theirs])
    assert data.metadata.action_names == gridworld5.ACTION_NAMES
    assert set(np.unique(life.intents)) == {0, 1}


def test_every_step_obeys_the_table(life):
    states, actions = life.data.states, life.data.actions
    np.testing.assert_array_equal(gridworld5.NEXT_STATE[states, actions][:, :-1], states[:, 1:])


def test_modes_change_at_three_cells_and_hardly_ever_in_the_quiet_region(life):
    cells, modes = life.data.states[:, :-1], life.intents[:, :-1]
    changed = modes != life.intents[:, 1:]
    share = np.array(
        [[changed[(modes == mode) & (cells == cell)].mean() for cell in range(25)] for mode in range(2)]
    )
    np.testing.assert_allclose(share[[0, 0, 1], [23, 24, 0]], [0.36, 0.04, 0.15], atol=0.005)
    region = gridworld5.quiet_region()
    assert region.dtype == bool and region.shape == (25,)
    assert np.flatnonzero(~region).tolist() == [0, 23, 24]
    np.testing.assert_array_equal(np.flatnonzero(region), gridworld5.QUIET_CELLS)
    assert share[:, region].max() < 1 / 70
    # Three cells of 25 see nearly all changes.
    assert changed[~region[cells]].sum() > 0.9 * changed.sum()
