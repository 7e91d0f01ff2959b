"""Derivatives of soft values, forward, in reverse and twice, against unrolled backups and formulas in NumPy."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ethogram.models.mdps import bellman, policy_system
from ethogram.models.mdps.mdp import MDP
from ethogram.models.mdps.values import soft_values

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


WEIGHTS = np.random.default_rng(0).normal(size=(COUNT, ACTIONS))


def score(values, action_values, log_policy):
    """A number that depends on all of them."""
    return jnp.sum(jnp.sin(values)) + jnp.sum(WEIGHTS * (log_policy + 0.1 * action_values**2))


SUCCESSORS, CHANCES = lists(1)


def implicit(chances, reward, discount, form="sparse"):
    if form == "sparse":
        world = MDP.sparse(SUCCESSORS, chances, discount=discount)
    else:
        world = MDP.dense(spread(SUCCESSORS, chances), discount=discount)
    found = soft_values(world, reward)
    return score(found.values, found.action_values, found.log_policy)


def explicit(chances, reward, discount):
    """Scores (batch,) after many backups, in NumPy; arguments have a batch axis and may be complex."""
    table = np.einsum("bsak,sakn->bsan", chances, np.eye(COUNT)[SUCCESSORS])
    values = np.zeros((len(reward), COUNT))
    for _ in range(200):
        ahead = reward + discount[:, None, None] * np.einsum("bsan,bn->bsa", table, values)
        top = ahead.real.max(2)
        values = top + np.log(np.exp(ahead - top[..., None]).sum(2))
    policy = WEIGHTS * (ahead - values[..., None] + 0.1 * ahead**2)
    return np.sin(values).sum(1) + policy.sum((1, 2))


def slopes(*at):
    """Gradient of the score by complex steps."""
    flat = np.concatenate([np.ravel(x) for x in at])
    ends = np.cumsum([np.size(x) for x in at])[:-1]
    steps = np.split(flat + 1e-20j * np.eye(len(flat)), ends, axis=1)
    parts = (x.reshape(-1, *np.shape(like)) for x, like in zip(steps, at, strict=True))
    gradient = np.split(explicit(*parts).imag / 1e-20, ends)
    return tuple(x.reshape(np.shape(like)) for x, like in zip(gradient, at, strict=True))


POINT = (CHANCES, np.random.default_rng(2).normal(size=(COUNT, ACTIONS)), 0.8)


def same(found, expected, tol=1e-9):
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert np.abs(one - other).max() <= tol * max(np.abs(other).max(), 1e-3)


ALONG = tuple(np.random.default_rng(9).normal(size=np.shape(x)) for x in POINT)


def gradient_and_bend(f):
    """The gradient, its product with the direction, and the gradient of that, all in reverse."""

    def in_reverse(*x):
        gradient = jax.grad(f, (0, 1, 2))(*x)
        return sum(jnp.vdot(a, g) for a, g in zip(ALONG, gradient, strict=True)), gradient

    def found(*x):
        (along, gradient), bend = jax.value_and_grad(in_reverse, (0, 1, 2), has_aux=True)(*x)
        return gradient, along, bend

    return found


def by_bicgstab(monkeypatch):
    """Iterate linear systems of five states too; functions that are compiled afterwards do."""
    for module in (bellman, policy_system):
        monkeypatch.setattr(module, "DIRECT_AT_MOST", 0)


def bend_of_forward(f):
    """The same from the derivative in the direction, forward."""
    return jax.value_and_grad(lambda *x: jax.jvp(f, x, ALONG)[1], (0, 1, 2))


@pytest.mark.parametrize("direct", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize("forward", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_derivatives_are_those_of_unrolled_backups(forward, direct, monkeypatch):
    """With respect to probabilities, rewards and the discount, by factored systems and by BiCGSTAB."""
    derivative = bend_of_forward if forward else gradient_and_bend
    if not direct:
        by_bicgstab(monkeypatch)
    *first, along, bend = jax.jit(derivative(functools.partial(implicit)))(*POINT)
    gradient = slopes(*POINT)
    for found in first:
        same(found, gradient)
    same(along, sum(np.vdot(a, g) for a, g in zip(ALONG, gradient, strict=True)))
    ahead, behind = (slopes(*(x + d * a for x, a in zip(POINT, ALONG, strict=True))) for d in (1e-5, -1e-5))
    same(bend, [(a - b) / 2e-5 for a, b in zip(ahead, behind, strict=True)], 1e-7)


def test_derivatives_forward_are_those_of_unrolled_backups():
    found = jax.jit(lambda *x: jax.jvp(implicit, x, ALONG)[1])(*POINT)
    same(found, sum(np.vdot(a, g) for a, g in zip(ALONG, slopes(*POINT), strict=True)))


@pytest.mark.slow
def test_dense_worlds_have_the_same_derivatives():
    dense = jax.grad(functools.partial(implicit, form="dense"), (0, 1, 2))
    same(jax.jit(dense)(*POINT), slopes(*POINT))


@pytest.mark.slow
@pytest.mark.parametrize("direct", [True, False])
def test_mapped_derivatives_equal_one_after_the_other(direct, monkeypatch):
    if not direct:
        by_bicgstab(monkeypatch)
    chances, reward, _ = POINT
    rewards, discounts = np.stack([reward, 3 * reward, -reward]), np.array([0.8, 0.7, 0.5])
    slope = jax.grad(functools.partial(implicit), (0, 1, 2))
    mapped = jax.tree.map(np.asarray, jax.jit(jax.vmap(slope, (None, 0, 0)))(chances, rewards, discounts))
    for row in range(3):
        same(jax.tree.map(lambda x, row=row: x[row], mapped), slopes(chances, rewards[row], discounts[row]))


def test_worlds_are_arguments_like_others():
    """A compiled function takes the world, and its gradient is that of its parts."""
    world = MDP.sparse(SUCCESSORS, CHANCES, discount=0.8)

    @jax.jit
    def total(world, reward):
        def squares(world, reward):
            return jnp.sum(soft_values(world, reward).values ** 2)

        value, (of_world, of_reward) = jax.value_and_grad(squares, (0, 1), allow_int=True)(world, reward)
        return value, of_world.transitions.probabilities, of_world.discount, of_reward

    _, of_chances, of_discount, of_reward = total(world, POINT[1])
    assert of_chances.shape == world.transitions.probabilities.shape
    ahead, behind = (
        total(MDP.sparse(SUCCESSORS, CHANCES, discount=0.8 + d), POINT[1])[0] for d in (1e-6, -1e-6)
    )
    np.testing.assert_allclose(of_discount, (ahead - behind) / 2e-6, rtol=1e-7)
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


def test_the_likelihood_of_demonstrations_has_its_gradient_and_hessian():
    r"""Of counts n: t - M'c and :math:`-\sum_s \rho_s Cov(dQ(s, \cdot)/dr)`, with M = (I - gamma P)^-1, rho = M'c."""
    count, random = 6, np.random.default_rng(3)
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
