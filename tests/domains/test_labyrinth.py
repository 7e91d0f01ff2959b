"""The labyrinth: its table against the tree, its words against the drawing, its windows against the table."""

from importlib import resources

import jax
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


KEY = jax.random.key(0)
NAN, SOME = np.full((127, 4), np.nan), np.full((127, 4), 0.25)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (
            lambda: labyrinth.maze_occupancy(np.ones(127), policy=NAN),
            ValueError,
            r"policy\[0\] is .*give finite",
        ),
        (lambda: labyrinth.where_moves_lead(NAN, np.ones(127)), ValueError, r"policy\[0\] is .*give finite"),
        (
            lambda: labyrinth.where_moves_lead(SOME[:3], np.ones(127)),
            ValueError,
            r"policy has shape \(3, 4\)",
        ),
        (lambda: labyrinth.where_moves_lead(SOME, np.zeros(127)), ValueError, "not all 0"),
        (
            lambda: labyrinth.where_moves_lead(SOME, np.ones((2, 127))),
            ValueError,
            r"visits has shape \(2, 127\)",
        ),
        (lambda: labyrinth.typical_window(np.ones((3, 4))), ValueError, r"probability has shape \(3, 4\)"),
        (
            lambda: labyrinth.typical_window(np.full((3, 4, 2), np.nan)),
            ValueError,
            "probability has .* sum nan",
        ),
        (lambda: labyrinth.typical_window(np.zeros((0, 4, 2))), ValueError, "probability has .* sum 0"),
        (lambda: labyrinth.draw_windows(KEY, 3.5, 2), TypeError, "num_train must be an integer, not 3.5"),
        (lambda: labyrinth.draw_windows(0, 3, 2), TypeError, "key must be one typed key"),
    ],
)
def test_what_is_no_maze_is_named(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_moves_lead_to_water_home_or_nowhere():
    """An agent that always knows the way, and one that turns in a circle between two nodes."""
    after = labyrinth.next_state()
    visits = np.ones(labyrinth.NUM_NODES)

    def nearer(goal):
        """Breadth first from the goal: at each node an action that leads one step nearer."""
        action, reached = np.zeros(labyrinth.NUM_NODES, int), {goal}
        while len(reached) < labyrinth.NUM_NODES:
            for node in set(range(labyrinth.NUM_NODES)) - reached:
                good = [a for a in range(4) if after[node, a] in reached]
                if good:
                    action[node] = good[0]
                    reached = reached | {node}
        return action

    to_water, to_home = nearer(labyrinth.WATER), nearer(labyrinth.HOME)
    to_water[labyrinth.WATER] = labyrinth.ACTION_NAMES.index("out left")
    to_home[labyrinth.HOME] = labyrinth.ACTION_NAMES.index("out right")
    if after[labyrinth.WATER, to_water[labyrinth.WATER]] == labyrinth.WATER:
        to_water[labyrinth.WATER] = labyrinth.ACTION_NAMES.index("out right")
    assert labyrinth.where_moves_lead(np.eye(4)[to_water], visits) == pytest.approx((1, 0))
    water, home = labyrinth.where_moves_lead(np.eye(4)[to_home], visits)
    assert (water, home) == pytest.approx((0, 1))
    nowhere = np.where(to_home == labyrinth.ACTION_NAMES.index("out right"), 0, to_home)
    nowhere[labyrinth.HOME] = 0
    assert labyrinth.where_moves_lead(np.eye(4)[nowhere], visits)[1] == 0


def test_the_typical_window_is_nearest_to_all():
    held = np.array([[0.9, 0.1], [0.55, 0.45], [0.1, 0.9]])
    assert labyrinth.typical_window(np.repeat(held[:, None], 6, axis=1)) == 1


def test_windows_are_different_ones():
    train, test = labyrinth.draw_windows(jax.random.key(2), 5, 3)
    assert (train.num_sequences, test.num_sequences) == (5, 3)
    rows = np.concatenate([train.states, test.states])
    assert len(np.unique(rows, axis=0)) == 8
    with pytest.raises(ValueError, match="238 in all"):
        labyrinth.draw_windows(jax.random.key(2), 230, 20)
