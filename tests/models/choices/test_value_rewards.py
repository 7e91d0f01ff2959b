"""Rewards behind values: the agent that has the reward found has the values that were put in."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import norm

from ethogram.models.choices.value_rewards import expected_maximum, reward
from ethogram.models.mdps.mdp import MDP


@pytest.fixture
def world():
    random = np.random.default_rng(0)
    return random.dirichlet(np.ones(5), size=(5, 3)), random.normal(size=5), random


def test_execution_inverts_value_iteration(world):
    table, truth, _ = world
    beta, values = 0.8, np.zeros(5)
    for _ in range(500):
        values = truth + beta * (table @ values).max(1)
    with jax.enable_x64(True):
        found = reward(values, MDP.dense(table), beta)
    np.testing.assert_allclose(found, truth, atol=1e-10)


def test_private_rewards_invert_smoothed_value_iteration_up_to_the_discount(world):
    """V is beta times the smoothed value function, whose expected maxima stand here as integrals of the law's tails."""
    table, truth, _ = world
    beta, smoothed = 0.8, np.zeros(5)

    def maximum(mu):
        x = np.linspace(mu.max() - 9, mu.max() + 9, 6001)
        below = np.prod(ndtr(x[:, None] - mu), axis=1)
        return x[-1] - np.sum((below[1:] + below[:-1]) / 2) * (x[1] - x[0])

    for _ in range(120):
        smoothed = truth + np.array([maximum(beta * row) for row in table @ smoothed])
    with jax.enable_x64(True):
        found = reward(beta * smoothed, MDP.dense(table), beta, reading="private")
    np.testing.assert_allclose(found, truth, atol=1e-8)


def test_expected_maximum_of_two_in_closed_form_and_of_one():
    mu = np.array([[0.3, -1.2], [50.0, 49.5], [-400.0, 400.0]])
    d = (mu[:, 0] - mu[:, 1]) / np.sqrt(2)
    exact = mu[:, 0] * norm.cdf(d) + mu[:, 1] * norm.cdf(-d) + np.sqrt(2) * norm.pdf(d)
    with jax.enable_x64(True):
        found = expected_maximum(jnp.asarray(mu), jnp.ones((3, 2), bool))
        alone = expected_maximum(jnp.array([[np.nan, 1.5]]), jnp.array([[False, True]]))
    np.testing.assert_allclose(found, exact, rtol=1e-12)
    np.testing.assert_allclose(alone, [1.5], atol=1e-12)


def test_levels_pass_through(world):
    table, values, _ = world
    with jax.enable_x64(True):
        both = reward(np.stack([values, values + 3]), MDP.dense(table), 0.9)
    np.testing.assert_allclose(both[1] - both[0], 3 * (1 - 0.9), atol=1e-12)


@pytest.mark.parametrize("reading", ["execution", "private"])
def test_actions_that_the_world_does_not_have_are_not_taken(world, reading):
    table, values, _ = world
    mask = np.array([[True, False, True]] * 4 + [[False, True, True]])
    masked, free = MDP.dense(table, action_mask=mask), MDP.dense(table)
    with jax.enable_x64(True):
        found = reward(values, masked, 0.9, reading=reading)
        given = reward(values, free, 0.9, reading=reading, legal=mask)
        compiled = jax.jit(lambda world: reward(values, world, 0.9, reading=reading))(masked)
        fewer = reward(values, masked, 0.9, reading=reading, legal=mask & [False, True, True])
        truth = reward(values, free, 0.9, reading=reading, legal=mask & [False, True, True])
    np.testing.assert_allclose(found, given, atol=1e-12)
    np.testing.assert_allclose(compiled, given, atol=1e-12)
    np.testing.assert_allclose(fewer, truth, atol=1e-12)
    with pytest.raises(ValueError, match=r"legal\[0, 1\] is True, but that action is not available"):
        reward(values, masked, 0.9, legal=np.ones((5, 3), bool))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"reading": "both"}, "reading must be 'execution' or 'private'"),
        ({"beta": 1.0}, "beta must be a number in"),
        ({"legal": np.zeros((2, 2), bool)}, r"legal\[0\] has no legal action"),
        ({"values": np.zeros(3)}, r"values has shape \(3,\)"),
    ],
)
def test_what_is_wrong_is_named(change, message):
    given = {"values": np.zeros(2), "beta": 0.5, **change}
    world = MDP.deterministic([[0, 1], [1, 0]])
    with pytest.raises(ValueError, match=message):
        reward(given.pop("values"), world, given.pop("beta"), **given)
