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
from scipy.special import ndtr
from scipy.stats import chisquare, kstest, norm

from ethogram.models.choices import noisy_mdp
from ethogram.models.choices.choice_distribution import ChoiceDistribution
from ethogram.models.choices.decisions import Decisions
from ethogram.models.choices.noisy_mdp import NoisyMDP
from ethogram.models.data.metadata import Metadata
from ethogram.models.mdps.mdp import MDP


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


@jax.jit
def joint(model, data, theta):
    """The log joint density of theta, and its gradient."""
    return jax.value_and_grad(lambda theta: log_density(model, (data,), {}, {"theta": theta})[0])(theta)


def choice_of(sites):
    """The distribution of the choices, without mask and plate."""
    found = sites["choice"]["fn"]
    while not isinstance(found, ChoiceDistribution):
        found = found.base_dist
    return found


def by_sums(utilities, chosen):
    """Log probability of the chosen options (decision,) by a sum over their noise, in NumPy."""
    x = np.linspace(-9, 9, 61)
    found = []
    for row, option in zip(utilities, chosen, strict=True):
        gaps = row[option] - np.delete(row, option)
        found.append(np.log((norm.pdf(x) * np.prod(ndtr(x + gaps[:, None]), axis=0)).sum() * (x[1] - x[0])))
    return np.array(found)


def test_tabular_values_sum_to_zero_with_equal_variances():
    """The basis is orthonormal and sums to zero, so that values have covariance kappa (I - 11' / N)."""
    data, model = chain_decisions(), NoisyMDP(9.0)
    basis = np.asarray(model.parts(np.eye(3), data)["v"])
    np.testing.assert_allclose(basis.sum(-1), 0, atol=1e-12)
    np.testing.assert_allclose(basis.T @ basis, np.eye(4) - 0.25, atol=1e-12)
    prior = sites_of(model, data, np.zeros(3))["theta"]["fn"]
    np.testing.assert_allclose(prior.variance, 9 * np.ones(3))


def test_utilities_are_expected_values_and_rewards():
    data, theta = chain_decisions(), np.array([0.5, -1.0, 2.0, 0.3, -0.8])
    model = NoisyMDP(9.0, action_rewards=True, beta=0.9)
    sites = sites_of(model, data, theta)
    rewards = np.asarray(sites["action_rewards"]["value"])
    utilities = 0.9 * data.features @ np.asarray(sites["v"]["value"]) + rewards
    np.testing.assert_allclose(choice_of(sites).utilities, utilities, atol=1e-12)
    np.testing.assert_allclose(model.utilities(theta, data), utilities, atol=1e-12)
    assert float(rewards.sum()) == pytest.approx(0, abs=1e-12) and np.abs(rewards).max() > 0.1
    found = choice_of(sites).log_prob(data.choice)
    np.testing.assert_allclose(found, by_sums(utilities, data.choice), atol=1e-9)


def test_variances_of_values_rewards_and_subjects():
    data = chain_decisions(6)
    several = data._replace(subject=np.arange(6) % 2)
    apart = sites_of(NoisyMDP(9.0, action_rewards=2.0), data, np.zeros(5))
    np.testing.assert_allclose(apart["theta"]["fn"].variance, [9, 9, 9, 2, 2])
    sites = sites_of(NoisyMDP(9.0, loc_kappa=3.0), several, np.zeros((2, 3)))
    np.testing.assert_allclose(sites["loc"]["fn"].variance, 3 * np.ones(3))
    np.testing.assert_allclose(sites["theta"]["fn"].variance, 9 * np.ones((2, 3)))
    np.testing.assert_allclose(sites["theta"]["fn"].mean, np.broadcast_to(sites["loc"]["value"], (2, 3)))


