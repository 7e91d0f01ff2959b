"""The labyrinth: its table against the tree, its words against the drawing, its windows against the table."""

from importlib import resources

import numpy as np
import pytest
from matplotlib.figure import Figure

from ethogram.domains import labyrinth
from ethogram.models.data.trajectories import check

FOLDER = resources.files("ethogram.domains.data") / "labyrinth"
IN_LEFT, IN_RIGHT, OUT_LEFT, OUT_RIGHT = range(4)


@pytest.fixture(scope="module")
def raw():
    with (FOLDER / "labyrinth.npz").open("rb") as file, np.load(file) as archive:
        return dict(archive)


@pytest.fixture(scope="module")
def windows():
    return labyrinth.load()


def parent(node):
    return (node - 1) // 2


def children(node):
    return {2 * node + 1, 2 * node + 2} if node < 63 else set()


def corridor_to(node, places):
    """Displacement along the corridor by which a mouse from the entrance comes to a node."""
    return places[node] - ((0, 7) if node == 0 else places[parent(node)])


def turn(first, second):
    """1 for a turn to the left from one displacement to the next, -1 for one to the right."""
    return np.sign(first[0] * second[1] - first[1] * second[0])


def test_windows_are_those_of_the_file(raw, windows):
    data = check(windows)
    assert data.observations is None and data.observed.all()
    assert data.lengths.tolist() == [500] * 238
    np.testing.assert_array_equal(data.states, raw["s"])
    np.testing.assert_array_equal(data.actions, raw["a"])
    assert data.states.dtype == data.actions.dtype == np.int32
    assert len(np.unique(data.states)) == labyrinth.NUM_NODES
    assert data.metadata.action_names == ("in left", "in right", "out left", "out right")
    for node in (labyrinth.HOME, labyrinth.WATER):
        assert (data.states == node).sum(axis=1).min() >= 7


def test_every_step_obeys_the_table(raw, windows):
    table = labyrinth.next_state()
    assert table.shape == (labyrinth.NUM_NODES, labyrinth.NUM_ACTIONS)
    np.testing.assert_array_equal(table, raw["next_state"])
    np.testing.assert_array_equal(table[windows.states, windows.actions][:, :-1], windows.states[:, 1:])


def test_every_move_joins_a_fork_and_a_branch():
    for node, row in enumerate(labyrinth.next_state()):
        forward = {int(after) for after in row[[IN_LEFT, IN_RIGHT]]}
        back = {int(after) for after in row[[OUT_LEFT, OUT_RIGHT]]}
        assert forward == (children(node) or {node})
        assert back == ({node} if node == 0 else {node, parent(node)})


def test_the_words_say_which_way_a_mouse_turns():
    table, places = labyrinth.next_state(), labyrinth.node_positions()
    for node in range(63):
        for action, side in ((IN_LEFT, 1), (IN_RIGHT, -1)):
            branch = table[node, action]
            assert turn(corridor_to(node, places), corridor_to(branch, places)) == side
            # The way back along a left branch is "out left", and "out right" leads nowhere from there.
            out, impossible = (OUT_LEFT, OUT_RIGHT) if side == 1 else (OUT_RIGHT, OUT_LEFT)
            assert table[branch, out] == node and table[branch, impossible] == branch


def test_a_step_that_stays_is_the_way_home(windows):
    staying = labyrinth.next_state()[windows.states, windows.actions] == windows.states
    assert set(windows.states[staying].tolist()) == {labyrinth.HOME}
    assert set(windows.actions[staying].tolist()) == {OUT_RIGHT}
    assert OUT_LEFT not in windows.actions[windows.states == labyrinth.HOME]
    assert staying.any(axis=1).all()


def test_corridors_alternate_and_halve_every_second_level():
    places = labyrinth.node_positions()
    assert places.shape == (127, 2) and places.min() == 0 and places.max() == 14
    assert len(np.unique(places, axis=0)) == 127
    for node in range(127):
        level = int(np.log2(node + 1))
        across, up = abs(corridor_to(node, places))
        assert (up if level % 2 else across) == [7, 4, 4, 2, 2, 1, 1][level]
        assert (across if level % 2 else up) == 0


