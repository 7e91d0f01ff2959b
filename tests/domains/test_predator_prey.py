"""The predator-prey game: rules as invariants, replay of recorded games, experts, codings and loaders."""

import itertools
import math

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure
from scipy import stats

from ethogram.domains import predator_prey
from ethogram.domains.predator_prey import PredatorPreyWorld
from ethogram.models.data.trajectories import check

SHIPPED = "predator_prey/predprey_7x7_sim.npz"
ORDERS = np.array(list(itertools.permutations(range(5))))
quick = settings(max_examples=25, deadline=None, derandomize=True)


def moved_in_order(cells, actions, order, size):
    """The rules in plain Python."""
    cells = [tuple(int(number) for number in cell) for cell in cells]
    for agent in order:
        down, right = predator_prey.MOVES[actions[agent]]
        target = (cells[agent][0] + int(down)) % size, (cells[agent][1] + int(right)) % size
        if target not in cells:
            cells[agent] = target
    return np.array(cells)


def all_outcomes(cells, actions, size):
    """Cells after each of the 120 orders of moves, (turn, order, agent, 2), for cells (turn, agent, 2)."""
    after = np.repeat(cells[:, None], len(ORDERS), axis=1)
    targets = (cells + predator_prey.MOVES[actions]) % size
    for agent in ORDERS.T:
        target = targets[:, agent]
        free = ~np.any(np.all(after == target[:, :, None], axis=-1), axis=-1)
        turn, order = np.nonzero(free)
        after[turn, order, agent[order]] = target[free]
    return after


def is_captured(cells, size):
    wanted = {tuple(cell) for cell in (cells[4] + predator_prey.SLOTS) % size}
    return wanted == {tuple(cell) for cell in cells[:4]}


@pytest.fixture(scope="module")
def fresh():
    return predator_prey.simulate(jax.random.key(0), 500)


@pytest.fixture(scope="module")
def shipped_path(stored_file):
    return stored_file(SHIPPED)


@st.composite
def turns(draw):
    size = draw(st.sampled_from([3, 7]))
    cells = draw(st.lists(st.integers(0, size**2 - 1), min_size=5, max_size=5, unique=True))
    actions = draw(st.lists(st.integers(0, 4), min_size=5, max_size=5))
    order = draw(st.permutations(range(5)))
    return np.stack(np.divmod(cells, size), axis=-1), np.array(actions), np.array(order), size


@quick
@given(turns())
def test_a_turn_follows_the_rules(turn):
    cells, actions, order, size = turn
    (after,) = predator_prey.carry_out(cells[None], actions[None], order[None], size)
    np.testing.assert_array_equal(after, moved_in_order(cells, actions, order, size))
    assert len({tuple(cell) for cell in after}) == 5
    targets = (cells + predator_prey.MOVES[actions]) % size
    lost = np.any(after != targets, axis=-1)
    np.testing.assert_array_equal(after[lost], cells[lost])


def test_a_line_moves_on_only_when_the_first_goes_first():
    cells = np.array([[3, 1], [3, 2], [3, 3], [3, 4], [0, 0]])
    east = np.array([3, 3, 3, 3, 0])
    orders = np.array([[3, 2, 1, 0, 4], [0, 1, 2, 3, 4]])
    forwards, backwards = predator_prey.carry_out(np.stack([cells] * 2), np.stack([east] * 2), orders, 7)
    np.testing.assert_array_equal(forwards[:4], cells[:4] + np.array([[0, 1]]))
    np.testing.assert_array_equal(backwards[:4], cells[:4] + np.array([[0, 0], [0, 0], [0, 0], [0, 1]]))


