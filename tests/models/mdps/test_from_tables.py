"""Worlds of gymnasium's tables against its rules written out, and of counts against Dirichlet moments."""

from __future__ import annotations

import functools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ethogram.models.mdps.draw_transitions import draw_transitions
from ethogram.models.mdps.mdp import MDP
from ethogram.models.mdps.values import soft_values


def table_of(world):
    """Probabilities (state, action, next state)."""
    count = world.num_states
    states, actions, after = np.indices((count, world.num_actions, count))
    return np.asarray(world.probability(states, actions, after))


@functools.cache
def table_in_gymnasium(name):
    """``P`` of an environment."""
    gymnasium = pytest.importorskip("gymnasium")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return gymnasium.make(name).unwrapped.P


def likelihood(world, reward, demonstrations):
    found = soft_values(world, reward)
    assert found.converged
    return np.asarray(found.log_policy)[demonstrations[:, 2], demonstrations[:, 3]].sum()


@pytest.mark.parametrize(
    ("name", "environment", "expected"),
    [
        ("frozenlake_4x4.npz", "FrozenLake-v1", -522.75694),
        pytest.param("cliffwalking.npz", "CliffWalking-v1", -1311.06139, marks=pytest.mark.slow),
    ],
)
def test_toy_texts_are_those_that_are_stored(name, environment, expected, stored_file):
    """Whose likelihoods were worked out with all actions in the states that end episodes."""
    data = np.load(stored_file(f"gp_irl/{name}"))
    count = len(data["terminal"])
    table = np.zeros((count, 4, count))
    table[tuple(data["T_idx"].T)] = data["T_prob"]
    world, reward = MDP.from_gymnasium(table_in_gymnasium(environment), discount=0.95, terminal_actions="all")
    np.testing.assert_allclose(table_of(world), table, atol=1e-15)
    np.testing.assert_allclose(reward, data["r_sa"], atol=1e-15)
    assert world.action_mask is None
    assert abs(likelihood(world, data["beta"] * reward, data["demos"]) - expected) < 1e-5
    closed, same = MDP.from_gymnasium(table_in_gymnasium(environment), discount=0.95)
    np.testing.assert_array_equal(same, reward)
    np.testing.assert_array_equal(closed.action_mask.sum(1), np.where(data["terminal"], 1, 4))
    assert abs(likelihood(closed, data["beta"] * reward, data["demos"]) - expected) > 0.1


def test_terminal_states_have_one_action_and_are_worth_nothing():
    """With all of them, a hole in the ice is worth ln 4 / (1 - gamma), and looks no worse than the rest."""
    parts = {"start": np.eye(16)[0], "action_names": ("left", "down", "right", "up")}
    world, reward = MDP.from_gymnasium(table_in_gymnasium("FrozenLake-v1"), discount=0.95, **parts)
    ends = np.isin(np.arange(16), (5, 7, 11, 12, 15))
    found = soft_values(world, reward)
    np.testing.assert_allclose(np.asarray(found.values)[ends], 0, atol=1e-12)
    assert (np.asarray(found.values)[~ends] > 0).all()
    assert (
        (np.asarray(found.policy)[ends, 0] == 1).all()
        and world.action_names[3] == "up"
        and world.start[0] == 1
    )
    open_end, _ = MDP.from_gymnasium(
        table_in_gymnasium("FrozenLake-v1"), discount=0.95, terminal_actions="all"
    )
    values = np.asarray(soft_values(open_end, reward).values)
    np.testing.assert_allclose(values[ends], np.log(4) / 0.05, rtol=1e-12)
    assert np.abs(values - 27.7).max() < 0.5


def test_duplicates_are_added_and_missing_actions_are_not_available():
    table = [
        {0: [(0.25, 1, 4.0, False), (0.5, 0, 2.0, False), (0.25, 1, 0.0, False)], 2: ((1, 0, -1, False),)},
        [[(1.0, 2, 1.0, True)]],
        {1: [(1.0, 0, 5.0, False)]},
    ]
    world, reward = MDP.from_gymnasium(table, discount=1.0)
    assert world.action_mask.tolist() == [[True, False, True], [True, False, False], [True, False, False]]
    found = table_of(world)
    np.testing.assert_allclose(
        found[[0, 0, 1, 2], [0, 2, 0, 0]], [[0.5, 0.5, 0], [1, 0, 0], [0, 0, 1], [0, 0, 1]]
    )
    np.testing.assert_allclose(reward, [[2, 0, -1], [1, 0, 0], [0, 0, 0]])
    assert world.discount == 1


