"""Derivatives of soft values, forward, in reverse and twice, against unrolled backups and formulas in NumPy."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ethogram.models.mdps.mdp import MDP
from ethogram.models.mdps.soft_values import soft_values

COUNT, ACTIONS, SLOTS = 5, 3, 2


def lists(seed, count=COUNT):
    random = np.random.default_rng(seed)
    shape = (count, ACTIONS, SLOTS)
    return random.integers(count, size=shape), random.dirichlet(np.ones(SLOTS), shape[:2])


def spread(successors, probabilities):
    """Lists as a table (state, action, state)."""
    state, action, _ = np.indices(successors.shape)
    shape = (*successors.shape[:2], len(successors))
    return jnp.zeros(shape).at[state, action, successors].add(probabilities)


def table_of(successors, probabilities):
    """The same in NumPy."""
    table = np.zeros((*successors.shape[:2], len(successors)))
    np.add.at(table, (*np.indices(successors.shape)[:2], successors), probabilities)
    return table


def unrolled(table, reward, discount):
    """Values, action values and log policy after many backups."""

    def action_values(values):
        return reward + discount * jnp.einsum("san,n->sa", table, values)

    def backup(values, _):
        return jax.nn.logsumexp(action_values(values), axis=1), None

    values, _ = jax.lax.scan(backup, jnp.zeros(len(table)), None, length=200)
    found = action_values(values)
    return values, found, jax.nn.log_softmax(found, axis=1)


WEIGHTS = np.random.default_rng(0).normal(size=(COUNT, ACTIONS))


def score(values, action_values, log_policy):
    """A number that depends on all of them."""
    return jnp.sum(jnp.sin(values)) + jnp.sum(WEIGHTS * (log_policy + 0.1 * action_values**2))


SUCCESSORS, CHANCES = lists(1)


def implicit(chances, reward, discount, form="sparse", method="newton"):
    if form == "sparse":
        world = MDP.sparse(SUCCESSORS, chances, discount=discount)
    else:
        world = MDP.dense(spread(SUCCESSORS, chances), discount=discount)
    found = soft_values(world, reward, method=method)
    return score(found.values, found.action_values, found.log_policy)


def explicit(chances, reward, discount):
    return score(*unrolled(spread(SUCCESSORS, chances), reward, discount))


POINT = (CHANCES, np.random.default_rng(2).normal(size=(COUNT, ACTIONS)), 0.8)


def same(found, expected, tol=1e-9):
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert np.abs(one - other).max() <= tol * max(np.abs(other).max(), 1e-3)


ALONG = tuple(np.random.default_rng(9).normal(size=np.shape(x)) for x in POINT)


def along(f):
    """The derivative of f in one direction, forward."""
    return lambda *x: jax.jvp(f, x, ALONG)[1]


def in_reverse(f):
    """The same by the gradient."""
    return lambda *x: sum(jnp.vdot(a, g) for a, g in zip(ALONG, jax.grad(f, (0, 1, 2))(*x), strict=True))


DERIVATIVES = {
    "gradient": lambda f: jax.grad(f, (0, 1, 2)),
    "forward": along,
    "reverse over reverse": lambda f: jax.grad(in_reverse(f), (0, 1, 2)),
    "reverse over forward": lambda f: jax.grad(along(f), (0, 1, 2)),
}
EXPLICIT = {kind: jax.jit(derivative(explicit)) for kind, derivative in DERIVATIVES.items()}


@pytest.mark.parametrize("method", ["newton", pytest.param("value_iteration", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "kind", [*list(DERIVATIVES)[:3], pytest.param("reverse over forward", marks=pytest.mark.slow)]
)
def test_derivatives_are_those_of_unrolled_backups(kind, method):
    """With respect to probabilities, rewards and the discount, by factored systems and by BiCGSTAB."""
    found = jax.jit(DERIVATIVES[kind](functools.partial(implicit, method=method)))(*POINT)
    same(found, EXPLICIT[kind](*POINT))


def test_dense_worlds_have_the_same_derivatives():
    dense = DERIVATIVES["gradient"](functools.partial(implicit, form="dense"))
    same(jax.jit(dense)(*POINT), EXPLICIT["gradient"](*POINT))


@pytest.mark.parametrize("method", [pytest.param("newton", marks=pytest.mark.slow), "value_iteration"])
def test_mapped_derivatives_equal_one_after_the_other(method):
    chances, reward, _ = POINT
    rewards, discounts = np.stack([reward, 3 * reward, -reward]), np.array([0.8, 0.7, 0.5])
    slope = jax.grad(functools.partial(implicit, method=method), (0, 1, 2))
    mapped = jax.tree.map(np.asarray, jax.jit(jax.vmap(slope, (None, 0, 0)))(chances, rewards, discounts))
    for row in range(3):
        one = EXPLICIT["gradient"](chances, rewards[row], discounts[row])
        same(jax.tree.map(lambda x, row=row: x[row], mapped), one)


def test_worlds_are_arguments_like_others():
    """A compiled function takes the world, and its gradient is that of its parts."""
    world = MDP.sparse(SUCCESSORS, CHANCES, discount=0.8)

    @jax.jit
    def total(world, reward):
        return jnp.sum(soft_values(world, reward).values ** 2)

    of_world, of_reward = jax.grad(total, (0, 1), allow_int=True)(world, POINT[1])
    assert of_world.transitions.probabilities.shape == world.transitions.probabilities.shape
    ahead, behind = (
        total(MDP.sparse(SUCCESSORS, CHANCES, discount=0.8 + d), POINT[1]) for d in (1e-6, -1e-6)
    )
    np.testing.assert_allclose(of_world.discount, (ahead - behind) / 2e-6, rtol=1e-7)
    assert of_reward.shape == (COUNT, ACTIONS)


def policy_of(table, reward, discount):
    """Policy (state, action) by Newton's method in NumPy."""
    values = np.zeros(len(table))
    for _ in range(60):
        action_values = reward[:, None] + discount * table @ values
        top = action_values.max(1, keepdims=True)
        policy = np.exp(action_values - top)
        best = top[:, 0] + np.log(policy.sum(1))
        policy /= policy.sum(1, keepdims=True)
        moves = np.einsum("sa,san->sn", policy, table)
        values = values + np.linalg.solve(np.eye(len(table)) - discount * moves, best - values)
    return policy, moves


