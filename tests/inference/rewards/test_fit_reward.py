"""Reward posteriors against quadrature: ELBOs, divergences, the best Gaussian, other states; and refusals."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.infer import MCMC, SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoLowRankMultivariateNormal
from numpyro.optim import Adam

import ethogram
from ethogram.domains import small_mdps
from ethogram.inference.rewards import laplace
from ethogram.inference.rewards.fit_reward import fit_reward
from ethogram.inference.rewards.levine import levine_map
from ethogram.inference.rewards.predictions import (
    policies,
    predict_reward,
    transfer_reward,
)
from ethogram.inference.rewards.reward_posterior import RewardPosterior
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.mdps.demonstrations import demonstration_counts
from ethogram.models.mdps.mdp import MDP
from ethogram.models.mdps.values import soft_values
from ethogram.models.rewards.gp_irl import GPIRL

FEATURES = np.array([[1.0], [2.0], [3.0]])
DATA = small_mdps.three_state_demonstrations(1, 1)
EVIDENCE = -1.3577403816
BEST_GAUSSIAN = -1.3686171707
"""Of rewards of inducing points at all three states, scale 5 and relevance 1, by quadrature."""


def three_state(**settings):
    return GPIRL(
        small_mdps.three_state(), FEATURES, **({"scale_prior": 5.0, "relevance_prior": 1.0} | settings)
    )


MANY = {"num_draws": 128, "num_evaluations": 512, "progress_bar": False}
FEW = {"num_draws": 32, "num_evaluations": 64, "progress_bar": False}


@pytest.fixture(scope="module")
def fixed():
    """Fit with fixed hyper-parameters."""
    return fit_reward(jax.random.key(0), three_state(), DATA, **(FEW | {"hyper": "fixed"}))


@jax.jit
def mapping_of(model, scale):
    return model.reward_map(scale, jnp.ones(1))


def gaussian_of(fit):
    """Mean and root of the one Gaussian of a fit."""
    assert fit.posterior.latent_mean.shape[:2] == (1, 1)
    return fit.posterior.latent_mean[0, 0], fit.posterior.latent_root[0, 0]


def bound_by_quadrature(model, mean, root, nodes=14):
    """The bound of a Gaussian over w, rewards being one Gaussian of three."""
    mapping = mapping_of(model, 5.0)
    weights = np.asarray(mapping.weights)
    spread = weights @ root @ root.T @ weights.T
    if mapping.noise is not None:
        spread = spread + np.asarray(mapping.noise) @ np.asarray(mapping.noise).T
    x, w = np.polynomial.hermite_e.hermegauss(nodes)
    grid = np.stack(np.meshgrid(x, x, x, indexing="ij"), -1).reshape(-1, 3)
    mass = (w[:, None, None] * w[:, None] * w).ravel() / w.sum() ** 3
    rewards = weights @ mean + grid @ np.linalg.cholesky(spread).T
    counts = demonstration_counts(model.mdp, DATA)
    told = (np.asarray(soft_values(model.mdp, rewards).log_policy) * counts).sum((1, 2))
    sign = np.linalg.slogdet(root)[1]
    return mass @ told - 0.5 * ((root**2).sum() + mean @ mean - 3) + sign


@pytest.mark.parametrize("family", ["direct", pytest.param("inducing", marks=pytest.mark.slow)])
def test_natural_gradients_find_the_best_gaussian(family, fixed):
    fit = fixed
    if family == "inducing":
        fit = fit_reward(jax.random.key(0), three_state(inducing=np.arange(3)), DATA, **MANY)
    exact = bound_by_quadrature(fit.posterior.model, *gaussian_of(fit))
    assert fit.converged and fit.elbo >= fit.laplace_elbo
    assert abs(fit.elbo - exact) < 4.5 * fit.elbo_se
    assert exact < EVIDENCE
    if family == "inducing":
        assert exact > BEST_GAUSSIAN - 1e-3
    else:  # without the noise that no q of inducing points can learn
        assert exact > EVIDENCE - 5e-3


def test_draws_of_the_posterior_have_its_moments(fixed):
    """4 000 draws: means and deviations within 5 errors, of 6 numbers; fails by chance in 1 of 100 000 runs."""
    posterior = fixed.posterior
    model, drawn = posterior.model, posterior.sample(jax.random.key(1), 4000)
    weights = np.asarray(mapping_of(model, 5.0).weights)
    mean, root = gaussian_of(fixed)
    covariance = weights @ root @ root.T @ weights.T
    rewards = np.asarray(drawn["reward"], float)
    sd = np.sqrt(np.diag(covariance))
    assert (np.abs(rewards.mean(0) - weights @ mean) < 5 * sd / np.sqrt(4000)).all()
    assert (np.abs(rewards.std(0) / sd - 1) < 5 / np.sqrt(8000)).all()
    np.testing.assert_allclose(drawn["policy"].sum(-1), 1, atol=1e-5)
    np.testing.assert_allclose(np.asarray(drawn["centred_reward"]).mean(-1), 0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["direct", "inducing"])
def test_draws_do_not_lose_what_was_learned_in_double_precision(family):
    """On a line whose kernel has next to no noise, a root in single precision is another one: 4000 draws, 4 errors."""
    features = np.linspace(0, 3, 40, dtype=np.float32)[:, None]
    world = MDP.deterministic(np.clip(np.arange(40)[:, None] + [-1, 1], 0, 39), discount=0.9)
    points = {} if family == "direct" else {"inducing": np.arange(0, 40, 2)}
    hypers = {"noise": 1e-7, "scale_prior": 9.0, "relevance_prior": 1.0}
    model = GPIRL(world, features, **hypers, **points)
    # The model's features are those of single precision, to the last digit.
    mapping = GPIRL(world, features.astype(float), **hypers, **points).reward_map(9.0, np.ones(1))
    weights = np.asarray(mapping.weights)
    precision = np.eye(model.num_white) + 20 * weights.T @ weights
    mean, chosen = (
        np.linalg.solve(precision, 20 * weights.T @ np.sin(features[:, 0])),
        np.linalg.inv(precision),
    )
    parts = mean[None, None], np.linalg.cholesky(chosen)[None, None], np.zeros((1, 0)), np.zeros(1)
    posterior = RewardPosterior(model, *parts)
    drawn = posterior.sample(jax.random.key(1), 4000)
    rest = np.zeros((40, 40)) if mapping.noise is None else np.asarray(mapping.noise)
    covariance = weights @ chosen @ weights.T + rest @ rest.T
    gap = np.asarray(drawn["reward"], float)
    gap = gap[:, :1] - gap[:, [10, 20, 39]]
    away = np.eye(40)[0] - np.eye(40)[[10, 20, 39]]
    sd = np.sqrt(np.einsum("gi,ij,gj->g", away, covariance, away))
    assert (np.abs(gap.std(0) / sd - 1) < 4 / np.sqrt(8000)).all(), gap.std(0) / sd
    assert (np.abs(gap.mean(0) - away @ weights @ mean) < 4 * sd / np.sqrt(4000)).all()
    assert drawn["reward"].dtype == np.float32


def test_rewards_of_states_are_never_read_as_those_of_pairs():
    """Three states, actions and experts."""
    model = GPIRL(
        MDP.deterministic([[0, 1, 2]] * 3, discount=0.5), FEATURES, scale_prior=5.0, relevance_prior=1.0
    )
    found = jax.eval_shape(model.agent, np.eye(3))
    assert found.values.shape == (3, 3) and found.log_policy.shape == (3, 3, 3)


@pytest.mark.slow
def test_as_many_actions_as_states_and_draws_are_no_rewards_of_pairs():
    """Three states, actions and draws, and three experts: every reward is one of states."""
    world = MDP.deterministic([[0, 1, 2]] * 3, discount=0.5)
    model = GPIRL(world, FEATURES, scale_prior=5.0, relevance_prior=1.0, rationality=2.0)
    data = Trajectories.from_list(
        states=[[0, 1], [2, 0], [1, 1]], actions=[[1, 1], [0, 1], [1, 2]], subject=[0, 1, 2]
    )
    fit = fit_reward(jax.random.key(0), model, data, progress_bar=False)
    drawn = fit.posterior.sample(jax.random.key(1), 3)
    assert drawn["policy"].shape == (3, 3, 3, 3) and drawn["values"].shape == (3, 3, 3)
    one = {"scale": drawn["scale"], "relevance": drawn["relevance"], "reward": drawn["reward"][:, 0]}
    there = transfer_reward(jax.random.key(2), model, one, world, FEATURES)
    assert there.values.shape == (3, 3) and there.policy.shape == (3, 3, 3)
    # Every action leads where its number says: a value of 2 r + 0.5 V next, by sweeps.
    reward, values = np.asarray(there.reward.draws, float), np.zeros((3, 3))
    for _ in range(60):
        ahead = 2 * reward[:, :, None] + 0.5 * values[:, None, :]
        values = np.logaddexp.reduce(ahead, -1)
    np.testing.assert_allclose(there.policy, np.exp(ahead - values[..., None]), atol=1e-5)
    three = policies(world, one["reward"], rationality=2.0)
    np.testing.assert_allclose(three.posterior_mean, np.asarray(drawn["policy"])[:, 0].mean(0), atol=1e-5)


@pytest.mark.slow
def test_numpyros_guide_of_low_rank_is_the_papers_family():
    """N(m, BB' + D^2) over whitened rewards: the bound of SVI is that by quadrature, within 4.5 errors."""
    with jax.enable_x64(True):
        model = three_state()
        guide = AutoLowRankMultivariateNormal(model, rank=2)
        svi = SVI(model, guide, Adam(0.02), Trace_ELBO(num_particles=1000))
        params = svi.get_params(svi.init(jax.random.key(0), DATA))
        factor, scale = np.array([[0.9, 0.1], [0.2, 0.7], [-0.1, 0.1]]), np.array([0.3, 0.5, 0.4])
        mean = np.array([0.2, 0.5, -0.3])
        # numpyro's B is in units of D: its covariance is D (B B' + I) D.
        at = {"auto_loc": mean, "auto_cov_factor": factor / scale[:, None], "auto_scale": scale}
        assert {name: x.shape for name, x in params.items()} == {name: x.shape for name, x in at.items()}
        once = jax.jit(lambda key: -svi.loss.loss(key, at, model, guide, DATA))
        found = [once(key) for key in jax.random.split(jax.random.key(0), 8)]
        root = np.linalg.cholesky(factor @ factor.T + np.diag(scale**2))
        exact = bound_by_quadrature(model, mean, root)
    assert abs(np.mean(found) - exact) < 4.5 * np.std(found, ddof=1) / np.sqrt(8)


def test_rewards_of_other_states_against_dense_algebra():
    random = np.random.default_rng(0)
    with jax.enable_x64(True):
        world = MDP.dense(random.dirichlet(np.ones(4), (4, 2)), discount=0.8)
        features, others = random.normal(size=(4, 2)), random.normal(size=(3, 2))
        model = GPIRL(world, features, scale_prior=2.0, relevance_prior=np.array([0.5, 1.5]))
        rewards = random.normal(size=(50, 4))
        # Scales differ between draws; variances are proportional to them, so that their mean of two is what counts.
        samples = {
            "scale": np.linspace(1.0, 3.0, 50),
            "relevance": np.tile([0.5, 1.5], (50, 1)),
            "reward": rewards,
        }
        found = predict_reward(jax.random.key(0), model, samples, others)
        clean = predict_reward(jax.random.key(0), model, samples, others, noise_free=True)

    def kernel(one, other, same):
        table = 2 * np.exp(-0.5 * (([0.5, 1.5] * (one[:, None] - other) ** 2).sum(-1)) - 0.005 * 2)
        return np.where(np.eye(len(one)), 2.0, table) if same else table

    cross = np.linalg.solve(kernel(features, features, True), kernel(features, others, False)).T
    rest = kernel(others, others, True) - cross @ kernel(features, others, False)
    np.testing.assert_allclose(found.mean, (rewards @ cross.T).mean(0), rtol=1e-8)
    np.testing.assert_allclose(found.sd, np.sqrt(np.diag(rest) + (rewards @ cross.T).var(0)), rtol=1e-8)
    less = 2 * -np.expm1(-0.005 * 2)
    np.testing.assert_allclose(
        clean.sd, np.sqrt(np.diag(rest) - less + (rewards @ cross.T).var(0)), rtol=1e-8
    )


class Chains(MCMC):
    """An MCMC that has run, with draws of our own."""

    def __init__(self, **sites):
        self.sites = sites

    def get_samples(self, group_by_chain=False):
        return {
            name: site if group_by_chain else site.reshape(-1, *site.shape[2:])
            for name, site in self.sites.items()
        }


def test_predictions_read_mcmc_and_warn_where_it_has_not_converged(fixed):
    """Samples by site may be of q, and are not judged."""
    model = fixed.posterior.model
    drawn = fixed.posterior.sample(jax.random.key(1), 400)
    sites = {name: np.asarray(drawn[name]).reshape(2, 200, *drawn[name].shape[1:]) for name in drawn}
    key, features = jax.random.key(2), np.array([[1.5], [2.5], [4.0]])
    good = predict_reward(key, model, Chains(**sites), features)
    np.testing.assert_allclose(good.mean, predict_reward(key, model, drawn, features).mean, rtol=1e-6)
    sites["scale"] = sites["scale"] * np.array([1.0, 1.5])[:, None]
    sites["scale"] = sites["scale"] * np.exp(0.01 * np.random.default_rng(0).normal(size=(2, 200)))
    world = MDP.deterministic([[0, 1], [2, 0], [1, 2]], discount=0.5)
    for predict in (
        lambda: predict_reward(key, model, Chains(**sites), features),
        lambda: transfer_reward(key, model, Chains(**sites), world, features),
    ):
        with pytest.warns(UserWarning, match=r"the draws have not converged: scale .*r_hat") as seen:
            predict()
        assert len(seen) == 1 and seen[0].filename == __file__


def test_transfer_and_policies(fixed):
    model = fixed.posterior.model
    samples = fixed.posterior.sample(jax.random.key(1), 400)
    following = np.array([[0, 1], [2, 0], [1, 2]])
    world = MDP.deterministic(following, discount=0.5)
    there = transfer_reward(jax.random.key(2), model, samples, world, [[1.5], [2.5], [4.0]])
    assert there.values.shape == (400, 3) and there.policy.shape == (400, 3, 2)
    assert there.reward.draws.shape == (400, 3)
    reward, values = np.asarray(there.reward.draws, float), np.zeros((400, 3))
    for _ in range(60):
        ahead = reward[:, :, None] + 0.5 * values[:, following]
        values = np.logaddexp(*np.moveaxis(ahead, -1, 0))
    np.testing.assert_allclose(there.policy, np.exp(ahead - values[..., None]), atol=1e-5)
    both = np.stack([samples["reward"], 2 * np.asarray(samples["reward"])], 1)  # of two intents
    found = jax.tree.map(np.asarray, policies(model.mdp, both))
    np.testing.assert_allclose(found.posterior_mean[0], np.asarray(samples["policy"]).mean(0), atol=1e-5)
    assert set(np.unique(found.greedy)) <= {0.0, 1.0} and not np.allclose(*found.posterior_mean, atol=1e-2)
    np.testing.assert_array_equal(*found.greedy)
    with pytest.raises(ValueError, match=r"give features of the \(3,\) states"):
        transfer_reward(jax.random.key(2), model, samples, world, FEATURES[:2])
    with pytest.raises(ValueError, match="samples have no relevance"):
        predict_reward(jax.random.key(2), model, {"scale": 1.0, "reward": samples["reward"]}, FEATURES)


def test_a_posterior_is_saved_and_loaded(tmp_path, fixed):
    posterior = fixed.posterior
    posterior.save(tmp_path / "reward.npz")
    again = ethogram.load_posterior(tmp_path / "reward.npz")
    for one, other in zip(jax.tree.leaves(posterior), jax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(one, other)
    drawn = (it.sample(jax.random.key(3), 30)["reward"] for it in (posterior, again))
    np.testing.assert_array_equal(*drawn)


def test_the_mode_is_the_best_of_its_starts(monkeypatch):
    """A search that goes nowhere leaves the best start: the reward that says what was demonstrated, not the other."""
    model, tried = three_state(), []

    def nowhere(model, counts, log_hyper, start):
        reward = np.asarray(mapping_of(model, 5.0).weights) @ start
        log_policy = np.asarray(soft_values(model.mdp, reward).log_policy)
        tried.append(start)
        log_density = float((log_policy * np.asarray(counts)).sum() - 0.5 * start @ start)
        return laplace.PosteriorMode(start, np.eye(3), log_density, True)

    monkeypatch.setattr(laplace, "posterior_mode", nowhere)
    fit = fit_reward(jax.random.key(0), model, DATA, "map", num_restarts=6, progress_bar=False)
    densities = [
        nowhere(fit.posterior.model, demonstration_counts(model.mdp, DATA), np.zeros(0), one).log_density
        for one in tried[:7]
    ]
    assert not tried[0].any() and len({one[0] for one in tried[:7]}) == 7
    assert fit.objective == pytest.approx(max(densities), rel=1e-4)
    np.testing.assert_array_equal(fit.posterior.latent_mean[0, 0], tried[int(np.argmax(densities))])


def test_points_have_no_spread():
    model = three_state()
    mode = fit_reward(jax.random.key(0), model, DATA, method="map", progress_bar=False)
    assert np.isnan(mode.elbo) and mode.converged
    assert np.ptp(np.asarray(mode.posterior.sample(jax.random.key(0), 5)["reward"]), axis=0).max() == 0


@pytest.mark.parametrize("rationality", [pytest.param(1.0, marks=pytest.mark.slow), 2.0])
def test_levines_objective_and_policy_against_dense_algebra(rationality):
    """At what was found: the objective as printed, and the policy of a reward that acts as it was learned."""
    model = three_state(rationality=rationality)
    fit = levine_map(jax.random.key(0), model, DATA)
    u, scale, relevance = fit.u, fit.scale, fit.relevance
    every, points = np.arange(1.0, 4.0), np.array([1.0, 3.0])
    gap = points[:, None] - points
    inner = scale * np.exp(-0.5 * relevance * gap**2 - 0.005 * relevance * (gap != 0))
    cross = scale * np.exp(-0.5 * relevance * (every[:, None] - points) ** 2 - 0.005 * relevance)
    reward, values = cross @ np.linalg.solve(inner, u), np.zeros(3)
    following = np.array([[1, 2], [0, 2], [0, 1]])
    for _ in range(400):
        ahead = rationality * reward[:, None] + 0.9 * values[following]
        values = np.logaddexp(*ahead.T)
    log_policy = ahead - values[:, None]
    told = log_policy[0, 0] + log_policy[2, 1]
    prior = -0.5 * u @ np.linalg.solve(inner, u) - 0.5 * np.linalg.slogdet(2 * np.pi * inner)[1]
    objective = told + prior - np.log1p(relevance) - 0.5 * (np.linalg.inv(inner) ** 2).sum()
    np.testing.assert_allclose(fit.objective, objective, rtol=1e-8)
    np.testing.assert_allclose(fit.reward, reward, rtol=1e-8)
    drawn = fit.draws_for_export(jax.random.key(0), 5)
    np.testing.assert_allclose(np.asarray(drawn.sites["policy"])[0, 4], np.exp(log_policy), atol=1e-5)


@pytest.mark.slow
def test_initial_relevances_do_not_depend_on_the_units_of_many_features():
    """In thousandths of a unit nothing would be smooth at the relevances that begin Levine's search, and bound it."""
    at = np.arange(12)
    corridor = MDP.deterministic(np.stack([np.maximum(at - 1, 0), np.minimum(at + 1, 11)], 1), discount=0.9)
    features = 1000 * np.column_stack([at / 12, np.random.default_rng(0).uniform(size=(12, 3))])
    model = GPIRL(corridor, features, noise=0.005 * 1e6, scale_prior=5.0)
    fit = fit_reward(jax.random.key(0), model, np.stack([2 * at, 22 - 2 * at], 1), "map", progress_bar=False)
    assert fit.white_share < 0.5


def test_counts_go_to_arviz_and_back():
    model, counts = three_state(), np.array([[3, 1], [0, 0], [1, 2]])
    fit = fit_reward(jax.random.key(0), model, counts, **MANY)
    tree = ethogram.to_arviz(fit, counts, num_draws=8, posterior_predictive=True)
    new = np.asarray(tree.posterior_predictive["demonstrations"])
    assert new.shape == (1, 8, 3, 2) and (new.sum(-1) == [4, 0, 3]).all()
    assert tree.attrs["final_elbo"] == pytest.approx(fit.elbo)


@pytest.mark.slow
def test_what_was_learned_goes_to_arviz(fixed):
    tree = ethogram.to_arviz(fixed, DATA, num_draws=20, log_likelihood="sequence", posterior_predictive=True)
    assert tree.posterior["reward"].dims == ("chain", "draw", "state")
    assert tree.posterior["policy"].dims == ("chain", "draw", "state", "action")
    assert tree.log_likelihood["demonstrations"].shape == (1, 20, 2)
    expected = np.log(
        np.asarray(tree.posterior["policy"])[0, :, 0, 0]
    )  # the first goes from state 0 by action 0
    np.testing.assert_allclose(
        np.asarray(tree.log_likelihood["demonstrations"])[0, :, 0], expected, rtol=1e-4
    )
    assert np.asarray(tree.posterior_predictive["demonstrations"]).shape == (1, 20, 2, 1, 2)
    np.testing.assert_array_equal(tree.fit_stats["elbo"], fixed.trace)


@pytest.mark.parametrize("inducing", [None, np.array([0, 2])])
def test_means_are_those_of_the_function_of_features(inducing):
    """E f(x) of the states' own features by dense algebra; with the noise of cells what the map gives."""
    features = np.array([[0.0, 1.0], [0.5, -1.0], [2.0, 0.3]])
    with jax.enable_x64(True):
        hypers = {"scale_prior": 3.0, "relevance_prior": np.array([0.5, 20.0]), "noise": 0.02}
        model = GPIRL(small_mdps.three_state(), features, inducing=inducing, **hypers)
        white = np.array([0.3, -1.0, 0.8])[: model.num_white]
        parts = white[None, None], np.eye(len(white))[None, None], np.zeros((1, 0)), np.zeros(1)
        posterior = RewardPosterior(model, *parts)
        found, cells = posterior.mean(), posterior.mean(cell_noise=True)
    apart = ([0.5, 20.0] * (features[:, None] - features) ** 2).sum(-1)
    smooth = 3 * np.exp(-0.5 * apart - 0.02 * 20.5)
    at = np.arange(3) if inducing is None else inducing
    kernel = np.where(np.eye(len(at)), 3.0, smooth[np.ix_(at, at)])
    rewards = np.linalg.cholesky(kernel) @ white
    expected = smooth[:, at] @ np.linalg.solve(kernel, rewards)
    np.testing.assert_allclose(found["reward"], expected, rtol=1e-6)
    np.testing.assert_allclose(cells["reward"], rewards if inducing is None else expected, rtol=1e-6)
    policy = np.asarray(soft_values(model.mdp, expected).policy)
    np.testing.assert_allclose(found["policy"], policy, atol=1e-5)