@pytest.mark.optimised
def test_nuts_has_the_posterior_of_a_grid():
    """One weight, 15 decisions: mean and deviation within 4 Monte Carlo errors of a sum over a grid."""
    random = np.random.default_rng(0)
    sets = random.normal(size=(15, 3, 1))
    choice = np.argmax(sets[..., 0] * 0.8 + random.normal(size=(15, 3)), axis=1)
    data = Decisions.from_list(sets, choice)
    axis, logs = np.linspace(-6, 8, 501), 0.0
    for features, chosen in zip(sets[..., 0], choice, strict=True):
        logs = logs + by_sums(features * axis[:, None], np.full(501, chosen))
    logs = logs - axis**2 / (2 * 9.0)
    weight = np.exp(logs - logs.max()) / np.exp(logs - logs.max()).sum()
    mean = weight @ axis
    deviation = np.sqrt(weight @ (axis - mean) ** 2)
    mcmc = MCMC(NUTS(NoisyMDP(9.0, "features")), num_warmup=500, num_samples=2000, progress_bar=False)
    mcmc.run(jax.random.key(0), data)
    drawn = np.asarray(mcmc.get_samples()["v"])[:, 0]
    assert abs(drawn.mean() - mean) < 4 * deviation / np.sqrt(len(drawn) / 4)
    assert drawn.std() == pytest.approx(deviation, rel=0.05)


def test_a_decision_is_one_entry_of_the_log_likelihood_and_unknown_choices_are_ignored():
    """Weights multiply the likelihood in the posterior; pointwise log likelihoods are those of one decision."""
    data = chain_decisions(6)
    data = data._replace(
        choice=np.where(np.arange(6) == 2, -1, data.choice), weight=np.array([1, 2, 3, 0, 1, 1.5])
    )
    model, theta = NoisyMDP(9.0), np.array([1.0, -2.0, 0.5])
    utilities = data.features @ np.asarray(model.parts(theta, data)["v"])
    exact = np.where(data.choice >= 0, by_sums(utilities, np.maximum(data.choice, 0)), 0)
    found = jax.jit(lambda x: log_likelihood(model, {"theta": x}, data)["choice"])(
        np.stack([theta, 0 * theta])
    )
    assert found.shape == (2, 6)
    np.testing.assert_allclose(found[0, [0, 1, 4, 5]], exact[[0, 1, 4, 5]], atol=1e-9)
    with numpyro.validation_enabled():
        value, slope = joint(model, data, theta)
    prior = -0.5 * theta @ theta / 9 - 1.5 * np.log(2 * np.pi * 9)
    assert float(value) == pytest.approx(prior + data.weight @ exact, abs=1e-8)
    assert np.isfinite(slope).all()
    sites = sites_of(model, data, np.zeros(3))
    np.testing.assert_array_equal(sites["choice"]["value"], data.choice)


def test_padding_has_no_gradient():
    data = Decisions.from_list([[[1.0], [0.5]], [[0.2], [0.1], [0.7]]], choice=[0, 2])
    padded = data._replace(features=np.where(data.legal[..., None], data.features, np.nan))
    model = NoisyMDP(4.0, "features")
    slope, truth = (joint(model, given, np.array([0.7]))[1] for given in (padded, data))
    np.testing.assert_allclose(slope, truth, rtol=1e-12)
    assert np.isfinite(slope).all() and slope[0] != 0


def test_models_are_arguments_of_compiled_functions():
    """Traced variances, rewards and beta have the density by sums, with two values of each and one program."""
    data, theta = chain_decisions(), np.array([0.5, -1.0, 2.0, 0.3, -0.8])
    for kappa, rewards, beta in ((9.0, 2.0, 0.9), (4.0, 3.0, 0.5)):
        model = NoisyMDP(kappa, action_rewards=rewards, beta=beta)
        parts = {name: np.asarray(part) for name, part in model.parts(theta, data).items()}
        utilities = beta * data.features @ parts["v"] + parts["action_rewards"]
        deviation = np.sqrt([kappa] * 3 + [rewards] * 2)
        whole = norm.logpdf(theta, 0, deviation).sum() + by_sums(utilities, data.choice).sum()
        assert float(joint(model, data, theta)[0]) == pytest.approx(whole, abs=1e-8)