@pytest.mark.parametrize("count", [6, pytest.param(135, marks=pytest.mark.slow)])
def test_the_likelihood_of_demonstrations_has_its_gradient_and_hessian(count):
    r"""Of counts n: t - M'c and :math:`-\sum_s \rho_s Cov(dQ(s, \cdot)/dr)`, with M = (I - gamma P)^-1, rho = M'c."""
    random = np.random.default_rng(3)
    successors, chances = lists(4, count)
    table, reward = table_of(successors, chances), 2 * random.normal(size=count)
    counts = random.poisson(2.0, size=(count, ACTIONS)).astype(float)
    direction = random.normal(size=count)
    visited, every = counts.sum(1), np.einsum("sa,san->n", counts, table)

    def log_likelihood(reward, discount):
        world = MDP.sparse(successors, chances, discount=discount)
        return jnp.sum(counts * soft_values(world, reward).log_policy)

    @jax.jit
    def both(reward, discount):
        slope = functools.partial(jax.grad(log_likelihood), discount=discount)
        return jax.jvp(slope, (reward,), (direction,))

    for discount in (0.9, 0.9999):
        policy, moves = policy_of(table, reward, discount)
        gain = np.linalg.inv(np.eye(count) - discount * moves)
        flow = gain.T @ (visited - discount * every)
        # dQ / dr less its constant part, which has no covariance and would only round.
        slope = np.eye(count)[:, None] + discount * table @ (gain - gain.mean(0))
        centred = slope - np.einsum("sa,sak->sk", policy, slope)[:, None]
        hessian = -np.einsum("s,sa,saj,sak->jk", flow, policy, centred, centred, optimize=True)
        gradient, bend = map(np.asarray, both(reward, discount))
        same(gradient, visited - flow, 1e-8)
        same(bend, hessian @ direction, 1e-8)
        assert abs(gradient.sum()) < 1e-9 * counts.sum()


@pytest.mark.slow
def test_single_precision_has_a_gradient():
    _, moves = policy_of(table_of(SUCCESSORS, CHANCES), POINT[1][:, 0], 0.999)
    visits = np.linalg.solve(np.eye(COUNT) - 0.999 * moves.T, WEIGHTS[:, 0])
    with jax.enable_x64(False):
        world = MDP.sparse(SUCCESSORS, CHANCES.astype(np.float32), discount=0.999)

        def total(reward):
            return jnp.dot(soft_values(world, reward).values, jnp.asarray(WEIGHTS[:, 0], jnp.float32))

        slope = jax.grad(total)(jnp.asarray(POINT[1][:, 0], jnp.float32))
        assert slope.dtype == jnp.float32
        same(slope, visits, 1e-4)
