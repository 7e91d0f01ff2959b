"""The noisy MDP as a numpyro model: its sites, its posterior by NUTS against a grid, and what it refuses."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.handlers import seed, substitute, trace
from numpyro.infer import MCMC, NUTS, Predictive, log_likelihood
from numpyro.infer.util import log_density

from ethogram.models.choice import ProbitChoice
from ethogram.models.decisions import Decisions
from ethogram.models.mdp import MDP
from ethogram.models.noisy_mdp import NoisyMDP


def chain_decisions(count=40, states=4):
    random = np.random.default_rng(2)
    world = MDP.dense(random.dirichlet(0.5 * np.ones(states), size=(states, 3)))
    values = random.normal(size=states)
    where = random.integers(states, size=count)
    utilities = np.asarray(world.expect(values - values.mean()))[where]
    choice = np.argmax(utilities + random.normal(size=utilities.shape), axis=1)
    return Decisions.from_mdp(world, where, choice)


def sites_of(model, data, theta, **options):
    held = substitute(seed(model, jax.random.key(0)), data={"theta": theta})
    return trace(held).get_trace(data, **options)


def choice_of(sites):
    """The distribution of the choices, without mask and plate."""
    found = sites["choice"]["fn"]
    while not isinstance(found, ProbitChoice):
        found = found.base_dist
    return found


def test_tabular_values_sum_to_zero_with_equal_variances():
    data = chain_decisions()
    drawn = Predictive(NoisyMDP(9.0), num_samples=20_000)(jax.random.key(0), data, condition=False)
    values = np.asarray(drawn["v"], float)
    np.testing.assert_allclose(values.sum(-1), 0, atol=1e-5)
    np.testing.assert_allclose(np.cov(values.T), 9 * (np.eye(4) - 0.25), atol=0.3)


def test_utilities_are_expected_values_and_rewards():
    data, theta = chain_decisions(), jnp.array([0.5, -1.0, 2.0, 0.3, -0.8])
    model = NoisyMDP(9.0, action_rewards=True, beta=0.9)
    sites = sites_of(model, data, theta)
    utilities = 0.9 * data.features @ np.asarray(sites["v"]["value"]) + np.asarray(
        sites["action_rewards"]["value"]
    )
    np.testing.assert_allclose(choice_of(sites).utilities, utilities, rtol=1e-4, atol=1e-5)
    assert float(jnp.sum(sites["action_rewards"]["value"])) == pytest.approx(0, abs=1e-6)
    truth = ProbitChoice(utilities).log_prob(data.choice)
    found = choice_of(sites).log_prob(sites["choice"]["value"])
    np.testing.assert_allclose(found, truth, rtol=1e-4)


def test_weights_of_features_are_free():
    data = Decisions.from_list([[[1.0], [0.5]], [[0.2], [0.1], [0.7]]], choice=[0, 2])
    sites = sites_of(NoisyMDP(4.0, "features"), data, jnp.array([1.5]))
    assert sites["v"]["value"].tolist() == [1.5]
    np.testing.assert_allclose(choice_of(sites).utilities[0], [1.5, 0.75, 0], rtol=1e-6)


@pytest.mark.slow
def test_nuts_has_the_posterior_of_a_grid():
    """One weight, 15 decisions: mean and deviation within 4 Monte Carlo errors of a sum over a grid."""
    random = np.random.default_rng(0)
    sets = random.normal(size=(15, 3, 1))
    choice = np.argmax(sets[..., 0] * 0.8 + random.normal(size=(15, 3)), axis=1)
    data = Decisions.from_list(sets, choice)
    with jax.enable_x64(True):
        axis = np.linspace(-6, 8, 2001)
        each = [
            ProbitChoice(one[..., 0] * axis[:, None]).log_prob(int(a))
            for one, a in zip(sets, choice, strict=True)
        ]
        logs = np.sum(np.asarray(each), axis=0) - axis**2 / (2 * 9.0)
        weight = np.exp(logs - logs.max()) / np.exp(logs - logs.max()).sum()
        mean = weight @ axis
        deviation = np.sqrt(weight @ (axis - mean) ** 2)
        mcmc = MCMC(NUTS(NoisyMDP(9.0, "features")), num_warmup=500, num_samples=8000, progress_bar=False)
        mcmc.run(jax.random.key(0), data)
        drawn = np.asarray(mcmc.get_samples()["v"])[:, 0]
    assert abs(drawn.mean() - mean) < 4 * deviation / np.sqrt(len(drawn) / 4)
    assert drawn.std() == pytest.approx(deviation, rel=0.05)


def test_a_decision_is_one_entry_of_the_log_likelihood_and_unknown_choices_say_nothing():
    data = chain_decisions(6)
    data = data._replace(choice=np.where(np.arange(6) == 2, -1, data.choice))
    found = log_likelihood(NoisyMDP(9.0), {"theta": jnp.zeros((5, 3))}, data)["choice"]
    assert found.shape == (5, 6)
    kept = data.take(np.flatnonzero(data.choice >= 0))

    theta = {"theta": jnp.array([1.0, -2.0, 0.5])}
    whole, rest = (float(log_density(NoisyMDP(9.0), (given,), {}, theta)[0]) for given in (data, kept))
    assert whole == pytest.approx(rest, rel=1e-6)


def test_what_stands_in_padding_has_no_gradient():
    data = Decisions.from_list([[[1.0], [0.5]], [[0.2], [0.1], [0.7]]], choice=[0, 2])
    padded = data._replace(features=np.where(data.legal[..., None], data.features, np.nan))

    def density(theta, given):
        return log_density(NoisyMDP(4.0, "features"), (given,), {}, {"theta": theta})[0]

    slope, truth = (jax.grad(density)(jnp.array([0.7]), given) for given in (padded, data))
    np.testing.assert_allclose(slope, truth, rtol=1e-6)
    assert np.isfinite(slope).all() and slope[0] != 0


@pytest.mark.parametrize("options", [{}, {"action_rewards": True}, {"action_rewards": 2.0, "beta": 0.9}])
def test_models_are_arguments_of_compiled_functions(options):
    data = chain_decisions()
    model = NoisyMDP(9.0, **options)
    theta = {"theta": jnp.ones(sum(model.sizes(data)))}

    def density(model, data):
        return log_density(model, (data,), {}, theta)[0]

    assert float(jax.jit(density)(model, data)) == pytest.approx(float(density(model, data)), rel=1e-5)


def test_decisions_on_a_device_are_checked_under_jit():
    data = jax.tree.map(jnp.asarray, Decisions.from_list([[[1.0], [0.0]]] * 4, [0, 0, 1, 0]))
    model = NoisyMDP(float("inf"), "features")
    found = jax.jit(lambda theta: log_density(model, (data,), {}, {"theta": theta})[0])(jnp.array([0.5]))
    assert np.isfinite(found)


def test_a_variance_may_have_a_prior():
    data = chain_decisions()
    drawn = Predictive(NoisyMDP(dist.InverseGamma(3.0, 4.0)), num_samples=3)(
        jax.random.key(0), data, condition=False
    )
    assert drawn["kappa"].shape == (3,)


def test_flat_priors_need_choices_that_overlap():
    overlapping = Decisions.from_list([[[1.0], [0.0]]] * 4, [0, 0, 1, 0])
    NoisyMDP(float("inf"), "features").check(overlapping)
    separated = overlapping._replace(choice=np.zeros(4, int))
    with pytest.raises(
        ValueError, match=r"against v \+ c \* \[1\.\] for any c > 0 \(decisions 0, 1, 2, 3 agree"
    ):
        NoisyMDP(float("inf"), "features")(separated)
    NoisyMDP(100.0, "features").check(separated)
    unvisited = Decisions.from_list([np.eye(3)[:2]] * 4, [0, 1, 0, 1])
    with pytest.raises(ValueError, match="no option differs along it"):
        NoisyMDP(float("inf")).check(unvisited)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: NoisyMDP(0.0), ValueError, "kappa must be a variance above 0"),
        (lambda: NoisyMDP("wide"), TypeError, "kappa"),
        (lambda: NoisyMDP(1.0, "values"), ValueError, "kind must be one of"),
        (lambda: NoisyMDP(1.0, beta=1.5), ValueError, r"beta must be a number in \(0, 1\]"),
        (lambda: NoisyMDP(1.0, action_rewards=-1.0), ValueError, "action_rewards must be a variance"),
        (
            lambda: NoisyMDP(1.0, action_rewards=float("inf")),
            ValueError,
            "both a finite variance, or neither",
        ),
        (
            lambda: NoisyMDP(1.0).check(Decisions.from_list([[[1.0, 0.2]]], [0])),
            ValueError,
            r"features\[0, 0\] sum to 1\.2, not 1",
        ),
        (lambda: NoisyMDP(1.0).check([1, 2]), TypeError, "data is list, not Decisions"),
    ],
)
def test_bad_input_is_named(make, error, message):
    with pytest.raises(error, match=message):
        make()
