"""Roles of agents under a fit, against NumPy: assignment of groups, paths and probabilities."""

from __future__ import annotations

import itertools

import jax
import numpy as np
import pytest
from scipy.special import digamma

from ethogram.inference.conjugate.posterior import ConjugatePosterior, ConjugateResult, posterior_of
from ethogram.inference.roles.assignment import assign_roles, infer_roles
from ethogram.models.data.trajectories import Metadata, Trajectories
from ethogram.models.emissions import CategoricalEmission, GaussianEmission
from ethogram.models.families.exponential_family import Dirichlet
from ethogram.models.roles.role_hmm import RoleHMM

pytestmark = pytest.mark.usefixtures("float64")

NUM_ROLES = 3


def make_posterior(rng, exclusive=None, known_roles=False):
    """A posterior of three roles with random counts."""
    sticky = None if exclusive else 1.0
    model = RoleHMM(
        NUM_ROLES, CategoricalEmission(4), sticky=sticky, exclusive=exclusive, known_roles=known_roles
    )
    blocks = {
        name: Dirichlet.from_standard(rng.gamma(1.0, size=block.natural.concentration.shape) + 0.1)
        for name, block in model.prior().items()
    }
    return ConjugatePosterior(model, blocks)


def make_data(rng, group, lengths):
    shape = (len(lengths), int(max(lengths)))
    inside = np.arange(shape[1]) < np.asarray(lengths)[:, None]
    observed = inside & (rng.random(shape) < 0.8)
    x = np.where(inside, rng.integers(4, size=shape), -1)[..., None]
    group = None if group is None else np.asarray(group, np.int32)
    return Trajectories(x, None, None, np.asarray(lengths, np.int32), observed, None, group)


def expected_log(posterior, name):
    a = np.asarray(posterior.blocks[name].natural.concentration)
    return digamma(a) - digamma(a.sum(-1, keepdims=True))


def step_potentials(posterior, data):
    """E log likelihood (sequence, time, role), zero where nothing was observed, -inf off a known role."""
    each = expected_log(posterior, "probability").T[np.where(data.observed, data.observations[..., 0], 0)]
    each = np.where(data.observed[..., None], each, 0)
    if posterior.model.known_roles:
        off = (data.states[..., None] >= 0) & (data.states[..., None] != np.arange(NUM_ROLES))
        each = np.where(off, -np.inf, each)
    return each


def best_map(cost):
    """Best map, its cost and what the second best costs more, by enumeration."""
    agents = np.arange(len(cost))
    maps = sorted(
        (cost[agents, one].sum(), one) for one in itertools.permutations(range(NUM_ROLES), len(cost))
    )
    return maps[0][1], maps[0][0], maps[1][0] - maps[0][0]


def test_assigned_roles_are_the_best_map_of_each_group():
    rng = np.random.default_rng(0)
    posterior = make_posterior(rng)
    group = [4, 0, 4, 9, 0, 4, 9, 2]
    data = make_data(rng, group, [5, 3, 7, 2, 6, 1, 4, 6])
    role, cost, margin = assign_roles(posterior, data)
    potentials = step_potentials(posterior, data).sum(axis=1)
    assert role.dtype == np.int32
    assert cost.shape == margin.shape == (4,)
    for number, name in enumerate(sorted(set(group))):
        members = np.flatnonzero(np.array(group) == name)
        best, total, gap = best_map(-potentials[members])
        assert tuple(role[members]) == best
        np.testing.assert_allclose((cost[number], margin[number]), (total, gap), rtol=1e-9)


@pytest.mark.parametrize("group", [None, [-1] * 6, [3, -1, 3, -1, 0, -1]])
def test_sequences_without_a_group_stand_alone(group):
    rng = np.random.default_rng(1)
    posterior = make_posterior(rng)
    data = make_data(rng, group, [4, 4, 6, 2, 3, 5])
    role, cost, margin = assign_roles(posterior, data)
    potentials = step_potentials(posterior, data).sum(axis=1)
    alone = np.flatnonzero(np.array([-1] * 6 if group is None else group) < 0)
    np.testing.assert_array_equal(role[alone], potentials[alone].argmax(axis=1))
    np.testing.assert_allclose(cost[-len(alone) :], -potentials[alone].max(axis=1))
    ordered = np.sort(potentials[alone], axis=1)
    np.testing.assert_allclose(margin[-len(alone) :], ordered[:, -1] - ordered[:, -2])
    if group is not None and len(alone) < 6:
        assert cost.shape == (5,)
        assert role[0] != role[2]


def test_groups_that_have_no_map_are_named():
    rng = np.random.default_rng(2)
    posterior = make_posterior(rng, known_roles=True)
    data = make_data(rng, [5, 5, 8, 8, 8, 8], [4] * 6)._replace(states=np.full((6, 4), -1, np.int32))
    with pytest.raises(ValueError, match=r"group 8 has 4 agents, the model num_roles=3: .* use infer_roles"):
        assign_roles(posterior, data)
    named = data._replace(metadata=Metadata(group_names=tuple("abcdefghi")))
    with pytest.raises(ValueError, match="group 'i' has 4 agents"):
        assign_roles(posterior, named)
    states = np.full((6, 4), -1, np.int32)
    states[:2, 1] = 2
    both = data._replace(group=np.array([5, 5, 8, 8, 8, 1], np.int32), states=states)
    with pytest.raises(ValueError, match="group 5 has no feasible assignment"):
        assign_roles(posterior, both)
    states[1, 1] = 0
    roles = assign_roles(posterior, both._replace(states=states)).role
    np.testing.assert_array_equal(roles[:2], [2, 0])
    with pytest.raises(ValueError, match="outside the 4 categories"):
        assign_roles(posterior, data._replace(observations=data.observations + 9))