def test_episodes_may_end_in_a_state_of_their_own():
    """A state that one episode ends in and another goes through."""
    table = {0: {0: [(1.0, 1, 1.0, True)], 1: [(1.0, 1, 0.0, False)]}, 1: {0: [(1.0, 0, 2.0, False)]}}
    with pytest.raises(
        ValueError, match=r"P\[0\]\[1\] enters the terminal state 1 without termination: pass end_state=True"
    ):
        MDP.from_gymnasium(table, discount=0.5)
    world, reward = MDP.from_gymnasium(table, discount=0.5, end_state=True)
    assert world.action_mask.tolist() == [[True, True], [True, False], [True, False]]
    np.testing.assert_allclose(reward, [[1, 0], [2, 0], [0, 0]])
    found = soft_values(world, reward)
    # V(0) = ln(e + e^(V(1) / 2)), V(1) = 2 + V(0) / 2, V(end) = 0.
    values = np.zeros(2)
    for _ in range(200):
        values = np.array([np.log(np.e + np.exp(0.5 * values[1])), 2 + 0.5 * values[0]])
    np.testing.assert_allclose(found.values, [*values, 0], atol=1e-12)


def one(entry):
    return {0: {0: [entry]}, 1: {0: [(1.0, 1, 0.0, True)]}}


@pytest.mark.parametrize(
    ("table", "error", "message"),
    [
        (one((0.9, 1, 0.0, True)), ValueError, r"P\[0\]\[0\] has probabilities that sum to 0.9, not 1"),
        (one((-1.0, 1, 0.0, True)), ValueError, r"the probability of P\[0\]\[0\]\[0\] must be at least 0, not -1"),
        (one((np.nan, 1, 0.0, True)), ValueError, r"probability of P\[0\]\[0\]\[0\] must be at least 0, not nan"),
        (one(("1", 1, 0.0, True)), TypeError, r"probability of P\[0\]\[0\]\[0\] must be a real number, not '1'"),
        (one((1.0, 2, 0.0, True)), ValueError, r"the next state of P\[0\]\[0\]\[0\] must be at most 1, not 2"),
        (one((1.0, 0.5, 0.0, True)), TypeError, r"the next state of P\[0\]\[0\]\[0\] must be an integer, not 0.5"),
        (one((1.0, 1, np.inf, True)), ValueError, r"the reward of P\[0\]\[0\]\[0\] must be finite, not inf"),
        (one((1.0, 1, 0.0, 1)), TypeError, r"terminated of P\[0\]\[0\]\[0\] must be True or False, not 1"),
        (one((1.0, 1, 0.0)), TypeError, r"P\[0\]\[0\]\[0\] is \(1.0, 1, 0.0\), not \(probability"),
        ({0: {0: []}}, ValueError, r"P\[0\]\[0\] is \[\]: give a list of"),
        ({0: {}}, ValueError, r"P\[0\] is \{\}: every state needs an action"),
        ({0: {"up": []}}, ValueError, r"P\[0\] has the action 'up': number them from 0"),
        ({1: {0: [(1.0, 0, 0.0, False)]}}, ValueError, r"P has 1 states and no P\[0\]: number them from 0"),
        ({}, TypeError, "P is dict: give the dictionary"),
        (3, TypeError, "P is int: give the dictionary"),
    ],
)  # fmt: skip
def test_bad_tables_are_refused(table, error, message):
    with pytest.raises(error, match=message):
        MDP.from_gymnasium(table, discount=0.9)


def test_tables_have_one_or_all_terminal_actions():
    with pytest.raises(ValueError, match="terminal_actions must be 'one' or 'all', not 'none'"):
        MDP.from_gymnasium(one((1.0, 1, 0.0, True)), discount=0.9, terminal_actions="none")


COUNTS = np.array([[[4, 0, 2], [0, 0, 0]], [[1, 1, 1], [9, 0, 0]], [[0, 0, 7], [2, 5, 0]]])


