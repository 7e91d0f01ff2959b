"""Hyper-parameters of rewards move with what the data say of the rewards held: algebra, and fits of many decisions."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import numpyro.distributions as dist
import pytest

from ethogram.domains import small_mdps
from ethogram.inference.rewards.fit_reward import fit_reward
from ethogram.inference.rewards.gaussian_vi import BaseDraws, _transport, elbo, moved_elbo
from ethogram.inference.rewards.laplace import Gaussian
from ethogram.models.mdps.mdp import MDP
from ethogram.models.mdps.values import soft_values
from ethogram.models.rewards.gp_irl import GPIRL

FREE = {"scale_prior": dist.LogNormal(1.0, 1.0), "relevance_prior": dist.LogNormal(0.0, 1.0)}


def kernel(features, log_hyper):
    """The covariance as printed, with the default noise."""
    scale, relevance = np.exp(log_hyper[0]), np.exp(log_hyper[1:])
    apart = (relevance * (features[:, None] - features) ** 2).sum(-1)
    return scale * np.exp(-0.5 * apart - 0.005 * relevance.sum() * (1 - np.eye(len(features))))


moved = jax.jit(_transport, static_argnums=4)


@pytest.mark.parametrize("noise", [1e-3, 1.0, 1e3])
def test_a_gaussian_likelihood_has_its_posterior_at_other_hyper_parameters(noise):
    """Observations of rewards with little, some and much noise, for two experts: posteriors by dense algebra."""
    random = np.random.default_rng(3)
    features, seen = random.normal(size=(5, 2)), random.normal(size=(2, 5))
    model = GPIRL(MDP.deterministic(random.integers(0, 5, (5, 2)), discount=0.9), features, **FREE)
    spread = noise * np.diag([1.0, 2.0, 0.5, 1.0, 3.0])

    def posterior(log_hyper):
        prior = kernel(features, log_hyper)
        gain = prior @ np.linalg.inv(prior + spread)
        return seen @ gain.T, prior - gain @ prior

    def root_of(log_hyper):
        return np.linalg.cholesky(kernel(features, log_hyper))

    before, after = np.array([0.5, 0.2, -0.3]), np.array([2.0, -1.0, 0.7])
    mean, covariance = posterior(before)
    inverse = np.linalg.inv(root_of(before))
    root = np.linalg.cholesky(inverse @ covariance @ inverse.T)
    q = Gaussian(mean @ inverse.T, np.stack([root] * 2))
    mean, covariance = posterior(after)
    for bounded in (True, False):
        found = jax.tree.map(np.asarray, moved(model, q, before, after, bounded))
        rewards = np.asarray(found.mean) @ root_of(after).T
        np.testing.assert_allclose(rewards, mean, rtol=1e-6, atol=1e-7 * np.abs(seen).max())
        of_rewards = root_of(after) @ np.asarray(found.root[1])
        np.testing.assert_allclose(of_rewards @ of_rewards.T, covariance, rtol=1e-5, atol=1e-6 * noise)
        np.testing.assert_allclose(np.triu(found.root, 1), 0)


FEW = {"num_draws": 32, "num_evaluations": 64, "progress_bar": False}


def demonstrated(decisions):
    """The three-state world with a free scale, a reward far from the prior's mean one, and counts of its policy."""
    world = small_mdps.three_state()
    model = GPIRL(world, scale_prior=dist.LogNormal(np.log(5.0), 1.0), relevance_prior=1.0)
    policy = np.asarray(soft_values(world, np.array([7.0, -5.0, 1.0])).policy)
    return model, np.rint(decisions / 3 * policy).astype(int)


def test_hyper_parameters_move_by_the_gradient_of_the_bound_of_the_moved_gaussian():
    """By differences."""
    random = np.random.default_rng(1)
    model = GPIRL(small_mdps.three_state(), **FREE)
    counts = np.array([[[2.0, 0], [0, 0], [0, 1]]])
    root = 0.7 * np.eye(3) + np.tril(0.2 * random.normal(size=(3, 3)))
    draws = BaseDraws(random.normal(size=(32, 1, 3)), None)
    log_hyper = np.array([1.4, 0.3])
    q = Gaussian(random.normal(size=(1, 3)), root[None])
    new = log_hyper + np.array([0.3, -0.2])
    level, found = moved_elbo(model, counts, draws, log_hyper, q, new)

    def value(new):
        return elbo(model, counts, new, moved(model, q, log_hyper, new, False), draws).mean()

    np.testing.assert_allclose(level, value(new), rtol=1e-10)
    for i, step in enumerate(1e-4 * np.eye(2)):
        slope = (value(new + step) - value(new - step)) / 2e-4
        np.testing.assert_allclose(found[i], slope, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("hyper", ["point", "integrated"])
def test_fits_of_many_decisions_end_at_the_best_hyper_parameters(hyper):
    """The ELBO with the scale held is largest where the search ended, within the tolerance."""
    model, counts = demonstrated(100_000)
    fit = fit_reward(jax.random.key(0), model, counts, hyper=hyper, **FEW)
    assert fit.converged, fit.reason
    mode = np.ravel(fit.posterior.log_hyper)[0]

    def held(log_scale):
        start = {"scale": np.exp(log_scale)}
        return fit_reward(jax.random.key(1), model, counts, hyper="fixed", start=start, **FEW).elbo

    best = held(mode)
    for step in (0.7, -0.7):
        assert held(mode + step) < best + 0.1


@pytest.mark.filterwarnings("ignore:the search has not converged:UserWarning")
def test_a_resumed_search_is_judged_by_the_tolerance_of_the_call(tmp_path):
    model, counts = demonstrated(100)
    model = dataclasses.replace(model, scale_prior=5.0)
    settings = FEW | {"hyper": "fixed", "checkpoint": tmp_path / "search"}
    rough = fit_reward(jax.random.key(0), model, counts, tol=1.0, **settings)
    exact = fit_reward(jax.random.key(0), model, counts, tol=1e-6, num_steps=9, **settings)
    assert rough.converged and rough.steps < 9
    assert not exact.converged and exact.steps == 9


@pytest.mark.slow
def test_relevances_of_pairs_that_matter_are_found():
    """Twelve features of pairs, of which two matter: there is no estimate of Levine's to start from."""
    random = np.random.default_rng(0)
    world = MDP.deterministic(random.integers(6, size=(6, 3)), discount=0.8)
    features = random.normal(size=(6, 3, 12))
    reward = 2 * np.tanh(features[..., 0]) - 1.5 * features[..., 1]
    counts = np.rint(100 * np.asarray(soft_values(world, reward).policy)).astype(int)
    fit = fit_reward(jax.random.key(0), GPIRL(world, features), counts, progress_bar=False)
    relevance = np.exp(fit.posterior.log_hyper[0][1:])
    assert set(np.argsort(-relevance)[:2]) == {0, 1}
    assert relevance[:2].min() > 3 * relevance[2:].max()
