"""MDPs, and soft values with a finite horizon, against enumeration of action sequences and float64 NumPy."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ethogram.models.mdps.mdp import MDP
from ethogram.models.mdps.tabular import read_reward
from ethogram.models.mdps.transitions import SparseTransitions
from ethogram.models.mdps.values import soft_values


def tables(seed, num_states, num_actions):
    """Next states (state, action), and probabilities (state, action, state) with zeros among them."""
    random = np.random.default_rng(seed)
    shape = (num_states, num_actions)
    weights = random.exponential(size=(*shape, num_states)) * (random.random((*shape, num_states)) < 0.6)
    weights[..., 0] += 0.1
    return random.integers(num_states, size=shape), weights / weights.sum(-1, keepdims=True)


@pytest.mark.parametrize(("num_states", "num_actions", "horizon"), [(4, 3, 4), (1, 2, 1)])
def test_values_are_log_sums_over_all_action_sequences(num_states, num_actions, horizon):
    """Exp V_0(s) is the sum of exp(return), exp(V_0) pi(first action) the part that begins with the action."""
    next_state, _ = tables(7, num_states, num_actions)
    reward = np.random.default_rng(1).normal(size=num_states)
    found = soft_values(MDP.deterministic(next_state), reward, horizon=horizon, all_steps=True)
    values, log_policy = np.asarray(found.values), np.asarray(found.log_policy)
    parts = np.zeros((num_states, num_actions))
    for first, actions in itertools.product(
        range(num_states), itertools.product(range(num_actions), repeat=horizon)
    ):
        state, total = first, 0.0
        for action in actions:
            total += reward[state]
            state = next_state[state, action]
        parts[first, actions[0]] += np.exp(total)
    np.testing.assert_allclose(values[0], np.log(parts.sum(1)), rtol=1e-12)
    np.testing.assert_allclose(log_policy[0], np.log(parts / parts.sum(1, keepdims=True)), atol=1e-12)


def test_tables_that_would_fill_the_memory_are_refused():
    world = MDP.deterministic(np.zeros((20_000, 1), int))
    with pytest.raises(
        ValueError,
        match=r"policy_matrix would have shape \(20000, 20000\) and take 2.98 GiB, more than 2: use expect and push",
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


def test_worlds_are_pytrees_and_nothing_is_traced_twice(compilations):
    next_state, probabilities = tables(6, 3, 2)
    reward = np.linspace(0, 1, 3)
    for one, other in (
        (MDP.dense(probabilities), MDP.dense(probabilities[::-1].copy(), discount=0.5)),
        (MDP.deterministic(next_state), MDP.deterministic(next_state[::-1].copy())),
    ):
        soft_values(one, reward, horizon=4, all_steps=True)
        del compilations[:]
        soft_values(other, reward + 1, horizon=4, all_steps=True)
        assert not compilations
    stacked = jax.tree.map(lambda *x: np.stack(x), one, other)
    both = jax.vmap(lambda world: soft_values(world, reward, horizon=4, all_steps=True).values)(stacked)
    np.testing.assert_allclose(
        np.asarray(both)[1], soft_values(other, reward, horizon=4, all_steps=True).values, rtol=1e-14
    )
    assert len(jax.tree.leaves(MDP.dense(probabilities))) == 2


def test_single_precision_stays_single():
    _, probabilities = tables(6, 3, 2)
    with jax.enable_x64(False):
        world = MDP.dense(probabilities.astype(np.float32))
        found = soft_values(world, np.full(3, 400.0, np.float32), horizon=50, all_steps=True)
        assert found.values.dtype == jnp.float32
        assert np.isfinite(found.log_policy).all()
        np.testing.assert_allclose(np.asarray(found.values)[0], 50 * (400 + np.log(2)), rtol=1e-5)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda t: MDP.dense(t * [[[1.0]], [[0.97]]]), ValueError, r"s\[1, 0\] sums to 0.97, not 1: divide"),
        (lambda t: MDP.dense(t - np.array([0.6, -0.6])), ValueError, r"probabilities\[0, 0, 0\] is negative"),
        (lambda t: MDP.dense(t * np.nan), ValueError, r"probabilities\[0, 0, 0\] is not finite"),
        (lambda t: MDP.dense(t[:, 0]), ValueError, r"probabilities has shape \(2, 2\)"),
        (lambda t: MDP.dense(t[..., :1]), ValueError, r"probabilities has shape \(2, 2, 1\)"),
        (lambda t: MDP.dense(t.astype(int)), TypeError, "probabilities has dtype int"),
        (lambda t: MDP.deterministic([[0, 1], [2, 1]]), ValueError, r"next_state\[1, 0\] is not a state \(it is 2\)"),
        (lambda t: MDP.deterministic([[0, -1], [0, 1]]), ValueError, r"next_state\[0, 1\] is not a state"),
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
        (lambda t: MDP.dense(t, state_names=("a",)), ValueError, "state_names has 1 names for 2: give one each"),
        (lambda t: MDP.dense(t, action_names=["a", "a"]), ValueError, "action_names must be unique strings; 'a'"),
        (lambda t: MDP.dense(t, state_names=[0, 1]), TypeError, r"state_names\[0\] is 0: give a string"),
        (lambda t: MDP.dense(t, state_names="ab"), TypeError, "state_names is 'ab': give a tuple of strings"),
        (lambda t: MDP.dense(t, names=("a", "b")), TypeError, "names"),
        (lambda t: MDP.dense(t).policy_matrix(np.ones(2)), ValueError, r"policy has shape \(2,\), not"),
        (lambda t: MDP.sparse([[[0, 2]]] * 2, t[:, :1]), ValueError, r"successors\[0, 0, 1\] is not a state"),
        (lambda t: MDP.dense(t).expect(np.ones(3)), ValueError, r"values has shape \(3,\)"),
        (lambda t: MDP.dense(t).push(np.ones(2)), ValueError, r"weights has shape \(2,\)"),
        (lambda t: soft_values(MDP.dense(t), np.ones(3), horizon=4), ValueError, r"reward has shape \(3,\)"),
        (lambda t: soft_values(MDP.dense(t), [0.0, np.inf], horizon=4), ValueError, r"reward\[1\] is not finite"),
        (lambda t: soft_values(t, np.ones(2), horizon=4), TypeError, "mdp"),
        (lambda t: soft_values(MDP.dense(t), np.ones(2), horizon=0), ValueError, "horizon must be at least 1"),
        (lambda t: soft_values(MDP.dense(t), np.ones(2), horizon=2.0), TypeError, "horizon"),
    ],
)  # fmt: skip
def test_bad_input_is_refused(make, error, message):
    with pytest.raises(error, match=message):
        make(np.full((2, 2, 2), 0.5))


def test_legal_actions_are_a_subset_of_the_available_ones():
    """Given booleans, the mask, or all; the message names the first decision that is affected."""
    next_state, _ = tables(6, 3, 2)
    mask = np.array([[True, True], [True, False], [True, True]])
    world = MDP.deterministic(next_state, action_mask=mask)
    assert MDP.deterministic(next_state).allowed_actions().all() and (world.allowed_actions() == mask).all()
    fewer = [[True, False], [True, False], [False, True]]
    assert world.allowed_actions(fewer).tolist() == fewer
    every = np.ones((3, 2), bool)
    with pytest.raises(
        ValueError, match=r"legal\[1, 1\] is True at decision 2, but that action is not available"
    ):
        world.allowed_actions(every, [0, 2, 1, 1])
    with pytest.raises(ValueError, match=r"legal\[1, 1\] is True, but"):
        world.allowed_actions(every)
    with pytest.raises(ValueError, match=r"legal is int64 \(3, 2\): give booleans \(3, 2\)"):
        world.allowed_actions(every.astype(int))


def test_the_world_of_one_state_is_a_world():
    assert SparseTransitions.deterministic(np.zeros((1, 1), int)).shape == (1, 1)
    world = MDP.deterministic(np.zeros((1, 4), int))
    assert (world.num_states, world.num_actions) == (1, 4)


def test_minus_infinity_is_a_reward_of_actions_that_are_not_available():
    """As tables of other packages have it; elsewhere it is refused."""
    mask = np.array([[True, False], [True, True], [False, True]])
    world = MDP.deterministic([[0, 1], [0, 2], [1, 2]], discount=0.9, action_mask=mask)
    reward = np.arange(6.0).reshape(3, 2)
    read = read_reward(world, np.where(mask, reward, -np.inf))[0]
    np.testing.assert_array_equal(read, np.where(mask, reward, 0))
    traced = jax.jit(lambda table: read_reward(world, table)[0])(np.where(mask, reward, -np.inf))
    np.testing.assert_array_equal(traced, read)
    with pytest.raises(TypeError, match="reward is a masked array"):
        read_reward(world, np.ma.masked_array(np.where(mask, reward, -np.inf), ~mask))
    for wrong in (
        np.where(mask, -np.inf, reward),
        np.where(mask, reward, np.inf),
        np.where(mask, reward, np.nan),
    ):
        with pytest.raises(ValueError, match="is not finite"):
            read_reward(world, wrong)
