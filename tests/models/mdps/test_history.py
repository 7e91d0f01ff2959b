"""MDPs of histories against enumeration of paths, and data there and back."""

from __future__ import annotations

import itertools

import jax
import numpy as np
import pytest

from ethogram.models.data import Trajectories
from ethogram.models.mdps import MDP, SoftPolicy, soft_values

MASK = [[True, True], [True, True], [False, True]]
CHANCES = np.array(
    [
        [[0.5, 0.5, 0.0], [0.0, 1.0, 0.0]],
        [[0.3, 0.0, 0.7], [1.0, 0.0, 0.0]],
        [[1.0, 0.0, 0.0], [0.0, 0.5, 0.5]],
    ]
)
DENSE = MDP.dense(
    CHANCES, discount=0.9, action_mask=MASK, start=[0.25, 0.75, 0.0], state_names=("a", "b", "c")
)
TWO = [[0, 1], [0, 1], [1, 2]]
SPARSE = MDP.sparse([[TWO[0]] * 2, [[0, 2]] * 2, [[0, 0], TWO[2]]], CHANCES[np.arange(3)[:, None, None],
    np.arange(2)[None, :, None], [[TWO[0]] * 2, [[0, 2]] * 2, [[0, 1], TWO[2]]]], discount=0.9)  # fmt: skip
CORRIDOR = MDP.deterministic([[0, 1], [0, 2], [1, 2]], discount=0.9)


def walk(mdp, steps):
    """Every path (states, actions) of `steps` actions with its probability of transitions, one after another."""
    paths = [((s,), ()) for s in range(mdp.num_states) if mdp.start is None or mdp.start[s] > 0]
    mask = (
        np.ones((mdp.num_states, mdp.num_actions), bool)
        if mdp.action_mask is None
        else np.asarray(mdp.action_mask)
    )
    table = np.asarray(mdp.probability(*np.indices((mdp.num_states, mdp.num_actions, mdp.num_states))))
    for _ in range(steps):
        yield from paths
        paths = [
            ((*past, after), (*taken, action))
            for past, taken in paths
            for action, after in itertools.product(range(mdp.num_actions), range(mdp.num_states))
            if mask[past[-1], action] and table[past[-1], action, after] > 0
        ]
    yield from paths


def seen_last(states, actions, k, of):
    """What a history holds, latest first, with -1 before the start."""
    before = states[:-1] if of == "states" else actions
    lags = k - 1 if of == "states" else k
    return (states[-1], *((before[::-1]) + (-1,) * lags)[:lags])


@pytest.mark.parametrize(
    ("mdp", "k", "of"),
    [(DENSE, 2, "states"), (DENSE, 2, "actions"), (CORRIDOR, 3, "states"), (CORRIDOR, 1, "actions")],
    ids=["dense, 2 states", "dense, 2 actions", "deterministic, 3 states", "deterministic, 1 action"],
)
def test_histories_and_values_are_those_of_enumerated_paths(mdp, k, of):
    """Reachable histories, and soft values over a horizon by recursion over the original states and actions."""
    history = mdp.with_history(k, of=of)
    rows = [tuple(row) for row in np.concatenate([history.states, history.actions], 1).tolist()]
    assert set(rows) == {seen_last(*path, k, of) for path in walk(mdp, 5)} and len(set(rows)) == len(rows)
    reward = np.random.default_rng(0).normal(size=len(rows))
    table = np.asarray(mdp.probability(*np.indices((mdp.num_states, mdp.num_actions, mdp.num_states))))
    mask = np.ones(table.shape[:2], bool) if mdp.action_mask is None else np.asarray(mdp.action_mask)

    def value(path, taken, left):
        own = reward[rows.index(seen_last(path, taken, k, of))]
        if not left:
            return own + np.log(mask[path[-1]].sum())
        ahead = [
            sum(
                p * value((*path, s), (*taken, a), left - 1)
                for s, p in enumerate(table[path[-1], a])
                if p > 0
            )
            for a in range(mdp.num_actions)
            if mask[path[-1], a]
        ]
        return own + np.log(np.exp(0.9 * np.array(ahead)).sum())

    found = np.asarray(soft_values(history.mdp, reward[:, None], horizon=4).values)
    for path, taken in itertools.islice(walk(mdp, 2), 0, None, 3):
        own = rows.index(seen_last(path, taken, k, of))
        np.testing.assert_allclose(found[own], value(path, taken, 3), rtol=1e-5)


@pytest.mark.parametrize(
    "mdp",
    [DENSE, pytest.param(SPARSE, marks=pytest.mark.slow), CORRIDOR],
    ids=["dense", "sparse", "deterministic"],
)
def test_without_a_past_it_is_the_same_mdp(mdp):
    reward = np.array([0.0, 1.0, -2.0])
    expected = soft_values(mdp, reward[:, None], horizon=30)
    for k, of in ((0, "states"), (1, "states"), (0, "actions")):
        found = mdp.with_history(k, of=of).mdp
        np.testing.assert_allclose(
            soft_values(found, reward[:, None], horizon=30).values, expected.values, rtol=1e-5
        )
    longer = mdp.with_history(2)
    found = soft_values(longer.mdp, reward[longer.states[:, 0]][:, None], horizon=30)
    np.testing.assert_allclose(found.policy, np.asarray(expected.policy)[longer.states[:, 0]], atol=1e-5)