def test_no_corridor_crosses_another():
    places = labyrinth.node_positions()
    cells = []
    for node in range(127):
        length = int(abs(corridor_to(node, places)).sum())
        step = corridor_to(node, places) / length
        cells += [tuple(places[node] - back * step) for back in range(length)]
    assert len(cells) == len(set(cells)) == 7 + 2 * 4 + 4 * 4 + 8 * 2 + 16 * 2 + 32 + 64


def test_the_drawing_has_a_line_a_corridor():
    axes = Figure().subplots()
    assert labyrinth.draw_maze(axes) is axes
    (lines,) = axes.collections
    drawn = {tuple(map(tuple, segment.tolist())) for segment in lines.get_segments()}
    places = labyrinth.node_positions()
    joined = {(tuple(places[parent(node)].tolist()), tuple(places[node].tolist())) for node in range(1, 127)}
    assert drawn == joined | {((0.0, 7.0), (7.0, 7.0))}


def test_the_licences_travel_with_the_data():
    notice = (FOLDER / "NOTICE").read_text(encoding="utf-8")
    assert "Copyright (c) 2021 Markus Meister" in notice and "Copyright (c) 2024 Jingyang Ke" in notice
    assert "markusmeister/Rosenberg-2021-Repository" in notice and "BRAINML-GT/SWIRL" in notice
    assert "Permission is hereby granted, free of charge" in notice


def some_visits() -> np.ndarray:
    visits = np.zeros(labyrinth.NUM_NODES)
    visits[[labyrinth.HOME, 1, labyrinth.WATER]] = [30, 10, 60]
    return visits


def moving(action: str) -> np.ndarray:
    return np.tile(np.eye(4)[labyrinth.ACTION_NAMES.index(action)], (labyrinth.NUM_NODES, 1))


def test_discs_have_the_area_of_their_share():
    axes = labyrinth.maze_occupancy(some_visits(), Figure().subplots())
    discs = next(
        part for part in axes.collections if hasattr(part, "get_sizes") and part.get_sizes().size > 1
    )
    np.testing.assert_allclose(discs.get_sizes() / discs.get_sizes().sum(), some_visits() / 100)
    np.testing.assert_allclose(discs.get_offsets(), labyrinth.node_positions())
    assert {text.get_text() for text in axes.texts} == {"water", "home"}


def test_arrows_point_to_the_next_node_where_it_was_often_enough():
    axes = labyrinth.maze_occupancy(
        some_visits(), Figure().subplots(), policy=moving("in left"), min_visits=20
    )
    arrows = next(part for part in axes.collections if hasattr(part, "U"))
    places = labyrinth.node_positions()
    np.testing.assert_allclose(arrows.XY, places[[labyrinth.HOME, labyrinth.WATER]])
    towards = np.stack([arrows.U, arrows.V], -1)
    heading = places[1] - places[labyrinth.HOME]
    assert towards[0] @ heading == pytest.approx(np.linalg.norm(towards[0]) * np.linalg.norm(heading))
    np.testing.assert_allclose(towards[1], 0)  # there is no fork at the end of a corridor: it stays


def test_the_way_home_points_to_the_entrance():
    axes = labyrinth.maze_occupancy(some_visits(), Figure().subplots(), policy=moving("out right"))
    arrows = next(part for part in axes.collections if hasattr(part, "U"))
    assert arrows.U[0] < 0 and arrows.V[0] == 0


def test_visits_of_another_shape_are_refused():
    with pytest.raises(ValueError, match=r"visits has shape \(5,\)"):
        labyrinth.maze_occupancy(np.ones(5))
    with pytest.raises(ValueError, match="not all 0"):
        labyrinth.maze_occupancy(np.zeros(labyrinth.NUM_NODES))
    with pytest.raises(ValueError, match=r"policy has shape \(127, 3\)"):
        labyrinth.maze_occupancy(some_visits(), Figure().subplots(), policy=np.ones((127, 3)))