def test_means_are_those_of_dirichlet_rows():
    world = MDP.from_counts(COUNTS, prior=0.5, discount=0.9)
    np.testing.assert_allclose(
        table_of(world), (COUNTS + 0.5) / (COUNTS.sum(-1, keepdims=True) + 1.5), rtol=1e-14
    )
    possible = np.ones(COUNTS.shape, bool)
    possible[0, :, 1] = possible[2, 0, 0] = False
    world = MDP.from_counts(COUNTS, prior=0.5, discount=0.9, support=possible, state_names=("a", "b", "c"))
    weights = np.where(possible, COUNTS + 0.5, 0)
    np.testing.assert_allclose(table_of(world), weights / weights.sum(-1, keepdims=True), rtol=1e-14)
    np.testing.assert_allclose(table_of(world)[0, 1], [0.5, 0, 0.5])  # never visited: the prior's mean
    assert world.state_names == ("a", "b", "c") and world.discount == 0.9


def test_a_prior_of_nothing_gives_shares_and_needs_counts():
    available = np.ones((3, 2), bool)
    available[0, 1] = False
    world = MDP.from_counts(COUNTS, prior=0.0, discount=0.9, action_mask=available)
    seen = COUNTS.sum(-1) > 0
    np.testing.assert_allclose(
        table_of(world)[seen], (COUNTS / np.maximum(COUNTS.sum(-1, keepdims=True), 1))[seen]
    )
    with pytest.raises(ValueError, match=r"counts\[0, 1\] sums to 0 and prior is 0"):
        MDP.from_counts(COUNTS, prior=0.0, discount=0.9)


def test_lists_of_next_states_have_the_same_mean():
    """Of which there are one to three."""
    successors = np.array([[[2, 0, -1], [1, -1, -1]], [[-1, 2, 1], [0, 1, 2]], [[2, -1, -1], [0, 1, 2]]])
    used = successors >= 0
    counts = np.where(used, np.arange(18).reshape(3, 2, 3), 0)
    support, dense = np.zeros((3, 2, 3), bool), np.zeros((3, 2, 3))
    state, action, _ = np.nonzero(used)
    support[state, action, successors[used]] = True
    dense[state, action, successors[used]] = counts[used]
    found = MDP.from_counts(counts, prior=2.0, discount=0.9, successors=successors)
    same = MDP.from_counts(dense, prior=2.0, discount=0.9, support=support)
    np.testing.assert_allclose(table_of(found), table_of(same), atol=1e-15)
    draws = draw_transitions(
        jax.random.key(0), counts, prior=2.0, num_draws=3, discount=0.9, successors=successors
    )
    for draw in range(3):
        table = table_of(jax.tree.map(lambda x, draw=draw: x[draw], draws))
        assert (table[~support] == 0).all()
        np.testing.assert_allclose(table.sum(-1), 1, rtol=1e-14)


def test_draws_have_the_moments_of_dirichlet_rows():
    """Twelve means and variances within five errors: fails by chance in 1 of 70 000 runs."""
    possible = np.ones(COUNTS.shape, bool)
    possible[0, :, 1] = False
    prior = 0.3
    settings = {"prior": prior, "discount": 0.9, "support": possible}
    num_draws = 1500
    worlds = draw_transitions(jax.random.key(1), COUNTS, num_draws=num_draws, **settings)
    tables = np.asarray(worlds.transitions.probabilities)
    assert (tables[:, ~possible] == 0).all()
    weights = np.where(possible, COUNTS + prior, 0)
    total = weights.sum(-1, keepdims=True)
    mean = weights / total
    variance = mean * (1 - mean) / (total + 1)
    error = np.sqrt(variance / num_draws) + 1e-12
    assert (np.abs(tables.mean(0) - mean) < 5 * error).all()
    spread = (tables - mean) ** 2
    assert (np.abs(spread.mean(0) - variance) < 5 * spread.std(0) / np.sqrt(num_draws) + 1e-12).all()
    np.testing.assert_allclose(table_of(MDP.from_counts(COUNTS, **settings)), mean, rtol=1e-14)