def test_a_checked_problem_is_not_checked_again(monkeypatch):
    """Models take what `check` returns in place of decisions."""
    data, model = chain_decisions(), NoisyMDP(9.0)
    problem = model.check(data)
    np.testing.assert_array_equal(problem.design, model.design(data))
    theta = np.ones(3)
    utilities = data.features @ np.asarray(model.parts(theta, data)["v"])
    whole = norm.logpdf(theta, 0, 3).sum() + by_sums(utilities, data.choice).sum()
    for name in ("check_decisions", "weights_of"):
        monkeypatch.setattr(noisy_mdp, name, None)
    monkeypatch.setattr(NoisyMDP, "design", None)
    found = jax.jit(lambda theta: log_density(model, (problem,), {}, {"theta": theta})[0])(theta)
    assert float(found) == pytest.approx(whole, abs=1e-8)


def test_decisions_on_a_device_are_checked_under_jit():
    data = jax.tree.map(jnp.asarray, Decisions.from_list([[[1.0], [0.0]]] * 4, [0, 0, 1, 0]))
    model = NoisyMDP(float("inf"), "features")
    found = jax.jit(lambda theta: log_density(model, (data,), {}, {"theta": theta})[0])(jnp.array([0.5]))
    assert np.isfinite(found)


def test_a_variance_may_have_a_prior():
    data = chain_decisions()
    sites = sites_of(NoisyMDP(dist.LogNormal()), data, np.zeros(3))
    np.testing.assert_allclose(sites["theta"]["fn"].variance, np.full(3, sites["kappa"]["value"]))


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
    model, stated = NoisyMDP(4.0), "no decision has two legal options and a known choice"
    with pytest.raises(ValueError, match=stated):
        model(data)
    with pytest.raises(ValueError, match=stated):
        model.check(data._replace(choice=np.array([0, 0]), weight=np.array([0, 2])))
    model.check(data, condition=False)
    assert model.simulate(jax.random.key(0), data).data.choice[1] == 0


def test_a_flat_prior_says_that_it_has_no_draws():
    model, data = NoisyMDP(float("inf"), "features"), Decisions.from_list([[[1.0], [0.0]]] * 4, [0, 0, 1, 0])
    with pytest.raises(NotImplementedError, match="kappa is infinite, and a flat prior cannot be sampled"):
        Predictive(model, num_samples=3)(jax.random.key(0), data, condition=False)
    drawn = Predictive(model, {"theta": jnp.zeros((3, 1))})(jax.random.key(0), data, condition=False)
    assert drawn["choice"].shape == (3, 4)


@pytest.mark.slow
def test_numpyro_initialises_a_flat_prior():
    model, data = NoisyMDP(float("inf"), "features"), Decisions.from_list([[[1.0], [0.0]]] * 4, [0, 0, 1, 0])
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
        counts = np.bincount(made.data.choice[row::2], minlength=3)
        legal = offered.legal[row]
        expected = np.exp(by_sums(np.tile(utilities[legal], (legal.sum(), 1)), range(legal.sum())))
        assert (counts[~legal] == 0).all()
        assert chisquare(counts[legal], 4000 * expected / expected.sum()).pvalue > 1e-3
    again = model.simulate(jax.random.key(1), offered, {"theta": made.parameters["theta"]})
    np.testing.assert_array_equal(again.data.choice, made.data.choice)