def test_chance_is_fair():
    """First cells, roles and the prey's moves are uniform, and so is who moves first among two that want one cell."""
    _, games = predator_prey.simulate(jax.random.key(3), 2000, 3, horizon=1, prey_stay=0.4)
    cells = games.positions[:, 0] @ [3, 1]
    assert all(len(set(row)) == 5 for row in cells.tolist())
    for agent in range(5):
        assert stats.chisquare(np.bincount(cells[:, agent], minlength=9)).pvalue > 1e-3
    distinct, count = np.unique(games.roles.reshape(-1, 4), axis=0, return_counts=True)
    assert len(distinct) == math.factorial(4) and stats.chisquare(count).pvalue > 1e-3
    expected = 2000 * np.array([0.4, 0.15, 0.15, 0.15, 0.15])
    assert stats.chisquare(np.bincount(games.actions[:, 0, 4], minlength=5), expected).pvalue > 1e-3
    world = PredatorPreyWorld(7, prey_stay=1.0)
    state = np.repeat([[[0, 0], [0, 2], [5, 5], [5, 6], [3, 3]]], 2000, 0)
    after, _ = world.step(np.random.default_rng(0), state, np.repeat([[3, 4, 0, 0]], 2000, 0))
    first = (after[:, 0] == [0, 1]).all(1)
    assert (first ^ (after[:, 1] == [0, 1]).all(1)).all() and stats.binomtest(
        int(first.sum()), 2000
    ).pvalue > 1e-3
    _, orders = world.draw_chance(np.random.default_rng(0), 2000, 10)
    distinct, count = np.unique(orders.reshape(-1, 5), axis=0, return_counts=True)
    assert len(distinct) == math.factorial(5) and stats.chisquare(count).pvalue > 1e-3


@pytest.mark.parametrize("size", [3, 7])
def test_captured_means_all_four_slots(size):
    prey = np.array([[0, size - 1]])
    slots = (prey + predator_prey.SLOTS) % size
    for order in itertools.permutations(range(4)):
        assert predator_prey.captured(np.vstack([slots[list(order)], prey])[None], size).all()
    assert not predator_prey.captured(np.vstack([slots[:3], (prey + 1) % size, prey])[None], size).any()


def test_fresh_games_keep_the_rules(fresh):
    _, games = fresh
    assert games.lengths.min() >= 1 and games.lengths.max() <= 50
    for game, length in enumerate(games.lengths):
        cells, actions = games.positions[game], games.actions[game]
        assert cells[: length + 1].min() >= 0 and cells[: length + 1].max() < 7
        assert np.all(cells[length + 1 :] == -1) and np.all(actions[length:] == -1)
        assert all(len({tuple(cell) for cell in frame}) == 5 for frame in cells[: length + 1])
        shift = (cells[1 : length + 1] - cells[:length] + 3) % 7 - 3
        assert np.abs(shift).sum(-1).max() <= 1
        intended = predator_prey.MOVES[actions[:length]]
        assert np.all(np.all(shift == intended, axis=-1) | np.all(shift == 0, axis=-1))
        assert not any(is_captured(frame, 7) for frame in cells[1:length])
        assert is_captured(cells[length], 7) == games.captured[game]
        assert games.captured[game] or length == 50


def test_fresh_games_are_reachable_turn_by_turn(fresh):
    _, games = fresh
    for game in range(60):
        cells, length = games.positions[game], games.lengths[game]
        after = all_outcomes(cells[:length], games.actions[game, :length], 7)
        assert np.all(np.any(np.all(after == cells[1 : length + 1, None], axis=(2, 3)), axis=1))


def test_experts_capture_the_prey_as_fast_as_recorded(fresh):
    # 2000 games recorded elsewhere: all captured, mean 8.87 steps. The standard deviation is 5.1, so 500
    # games have a standard error of 0.23 and 2000 one of 0.11. About one game in 2000 lasts to the horizon.
    _, games = fresh
    assert games.captured.mean() >= 0.996
    assert abs(games.lengths.mean() - 8.87) < 3 * np.hypot(0.23, 0.11)


def test_hidden_roles_are_random_permutations_and_drive_the_experts(fresh):
    _, games = fresh
    roles = games.roles.reshape(-1, 4)
    np.testing.assert_array_equal(np.sort(roles, axis=1), np.tile(np.arange(4), (500, 1)))
    table = np.stack([np.bincount(column, minlength=4) for column in roles.T])
    assert stats.chisquare(table.ravel(), ddof=6).pvalue > 1e-3
    policy = predator_prey.expert_policies()
    prey_moves = []
    for game, length in enumerate(games.lengths):
        cells, actions = games.positions[game, :length], games.actions[game, :length]
        offset = (cells[:, :4] - cells[:, 4:]) % 7
        np.testing.assert_array_equal(actions[:, :4], policy[roles[game], offset[..., 0], offset[..., 1]])
        prey_moves.append(actions[:, 4])
    assert stats.chisquare(np.bincount(np.concatenate(prey_moves), minlength=5)).pvalue > 1e-3


def test_own_policies_and_settings_are_played():
    still = np.zeros((4, 5, 5), int)
    data, games = predator_prey.simulate(
        jax.random.key(1), 6, size=5, horizon=7, prey_stay=1.0, policies=still
    )
    assert data.observations.shape == (24, 7, 1)
    np.testing.assert_array_equal(games.actions, 0)
    np.testing.assert_array_equal(games.positions, games.positions[:, :1].repeat(8, axis=1))
    assert not games.captured.any()