def enumerate_paths(log_initial, log_transition, steps):
    """Most likely path and probabilities of every role at every step, from all paths."""
    length = len(steps)
    paths = np.array(list(itertools.product(range(NUM_ROLES), repeat=length)))
    weight = log_initial[paths[:, 0]] + steps[np.arange(length), paths].sum(axis=1)
    weight = weight + log_transition[paths[:, :-1], paths[:, 1:]].sum(axis=1)
    share = np.exp(weight - weight.max())
    share /= share.sum()
    return paths[weight.argmax()], np.stack(
        [(share[:, None] * (paths == k)).sum(0) for k in range(NUM_ROLES)], -1
    )


def known_in_part(known_roles=True):
    """A posterior, and data of lengths 5, 1, 0, 4, 5 of which some roles are known."""
    rng = np.random.default_rng(3)
    posterior = make_posterior(rng, known_roles=known_roles)
    lengths = [5, 1, 0, 4, 5]
    data = make_data(rng, None, lengths)
    data = data._replace(observed=data.observed & (np.arange(5) != 3)[:, None])
    if known_roles:
        states = np.full((5, 5), -1, np.int32)
        states[0, 2] = states[4, 4] = 1
        data = data._replace(states=states)
    return posterior, data, lengths


@pytest.mark.parametrize("known_roles", [pytest.param(False, marks=pytest.mark.slow), True])
def test_inferred_roles_are_those_of_all_paths(known_roles):
    posterior, data, lengths = known_in_part(known_roles)
    path, probability = infer_roles(posterior, data)
    assert path.shape == (5, 5)
    assert probability.shape == (5, 5, NUM_ROLES)
    steps = step_potentials(posterior, data)
    chain = expected_log(posterior, "initial"), expected_log(posterior, "transition")
    for row, length in enumerate(lengths):
        np.testing.assert_array_equal(path[row, length:], -1)
        np.testing.assert_array_equal(probability[row, length:], 0)
        if length:
            best, share = enumerate_paths(*chain, steps[row, :length])
            np.testing.assert_array_equal(path[row, :length], best)
            np.testing.assert_allclose(probability[row, :length], share, atol=1e-10)


def test_exclusive_roles_are_those_of_the_matching():
    rng = np.random.default_rng(4)
    posterior = make_posterior(rng, exclusive="per_sequence")
    group = [1, 0, 0, 1]
    data = make_data(rng, group, [4, 6, 5, 3])
    path, probability = infer_roles(posterior, data)
    potentials = step_potentials(posterior, data).sum(axis=1)
    for name in (0, 1):
        members = np.flatnonzero(np.array(group) == name)
        maps = np.array(list(itertools.permutations(range(NUM_ROLES), 2)))
        weight = np.exp(potentials[members][[0, 1], maps].sum(axis=1))
        share = np.stack(
            [(weight[:, None] * (maps == k)).sum(0) / weight.sum() for k in range(NUM_ROLES)], -1
        )
        for agent, row in enumerate(members):
            length = data.lengths[row]
            best = best_map(-potentials[members])[0][agent]
            np.testing.assert_array_equal(path[row], np.where(np.arange(6) < length, best, -1))
            np.testing.assert_allclose(
                probability[row, :length], np.tile(share[agent], (length, 1)), rtol=1e-9
            )
            np.testing.assert_array_equal(probability[row, length:], 0)


def test_well_separated_roles_are_found():
    rng = np.random.default_rng(5)
    model = RoleHMM(NUM_ROLES, GaussianEmission(1, strength=1.0), exclusive="per_sequence")
    prior = model.prior()["mean_covariance"]
    roles = np.array([[0, 1, 2], [2, 0, 1]])
    x = 10.0 * roles.reshape(6, 1, 1) + rng.normal(size=(6, 8, 1))
    labels = np.repeat(roles.reshape(6), 8)
    blocks = {
        "mean_covariance": jax.jit(type(prior).step)(
            prior,
            prior,
            model.emission.label_statistics(rng, x.reshape(48, 1), labels, NUM_ROLES)["mean_covariance"],
            1.0,
            1.0,
        )
    }
    lengths, group = np.full(6, 8, np.int32), np.repeat([0, 1], 3).astype(np.int32)
    data = Trajectories(x, None, None, lengths, np.ones((6, 8), bool), None, group)
    found = assign_roles(ConjugatePosterior(model, blocks), data)
    np.testing.assert_array_equal(found.role, roles.reshape(6))
    assert (found.margin > 50).all()


def test_a_result_is_taken_in_place_of_its_posterior():
    """One kind of first argument; anything else is refused by name."""
    posterior, data, _ = known_in_part()
    key, one = jax.random.key(0), np.zeros(1)
    result = ConjugateResult(posterior, one, one, True, 1, key, np.zeros(1, int), one[None])
    assert posterior_of(result) is posterior_of(posterior) is posterior
    with pytest.raises(TypeError, match="posterior is int: give a ConjugatePosterior or a ConjugateResult"):
        posterior_of(3)
    for function in (assign_roles, infer_roles):
        jax.tree.map(np.testing.assert_array_equal, function(result, data), function(posterior, data))
