"""Lists of successors, and actions that are not available, against tables of probabilities in NumPy."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ethogram.models.mdps.mdp import MDP


def lists(seed, num_states, num_actions, num_slots, local=False):
    """Successors, at random or a few steps ahead of the state, and probabilities; states may be listed twice."""
    random = np.random.default_rng(seed)
    shape = (num_states, num_actions, num_slots)
    successors = random.integers(num_states, size=shape)
    if local:
        successors = (np.arange(num_states)[:, None, None] + random.integers(3, size=shape)) % num_states
    return successors, random.dirichlet(np.ones(num_slots), shape[:2])


def table_of(successors, probabilities):
    """The same (state, action, state)."""
    table = np.zeros((*successors.shape[:2], len(successors)))
    for at in np.ndindex(successors.shape):
        table[*at[:2], successors[at]] += probabilities[at]
    return table


def world_of(kind):
    """A world of a kind, and its table (state, action, state)."""
    count, slots = (1, 2) if kind == "one state" else (7, 4 if kind == "shared lists" else 2)
    successors, probabilities = lists(4, count, 3, slots, kind == "shared lists")
    if kind == "deterministic":
        successors, probabilities = successors[..., :1], np.ones((count, 3, 1))
        return MDP.deterministic(successors[..., 0]), table_of(successors, probabilities)
    table = table_of(successors, probabilities)
    return (MDP.dense(table) if kind == "dense" else MDP.sparse(successors, probabilities)), table


@pytest.mark.parametrize("kind", ["dense", "shared lists", "own lists", "one state", "deterministic"])
def test_worlds_are_the_tables_that_they_say(kind):
    """Expected values and the transpose of it in batches, single transitions, chains of policies, single actions."""
    random, (world, table) = np.random.default_rng(11), world_of(kind)
    num_states = len(table)
    assert (world.num_states, world.num_actions) == (num_states, 3)
    for batch in ((), (2, 3)):
        values = random.normal(size=(*batch, num_states))
        weights = random.normal(size=(*batch, num_states, 3))
        expected, pushed = world.expect(values), world.push(weights)
        np.testing.assert_allclose(expected, np.einsum("san,...n->...sa", table, values), atol=1e-13)
        np.testing.assert_allclose(pushed, np.einsum("san,...sa->...n", table, weights), atol=1e-13)
    np.testing.assert_allclose(world.probability(*np.indices(table.shape, sparse=True)), table, atol=1e-15)
    policy = random.dirichlet(np.ones(3), num_states)
    chain = np.einsum("sa,san->sn", policy, table)
    np.testing.assert_allclose(world.policy_matrix(policy), chain, atol=1e-15)
    transitions = world.transitions
    if "lists" in kind:
        assert transitions.neighbours.ndim == (2 if kind == "shared lists" else 3)
    columns = random.normal(size=(num_states, 5))
    after = jax.jit(lambda action: transitions.expected_next_columns(action, jnp.asarray(columns)))
    for action in range(3):
        np.testing.assert_allclose(after(action), table[:, action] @ columns, atol=1e-13)


def test_what_is_traced_gives_the_same():
    """Without lists of predecessors, which the host makes of known successors only."""
    successors, probabilities = lists(0, 6, 2, 2)
    random = np.random.default_rng(2)
    values, weights = random.normal(size=6), random.normal(size=(6, 2))
    known = MDP.sparse(successors, probabilities)

    @jax.jit
    def traced(successors, probabilities):
        world = MDP.sparse(successors, probabilities)
        return world.expect(values), world.push(weights)

    def given(probabilities):
        return MDP.sparse(successors, probabilities).push(weights)

    found = traced(successors, probabilities)
    np.testing.assert_allclose(found[0], known.expect(values), rtol=1e-12)
    np.testing.assert_allclose(found[1], known.push(weights), rtol=1e-12)
    np.testing.assert_allclose(jax.jit(given)(probabilities), known.push(weights), rtol=1e-12)
    # d push(n) / d P(s, a, b) is the weight of (s, a), where its successor is n.
    slope = jax.jit(jax.jacobian(given))(probabilities)
    reached = (successors == np.arange(6)[:, None, None, None]) * weights[..., None]
    np.testing.assert_allclose(slope, reached, atol=1e-14)


def test_lists_take_little_memory():
    """The table of this world would take two terabytes."""
    count = 300_000
    state = np.arange(count)
    successors = np.stack([(state + 1) % count, state], 1)[:, None].repeat(3, 1)
    world = MDP.sparse(successors, np.full(successors.shape, 0.5))
    np.testing.assert_allclose(np.asarray(world.expect(state.astype(float)))[5], [5.5, 5.5, 5.5])
    np.testing.assert_allclose(world.push(np.ones((count, 3))), np.full(count, 3.0))
    assert sum(np.size(x) for x in jax.tree.leaves(world)) < 20 * count


def test_predecessors_of_a_state_that_all_lead_to_take_little_memory():
    count = 100_000
    state = np.arange(count)
    world = MDP.deterministic(np.stack([np.zeros(count, int), np.minimum(state + 1, count - 1)], 1))
    pushed = np.asarray(world.push(np.ones((count, 2))))
    np.testing.assert_array_equal(pushed[:3], [count, 1, 1])
    assert pushed[-1] == 2 and pushed.sum() == 2 * count


two = np.zeros((2, 2, 1), int)
sure = np.ones((2, 2, 1))


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: MDP.sparse(two + 2, sure), ValueError, r"successors\[0, 0, 0\] is not a state \(it is 2\)"),
        (lambda: MDP.sparse(two - 1, sure), ValueError, r"successors\[0, 0, 0\] is not a state"),
        (lambda: MDP.sparse(two + 2**32, sure), ValueError, r"is not a state \(it is 4294967296\)"),
        (lambda: MDP.deterministic([[0, 1], [2**32 + 1, 0]]), ValueError, r"is not a state \(it is 4294967297\)"),
        (lambda: MDP.sparse(two.astype(float), sure), TypeError, "successors has dtype float64: give integers"),
        (lambda: MDP.sparse(two[..., 0], sure), ValueError, r"successors has shape \(2, 2\)"),
        (lambda: MDP.sparse(two, sure[..., 0]), ValueError, r"probabilities has shape \(2, 2\), successors"),
        (lambda: MDP.sparse(two, sure * 0.97), ValueError, r"probabilities\[0, 0\] sums to 0.97, not 1"),
        (lambda: MDP.sparse(two, -sure), ValueError, r"probabilities\[0, 0, 0\] is negative"),
        (lambda: MDP.sparse(two, sure * np.nan), ValueError, r"probabilities\[0, 0, 0\] is not finite"),
        (lambda: MDP.sparse(two, two), TypeError, "probabilities has dtype int"),
        (lambda: MDP.sparse(two, sure, discount=2.0), ValueError, r"discount must be a number in \[0, 1\]"),
        (
            lambda: MDP.sparse(two, sure, action_mask=[[True, False], [False, False]]),
            ValueError,
            r"action_mask\[1\] has no available action",
        ),
        (lambda: MDP.dense(np.full((2, 2, 2), 0.5), action_mask=[[1, 0], [0, 1]]), TypeError, "booleans"),
        (lambda: MDP.deterministic(two[..., 0], action_mask=[True, True]), ValueError, r"mask has shape \(2,\)"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("double", [False, True])
def test_bad_input_is_refused(make, error, message, double):
    """In single precision too, where int32 would wrap 2^32 + 1 to 1."""
    with jax.enable_x64(double), pytest.raises(error, match=message):
        make()