@pytest.mark.parametrize(
    "change, words",
    [
        ({"size": 2}, "size is 2"),
        ({"num_games": 0}, "num_games must be at least 1, not 0"),
        ({"horizon": 0}, "horizon must be at least 1, not 0"),
        ({"prey_stay": 1.5}, "prey_stay is 1.5"),
        ({"prey_stay": float("nan")}, "prey_stay is nan"),
        ({"policies": np.zeros((4, 5, 5), int)}, r"policies has shape \(4, 5, 5\)"),
        ({"policies": np.full((4, 7, 7), 5)}, "values 5..5"),
    ],
)
def test_settings_out_of_range_are_named(change, words):
    with pytest.raises(ValueError, match=words):
        predator_prey.simulate(jax.random.key(0), **{"num_games": 2, **change})


def exact_action_values(policy, role, size, discount, prey_stay):
    """Action values of one role's policy by a dense linear solve, (relative cell, move)."""
    own_slot = tuple(predator_prey.SLOTS[role] % size)
    others = {tuple(slot) for slot in predator_prey.SLOTS % size} - {own_slot} | {(0, 0)}
    cells = list(itertools.product(range(size), repeat=2))
    leads_to = np.zeros((len(cells), 5, len(cells)))
    legal = np.ones((len(cells), 5), bool)
    for (index, cell), (action, move) in itertools.product(enumerate(cells), enumerate(predator_prey.MOVES)):
        target = tuple((np.array(cell) + move) % size)
        legal[index, action] = action == 0 or target not in others
        for prey_action, prey_move in enumerate(predator_prey.MOVES):
            after = tuple((np.array(target) - prey_move) % size)
            after = target if after == (0, 0) else after
            chance = prey_stay if prey_action == 0 else (1 - prey_stay) / 4
            leads_to[index, action, cells.index(after)] += chance
    followed = leads_to[np.arange(len(cells)), policy[role].ravel()]
    goal = np.array([cell == own_slot for cell in cells], float)
    value = np.linalg.solve(np.eye(len(cells)) - discount * followed, followed @ goal)
    return np.where(legal, leads_to @ (goal + discount * value), -np.inf)


@pytest.mark.parametrize("size, prey_stay, discount", [(3, 0.2, 0.95), (6, 0.7, 0.5), (7, 0.2, 0.95)])
def test_expert_policies_are_optimal_with_the_lowest_move_on_ties(size, prey_stay, discount):
    policy = predator_prey.expert_policies(size, discount=discount, prey_stay=prey_stay)
    for role in range(4):
        values = exact_action_values(policy, role, size, discount, prey_stay)
        best = values.max(axis=1, keepdims=True)
        np.testing.assert_array_equal(policy[role].ravel(), (values > best - 1e-9).argmax(axis=1))


@pytest.mark.parametrize("discount", [1.0, -0.1, float("nan")])
def test_a_discount_outside_its_range_is_named(discount):
    with pytest.raises(ValueError, match="discount"):
        predator_prey.expert_policies(7, discount=discount)


def test_symbols_code_cell_and_move():
    positions = np.array([[[0, 0], [1, 1], [2, 3], [6, 6], [1, 0]]])
    code = PredatorPreyWorld().role_features(positions, np.array([[0, 1, 2, 3]]))
    cells = np.array([6 * 7 + 0, 0 * 7 + 1, 1 * 7 + 3, 5 * 7 + 6])
    np.testing.assert_array_equal(code[0, :, 0], 5 * cells + [0, 1, 2, 3])


