"""Linear systems of policies, and soft values of a grid, against sparse direct factorisation."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import sparse
from scipy.sparse.linalg import spsolve

from ethogram.models.mdps.mdp import MDP
from ethogram.models.mdps.policy_system import DEFLATE_BELOW, PolicySystem
from ethogram.models.mdps.transitions import ListChain
from ethogram.models.mdps.values import soft_values

SIDE = 13
COUNT = SIDE * SIDE


def grid():
    """Next states (state, action, slot) of five moves, and their probabilities: three of ten go elsewhere."""
    y, x = np.divmod(np.arange(COUNT), SIDE)
    moves = [(0, 0), (0, 1), (1, 0), (0, -1), (-1, 0)]
    after = [np.clip(y + b, 0, SIDE - 1) * SIDE + np.clip(x + a, 0, SIDE - 1) for a, b in moves]
    successors = np.repeat(np.stack(after, 1)[:, None], 5, axis=1)
    return successors, np.broadcast_to(np.where(np.eye(5), 0.7, 0.075), successors.shape)


def table(weights, neighbours):
    """Weights (slot, state) of next states as a sparse matrix (state, next state)."""
    rows = np.broadcast_to(np.arange(COUNT), neighbours.shape)
    return sparse.coo_array((weights.ravel(), (rows.ravel(), neighbours.ravel())), (COUNT, COUNT)).tocsc()


def close(found, expected, tol):
    assert np.abs(np.asarray(found) - expected).max() <= tol * np.abs(expected).max()


@jax.jit
def solved(system, b, tol, atol):
    """Solutions of a system and of the transposed one, factored and not, and rough ones within a tolerance."""
    each = [
        (system.solve(b, 1e-12, direct), system.solve_transposed(b, 1e-12, direct))
        for direct in (False, True)
    ]
    return each, system.solve_krylov(b, tol, 0.0), system.solve_krylov(b, 0.0, atol)


@pytest.mark.slow
@pytest.mark.parametrize("spoilt", [0.0, 1e-7])
@pytest.mark.parametrize("discount", [0.0, 0.9, 0.99, 0.999, 0.9999])
def test_systems_are_those_of_direct_factorisation(discount, spoilt):
    """Above and below the discount from which they are deflated; also of rows that do not quite sum to one."""
    random = np.random.default_rng(1)
    neighbours = random.integers(COUNT, size=(4, COUNT))
    weights = random.dirichlet(np.ones(4), COUNT).T * (1 + spoilt * random.normal(size=COUNT))
    excess = np.where(spoilt, weights.sum(0) - 1, 0.0)
    system = PolicySystem(ListChain(neighbours, weights, None), discount, 1 - discount, excess)
    matrix = (sparse.eye_array(COUNT) - discount * table(weights, neighbours)).tocsc()
    b = random.normal(size=COUNT)
    size = np.linalg.norm(b)
    exact, *rough = solved(system, b, 1e-3, 1e-4 * size)
    for found, transposed in exact:
        close(found, spsolve(matrix, b), 1e-9)
        close(transposed, spsolve(matrix.T.tocsc(), b), 1e-9)
    for ((constant, rest), halved), most in zip(rough, (1e-3, 1e-4), strict=True):
        left = np.linalg.norm(b - matrix @ np.asarray(constant + rest))
        assert halved and left <= 1.01 * most * size
    assert (constant != 0) == (1 - discount < DEFLATE_BELOW)


@pytest.mark.slow
@pytest.mark.parametrize("discount", [0.99, 0.9999])
def test_soft_values_of_a_grid_are_those_of_direct_factorisation(discount):
    """Values, gradient and number of steps, with rewards that policies wander between.

    At a discount of .9999 what rounding leaves of values near 1e5 moves the gradient by 1e-8, in NumPy too.
    """
    successors, chances = grid()
    random = np.random.default_rng(2)
    reward = np.where(random.random((COUNT, 1)) < 0.05, 10.0, -1.0) + 0.01 * random.normal(size=(COUNT, 5))
    away = random.normal(size=COUNT)
    rows = np.repeat(np.arange(COUNT * 5), 5)
    moves = sparse.coo_array((chances.ravel(), (rows, successors.ravel())), (COUNT * 5, COUNT)).tocsr()
    values = np.zeros(COUNT)
    for _ in range(100):
        q = reward + discount * (moves @ values).reshape(reward.shape)
        best = q.max(1) + np.log(np.exp(q - q.max(1, keepdims=True)).sum(1))
        policy = np.exp(q - best[:, None])
        taken = sparse.coo_array((policy.ravel(), (np.repeat(np.arange(COUNT), 5), np.arange(COUNT * 5))))
        matrix = (sparse.eye_array(COUNT) - discount * (taken.tocsr() @ moves)).tocsc()
        step = spsolve(matrix, best - values)
        values = values + step
        if np.abs(step).max() <= 1e-13 * np.abs(values).max():
            break
    visits = spsolve(matrix.T.tocsc(), away)[:, None] * policy
    world = MDP.sparse(successors, chances, discount=discount)

    @jax.jit
    def total(reward):
        found = soft_values(world, reward)
        return jnp.dot(jnp.asarray(away), found.values), found

    slope, found = jax.grad(total, has_aux=True)(jnp.asarray(reward))
    assert found.converged and found.steps <= 15
    close(found.values, values, 1e-10)
    close(slope, visits, 1e-8 if discount < 0.999 else 1e-7)
    loose = soft_values(world, reward, tol=1e-6)
    assert loose.converged and loose.steps <= found.steps
    close(loose.values, values, 1e-6)