def test_simulated_values_come_from_the_prior():
    """Of 500 subjects about their own mean, a Kolmogorov-Smirnov test at 1e-3 with a fixed key."""
    who = np.arange(500)
    offered = Decisions.from_list([[[1.0], [0.0]]] * 500, subject=who)
    made = NoisyMDP(dist.HalfNormal(2.0), "features").simulate(jax.random.key(2), offered)
    stated = {name: np.asarray(value, float) for name, value in made.parameters.items()}
    assert set(stated) == {"kappa", "loc", "v_loc", "theta", "v"}
    scaled = (stated["v"][:, 0] - stated["v_loc"]) / np.sqrt(stated["kappa"])
    assert kstest(scaled, norm.cdf).pvalue > 1e-3
    assert made.data.num_subjects == 500 and (made.data.choice >= 0).all()


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"key": jax.random.PRNGKey(0)}, TypeError, "key must be one typed key"),
        ({"parameters": {"v": np.zeros(2)}}, ValueError, r"\['v'\] has shape \(2,\), not \(3,\)"),
        ({"parameters": {"w": np.zeros(3)}}, ValueError, r"parameters are \['w'\]: pass theta, or v"),
        ({"parameters": {"v": np.full(3, np.nan)}}, ValueError, r"v\[0\] is not finite"),
        ({"kappa": float("inf")}, ValueError, "flat prior cannot be sampled: pass parameters"),
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
        ValueError, match=r"contradicts v \+ c \* \[1\.\] for any c > 0 \(decisions 0, 1, 2, 3 agree"
    ):
        NoisyMDP(float("inf"), "features")(separated)
    NoisyMDP(100.0, "features").check(separated)
    assert "(only decision 0 depends on it)" in NoisyMDP(kind="features").separation(separated.take([0]))
    unvisited = Decisions.from_list([np.eye(3)[:2]] * 4, [0, 1, 0, 1])
    with pytest.raises(ValueError, match="no option differs along it"):
        NoisyMDP(float("inf")).check(unvisited)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: NoisyMDP(0.0), ValueError, "kappa must be a positive number"),
        (lambda: NoisyMDP("wide"), TypeError, "kappa"),
        (lambda: NoisyMDP(None), TypeError, "^kappa is None: give a positive number"),
        (lambda: NoisyMDP(loc_kappa=None), TypeError, "^loc_kappa is None: give a positive number"),
        (lambda: NoisyMDP(dist.Normal(0.0, 1.0)), ValueError, "kappa has a prior with support .*on the positive reals"),
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
            r"features has shape \(1, 2, 1\): values of kind 'tabular' have no free parameter",
        ),
        (lambda: NoisyMDP(1.0, "values"), ValueError, "kind must be 'tabular' or 'features', not 'values'"),
        (lambda: NoisyMDP(1.0, beta=1.5), ValueError, r"beta must be a number in \(0, 1\]"),
        (lambda: NoisyMDP(1.0, action_rewards=-1.0), ValueError, "action_rewards must be a positive number"),
        (lambda: NoisyMDP(1.0, action_rewards=float("inf")), ValueError, "make both finite, or both infinite"),
        (
            lambda: NoisyMDP(1.0).check(Decisions.from_list([[[1.0, 0.2]]], [0])),
            ValueError,
            r"features\[0, 0\] sum to 1\.2, not 1",
        ),
        (lambda: NoisyMDP(1.0).check([1, 2]), TypeError, "data is list, not Decisions"),
    ],
)  # fmt: skip
def test_bad_input_is_named(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_weights_of_subjects_have_a_variance_each():
    random = np.random.default_rng(0)
    data = Decisions(random.normal(size=(6, 3, 2)), np.ones((6, 3), bool), np.arange(6) % 3, np.arange(6) % 2)
    model = NoisyMDP(dist.InverseGamma(3.0, 2.0), "features", action_rewards=True)
    loc, theta, kappa = random.normal(size=4), random.normal(size=(2, 4)), np.array([0.5, 2.0, 4.0])
    held = substitute(model, {"loc": loc, "theta": theta, "kappa": kappa})
    sites = trace(seed(held, jax.random.key(0))).get_trace(data)
    wanted = norm.logpdf(theta, loc, np.sqrt([0.5, 2.0, 4.0, 4.0])).sum(1)
    np.testing.assert_allclose(sites["theta"]["fn"].log_prob(theta), wanted, rtol=1e-6)
    assert sites["kappa"]["fn"].event_shape == (3,)
    dims, coords = model.site_layout(data)
    assert dims["kappa"] == ("coefficient",) and coords["coefficient"] == ["0", "1", "action_rewards"]
    assert (
        NoisyMDP(dist.InverseGamma(3.0, 2.0)).shape_of_kappa(data) == ()
    )  # the basis of values is arbitrary
    assert model.shape_of_kappa(data._replace(subject=None)) == ()


def test_features_far_from_zero_keep_their_differences_in_single_precision():
    """An offset of a feature changes no choice; of 1e8 single precision knows no digit below eight."""
    random = np.random.default_rng(0)
    near = random.integers(0, 5, size=(6, 3, 2)).astype(float)
    far = near + random.integers(1, 9, size=(6, 1, 2)) * 1e8
    legal, theta = random.random((6, 3)) < 0.8, np.array([0.7, -0.4], np.float32)
    legal[:, 0] = True
    with jax.enable_x64(False):
        model, chances = NoisyMDP(4.0, "features", beta=0.9), []
        for features in (near, far):
            problem = model.check(Decisions(features, legal, np.zeros(6, int)))
            utilities = np.asarray(model.utilities(theta, jax.device_put(problem)))
            chances.append(np.where(legal, utilities - utilities[:, :1], 0))
    np.testing.assert_allclose(chances[1], chances[0], atol=1e-5)


def test_units_change_the_sampled_site_and_not_the_posterior():
    data = chain_decisions()
    model = NoisyMDP(4.0)
    problem = model.check(data)
    unit = np.array([0.01, 1.0, 300.0], np.float32)
    points = np.random.default_rng(0).normal(size=(2, 3)).astype(np.float32)
    plain = [joint(model, problem, point)[0] for point in points]
    units = problem._replace(unit=unit)
    scaled = [log_density(model, (units,), {}, {"theta_scaled": point / unit})[0] for point in points]
    np.testing.assert_allclose(scaled[0] - scaled[1], plain[0] - plain[1], rtol=1e-4)
    held = substitute(seed(model, jax.random.key(0)), data={"theta_scaled": points[0] / unit})
    np.testing.assert_allclose(trace(held).get_trace(units)["theta"]["value"], points[0], rtol=1e-6)


def priced(count, scale, seed=0, names=("price", "size", "hours"), **fields):
    """Choices by three features of equal effect, standardised but the first, whose column has this scale."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(count, 3, 3))
    choice = (x @ [0.7, -0.7, 0.7] + random.normal(size=(count, 3))).argmax(1)
    return Decisions(
        x * [scale, 1, 1], np.ones((count, 3), bool), choice, metadata=Metadata(feature_names=names), **fields
    )


@pytest.mark.parametrize(
    ("data", "model", "message"),
    [
        (priced(300, 1e-4), NoisyMDP(kind="features"), r"price \(.* [78]\.\de-05\);.*, 5,.*larger kappa"),
        (priced(30, 0.03), NoisyMDP(kind="features"), r"price \(.* 0\.02\d\);"),
        (priced(30, 1e-6, names=None), NoisyMDP(kind="features", action_rewards=True), r": 0 \(.* [789]\.\de-07\);"),
        (priced(60, 1e-3, subject=np.arange(60) % 3), NoisyMDP(dist.HalfNormal(5.0), kind="features"), "loc_kappa"),
    ],
)  # fmt: skip
def test_a_prior_that_outweighs_the_data_is_a_warning_with_the_cure(data, model, message):
    with pytest.warns(UserWarning, match=message):
        model.warn_of_prior(model.check(data))


def test_ordinary_features_give_no_warning_of_the_prior():
    """Warnings are errors: standardised features, wide ones, constant ones, and one that differs in one decision."""
    rare = priced(100, 1.0)
    rare.features[1:, :, 0] = 0.0
    ordinary = [priced(count, 1.0, seed) for count in (5, 30) for seed in range(10)]
    for data in (*ordinary, rare, priced(30, 1e6), priced(30, 0.0), priced(30, 0.2), priced(20_000, 0.01)):
        model = NoisyMDP(kind="features")
        model.warn_of_prior(model.check(data))
    for model in (NoisyMDP(1e9, kind="features"), NoisyMDP(np.inf, kind="features")):
        model.warn_of_prior(model.check(priced(300, 1e-4)))
