"""Objectworlds: stored ones rebuilt, rewards and features by loops over cells, walks against their chances."""

from __future__ import annotations

import itertools
import math

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure
from scipy import stats

from ethogram.domains import objectworld
from ethogram.models.data.trajectories import check
from ethogram.models.mdps.values import soft_values

STORED = "gp_irl/objectworld16_seed{}.npz"
PARTS = ("", "transfer0_", "transfer1_", "transfer2_", "transfer3_")
# Chance is tested at fixed keys, each assertion failing a right program for one key in a thousand.
ERROR_RATE = 1e-3
quick = settings(max_examples=25, deadline=None, derandomize=True)


@pytest.fixture(scope="module", params=[0, 1])
def files(request, stored_file):
    return request.param, dict(np.load(stored_file(STORED.format(request.param))))


def nearest(objects, x, y, size):
    """Distance to the nearest of some cells, by a loop."""
    return min((math.dist((x, y), at) for at in objects), default=math.sqrt(2) * size)


def by_hand(outer, inner):
    """Rewards, distances and bits, cell by cell."""
    size = math.isqrt(len(outer))
    places = [
        [(cell % size, cell // size) for cell in range(size * size) if colours[cell] == colour]
        for colours in (outer, inner)
        for colour in (1, 2)
    ]
    rewards, distances, bits = [], [], []
    for y, x in itertools.product(range(size), repeat=2):
        far = [nearest(objects, x, y, size) for objects in places]
        rewards.append(0.0 if far[0] >= 3 else 5.0 if far[1] < 2 else -10.0)
        distances.append(far)
        bits.append([float(each < limit) for limit in range(1, size) for each in far])
    return rewards, distances, bits


@st.composite
def maps(draw):
    size = draw(st.integers(2, 7))
    cells = draw(st.lists(st.sampled_from([0, 0, 0, 1, 2, 3, 4]), min_size=size**2, max_size=size**2))
    return np.array([(0, 1, 1, 2, 2)[cell] for cell in cells]), np.array([(0, 1, 2, 1, 2)[c] for c in cells])


@quick
@given(maps())
def test_rewards_and_features_follow_the_rules(colours):
    rewards, distances, bits = by_hand(*colours)
    plain = objectworld.from_maps(*colours, features="continuous")
    coarse = objectworld.from_maps(*colours)
    np.testing.assert_array_equal(plain.reward, rewards)
    np.testing.assert_array_equal(coarse.reward, rewards)
    np.testing.assert_allclose(plain.features, distances, rtol=1e-15)
    np.testing.assert_array_equal(coarse.features, bits)
    for world, kind in ((plain, "continuous"), (coarse, "discrete")):
        names = objectworld.feature_names(world.size, kind)
        assert len(names) == len(set(names)) == world.features.shape[1]
        np.testing.assert_array_equal(world.mdp.features, world.features.astype(world.mdp.features.dtype))


@pytest.mark.parametrize("success", [0.7, 1.0, 0.2])
def test_a_step_goes_astray_into_each_other_action(success):
    size, slip = 4, (1 - success) / 4
    empty = np.zeros(size * size, int)
    with jax.enable_x64(True):
        mdp = objectworld.from_maps(empty, empty, success=success, discount=0.8).mdp
        found = np.asarray(mdp.expect(np.eye(size * size)))
    assert mdp.discount == 0.8
    table = np.zeros((size * size, 5, size * size))
    for y, x, chosen, done in itertools.product(range(size), range(size), range(5), range(5)):
        along, up = [(0, 0), (0, 1), (1, 0), (0, -1), (-1, 0)][done]
        after = min(max(y + up, 0), size - 1) * size + min(max(x + along, 0), size - 1)
        table[y * size + x, chosen, after] += success if chosen == done else slip
    np.testing.assert_allclose(np.moveaxis(found, 0, -1), table, rtol=1e-14, atol=1e-16)


@pytest.mark.parametrize("part", PARTS)
def test_stored_worlds_are_rebuilt(files, part):
    _, file = files
    world = objectworld.from_maps(file[f"{part}map_outer"], file[f"{part}map_inner"])
    np.testing.assert_array_equal(world.reward, file[f"{part}r_true"])
    assert world.size == int(file["n"]) and world.features.shape == (256, 60)
    assert world.mdp.discount == float(file["gamma"])


def test_the_moves_of_stored_worlds_are_ours(files):
    _, file = files
    mdp = objectworld.from_maps(file["map_outer"], file["map_inner"]).mdp
    with jax.enable_x64(True):
        values = np.random.default_rng(0).normal(size=256)
        after = values[file["succ"]]
        success = float(file["determinism"])
        mean = (1 - success) / 4 * after.sum(1, keepdims=True) + (1.25 * success - 0.25) * after
        np.testing.assert_allclose(mdp.expect(values), mean, atol=1e-6)
    demos = file["demos"]
    moved = mdp.probability(demos[:, :-1, 0], demos[:, :-1, 1], demos[:, 1:, 0])
    assert (np.asarray(moved) > 0.07).all()


def test_the_relevant_features_have_the_names_they_should(files, stored_file):
    """Of the relevances that a peer learned, the two largest are of the two bits that the reward is made of."""
    relevance = np.load(stored_file("gp_irl/toolkit_map_lambda.npz"))[f"seed{files[0]}_lam"]
    names = objectworld.feature_names(16)
    assert {names[i] for i in np.argsort(relevance)[-2:]} == {"outer 1 < 3", "outer 2 < 2"}


def test_objects_are_as_many_as_they_should_be():
    worlds = [objectworld.objectworld(key, 32) for key in jax.random.split(jax.random.key(0), 10)]
    outer, inner = (np.stack([getattr(world, name) for world in worlds]) for name in ("outer", "inner"))
    np.testing.assert_array_equal(outer > 0, inner > 0)
    count = int((outer > 0).sum())
    assert stats.binomtest(count, outer.size, 0.05).pvalue > ERROR_RATE
    both = [int(((outer == i) & (inner == j)).sum()) for i in (1, 2) for j in (1, 2)]
    assert stats.chisquare(both).pvalue > ERROR_RATE
    again = objectworld.objectworld(jax.random.split(jax.random.key(0), 10)[3], 32)
    np.testing.assert_array_equal(again.outer, worlds[3].outer)
    assert not objectworld.objectworld(jax.random.key(0), 5, density=0).outer.any()
    assert worlds[0].features.shape == (1024, 124)


def test_walks_have_the_chances_of_the_policy_and_of_the_moves():
    world = objectworld.objectworld(jax.random.key(5), 4, density=0.2)
    data = check(objectworld.simulate(jax.random.key(6), world, 4000, 6))
    assert data.states.shape == data.actions.shape == (4000, 6) and data.observations is None
    assert data.states.dtype == data.actions.dtype == np.int32
    assert data.metadata.action_names == ("stay", "+y", "+x", "-y", "-x")
    assert stats.chisquare(np.bincount(data.states[:, 0], minlength=16)).pvalue > ERROR_RATE
    policy = np.asarray(soft_values(world.mdp, world.reward).policy, float)
    taken = np.zeros((16, 5), int)
    np.add.at(taken, (data.states, data.actions), 1)
    table = np.moveaxis(np.asarray(world.mdp.expect(np.eye(16)), float), 0, -1)
    moved = np.zeros((16, 5, 16), int)
    np.add.at(moved, (data.states[:, :-1], data.actions[:, :-1], data.states[:, 1:]), 1)
    assert not moved[table == 0].any()
    for counts, chance in ((taken, policy), (moved, table)):
        expected = counts.sum(-1, keepdims=True) * chance
        often = expected > 5
        statistic = ((counts - expected)[often] ** 2 / expected[often]).sum()
        # Rows that sum to what they must have one degree of freedom less each.
        free = often.sum() - often.any(-1).sum()
        assert stats.chi2.sf(statistic, free) > ERROR_RATE
    again = objectworld.simulate(jax.random.key(6), world, 4000, 6)
    np.testing.assert_array_equal(again.states, data.states)


def test_a_certain_world_is_walked_without_chance():
    """Every action succeeds: the border, where actions share a cell, included."""
    world = objectworld.objectworld(jax.random.key(1), 4, density=0.3, success=1)
    data = objectworld.simulate(jax.random.key(2), world, 4000, 6)
    y, x = np.divmod(np.asarray(data.states), 4)
    along, up = np.array([(0, 0), (0, 1), (1, 0), (0, -1), (-1, 0)])[data.actions].transpose(2, 0, 1)
    after = np.clip(y + up, 0, 3) * 4 + np.clip(x + along, 0, 3)
    np.testing.assert_array_equal(after[:, :-1], data.states[:, 1:])


def test_the_drawing_shows_reward_and_objects():
    world = objectworld.from_maps([1, 0, 0, 2, 0, 0, 0, 0, 0], [2, 0, 0, 2, 0, 0, 0, 0, 0])
    axes = Figure().subplots()
    assert objectworld.draw(world, axes) is axes
    np.testing.assert_array_equal(axes.images[0].get_array(), world.reward.reshape(3, 3))
    assert axes.images[0].origin == "lower"
    discs = [(disc.center, disc.radius, disc.get_facecolor()) for disc in axes.patches]
    assert [place for place, _, _ in discs] == [(0, 0), (0, 0), (0, 1), (0, 1)]
    assert discs[0][1] > discs[1][1] and discs[0][2] != discs[1][2] == discs[2][2] == discs[3][2]
    other = Figure().subplots()
    objectworld.draw(world, other, values=np.arange(9.0))
    np.testing.assert_array_equal(other.images[0].get_array(), np.arange(9.0).reshape(3, 3))


def test_arrows_go_where_the_policy_goes():
    empty = np.zeros(4, int)
    world = objectworld.from_maps(empty, empty)
    axes = Figure().subplots()
    policy = np.eye(5)[[1, 2, 4, 0]]
    policy[0] = [0.1, 0.6, 0.1, 0.1, 0.1]
    assert objectworld.draw_policy(world, policy, axes) is axes
    (arrows,) = axes.collections
    np.testing.assert_allclose(arrows.XY, [[0, 0], [1, 0], [0, 1]])
    np.testing.assert_allclose(np.stack([arrows.U, arrows.V], 1), [[0, 0.6], [1, 0], [-1, 0]])
    np.testing.assert_array_equal(axes.lines[0].get_xydata(), [[1, 1]])


KEY = jax.random.key(0)
FOUR = np.array([1, 0, 0, 2])


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: objectworld.objectworld(KEY, 1), ValueError, "size must be at least 2, not 1"),
        (lambda: objectworld.objectworld(KEY, features="bits"), ValueError, "features must be 'discrete' or .*'bits'"),
        (lambda: objectworld.objectworld(KEY, density=1.5), ValueError, "density must be at least 0"),
        (lambda: objectworld.objectworld(KEY, 4, success=-1), ValueError, "success must be at least 0"),
        (lambda: objectworld.objectworld(KEY, 4, discount=2), ValueError, r"discount must be a number in"),
        (lambda: objectworld.from_maps(FOUR / 1, FOUR), TypeError, "outer has dtype float64: give integers"),
        (lambda: objectworld.from_maps(FOUR[:3], FOUR), ValueError, r"outer has shape \(3,\): give \(size"),
        (lambda: objectworld.from_maps(FOUR, np.zeros(9, int)), ValueError, "inner has 9 cells, outer 4"),
        (lambda: objectworld.from_maps(FOUR, 2 * FOUR), ValueError, r"inner\[3\] is 4: colours are 1 and 2"),
        (lambda: objectworld.from_maps(FOUR, FOUR[::-1] * [1, 0, 1, 0]), ValueError, r"outer\[3\] is 2, inner\[3\] 0"),
        (lambda: objectworld.feature_names(1), ValueError, "size must be at least 2"),
        (lambda: objectworld.feature_names(4, "all"), ValueError, "features must be 'discrete'"),
    ],
)  # fmt: skip
def test_bad_input_is_named(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_what_does_not_fit_the_world_is_named():
    world = objectworld.from_maps(FOUR, FOUR)
    with pytest.raises(ValueError, match="num_trajectories must be at least 1, not 0"):
        objectworld.simulate(KEY, world, 0)
    with pytest.raises(ValueError, match="length must be at least 1, not 0"):
        objectworld.simulate(KEY, world, 3, 0)
    with pytest.raises(ValueError, match=r"values has shape \(3,\): give \(4,\) finite numbers"):
        objectworld.draw(world, Figure().subplots(), values=[1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="finite"):
        objectworld.draw(world, Figure().subplots(), values=[1.0, 2.0, 3.0, np.nan])
    with pytest.raises(ValueError, match=r"policy has shape \(4, 4\), not \(4, 5\)"):
        objectworld.draw_policy(world, np.full((4, 4), 0.25))
    with pytest.raises(ValueError, match=r"policy\[0\] is .*: give probabilities"):
        objectworld.draw_policy(world, np.full((4, 5), 0.25))
