"""States are ordered where their numbers mean nothing: bound and likelihood stay, and other models are left alone."""

from __future__ import annotations

import itertools

import jax
import numpy as np
import pytest

from ethogram.inference.conjugate import ConjugatePosterior, ConjugateResult
from ethogram.inference.sampled_posterior import SampledPosterior
from ethogram.inference.state_order import in_order
from ethogram.models.data import Trajectories
from ethogram.models.emissions import (
    CategoricalEmission,
    GammaEmission,
    GaussianEmission,
    ProductEmission,
    VonMisesEmission,
)
from ethogram.models.families.exponential_family import Known, expected_statistics
from ethogram.models.intents import AgentMarkov, IntentConstraints
from ethogram.models.label_permutations import permuted
from ethogram.models.roles import RoleHMM


def result_of(model, blocks):
    posterior = ConjugatePosterior(model, jax.device_put(blocks))
    return ConjugateResult(posterior, np.zeros(1), np.zeros(1), True, 1, jax.random.key(0), np.ones(1), None)


@jax.jit
def bound(model, blocks, batch):
    return model.log_normalizer(expected_statistics(blocks), batch) - model.divergence(blocks, model.prior())


def after_step(model, data, seed=0):
    """Blocks after one global step from rough labels."""
    batch, prior = model.arrange(data), model.prior()
    statistics = model.start_statistics(np.random.default_rng(seed), model.start_kinds[0], [batch])
    return jax.jit(lambda prior, t: model.update(prior, prior, t, 1.0, 1.0))(prior, statistics)


def test_symbols_are_ordered_by_occupancy_whatever_the_start(symbols, symbol_model):
    data = symbols()
    model = RoleHMM(3, CategoricalEmission(3), sticky=2.0).bind(data)
    blocks = jax.tree.map(np.asarray, after_step(model, data))
    batch = model.arrange(data)
    before, axes = bound(model, blocks, batch), model.exchangeable_axes()
    found = []
    for order in itertools.permutations(range(3)):
        moved = permuted(blocks, axes, np.array(order))
        result = in_order(result_of(model, moved), data)
        assert bound(model, result.posterior.blocks, batch) == pytest.approx(float(before), rel=1e-12)
        found.append(np.asarray(result.posterior.blocks["transition"].natural.concentration))
        counts = found[-1] - np.asarray(model.prior()["transition"].natural.concentration)
        assert (np.diff(counts.sum(0)) < 0).all()  # most frequent first
    np.testing.assert_allclose(found, np.broadcast_to(found[0], np.shape(found)))


@pytest.mark.slow
def test_intents_are_ordered_by_occupancy():
    random = np.random.default_rng(1)
    steps = {"states": random.integers(5, size=(4, 12)), "actions": random.integers(3, size=(4, 12))}
    data = Trajectories(None, **steps, lengths=np.full(4, 12), observed=np.ones((4, 12), bool))
    model = AgentMarkov(5, 3, truncation=3).bind(data)
    blocks, batch = jax.tree.map(np.asarray, after_step(model, data)), model.arrange(data)
    axes = model.exchangeable_axes()
    moved = permuted(blocks, axes, np.array([2, 0, 1]))
    assert not np.allclose(moved["policy"].natural.concentration, blocks["policy"].natural.concentration)
    result = in_order(result_of(model, moved), data)
    assert bound(model, result.posterior.blocks, batch) == pytest.approx(float(bound(model, blocks, batch)))
    counts = [x.posterior.blocks for x in (result, in_order(result, data))]
    first = np.asarray(counts[0]["initial"].natural.concentration)
    np.testing.assert_array_equal(first, counts[1]["initial"].natural.concentration)
    assert (np.diff(np.asarray(jax.jit(lambda b: model.growth.mass(b))(counts[0]))) <= 0).all()


def test_chains_are_ordered_at_once_by_their_first_feature():
    random = np.random.default_rng(0)
    emission = ProductEmission({"step": GammaEmission(), "turn": VonMisesEmission()})
    model = RoleHMM(3, emission)
    mean = np.array([5.0, 1.0, 3.0])[:, None] + 0.1 * random.normal(size=(2, 4, 3, 1))
    table = random.dirichlet(np.ones(3), size=(2, 4, 3))
    sites = {
        "initial": random.dirichlet(np.ones(3), size=(2, 4)),
        "transition": table,
        "step_mean": mean,
        "step_shape": mean,
        "turn_direction": mean,
        "turn_concentration": mean,
    }
    data = Trajectories.from_list([np.ones((4, 2))])
    found = in_order(SampledPosterior(model, sites, {}), data).sites
    order = np.array([1, 2, 0])
    np.testing.assert_array_equal(found["step_mean"], mean[:, :, order])
    np.testing.assert_array_equal(found["transition"], table[:, :, order][..., order])
    np.testing.assert_array_equal(found["initial"], sites["initial"][..., order])


KNOWN = Known(np.array([[0.5, 0.5], [np.nan, np.nan]]))


@pytest.mark.parametrize(
    "model",
    [
        RoleHMM(2, GaussianEmission(1), transition=np.array([[2.0, 1.0], [1.0, 1.0]])),
        RoleHMM(2, GaussianEmission(1), transition=np.array([[1.0, 0.0], [1.0, 1.0]])),
        RoleHMM(2, GaussianEmission(1), transition=KNOWN),
        RoleHMM(2, GaussianEmission(1), initial=np.array([2.0, 1.0])),
        RoleHMM(2, GaussianEmission(1, mean=np.array([[0.0], [1.0]]))),
        RoleHMM(2, GaussianEmission(1, mean=np.array([[0.0], [1.0]])), exclusive="per_sequence"),
        RoleHMM(2, GaussianEmission(1), known_roles=True),
        AgentMarkov(2, 2, truncation=2, beta_prior="fixed"),
        AgentMarkov(2, 2, truncation=2, constraints=IntentConstraints.action(0, [1], equal=0.0)),
    ],
)
def test_states_that_mean_something_keep_their_numbers(model):
    assert not model.exchangeable_axes()
    assert RoleHMM(3, GaussianEmission(1), sticky=2.0, exclusive="per_frame").exchangeable_axes()


@pytest.mark.parametrize("initial", [[2.0, 1.0], 1.0])
def test_draws_keep_their_states_where_a_prior_tells_them_apart(initial):
    """Means that decrease are put in order only under a prior that is the same for both roles."""
    data = Trajectories.from_list([np.arange(6.0)[:, None]])
    model = RoleHMM(2, GaussianEmission(1), initial=initial).bind(data)
    sites = {
        "initial": np.full((1, 3, 2), [0.3, 0.7]),
        "transition": np.full((1, 3, 2, 2), 0.5),
        "mean": np.full((1, 3, 2, 1), [[5.0], [1.0]]),
        "covariance": np.ones((1, 3, 2, 1, 1)),
    }
    found = in_order(SampledPosterior(model, sites, {}), data).sites
    exchangeable = np.ndim(initial) == 0
    np.testing.assert_array_equal(found["mean"][0, 0, :, 0], [1.0, 5.0] if exchangeable else [5.0, 1.0])
    np.testing.assert_array_equal(found["initial"][0, 0], [0.7, 0.3] if exchangeable else [0.3, 0.7])
