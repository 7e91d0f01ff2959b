"""Optimal values against enumeration of policies and NumPy; values of policies against dense linear algebra."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ethogram.models.mdps.mdp import MDP
from ethogram.models.mdps.values import expected_value, optimal_values, policy_values

DISCOUNTS = [0.0, 0.5, 0.9, 0.99, 0.9999]


def chances(seed, num_states, num_actions):
    """Probabilities (state, action, state), most of them small."""
    table = np.random.default_rng(seed).dirichlet(np.full(num_states, 0.2), (num_states, num_actions))
    return table / table.sum(-1, keepdims=True)


def worth(table, reward, discount, policy):
    """Values of a policy (state, action) for rewards (state, action), by a dense system."""
    moves = np.einsum("sa,san->sn", policy, table)
    return np.linalg.solve(np.eye(len(table)) - discount * moves, (policy * reward).sum(1))


def best_of_all(table, reward, discount, mask):
    """The largest value of each state over all deterministic policies that are available."""
    choices = [np.flatnonzero(row) for row in mask]
    one_hot = np.eye(mask.shape[1])
    return np.max(
        [worth(table, reward, discount, one_hot[list(actions)]) for actions in itertools.product(*choices)],
        axis=0,
    )


def by_sweeps(next_values, reward, discount):
    """Values of a world by sweeps to a fixed point."""
    values = np.zeros(len(reward))
    while True:
        better = np.max(reward + discount * next_values(values), axis=1)
        if np.abs(better - values).max() <= 1e-13 * np.abs(better).max():
            return better
        values = better


def close(found, expected, tol):
    expected = np.asarray(expected)
    assert np.abs(np.asarray(found) - expected).max() <= tol * max(np.abs(expected).max(), 1e-300)


@pytest.mark.parametrize("masked", [False, True])
def test_values_are_the_best_of_all_policies(masked):
    table, random = chances(1, 4, 3), np.random.default_rng(2)
    mask = random.random((4, 3)) < 0.6 if masked else np.ones((4, 3), bool)
    mask[:, 1] = True
    for discount in DISCOUNTS:
        for scale in (0.01, 100.0):
            reward = scale * random.normal(size=(4, 3))
            world = MDP.dense(table, discount=discount, action_mask=mask)
            found = optimal_values(world, reward)
            values = best_of_all(table, reward, discount, mask)
            assert found.converged
            close(found.values, values, 1e-10)
            close(worth(table, reward, discount, np.asarray(found.policy)), values, 1e-10)
            close(policy_values(world, reward, found.policy), values, 1e-10)
            q = reward + discount * table @ values
            close(np.asarray(found.action_values)[mask], q[mask], 1e-10)
            np.testing.assert_array_equal(np.isneginf(found.action_values), ~mask)
            assert mask[np.arange(4), np.asarray(found.actions)].all()


def grid(size, discount):
    """A square of places with five moves, each of which may turn out to be another; four successors and oneself."""
    y, x = np.divmod(np.arange(size * size), size)
    moves = [(0, 0), (0, 1), (1, 0), (0, -1), (-1, 0)]
    after = np.stack(
        [np.clip(y + b, 0, size - 1) * size + np.clip(x + a, 0, size - 1) for a, b in moves], axis=1
    )
    chance = np.where(np.eye(5), 0.7, 0.075)
    successors = np.repeat(after[:, None], 5, axis=1)
    world = MDP.sparse(successors, np.broadcast_to(chance, successors.shape), discount=discount)
    return world, lambda values: values[after] @ chance.T


def test_a_discount_near_one_is_solved_by_iteration():
    """The values satisfy the equation, so that they are off by its residual over 1 - gamma at most."""
    world, next_values = grid(13, 0.9999)
    rewards = np.random.default_rng(4).normal(size=(2, 169))
    found = optimal_values(world, rewards)
    assert found.converged.all()
    for reward, values in zip(rewards, np.asarray(found.values), strict=True):
        gap = np.max(reward[:, None] + 0.9999 * next_values(values), axis=1) - values
        assert np.abs(gap).max() / 1e-4 < 1e-10 * np.abs(values).max()


def test_the_first_of_equal_actions_is_taken():
    """Moves into a wall equal staying, and with no rewards, or equal ones, all are equal."""
    world, _ = grid(4, 0.9)
    for reward in (np.zeros(16), np.full(16, -3.7)):
        found = optimal_values(world, reward)
        assert found.converged and not np.any(found.actions)
        close(found.values, reward / (1 - 0.9), 1e-13)
    corner = optimal_values(world, np.where(np.arange(16) == 15, 1.0, 0.0))
    actions = np.asarray(corner.actions)
    assert actions[15] == 0
    # Of ways along either axis, which are equal on the diagonal, the first; along a wall there is one.
    assert actions[[0, 5, 3, 12]].tolist() == [1, 1, 1, 2]


def test_multiplied_rewards_have_multiplied_values_and_the_same_actions():
    world, _ = grid(13, 0.95)
    reward = np.random.default_rng(5).normal(size=169)
    found = jax.tree.map(np.asarray, optimal_values(world, np.stack([reward, -reward])))
    for factor in (1e-9, 1e9):
        scaled = optimal_values(world, factor * np.stack([reward, -reward]))
        assert scaled.converged.all()
        close(scaled.values, factor * found.values, 1e-11)
        np.testing.assert_array_equal(scaled.actions, found.actions)


@pytest.mark.slow
@pytest.mark.parametrize("double", [True, False])
def test_a_far_goal_takes_few_steps(double):
    """A goal in the corner of 1600 states, a step costing one: values follow from the distance to it.

    Newton's own steps bring values one state further each; in single precision systems need their deflation.
    """
    side, discount = 40, 0.9999
    y, x = np.divmod(np.arange(side**2), side)
    moves = [(0, 1), (1, 0), (0, -1), (-1, 0)]
    after = [np.clip(y + b, 0, side - 1) * side + np.clip(x + a, 0, side - 1) for a, b in moves]
    after = np.stack(after, axis=1)
    after[-1] = side**2 - 1
    mask = np.ones(after.shape, bool)
    mask[-1, 1:] = False
    reward = np.where(np.arange(side**2) == side**2 - 1, 0.0, -1.0)
    distance = 2 * (side - 1) - x - y
    with jax.enable_x64(double):
        world = MDP.deterministic(after, discount=discount, action_mask=mask)
        found = optimal_values(world, reward.astype(float if double else np.float32))
    assert found.converged and found.steps <= 30
    close(found.values, -(1 - discount**distance) / (1 - discount), 1e-9 if double else 1e-4)


@pytest.mark.slow
def test_single_precision_has_the_values():
    size = 4
    world, next_values = grid(size, 0.9)
    reward = np.random.default_rng(7).normal(size=size**2)
    values = by_sweeps(next_values, reward[:, None], 0.9)
    with jax.enable_x64(False):
        world, _ = grid(size, 0.9)
        found = optimal_values(world, reward.astype(np.float32))
        assert found.values.dtype == found.policy.dtype == jnp.float32 and found.converged
        close(found.values, values, 2e-6)
        close(policy_values(world, reward.astype(np.float32), found.policy), values, 2e-6)
        near_one = optimal_values(grid(size, 0.9999)[0], reward.astype(np.float32))
        assert near_one.converged
    close(near_one.values, optimal_values(grid(size, 0.9999)[0], reward).values, 1e-5)


@pytest.mark.parametrize("num_states", [6, pytest.param(140, marks=pytest.mark.slow)])
def test_values_of_policies_solve_their_systems(num_states):
    """Of states and of actions, in batches that broadcast, up to 128 states and above."""
    table, random = chances(8, num_states, 3), np.random.default_rng(9)
    rewards = random.normal(size=(2, 1, num_states, 3))
    policies = random.dirichlet(np.ones(3), (2, num_states))
    for discount in (0.9, 0.9999):
        world = MDP.dense(table, discount=discount)
        found = np.asarray(policy_values(world, rewards, policies))
        assert found.shape == (2, 2, num_states)
        for i, j in np.ndindex(2, 2):
            close(found[i, j], worth(table, rewards[i, 0], discount, policies[j]), 1e-10)
    of_states = rewards[0, 0, :, 0]
    expected = worth(table, of_states[:, None], 0.9, policies[1])
    world = MDP.dense(table, discount=0.9)
    close(policy_values(world, of_states, policies[1]), expected, 1e-10)
    start = random.dirichlet(np.ones(num_states))
    np.testing.assert_allclose(expected_value(world, of_states, policies[1]), expected.mean(), rtol=1e-10)
    world = MDP.dense(table, discount=0.9, start=start)
    np.testing.assert_allclose(
        np.asarray(expected_value(world, of_states, policies))[1], start @ expected, rtol=1e-10
    )


def test_values_of_policies_have_derivatives():
    table, random = chances(10, 5, 2), np.random.default_rng(11)
    policy, reward, away = random.dirichlet(np.ones(2), 5), random.normal(size=5), random.normal(size=5)
    world = MDP.dense(table, discount=0.9)
    slope = jax.jit(jax.grad(lambda r, p: away @ policy_values(world, r, p), (0, 1)))
    of_reward, of_policy = slope(reward, policy)
    visits = np.linalg.solve(np.eye(5) - 0.9 * np.einsum("sa,san->ns", policy, table), away)
    np.testing.assert_allclose(of_reward, visits, rtol=1e-11)
    move = np.outer(np.ones(5), [1, -1]) * 1e-6
    ahead, behind = (worth(table, reward[:, None], 0.9, policy + d) @ away for d in (move, -move))
    np.testing.assert_allclose(np.sum(of_policy * move) / 1e-6, (ahead - behind) / 2e-6, rtol=1e-7)


def test_rows_of_policies_are_divided_by_their_sums():
    """Or else 5e-7 too much, at a discount of 0.9999, would be half a percent of the value."""
    table, policy = chances(12, 5, 2), np.random.default_rng(13).dirichlet(np.ones(2), 5)
    world, reward = MDP.dense(table, discount=0.9999), np.arange(5.0)
    close(
        policy_values(world, reward, policy * (1 + 5e-7)),
        worth(table, reward[:, None], 0.9999, policy),
        1e-10,
    )


def test_what_has_not_converged_says_so():
    world, _ = grid(4, 0.99)
    reward = np.where(np.arange(16) == 15, 1.0, 0.0)
    early = optimal_values(world, reward, max_steps=1)
    assert not early.converged and early.steps == 1 and early.residual > 0
    spoilt = jax.jit(lambda r: optimal_values(world, r))(jnp.full(16, jnp.nan))
    assert not spoilt.converged and np.isnan(spoilt.values).all()


def test_nothing_is_compiled_twice(compilations):
    policy, reward = np.full((4, 2), 0.5), np.linspace(0, 1, 4)
    for seed, discount in ((14, 0.9), (15, 0.5)):
        del compilations[:]
        world = MDP.dense(chances(seed, 4, 2), discount=discount)
        optimal_values(world, reward + seed, tol=1e-6 * seed)
        policy_values(world, reward + seed, policy)
    assert not compilations


two = np.full((2, 2, 2), 0.5)
even = np.full((2, 2), 0.5)
closed = [[True, False], [True, True]]


three = MDP.dense(np.full((3, 2, 3), 1 / 3), discount=0.9)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda w: optimal_values(MDP.dense(two), np.ones(2)), ValueError, "mdp.discount is 1.0: over an infinite"),
        (lambda w: optimal_values(two, np.ones(2)), TypeError, "mdp"),
        (lambda w: optimal_values(w, np.ones(3)), ValueError, r"reward has shape \(3,\): the last axis"),
        (lambda w: optimal_values(three, np.ones((3, 2, 3))), ValueError, "as of state, action and next state: give"),
        (lambda w: optimal_values(w, [0.0, np.nan]), ValueError, r"reward\[1\] is not finite"),
        (lambda w: optimal_values(w, np.ones(2), tol=0.0), ValueError, "tol must be greater than 0"),
        (lambda w: optimal_values(w, np.ones(2), max_steps=0), ValueError, "max_steps must be at least 1"),
        (lambda w: policy_values(w, np.ones(2), even[:1]), ValueError, r"policy has shape \(1, 2\): the last two"),
        (lambda w: policy_values(w, np.ones(2), even * 1.1), ValueError, r"policy\[0\] sums to 1.1, not 1: divide"),
        (lambda w: policy_values(w, np.ones(2), [[1.5, -0.5]] * 2), ValueError, r"policy\[0, 1\] is negative"),
        (lambda w: policy_values(w, np.ones(2), even * np.nan), ValueError, r"policy\[0, 0\] is not finite"),
        (lambda w: policy_values(w, np.ones(2), even.astype(int)), TypeError, "policy has dtype int"),
        (lambda w: policy_values(MDP.dense(two), np.ones(2), even), ValueError, "mdp.discount is 1.0"),
        (
            lambda w: policy_values(MDP.dense(two, discount=0.9, action_mask=np.array(closed)), np.ones(2), even),
            ValueError,
            r"policy\[0, 1\] is of an action that is not available \(it is 0.5\): give it zero",
        ),
        (
            lambda w: policy_values(w, np.ones((3, 2)), np.stack([even] * 2)),
            ValueError,
            r"reward has batch axes \(3,\), policy \(2,\): give batch axes that broadcast",
        ),
    ],
)  # fmt: skip
def test_bad_input_is_refused(make, error, message):
    with pytest.raises(error, match=message):
        make(MDP.dense(two, discount=0.9))