def test_trajectories_are_one_sequence_a_predator(fresh):
    data, games = fresh
    check(data)
    longest = games.lengths.max()
    assert data.observations.shape == (2000, longest, 1) and data.observations.dtype.kind == "i"
    np.testing.assert_array_equal(data.group, np.repeat(np.arange(500), 4))
    np.testing.assert_array_equal(data.agent, np.tile(np.arange(4), 500))
    np.testing.assert_array_equal(data.lengths, np.repeat(games.lengths, 4))
    np.testing.assert_array_equal(data.observed, np.arange(longest) < data.lengths[:, None])
    code = data.observations[..., 0]
    assert code[data.observed].min() >= 0 and code[data.observed].max() < 245
    np.testing.assert_array_equal(data.actions[data.observed], code[data.observed] % 5)
    np.testing.assert_array_equal(data.states[data.observed], code[data.observed] // 5)
    np.testing.assert_array_equal(data.actions[~data.observed], -1)
    own = games.actions[:, :longest, :4].swapaxes(1, 2).reshape(2000, longest)
    np.testing.assert_array_equal(data.actions, own)
    assert len(data.metadata.state_names) == 49 and data.metadata.action_names == ("stay", "N", "S", "E", "W")


def test_expert_table_equals_the_shipped_one(shipped_path):
    with np.load(shipped_path) as shipped:
        np.testing.assert_array_equal(predator_prey.MOVES, shipped["moves"])
        np.testing.assert_array_equal(predator_prey.SLOTS, shipped["slot_offset"])
        np.testing.assert_array_equal(predator_prey.expert_policies(7), shipped["expert_policy"])


@pytest.mark.parametrize("split, num_games", [("train", 300), ("test", 100)])
def test_shipped_games_replay_under_our_rules(shipped_path, split, num_games):
    with np.load(shipped_path) as shipped:
        positions, actions = (shipped[f"{split}_{part}"].astype(int) for part in ("pos", "act"))
        lengths = shipped[f"{split}_length"]
    assert len(lengths) == num_games
    surprise, variance = 0.0, 0.0
    for game, length in enumerate(lengths):
        outcomes = all_outcomes(positions[game, :length], actions[game, :length], 7)
        match = np.all(outcomes == positions[game, 1 : length + 1, None], axis=(2, 3))
        assert match.any(axis=1).all(), f"game {game}, step {match.any(axis=1).argmin()} cannot happen"
        codes = outcomes.reshape(length, 120, 10) @ 7 ** np.arange(10)
        for same, code in zip(match, codes, strict=True):
            share = np.unique(code, return_counts=True)[1] / 120
            surprise += np.log(same.mean()) - share @ np.log(share)
            variance += share @ np.log(share) ** 2 - (share @ np.log(share)) ** 2
        assert [is_captured(frame, 7) for frame in positions[game, 1 : length + 1]] == [False] * (
            length - 1
        ) + [True]
    # The recorded order of moves is as uniform as ours.
    assert abs(surprise) < 3.3 * np.sqrt(variance)


def test_load_games_reads_both_splits(shipped_path, monkeypatch):
    monkeypatch.setenv("ETHOGRAM_DATA", str(shipped_path.parents[1]))
    for split, num_games in (("train", 300), ("test", 100)):
        data, roles = predator_prey.load_games(split)
        with np.load(shipped_path) as shipped:
            np.testing.assert_array_equal(roles, shipped[f"{split}_role"].ravel())
            np.testing.assert_array_equal(data.lengths, shipped[f"{split}_length"].repeat(4))
            first = shipped[f"{split}_pos"][0, 0].astype(int)
        assert data.observations.shape == (4 * num_games, 33, 1)
        rows, columns = ((first[:4] - first[4]) % 7).T
        np.testing.assert_array_equal(data.states[:4, 0], 7 * rows + columns)
        _, again = predator_prey.load_games(split, shipped_path)
        np.testing.assert_array_equal(again, roles)


def test_load_games_says_what_to_set_or_repair(monkeypatch, tmp_path):
    monkeypatch.delenv("ETHOGRAM_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match="ETHOGRAM_DATA is not set"):
        predator_prey.load_games()
    with pytest.raises(ValueError, match="split must be 'train' or 'test', not 'both'"):
        predator_prey.load_games("both")
    (tmp_path / "games.npz").write_bytes(b"PK\x03\x04 cut short")
    with pytest.raises(ValueError, match=r"games\.npz"):
        predator_prey.load_games(path=tmp_path / "games.npz")


def test_draw_shows_board_agents_and_moves(fresh):
    _, games = fresh
    axes = Figure().subplots()
    drawn = predator_prey.draw(
        games.positions[0, 0], roles=games.roles[:4], actions=games.actions[0, 0], ax=axes
    )
    assert drawn is axes
    texts = [text.get_text() for text in axes.texts if text.get_text()]
    assert texts == ["0", "1", "2", "3", "prey"]
    circles = [patch for patch in axes.patches if hasattr(patch, "get_radius")]
    assert [circle.center for circle in circles] == [tuple(cell[::-1]) for cell in games.positions[0, 0]]


def test_draw_refuses_a_frame_after_the_end(fresh):
    with pytest.raises(ValueError, match="after the end of its game"):
        predator_prey.draw(fresh[1].positions[0, -1])
