"""Soft values against policy iteration and backward recursions in NumPy, and their known properties."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ethogram.models.mdps.bellman import Status, require_converged
from ethogram.models.mdps.mdp import MDP
from ethogram.models.mdps.soft_policy import SoftPolicy
from ethogram.models.mdps.tabular import read_reward
from ethogram.models.mdps.values import optimal_values, soft_policy, soft_values

DISCOUNTS = [0.0, 0.5, 0.9, 0.99, 0.9999]
SCALES = [0.1, 1.0, 10.0, 100.0]


def chances(seed, num_states, num_actions):
    """Probabilities (state, action, state), most of them small."""
    table = np.random.default_rng(seed).dirichlet(np.full(num_states, 0.2), (num_states, num_actions))
    return table / table.sum(-1, keepdims=True)


def reference(table, reward, discount, mask=True):
    """Values, action values and policy by policy iteration in NumPy, for rewards (state, action)."""
    values = np.zeros(len(table))
    for _ in range(100):
        action_values = np.where(mask, reward + discount * table @ values, -np.inf)
        top = action_values.max(1)
        policy = np.exp(action_values - top[:, None])
        best = top + np.log(policy.sum(1))
        policy /= policy.sum(1, keepdims=True)
        moves = np.einsum("sa,san->sn", policy, table)
        step = np.linalg.solve(np.eye(len(table)) - discount * moves, best - values)
        values = values + step
        if np.abs(step).max() <= 1e-13 * np.abs(values).max():
            break
    return values, np.where(mask, reward + discount * table @ values, -np.inf), policy


def close(found, expected, tol):
    expected = np.asarray(expected)
    assert np.abs(np.asarray(found) - expected).max() <= tol * max(np.abs(expected).max(), 1e-300)


@pytest.mark.parametrize("num_states", [6, pytest.param(140, marks=pytest.mark.slow)])
def test_values_are_those_of_policy_iteration(num_states):
    """By factored systems, and (140 states) by BiCGSTAB."""
    table = chances(1, num_states, 3)
    for discount in DISCOUNTS:
        for scale in SCALES if num_states == 6 else (1.0, 100.0):
            reward = scale * np.random.default_rng(2).normal(size=num_states)
            values, action_values, policy = reference(table, reward[:, None].repeat(3, 1), discount)
            found = soft_values(MDP.dense(table, discount=discount), reward)
            close(found.values, values, 1e-10)
            close(found.action_values, action_values, 1e-10)
            close(found.policy, policy, 1e-10)
            np.testing.assert_allclose(np.sum(found.policy, 1), 1, rtol=1e-13)
            assert found.converged and found.steps <= 15
            # What is returned satisfies the equation, whoever found it.
            backup = reward[:, None] + discount * table @ np.asarray(found.values)
            close(np.log(np.exp(backup - backup.max()).sum(1)) + backup.max(), found.values, 1e-11)


def hard_worlds():
    """Next states (state, action) of worlds whose systems are hard to iterate, or take many steps."""
    state = np.arange(140)
    ahead, back = (state + 1) % 140, (state - 1) % 140
    yield pytest.param(ahead[:, None], id="ring", marks=pytest.mark.slow)
    yield pytest.param(np.stack([ahead, back], 1), id="two-way ring", marks=pytest.mark.slow)
    reset = np.stack([np.minimum(state + 1, 139), np.zeros(140, int)], 1)
    yield pytest.param(reset, id="back to the start")


@pytest.mark.parametrize("next_state", list(hard_worlds()))
def test_hard_worlds_are_solved(next_state):
    """Also where BiCGSTAB stalls; and the gradient, which takes the transposed system."""
    table, reward = np.eye(140)[next_state], 5 * np.random.default_rng(6).normal(size=140)
    away = np.random.default_rng(7).normal(size=140)
    world = MDP.deterministic(next_state, discount=0.999)
    values, _, policy = reference(table, reward[:, None].repeat(next_state.shape[1], 1), 0.999)

    @jax.jit
    def total(reward):
        found = soft_values(world, reward)
        return jnp.dot(away, found.values), found

    slope, found = jax.grad(total, has_aux=True)(reward)
    close(found.values, values, 1e-10)
    assert found.converged and found.steps <= 15
    visits = np.linalg.solve(np.eye(140) - 0.999 * np.einsum("sa,san->ns", policy, table), away)
    close(slope, visits, 1e-8)


def test_newton_climbs_from_below_after_its_first_step():
    table, reward = chances(9, 6, 3), 3 * np.random.default_rng(10).normal(size=6)
    world = MDP.dense(table, discount=0.95)
    exact = np.asarray(soft_values(world, reward).values)
    start = 50 * np.random.default_rng(11).normal(size=6)
    path = [soft_values(world, reward, initial=start, max_steps=k) for k in range(1, 9)]
    values = np.stack([step.values for step in path])
    assert (values <= exact + 1e-10).all() and (np.diff(values, axis=0) >= -1e-10).all()
    assert not path[0].converged and path[0].steps == 1 and path[0].residual > 1e-3
    assert path[-1].converged


def test_a_far_horizon_is_none():
    table, reward = chances(14, 6, 3), np.random.default_rng(15).normal(size=6)
    world = MDP.dense(table, discount=0.9)
    found, ahead = soft_values(world, reward), soft_values(world, reward, horizon=400)
    close(ahead.values, found.values, 1e-12)
    close(ahead.policy, found.policy, 1e-11)
    assert ahead.residual < 1e-13 * np.abs(found.values).max()
    np.testing.assert_array_equal(soft_policy(world, reward), found.policy)
    np.testing.assert_array_equal(soft_policy(world, reward, horizon=400), ahead.policy)


@pytest.mark.parametrize("form", ["dense", "sparse", "deterministic"])
def test_a_horizon_gives_the_first_of_its_steps(form):
    """With discounts up to one, rewards of actions, unavailable actions and batches; and all of its steps."""
    random = np.random.default_rng(16)
    table, mask = chances(17, 5, 3), random.random((5, 3)) < 0.6
    mask[:, 0] = True
    next_state = random.integers(5, size=(5, 3))
    if form == "deterministic":
        table = np.eye(5)[next_state]
    rewards = 3 * random.normal(size=(2, 5, 3))
    for discount in (1.0, 0.8):
        world = MDP.dense(table, discount=discount, action_mask=mask)
        if form == "sparse":
            lists = np.broadcast_to(np.arange(5), (5, 3, 5))
            world = MDP.sparse(lists, table, discount=discount, action_mask=mask)
        elif form == "deterministic":
            world = MDP.deterministic(next_state, discount=discount, action_mask=mask)
        found = jax.tree.map(np.asarray, soft_values(world, rewards, horizon=7))
        assert found.values.shape == (2, 5) and found.steps.tolist() == [7, 7] and found.converged.all()
        for row in range(2):
            values, every = np.zeros(5), []
            for _ in range(7):
                before, q = values, np.where(mask, rewards[row] + discount * table @ values, -np.inf)
                values = np.log(np.exp(q).sum(1))
                every.insert(0, (values, q, np.exp(q - values[:, None])))
            close(found.values[row], values, 1e-13)
            close(np.where(mask, found.action_values[row], 0), np.where(mask, q, 0), 1e-13)
            close(np.exp(found.log_policy[row]), np.exp(q - values[:, None]), 1e-12)
            close(found.residual[row], np.abs(values - before).max(), 1e-12)
    steps = jax.tree.map(np.asarray, soft_values(world, rewards, horizon=7, all_steps=True))
    for t, (values, q, policy) in enumerate(every):  # of the last row and discount
        close(steps.values[1, t], values, 1e-13)
        close(np.where(mask, steps.action_values[1, t], 0), np.where(mask, q, 0), 1e-13)
        close(np.exp(steps.log_policy[1, t]), policy, 1e-12)
    assert steps.residual.shape == steps.steps.shape == (2,) and steps.converged.all()


def test_the_gradient_before_a_horizon_is_what_will_be_visited():
    table, reward = chances(14, 4, 2), np.random.default_rng(15).normal(size=4)
    world, mass = MDP.dense(table), np.array([0.1, 0.5, 0.0, 0.4])
    visited, expected = (
        mass.copy(),
        np.asarray(soft_values(world, reward, horizon=5, all_steps=True).log_policy),
    )
    for t in range(4):
        visited = visited + (mass := np.einsum("s,sa,san->n", mass, np.exp(expected[t]), table))
    start = np.array([0.1, 0.5, 0.0, 0.4])
    slope = jax.jit(jax.grad(lambda r: start @ soft_values(world, r, horizon=5).values))(reward)
    np.testing.assert_allclose(slope, visited, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["dense", "deterministic"])
def test_single_precision_has_the_policy(form):
    random = np.random.default_rng(16)
    table, next_state = chances(17, 90, 3), random.integers(90, size=(90, 3))
    table = np.eye(90)[next_state] if form == "deterministic" else table
    for scale in (1.0, 10.0):
        reward = scale * random.normal(size=90)
        values, _, policy = reference(table, reward[:, None].repeat(3, 1), 0.9999)
        with jax.enable_x64(False):
            world = MDP.dense(table.astype(np.float32), discount=0.9999)
            if form == "deterministic":
                world = MDP.deterministic(next_state, discount=0.9999)
            found = soft_values(world, reward.astype(np.float32))
            assert found.values.dtype == found.log_policy.dtype == jnp.float32
            assert found.converged and found.steps <= 15
            close(found.values, values, 1e-5)
            assert np.abs(np.asarray(found.policy) - policy).max() < 2e-4


def test_rewards_of_actions_and_batches():
    random = np.random.default_rng(18)
    table = chances(19, 6, 3)
    world = MDP.dense(table, discount=0.9)
    rewards = random.normal(size=(2, 3, 6, 3))
    found = jax.tree.map(np.asarray, soft_values(world, rewards))
    assert found.values.shape == (2, 3, 6) and found.action_values.shape == (2, 3, 6, 3)
    assert found.steps.shape == found.converged.shape == found.residual.shape == (2, 3)
    for at in np.ndindex(2, 3):
        values, action_values, policy = reference(table, rewards[at], 0.9)
        close(found.values[at], values, 1e-12)
        close(found.action_values[at], action_values, 1e-12)
        close(np.exp(found.log_policy[at]), policy, 1e-12)
    of_states = np.asarray(soft_values(world, rewards[0, :, :, 0]).values)
    np.testing.assert_array_equal(of_states, soft_values(world, rewards[0, :, :, :1]).values)
    np.testing.assert_allclose(of_states[1], soft_values(world, rewards[0, 1, :, 0]).values, rtol=1e-13)
    # As many actions as states: the last two axes may be those, or draws of rewards of states.
    square, both = MDP.dense(chances(20, 3, 3), discount=0.9), random.normal(size=(3, 3))
    of_pairs = soft_values(square, both, pairs=True).values
    close(of_pairs, reference(chances(20, 3, 3), both, 0.9)[0], 1e-12)
    for solve in (read_reward, soft_values, optimal_values, lambda *given: SoftPolicy(*given, length=1)):
        with pytest.raises(
            ValueError, match=r"reward has shape \(3, 3\), and there are 3 states and 3 actions: pass"
        ):
            solve(square, both)
    assert (
        read_reward(square, both, pairs=True)[0].shape == (3, 3)
        and read_reward(square, both, pairs=True)[1] == ()
    )
    assert read_reward(square, both, pairs=False)[0].shape == (3, 3, 1)
    assert read_reward(square, both[..., None])[1] == (3,)
    # One axis can only be states, whatever a reward beside it is of.
    assert read_reward(square, both[0], pairs=True)[0].shape == (3, 1)
    with pytest.raises(
        ValueError, match=r"\(2, 3\), and pairs is True: the last two axes must be states and actions"
    ):
        read_reward(square, both[:2], pairs=True)
    with pytest.raises(ValueError, match="pairs must be None, True or False, not 'yes'"):
        read_reward(square, both, pairs="yes")


def test_a_warm_start_saves_steps_and_changes_nothing():
    table, reward = chances(23, 6, 3), 10 * np.random.default_rng(24).normal(size=6)
    world = MDP.dense(table, discount=0.99)
    cold = soft_values(world, reward)

    @jax.jit
    def total(start):
        warm = soft_values(world, reward + 1e-4, initial=start)
        return jnp.sum(warm.values), warm

    slope, warm = jax.grad(total, has_aux=True)(cold.values)
    assert warm.steps < cold.steps and not np.any(slope)
    close(warm.values, soft_values(world, reward + 1e-4).values, 1e-12)
    both = soft_values(world, reward, initial=np.stack([cold.values, np.zeros(6)]))
    assert both.values.shape == (2, 6) and np.asarray(both.steps)[0] == 0
    close(np.asarray(both.values)[1], cold.values, 1e-12)


def test_what_has_not_converged_says_so_and_is_no_policy():
    world = MDP.dense(chances(25, 6, 3), discount=0.99)
    early = soft_values(world, np.arange(6.0), max_steps=1)
    assert not early.converged and early.steps == 1 and early.residual > 0
    assert early.status == Status.TOO_FEW_STEPS
    with pytest.raises(
        RuntimeError, match=r"after 1 steps \(residual .*above tol; call soft_values with a larger"
    ):
        require_converged("soft_values", early)
    spoilt = jax.jit(lambda r: soft_values(world, r))(np.full(6, np.nan))
    assert not spoilt.converged and np.isnan(spoilt.values).all() and spoilt.steps == 0
    with pytest.raises(RuntimeError, match=r"soft_values has not converged.*are not finite; check"):
        soft_policy(world, np.full(6, 1e308))


def test_the_status_tells_the_limit_of_rounding_from_the_tolerance():
    """Errors of single precision are those of NumPy in double: of a corridor that few states leave at once."""
    state = np.arange(90)
    ways = np.stack([np.maximum(state - 1, 0), np.minimum(state + 1, 89)], 1)
    reward = 1000 * np.random.default_rng(32).normal(size=90)
    world = MDP.deterministic(ways, discount=0.9999)
    assert soft_values(world, reward / 1000).status == Status.CONVERGED
    with jax.enable_x64(False):
        single = MDP.deterministic(ways, discount=0.9999)
        found, large = (soft_values(single, (reward / by).astype(np.float32)) for by in (1000, 1))
    policy = reference(np.eye(90)[ways], reward[:, None].repeat(2, 1) / 1000, 0.9999)[2]
    assert found.status == Status.ROUNDED and found.converged
    assert np.abs(found.policy - policy).max() < 0.02
    assert large.status == Status.IMPRECISE and not large.converged
    with pytest.raises(RuntimeError, match=r"rounding changes them by over 0\.02; set jax_enable_x64"):
        require_converged("soft_values", large)


def test_an_end_is_a_state_with_one_action():
    """With all four, it would be worth ln 4 / (1 - 0.95) = 27.7, for being unable to choose."""
    random = np.random.default_rng(26)
    table, reward = chances(27, 5, 4), random.normal(size=5)
    table[4], reward[4] = np.eye(5)[4], 0.0
    mask = random.random((5, 4)) < 0.6
    mask[:, 1] = True
    mask[4] = [False, True, False, False]
    world = MDP.dense(table, discount=0.95, action_mask=mask)
    found = soft_values(world, reward)
    values, action_values, policy = reference(table, reward[:, None].repeat(4, 1), 0.95, mask)
    close(found.values, values, 1e-12)
    close(found.policy, policy, 1e-12)
    np.testing.assert_array_equal(np.isneginf(found.action_values), ~mask)
    np.testing.assert_allclose(
        np.asarray(found.action_values)[mask], action_values[mask], rtol=1e-11, atol=1e-12
    )
    assert abs(np.asarray(found.values)[4]) < 1e-10
    open_end = soft_values(MDP.dense(table, discount=0.95), reward)
    np.testing.assert_allclose(np.asarray(open_end.values)[4], np.log(4) / 0.05, rtol=1e-12)
    step = 1e-6 * np.eye(5)[2]
    moved = jax.jit(lambda r, along: jax.jvp(lambda r: soft_values(world, r).policy, (r,), (along,))[1])
    slope = moved(reward, np.eye(5)[2])
    ahead, behind = (
        reference(table, (reward + d)[:, None].repeat(4, 1), 0.95, mask)[2] for d in (step, -step)
    )
    np.testing.assert_allclose(slope, (ahead - behind) / 2e-6, atol=1e-8)


def test_rows_that_miss_one_by_rounding_are_told_from_those_that_miss_it():
    """Values are those of the table as it is, where it differs from a proper one by more than rounding."""
    table, reward = chances(28, 6, 3), np.random.default_rng(29).normal(size=6)
    table[2, 1] *= 1 + 5e-7
    found = soft_values(MDP.dense(table, discount=0.9999), reward)
    values, _, policy = reference(table, reward[:, None].repeat(3, 1), 0.9999)
    assert found.converged
    close(found.values, values, 1e-10)
    close(found.policy, policy, 1e-9)


def test_nothing_is_compiled_twice(compilations):
    """And the first call compiles one program."""
    reward, world = np.linspace(0, 1, 7), MDP.dense(chances(30, 7, 5), discount=0.9)
    del compilations[:]
    soft_values(world, reward)
    assert len(compilations) == 1
    del compilations[:]
    soft_values(MDP.dense(chances(31, 7, 5), discount=0.5), reward + 1, tol=1e-6, max_steps=7)
    assert not compilations


two = np.full((2, 2, 2), 0.5)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda w: soft_values(MDP.dense(two), np.ones(2)), ValueError, r"mdp.discount is 1.0: over an infinite"),
        (lambda w: soft_values(two, np.ones(2)), TypeError, "mdp"),
        (lambda w: soft_values(w, np.ones(3)), ValueError, r"reward has shape \(3,\): the last axis"),
        (lambda w: soft_values(w, np.ones((2, 3))), ValueError, r"reward has shape \(2, 3\)"),
        (lambda w: soft_values(w, 1.0), ValueError, r"reward has shape \(\)"),
        (lambda w: soft_values(w, [0.0, np.nan]), ValueError, r"reward\[1\] is not finite"),
        (lambda w: soft_values(w, np.ones(2, int)), TypeError, "reward has dtype int"),
        (lambda w: soft_values(w, np.ones(2), tol=0.0), ValueError, "tol must be greater than 0, not 0"),
        (lambda w: soft_values(w, np.ones(2), tol=True), TypeError, "tol must be a real number, not True"),
        (lambda w: soft_values(w, np.ones(2), max_steps=0), ValueError, "max_steps must be at least 1"),
        (lambda w: soft_values(w, np.ones(2), horizon=0), ValueError, "horizon must be at least 1, not 0"),
        (lambda w: soft_values(w, np.ones(2), horizon=3, max_steps=9), ValueError, "horizon is 3, which"),
        (lambda w: soft_values(w, np.ones(2), horizon=3, initial=[0.0, 0.0]), ValueError, "horizon is 3, which"),
        (lambda w: soft_values(w, np.ones(2), all_steps=True), ValueError, "all_steps is True without a horizon"),
        (lambda w: soft_policy(w, np.ones(3)), ValueError, r"reward has shape \(3,\)"),
        (lambda w: soft_values(w, np.ones(2), initial=np.ones(3)), ValueError, r"initial has shape \(3,\)"),
        (lambda w: soft_values(w, np.ones(2), initial=[0.0, np.inf]), ValueError, r"initial\[1\] is not finite"),
        (
            lambda w: soft_values(w, np.ones((3, 2)), initial=np.ones((4, 2))),
            ValueError,
            r"reward has batch axes \(3,\), initial \(4,\): give batch axes that broadcast",
        ),
    ],
)  # fmt: skip
def test_bad_input_is_refused(make, error, message):
    with pytest.raises(error, match=message):
        make(MDP.dense(two, discount=0.9))


def test_single_precision_beside_double_is_kept():
    """Rewards of 200 states in single precision, while the default is double."""
    ring = (np.arange(200)[:, None] + [1, 7]) % 200
    world, reward = MDP.deterministic(ring, discount=0.99), np.sin(np.arange(200.0))
    with jax.enable_x64(True):
        found = soft_values(world, reward.astype(np.float32))
        assert found.values.dtype == found.log_policy.dtype == jnp.float32
    values, _, _ = reference(np.eye(200)[ring], reward[:, None].repeat(2, 1), 0.99)
    np.testing.assert_allclose(found.values, values, rtol=1e-5)