def test_data_go_there_and_back():
    """Rewritten states have the states and actions of the trace, and the agent scores it as the new MDP does."""
    history = DENSE.with_history(2, of="actions")
    data = Trajectories.from_list(states=[[0, 1, 2, 2], [1, 0]], actions=[[0, 0, 1, 1], [1, -1]])
    new = history.rewrite(data)
    described = np.concatenate([history.states, history.actions], 1)[new.states]
    np.testing.assert_array_equal(described[0], [[0, -1, -1], [1, 0, -1], [2, 0, 0], [2, 1, 0]])
    np.testing.assert_array_equal(described[1, :2], [[1, -1, -1], [0, 1, -1]])
    assert new.metadata.state_names[new.states[0, 2]] == "0 > 0 > c" and new.states[1, 2] == -1
    np.testing.assert_array_equal(new.actions, data.actions)
    policy = np.random.default_rng(1).dirichlet(np.ones(2), history.mdp.num_states)
    policy = np.where(np.asarray(history.mdp.action_mask), policy, 0)
    policy /= policy.sum(1, keepdims=True)
    steps = [(0, 0), (1, 0), (2, 1), (3, 1)]
    total = sum(np.log(policy[new.states[0, t], a]) for t, a in steps)
    np.testing.assert_allclose(history.agent(policy).log_prob(data)[0], total, rtol=1e-6)
    reward = np.zeros((history.mdp.num_states, 1))
    drawn = SoftPolicy(history.mdp, reward, length=6).sample(jax.random.key(0), (3,))
    one = np.asarray(drawn).reshape(-1, 6, 2)
    back = Trajectories.from_list(states=list(history.states[one[..., 0], 0]), actions=list(one[..., 1]))
    np.testing.assert_array_equal(history.rewrite(back).states, one[..., 0])


def test_features_are_shared():
    nodes = np.array([[1.0], [2.0], [3.0]])
    two = CORRIDOR.with_history(2)
    pairs = np.arange(9.0).reshape(3, 3, 1)
    found = np.asarray(two.features(nodes, pairs))
    now, before = two.states.T
    np.testing.assert_array_equal(found[:, 0], now + 1)
    np.testing.assert_array_equal(found[:, 1], np.where(before < 0, 0, before + 1))
    np.testing.assert_array_equal(found[:, 2], np.where(before < 0, 0, 3 * before + now))
    acted = CORRIDOR.with_history(1, of="actions")
    found = np.asarray(acted.features(nodes, np.array([[[1.0], [2.0]], [[3.0], [4.0]]])))
    last = acted.actions[:, 0]
    assert found.shape == (len(last), 2, 2)
    np.testing.assert_array_equal(found[..., 0], np.repeat(acted.states + 1.0, 2, 1))
    np.testing.assert_array_equal(found[:, 1, 1], np.where(last < 0, 0, 2 * last + 2))


def test_bad_input_is_refused():
    two, acted = DENSE.with_history(2), DENSE.with_history(1, of="actions")
    gap = Trajectories.from_list(states=[[0, 1]], actions=[[0, 0]])
    cases = [
        (
            lambda: two.rewrite(gap._replace(observed=np.array([[True, False]]))),
            r"data.states\[0, 1\] is 1 in a missing",
        ),
        (lambda: acted.rewrite(gap._replace(actions=np.array([[-1, 0]]))), r"data.actions\[0, 0\] is -1, a missing"),
        (
            lambda: two.rewrite(gap._replace(states=np.array([[2, 2]]))),
            r"data.states\[0, 0\] is 2: this history is imp",
        ),
        (lambda: DENSE.with_history(-1), "k must be at least 0"),
        (lambda: DENSE.with_history(60), "k is 60: there are more than 2"),
        (lambda: DENSE.with_history(2, of="both"), "of must be 'states' or 'actions'"),
        (lambda: two.features(np.ones((2, 1))), r"of_states has shape \(2, 1\)"),
        (lambda: two.features(np.ones((3, 1)), np.ones((2, 2, 1))), r"of_pairs has shape \(2, 2, 1\)"),
        (lambda: two.agent(np.ones((3, 2))), r"policy is float64 \(3, 2\)"),
    ]  # fmt: skip
    for call, message in cases:
        with pytest.raises(ValueError, match=message):
            call()


def test_histories_are_arguments_of_compiled_functions():
    """All of their leaves are numbers."""
    found = CORRIDOR.with_history(2)
    assert all(hasattr(leaf, "dtype") or isinstance(leaf, float) for leaf in jax.tree.leaves(found))
    table = np.arange(6.0).reshape(3, 2)
    traced = jax.eval_shape(lambda history, table: history.features(table), found, table)
    assert traced.shape == found.features(table).shape
