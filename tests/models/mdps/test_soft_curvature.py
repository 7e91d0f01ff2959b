"""Derivatives of the log likelihood of demonstrations in rewards, against differences of it in NumPy."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from scipy import sparse
from scipy.sparse.linalg import spsolve

from ethogram.models.mdps import soft_curvature
from ethogram.models.mdps.mdp import MDP
from ethogram.models.mdps.soft_curvature import likelihood_curvature


def log_likelihood_of(table, discount, mask, counts):
    """Log likelihood of counts as a function of rewards (state, 1) or (state, action), by soft policy iteration.

    `table` is a sparse matrix (state * action, next state).
    """
    num_states, num_actions = mask.shape

    def function(reward):
        values = np.zeros(num_states)
        for _ in range(100):
            ahead = reward + discount * (table @ values).reshape(mask.shape)
            action_values = np.where(mask, ahead, -np.inf)
            best = np.logaddexp.reduce(action_values, axis=1)
            policy = np.exp(action_values - best[:, None])
            if np.abs(best - values).max() < 1e-11:
                break
            weights = sparse.kron(sparse.eye_array(num_states), np.ones((1, num_actions)))
            moves = weights @ (table * policy.reshape(-1, 1))
            system = sparse.csc_array(sparse.eye_array(num_states) - discount * moves)
            values = values + spsolve(system, best - values)
        return (np.where(mask, action_values - best[:, None], 0) * counts).sum()

    return function


def differences(function, direction, step=3e-3):
    """First and second derivative at zero along a direction, by central differences of fourth order."""
    values = [function(k * step * direction) for k in (-2, -1, 0, 1, 2)]
    slope = np.dot([1, -8, 0, 8, -1], values) / (12 * step)
    return slope, np.dot([-1, 16, -30, 16, -1], values) / (12 * step**2)


def six_states(kind, pairs):
    """A world with actions that are not available, counts, and a reward of states or of pairs."""
    random = np.random.default_rng(2)
    mask = np.ones((6, 3), bool)
    mask[4, 1:] = False
    width = {"dense": 6, "shared lists": 4, "own lists": 2, "deterministic": 1}[kind]
    # All actions of a state, or each, lead to states of their own, of which one may be listed twice.
    successors = random.integers(6, size=(6, 1 if kind == "shared lists" else 3, width))
    successors = np.broadcast_to(successors, (6, 3, width))
    chances = random.dirichlet(np.full(width, 0.5), (6, 3))
    table = np.zeros((6, 3, 6))
    for at in np.ndindex(successors.shape):
        table[*at[:2], successors[at]] += chances[at]
    settings = {"discount": 0.9, "action_mask": mask}
    if kind == "dense":
        world = MDP.dense(table, **settings)
    elif kind == "deterministic":
        world = MDP.deterministic(successors[..., 0], **settings)
    else:
        world = MDP.sparse(successors, chances, **settings)
        assert world.transitions.neighbours.ndim == (2 if kind == "shared lists" else 3)
    counts = random.integers(0, 5, (6, 3)) * mask
    function = log_likelihood_of(sparse.csr_array(table.reshape(18, 6)), 0.9, mask, counts)
    return world, counts.astype(float), random.normal(size=(6, 3) if pairs else 6), function


@pytest.mark.parametrize(
    ("kind", "pairs", "projected"),
    [
        ("dense", True, True), ("shared lists", False, True), ("own lists", False, False),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in (
            ("dense", False, False), ("dense", True, False), ("own lists", True, True), ("deterministic", False, True))
        ),
    ],
)  # fmt: skip
def test_curvature_is_that_of_the_log_likelihood(kind, pairs, projected):
    """Gradient and Hessian along three directions, of all rewards or in four coordinates of them."""
    world, counts, reward, function = six_states(kind, pairs)
    random = np.random.default_rng(3)
    basis = random.normal(size=(reward.size, 4)) if projected else np.eye(reward.size)
    settings = {"basis": basis} if projected else {}
    found = jax.tree.map(np.asarray, likelihood_curvature(world, reward, counts, pairs=pairs, **settings))

    def log_likelihood(w):
        return function((reward.ravel() + basis @ w).reshape(6, -1))

    np.testing.assert_allclose(found.log_likelihood, log_likelihood(np.zeros(basis.shape[1])), rtol=1e-10)
    for direction in random.normal(size=(3, basis.shape[1])):
        slope, bend = differences(log_likelihood, direction)
        np.testing.assert_allclose(direction @ found.gradient, slope, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(direction @ found.hessian @ direction, bend, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(found.hessian, found.hessian.T, atol=1e-12)
    if not pairs and not projected:  # the level is not identified
        assert abs(found.gradient.sum()) < 1e-9 * counts.sum()


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "pairs"), [("sparse", False), ("sparse", True), ("deterministic", False)])
def test_projected_curvature_of_many_states(kind, pairs):
    """A ring of just more states than are factored at once, along two directions in three coordinates."""
    count, random = soft_curvature.DENSE_AT_MOST + 1, np.random.default_rng(5)
    state = np.arange(count)
    successors = (state[:, None, None] + np.array([[-1, 0], [0, 1], [1, 7]])) % count
    chances = random.dirichlet(np.ones(2), (count, 3))
    if kind == "deterministic":
        successors, chances = successors[..., :1], np.ones((count, 3, 1))
        world = MDP.deterministic(successors[..., 0], discount=0.9)
    else:
        world = MDP.sparse(successors, chances, discount=0.9)
    row = np.repeat(np.arange(3 * count), successors.shape[-1])
    entries = chances.ravel(), (row, successors.ravel())
    table = sparse.csr_array(sparse.coo_array(entries, shape=(3 * count, count)))
    counts, mask = random.integers(0, 4, (count, 3)), np.ones((count, 3), bool)
    function = log_likelihood_of(table, 0.9, mask, counts)
    reward = random.normal(size=(count, 3) if pairs else (count, 1))
    basis = random.normal(size=(reward.size, 3))

    def log_likelihood(w):
        return function(reward + (basis @ w).reshape(reward.shape))

    given = reward if pairs else reward[:, 0]
    found = likelihood_curvature(world, given, counts.astype(float), basis=basis, pairs=pairs)
    found = jax.tree.map(np.asarray, found)
    np.testing.assert_allclose(found.log_likelihood, log_likelihood(np.zeros(3)), rtol=1e-10)
    for direction in random.normal(size=(2, 3)):
        slope, bend = differences(log_likelihood, direction)
        np.testing.assert_allclose(direction @ found.gradient, slope, rtol=1e-5)
        np.testing.assert_allclose(direction @ found.hessian @ direction, bend, rtol=1e-4)
