"""Roles distinct in every frame, against enumeration of all paths of maps."""

from __future__ import annotations

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ethogram.models.emissions import CategoricalEmission
from ethogram.models.roles.log_permanent import log_permanent
from ethogram.models.roles.mean_field_roles import FrameChain, bound, field_of, settle
from ethogram.models.roles.per_frame import map_chain
from ethogram.models.roles.role_hmm import RoleHMM
from ethogram.models.roles.role_sets import log_prob_distinct

STEPS = 3


def problem(seed, num_agents, num_roles, num_steps=STEPS, spread=1.0):
    """Log initial, log transition, potentials (1, time, agent, role)."""
    rng = np.random.default_rng(seed)
    initial, transition = rng.dirichlet(np.ones(num_roles)), rng.dirichlet(np.ones(num_roles), num_roles)
    potentials = spread * rng.normal(size=(1, num_steps, num_agents, num_roles))
    return np.log(initial), np.log(transition), potentials


def every_path(log_initial, log_transition, potentials, distinct=True):
    """Weights of all paths of all agents (path,), and the paths (path, time, agent)."""
    num_steps, num_agents, num_roles = potentials.shape
    joint = itertools.product(range(num_roles), repeat=num_agents)
    frames = [roles for roles in joint if not distinct or len(set(roles)) == num_agents]
    paths = np.array(list(itertools.product(frames, repeat=num_steps)))
    weight = log_initial[paths[:, 0]].sum(-1)
    weight = weight + log_transition[paths[:, :-1], paths[:, 1:]].sum((1, 2))
    for t, a in itertools.product(range(num_steps), range(num_agents)):
        weight = weight + potentials[t, a][paths[:, t, a]]
    return weight, paths


def log_total(weight):
    return np.logaddexp.reduce(weight)


@jax.jit
def summed_over_maps(log_initial, log_transition, potentials):
    chain = map_chain(FrameChain(log_initial, log_transition, potentials, jnp.ones((1, STEPS), bool)))
    return chain.log_normalizer()[0], chain.marginals()[0], chain.most_likely()[0]


SIZES = [(2, 3), *(pytest.param(*size, marks=pytest.mark.slow) for size in [(3, 3), (1, 2)])]


@pytest.mark.parametrize(("num_agents", "num_roles"), SIZES)
def test_chain_of_maps_is_the_sum_over_all_paths(num_agents, num_roles):
    log_initial, log_transition, potentials = problem(0, num_agents, num_roles)
    weight, paths = every_path(log_initial, log_transition, potentials[0])
    total, marginals, most_likely = summed_over_maps(log_initial, log_transition, potentials)
    np.testing.assert_allclose(total, log_total(weight), rtol=1e-12)
    share = np.exp(weight - log_total(weight))
    exact = np.stack([(share[:, None, None] * (paths == k)).sum(0) for k in range(num_roles)], axis=-1)
    np.testing.assert_allclose(marginals, exact, atol=1e-12)
    np.testing.assert_array_equal(most_likely, paths[weight.argmax()])


@pytest.mark.parametrize(("num_agents", "num_roles"), SIZES[:2])
def test_probability_of_distinct_roles_is_the_sum_over_all_paths(num_agents, num_roles):
    log_initial, log_transition, potentials = problem(1, num_agents, num_roles)
    found = np.asarray(log_prob_distinct(np.exp(log_initial), np.exp(log_transition), num_agents, STEPS))
    for t in range(STEPS):
        weight, _ = every_path(log_initial, log_transition, 0 * potentials[0, : t + 1])
        np.testing.assert_allclose(found[t], log_total(weight), rtol=1e-10)
    if num_agents == num_roles:
        expected = (
            math.lgamma(num_roles + 1) + log_initial.sum() + (STEPS - 1) * log_permanent(log_transition)
        )
        np.testing.assert_allclose(found[-1], expected, rtol=1e-10)


@pytest.mark.slow
def test_sampled_roles_have_the_probabilities_of_the_paths():
    """In simulations, where every role has a symbol of its own."""
    log_initial, log_transition, potentials = problem(2, 2, 3, num_steps=2)
    weight, paths = every_path(log_initial, log_transition, 0 * potentials[0])
    count = 20_000
    model = RoleHMM(3, CategoricalEmission(3), exclusive="per_frame")
    parameters = {"initial": np.exp(log_initial), "transition": np.exp(log_transition)}
    parameters["probability"] = np.eye(3)
    data, states, _ = model.simulate(jax.random.key(0), count, 2, 2, parameters=parameters)
    np.testing.assert_array_equal(data.observations[..., 0], states)
    drawn = np.asarray(states).reshape(count, 2, 2).swapaxes(1, 2)
    number = {tuple(path.ravel()): i for i, path in enumerate(paths)}
    seen = np.bincount([number[tuple(roles.ravel())] for roles in drawn], minlength=len(paths))
    expected = count * np.exp(weight - log_total(weight))
    # 36 cells, 35 degrees of freedom: beyond 66.6 with probability 1e-3.
    assert ((seen - expected) ** 2 / expected).sum() < 66.6


@jax.jit
def mean_field(log_initial, log_transition, potentials):
    """Bound, settled marginals and their field; the last frame is padding."""
    num_groups, num_steps = potentials.shape[:2]
    alive = jnp.broadcast_to(jnp.arange(num_steps) < num_steps - 1, (num_groups, num_steps))
    chain = FrameChain(log_initial, log_transition, potentials, alive)
    settled = settle(chain, 10)
    return bound(chain, settled), settled.marginals, field_of(chain, settled.marginals)


def test_mean_field_bounds_the_sum_over_maps():
    """Of groups whose roles are unclear and of others whose roles are clear: there it is close."""
    errors = []
    for seed in range(4):
        log_initial, log_transition, potentials = problem(seed, 3, 3, num_steps=5)
        unclear_and_clear = potentials * np.array([0.3, 2.0])[:, None, None, None]
        values, marginals, field = map(np.asarray, mean_field(log_initial, log_transition, unclear_and_clear))
        paths = [every_path(log_initial, log_transition, one[:4]) for one in unclear_and_clear]
        exact = np.array([log_total(weight) for weight, _ in paths])
        weight, path = paths[1]
        share = np.exp(weight - exact[1])
        exact_marginals = np.stack([np.tensordot(share, path == k, 1) for k in range(3)], axis=-1)
        before = np.concatenate([np.tile(log_initial, (2, 1, 3, 1)), marginals[:, :-1] @ log_transition], 1)
        after = np.pad(marginals[:, 1:], [(0, 0), (0, 1), (0, 0), (0, 0)]) @ log_transition.T
        np.testing.assert_allclose(field, unclear_and_clear + before + after, atol=1e-9)
        assert (values <= exact + 1e-9).all()
        sums = marginals.sum(-1)
        np.testing.assert_allclose(sums[:, :4], 1, atol=1e-9)
        np.testing.assert_array_equal(sums[:, 4], 0)
        assert (marginals.sum(-2) <= 1 + 1e-9).all()  # no role twice
        np.testing.assert_allclose(values[1], exact[1], atol=1.5)
        errors.append(np.abs(marginals[1, :4] - exact_marginals).mean())
    assert np.mean(errors) < 0.1
