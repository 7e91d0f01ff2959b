"""The noisy MDP as a numpyro model: its sites, its posterior by NUTS against a grid, and what it refuses."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.handlers import seed, substitute, trace
from numpyro.infer import MCMC, NUTS, Predictive, init_to_sample, log_likelihood
from numpyro.infer.util import initialize_model, log_density
from scipy.stats import chisquare, kstest, norm

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


def test_unknown_choices_are_observed_as_unknown():
    data = chain_decisions(6)
    data = data._replace(choice=np.where(np.arange(6) == 2, -1, data.choice))
    sites = sites_of(NoisyMDP(9.0), data, jnp.zeros(3))
    np.testing.assert_array_equal(sites["choice"]["value"], data.choice)

    def density(theta):
        return log_density(NoisyMDP(9.0), (data,), {}, {"theta": theta})[0]

    with numpyro.validation_enabled():
        value, slope = jax.value_and_grad(density)(jnp.array([1.0, -2.0, 0.5]))
    assert np.isfinite(value) and np.isfinite(slope).all()


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


@pytest.mark.parametrize(
    "prior",
    [
        dist.HalfNormal(2.0),
        dist.LogNormal(),
        dist.Uniform(0.5, 2.0),
        dist.TruncatedNormal(1.0, low=0.0),
        dist.Gamma(2.0),
        dist.Exponential(),
        dist.TransformedDistribution(dist.Normal(), dist.transforms.ExpTransform()),
    ],
    ids=lambda prior: type(prior).__name__,
)
def test_priors_of_a_variance_are_positive(prior):
    assert NoisyMDP(prior).kappa is prior


def test_data_without_a_choice_between_options_are_refused_in_learning_alone():
    data = Decisions.from_list([np.eye(3)[:2], np.eye(3)[1:2]], [-1, 0])
    model, told = NoisyMDP(4.0), "no decision has two legal options and a known choice"
    with pytest.raises(ValueError, match=told):
        MCMC(NUTS(model), num_warmup=1, num_samples=1, progress_bar=False).run(jax.random.key(0), data)
    with pytest.raises(ValueError, match=told):
        model.check(data._replace(choice=np.array([0, 0]), weight=np.array([0, 2])))
    model.check(data, condition=False)
    assert model.simulate(jax.random.key(0), data).data.choice[1] == 0


def test_a_flat_prior_says_that_it_has_no_draws():
    model, data = NoisyMDP(float("inf"), "features"), Decisions.from_list([[[1.0], [0.0]]] * 4, [0, 0, 1, 0])
    with pytest.raises(NotImplementedError, match="kappa is infinite, and a flat prior has no draws"):
        Predictive(model, num_samples=3)(jax.random.key(0), data, condition=False)
    drawn = Predictive(model, {"theta": jnp.zeros((3, 1))})(jax.random.key(0), data, condition=False)
    assert drawn["choice"].shape == (3, 4)
    begun = initialize_model(jax.random.key(0), model, model_args=(data,), init_strategy=init_to_sample)
    assert np.isfinite(begun.param_info.z["theta"]).all()


def test_simulated_choices_have_the_probabilities_of_the_values():
    """A chi-square test at 1e-3, with a fixed key, of 4000 choices from three options of which one is not legal."""
    random = np.random.default_rng(0)
    offered = Decisions.from_list([random.dirichlet(np.ones(4), size=2), np.eye(4)[:3]] * 4000)
    values, rewards = np.array([1.0, -0.5, 0.3, 2.0]), np.array([0.4, 0.0, -0.1])
    model = NoisyMDP(9.0, action_rewards=True, beta=0.5)
    made = model.simulate(jax.random.key(1), offered, {"v": values, "action_rewards": rewards})
    np.testing.assert_allclose(made.parameters["v"], values - values.mean(), atol=1e-6)
    np.testing.assert_allclose(made.parameters["action_rewards"], rewards - rewards.mean(), atol=1e-6)
    for row in range(2):
        utilities = 0.5 * offered.features[row] @ values + rewards
        expected = np.asarray(ProbitChoice(utilities, offered.legal[row]).probs, float)
        counts = np.bincount(made.data.choice[row::2], minlength=3)
        legal = offered.legal[row]
        assert (counts[~legal] == 0).all()
        assert chisquare(counts[legal], 4000 * expected[legal] / expected[legal].sum()).pvalue > 1e-3
    again = model.simulate(jax.random.key(1), offered, {"theta": made.parameters["theta"]})
    np.testing.assert_array_equal(again.data.choice, made.data.choice)


def test_simulated_values_come_from_the_prior():
    """Of 500 subjects about their own mean, a Kolmogorov-Smirnov test at 1e-3 with a fixed key."""
    who = np.arange(500)
    offered = Decisions.from_list([[[1.0], [0.0]]] * 500, subject=who)
    made = NoisyMDP(dist.HalfNormal(2.0), "features").simulate(jax.random.key(2), offered)
    told = {name: np.asarray(value, float) for name, value in made.parameters.items()}
    assert set(told) == {"kappa", "loc", "v_loc", "theta", "v"}
    scaled = (told["v"][:, 0] - told["v_loc"]) / np.sqrt(told["kappa"])
    assert kstest(scaled, norm.cdf).pvalue > 1e-3
    assert made.data.num_subjects == 500 and (made.data.choice >= 0).all()


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"key": jax.random.PRNGKey(0)}, TypeError, "key must come from jax.random.key"),
        ({"parameters": {"v": np.zeros(2)}}, ValueError, r"\['v'\] has shape \(2,\), not \(3,\)"),
        ({"parameters": {"w": np.zeros(3)}}, ValueError, r"parameters are \['w'\]: give theta, or v"),
        ({"parameters": {"v": np.full(3, np.nan)}}, ValueError, r"v\[0\] is not finite"),
        ({"kappa": float("inf")}, ValueError, "flat prior has no draws: give parameters"),
    ],
)
def test_what_cannot_be_simulated_is_named(given, error, message):
    data, key = Decisions.from_list([np.eye(3)] * 2), given.get("key", jax.random.key(0))
    with pytest.raises(error, match=message):
        NoisyMDP(given.get("kappa", 4.0)).simulate(key, data, given.get("parameters"))


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
        (
            lambda: NoisyMDP(dist.Normal(0.0, 1.0)),
            ValueError,
            "kappa has a prior with support .*numbers above 0",
        ),
        (lambda: NoisyMDP(dist.Uniform(-1.0, 1.0)), ValueError, "kappa has a prior with support"),
        (lambda: NoisyMDP(dist.Poisson(3.0)), ValueError, "kappa has a prior with support"),
        (
            lambda: NoisyMDP(dist.HalfNormal(np.ones(3))),
            ValueError,
            r"kappa has a prior with batch shape \(3,\) and event shape \(\)",
        ),
        (
            lambda: NoisyMDP(dist.HalfNormal(np.ones(3)).to_event(1)),
            ValueError,
            r"kappa has a prior with batch shape \(\) and event shape \(3,\)",
        ),
        (
            lambda: NoisyMDP(1.0).check(Decisions.from_list([[[1.0], [1.0]]], [0])),
            ValueError,
            r"features has shape \(1, 2, 1\): values of kind 'tabular' then have no parameter",
        ),
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