@pytest.mark.slow
def test_draws_are_solved_by_one_mapped_program():
    """With a mask and names; they vary where counts are few, and can be made inside a mapped function too."""
    reward, key = np.array([0.0, 1.0, 3.0]), jax.random.key(2)
    mask = np.array([[True, True], [True, False], [True, True]])
    settings = {
        "prior": 1.0,
        "num_draws": 8,
        "discount": 0.9,
        "action_mask": mask,
        "state_names": ("a", "b", "c"),
    }
    worlds = draw_transitions(key, COUNTS, **settings)
    assert (worlds.num_states, worlds.num_actions) == (3, 2) and worlds.action_mask.shape == (8, 3, 2)
    values = jax.vmap(lambda world: soft_values(world, reward).values)(worlds)
    for row in range(8):
        one = jax.tree.map(lambda x, row=row: x[row], worlds)
        np.testing.assert_allclose(values[row], soft_values(one, reward).values, rtol=1e-12)
        same = MDP.dense(np.asarray(one.transitions.probabilities), discount=0.9, action_mask=mask)
        np.testing.assert_allclose(values[row], soft_values(same, reward).values, rtol=1e-12)
    assert (np.std(values, axis=0) > 0.05).all()
    many = draw_transitions(key, 10_000 * COUNTS, prior=1.0, num_draws=8, discount=0.9)
    near = np.std(np.asarray(many.transitions.probabilities), axis=0)
    assert near[COUNTS.sum(-1) > 0].max() < 0.01 < near[0, 1].min()

    def tables(key):
        return draw_transitions(key, COUNTS, **settings | {"num_draws": 2}).transitions.probabilities

    mapped = jax.jit(jax.vmap(tables))(jax.random.split(key, 4))
    assert mapped.shape == (4, 2, 3, 2, 3)
    np.testing.assert_allclose(mapped.sum(-1), 1, rtol=1e-12)


def test_single_precision_stays_single():
    with jax.enable_x64(False):
        world = MDP.from_counts(COUNTS, prior=1.0, discount=0.9)
        drawn = draw_transitions(jax.random.key(3), COUNTS, prior=0.01, num_draws=1, discount=0.9)
        table, reward = MDP.from_gymnasium(table_in_gymnasium("FrozenLake-v1"), discount=0.95)
        assert world.transitions.probabilities.dtype == drawn.transitions.probabilities.dtype == jnp.float32
        assert table.transitions.probabilities.dtype == reward.dtype == jnp.float32


class Large:
    """What NumPy takes for an array of a shape that nobody has the memory for, of one repeated number."""

    def __init__(self, *shape):
        self.array = np.broadcast_to(np.int8(1), shape)

    def __array__(self, dtype=None, copy=None):
        return self.array


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"counts": COUNTS[:, :, :2]}, ValueError, r"counts has shape \(3, 2, 2\), not \(state, action, next state\)"),
        ({"counts": -COUNTS}, ValueError, r"counts\[0, 0, 0\] is negative \(it is -4\)"),
        ({"counts": COUNTS * np.nan}, ValueError, r"counts\[0, 0, 0\] is not finite"),
        ({"counts": COUNTS > 0}, TypeError, "counts has dtype bool: give numbers"),
        ({"prior": -1.0}, ValueError, "prior must be at least 0, not -1"),
        ({"prior": np.nan}, ValueError, "prior must be at least 0, not nan"),
        ({"support": COUNTS == 0}, ValueError, r"counts\[0, 0, 0\] is outside the support \(it is 4\)"),
        ({"counts": 0 * COUNTS, "support": COUNTS < 0}, ValueError, r"counts\[0, 0\] has no possible next state"),
        ({"support": COUNTS}, ValueError, r"support is int64 \(3, 2, 3\): give booleans of the shape \(3, 2, 3\)"),
        ({"successors": COUNTS[:, :, :2]}, ValueError, r"successors has shape \(3, 2, 2\), counts \(3, 2, 3\)"),
        ({"successors": COUNTS}, ValueError, r"successors\[0, 0, 0\] is not a state \(it is 4\): states are 0 to 2"),
        ({"successors": 0 * COUNTS}, ValueError, r"successors\[0, 0\] has a state twice: add up its counts"),
        ({"successors": 1.0 * COUNTS}, TypeError, "successors has dtype float64: give integers"),
        (
            {"counts": Large(10_000, 5, 10_000)},
            ValueError,
            r"counts would have shape \(10000, 5, 10000\) and take 3.73 GiB, more than 2: give counts",
        ),
        ({"discount": 1.5}, ValueError, r"discount must be a number in \[0, 1\]"),
    ],
)  # fmt: skip
def test_bad_counts_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        MDP.from_counts(**{"counts": COUNTS, "prior": 1.0, "discount": 0.9, **arguments})


@pytest.mark.parametrize(
    ("num_draws", "error", "message"),
    [
        (0, ValueError, "num_draws must be at least 1"),
        (10**8, ValueError, r"draws would have shape \(100000000, 3, 2, 3\) and take .*: draw fewer"),
    ],
)  # fmt: skip
def test_draws_are_refused(num_draws, error, message):
    with pytest.raises(error, match=message):
        draw_transitions(jax.random.key(0), COUNTS, prior=1.0, num_draws=num_draws, discount=0.9)
