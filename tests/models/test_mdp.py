"""Worlds and soft values before a horizon against enumeration of action sequences and float64 NumPy written apart."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ethogram.models.mdp import MDP, DeterministicTransitions
from ethogram.models.soft_policy_by_step import soft_policy_by_step

quick = settings(max_examples=25, deadline=None, derandomize=True)


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True), jax.numpy_rank_promotion("raise"):
        yield


def tables(seed, num_states, num_actions):
    """Next states (state, action), and probabilities (state, action, state) with zeros among them."""
    random = np.random.default_rng(seed)
    shape = (num_states, num_actions)
    weights = random.exponential(size=(*shape, num_states)) * (random.random((*shape, num_states)) < 0.6)
    weights[..., 0] += 0.1
    return random.integers(num_states, size=shape), weights / weights.sum(-1, keepdims=True)


def one_hot(next_state):
    return np.eye(len(next_state))[next_state]


@pytest.mark.parametrize(
    ("num_states", "num_actions", "horizon"), [(3, 2, 5), (4, 3, 4), (2, 1, 3), (1, 2, 1)]
)
def test_values_are_log_sums_over_all_action_sequences(num_states, num_actions, horizon):
    """Exp V_0(s) is the sum of exp(return), exp(V_0) pi(first action) the part that begins with the action."""
    next_state, _ = tables(7, num_states, num_actions)
    reward = np.random.default_rng(1).normal(size=num_states)
    found = soft_policy_by_step(MDP.deterministic(next_state), reward, horizon)
    parts = np.zeros((num_states, num_actions))
    for first, actions in itertools.product(
        range(num_states), itertools.product(range(num_actions), repeat=horizon)
    ):
        state, total = first, 0.0
        for action in actions:
            total += reward[state]
            state = next_state[state, action]
        parts[first, actions[0]] += np.exp(total)
    np.testing.assert_allclose(found.values[0], np.log(parts.sum(1)), rtol=1e-12)
    np.testing.assert_allclose(found.log_policy[0], np.log(parts / parts.sum(1, keepdims=True)), atol=1e-12)


def backward(probabilities, reward, horizon, discount):
    """Policy and values by step, by loops; rewards are of states, or of states and actions."""
    reward = np.broadcast_to(reward if reward.ndim == 2 else reward[:, None], probabilities.shape[:2])
    num_states, num_actions, _ = probabilities.shape
    policy, values = np.zeros((horizon, num_states, num_actions)), np.zeros((horizon + 1, num_states))
    for t in range(horizon - 1, -1, -1):
        for s in range(num_states):
            later = [discount * np.dot(row, values[t + 1]) for row in probabilities[s]]
            weight = np.exp(reward[s] + later)
            policy[t, s], values[t, s] = weight / sum(weight), np.log(sum(weight))
    return policy, values[:-1]


@pytest.mark.parametrize("discount", [1.0, 0.7])
@pytest.mark.parametrize("form", ["dense", "deterministic"])
def test_a_world_of_chance_equals_a_backward_recursion(form, discount):
    next_state, probabilities = tables(3, 5, 3)
    world = MDP.dense(probabilities, discount=discount)
    if form == "deterministic":
        world, probabilities = MDP.deterministic(next_state, discount=discount), one_hot(next_state)
    rewards = np.random.default_rng(2).normal(size=(2, 3, 5))
    found = soft_policy_by_step(world, rewards, 6)
    assert found.log_policy.shape == (2, 3, 6, 5, 3) and found.values.shape == (2, 3, 6, 5)
    for at in np.ndindex(2, 3):
        policy, values = backward(probabilities, rewards[at], 6, discount)
        np.testing.assert_allclose(np.exp(found.log_policy[at]), policy, rtol=1e-12)
        np.testing.assert_allclose(found.values[at], values, rtol=1e-12)
    shorter = soft_policy_by_step(world, rewards, 2)
    np.testing.assert_array_equal(shorter.values, found.values[..., -2:, :])


def test_rewards_of_actions_have_a_backward_recursion_too():
    """Of which those of states are a case; with as many actions as states, the last two axes are states and actions."""
    _, probabilities = tables(3, 4, 4)
    rewards = np.random.default_rng(2).normal(size=(3, 4, 4))
    world = MDP.dense(probabilities, discount=0.9)
    found = soft_policy_by_step(world, rewards, 5)
    assert found.log_policy.shape == (3, 5, 4, 4) and found.values.shape == (3, 5, 4)
    for row in range(3):
        policy, values = backward(probabilities, rewards[row], 5, 0.9)
        np.testing.assert_allclose(np.exp(found.log_policy[row]), policy, rtol=1e-12)
        np.testing.assert_allclose(found.values[row], values, rtol=1e-12)
    of_states = soft_policy_by_step(world, rewards[:, :, :1], 5)
    np.testing.assert_allclose(of_states.values[1], backward(probabilities, rewards[1, :, 0], 5, 0.9)[1])


def test_the_gradient_of_a_value_is_what_will_be_visited():
    _, probabilities = tables(4, 4, 2)
    reward, start = np.random.default_rng(5).normal(size=4), np.array([0.1, 0.5, 0.0, 0.4])
    policy, _ = backward(probabilities, reward, 5, 1.0)
    visited, mass = start.copy(), start
    for t in range(4):
        mass = np.einsum("s,sa,san->n", mass, policy[t], probabilities)
        visited += mass
    world = MDP.dense(probabilities)
    found = jax.grad(lambda r: start @ soft_policy_by_step(world, r, 5).values[0])(jnp.asarray(reward))
    np.testing.assert_allclose(found, visited, rtol=1e-12)


@quick
@given(st.integers(0, 2**31), st.integers(1, 6), st.integers(1, 4), st.sampled_from([(), (2,), (2, 3)]))
def test_push_is_the_transpose_of_expect(seed, num_states, num_actions, batch):
    """By their tables, and as inner products: <weights, expect(values)> = <push(weights), values>."""
    random = np.random.default_rng(seed)
    next_state, probabilities = tables(seed, num_states, num_actions)
    values, weights = (
        random.normal(size=(*batch, num_states)),
        random.normal(size=(*batch, num_states, num_actions)),
    )
    sure = one_hot(next_state)
    for world, table in (
        (MDP.dense(probabilities), probabilities),
        (MDP.deterministic(next_state), sure),
        (MDP.dense(sure), sure),
    ):
        expected, pushed = world.expect(values), world.push(weights)
        np.testing.assert_allclose(expected, np.einsum("san,...n->...sa", table, values), atol=1e-13)
        np.testing.assert_allclose(pushed, np.einsum("san,...sa->...n", table, weights), atol=1e-13)
        inner = np.sum(np.asarray(expected) * weights, axis=(-2, -1))
        np.testing.assert_allclose(inner, np.sum(np.asarray(pushed) * values, axis=-1), atol=1e-12)


def test_the_chain_of_a_policy_is_a_table():
    next_state, probabilities = tables(8, 5, 3)
    policy = np.random.default_rng(1).dirichlet(np.ones(3), 5)
    successors = np.broadcast_to(np.arange(5), (5, 3, 5))
    for world, table in (
        (MDP.dense(probabilities), probabilities),
        (MDP.sparse(successors, probabilities), probabilities),
        (MDP.deterministic(next_state), one_hot(next_state)),
    ):
        expected = np.einsum("sa,san->sn", policy, table)
        np.testing.assert_allclose(world.policy_matrix(policy), expected, atol=1e-15)


def test_tables_that_would_fill_the_memory_are_refused():
    world = MDP.deterministic(np.zeros((20_000, 1), int))
    with pytest.raises(
        ValueError, match=r"policy_matrix would be a table \(20000, 20000\) of 3200000000 bytes \(2.98"
    ):
        world.policy_matrix(np.ones((20_000, 1)))


def test_worlds_have_starts_features_and_names():
    next_state, probabilities = tables(6, 3, 2)
    parts = {
        "start": [0.25, 0.75, 0.0],
        "features": np.arange(6.0).reshape(3, 2),
        "state_names": ["left", "middle", "right"],
        "action_names": ("stay", "go"),
    }
    successors = np.broadcast_to(np.arange(3), (3, 2, 3))
    for world in (
        MDP.dense(probabilities, **parts),
        MDP.sparse(successors, probabilities, **parts),
        MDP.deterministic(next_state, **parts),
    ):
        assert world.state_names == ("left", "middle", "right") and world.action_names == ("stay", "go")
        np.testing.assert_array_equal(world.start, parts["start"])
        np.testing.assert_array_equal(world.features, parts["features"])
        again = jax.jit(lambda w: w)(world)
        assert again.state_names == world.state_names and (again.start == world.start).all()
    bare = MDP.deterministic(next_state)
    assert bare.start is None and bare.features is None and bare.state_names is None


def test_single_transitions_are_looked_up():
    next_state, probabilities = tables(9, 4, 3)
    states, actions, after = np.array([0, 3, 2]), np.array([1, 0, 2]), np.array([0, 1, 2])
    dense, sure = MDP.dense(probabilities), MDP.deterministic(next_state)
    np.testing.assert_array_equal(
        dense.probability(states, actions, after), probabilities[states, actions, after]
    )
    np.testing.assert_array_equal(
        sure.probability(states, actions, after), next_state[states, actions] == after
    )


def test_worlds_are_pytrees_and_nothing_is_traced_twice(compilations):
    next_state, probabilities = tables(6, 3, 2)
    reward = np.linspace(0, 1, 3)
    for one, other in (
        (MDP.dense(probabilities), MDP.dense(probabilities[::-1].copy(), discount=0.5)),
        (MDP.deterministic(next_state), MDP.deterministic(next_state[::-1].copy())),
    ):
        soft_policy_by_step(one, reward, 4)
        del compilations[:]
        soft_policy_by_step(other, reward + 1, 4)
        assert not compilations
    stacked = jax.tree.map(lambda *x: jnp.stack([jnp.asarray(y) for y in x]), one, other)
    both = jax.vmap(lambda world: soft_policy_by_step(world, reward, 4).values)(stacked)
    np.testing.assert_allclose(both[1], soft_policy_by_step(other, reward, 4).values, rtol=1e-14)
    assert len(jax.tree.leaves(one)) == 2


def test_single_precision_stays_single():
    _, probabilities = tables(6, 3, 2)
    with jax.enable_x64(False):
        world = MDP.dense(probabilities.astype(np.float32))
        found = soft_policy_by_step(world, np.full(3, 400.0, np.float32), 50)
        assert found.values.dtype == jnp.float32
        assert np.isfinite(found.log_policy).all()
        np.testing.assert_allclose(found.values[0], 50 * (400 + np.log(2)), rtol=1e-5)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda t: MDP.dense(t * [[[1.0]], [[0.97]]]), ValueError, r"s\[1, 0\] sums to 0.97, not 1: divide"),
        (lambda t: MDP.dense(t - np.array([0.6, -0.6])), ValueError, r"probabilities\[0, 0, 0\] is negative"),
        (lambda t: MDP.dense(t * np.nan), ValueError, r"probabilities\[0, 0, 0\] is not finite"),
        (lambda t: MDP.dense(t[:, 0]), ValueError, r"probabilities has shape \(2, 2\)"),
        (lambda t: MDP.dense(t[..., :1]), ValueError, r"probabilities has shape \(2, 2, 1\)"),
        (lambda t: MDP.dense(t.astype(int)), TypeError, "probabilities has dtype int"),
        (lambda t: MDP.deterministic([[0, 1], [2, 1]]), ValueError, r"next_state\[1, 0\] is no state \(it is 2\)"),
        (lambda t: MDP.deterministic([[0, -1], [0, 1]]), ValueError, r"next_state\[0, 1\] is no state"),
        (lambda t: MDP.deterministic([0, 1]), ValueError, r"next_state has shape \(2,\)"),
        (lambda t: MDP.deterministic([[0.0], [1.0]]), TypeError, "next_state has dtype float"),
        (lambda t: MDP.dense(t, discount=-0.1), ValueError, r"discount must be a number in \[0, 1\], not -0.1"),
        (lambda t: MDP.dense(t, discount=1.5), ValueError, "discount must be"),
        (lambda t: MDP.dense(t, discount=np.nan), ValueError, "discount must be"),
        (lambda t: MDP.dense(t, discount=[0.5, 0.6]), ValueError, "discount must be"),
        (lambda t: MDP.dense(t, discount="high"), TypeError, "discount is 'high'"),
        (lambda t: MDP(t), TypeError, "transitions is ndarray: use MDP.dense"),
        (lambda t: MDP.dense(t, start=[0.5, 0.4]), ValueError, r"start sums to 0.9, not 1: divide"),
        (lambda t: MDP.dense(t, start=[1.5, -0.5]), ValueError, r"start\[1\] is negative \(it is -0.5\)"),
        (lambda t: MDP.dense(t, start=[0.5, np.nan]), ValueError, r"start\[1\] is not finite"),
        (lambda t: MDP.dense(t, start=[1.0]), ValueError, r"start has shape \(1,\), not \(state,\)"),
        (lambda t: MDP.dense(t, start=np.array([0, 1])), TypeError, "start has dtype int"),
        (lambda t: MDP.dense(t, features=[[0.0], [np.nan]]), ValueError, r"features\[1, 0\] is not finite"),
        (lambda t: MDP.dense(t, features=[0.0, 1.0]), ValueError, r"features has shape \(2,\), not \(state, feature\)"),
        (lambda t: MDP.dense(t, state_names=("a",)), ValueError, "state_names has 1 names: give one for each of 2"),
        (lambda t: MDP.dense(t, action_names=["a", "a"]), ValueError, r"action_names\[1\] is 'a', as is action_names"),
        (lambda t: MDP.dense(t, state_names=[0, 1]), TypeError, r"state_names\[0\] is 0, not a string"),
        (lambda t: MDP.dense(t, state_names="ab"), TypeError, "state_names is 'ab': give a tuple of strings"),
        (lambda t: MDP.dense(t, names=("a", "b")), TypeError, "names"),
        (lambda t: MDP.dense(t).policy_matrix(np.ones(2)), ValueError, r"policy has shape \(2,\), not"),
        (lambda t: MDP.sparse([[[0, 2]]] * 2, t[:, :1]), ValueError, r"successors\[0, 0, 1\] is no state \(it is 2\)"),
        (lambda t: MDP.dense(t).expect(np.ones(3)), ValueError, r"values has shape \(3,\)"),
        (lambda t: MDP.dense(t).push(np.ones(2)), ValueError, r"weights has shape \(2,\)"),
        (lambda t: soft_policy_by_step(MDP.dense(t), np.ones(3), 4), ValueError, r"reward has shape \(3,\)"),
        (lambda t: soft_policy_by_step(MDP.dense(t), [0.0, np.inf], 4), ValueError, r"reward\[1\] is not finite"),
        (lambda t: soft_policy_by_step(t, np.ones(2), 4), TypeError, "mdp"),
        (lambda t: soft_policy_by_step(MDP.dense(t), np.ones(2), 0), ValueError, "horizon must be at least 1"),
        (lambda t: soft_policy_by_step(MDP.dense(t), np.ones(2), 2.0), TypeError, "horizon"),
    ],
)  # fmt: skip
def test_bad_input_is_refused(make, error, message):
    with pytest.raises(error, match=message):
        make(np.full((2, 2, 2), 0.5))


def test_the_world_of_one_state_is_a_world():
    assert DeterministicTransitions(np.zeros((1, 1), int)).shape == (1, 1)
    world = MDP.deterministic(np.zeros((1, 4), int))
    assert (world.num_states, world.num_actions) == (1, 4)
