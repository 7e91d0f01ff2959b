"""Expected value differences against dense NumPy, and those of two stored object worlds against a toolkit's figures."""

from __future__ import annotations

import numpy as np
import pytest

from ethogram.models.mdps.mdp import MDP
from ethogram.models.mdps.values import (
    expected_value,
    expected_value_difference,
    optimal_values,
    soft_policy,
)


def chances(seed, num_states, num_actions):
    table = np.random.default_rng(seed).dirichlet(np.full(num_states, 0.4), (num_states, num_actions))
    return table / table.sum(-1, keepdims=True)


def worth(table, reward, discount, policy):
    moves = np.einsum("sa,san->sn", policy, table)
    return np.linalg.solve(np.eye(len(table)) - discount * moves, (policy * reward).sum(1))


def agent(table, reward, discount, kind, mask):
    """Policy (state, action) by many sweeps; the first action where several are best."""
    values = np.zeros(len(table))
    for _ in range(3000):
        q = np.where(mask, reward + discount * table @ values, -np.inf)
        top = q.max(1)
        values = top if kind == "standard" else top + np.log(np.exp(q - top[:, None]).sum(1))
    if kind == "soft":
        return np.exp(q - values[:, None])
    return np.eye(q.shape[1])[np.argmax(q >= top[:, None] - 1e-10, axis=1)]


@pytest.mark.parametrize(
    ("kind", "of"), [("standard", "actions"), pytest.param("soft", "states", marks=pytest.mark.slow)]
)
def test_differences_are_those_of_dense_systems(kind, of):
    """With draws of a reward, a start, and an action that is not available; and of policies, taken as they are."""
    table, random = chances(1, 5, 3), np.random.default_rng(2)
    mask = np.ones((5, 3), bool)
    mask[2, 0] = False
    shape = (5, 1) if of == "states" else (5, 3)
    true, learned = random.normal(size=shape), random.normal(size=(4, *shape))
    start = random.dirichlet(np.ones(5))
    best = worth(table, true, 0.9, agent(table, true, 0.9, kind, mask))
    theirs = [agent(table, reward, 0.9, kind, mask) for reward in learned]
    lost = np.array([best - worth(table, true, 0.9, policy) for policy in theirs])
    flat, drawn = (true[:, 0], learned[..., 0]) if of == "states" else (true, learned)
    world = MDP.dense(table, discount=0.9, action_mask=mask, start=start)
    found = expected_value_difference(world, flat, drawn, kind=kind)
    np.testing.assert_allclose(found, lost @ start, rtol=1e-9, atol=1e-11)
    found = expected_value_difference(world, flat, policy=np.stack(theirs), kind=kind)
    np.testing.assert_allclose(found, lost @ start, rtol=1e-9, atol=1e-11)
    if kind == "standard":
        assert (found > 0).all()
    else:  # without a start, every state is as likely, and one reward gives one number
        world = MDP.dense(table, discount=0.9, action_mask=mask)
        found = expected_value_difference(world, flat, drawn[1], kind=kind)
        np.testing.assert_allclose(found, lost[1].mean(), rtol=1e-9)


def test_nothing_is_lost_by_the_truth_or_by_rewards_that_mean_the_same():
    table, reward = chances(3, 5, 3), np.random.default_rng(4).normal(size=5)
    world = MDP.dense(table, discount=0.9)
    for kind in ("standard", "soft"):
        assert expected_value_difference(world, reward, reward, kind=kind) == 0
        assert abs(expected_value_difference(world, reward, reward + 3, kind=kind)) < 1e-12
    assert abs(expected_value_difference(world, reward, 7 * reward)) < 1e-12


def object_world(path):
    """World and true reward of a stored object world: one of the other moves comes about in three of ten cases."""
    with np.load(path) as stored:
        after, reward = stored["succ"], stored["r_true"].astype(float)
    chance = np.where(np.eye(5), 0.7, 0.075)
    table = np.zeros((256, 5, 256))
    for action, success in np.ndindex(5, 5):
        np.add.at(table, (np.arange(256), action, after[:, success]), chance[action, success])
    successors = np.repeat(after[:, None], 5, axis=1)
    return MDP.sparse(successors, np.broadcast_to(chance, successors.shape), discount=0.9), table, reward


@pytest.mark.parametrize(
    ("seed", "standard", "soft"),
    [(0, -13.710, -16.197), (1, -5.227, -6.932)],
)
@pytest.mark.slow
def test_optimal_values_of_stored_worlds_are_the_toolkits(seed, standard, soft, stored_file):
    """The toolkit sums visits up until no state's changes by 1e-4, which moves the soft value by 5e-4 of it."""
    world, table, reward = object_world(stored_file(f"gp_irl/objectworld16_seed{seed}.npz"))
    best = expected_value(world, reward, optimal_values(world, reward).policy)
    assert abs(best - standard) < 5e-4
    policy = np.asarray(soft_policy(world, reward))
    exact = worth(table, reward[:, None], 0.9, policy).mean()
    np.testing.assert_allclose(expected_value(world, reward, policy), exact, rtol=1e-11)
    moves, visits, change = np.einsum("sa,san->sn", policy, table), np.zeros(256), 1.0
    while change >= 1e-4:
        before, visits = visits, 1 / 256 + 0.9 * visits @ moves
        change = np.abs(visits - before).max()
    assert abs(visits @ reward - soft) < 5e-4
    assert abs(exact - soft) < 1e-3 * abs(soft)


two = np.full((2, 2, 2), 0.5)
even = np.full((2, 2), 0.5)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (([0.0, 1.0],), ValueError, "give either a learned reward or a learned policy, not neither"),
        (([0.0, 1.0], [0.0, 1.0], even), ValueError, "not both"),
        (([0.0, np.nan], [0.0, 1.0]), ValueError, r"true_reward\[1\] is not finite"),
        (([0.0, 1.0], [0.0, np.nan]), ValueError, r"reward\[1\] is not finite"),
        ((np.ones(3), [0.0, 1.0]), ValueError, r"true_reward has shape \(3,\)"),
        (([0.0, 1.0], None, 2 * even), ValueError, r"policy\[0\] sums to 2, not 1"),
        (([0.0, 1.0], [0.0, 1.0], None, "hard"), ValueError, "kind must be 'standard' or 'soft', not 'hard'"),
    ],
)
def test_bad_input_is_refused(arguments, error, message):
    true, reward, policy, kind = (*arguments, *(None, None, None, "standard")[len(arguments) :])
    with pytest.raises(error, match=message):
        expected_value_difference(MDP.dense(two, discount=0.9), true, reward, policy=policy, kind=kind)
    with pytest.raises(ValueError, match=r"mdp\.discount is 1\.0"):
        expected_value_difference(MDP.dense(two), [0.0, 1.0], [0.0, 1.0])
